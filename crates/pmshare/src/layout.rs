//! The words that processes share, and the mapping that has them.

use crate::error::Error;
use pm_store::Runtime;
use pmem::Pmem;
use pmfs_format::SlotRaw;

/// Bytes of a slot.
pub const SLOT_BYTES: u64 = SlotRaw::SIZE;

/// Where the words stand, in bytes from the start of the mapping.
#[derive(Clone, Debug)]
pub struct Layout {
    /// The slots of processes, each a [`SlotRaw`].
    pub slots: u64,
    /// How many there are.
    pub slot_count: u64,
    /// Owner of the recovery lock: one process at a time cleans up after others.
    pub recovery: u64,
    /// Owner of the lock under which one process at a time closes what dead ones held open.
    pub closing: u64,
    /// Tokens given out.
    pub tokens: u64,
    /// One more than the greatest slot that was ever marked.
    pub slots_end: u64,
    /// The time of the last patrol for dead processes, ns of CLOCK_MONOTONIC.
    pub patrolled: u64,
    /// The time until which the medium is busy with writes; 0 unless a slower one is emulated.
    pub busy_until: u64,
    /// Counts slots that were marked.
    pub arrivals: u64,
    /// The slot, plus one, of the process that has the lease of a single opener.
    pub lease: u64,
}

impl Layout {
    /// The slot of this number.
    #[inline]
    pub fn slot(&self, slot: u64) -> u64 {
        self.slots + slot * SlotRaw::SIZE
    }
}

/// Persistent memory that several processes have mapped: a pool or a heap.
pub trait Shared: Send + Sync + 'static {
    /// The error of its calls.
    type Error: From<Error>;

    /// The program's name, as messages begin with it.
    const PROGRAM: &'static str;
    /// The name of the memory in messages.
    const KIND: &'static str;

    /// The mapping.
    fn mem(&self) -> &Pmem;

    /// The words of it that are volatile in meaning.
    fn runtime(&self) -> Runtime<'_>;

    /// The places of those that processes share.
    fn layout(&self) -> &Layout;
}
