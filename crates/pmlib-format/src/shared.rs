//! The words that processes share, at the start of the volatile area: each in a line of its own,
//! but for the run's record. The slots of processes follow, then lines of counts, as many as slots.
//!
//! A line of counts is a thread's: it alone adds to it, by plain stores. Threads that have none add
//! to their process's slot, atomically. The counts of a process are the sums over its slot and its
//! lines. They decide nothing, and may be anything in a file that somebody has made.

/// Bytes of these words.
pub const SHARED_BYTES: u64 = 640;
/// Owner of the recovery lock: one process at a time cleans up after others.
pub const RECOVERY_OFFSET: u64 = 0;
/// Owner of the lock under which slots of the dead are freed.
pub const CLOSING_OFFSET: u64 = 64;
/// Tokens given out.
pub const TOKENS_OFFSET: u64 = 128;
/// One more than the greatest slot that was ever marked.
pub const SLOTS_END_OFFSET: u64 = 192;
/// The era of readers' sessions, above its state (2 bits): 0, no session is open; 1, some may be;
/// 2, it is being found out whether any is.
pub const ERA_OFFSET: u64 = 200;
/// The time of the last patrol for dead processes, ns of CLOCK_MONOTONIC.
pub const PATROLLED_OFFSET: u64 = 256;
/// The time until which an emulated medium is busy with writes. The words behind this one, behind
/// the lease's and two behind that of growth are those of an emulated device's further modules and
/// streams.
pub const BUSY_UNTIL_OFFSET: u64 = 320;
/// Counts slots that were marked.
pub const ARRIVALS_OFFSET: u64 = 384;
/// Nobody has the lease that it is for: zero.
pub const LEASE_OFFSET: u64 = 448;
/// Owner of the lock under which the heap grows.
pub const GROW_OFFSET: u64 = 512;
/// The run's record: the boot (two words), the file's device and inode, [`LAYOUT`], and
/// [`RUN_READY`] once the volatile area can be believed.
pub const RECORD_OFFSET: u64 = 576;
/// Words of the run's record.
pub const RECORD_WORDS: usize = 6;
/// Version of the volatile area: unlike builds must not share a heap.
pub const LAYOUT: u64 = 6;
/// The volatile area is this run's.
pub const RUN_READY: u64 = u64::from_le_bytes(*b"RUNNING!");
/// Bytes of a process's slot.
pub const SLOT_BYTES: u64 = 192;
/// In a slot: two words, by the parity of eras. Until when the process's sessions of readers may be
/// kept open, ns of CLOCK_MONOTONIC; 0: it has none; 2^64 - 1: they were ended by others.
pub const MARKS_OFFSET: u64 = 176;
/// In a slot: the process's counts of calls by threads without a line, in the order of a line's.
pub const SLOT_COUNTS_OFFSET: u64 = 64;
/// Bytes of a line of counts.
pub const COUNTS_BYTES: u64 = 64;
/// In a line of counts: the incarnation of its process's slot, above 12 bits of the slot plus one;
/// 0: nobody's, and so is one whose slot is free or has another incarnation. The greatest bit: it
/// is being taken, and its counts are a former owner's. The counts follow, a word each.
pub const COUNTS_OWNER_OFFSET: u64 = 0;
/// Counts of a line, each 64 bits wide, which a century does not fill: gets, puts, bytes got, bytes
/// put, deletes, walks, batches.
pub const COUNTS: usize = 7;
/// The least number of slots of a heap: one is kept for the process that cleans up.
pub const SLOTS_MIN: u32 = 4;
/// The greatest number of slots of a heap.
pub const SLOTS_MAX: u32 = 4094;

const _: () = assert!(RECORD_OFFSET + RECORD_WORDS as u64 * 8 <= SHARED_BYTES);
const _: () = assert!(COUNTS_OWNER_OFFSET == 0 && 8 + COUNTS as u64 * 8 <= COUNTS_BYTES);
