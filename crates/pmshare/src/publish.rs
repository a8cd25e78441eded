//! Counts of calls by thread, for a monitor that asks (docs/adr/0086-counts-by-thread.md).
//!
//! A monitor stores until when it asks into the slot, and again while it lives. A call that finds
//! the word finds also that the time is over: nothing is left of a monitor that was killed.

use crate::holder::thread_tag;
use crate::layout::Shared;
use crate::member::Share;
use pmem::counters::Counters;
use pmem::published::{Counts, Page};
use pmfs_format::SlotRaw;
use rustix::time::{ClockId, clock_gettime};

/// Has a process publish from its start on, if it is "1".
const VARIABLE: &str = "PMFS_MONITOR";
/// Until the process ends.
const FOREVER: u64 = u64::MAX;
/// Nobody asks for longer in advance: a time behind this is none that a monitor has stored.
const MOST_NS: u64 = 60_000_000_000;

impl<S: Shared> Share<S> {
    /// The word by which this process is asked at its start.
    pub(crate) fn asked_at_start() -> u64 {
        let wanted = S::PUBLISHES && std::env::var_os(VARIABLE).is_some_and(|it| it == "1");
        if wanted { FOREVER } else { 0 }
    }

    /// Until when a monitor asks, ns of CLOCK_MONOTONIC; 0: none does.
    #[inline(always)]
    pub(crate) fn asked(&self) -> u64 {
        self.mem().load_cached(self.asked_word())
    }

    #[inline(always)]
    fn asked_word(&self) -> u64 {
        SlotRaw::sessions.of(self.layout().slot(self.holder().slot))
    }

    #[cold]
    #[inline(never)]
    pub(crate) fn publish_read(&self, until: u64, bytes: u64) {
        self.publish(
            until,
            Counts {
                read_bytes: bytes,
                reads: 1,
                ..Counts::default()
            },
        );
    }

    #[cold]
    #[inline(never)]
    pub(crate) fn publish_change(&self, until: u64, spent: &Counters, written: u64) {
        self.publish(
            until,
            Counts {
                written_bytes: written,
                changes: 1,
                flushed_lines: spent.lines_flushed,
                barriers: spent.fences,
                ..Counts::default()
            },
        );
    }

    /// Adds what a read has read more than was counted ahead; less wraps around.
    pub(crate) fn publish_correction(&self, more: u64) {
        if let Some(Some(page)) = self.counting.page.get()
            && self.alive().is_ok()
        {
            let read_bytes = more;
            let counts = Counts {
                read_bytes,
                ..Counts::default()
            };
            page.add(thread_tag(), counts);
        }
    }

    fn publish(&self, until: u64, counts: Counts) {
        let page = self.counting.page.get_or_init(|| Page::new().ok());
        let Some(page) = page else { return };
        if !is_asked(until) {
            page.end();
            return self.forget_ask(until);
        }
        if !page.is_on() && page.begin(self.pool_file()).is_err() {
            // Each call would try again: a monitor that goes on asks again soon.
            return self.forget_ask(until);
        }
        page.add(thread_tag(), counts);
    }

    fn forget_ask(&self, until: u64) {
        let _writable = self.mem().writable();
        // A monitor that asks again meanwhile is right.
        let _ = self.runtime().cas(self.asked_word(), until, 0);
    }

    /// Device and inode of the pool's file.
    fn pool_file(&self) -> (u64, u64) {
        let file = self.mem().identity();
        (file.dev, file.ino)
    }
}

fn is_asked(until: u64) -> bool {
    let now = clock_gettime(ClockId::Monotonic);
    let now = now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64;
    until == FOREVER || (now..=now + MOST_NS).contains(&until)
}
