//! The shared tables that a process may have used. They are large, and most programs use few: a
//! leaving process searches those alone. Cleaning up after the dead searches all.

use std::sync::atomic::{AtomicBool, Ordering};

/// The tables that this attachment may have used since it began; a mark is never removed.
#[derive(Debug, Default)]
pub struct Traces {
    /// References to open inodes and files.
    pub opens: Trace,
    /// File locks and waits for them.
    pub locks: Trace,
    /// Pages of kernels and pins.
    pub copies: Trace,
}

impl Traces {
    /// Marks all tables, because another process prepared this slot.
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
    /// Marks the table before an entry is made there.
    #[inline]
    pub fn leave(&self) {
        if !self.0.load(Ordering::Relaxed) {
            self.0.store(true, Ordering::Relaxed);
        }
    }

    /// Returns whether the table may have been used.
    pub fn is_left(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}
