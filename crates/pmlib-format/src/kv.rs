//! The key-value engines' bytes: a head, index chunks, record chunks, records.
//!
//! An engine has a head, an object of the heap. Its other bytes are runs of chunks whose entries in
//! the chunk table name the head as their owner.
//!
//! A **record** begins at a multiple of 16:
//!
//! | word | holds |
//! |---|---|
//! | 0 | check of the value: its XXH3-64, keyed by the hash of head and key |
//! | 1 | version (32 bits), check of head and key (32) |
//! | 2 | bytes of the value (33 bits), of the key (17), flags (14) |
//!
//! then words that flags announce, the key, the value. The hash of head and key is the XXH3-64 of
//! word 2 and what follows up to the value, keyed by the heap's seed, the record's offset and its
//! version. Their check is that hash and word 0, folded. The lowest four bits of the flags are the
//! place's instance: how often it was used, modulo 16. The next one announces a word: when the
//! record expires, in milliseconds since 1970. A record never changes.
//!
//! The lower half of a **version** is a number, one more than the key's version before has. The
//! upper half names the slot of that one if both slots are in one line, and is 0 otherwise. It is
//! the upper 16 bits of the slot's word, in the state "live", times 0x9e37_79b9_7f4a_7c15; 1 stands
//! for 0.
//!
//! A **slot** of the index is a word: offset / 16 (38 bits), state (2), instance (4), hash (20). A
//! bucket is a line of eight. The 20 bits are the upper ones of the key's XXH3-64, keyed by the
//! seed.
//!
//! An **index chunk** has up to 16 groups of 4 KiB: a line of [`INDEX_MAGIC`] (the first group's),
//! lines of buckets, stash lines. Two lines are a key's own, by other bits of its hash; the stash
//! is for the keys of the whole group.
//!
//! The **directory** is an object of 2^depth words, by the upper bits of the hash; each is a chunk
//! (40 bits), how many bits of the hash its keys have in common (8), and a check (16).
//!
//! An index chunk of a **tree** has the keys of a range. Its second word names the fence of its
//! least key, as a leaf's first word does. Each of its groups has leaves behind its first line: a
//! line, whose first word is 0 (no leaf) or a slot's word that names the leaf's fence, and lines of
//! buckets. A fence is a record whose key is the least that the leaf may have; a word with the
//! place 0 stands for the least key of all. State "put": the leaf before it may still have slots of
//! the leaf's keys. A tree's directory has its chunks in the order in which they were made, then
//! zeros. Each is an *entry* of eight words. The first is the chunk's word. Six have the least key,
//! with zeros behind it. The last has the key's length (8 bits; [`ENTRY_KEY_FAR`]: the key is
//! longer, and the fence has it) below a check (56): XXH3-64 of the seven words, keyed by the seed,
//! the head's offset and the length. The word of the shape in a tree's head has a group's leaves in
//! place of stash lines.
//!
//! A **record chunk** has a line: [`RECORDS_MAGIC`], bytes of a place, and a word of places (lower
//! half) and how many of these, the first ones, puts that have returned may ever have used (upper
//! half; 0: any). A byte of each place follows, which means nothing in a later run, then the
//! places, from a line's start on.
//!
//! The **journal** is a run with a line: [`JOURNAL_MAGIC`], the number of the last batch that is
//! over (48 bits) with a check (16), the same again. A record follows: check (XXH3-64 of all that
//! follows, keyed by the seed and the journal's offset), number of the batch, images, to the end of
//! the line; then each image, nine words: a line's offset and what is to stand there. New slots are
//! in the state "put" there, and become live.

use crate::CHUNK_BYTES;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// The head of an engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct KvHeadRaw {
    /// The directory: its offset / 16 (42 bits), its depth (6), a check (16); 0: none yet.
    pub directory: u64,
    /// Version of the engine's bytes (16 bits), its kind (8), groups of an index chunk (8), bucket
    /// lines of a group (8), stash lines (8), log2 of the most places of a record chunk (8).
    pub shape: u64,
    /// Zero.
    pub unused: [u64; 4],
    /// 1: there may be records that expire.
    pub expiring: u64,
    /// The journal: its first chunk (48 bits), a check (16); 0: none yet.
    pub journal: u64,
}

/// Version of the engines' bytes.
pub const KV_VERSION: u64 = 4;
/// Kind of an engine: hash.
pub const KIND_HASH: u64 = 1;
/// Kind of an engine: tree.
pub const KIND_TREE: u64 = 2;
/// First word of an index chunk.
pub const INDEX_MAGIC: u64 = u64::from_le_bytes(*b"PMKVIDX1");
/// First word of a record chunk.
pub const RECORDS_MAGIC: u64 = u64::from_le_bytes(*b"PMKVREC1");
/// Bytes of a group.
pub const INDEX_GROUP_BYTES: u64 = 4096;
/// The most groups of an index chunk.
pub const INDEX_GROUPS_MAX: u64 = CHUNK_BYTES / INDEX_GROUP_BYTES;
/// The most lines of a group beside its first.
pub const INDEX_LINES_MAX: u64 = INDEX_GROUP_BYTES / 64 - 1;
/// The most bits of a hash that a directory tells apart.
pub const DEPTH_MAX: u32 = 17;

/// Records begin at multiples of so many bytes.
pub const PLACE_BYTES: u64 = 16;
/// Bytes of an entry of a tree's directory.
pub const ENTRY_BYTES: u64 = 64;
/// The longest key of such an entry.
pub const ENTRY_KEY_MAX: usize = 48;
/// The length of a least key that an entry has no room for.
pub const ENTRY_KEY_FAR: u64 = 0xff;

/// Bits of an offset / 16 in a slot.
pub const SLOT_PLACE_BITS: u32 = 38;
/// Where a slot's state begins.
pub const SLOT_STATE_SHIFT: u32 = 38;
/// Where a slot's instance begins.
pub const SLOT_INSTANCE_SHIFT: u32 = 40;
/// Where a slot's bits of the hash begin.
pub const SLOT_HASH_SHIFT: u32 = 44;
/// State: the record is durable.
pub const STATE_LIVE: u64 = 0;
/// State: the put is under way.
pub const STATE_PUT: u64 = 1;
/// State: the delete is under way.
pub const STATE_DELETE: u64 = 2;

/// First word of a journal.
pub const JOURNAL_MAGIC: u64 = u64::from_le_bytes(*b"PMKVJNL1");
/// Where an engine's head names its journal.
pub const JOURNAL_OFFSET: u64 = 56;
/// Bytes of a journal before its record.
pub const JOURNAL_HEAD_BYTES: u64 = 64;
/// Bytes of a journal's record before its images.
pub const JOURNAL_RECORD_BYTES: u64 = 64;
/// Bytes of an image.
pub const JOURNAL_IMAGE_BYTES: u64 = 72;

/// Bytes of a record before its key.
pub const KV_RECORD_HEAD_BYTES: u64 = 24;
/// The longest key, bytes.
pub const KEY_BYTES_MAX: u64 = 64 << 10;
/// The longest value, bytes.
pub const VALUE_BYTES_MAX: u64 = 4 << 30;
/// Bits of a value's length.
pub const VALUE_BITS: u32 = 33;
/// Bits of a key's length.
pub const KEY_BITS: u32 = 17;
/// Flags that this build knows.
pub const RECORD_FLAGS: u64 = RECORD_INSTANCE | RECORD_EXPIRES;
/// Those that are the instance.
pub const RECORD_INSTANCE: u64 = 0xf;
/// The flag of a record that expires.
pub const RECORD_EXPIRES: u64 = 0x10;
/// Where an engine's head says whether records may expire.
pub const EXPIRING_OFFSET: u64 = 48;

/// Bytes of a record chunk before its places' bytes.
pub const RECORDS_HEAD_BYTES: u64 = 64;
/// Classes of record chunks.
pub const RECORD_CLASSES: usize = 43;
/// Bytes of a place of each class: from 64 on by 16 up to 256, by 64 up to 1 KiB, then four to a
/// doubling up to 8 KiB, then six to one a chunk.
pub const RECORD_CLASS_BYTES: [u64; RECORD_CLASSES] = record_class_bytes();

const fn record_class_bytes() -> [u64; RECORD_CLASSES] {
    let mut bytes = [0; RECORD_CLASSES];
    let mut class = 0;
    while class < 13 {
        bytes[class] = 64 + PLACE_BYTES * class as u64;
        class += 1;
    }
    while class < 25 {
        bytes[class] = 64 * (class as u64 - 8);
        class += 1;
    }
    while class < 37 {
        let (doubling, quarter) = ((class - 25) / 4, (class - 25) % 4);
        bytes[class] = (1024 << doubling) / 4 * (5 + quarter as u64);
        class += 1;
    }
    while class < RECORD_CLASSES {
        let places = (RECORD_CLASSES - class) as u64;
        bytes[class] = (CHUNK_BYTES - 2 * 64) / places / 64 * 64;
        class += 1;
    }
    bytes
}

/// Where the first place of a record chunk of so many places is.
#[inline]
#[must_use]
pub const fn first_record(places: u64) -> u64 {
    RECORDS_HEAD_BYTES + places.next_multiple_of(64)
}

/// How many places of so many bytes a record chunk has room for, `most` at most.
#[must_use]
pub const fn record_places(bytes: u64, most: u64) -> u64 {
    let mut places = (CHUNK_BYTES - RECORDS_HEAD_BYTES) / bytes;
    if places > most {
        places = most;
    }
    while first_record(places) + places * bytes > CHUNK_BYTES {
        places -= 1;
    }
    places
}

const _: () = assert!(size_of::<KvHeadRaw>() == 64);
const _: () = assert!(VALUE_BITS + KEY_BITS + 14 == 64);
const _: () = assert!(RECORD_CLASS_BYTES[36] == 8192 && RECORD_CLASS_BYTES[42] == 65_408);
const _: () = assert!(RECORD_CLASS_BYTES[12] == 256 && RECORD_CLASS_BYTES[24] == 1024);
const _: () = assert!(record_places(64, 1 << 20) == 1007 && record_places(65_408, 1 << 20) == 1);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_fit_into_a_chunk() {
        assert!(RECORD_CLASS_BYTES.is_sorted());
        for bytes in RECORD_CLASS_BYTES {
            for most in [1, 7, 1 << 20] {
                let places = record_places(bytes, most);
                assert!((1..=most).contains(&places), "{bytes}");
                assert!(first_record(places) + places * bytes <= CHUNK_BYTES);
                assert!(bytes.is_multiple_of(PLACE_BYTES));
            }
        }
    }
}
