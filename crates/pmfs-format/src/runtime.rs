//! The runtime area: volatile in meaning, shared by all processes that hold the pool.
//!
//! Nothing here is logged. It is trusted while a process holds the pool or since one closed it
//! cleanly; else the first opener resets it and rebuilds the bitmaps from the trees. In order:
//! header, slots, lanes, intents, locks, open table, open files, file locks, their buckets, kernel
//! copies, roots of annexes, block groups, block bitmap, inode groups, inode bitmap, lazy bits.
//!
//! Annexes: blocks of the pool that hold more lines of the open table, of open files and of file
//! locks. Root words name nodes, and a node's words, but its first, name annexes: the block's first
//! byte, and in the low 12 bits an upper bound for the number of its used entries. A node's first
//! word and an annex's first line have its own number. The roots' nodes are of the three tables in
//! this order. A pool that no process holds has none.
//!
//! Counts of shares: how many leaves beside one name a block, two bytes a block, in blocks of the
//! pool. The header names the uppermost node, whose words, but for the first line, name nodes, and
//! theirs name blocks with the counts of [`SHARES_UNITS`] blocks each, the lowest first. A missing
//! one is all zeros. Nothing durable names these blocks, and a clean pool keeps them: its checksum
//! goes on through them, in the order of the blocks that are counted, a node before what it names.
//!
//! Lazy bits: a word for each group of inodes, a bit for each [`LAZY_INODES`] of them. It is set
//! before a lazy word of one of these inodes is stored, one without a flush (times of an overwrite,
//! atime, the count of blocks). A clean close flushes these inodes.

use crate::layout::{neighbours, on_media};

/// Version of this layout: unlike builds must not share a pool.
pub const LAYOUT: u64 = 19 + cfg!(feature = "other-layout") as u64;
/// First layout of builds that go on before the words of a committed redo record are durable
/// (docs/adr/0017-small-overwrites-wait-once.md).
pub const LAYOUT_COMMITTED_REDO: u64 = 13;
/// [`LockRaw::pending_commit`]: where the transaction's id starts.
pub const PENDING_ID_SHIFT: u32 = 24;
/// A lock's pending commit: the line is the last one of a committed redo record, which has no
/// closing entry.
pub const PENDING_REDO: u64 = 1 << 63;
/// Blocks (or inodes) a group: sixteen 2 MiB regions, one line of bitmap each.
pub const GROUP_UNITS: u64 = 8192;
/// Inodes that share a lazy bit.
pub const LAZY_INODES: u64 = GROUP_UNITS / 64;
/// Lines of a table in an annex: a block, but for its first line.
pub const ANNEX_LINES: u64 = 63;
/// Words of a node that name annexes.
pub const ANNEX_NODE_WORDS: u64 = 511;
/// Annexes' first words: the block is a node, of this number.
pub const ANNEX_NODE: u64 = 1 << 63;
/// The bits of a word that names an annex for that count, and the greatest count.
pub const ANNEX_COUNT_MAX: u64 = 0xfff;
/// Nodes of annexes of the open table.
pub const ANNEX_REFERENCE_ROOTS: u64 = 22;
/// Nodes of annexes of open files: room for 2^20 and more.
pub const ANNEX_FILE_ROOTS: u64 = 33;
/// Nodes of annexes of file locks.
pub const ANNEX_LOCK_ROOTS: u64 = 33;
/// Nodes of annexes.
pub const ANNEX_ROOTS: u64 = ANNEX_REFERENCE_ROOTS + ANNEX_FILE_ROOTS + ANNEX_LOCK_ROOTS;
/// Blocks whose counts of shares stand in one block: two bytes each, behind a line with its name.
pub const SHARES_UNITS: u64 = 2016;
/// The greatest count of a block's shares. A block that has it is copied instead of shared.
pub const SHARES_MAX: u64 = u16::MAX as u64;
/// First words of blocks with counts of shares.
pub const SHARES: u64 = 1 << 62;
/// First words of nodes over blocks with counts of shares.
pub const SHARES_NODE: u64 = SHARES | 1 << 61;
/// First word of the uppermost node.
pub const SHARES_TOP: u64 = SHARES | 1 << 60;
/// A lane's step: where the count of its words starts, less one. They stand in a row.
pub const STEP_WORDS_SHIFT: u32 = 36;
/// A lane's step: where the number of its record starts.
pub const STEP_RECORD_SHIFT: u32 = 48;
/// A lane's step: the word of the record that changes is its cursor, else its run.
pub const STEP_CURSOR: u64 = 1 << 60;
/// Slot state: free.
pub const SLOT_FREE: u64 = 0;
/// Slot state: a process has it; it is alive while the slot's byte is locked.
pub const SLOT_LIVE: u64 = 1;

/// Owner words: the thread's number at the kernel, which has 22 bits at most (low, so that a futex
/// sees it); 0: not known.
pub const OWNER_THREAD_MASK: u64 = (1 << 22) - 1;
/// Owner words: where the low bits of the thread's count among those of its process start (9 bits).
pub const OWNER_COUNT_SHIFT: u32 = 22;
/// Owner words: a waiter sleeps on the word.
pub const OWNER_WAITERS: u64 = 1 << 31;
/// Owner words: where the slot's number plus one starts (12 bits).
pub const OWNER_SLOT_SHIFT: u32 = 32;
/// Owner words: where the rest of that count starts (20 bits).
pub const OWNER_COUNT_HIGH_SHIFT: u32 = 44;

/// Intent kind: the blocks belong to the inode's tree at this level and index, or to no inode.
pub const INTENT_TREE: u64 = 1;
/// Intent kind: the blocks are the inode's attributes, or belong to no inode.
pub const INTENT_XATTR: u64 = 2;
/// Intent kind: the inode number is in use if it has links or is open.
pub const INTENT_INODE: u64 = 3;
/// Intent kind: the inode's blocks are being freed, up to the cursor.
pub const INTENT_RECLAIM: u64 = 4;
/// Intent kind: an old subtree is to be freed over a range if its slot no longer names it. Two
/// records: the second, [`INTENT_RANGE`], follows.
pub const INTENT_SUBTREE: u64 = 5;
/// Intent kind: first and last index of the [`INTENT_SUBTREE`] before it; the low 48 bits of the
/// kind's word are the first index whose leaves stay, as they stand elsewhere by then.
pub const INTENT_RANGE: u64 = 6;
/// Intent kind: the blocks hold saved data of the lane's transaction, and belong to no inode after
/// it.
pub const INTENT_SCRATCH: u64 = 7;
/// Intent kind: the word at this offset is stored in place; recovery flushes it, for it may
/// have been seen.
pub const INTENT_WORD: u64 = 8;
/// Intent kind: the blocks are nodes of the inode's tree if its topmost node is the block in
/// `index`, or belong to none.
pub const INTENT_UNDER: u64 = 9;
/// Intent kind: the inode's tree has a share of the blocks, as leaves from this index on (or, of
/// level 1, as its only node), or the share is dropped; the last share frees its block. A leaf
/// below a root word with [`crate::tree::SHARED`] has none.
pub const INTENT_SHARED: u64 = 10;

on_media! {
    /// Start of the runtime area.
    pub struct RuntimeHeaderRaw[256] {
        /// [`LAYOUT`].
        @ 0 layout: u64,
        /// Owner of the recovery lock: one process at a time cleans up after others.
        @ 8 recovery_owner: u64,
        /// Slots recovered since the reset.
        @ 16 recoveries: u64,
        /// The time of the last patrol for dead processes, ns of CLOCK_MONOTONIC.
        @ 24 patrolled_ns: u64,
        /// Owner of the lock under which tables get annexes.
        @ 32 annex_owner: u64,
        /// The block that is being made one; 0: none.
        @ 40 annex_block: u64,
        /// The word that is to name it.
        @ 48 annex_slot: u64,
        /// The block of the uppermost node of the counts of shares; 0: nothing is shared.
        @ 56 shares: u64,
        /// Owner of the rename lock, taken before any other by a rename that moves a directory.
        @ 64 rename_owner: u64,
        /// Times until which modules 1 to 7 of an emulated device are busy, as that of module 0.
        @ 72 busy_first: [u64; 7],
        /// Owner of the lock under which the inode table grows.
        @ 128 grow_owner: u64,
        /// Counts arrivals of processes: slots that were marked.
        @ 136 arrivals: u64,
        /// The slot, plus one, of the mount that has the single-opener lease: its kernel may
        /// remember answers for a moment, and a newcomer waits for its end. 0: none. Waiters sleep
        /// on its low half.
        @ 144 lease: u64,
        /// The same of modules 8 to 12.
        @ 152 busy_middle: [u64; 5],
        /// Owner of the lock under which one process at a time closes the open files of dead ones.
        @ 192 closing_owner: u64,
        /// Tokens given out.
        @ 200 tokens: u64,
        /// The time until which the pool's medium is busy with writes, 64ths of a ns of
        /// CLOCK_MONOTONIC; of an emulated device, the same of module 0, in ticks of the time stamp
        /// counter. 0 unless a slower medium is emulated.
        @ 208 busy_until: u64,
        /// One more than the greatest slot that was ever marked: a search for processes ends there.
        @ 216 slots_end: u64,
        /// The same of modules 13 to 15.
        @ 224 busy_last: [u64; 3],
        /// Streams of an emulated device: the number of a span of time (high 32 bits), the threads
        /// of it, and those of the last one (16 bits each).
        @ 248 streams: u64,
    }
}

on_media! {
    /// A process.
    pub struct SlotRaw[192] {
        /// [`SLOT_FREE`] or [`SLOT_LIVE`].
        @ 0 state: u64,
        /// Counts the slot's holders.
        @ 8 incarnation: u64,
        /// Process id, as its holder saw it.
        @ 16 pid: u64,
        /// Names the process as an owner of POSIX locks: handed over by exec, new after fork.
        @ 24 token: u64,
        /// Name of its program, NUL-padded.
        @ 32 command: [u64; 2],
        /// When it attached, ns since the epoch.
        @ 48 since_ns: u64,
        /// Counts requests to give pages back; its low half is slept on by a mount's revoker. 0 for
        /// all but mounts.
        @ 56 asked: u64,
        /// Totals of this incarnation, for observers: calls that read.
        @ 64 reads: u64,
        /// Calls that change something.
        @ 72 changes: u64,
        /// Bytes of file data read.
        @ 80 read_bytes: u64,
        /// Bytes of file data written.
        @ 88 written_bytes: u64,
        /// Barriers.
        @ 96 barriers: u64,
        /// Lines flushed.
        @ 104 flushed_lines: u64,
        /// Bytes of undo log.
        @ 112 logged_bytes: u64,
        /// Waits for a lock, a lane or a group of another holder.
        @ 120 waits: u64,
        /// Time spent in them, ns.
        @ 128 waited_ns: u64,
        /// Dead processes that it cleaned up after.
        @ 136 recoveries: u64,
        /// The slower medium that it emulates: ns more a line read, ns more a barrier, bytes a
        /// second written at most.
        @ 144 emulates: [u64; 3],
        /// The device that it emulates instead: its number plus one (8 bits), modules (8), the
        /// power of two of a chunk's bytes (8), zero (8), mW of a module (32). 0: none.
        @ 168 device: u64,
        /// Until when a heap's process keeps sessions of readers open. In a pool, the first tells
        /// until when a monitor asks for counts of calls by thread, ns of CLOCK_MONOTONIC; 0: none
        /// asks; 2^64 - 1 and 2^64 - 2: the process was started so, in the second case by a
        /// monitor. The second is 2 if counts are published that no monitor has opened, and 1 if
        /// one has.
        @ 176 sessions: [u64; 2],
    }
}

on_media! {
    /// A lane's volatile half.
    pub struct LaneRaw[64] {
        /// The owner of its transaction, or 0.
        @ 0 owner: u64,
        /// Id of its last transaction.
        @ 8 last_id: u64,
        /// Index of the next entry to write.
        @ 16 head: u64,
        /// Intent records in use.
        @ 24 intents: u64,
        /// The place where the search for its next block begins.
        @ 32 block_cursor: u64,
        /// The place where the search for its next inode begins.
        @ 40 inode_cursor: u64,
        /// The place where the search for its next tree node, bucket or attribute block begins.
        @ 48 meta_cursor: u64,
        /// The inode whose size or pointers it changes without a log.
        @ 56 working: u64,
    }
}

on_media! {
    /// The blocks in question while a lane changes the bitmaps. Written before the first bit;
    /// recovery resolves it: blocks that belong to no inode are freed. A lane's last one is no
    /// record: its run is the lane's spare block, marked as used without an inode, or 0. A record
    /// that names it decides its meaning. Its other words are the step of a count of shares that is
    /// being done: the new word of counts; the first block of that word, the record and which of
    /// its words changes (0: no step); that word's new value.
    pub struct IntentRaw[32] {
        /// First block << 24 | number of blocks; 0 once resolved.
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
        /// Its holder, or 0.
        @ 0 owner: u64,
        /// Odd while the inodes that it covers are being changed; never restarts while readers may
        /// exist.
        @ 8 sequence: u64,
        /// The number of records of kernel copies to search, from the line's own on, for one of an
        /// inode of this line; 0: none.
        @ 16 copies: u64,
        /// The pending commit: the log line that must be durable before the words of this lock
        /// change again, and its transaction: id << [`PENDING_ID_SHIFT`] | number of the line in
        /// the journal, and [`PENDING_REDO`] for a redo record; 0: none.
        @ 24 pending_commit: u64,
        /// Zero.
        @ 32 unused: [u64; 4],
    }
}

/// References that a line of the open table has room for.
pub const OPEN_LINE_REFERENCES: u64 = 7;

on_media! {
    /// A line of the open table, which tells which process has which inode or open file: a thing's
    /// reference stands in the line that its hash chooses, or in one behind it.
    pub struct OpenLineRaw[64] {
        /// Thing, slot plus one, and how often that process has it; 0: free.
        @ 0 references: [u64; OPEN_LINE_REFERENCES as usize],
        /// Bit 0: something that belonged here had to go to the next line. Bit 1, of a thing's
        /// first line: a process has had it by several references.
        @ 56 notes: u64,
    }
}

on_media! {
    /// An open file: the state that the descriptors of one open share (an "open file description").
    /// Words of the open table name the processes that have it.
    pub struct OpenFileRaw[64] {
        /// The thread that moves its offset, or 0.
        @ 0 owner: u64,
        /// Its inode; 0: free.
        @ 8 ino: u64,
        /// Where the next read or write begins, in bytes.
        @ 16 offset: u64,
        /// Flags of open(2) that reads and writes ask for.
        @ 24 flags: u64,
        /// Counts the files that the line has been.
        @ 32 generation: u64,
        /// Zero.
        @ 40 unused: [u64; 3],
    }
}

/// File lock state: a free record.
pub const FILE_LOCK_FREE: u64 = 0;
/// File lock state: being filled.
pub const FILE_LOCK_TAKEN: u64 = 1;
/// File lock state: held.
pub const FILE_LOCK_HELD: u64 = 2;
/// File lock state: a waiter's.
pub const FILE_LOCK_WAITING: u64 = 3;
/// File lock records: where the slot's number plus one starts in the state's word.
pub const FILE_LOCK_SLOT_SHIFT: u32 = 32;
/// File lock records: bit of the mode that says "for writing".
pub const FILE_LOCK_WRITE: u64 = 1;
/// File lock records: where the owner's class starts in the mode's word.
pub const FILE_LOCK_CLASS_SHIFT: u32 = 8;
/// File lock records: where the process id starts in the mode's word.
pub const FILE_LOCK_PID_SHIFT: u32 = 32;

on_media! {
    /// A lock on a range of a file, or on the whole of it, held or waited for.
    pub struct FileLockRaw[64] {
        /// FILE_LOCK_* | (slot + 1) << [`FILE_LOCK_SLOT_SHIFT`]: the process whose death ends it.
        @ 0 state: u64,
        /// Next record of the bucket, plus one.
        @ 8 next: u64,
        /// The inode.
        @ 16 ino: u64,
        /// First byte.
        @ 24 start: u64,
        /// Last byte.
        @ 32 end: u64,
        /// For writing, class of the owner, process id.
        @ 40 mode: u64,
        /// Owner: the process's token.
        @ 48 token: u64,
        /// Owner: which of that process's.
        @ 56 id: u64,
    }
}

on_media! {
    /// The file locks of inodes with the same hash.
    pub struct FileLockBucketRaw[64] {
        /// The thread that changes the chain, or 0.
        @ 0 owner: u64,
        /// First record, plus one.
        @ 8 first: u64,
        /// Counts the changes that may let a waiter continue; waiters sleep on its low half.
        @ 16 changes: u64,
        /// Zero.
        @ 24 unused: [u64; 5],
    }
}

/// Kernel copy state: a free record.
pub const KERNEL_COPY_FREE: u64 = 0;
/// Kernel copy state: being filled.
pub const KERNEL_COPY_TAKEN: u64 = 1;
/// Kernel copy state: the mount's kernel may hold pages of the inode.
pub const KERNEL_COPY_HELD: u64 = 2;
/// Kernel copy state: as held, and a waiter wants them back.
pub const KERNEL_COPY_WANTED: u64 = 3;
/// Kernel copy records: where the slot's number plus one starts in the state's word.
pub const KERNEL_COPY_SLOT_SHIFT: u32 = 32;
/// Kernel copy kind: clean pages.
pub const KERNEL_COPY_READ: u64 = 1;
/// Kernel copy kind: pages that programs may store to.
pub const KERNEL_COPY_MAYBE_DIRTY: u64 = 2;
/// Kernel copy kind: none of a kernel's, but the pool's own blocks, which the slot's process has
/// mapped and never stores to.
pub const KERNEL_COPY_PIN_READ: u64 = 3;
/// Kernel copy kind: as that, and it may store to them.
pub const KERNEL_COPY_PIN_WRITE: u64 = 4;
/// Kernel copy kind: as [`KERNEL_COPY_PIN_READ`], and its process moves them, so that no other may
/// have them mapped.
pub const KERNEL_COPY_PIN_APART: u64 = 5;

on_media! {
    /// Pages of an inode that a mount's kernel may hold. Stands at its lock's line, or after it.
    pub struct KernelCopyRaw[64] {
        /// KERNEL_COPY_* | (slot + 1) << [`KERNEL_COPY_SLOT_SHIFT`]: the process of its mount.
        /// Waiters sleep on its low half.
        @ 0 state: u64,
        /// The inode.
        @ 8 ino: u64,
        /// [`KERNEL_COPY_READ`] to [`KERNEL_COPY_PIN_APART`].
        @ 16 kind: u64,
        /// Counts the reads of pages that were answered since.
        @ 24 generation: u64,
        /// When the first of them was, ns of CLOCK_MONOTONIC.
        @ 32 since_ns: u64,
        /// For a pin: the file was made shorter, and the blocks past its end are to be freed with
        /// the last pin.
        @ 40 trims: u64,
        /// For a pin: others may have stored to the blocks since its process flushed them all.
        @ 48 stored_elsewhere: u64,
        /// Zero.
        @ 56 unused: u64,
    }
}

on_media! {
    /// A group of blocks or inodes.
    pub struct GroupRaw[64] {
        /// The thread that changes its part of the bitmap, or 0.
        @ 0 owner: u64,
        /// Free units.
        @ 8 free: u64,
        /// Regions of 512 units, one line of bitmap each, that are free as a whole.
        @ 16 regions: u64,
        /// Zero.
        @ 24 unused: [u64; 5],
    }
}

// Stored or loaded in one piece: the identity of a process, and its counts.
neighbours!(SlotRaw: pid, token, command, since_ns, asked);
neighbours!(
    SlotRaw: reads, changes, read_bytes, written_bytes, barriers, flushed_lines, logged_bytes, waits, waited_ns, recoveries
);
neighbours!(IntentRaw: run, kind, ino, index);
neighbours!(OpenFileRaw: ino, offset, flags, generation);
neighbours!(FileLockRaw: state, next, ino, start, end, mode, token, id);
neighbours!(KernelCopyRaw: state, ino, kind, generation, since_ns, trims, stored_elsewhere);
