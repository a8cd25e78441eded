//! The runtime area and its annexes. They are volatile in meaning, so they are never flushed or
//! logged.

use crate::annexes::Annexes;
use pmem::Pmem;
use pmfs_format::{BLOCK_BYTES, LINE_BYTES};
use std::ops::Range;
use std::time::Duration;

/// Access to the runtime area and the annexes alone.
#[derive(Clone, Copy)]
pub struct Runtime<'a> {
    mem: &'a Pmem,
    area: &'a Range<u64>,
    annexes: &'a Annexes,
}

impl<'a> Runtime<'a> {
    /// Creates access to `area` and the annexes, and to no other part of the mapping.
    #[inline]
    pub fn new(mem: &'a Pmem, area: &'a Range<u64>, annexes: &'a Annexes) -> Runtime<'a> {
        Runtime { mem, area, annexes }
    }

    #[inline(always)]
    fn check(&self, off: u64, len: u64) {
        if off < self.area.start || off + len > self.area.end {
            check_annex(self.mem, self.annexes, off, len);
        }
    }

    /// Makes a block an annex, or a node of annexes: its name in the first line, zeros in the
    /// others.
    #[cfg_attr(feature = "record", track_caller)]
    pub fn begin_annex(&self, off: u64, name: u64) {
        if !self.annexes.data.contains(&off) || !off.is_multiple_of(BLOCK_BYTES) {
            refuse(off);
        }
        let _window = self.mem.window();
        for line in (0..BLOCK_BYTES).step_by(LINE_BYTES as usize) {
            let first = if line == 0 { name } else { 0 };
            self.mem.write(off + line, &[first, 0, 0, 0, 0, 0, 0, 0]);
        }
    }

    /// The word at `off`.
    #[inline]
    #[must_use]
    pub fn load(&self, off: u64) -> u64 {
        self.mem.load_cached(off)
    }

    /// Stores a word, with release order.
    #[inline(always)]
    #[cfg_attr(feature = "record", track_caller)]
    pub fn store(&self, off: u64, value: u64) {
        self.check(off, 8);
        let _window = self.mem.window();
        self.mem.store(off, value);
    }

    /// Stores words in address order.
    #[inline]
    #[cfg_attr(feature = "record", track_caller)]
    pub fn write(&self, off: u64, words: &[u64]) {
        self.check(off, words.len() as u64 * 8);
        let _window = self.mem.window();
        self.mem.write(off, words);
    }

    /// Compares and swaps the word at `off`. This is a full barrier for memory order.
    ///
    /// # Errors
    /// The word found, if it was not `old`.
    #[inline(always)]
    #[cfg_attr(feature = "record", track_caller)]
    pub fn cas(&self, off: u64, old: u64, new: u64) -> Result<u64, u64> {
        self.check(off, 8);
        let _window = self.mem.window();
        self.mem.cas(off, old, new)
    }

    /// Swaps the word at `off` and returns the old one. This is a full barrier for memory order.
    #[inline(always)]
    #[cfg_attr(feature = "record", track_caller)]
    pub fn swap(&self, off: u64, value: u64) -> u64 {
        self.check(off, 8);
        let _window = self.mem.window();
        self.mem.swap(off, value)
    }

    /// Sleeps for at most `timeout` while the low half of the word is `expect`. Returns whether a
    /// signal ended the sleep.
    pub fn wait(&self, off: u64, expect: u32, timeout: Duration) -> bool {
        self.check(off, 8);
        self.mem.futex_wait(off, expect, timeout)
    }

    /// Wakes one sleeper on the word at `off`.
    pub fn wake(&self, off: u64) {
        self.mem.futex_wake(off, 1);
    }

    /// Wakes all sleepers on the word at `off`.
    pub fn wake_all(&self, off: u64) {
        self.mem.futex_wake(off, u32::MAX);
    }

    /// Adds to some of the `WORDS` totals that begin at `off`. `counts` gives the index and the
    /// amount of each; `alone` says that no other thread adds to them. The recorder does not see
    /// totals, so no decision may depend on one. Returns the last of the words if `LOOKS`, else 0.
    #[inline(always)]
    pub fn count<const WORDS: usize, const LOOKS: bool, const N: usize>(
        &self,
        off: u64,
        counts: [(usize, u64); N],
        alone: bool,
    ) -> u64 {
        self.check(off, 8 * WORDS as u64);
        let _window = self.mem.window();
        self.mem.count::<WORDS, LOOKS, N>(off, counts, alone)
    }

    /// Zeros `len` bytes, for the first opener, which has the pool to itself.
    pub fn reset(&self, off: u64, len: u64) {
        self.check(off, len);
        let _window = self.mem.window();
        self.mem.zero_nt(off, len);
        self.mem.fence();
    }

    /// Flushes the whole area and the counts of shares, for a clean close.
    pub fn save(&self) {
        self.mem
            .flush(self.area.start, self.area.end - self.area.start);
        let counters = self.annexes.counters(self.mem).into_iter();
        for off in counters.filter_map(|counter| counter.off) {
            self.mem.flush(off, BLOCK_BYTES);
        }
        self.mem.fence();
    }
}

/// Its arguments are values, so that no caller has to keep them in memory.
#[cold]
#[inline(never)]
fn check_annex(mem: &Pmem, annexes: &Annexes, off: u64, len: u64) {
    if !annexes.contain(mem, off, len) {
        refuse(off);
    }
}

/// Panics because of an offset that only a fault of the program can produce.
#[cold]
#[inline(never)]
fn refuse(off: u64) -> ! {
    panic!("offset {off:#x} outside the runtime area");
}
