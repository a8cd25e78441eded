//! Counters of a process's work on the pool, in its slot, where other processes can read them
//! ([`crate::Process`]).
//!
//! The first thread that counts adds by plain stores, the others atomically: most programs have one
//! working thread, and an atomic addition costs as much as a small read.

use crate::counting::Counting;
use crate::layout::Shared;
use crate::member::Share;
use pmem::Protection;
use pmem::counters::{self, Counters};
use pmfs_format::SlotRaw;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Totals of a process since it attached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Calls that read.
    pub reads: u64,
    /// Calls that change something, successful or not.
    pub changes: u64,
    /// Bytes of file data read.
    pub read_bytes: u64,
    /// Bytes of file data written.
    pub written_bytes: u64,
    /// Barriers.
    pub barriers: u64,
    /// Lines flushed.
    pub flushed_lines: u64,
    /// Bytes of undo log.
    pub logged_bytes: u64,
    /// Waits for a lock, a lane or a group that another thread had.
    pub waits: u64,
    /// Time of these waits, ns.
    pub waited_ns: u64,
    /// Dead processes that this one cleaned up after.
    pub recoveries: u64,
}

impl Totals {
    /// The count of words in a slot.
    pub const WORDS: usize = 10;

    /// The totals from a slot's words.
    pub fn from_words(words: [u64; Totals::WORDS]) -> Totals {
        let [
            reads,
            changes,
            read_bytes,
            written_bytes,
            barriers,
            flushed_lines,
            logged_bytes,
            waits,
            waited_ns,
            recoveries,
        ] = words;
        Totals {
            reads,
            changes,
            read_bytes,
            written_bytes,
            barriers,
            flushed_lines,
            logged_bytes,
            waits,
            waited_ns,
            recoveries,
        }
    }
}

/// One of the totals, as its place in the slot.
#[derive(Clone, Copy)]
pub enum Total {
    /// [`Totals::reads`].
    Reads = 0,
    /// [`Totals::changes`].
    Changes = 1,
    /// [`Totals::read_bytes`].
    ReadBytes = 2,
    /// [`Totals::written_bytes`].
    WrittenBytes = 3,
    /// [`Totals::barriers`].
    Barriers = 4,
    /// [`Totals::flushed_lines`].
    FlushedLines = 5,
    /// [`Totals::logged_bytes`].
    LoggedBytes = 6,
    /// [`Totals::waits`].
    Waits = 7,
    /// [`Totals::waited_ns`].
    WaitedNs = 8,
    /// [`Totals::recoveries`].
    Recoveries = 9,
}

/// Words from the first total of a slot to that which tells whether a monitor asks.
const TO_ASKED: usize = ((SlotRaw::sessions.offset() - SlotRaw::reads.offset()) / 8 + 1) as usize;

/// Reads that are counted in this process before the pool's counters are updated, where a store to
/// the pool needs a window.
const READS_KEPT: u64 = 64;

/// A counted read. It is counted before its bytes are copied: while the processor waits for them it
/// looks some 300 instructions ahead, and the fewer instructions follow a copy, the more likely it
/// reaches those of the next call.
#[derive(Debug, Default)]
pub struct CountedRead(Option<u64>);

impl CountedRead {
    /// Notes that `bytes` are counted already.
    pub fn of(bytes: u64) -> CountedRead {
        CountedRead(Some(bytes))
    }
}

impl<S: Shared> Share<S> {
    /// Counts a read of as many bytes, once.
    #[inline(always)]
    pub fn count_ahead(&self, counted: &mut CountedRead, bytes: u64) {
        if counted.0.is_none() {
            self.count_read(Some(bytes));
            counted.0 = Some(bytes);
        }
    }

    /// Corrects the count after the read; `None`: the read has failed.
    #[inline(always)]
    pub fn count_done(&self, counted: &CountedRead, bytes: Option<u64>) {
        if bytes.is_none() || bytes != counted.0 {
            self.correct_count(counted, bytes);
        }
    }

    #[cold]
    fn correct_count(&self, counted: &CountedRead, bytes: Option<u64>) {
        let Some(before) = counted.0 else {
            return self.count_read(bytes);
        };
        // A negative difference wraps around. It is added where the first part was, so that no
        // reader sees a negative total.
        let more = bytes.unwrap_or(0).wrapping_sub(before);
        if self.mem().protection() == Protection::None {
            self.count(Total::ReadBytes, more);
        } else {
            self.counting.read_bytes.fetch_add(more, Ordering::Relaxed);
        }
        self.publish_correction(more);
    }

    /// Adds to a total.
    #[inline]
    pub fn count(&self, total: Total, more: u64) {
        self.count_all([(total, more)]);
    }

    #[inline]
    fn count_all<const N: usize>(&self, counts: [(Total, u64); N]) {
        // Otherwise the slot may belong to another process by now.
        if self.alive().is_ok() {
            self.count_alive::<false, N>(counts);
        }
    }

    /// Counts as [`Share::count_all`] does, in a call that has just checked that the process is
    /// attached. Returns until when a monitor asks, if `LOOKS`, else 0.
    #[inline(always)]
    fn count_alive<const LOOKS: bool, const N: usize>(&self, counts: [(Total, u64); N]) -> u64 {
        let counters = SlotRaw::reads.of(self.layout().slot(self.holder().slot));
        let counts = counts.map(|(total, more)| (total as usize, more));
        let alone = self.counting.is_mine();
        let runtime = self.runtime();
        match LOOKS && S::PUBLISHES {
            true => runtime.count::<TO_ASKED, true, N>(counters, counts, alone),
            false => runtime.count::<{ Totals::WORDS }, false, N>(counters, counts, alone),
        }
    }

    /// Counts a call that reads no content.
    #[inline(always)]
    pub fn count_look(&self, worked: bool) {
        match worked && self.mem().protection() == Protection::None {
            true => _ = self.count_alive::<false, 2>([(Total::Reads, 1), (Total::ReadBytes, 0)]),
            false => self.keep_read(worked.then_some(0)),
        }
    }

    /// Counts a call that reads, and the bytes read; `None` if it failed.
    #[inline(always)]
    pub fn count_read(&self, bytes: Option<u64>) {
        if let Some(bytes) = bytes
            && self.mem().protection() == Protection::None
        {
            let counts = [(Total::Reads, 1), (Total::ReadBytes, bytes)];
            let asked = self.count_alive::<true, 2>(counts);
            if asked != 0 {
                self.publish_read(asked, bytes);
            }
            return;
        }
        self.keep_read(bytes);
        if let Some(bytes) = bytes
            && S::PUBLISHES
        {
            let asked = self.asked();
            if asked != 0 {
                self.publish_read(asked, bytes);
            }
        }
    }

    /// Counts a read without a store to the pool.
    #[inline(always)]
    fn keep_read(&self, bytes: Option<u64>) {
        let Some(bytes) = bytes else {
            return self.count_reads(1, 0);
        };
        let Counting {
            reads, read_bytes, ..
        } = &self.counting;
        read_bytes.fetch_add(bytes, Ordering::Relaxed);
        if reads.fetch_add(1, Ordering::Relaxed) >= READS_KEPT - 1 {
            self.tell_reads();
        }
    }

    /// Adds the reads that the pool's counters lack.
    #[cold]
    pub fn tell_reads(&self) {
        let (calls, bytes) = self.counting.take_reads();
        if calls > 0 {
            let _writable = self.mem().writable();
            self.count_reads(calls, bytes);
        }
    }

    #[inline]
    fn count_reads(&self, calls: u64, bytes: u64) {
        self.count_all([(Total::Reads, calls), (Total::ReadBytes, bytes)]);
    }

    /// Counts a call that changes something, with the requests to the medium since `before`.
    #[inline]
    pub fn count_change(&self, before: &Counters, written: u64) {
        // Otherwise the slot may belong to another process by now.
        if self.alive().is_err() {
            return;
        }
        let spent = counters::snapshot() - *before;
        let asked = self.count_alive::<true, 5>([
            (Total::Changes, 1),
            (Total::Barriers, spent.fences),
            (Total::FlushedLines, spent.lines_flushed),
            (Total::LoggedBytes, spent.logged_bytes),
            (Total::WrittenBytes, written),
        ]);
        if asked != 0 {
            self.publish_change(asked, &spent, written);
        }
    }

    /// Counts a wait.
    #[cold]
    pub fn count_wait(&self, time: Duration) {
        self.count(Total::Waits, 1);
        self.count(Total::WaitedNs, time.as_nanos() as u64);
    }

    /// The totals of a slot's holder.
    pub fn totals_of(&self, slot: u64) -> Totals {
        let off = SlotRaw::reads.of(self.layout().slot(slot));
        Totals::from_words(self.mem().read(off))
    }
}
