//! A thread's pending commits, which it completes before it stores in place.
//!
//! The locks that the thread took name the closing entries of these commits
//! (`pm_journal::pending`), which must become durable first. The thread flushes them for its next
//! barrier, which usually precedes such a store anyway.
//!
//! One word of the thread has the state: nothing, a line to be flushed, a flushed line that still
//! needs a fence, or a committed redo record that is not closed
//! (`pm_journal::committed_redo`). The words of such a record are flushed already. After the
//! next fence its last entry becomes the closing one, which a second fence makes durable. Only the
//! holder of its lane may do that.

use crate::pm::Pm;
use pmem::Pmem;
use pmem::thread::{PENDING_CLOSED, PENDING_FLUSHED, with};
use pmfs_format::journal::{KIND_COMMIT, KIND_SHIFT};

/// Bit of a line's offset: a lock named the line. Without this bit the line is this call's own.
const FROM_LOCK: u64 = 2;
/// Bit of a line's offset: the line is the last entry of a committed redo record that is not
/// closed.
const OPEN: u64 = 4;
/// Bit of such a line's offset: this thread has its lane.
const HELD: u64 = 8;
/// All bits that are no part of a line's offset.
const BITS: u64 = FROM_LOCK | OPEN | HELD;

/// Returns whether a lock named the pending commit, which is not durable for certain.
#[inline]
fn is_from_lock(pending: u64) -> bool {
    pending == PENDING_FLUSHED || pending & FROM_LOCK != 0
}

/// Returns whether the pending commit is a line that is still to be flushed.
#[inline]
fn is_unflushed(pending: u64) -> bool {
    pending > BITS && pending & OPEN == 0
}

/// Returns whether the pending commit is a committed redo record that is not closed.
#[inline]
fn is_open(pending: u64) -> bool {
    pending > BITS && pending & OPEN != 0
}

/// Flushes the pending commit, for the fence that follows.
#[inline]
#[cfg_attr(all(feature = "record", not(feature = "planted-bugs")), track_caller)]
pub(crate) fn flush(mem: &Pmem) {
    let pending = with(|thread| thread.pending.get());
    if is_unflushed(pending) {
        mem.flush(pending & !BITS, 64);
        with(|thread| thread.pending.set(PENDING_FLUSHED));
    } else if is_open(pending) && pending & FROM_LOCK == 0 {
        flush_own(mem);
    }
}

/// Flushes the words of a committed redo record of this call. None of them is flushed yet.
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

/// The ranges that this thread's last committed redo record stored, each as offset and bytes.
#[inline]
pub fn committed_redo_ranges() -> [(u64, u64); 2] {
    with(|thread| {
        let [first, first_bytes, second, second_bytes] =
            std::array::from_fn(|at| thread.redo_ranges[2 + at].get());
        [(first, first_bytes), (second, second_bytes)]
    })
}

/// Closes a committed redo record after the fence that made its words durable in place. The closing
/// entry becomes durable with the next fence.
#[inline]
#[cfg_attr(feature = "record", track_caller)]
pub(crate) fn close(mem: &Pmem) {
    let pending = with(|thread| thread.pending.get());
    if is_open(pending) {
        close_open(mem, pending);
    }
}

#[cold]
#[cfg_attr(all(feature = "record", not(feature = "planted-bugs")), track_caller)]
fn close_open(mem: &Pmem, pending: u64) {
    assert!(
        pending & HELD != 0,
        "a committed redo record is closed by the holder of its lane"
    );
    let entry = pending & !BITS;
    let window = mem.window();
    mem.store(entry, KIND_COMMIT << KIND_SHIFT);
    drop(window);
    mem.flush(entry, 64);
    with(|thread| thread.pending.set(PENDING_CLOSED));
}

/// Makes the pending commit durable: a flush and a fence.
#[cold]
#[cfg_attr(all(feature = "record", not(feature = "planted-bugs")), track_caller)]
fn complete(mem: &Pmem) {
    flush(mem);
    if is_open(with(|thread| thread.pending.get())) {
        mem.fence();
        close(mem);
    }
    mem.fence();
}

impl Pm {
    /// Notes that this thread must make the line at `off`, which a lock named, durable before it
    /// stores in place.
    #[inline]
    #[cfg_attr(feature = "record", track_caller)]
    pub fn defer(&self, off: u64) {
        let pending = with(|thread| thread.pending.get());
        if is_open(pending) {
            // The word has room for one commit, and no flush completes a committed redo record.
            self.mem.flush(off, 64);
            return self.mem.fence();
        }
        with(|thread| thread.pending.set(off | FROM_LOCK));
        if pending != 0 && pending != off | FROM_LOCK {
            // Two locks named two different lines.
            flush(&self.mem);
            if is_unflushed(pending) {
                self.mem.flush(pending & !BITS, 64);
            }
        }
    }

    /// Defers as [`Pm::defer`] does, for the transaction that this call has just closed. A call
    /// usually stores nothing after it, and the locks name the commit when they are released.
    #[inline]
    pub fn defer_own(&self, off: u64) {
        with(|thread| thread.pending.set(off));
    }

    /// Defers as [`Pm::defer`] does, for a committed redo record that is not closed and whose last
    /// entry is at `off`. Returns `false` if another commit is pending.
    #[inline]
    pub fn defer_redo(&self, off: u64) -> bool {
        with(|thread| {
            let free = thread.pending.get() == 0;
            if free {
                thread.pending.set(off | FROM_LOCK | OPEN);
            }
            free
        })
    }

    /// Defers as [`Pm::defer_own`] does, for the committed redo record that this call has just
    /// written and applied.
    #[inline]
    pub fn defer_own_redo(&self, off: u64) {
        with(|thread| thread.pending.set(off | OPEN | HELD));
    }

    /// The offset of the last entry of the pending committed redo record, if one is pending.
    #[inline]
    pub fn pending_redo(&self) -> Option<u64> {
        let pending = with(|thread| thread.pending.get());
        is_open(pending).then_some(pending & !BITS)
    }

    /// Notes that this thread holds the lane of the pending committed redo record, and that the
    /// words of the record are flushed.
    #[inline]
    pub fn hold_redo_lane(&self) {
        with(|thread| thread.pending.set(thread.pending.get() | HELD));
    }

    /// Replaces the pending commit and returns the previous one.
    #[inline]
    pub fn set_pending(&self, pending: u64) -> u64 {
        with(|thread| thread.pending.replace(pending))
    }

    /// Drops the pending commit if `is_complete` returns true for the offset of its line.
    #[inline]
    pub fn drop_if_complete(&self, is_complete: impl FnOnce(u64) -> bool) {
        let pending = with(|thread| thread.pending.get());
        if pending > BITS && is_complete(pending & !BITS) {
            with(|thread| thread.pending.set(0));
        }
    }

    /// Forgets the pending commit when the locks are released, after which nothing is stored in
    /// place. Returns whether the commit came from a lock and is not durable.
    #[inline]
    pub fn leave_pending(&self) -> bool {
        is_from_lock(with(|thread| thread.pending.replace(0)))
    }

    /// Makes a pending commit that came from a lock durable before other owners get its words.
    #[inline]
    #[cfg_attr(feature = "record", track_caller)]
    pub fn drain_from_locks(&self) {
        if is_from_lock(with(|thread| thread.pending.get())) {
            complete(&self.mem);
        }
    }

    /// Makes every pending commit durable. Each store in place begins with this, unless a barrier
    /// has just passed.
    #[inline]
    #[cfg_attr(feature = "record", track_caller)]
    pub(crate) fn drain(&self) {
        if with(|thread| thread.pending.get()) != 0 {
            complete(&self.mem);
        }
    }

    /// Drains as [`Pm::drain`] does, before a store to a pointer or a size. No redo record covers
    /// such words. A record whose closing entry becomes durable with the fence of this store is
    /// therefore closed in time.
    #[inline]
    #[cfg_attr(feature = "record", track_caller)]
    pub(crate) fn drain_for_pointer(&self) {
        if !matches!(with(|thread| thread.pending.get()), 0 | PENDING_CLOSED) {
            complete(&self.mem);
        }
    }
}
