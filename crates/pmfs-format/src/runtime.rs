//! The runtime area: volatile in meaning, shared by all processes that hold the pool.
//!
//! Nothing here is logged. It is trusted while a process holds the pool or since one closed it cleanly; else
//! the first opener resets it and rebuilds the bitmaps by walking the trees. In order:
//! header, slots, lanes, intents, locks, open table, block groups, block bitmap, inode groups, inode bitmap, strays.
//!
//! Strays: a word for each group of inodes, a bit for each [`STRAY_INODES`] of them: set before a word of one of
//! these inodes is stored that nobody flushes (times of an overwrite, atime, the count of blocks). A clean close
//! flushes them.

use crate::layout::on_media;

/// Version of this layout: unlike builds must not share a pool.
pub const LAYOUT: u64 = 4;
/// Blocks (or inodes) a group: sixteen 2 MiB regions, one line of bitmap each.
pub const GROUP_UNITS: u64 = 8192;
/// Inodes that share a bit of the strays.
pub const STRAY_INODES: u64 = GROUP_UNITS / 64;
/// Slot state: nobody's.
pub const SLOT_FREE: u64 = 0;
/// Slot state: a process has it; it is alive while the slot's byte is locked.
pub const SLOT_LIVE: u64 = 1;

/// Owner words: the thread's tag (low, so that a futex sees it).
pub const OWNER_THREAD_MASK: u64 = (1 << 20) - 1;
/// Owner words: somebody sleeps on the word.
pub const OWNER_WAITERS: u64 = 1 << 31;
/// Owner words: where the slot's number plus one starts (12 bits).
pub const OWNER_SLOT_SHIFT: u32 = 32;
/// Owner words: where the slot's incarnation starts (20 bits).
pub const OWNER_INCARNATION_SHIFT: u32 = 44;

/// Intent kind: the blocks belong to the inode's tree at this level and index, or to nobody.
pub const INTENT_TREE: u64 = 1;
/// Intent kind: the blocks are the inode's attributes, or nobody's.
pub const INTENT_XATTR: u64 = 2;
/// Intent kind: the inode number is in use if it has links or is open.
pub const INTENT_INODE: u64 = 3;
/// Intent kind: the inode's blocks are being freed, up to the cursor.
pub const INTENT_RECLAIM: u64 = 4;
/// Intent kind: an old subtree is to be freed over a range if its slot no longer names it. Two records:
/// the second, [`INTENT_RANGE`], follows.
pub const INTENT_SUBTREE: u64 = 5;
/// Intent kind: first and last index of the [`INTENT_SUBTREE`] before it; the low 48 bits of the kind's word are
/// the first index whose leaves stay, as they stand elsewhere by then.
pub const INTENT_RANGE: u64 = 6;
/// Intent kind: the blocks hold saved data of the lane's transaction, and are nobody's after it.
pub const INTENT_SCRATCH: u64 = 7;
/// Intent kind: the word at this offset is stored in place; whoever recovers flushes it, for it may have been
/// seen.
pub const INTENT_WORD: u64 = 8;
/// Intent kind: the blocks are nodes of the inode's tree if its topmost node is the block in `index`, or nobody's.
pub const INTENT_UNDER: u64 = 9;

on_media! {
    /// Start of the runtime area.
    pub struct RuntimeHeaderRaw[256] {
        /// [`LAYOUT`].
        @ 0 layout: u64,
        /// Owner of the recovery lock: one process at a time cleans up after others.
        @ 8 recovery_owner: u64,
        /// Slots recovered since the reset.
        @ 16 recoveries: u64,
        /// When somebody last looked for dead processes, ns of CLOCK_MONOTONIC.
        @ 24 looked_ns: u64,
        /// Zero.
        @ 32 unused: [u64; 4],
        /// Owner of the rename lock, taken before any other by a rename that moves a directory.
        @ 64 rename_owner: u64,
        /// Zero.
        @ 72 unused_middle: [u64; 7],
        /// Owner of the lock under which the inode table grows.
        @ 128 grow_owner: u64,
        /// Zero.
        @ 136 unused_late: [u64; 7],
        /// Owner of the lock under which one process at a time closes what dead ones held open.
        @ 192 closing_owner: u64,
        /// Zero.
        @ 200 unused_tail: [u64; 7],
    }
}

on_media! {
    /// A process.
    pub struct SlotRaw[128] {
        /// [`SLOT_FREE`] or [`SLOT_LIVE`].
        @ 0 state: u64,
        /// Counts the slot's holders; part of every owner word.
        @ 8 incarnation: u64,
        /// Process id, as its holder saw it.
        @ 16 pid: u64,
        /// Zero: room for counters.
        @ 24 unused: [u64; 13],
    }
}

on_media! {
    /// A lane's volatile half.
    pub struct LaneRaw[64] {
        /// Who runs a transaction in it, or 0.
        @ 0 owner: u64,
        /// Id of its last transaction.
        @ 8 last_id: u64,
        /// Index of the next entry to write.
        @ 16 head: u64,
        /// Intent records in use.
        @ 24 intents: u64,
        /// Where its next block is looked for.
        @ 32 block_cursor: u64,
        /// Where its next inode is looked for.
        @ 40 inode_cursor: u64,
        /// Where its next tree node, bucket or attribute block is looked for.
        @ 48 meta_cursor: u64,
        /// The inode whose size or pointers it changes without a log.
        @ 56 working: u64,
    }
}

on_media! {
    /// What a lane is about to do to the bitmaps. Written before it does; settled by whoever recovers it:
    /// blocks that turn out to be nobody's are freed.
    pub struct IntentRaw[32] {
        /// First block << 24 | number of blocks; 0 once settled.
        @ 0 run: u64,
        /// Kind << 56 | level << 48 (TREE, SUBTREE), or kind alone.
        @ 8 kind: u64,
        /// The inode.
        @ 16 ino: u64,
        /// Index in the tree, or cursor.
        @ 24 index: u64,
    }
}

on_media! {
    /// A line of the lock table.
    pub struct LockRaw[64] {
        /// Who holds it, or 0.
        @ 0 owner: u64,
        /// Odd while what it covers is being changed; never restarts while readers may exist.
        @ 8 sequence: u64,
        /// Zero.
        @ 16 unused: [u64; 6],
    }
}

on_media! {
    /// A group of blocks or inodes.
    pub struct GroupRaw[64] {
        /// Who changes its part of the bitmap, or 0.
        @ 0 owner: u64,
        /// Free units.
        @ 8 free: u64,
        /// Zero.
        @ 16 unused: [u64; 6],
    }
}
