//! Counts of a process that it has not added to the pool's yet.

use crate::holder::thread_tag;
use std::sync::atomic::{AtomicU64, Ordering};

/// The counts of this process.
#[derive(Debug, Default)]
pub struct Counting {
    /// The tag of the thread that may count by plain stores, or 0.
    alone: AtomicU64,
    /// Calls that read, not told of yet, and what they read, bytes.
    pub(crate) reads: AtomicU64,
    pub(crate) read_bytes: AtomicU64,
}

impl Counting {
    /// Takes the reads that the pool's counters lack; from now on they count as added.
    pub fn take_reads(&self) -> (u64, u64) {
        let take = |kept: &AtomicU64| kept.swap(0, Ordering::Relaxed);
        (take(&self.reads), take(&self.read_bytes))
    }

    /// In a child: the thread that counts there has another tag than the parent's.
    pub fn begin_anew(&self) {
        self.alone.store(0, Ordering::Relaxed);
    }

    /// Returns whether this thread counts by plain stores.
    #[inline]
    pub(crate) fn is_mine(&self) -> bool {
        let me = thread_tag();
        match self.alone.load(Ordering::Relaxed) {
            0 => self
                .alone
                .compare_exchange(0, me, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok(),
            tag => tag == me,
        }
    }
}
