//! The words that processes share, and the mapping that contains them.

use crate::error::Error;
use pm_store::Runtime;
use pmem::Pmem;
use pmfs_format::SlotRaw;

/// Bytes of a slot.
pub const SLOT_BYTES: u64 = SlotRaw::SIZE;
/// Where a slot has its totals, of which a heap's processes have counts of their own.
pub const TOTALS_OFFSET: u64 = SlotRaw::reads.offset();
/// Where a slot has the marks of a heap's sessions.
pub const SESSIONS_OFFSET: u64 = SlotRaw::sessions.offset();

/// The places of the shared words, in bytes from the start of the mapping.
#[derive(Clone, Debug)]
pub struct Layout {
    /// The slots of processes, each a [`SlotRaw`].
    pub slots: u64,
    /// The count of slots.
    pub slot_count: u64,
    /// Owner of the recovery lock: one process at a time cleans up after others.
    pub recovery: u64,
    /// Owner of the lock under which one process at a time closes what dead ones held open.
    pub closing: u64,
    /// The count of tokens given out.
    pub tokens: u64,
    /// The greatest slot that was ever marked, plus one.
    pub slots_end: u64,
    /// The time of the last patrol for dead processes, ns of CLOCK_MONOTONIC.
    pub patrolled: u64,
    /// The time until which the medium is busy with writes; 0 unless a slower one is emulated.
    pub busy_until: u64,
    /// The same of an emulated device's further modules, and the count of its streams. `None`: each
    /// process emulates a device of its own.
    pub busy_more: Option<[u64; pmem::DIMMS_MAX as usize]>,
    /// The count of slots that were marked.
    pub arrivals: u64,
    /// The slot, plus one, of the process with the single-opener lease.
    pub lease: u64,
}

impl Layout {
    /// The slot of this number.
    #[inline]
    pub fn slot(&self, slot: u64) -> u64 {
        self.slots + slot * SlotRaw::SIZE
    }
}

/// Persistent memory that several processes map: a pool or a heap.
pub trait Shared: Send + Sync + 'static {
    /// The error of its calls.
    type Error: From<Error>;

    /// The program's name at the start of messages.
    const PROGRAM: &'static str;
    /// The name of such memory in messages.
    const KIND: &'static str;
    /// A slot's last two words tell until when a monitor asks for counts of calls by thread, and
    /// the calls look at them. Otherwise the words are the heap's own.
    const PUBLISHES: bool = false;

    /// The mapping.
    fn mem(&self) -> &Pmem;

    /// The words that are volatile in meaning.
    fn runtime(&self) -> Runtime<'_>;

    /// The places of the words that processes share.
    fn layout(&self) -> &Layout;
}
