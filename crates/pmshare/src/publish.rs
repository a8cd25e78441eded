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
use std::time::{Duration, Instant};

/// Has a process publish from its start on: "1"; "wait": for a monitor that is there.
const VARIABLE: &str = "PMFS_MONITOR";
/// Until the process ends.
const FOREVER: u64 = u64::MAX;
/// Until the process ends, by a monitor that has started it.
const BY_STARTER: u64 = u64::MAX - 1;

/// The slot's second word: a file is published that no monitor has opened yet.
const UNSEEN: u64 = 2;
/// For so long a process waits at its first call that a monitor opens the file: otherwise nothing
/// would be known of one that ends at once. The monitor looks every two milliseconds.
const SEEN_WITHIN: Duration = Duration::from_millis(100);
const LOOK_EVERY: Duration = Duration::from_micros(200);
/// Nobody asks for longer in advance: a time behind this is none that a monitor has stored.
const MOST_NS: u64 = 60_000_000_000;

impl<S: Shared> Share<S> {
    /// The word by which this process is asked at its start.
    pub(crate) fn asked_at_start() -> u64 {
        let wanted = S::PUBLISHES.then(|| std::env::var_os(VARIABLE)).flatten();
        match wanted {
            Some(value) if value == "1" => FOREVER,
            Some(value) if value == "wait" => BY_STARTER,
            _ => 0,
        }
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
        self.publish(until, [(Counts::READS, 1), (Counts::READ_BYTES, bytes)]);
    }

    #[cold]
    #[inline(never)]
    pub(crate) fn publish_change(&self, until: u64, spent: &Counters, written: u64) {
        self.publish(
            until,
            [
                (Counts::CHANGES, 1),
                (Counts::WRITTEN_BYTES, written),
                (Counts::FLUSHED_LINES, spent.lines_flushed),
                (Counts::BARRIERS, spent.fences),
            ],
        );
    }

    /// Adds what a read has read more than was counted ahead; less wraps around.
    pub(crate) fn publish_correction(&self, more: u64) {
        if let Some(Some(page)) = self.counting.page.get()
            && self.alive().is_ok()
        {
            page.publish_counts(thread_tag(), [(Counts::READ_BYTES, more)]);
        }
    }

    /// Publishes counts, the first of which is that of calls.
    #[inline(always)]
    fn publish<const N: usize>(&self, until: u64, counts: [(usize, u64); N]) {
        if let Some(Some(page)) = self.counting.page.get()
            && page.is_publishing()
        {
            if page.publish_counts(thread_tag(), counts) && !is_asked(until) {
                page.end_publishing();
                self.forget_ask(until);
            }
            return;
        }
        self.begin_publishing(until, &counts);
    }

    #[cold]
    #[inline(never)]
    fn begin_publishing(&self, until: u64, counts: &[(usize, u64)]) {
        let page = self.counting.page.get_or_init(|| Page::new().ok());
        let Some(page) = page else { return };
        if !is_asked(until) || page.begin_publishing(self.pool_file()).is_err() {
            // Each call would try again: a monitor that goes on asks again soon.
            return self.forget_ask(until);
        }
        for count in counts {
            page.publish_counts(thread_tag(), [*count]);
        }
        self.wait_for_monitor(until);
    }

    #[cold]
    fn wait_for_monitor(&self, until: u64) {
        let word = self.asked_word() + 8;
        {
            let _writable = self.mem().writable();
            self.runtime().store(word, UNSEEN);
        }
        let begin = Instant::now();
        while until != FOREVER
            && self.mem().load_cached(word) == UNSEEN
            && begin.elapsed() < SEEN_WITHIN
        {
            std::thread::sleep(LOOK_EVERY);
        }
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
    until >= BY_STARTER || (now..=now + MOST_NS).contains(&until)
}
