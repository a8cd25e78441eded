//! Records: put together, and read with their checks.
//!
//! A record has two checks. One is of its head and key, so that a key is found, put over and taken
//! away without a look at its value. The other is of its value, and keyed by the hash of head and
//! key. A record that may be torn is one only if both hold ([`is_whole`]).

use std::hash::Hasher;

use pmem::{Pmem, Stage};
use pmlib::ground::Ground;
use pmlib_format::kv::{
    KEY_BITS, KEY_BYTES_MAX, KV_RECORD_HEAD_BYTES, PLACE_BYTES, RECORD_CLASS_BYTES, RECORD_EXPIRES,
    RECORD_FLAGS, RECORD_INSTANCE, VALUE_BITS, VALUE_BYTES_MAX,
};
use twox_hash::XxHash3_64;
use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::error::{Error, Result};
use crate::version::Version;

/// Records, and heads with their keys, up to so many bytes are read without a buffer of the heap's,
/// and in less space up to fewer.
pub(crate) const NEAR: u64 = 512;
const SMALL: u64 = 128;
/// Where a record has its word of sizes.
const SIZES_OFFSET: u64 = 16;
const SIZES_AT: usize = SIZES_OFFSET as usize;
/// Mixes the bits of places, versions and checks.
const ODD: u64 = 0x9e37_79b9_7f4a_7c15;
/// From so many bytes on a hash by the widest vectors of the processor is faster.
const WIDE: usize = 2 << 10;
/// A longer value is hashed piece by piece where only its check is asked for.
const PIECE: usize = 64 << 10;

/// The first words of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Head {
    /// The check of the value, whose key is the hash of head and key.
    pub value_check: u64,
    pub version: Version,
    /// The check of head and key.
    pub check: u32,
    pub value: u64,
    pub key: u64,
    pub instance: u64,
    /// Milliseconds since 1970.
    pub expires: Option<u64>,
}

impl Head {
    /// The head of a record that is to be stored.
    pub fn new(version: Version, instance: u64, key: &[u8], value: &[u8]) -> Head {
        Head {
            value_check: 0,
            version,
            check: 0,
            value: value.len() as u64,
            key: key.len() as u64,
            instance,
            expires: None,
        }
    }

    /// The head in these words; `None`: of no record.
    #[inline]
    pub fn of(words: [u64; 4]) -> Option<Head> {
        Some(Head::sized(words[2])?.with(words))
    }

    /// The parts of a head that its word of sizes has; the others are 0.
    #[inline(always)]
    fn sized(sizes: u64) -> Option<Head> {
        let (value, key, flags) = parts_of(sizes);
        let fits = value <= VALUE_BYTES_MAX && key <= KEY_BYTES_MAX && flags & !RECORD_FLAGS == 0;
        fits.then_some(Head {
            value_check: 0,
            version: Version::default(),
            check: 0,
            value,
            key,
            instance: flags & RECORD_INSTANCE,
            expires: (flags & RECORD_EXPIRES != 0).then_some(0),
        })
    }

    /// The parts of a word of sizes with those of a head's other words.
    #[inline(always)]
    fn with(self, words: [u64; 4]) -> Head {
        Head {
            value_check: words[0],
            version: Version(words[1] as u32),
            check: (words[1] >> 32) as u32,
            expires: self.expires.map(|_| words[3]),
            ..self
        }
    }

    #[inline]
    fn sizes(self) -> u64 {
        let expires = match self.expires {
            Some(_) => RECORD_EXPIRES,
            None => 0,
        };
        let flags = (self.instance | expires) << (VALUE_BITS + KEY_BITS);
        self.value | self.key << VALUE_BITS | flags
    }

    /// Bytes before the key.
    #[inline]
    pub fn before_key(self) -> u64 {
        KV_RECORD_HEAD_BYTES + expiry_bytes(self.expires)
    }

    /// Bytes before the value.
    #[inline]
    pub fn before_value(self) -> u64 {
        self.before_key() + self.key
    }

    #[inline]
    pub fn bytes(self) -> u64 {
        self.before_value() + self.value
    }

    /// The hash of head and key, if they are as they were stored; `bytes` are those from the word
    /// of sizes to the value.
    #[inline(always)]
    fn sound(&self, ground: Ground<'_>, place: u64, bytes: &[u8]) -> Option<u64> {
        let hash = hash_of(ground.seed(), place, self.version.0, bytes);
        (check_of(hash, self.value_check) == self.check).then_some(hash)
    }

    /// Whether a value is as it was stored, with the hash of its head and key.
    #[inline(always)]
    fn is_of(&self, hash: u64, value: &[u8]) -> bool {
        check_of_value(value, hash) == self.value_check
    }
}

/// The length of the value, that of the key and the flags in a word of sizes.
#[inline(always)]
fn parts_of(sizes: u64) -> (u64, u64, u64) {
    (
        sizes & ((1 << VALUE_BITS) - 1),
        sizes >> VALUE_BITS & ((1 << KEY_BITS) - 1),
        sizes >> (VALUE_BITS + KEY_BITS),
    )
}

/// Bytes that a record has for when it expires.
#[inline]
pub(crate) fn expiry_bytes(expires: Option<u64>) -> u64 {
    match expires {
        Some(_) => 8,
        None => 0,
    }
}

/// The hash of a record's head and key at a place, without the checks: the key of its value's
/// check.
#[inline(always)]
fn hash_of(seed: u64, place: u64, version: u32, sizes_and_key: &[u8]) -> u64 {
    let at = seed ^ place.wrapping_mul(ODD);
    xxh3_64_with_seed(
        sizes_and_key,
        at.wrapping_add(u64::from(version).wrapping_mul(ODD)),
    )
}

/// The check of head and key. The value's is under it, so that every bit before the value is.
#[inline(always)]
fn check_of(hash: u64, value_check: u64) -> u32 {
    ((hash ^ value_check.rotate_left(32)).wrapping_mul(ODD) >> 32) as u32
}

/// The check of a value: XXH3-64, keyed by the hash of head and key.
#[inline(always)]
fn check_of_value(value: &[u8], hash: u64) -> u64 {
    match value.len() < WIDE {
        true => xxh3_64_with_seed(value, hash),
        false => XxHash3_64::oneshot_with_seed(hash, value),
    }
}

/// Puts a record together that is to stand at `place`.
pub(crate) fn stage(seed: u64, place: u64, head: Head, key: &[u8], value: &[u8]) -> Stage {
    let mut stage = Stage::of_len(head.before_key() as usize + key.len() + value.len());
    let bytes = stage.staged_mut();
    let (head_and_key, rest) = bytes.split_at_mut(head.before_key() as usize + key.len());
    rest.copy_from_slice(value);
    let (before, after) = head_and_key.split_at_mut(head.before_key() as usize);
    after.copy_from_slice(key);
    let words = [0, 0, head.sizes(), head.expires.unwrap_or(0)];
    for (to, word) in before.as_chunks_mut::<8>().0.iter_mut().zip(words) {
        *to = word.to_le_bytes();
    }
    let hash = hash_of(seed, place, head.version.0, &head_and_key[SIZES_AT..]);
    let value_check = check_of_value(value, hash);
    let check = u64::from(check_of(hash, value_check));
    let version = u64::from(head.version.0) | check << 32;
    head_and_key[..8].copy_from_slice(&value_check.to_le_bytes());
    head_and_key[8..SIZES_AT].copy_from_slice(&version.to_le_bytes());
    stage
}

/// Stores a record past the caches. Others may be in its first and last line.
#[inline(always)]
pub(crate) fn store(mem: &Pmem, place: u64, staged: &Stage) -> Result<()> {
    Ok(mem.write_nt(place, staged.padded(PLACE_BYTES as usize))?)
}

/// The meaning of what stands at a place, to one who looks for a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Seen {
    /// A record of the key.
    Same(Head),
    /// A record of another key.
    Other,
    /// No whole record, or one of another instance.
    None,
}

/// The instance that stands at a place, whatever else does.
#[inline]
pub(crate) fn instance_at(mem: &Pmem, place: u64) -> u64 {
    mem.load(place + SIZES_OFFSET) >> (VALUE_BITS + KEY_BITS) & RECORD_INSTANCE
}

/// The words of a place's head, if the heap has it.
pub(crate) fn words_at(ground: Ground<'_>, place: u64) -> Option<[u64; 4]> {
    let is_there = place != 0 && ground.has(place, RECORD_CLASS_BYTES[0]);
    is_there.then(|| ground.mem().read(place))
}

/// The head at a place, if it is one and the heap has its bytes.
pub(crate) fn head_at(ground: Ground<'_>, place: u64) -> Option<Head> {
    let head = Head::of(words_at(ground, place)?)?;
    ground.has(place, head.bytes()).then_some(head)
}

/// Reads a record from its word of sizes to its value.
#[inline(always)]
fn with_key<T>(mem: &Pmem, place: u64, head: Head, body: impl FnOnce(&[u8]) -> T) -> Result<T> {
    let (at, len) = (
        place + SIZES_OFFSET,
        head.before_value() as usize - SIZES_AT,
    );
    if len <= SMALL as usize {
        let mut near = [0; SMALL as usize];
        let near = &mut near[..len];
        mem.copy_out(at, near)?;
        Ok(body(near))
    } else {
        let mut far = vec![0; len];
        mem.copy_out(at, &mut far)?;
        Ok(body(&far))
    }
}

/// Looks for a key at a place, of this instance; its value is put into `to`.
#[inline(always)]
pub(crate) fn read(
    ground: Ground<'_>,
    place: u64,
    instance: u64,
    key: &[u8],
    to: &mut Vec<u8>,
) -> Result<Seen> {
    let Some((sizes, sized)) = sized_at(ground, place, instance) else {
        return Ok(Seen::None);
    };
    let bytes = sized.bytes();
    let at = (place, sizes, sized);
    if bytes <= SMALL {
        read_near::<{ SMALL as usize }>(ground, at, key, to)
    } else if bytes <= NEAR {
        read_near::<{ NEAR as usize }>(ground, at, key, to)
    } else {
        read_far(ground, place, key, to)
    }
}

/// The word of sizes at a place, and its parts; `None`: it is of no record of this instance that
/// the heap has.
#[inline(always)]
fn sized_at(ground: Ground<'_>, place: u64, instance: u64) -> Option<(u64, Head)> {
    if place == 0 || !ground.has(place, RECORD_CLASS_BYTES[0]) {
        return None;
    }
    let sizes = ground.mem().load(place + SIZES_OFFSET);
    let sized = Head::sized(sizes)?;
    let is_it = sized.instance == instance && ground.has(place, sized.bytes());
    is_it.then_some((sizes, sized))
}

/// The head of a record whose bytes are these, whose word of sizes was this; `None`: it has another
/// one by now.
#[inline(always)]
fn head_in(bytes: &[u8], sizes: u64, sized: Head) -> Option<Head> {
    let (words, _) = bytes.as_chunks::<8>();
    let word = |nth: usize| words.get(nth).map_or(0, |word| u64::from_le_bytes(*word));
    (word(2) == sizes).then(|| sized.with([word(0), word(1), word(2), word(3)]))
}

/// Reads a record at once, whose word of sizes is this, and that word's parts.
#[inline(always)]
fn read_near<const ROOM: usize>(
    ground: Ground<'_>,
    (place, sizes, sized): (u64, u64, Head),
    key: &[u8],
    to: &mut Vec<u8>,
) -> Result<Seen> {
    let mut near = [0; ROOM];
    let near = &mut near[..sized.bytes() as usize];
    ground.mem().copy_out(place, near)?;
    let (head_and_key, value) = near.split_at(near.len() - sized.value as usize);
    let Some(head) = head_in(head_and_key, sizes, sized) else {
        return Ok(Seen::None);
    };
    let Some(hash) = head.sound(ground, place, &head_and_key[SIZES_AT..]) else {
        return Ok(Seen::None);
    };
    if head_and_key[head_and_key.len() - head.key as usize..] != *key {
        return Ok(Seen::Other);
    }
    if !head.is_of(hash, value) {
        return Ok(Seen::None);
    }
    to.clear();
    to.extend_from_slice(value);
    Ok(Seen::Same(head))
}

/// Reads a record by its parts.
#[inline(never)]
fn read_far(ground: Ground<'_>, place: u64, key: &[u8], to: &mut Vec<u8>) -> Result<Seen> {
    let Some(head) = head_at(ground, place) else {
        return Ok(Seen::None);
    };
    let (seen, hash) = seen_by_key(ground, place, head, key)?;
    let Some(hash) = hash else {
        return Ok(seen);
    };
    let at = place + head.before_value();
    ground.mem().copy_to_vec(at, head.value as usize, to)?;
    Ok(match head.is_of(hash, to) {
        true => seen,
        false => Seen::None,
    })
}

/// A record that was read behind other bytes of a buffer.
pub(crate) struct Appended {
    pub head: Head,
    /// Whether its value is as it was stored; `None`: it is long, and was not read.
    pub is_value: Option<bool>,
}

/// Reads the record of this instance at a place into a buffer, behind the bytes that it has: all of
/// it, or what is before its value where that is long or not wanted. `None`: head or key is
/// damaged.
#[inline]
pub(crate) fn append<const VALUE: bool>(
    ground: Ground<'_>,
    place: u64,
    instance: u64,
    (to, used): (&mut Vec<u8>, usize),
) -> Result<Option<Appended>> {
    let Some((sizes, sized)) = sized_at(ground, place, instance) else {
        return Ok(None);
    };
    let (all, before) = (sized.bytes(), sized.before_value() as usize);
    let is_near = VALUE && all <= NEAR;
    let len = if is_near { all as usize } else { before };
    if to.len() < used + len {
        to.resize(used + len, 0);
    }
    let bytes = &mut to[used..used + len];
    ground.mem().copy_out(place, bytes)?;
    let Some(head) = head_in(bytes, sizes, sized) else {
        return Ok(None);
    };
    let hash = head.sound(ground, place, &bytes[SIZES_AT..before]);
    Ok(hash.map(|hash| Appended {
        head,
        is_value: is_near.then(|| head.is_of(hash, &bytes[before..])),
    }))
}

/// Reads the key of the record of this instance at a place into a buffer, behind the bytes that it
/// has. `false`: head or key is damaged.
#[inline(always)]
pub(crate) fn append_key(
    ground: Ground<'_>,
    (place, instance): (u64, u64),
    to: &mut Vec<u8>,
) -> Result<bool> {
    // A place has so many bytes at least, and most heads and keys are in them.
    if place == 0 || !ground.has(place, RECORD_CLASS_BYTES[0]) {
        return Ok(false);
    }
    let words: [u64; RECORD_CLASS_BYTES[0] as usize / 8] = ground.mem().read(place);
    let Some(sized) = Head::sized(words[2]) else {
        return Ok(false);
    };
    let before = sized.before_value() as usize;
    if sized.instance != instance || !ground.has(place, sized.bytes()) {
        return Ok(false);
    }
    if before > RECORD_CLASS_BYTES[0] as usize {
        return append_far_key(ground, (place, instance), to);
    }
    let bytes = words.map(u64::to_le_bytes);
    let bytes = &bytes.as_flattened()[..before];
    let head = sized.with([words[0], words[1], words[2], words[3]]);
    let is_sound = head.sound(ground, place, &bytes[SIZES_AT..]).is_some();
    to.extend_from_slice(&bytes[head.before_key() as usize..]);
    Ok(is_sound)
}

#[inline(never)]
fn append_far_key(
    ground: Ground<'_>,
    (place, instance): (u64, u64),
    to: &mut Vec<u8>,
) -> Result<bool> {
    let start = to.len();
    let found = append::<false>(ground, place, instance, (to, start))?;
    if let Some(Appended { head, .. }) = &found {
        to.drain(start..start + head.before_key() as usize);
    }
    Ok(found.is_some())
}

/// A record in a buffer: where its key begins, the lengths of key and value, and when it expires.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Shown {
    pub key: u32,
    pub key_len: u32,
    /// [`LONG`]: it was not read.
    pub value_len: u32,
    pub expires: Option<u64>,
}

/// The length of a value that was not read.
pub(crate) const LONG: u32 = u32::MAX;

/// Reads the record of this instance at a place into a buffer, and verifies all that was read: the
/// whole, or what is before the value where that is long. `false`: it is damaged.
#[inline(always)]
pub(crate) fn show(
    ground: Ground<'_>,
    (place, instance): (u64, u64),
    to: &mut Vec<u8>,
    shown: &mut Shown,
) -> Result<bool> {
    // Most records are short, and far from the heap's end: one look is enough for these.
    if to.len() < NEAR as usize || place == 0 || !ground.has(place, NEAR) {
        return show_any(ground, (place, instance), to, shown);
    }
    let sizes = ground.mem().load(place + SIZES_OFFSET);
    let (value, key, flags) = parts_of(sizes);
    let len = KV_RECORD_HEAD_BYTES + key + value;
    if flags != instance || len > NEAR {
        return show_any(ground, (place, instance), to, shown);
    }
    let before = (KV_RECORD_HEAD_BYTES + key) as usize;
    let bytes = &mut to[..len as usize];
    ground.mem().copy_out(place, bytes)?;
    let (head, rest) = bytes.split_at(KV_RECORD_HEAD_BYTES as usize);
    debug_assert_eq!(rest.len() as u64, key + value);
    let word = |at: usize| {
        let bytes = head[at..].first_chunk();
        bytes.map_or(0, |bytes| u64::from_le_bytes(*bytes))
    };
    let (value_check, version) = (word(0), word(8));
    let hash = hash_of(
        ground.seed(),
        place,
        version as u32,
        &bytes[SIZES_AT..before],
    );
    let is_sound = word(SIZES_AT) == sizes
        && u64::from(check_of(hash, value_check)) == version >> 32
        && xxh3_64_with_seed(&bytes[before..], hash) == value_check;
    shown.key = KV_RECORD_HEAD_BYTES as u32;
    (shown.key_len, shown.value_len) = (key as u32, value as u32);
    shown.expires = None;
    Ok(is_sound)
}

/// The same for any record.
#[inline(never)]
fn show_any(
    ground: Ground<'_>,
    (place, instance): (u64, u64),
    to: &mut Vec<u8>,
    shown: &mut Shown,
) -> Result<bool> {
    let Some(found) = append::<true>(ground, place, instance, (to, 0))? else {
        return Ok(false);
    };
    let head = found.head;
    *shown = Shown {
        key: head.before_key() as u32,
        key_len: head.key as u32,
        value_len: found.is_value.map_or(LONG, |_| head.value as u32),
        expires: head.expires,
    };
    Ok(found.is_value.unwrap_or(true))
}

/// The meaning of a place by its head and key alone; if it is the key's, with their hash.
#[inline(always)]
fn seen_by_key(
    ground: Ground<'_>,
    place: u64,
    head: Head,
    key: &[u8],
) -> Result<(Seen, Option<u64>)> {
    with_key(ground.mem(), place, head, |bytes| {
        let hash = match planted!("bug-key-unchecked") {
            true => Some(0),
            false => head.sound(ground, place, bytes),
        };
        match hash {
            None => (Seen::None, None),
            Some(_) if bytes[head.before_key() as usize - SIZES_AT..] != *key => {
                (Seen::Other, None)
            }
            Some(_) => (Seen::Same(head), hash),
        }
    })
}

/// Where a value is, once [`Seek::read`] has found it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Pinned {
    pub offset: u64,
    pub len: u64,
}

/// A use of the value of a record that is looked for.
pub(crate) trait Seek {
    /// Looks for a key at a place, of this instance, and keeps its value.
    fn read(&mut self, ground: Ground<'_>, place: u64, instance: u64, key: &[u8]) -> Result<Seen>;
}

/// The value is copied.
impl Seek for Vec<u8> {
    #[inline(always)]
    fn read(&mut self, ground: Ground<'_>, place: u64, instance: u64, key: &[u8]) -> Result<Seen> {
        read(ground, place, instance, key, self)
    }
}

/// Its place is noted, after its check was verified.
impl Seek for Pinned {
    fn read(&mut self, ground: Ground<'_>, place: u64, instance: u64, key: &[u8]) -> Result<Seen> {
        let Some(head) = head_at(ground, place).filter(|head| head.instance == instance) else {
            return Ok(Seen::None);
        };
        let (seen, hash) = seen_by_key(ground, place, head, key)?;
        let Some(hash) = hash else {
            return Ok(seen);
        };
        self.offset = place + head.before_value();
        self.len = head.value;
        Ok(match is_value(ground, place, head, hash)? {
            true => seen,
            false => Seen::None,
        })
    }
}

/// A key is looked for whose value is of no interest: it is not read, whatever its size, nor
/// verified.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KeyAlone;

impl Seek for KeyAlone {
    #[inline]
    fn read(&mut self, ground: Ground<'_>, place: u64, instance: u64, key: &[u8]) -> Result<Seen> {
        let Some(head) = head_at(ground, place).filter(|head| head.instance == instance) else {
            return Ok(Seen::None);
        };
        Ok(seen_by_key(ground, place, head, key)?.0)
    }
}

/// Whether the value of a record with this head, whose hash this is, is as it was stored.
fn is_value(ground: Ground<'_>, place: u64, head: Head, hash: u64) -> Result<bool> {
    let mem = ground.mem();
    let (mut at, mut left) = (place + head.before_value(), head.value as usize);
    if left <= NEAR as usize {
        let mut near = [0; NEAR as usize];
        mem.copy_out(at, &mut near[..left])?;
        return Ok(head.is_of(hash, &near[..left]));
    }
    let mut piece = Vec::new();
    if left <= PIECE {
        mem.copy_to_vec(at, left, &mut piece)?;
        return Ok(head.is_of(hash, &piece));
    }
    let mut hasher = XxHash3_64::with_seed(hash);
    while left > 0 {
        let step = left.min(PIECE);
        mem.copy_to_vec(at, step, &mut piece)?;
        hasher.write(&piece);
        (at, left) = (at + step as u64, left - step);
    }
    Ok(hasher.finish() == head.value_check)
}

/// Whether the record with this head is as it was stored, all of it.
pub(crate) fn is_whole(ground: Ground<'_>, place: u64, head: Head) -> Result<bool> {
    let hash = with_key(ground.mem(), place, head, |bytes| {
        head.sound(ground, place, bytes)
    })?;
    match hash {
        Some(hash) => is_value(ground, place, head, hash),
        None => Ok(false),
    }
}

/// The key of the record with this head, if both are as they were stored. The value may be torn.
pub(crate) fn sound_key(ground: Ground<'_>, place: u64, head: Head) -> Result<Option<Vec<u8>>> {
    with_key(ground.mem(), place, head, |bytes| {
        let hash = head.sound(ground, place, bytes);
        hash.map(|_| bytes[head.before_key() as usize - SIZES_AT..].to_vec())
    })
}

/// Stores a record again as it stands, past the caches: the next fence makes it durable, whoever
/// has stored it.
pub(crate) fn store_again(ground: Ground<'_>, place: u64, head: Head) -> Result<()> {
    let (mem, end) = (
        ground.mem(),
        place + head.bytes().next_multiple_of(PLACE_BYTES),
    );
    let (mut at, mut piece) = (place, Vec::new());
    while at < end {
        piece.resize((end - at).min(PIECE as u64) as usize, 0);
        mem.copy_out(at, &mut piece)?;
        mem.write_nt(at, &piece)?;
        at += piece.len() as u64;
    }
    Ok(())
}

/// The key of the record with this head.
pub(crate) fn key_of(ground: Ground<'_>, place: u64, head: Head) -> Result<Vec<u8>> {
    with_key(ground.mem(), place, head, |bytes| {
        bytes[head.before_key() as usize - SIZES_AT..].to_vec()
    })
}

/// Whether a record's parts can be as long; the bytes that it takes.
pub(crate) fn taken(key: &[u8], value: &[u8]) -> Result<u64> {
    let (key, value) = (key.len() as u64, value.len() as u64);
    if key > KEY_BYTES_MAX || value > VALUE_BYTES_MAX {
        return Err(Error::TooLarge { key, value });
    }
    Ok(KV_RECORD_HEAD_BYTES + key + value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use pmlib::{Heap, Options};

    /// Goal: a value's check is the same, whatever hashes it. Method: values of lengths about each
    /// bound are hashed by both, and in pieces.
    #[test]
    fn checks_are_the_same_whatever_hashes() {
        let bytes: Vec<u8> = (0..200_000u32)
            .map(|nth| (nth.wrapping_mul(nth) >> 3) as u8)
            .collect();
        for len in [
            0,
            1,
            16,
            240,
            241,
            1024,
            WIDE - 1,
            WIDE,
            WIDE + 1,
            4096,
            PIECE,
            200_000,
        ] {
            let (value, seed) = (&bytes[..len], 0x9e37 * len as u64);
            let check = xxh3_64_with_seed(value, seed);
            assert_eq!(check_of_value(value, seed), check, "{len}");
            let mut hasher = XxHash3_64::with_seed(seed);
            for piece in value.chunks(PIECE) {
                hasher.write(piece);
            }
            assert_eq!(hasher.finish(), check, "{len}");
        }
    }

    /// Goal: a record is one at its place alone, and as it was stored. Method: one is stored at
    /// another place, and with each of its bits flipped.
    #[test]
    fn a_record_is_one_at_its_place() {
        let heap = Heap::private(1 << 20, &Options::default()).unwrap();
        let (ground, place) = (heap.ground(), 15 << 16);
        let mem = ground.mem();
        for expires in [None, Some(77)] {
            let head = Head {
                expires,
                ..Head::new(Version(7), 9, b"key", b"value")
            };
            let staged = stage(ground.seed(), place, head, b"key", b"value");
            let find = |at: u64| {
                let mut value = Vec::new();
                let seen = read(ground, at, 9, b"key", &mut value).unwrap();
                matches!(seen, Seen::Same(_)) && value == b"value"
            };
            let find_key = |at: u64| {
                let seen = KeyAlone.read(ground, at, 9, b"key").unwrap();
                matches!(seen, Seen::Same(_))
            };
            let put = |at: u64, bytes: &[u8]| {
                let _window = mem.window();
                mem.write_nt(at, bytes).unwrap();
            };
            put(place, staged.padded(16));
            assert!(find(place) && find_key(place));
            put(place + 64, staged.padded(16));
            assert!(!find(place + 64) && !find_key(place + 64));
            for bit in 0..staged.len() * 8 {
                let mut bytes = staged.padded(16).to_vec();
                bytes[bit / 8] ^= 1 << (bit % 8);
                put(place, &bytes);
                assert!(!find(place), "{bit}");
                // The check of head and key has nothing to do with the value.
                let is_value = bit / 8 >= head.before_value() as usize;
                assert_eq!(find_key(place), is_value, "{bit}");
            }
        }
    }
}
