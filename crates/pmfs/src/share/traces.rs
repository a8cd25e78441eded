//! Which of the shared tables a process may have put something into. They are large, and most
//! programs put something into few: when one leaves it looks through those alone. Who cleans up
//! after the dead looks through all.

use std::sync::atomic::{AtomicBool, Ordering};

/// What this attachment may have left, since it began; nothing is ever taken back.
#[derive(Debug, Default)]
pub(crate) struct Traces {
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

/// Of one table.
#[derive(Debug, Default)]
pub(crate) struct Trace(AtomicBool);

impl Trace {
    /// Before something is put there.
    #[inline]
    pub fn leave(&self) {
        if !self.0.load(Ordering::Relaxed) {
            self.0.store(true, Ordering::Relaxed);
        }
    }

    pub fn is_left(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}
