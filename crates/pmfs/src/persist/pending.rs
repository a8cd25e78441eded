//! What a thread owes before it stores in place: that the closing entries are durable which the
//! locks named that it took ([`crate::journal::debt`]). They are flushed with its next barrier,
//! which mostly comes before such a store anyway.
//!
//! One word of the thread says it: nothing, a line to be flushed, that a line was flushed and the
//! fence is still to come, or a change that is promised and not closed
//! ([`crate::journal::promise`]). What that one stored is flushed already: behind the next fence
//! its last entry becomes the closing one, which a second makes durable. Only who has its lane may
//! do that.

use super::Pm;
use pmem::Pmem;
use pmem::thread::{PENDING_CLOSED, PENDING_FLUSHED, with};
use pmfs_format::journal::{KIND_COMMIT, KIND_SHIFT};

/// Bit of a line's offset: it was met with a lock. Without it, it is this call's own.
const FROM_LOCK: u64 = 2;
/// Bit of a line's offset: the last entry of a change that is promised and not closed.
const OPEN: u64 = 4;
/// Bit of such a line's offset: this thread has its lane.
const HELD: u64 = 8;
/// All of them.
const BITS: u64 = FROM_LOCK | OPEN | HELD;

/// Not durable for certain, and met with a lock.
#[inline]
fn is_from_lock(pending: u64) -> bool {
    pending == PENDING_FLUSHED || pending & FROM_LOCK != 0
}

/// A line that is to be flushed.
#[inline]
fn is_unflushed(pending: u64) -> bool {
    pending > BITS && pending & OPEN == 0
}

/// A promise that is not closed.
#[inline]
fn is_open(pending: u64) -> bool {
    pending > BITS && pending & OPEN != 0
}

/// Before a fence: what is owed is flushed.
#[inline]
#[cfg_attr(feature = "record", track_caller)]
pub(super) fn flush(mem: &Pmem) {
    let pending = with(|thread| thread.pending.get());
    if is_unflushed(pending) {
        if !planted!("bug-pending-unflushed") {
            mem.flush(pending & !BITS, 64);
        }
        with(|thread| thread.pending.set(PENDING_FLUSHED));
    } else if is_open(pending) && pending & FROM_LOCK == 0 {
        flush_own(mem);
    }
}

/// Of a change that this call itself has promised nothing is flushed yet.
#[cold]
#[cfg_attr(feature = "record", track_caller)]
fn flush_own(mem: &Pmem) {
    let [first, second] = committed_redo_ranges();
    for (off, bytes) in [first, second] {
        if bytes > 0 {
            mem.flush(off, bytes);
        }
    }
}

/// What this thread has stored last by a promise: offsets and bytes.
pub(crate) fn committed_redo_ranges() -> [(u64, u64); 2] {
    with(|thread| {
        let [first, first_bytes, second, second_bytes] =
            std::array::from_fn(|at| thread.redo_ranges[2 + at].get());
        [(first, first_bytes), (second, second_bytes)]
    })
}

/// Behind a fence: what was promised is durable in its place, and is closed with the next one.
#[inline]
#[cfg_attr(feature = "record", track_caller)]
pub(super) fn close(mem: &Pmem) {
    let pending = with(|thread| thread.pending.get());
    if is_open(pending) {
        close_open(mem, pending);
    }
}

#[cold]
#[cfg_attr(feature = "record", track_caller)]
fn close_open(mem: &Pmem, pending: u64) {
    assert!(
        pending & HELD != 0,
        "a committed redo record is closed by the holder of its lane"
    );
    let entry = pending & !BITS;
    let window = mem.window();
    mem.store(entry, KIND_COMMIT << KIND_SHIFT);
    drop(window);
    if !planted!("bug-redo-closed-unflushed") {
        mem.flush(entry, 64);
    }
    with(|thread| thread.pending.set(PENDING_CLOSED));
}

/// Flushes what is owed, and waits until it is durable.
#[cold]
#[cfg_attr(feature = "record", track_caller)]
fn complete(mem: &Pmem) {
    flush(mem);
    if is_open(with(|thread| thread.pending.get())) {
        if !planted!("bug-redo-closed-early") {
            mem.fence();
        }
        close(mem);
    }
    if !planted!("bug-pending-unfenced") {
        mem.fence();
    }
}

impl Pm {
    /// The line at `off` must be durable before this thread stores in place: a lock says so.
    #[inline]
    #[cfg_attr(feature = "record", track_caller)]
    pub(crate) fn defer(&self, off: u64) {
        let pending = with(|thread| thread.pending.get());
        if is_open(pending) {
            // The word has room for one, and a promise is not paid by a flush.
            self.mem.flush(off, 64);
            return self.mem.fence();
        }
        with(|thread| thread.pending.set(off | FROM_LOCK));
        if pending != 0 && pending != off | FROM_LOCK {
            // Two that differ, of two locks.
            flush(&self.mem);
            if is_unflushed(pending) {
                self.mem.flush(pending & !BITS, 64);
            }
        }
    }

    /// As [`Pm::owe`], of the transaction that this call itself has just closed. Behind it a call
    /// mostly stores nothing, and at its end the locks have it.
    #[inline]
    pub(crate) fn defer_own(&self, off: u64) {
        with(|thread| thread.pending.set(off));
    }

    /// As [`Pm::owe`], of a change that is promised and not closed, whose last entry is at `off`.
    /// `false` if something else is owed.
    #[inline]
    pub(crate) fn defer_redo(&self, off: u64) -> bool {
        with(|thread| {
            let free = thread.pending.get() == 0;
            if free {
                thread.pending.set(off | FROM_LOCK | OPEN);
            }
            free
        })
    }

    /// As [`Pm::owe_own`], of a change that this call itself has just promised, and made.
    #[inline]
    pub(crate) fn defer_own_redo(&self, off: u64) {
        with(|thread| thread.pending.set(off | OPEN | HELD));
    }

    /// The last entry of the promise that is owed.
    #[inline]
    pub(crate) fn pending_redo(&self) -> Option<u64> {
        let pending = with(|thread| thread.pending.get());
        is_open(pending).then_some(pending & !BITS)
    }

    /// This thread has the lane of the promise that is owed, and what it stored in place is
    /// flushed.
    #[inline]
    pub(crate) fn hold_redo_lane(&self) {
        with(|thread| thread.pending.set(thread.pending.get() | HELD));
    }

    /// Sets what is owed, for a while or again; answers what was.
    pub(crate) fn set_pending(&self, pending: u64) -> u64 {
        with(|thread| thread.pending.replace(pending))
    }

    /// What is owed is paid otherwise, if so for its line.
    #[inline]
    pub(crate) fn drop_if_complete(&self, is_complete: impl FnOnce(u64) -> bool) {
        let pending = with(|thread| thread.pending.get());
        if pending > BITS && is_complete(pending & !BITS) {
            with(|thread| thread.pending.set(0));
        }
    }

    /// The locks are given back, and nothing is stored in place without them. Whether something
    /// that was met is not durable.
    #[inline]
    pub(crate) fn leave_pending(&self) -> bool {
        is_from_lock(with(|thread| thread.pending.replace(0)))
    }

    /// What was met is durable: before what it covers becomes somebody else's.
    #[inline]
    #[cfg_attr(feature = "record", track_caller)]
    pub(crate) fn drain_from_locks(&self) {
        if is_from_lock(with(|thread| thread.pending.get())) {
            complete(&self.mem);
        }
    }

    /// All that is owed is durable: every store in place begins with this, unless a barrier has
    /// just been.
    #[inline]
    #[cfg_attr(feature = "record", track_caller)]
    pub(super) fn drain(&self) {
        if with(|thread| thread.pending.get()) != 0 {
            complete(&self.mem);
        }
    }

    /// As [`Pm::settle`], before a store to a pointer or a size. No promise speaks of these, so one
    /// that is closed with the next fence is closed soon enough: with that store.
    #[inline]
    #[cfg_attr(feature = "record", track_caller)]
    pub(super) fn drain_for_pointer(&self) {
        if !matches!(with(|thread| thread.pending.get()), 0 | PENDING_CLOSED) {
            complete(&self.mem);
        }
    }
}
