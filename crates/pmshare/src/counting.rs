//! Counts that a process has not added to the pool's counters yet.

use crate::holder::thread_tag;
use pmem::published::Page;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// The counts of this process.
#[derive(Debug, Default)]
pub struct Counting {
    /// The tag of the thread that may count by plain stores, or 0.
    alone: AtomicU64,
    /// Calls that read and are not added yet, and their bytes.
    pub(crate) reads: AtomicU64,
    pub(crate) read_bytes: AtomicU64,
    /// The counts by thread, once a monitor has asked; `None` without memory for them.
    pub(crate) page: OnceLock<Option<Page>>,
}

impl Counting {
    /// Takes the reads that the pool's counters lack; they count as added.
    pub fn take_reads(&self) -> (u64, u64) {
        let take = |kept: &AtomicU64| kept.swap(0, Ordering::Relaxed);
        (take(&self.reads), take(&self.read_bytes))
    }

    /// Resets the counting in a child, whose thread has another tag than the parent's.
    pub fn begin_anew(&self) {
        self.alone.store(0, Ordering::Relaxed);
        if let Some(Some(page)) = self.page.get() {
            page.leave_parents();
        }
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
