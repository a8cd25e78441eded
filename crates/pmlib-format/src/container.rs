//! Containers: a head in an object of the program's, and what it leads to.
//!
//! Offsets are the heap's. A head of zeros is an empty container.

use crate::LINE_BYTES;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Segments of a vector that its head leads to.
pub const VEC_NEAR: usize = 6;
/// Segments of a vector that a table of their offsets leads to.
pub const VEC_FAR: usize = 35;
/// Bytes of a vector's first segment, or one element; each further one has twice as many elements.
pub const VEC_FIRST_BYTES: u64 = 64;

/// The head of a vector.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct VecRaw {
    /// Elements.
    pub len: u64,
    /// The table of further segments; 0: none.
    pub far: u64,
    /// The first segments; 0: not there.
    pub near: [u64; VEC_NEAR],
}

/// Bytes of a text that stand in its head.
pub const TEXT_NEAR_BYTES: usize = 15;
/// The last byte of a text's head, of one that is an object; of others it is the length.
pub const TEXT_FAR: u8 = 0xff;

/// The head of a text, or of bytes: these, or the offset of an object and, in the second word's
/// seven lower bytes, the length.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct TextRaw {
    /// The words.
    pub words: [u64; 2],
}

/// The head of a log. A log is a chain of segments; a position is a number of bytes of records from
/// the log's beginning, those that were dropped among them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct LogRaw {
    /// The first segment; 0: there is none.
    pub first: u64,
    /// The last one.
    pub last: u64,
    /// The position of the first record that was not dropped.
    pub front: u64,
    /// A ring drops a segment when as many bytes remain; 0: nothing is dropped.
    pub kept_bytes: u64,
}

/// The first line of a log's segment; records follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct SegmentRaw {
    /// The next segment; 0: this is the last one.
    pub next: u64,
    /// The position of its first record.
    pub start: u64,
    /// Bytes of records, for this run alone: the low half of the run's number above them, in words
    /// (31 bits), and whether a record is being added (1 bit).
    pub mark: u64,
    /// The era of that run, as the header has it: the mark means nothing in another one.
    pub era: u64,
    /// Zero.
    pub unused: [u64; 4],
}

/// Bytes before a segment's records.
pub const SEGMENT_HEAD_BYTES: u64 = size_of::<SegmentRaw>() as u64;
/// Bytes of the segments of a log, but of those with a longer record: doubling from the first to
/// the second.
pub const SEGMENT_BYTES: [u64; 2] = [256, 256 << 10];

/// Bytes of a record before its bytes: the length, then a hash of position, length and bytes, keyed
/// by the record's offset. The bytes are filled up to a word with zeros.
pub const RECORD_HEAD_BYTES: u64 = 16;
/// The longest record, bytes.
pub const RECORD_BYTES_MAX: u64 = 1 << 30;

/// Segments of a map's buckets that its head leads to.
pub const MAP_NEAR: usize = 5;
/// Buckets of a map's first segment, and the least that a map with entries has; each further one
/// that the head leads to has twice as many.
pub const MAP_FIRST: u64 = 8;
/// Words of a node of the tree that leads to further buckets: of buckets, or of offsets of nodes.
pub const MAP_NODE_WORDS: u64 = 512;
/// The most buckets that a map has.
pub const MAP_BUCKETS_MAX: u64 = 1 << 40;

/// The head of a map. Each bucket is a word, the offset of the first entry of a chain. A chain is
/// sorted by the entries' hashes, then by the bytes of their keys. A bucket's entries are those
/// whose hashes begin with the bits of its number, from the lowest on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct MapRaw {
    /// Entries.
    pub len: u64,
    /// Buckets; 0: nothing was ever put in, or the map was cleared.
    pub buckets: u64,
    /// The root of the tree of further buckets; 0: there are none. It is as high as they need.
    pub far: u64,
    /// The first segments; 0: not there.
    pub near: [u64; MAP_NEAR],
}

/// The first words of a map's entry. The key follows, filled up to a word, then the value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct MapEntryRaw {
    /// The next entry of the chain; 0: this is the last one.
    pub next: u64,
    /// SipHash-1-3 of the key's bytes; its own key is the heap's seed and the fingerprint of the
    /// keys' type.
    pub hash: u64,
}

/// The most entries that a tree's node has room for.
pub const TREE_SLOTS_MAX: usize = 30;
/// The least.
pub const TREE_SLOTS_MIN: usize = 4;
/// The most levels of a tree.
pub const TREE_LEVELS_MAX: u32 = 48;

/// The head of a tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct TreeRaw {
    /// The root's node; 0: there is nothing in it.
    pub root: u64,
    /// Entries.
    pub len: u64,
    /// Levels of nodes; 0: there is nothing in it.
    pub levels: u32,
    /// Entries that a node has room for; 0: as many as the types' sizes give.
    pub slots: u32,
}

/// The first words of a tree's node; room for entries follows, each of whole words. In a leaf an
/// entry is a key, filled up to a word, and a value. In another node it is a key and the offset of
/// the node with the keys that are not less.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct TreeNodeRaw {
    /// Entries.
    pub count: u8,
    /// Levels of nodes below it: 0 in a leaf.
    pub level: u8,
    /// The places of the entries, by their keys.
    pub order: [u8; TREE_SLOTS_MAX],
    /// The node with the keys that are less than the first; 0 in a leaf.
    pub first: u64,
}

const _: () = assert!(size_of::<VecRaw>() == 64);
const _: () = assert!(size_of::<MapRaw>() == 64);
const _: () = assert!(size_of::<TreeRaw>() == 24);
const _: () = assert!(size_of::<TreeNodeRaw>() == 40);
const _: () = assert!(size_of::<TextRaw>() == TEXT_NEAR_BYTES + 1);
const _: () = assert!(SEGMENT_HEAD_BYTES == LINE_BYTES);
