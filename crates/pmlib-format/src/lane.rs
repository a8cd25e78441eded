//! Lanes: where records are, and what each lane says of itself.

use crate::LINE_BYTES;
use crate::chunk::CLASSES;

/// Bytes of a lane, unless a heap is small.
pub const LANE_BYTES: u64 = 64 << 10;
/// The lane's first line: its first word is `closed`, a stamp. All records up to it are in place
/// for good, or up to the `done` of the lane's last whole record, whichever is greater. A stamp has
/// 52 bits; the 12 above are a check of it.
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
pub const LANE_LINE_BYTES: u64 = 512;
/// In them: the stamp of the last record that is in place.
pub const LAST_OFFSET: u64 = 0;
/// In them: where the last record is that a fence has made durable; 0: there is none in this run.
pub const LAST_RECORD_OFFSET: u64 = 8;
/// In them: the `closed` that is durable for certain.
pub const SETTLED_OFFSET: u64 = 16;
/// In them: where the next record goes.
pub const HEAD_OFFSET: u64 = 24;
/// In them: up to which stamp all records are in place for good.
pub const DONE_OFFSET: u64 = 32;
/// In them: the owner of the lane, for a transaction.
pub const LANE_OWNER_OFFSET: u64 = 40;
/// In them, a line of its own: the lock line that the lane's transaction waits for.
pub const WAITS_OFFSET: u64 = 64;
/// In them: a word for each class: the chunk from which the lane takes places (low half; 0: none),
/// and the word of its bitmap that had a free one last.
pub const CURRENT_OFFSET: u64 = 128;

/// Bytes of a line of the lock table: its first word is the owner.
pub const LOCK_LINE_BYTES: u64 = 64;
/// In it: the lane of the owner's transaction, plus one.
pub const LOCK_LANE_OFFSET: u64 = 8;

const _: () = assert!(LANES_MAX < 1 << (64 - STAMP_BITS));
const _: () = assert!(CURRENT_OFFSET + 8 * CLASSES as u64 <= LANE_LINE_BYTES);
/// The words from `last` to `done` are read, and partly stored, as a row.
const ROW: [u64; 5] = [
    LAST_OFFSET,
    LAST_RECORD_OFFSET,
    SETTLED_OFFSET,
    HEAD_OFFSET,
    DONE_OFFSET,
];
const _: () = {
    let mut at = 1;
    while at < ROW.len() {
        assert!(ROW[at] == ROW[at - 1] + 8);
        at += 1;
    }
};
