//! The PMFS-Log, cut into lanes: circular logs of 64-byte entries.
//!
//! A lane runs one transaction at a time, under an id that it never uses again. Recovery takes the
//! greatest id in the lane; if no entry of it closes it, its undo entries are restored in reverse.
//! All smaller ids are done: a transaction begins only after the end of the one before
//! (docs/adr/0019-log-validity.md).
//!
//! An entry of old words holds as many ranges as go into its line, up to three: each is a line to
//! be flushed, and most calls change a word or two in each of some places.
//!
//! A redo record is the other way round: if it is not closed, recovery stores its words if its
//! entries are all there, and ignores it otherwise. If it is the one before the greatest id, and
//! that one is neither closed nor has a matching commit checksum, its words are stored too, and
//! first.
//!
//! A commit checksum closes its transaction if the logged words have their new values: it may be
//! written back together with them, in any order. It becomes a commit record by one store, which is
//! durable before any of these words changes again.

use crate::layout::{neighbours, on_media};

/// Entries that one transaction may log, the closing one apart.
pub const ENTRIES_MAX: usize = 32;
/// Old bytes that one entry holds.
pub const ENTRY_DATA_BYTES: u64 = 48;
/// Header: bits of the address.
pub const ADDRESS_MASK: u64 = (1 << 48) - 1;
/// Header: where the number of words starts (three bits).
pub const WORDS_SHIFT: u32 = 48;
/// Header: where the kind starts (four bits).
pub const KIND_SHIFT: u32 = 52;
/// Header: where the entry's place in its transaction starts (eight bits).
pub const PLACE_SHIFT: u32 = 56;
/// Kind: old words of the address, and of no other.
pub const KIND_UNDO: u64 = 1;
/// Kind: `old[0]` is the offset of a saved copy of `old[1]` bytes at the address.
pub const KIND_DATA: u64 = 2;
/// Kind: the transaction is done.
pub const KIND_COMMIT: u64 = 3;
/// Kind: the transaction was undone.
pub const KIND_ABORT: u64 = 4;
/// Kind: the transaction is done if the words that it logged now hash to `old[0]` and `old[1]`.
pub const KIND_CHECKSUM: u64 = 5;
/// Kind: new words of the address. Once all entries of its transaction are there, the change is to
/// be made.
pub const KIND_REDO: u64 = 6;
/// Kind: old words of several addresses. Behind those of one, the next begins with a header of its
/// own (address and words count there), until that is 0 or the id's.
pub const KIND_UNDOS: u64 = 7;
/// Header: the last entry of a transaction of new words.
pub const ENTRY_LAST: u64 = 1 << 51;

on_media! {
    /// One log entry: one line. The id is stored last; the CPU writes a line's cached stores to the
    /// medium in program order, so an entry with its id is whole.
    pub struct LogEntryRaw[64] {
        /// Address in bytes, words, kind, place.
        @ 0 header: u64,
        /// The old words.
        @ 8 old: [u64; 6],
        /// The transaction's id, never 0.
        @ 56 id: u64,
    }
}

// An entry is loaded as a line, whose last word is the id.
neighbours!(LogEntryRaw: header, old, id);
