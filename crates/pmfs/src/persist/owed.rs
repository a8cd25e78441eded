//! What a thread owes before it stores in place: that the closing entries are durable which the locks named that it took
//! ([`crate::debt`]). They are flushed with its next barrier, which mostly comes before such a store anyway.
//!
//! One word of the thread says it: nothing, a line to be flushed, or that a line was flushed and the fence is still to come.

use super::Pm;
use pmem::Pmem;
use pmem::thread::{OWED_FLUSHED, with};

/// Bit of a line's offset: it was met with a lock. Without it, it is this call's own.
const MET: u64 = 2;

/// Not durable for certain, and met with a lock.
#[inline]
fn is_met(owed: u64) -> bool {
    owed == OWED_FLUSHED || owed & MET != 0
}

/// Before a fence: what is owed is flushed.
#[inline]
#[cfg_attr(feature = "record", track_caller)]
pub(super) fn flush(mem: &Pmem) {
    let owed = with(|thread| thread.owed.get());
    if owed > OWED_FLUSHED {
        if !planted!("bug-debt-unflushed") {
            mem.flush(owed & !MET, 64);
        }
        with(|thread| thread.owed.set(OWED_FLUSHED));
    }
}

/// Flushes what is owed, and waits until it is durable.
#[cold]
#[cfg_attr(feature = "record", track_caller)]
fn pay(mem: &Pmem) {
    flush(mem);
    if !planted!("bug-debt-unfenced") {
        mem.fence();
    }
}

impl Pm {
    /// The line at `off` must be durable before this thread stores in place: a lock says so.
    #[inline]
    #[cfg_attr(feature = "record", track_caller)]
    pub(crate) fn owe(&self, off: u64) {
        let owed = with(|thread| thread.owed.replace(off | MET));
        if owed != 0 && owed != off | MET {
            // Two that differ, of two locks: the word has room for one.
            flush(&self.mem);
            if owed > OWED_FLUSHED {
                self.mem.flush(owed & !MET, 64);
            }
        }
    }

    /// As [`Pm::owe`], of the transaction that this call itself has just closed. Behind it a call mostly stores nothing, and at its end
    /// the locks have it.
    #[inline]
    pub(crate) fn owe_own(&self, off: u64) {
        with(|thread| thread.owed.set(off));
    }

    /// What is owed is paid otherwise, if so for its line.
    #[inline]
    pub(crate) fn forgive(&self, is_paid: impl FnOnce(u64) -> bool) {
        let owed = with(|thread| thread.owed.get());
        if owed > OWED_FLUSHED && is_paid(owed & !MET) {
            with(|thread| thread.owed.set(0));
        }
    }

    /// The locks are given back, and nothing is stored in place without them. Whether something that was met is not durable.
    #[inline]
    pub(crate) fn leave_owed(&self) -> bool {
        is_met(with(|thread| thread.owed.replace(0)))
    }

    /// What was met is durable: before what it covers becomes somebody else's.
    #[inline]
    #[cfg_attr(feature = "record", track_caller)]
    pub(crate) fn settle_met(&self) {
        if is_met(with(|thread| thread.owed.get())) {
            pay(&self.mem);
        }
    }

    /// All that is owed is durable: every store in place begins with this, unless a barrier has just been.
    #[inline]
    #[cfg_attr(feature = "record", track_caller)]
    pub(super) fn settle(&self) {
        if with(|thread| thread.owed.get()) != 0 {
            pay(&self.mem);
        }
    }
}
