//! Lanes: where records are, and what each lane says of itself.

use crate::LINE_BYTES;

/// Bytes of a lane, unless a heap is small.
pub const LANE_BYTES: u64 = 64 << 10;
/// The lane's first line: its first word is `closed`, the greatest stamp of which all records up to
/// it are in place for good. A stamp has 52 bits; the 12 above are a check of it.
pub const CLOSED_OFFSET: u64 = 0;
/// Where the ring begins in a lane.
pub const RING_OFFSET: u64 = LINE_BYTES;
/// Bits of a stamp.
pub const STAMP_BITS: u32 = 52;
/// The first stamp that no opener accepts: a heap that has one was forged. The stamps above it are
/// left for the run: at a million commits a second, 70 years.
pub const STAMP_END: u64 = 1 << (STAMP_BITS - 1);
/// The most lanes of a heap.
pub const LANES_MAX: u32 = 1024;

/// Bytes of a lane's lines in the volatile area.
pub const LANE_LINE_BYTES: u64 = 256;
/// In them: the stamp of the last record that a fence has made durable.
pub const LAST_OFFSET: u64 = 0;
/// In them: where that record is.
pub const LAST_RECORD_OFFSET: u64 = 8;
/// In them: the `closed` that is durable for certain.
pub const SETTLED_OFFSET: u64 = 16;
/// In them, a line of its own: the lock line that the lane's transaction waits for, plus one.
pub const WAITS_OFFSET: u64 = 64;

/// Bytes of a line of the lock table: its first word is the holder, as a chunk's.
pub const LOCK_LINE_BYTES: u64 = 64;

const _: () = assert!(LANES_MAX < 1 << (64 - STAMP_BITS));
