//! The shared tables that a process may have put something into. They are large, and most programs
//! use few: a process that leaves searches those alone. Cleaning up after the dead searches all.

use std::sync::atomic::{AtomicBool, Ordering};

/// The tables that this attachment may have used since it began; no mark is ever taken back.
#[derive(Debug, Default)]
pub struct Traces {
    /// References to open inodes and files.
    pub opens: Trace,
    /// File locks, and waits for them.
    pub locks: Trace,
    /// Pages of kernels, and pins.
    pub copies: Trace,
}

impl Traces {
    /// Somebody else made this slot ready.
    pub fn all(&self) {
        self.opens.leave();
        self.locks.leave();
        self.copies.leave();
    }
}

/// The mark of one table.
#[derive(Debug, Default)]
pub struct Trace(AtomicBool);

impl Trace {
    /// Leaves the trace, before something is put there.
    #[inline]
    pub fn leave(&self) {
        if !self.0.load(Ordering::Relaxed) {
            self.0.store(true, Ordering::Relaxed);
        }
    }

    /// Returns whether something may be there.
    pub fn is_left(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}
