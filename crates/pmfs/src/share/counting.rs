//! How a process counts, before it tells the pool.

use crate::share::holder::thread_tag;
use std::sync::atomic::{AtomicU64, Ordering};

/// How this process counts.
#[derive(Debug, Default)]
pub(crate) struct Counting {
    /// Who may count by plain stores: a thread's tag, or 0.
    alone: AtomicU64,
    /// Calls that read, not told of yet, and what they read, bytes.
    pub(super) reads: AtomicU64,
    pub(super) read_bytes: AtomicU64,
}

impl Counting {
    /// What is not told of yet; it counts as told.
    pub(crate) fn take_reads(&self) -> (u64, u64) {
        let take = |kept: &AtomicU64| kept.swap(0, Ordering::Relaxed);
        (take(&self.reads), take(&self.read_bytes))
    }

    /// In a child: the thread that counts there has another tag than the parent's.
    pub(crate) fn begin_anew(&self) {
        self.alone.store(0, Ordering::Relaxed);
    }

    /// Whether this thread counts by plain stores.
    #[inline]
    pub(super) fn is_mine(&self) -> bool {
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
