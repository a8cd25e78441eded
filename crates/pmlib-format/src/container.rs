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

/// The head of a text: its bytes, or the offset of an object and, in the second word's seven lower
/// bytes, the length.
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
    /// Zero.
    pub unused: [u64; 5],
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

const _: () = assert!(size_of::<VecRaw>() == 64);
const _: () = assert!(size_of::<TextRaw>() == TEXT_NEAR_BYTES + 1);
const _: () = assert!(SEGMENT_HEAD_BYTES == LINE_BYTES);
