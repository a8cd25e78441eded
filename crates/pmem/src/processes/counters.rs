//! Counts of this thread's requests to the medium, for use where time is noisy.
//!
//! Lines and fences are counted when they are requested, even where the medium needs none
//! (`FlushInstr::None`), so that a table of barriers per call is the same on every medium.

use crate::processes::thread;
use std::cell::Cell;
use std::ops::Sub;

/// The running totals of one thread.
#[derive(Clone, Copy, Default, Debug, PartialEq)]
pub struct Counters {
    /// Bytes stored non-temporally.
    pub nt_bytes: u64,
    /// Lines written back.
    pub lines_flushed: u64,
    /// Barriers.
    pub fences: u64,
    /// Bytes of undo log ([`add_logged`]).
    pub logged_bytes: u64,
    /// Times that a closed pool was opened for stores and closed again: two WRPKRU, or two
    /// mprotect(2), each.
    pub windows: u64,
}

impl Sub for Counters {
    type Output = Counters;

    fn sub(self, earlier: Counters) -> Counters {
        Counters {
            nt_bytes: self.nt_bytes - earlier.nt_bytes,
            lines_flushed: self.lines_flushed - earlier.lines_flushed,
            fences: self.fences - earlier.fences,
            logged_bytes: self.logged_bytes - earlier.logged_bytes,
            windows: self.windows - earlier.windows,
        }
    }
}

#[inline(always)]
fn add(cell: &Cell<u64>, n: u64) {
    cell.set(cell.get().wrapping_add(n));
}

#[inline(always)]
pub(crate) fn streamed(bytes: u64) {
    thread::with(|c| {
        add(&c.nt_bytes, bytes);
        c.nt_pending.set(1);
    });
}

#[inline(always)]
pub(crate) fn flushed(lines: u64) {
    thread::with(|c| add(&c.lines_flushed, lines));
}

/// Counts a fence. Returns whether non-temporal stores were waiting for it.
#[inline(always)]
pub(crate) fn fenced() -> bool {
    thread::with(|c| {
        add(&c.fences, 1);
        if matches!(
            c.pending.get(),
            thread::PENDING_FLUSHED | thread::PENDING_CLOSED
        ) {
            c.pending.set(0);
        }
        c.nt_pending.replace(0) != 0
    })
}

/// Whether non-temporal stores wait for a fence.
#[inline(always)]
pub(crate) fn is_streaming() -> bool {
    thread::with(|c| c.nt_pending.get() != 0)
}

#[inline(always)]
pub(crate) fn opened() {
    thread::with(|c| add(&c.windows, 1));
}

/// Counts bytes that the caller wrote to an undo log.
#[inline]
pub fn add_logged(n: u64) {
    thread::with(|c| add(&c.logged_bytes, n));
}

/// This thread's totals since its start.
#[inline]
pub fn snapshot() -> Counters {
    thread::with(|c| Counters {
        nt_bytes: c.nt_bytes.get(),
        lines_flushed: c.lines_flushed.get(),
        fences: c.fences.get(),
        logged_bytes: c.logged_bytes.get(),
        windows: c.windows.get(),
    })
}

#[cfg(test)]
mod tests {
    use super::is_streaming;
    use crate::Pmem;

    /// Goal: a lock's release by a store sees stores past the caches that no fence has followed.
    #[test]
    fn streamed_stores_wait_for_a_fence() {
        let mem = Pmem::private(4096);
        assert!(!is_streaming());
        mem.write_nt(0, &[1; 64]).unwrap();
        mem.order_streamed();
        assert!(is_streaming());
        mem.fence();
        assert!(!is_streaming());
    }
}
