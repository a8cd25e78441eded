//! Redo records, from a line's start on: a head, the records of other lanes that this one
//! supersedes (lane above stamp), then entries.
//!
//! | word | holds |
//! |---|---|
//! | 0 | check: a hash of the words that follow, keyed by the seed and by the place |
//! | 1 | stamp |
//! | 2 | words of the record (32 bits), superseded records (16), flags (16) |
//! | 3 | `done`, a stamp (52 bits), below 12 bits of a check of the head |
//!
//! All of the lane's records up to `done` are in place for good. The check of the head keeps most
//! of what stands where no record begins from being read as one.
//!
//! An entry is a word, from its low end: kind (2 bits), words (20), offset / 8 (42); then those
//! words. A record that is [`FLAG_OUTSIDE`] has instead the offset, the words and the hash of its
//! entries, which stand in free chunks.

/// Words of a head.
pub const HEAD_WORDS: usize = 4;
/// The entries stand in free chunks.
pub const FLAG_OUTSIDE: u64 = 1;
/// Kind of an entry: words that are to stand at an offset.
pub const ENTRY_WRITE: u64 = 0;
/// Kind of an entry: bits that are to be set in a word.
pub const ENTRY_SET: u64 = 1;
/// Kind of an entry: bits that are to be cleared in a word.
pub const ENTRY_CLEAR: u64 = 2;
/// Kind of an entry: words of a new object, which stand there already: how many, and their hash.
pub const ENTRY_FRESH: u64 = 3;
/// The most words of an entry.
pub const ENTRY_WORDS_MAX: usize = (1 << 20) - 1;
/// The most records that one can supersede.
pub const SUPERSEDED_MAX: usize = (1 << 16) - 1;
