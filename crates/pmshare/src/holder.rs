//! The holder of a lock in an owner word: a slot, and a thread of the slot's process
//! (docs/adr/0026-fork-exec-threads.md).

use crate::threads;
use pmfs_format::runtime::{
    OWNER_COUNT_HIGH_SHIFT, OWNER_COUNT_SHIFT, OWNER_SLOT_SHIFT, OWNER_THREAD_MASK, OWNER_WAITERS,
};
use std::sync::atomic::{AtomicU64, Ordering};

/// A number above the slots of any pool (4,094).
pub(crate) const NO_SLOT: u64 = 0xffd;

/// The field of a slot's number, plus one.
const SLOT_MASK: u64 = 0xfff;

/// The bits of an owner word that name the thread.
pub const TAG_MASK: u64 = !(SLOT_MASK << OWNER_SLOT_SHIFT | OWNER_WAITERS);

/// The count of threads of this process, also before a fork, that got a tag.
pub(crate) static THREADS: AtomicU64 = AtomicU64::new(1);

/// This thread's tag in owner words; never 0. No two living threads have the same: it has the
/// kernel's number of the thread. The count beside it distinguishes a thread from an earlier one
/// with the same number. When the count wraps around, after 2^29 threads, the numbers still differ.
#[inline]
pub fn thread_tag() -> u64 {
    let tag = pmem::thread::with(|thread| thread.tag.get());
    match tag {
        0 => new_thread(),
        tag => tag,
    }
}

/// Gives a thread its tag at the first call.
#[cold]
fn new_thread() -> u64 {
    let number = threads::own_number();
    let count = THREADS.fetch_add(1, Ordering::Relaxed);
    let mut tag = tag_of(number, count);
    if tag == 0 {
        tag = tag_of(number, 1);
    }
    pmem::thread::with(|thread| thread.tag.set(tag));
    threads::note(tag);
    tag
}

/// Returns whether the thread of this process with a tag is gone.
#[cold]
pub fn thread_is_gone(tag: u64) -> bool {
    threads::is_gone(tag)
}

/// Bits of the count beside the thread's number; the other bits stand behind the slot.
const COUNT_LOW_BITS: u32 = OWNER_WAITERS.trailing_zeros() - OWNER_COUNT_SHIFT;

/// A thread's number and as much of a count as fits, in the bits of an owner word.
pub(crate) fn tag_of(number: u64, count: u64) -> u64 {
    let low = count & ((1 << COUNT_LOW_BITS) - 1);
    let high = count >> COUNT_LOW_BITS;
    number | low << OWNER_COUNT_SHIFT | high << OWNER_COUNT_HIGH_SHIFT
}

/// Notes that this thread lives, in a process that may be a copy of another, where the thread has
/// another number.
pub fn this_thread_lives() {
    let tag = thread_tag();
    match tag & OWNER_THREAD_MASK == threads::own_number() {
        true => threads::note(tag),
        false => drop(new_thread()),
    }
}

/// The holder of a slot: the part of an owner word that stands for the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Holder {
    /// Its number.
    pub slot: u64,
    /// The number of this holder among those that the slot has had.
    pub incarnation: u64,
}

impl Holder {
    /// This thread's owner word.
    #[inline]
    pub fn word(self) -> u64 {
        self.word_of(thread_tag())
    }

    /// The owner word of another thread of this process.
    #[inline]
    pub fn word_of(self, tag: u64) -> u64 {
        tag | (self.slot + 1) << OWNER_SLOT_SHIFT
    }
}

/// The slot's bits in a holder packed into one word.
const SLOT_BITS: u32 = SLOT_MASK.count_ones();

/// The holder of this process, set at attaching and again after a fork.
#[derive(Debug)]
pub struct AtomicHolder(AtomicU64);

impl Default for AtomicHolder {
    /// A process that is not attached has no slot.
    fn default() -> AtomicHolder {
        AtomicHolder(AtomicU64::new(NO_SLOT))
    }
}

impl AtomicHolder {
    /// The holder of this process.
    #[inline]
    pub fn load(&self) -> Holder {
        let word = self.0.load(Ordering::Relaxed);
        Holder {
            slot: word & SLOT_MASK,
            incarnation: word >> SLOT_BITS,
        }
    }

    /// Sets the holder of this process.
    pub fn store(&self, holder: Holder) {
        let word = holder.incarnation << SLOT_BITS | holder.slot;
        self.0.store(word, Ordering::Relaxed);
    }
}

/// The slot in an owner word.
pub fn slot_of(owner: u64) -> Option<u64> {
    (owner >> OWNER_SLOT_SHIFT & SLOT_MASK).checked_sub(1)
}
