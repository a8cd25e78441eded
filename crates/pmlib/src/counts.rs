//! Counts of a process's calls on engines, where other processes can read them
//! ([`crate::Users`]).
//!
//! Each thread adds to a line of its own by plain stores: an atomic addition to a line that threads
//! share takes as long as a get. The lines are the heap's, so that the counts of a process that is
//! killed are there to its last call. Nothing is decided by them, and they are not recorded.
//!
//! - A line is a process's as long as it lives. The process alone knows which thread has it; when
//!   that thread is gone, another one goes on with its counts.
//! - A line whose owner's slot is free, or has another incarnation, is nobody's: whoever takes it
//!   clears it first.
//! - Where stores need a window, what a call that only looks has to count is kept in the process,
//!   and told with the thread's next change or when it is much.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use pmem::Protection;
use pmlib_format::shared::{
    COUNTS, COUNTS_BYTES, COUNTS_OWNER_OFFSET, SLOT_BYTES, SLOT_COUNTS_OFFSET,
};
use pmshare::holder::{Holder, thread_is_gone, thread_tag};

use crate::engine::Core;

/// Threads of a process that have lines of their own at most.
const THREADS: usize = 64;
/// No thread's tag.
const NOBODY: u64 = u64::MAX;
/// A thread that has found no line looks again after so many counts of all such threads.
const LOOK_AGAIN: u64 = 256;
/// So many calls that only look are kept in the process.
const KEPT: u64 = 64;
/// Words of a line, its owner first.
const WORDS: usize = COUNTS + 1;
/// Where an owner's incarnation begins.
const INCARNATION_SHIFT: u32 = 12;
/// The slot's bits, plus one.
const SLOT_MASK: u64 = (1 << INCARNATION_SHIFT) - 1;
/// The line is being cleared.
const TAKING: u64 = 1 << 63;

/// A count, as its word of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Count {
    /// Keys that were looked for.
    Gets = 1,
    /// Values that were put, in batches too.
    Puts = 2,
    /// Bytes of values that were found, by walks too.
    GotBytes = 3,
    /// Bytes of values that were put.
    PutBytes = 4,
    /// Keys that were to be taken away, in batches too.
    Deletes = 5,
    /// Walks that were begun.
    Walks = 6,
    /// Batches.
    Batches = 7,
}

/// A line, as the process knows it.
#[repr(align(128))]
struct Line {
    /// The tag of its thread.
    tag: AtomicU64,
    /// Where it is; 0: none was taken yet.
    at: AtomicU64,
    /// Calls of which the heap has not been told, and their counts.
    calls: AtomicU64,
    kept: [AtomicU64; WORDS],
}

impl Line {
    const fn new() -> Line {
        Line {
            tag: AtomicU64::new(NOBODY),
            at: AtomicU64::new(0),
            calls: AtomicU64::new(0),
            kept: [const { AtomicU64::new(0) }; WORDS],
        }
    }

    /// Keeps counts of a call; answers of how many calls it has some. By its thread alone.
    fn keep(&self, counts: &[(usize, u64)]) -> u64 {
        let add = |word: &AtomicU64, more| {
            let sum = word.load(Ordering::Relaxed).wrapping_add(more);
            word.store(sum, Ordering::Relaxed);
            sum
        };
        for &(count, more) in counts {
            add(&self.kept[count], more);
        }
        add(&self.calls, 1)
    }
}

/// The lines of this process.
pub(crate) struct Counts {
    lines: Box<[Line; THREADS]>,
    /// One thread at a time takes one.
    taking: Mutex<()>,
    /// All lines of the heap were somebody's.
    are_out: AtomicBool,
    /// Counts of threads without a line.
    apart: AtomicU64,
}

impl Default for Counts {
    fn default() -> Counts {
        Counts {
            lines: Box::new([const { Line::new() }; THREADS]),
            taking: Mutex::new(()),
            are_out: AtomicBool::new(false),
            apart: AtomicU64::new(0),
        }
    }
}

/// The word of a line's owner.
pub(crate) fn owner_word(holder: Holder) -> u64 {
    let incarnation = holder.incarnation << INCARNATION_SHIFT;
    (incarnation | (holder.slot + 1)) & !TAKING
}

impl Core {
    /// Counts, in a write window.
    #[inline(always)]
    pub fn count<const N: usize>(&self, counts: impl Fn() -> [(Count, u64); N]) {
        // Each way makes the counts anew: otherwise the short one stores them for the long one.
        let words = || counts().map(|(count, more)| (count as usize, more));
        if !pmem::RECORDING && !self.mem.tally(words()) {
            self.count_apart(&words());
        }
    }

    /// Counts a call that only looks, without a window.
    #[inline(always)]
    pub fn count_look<const N: usize>(&self, counts: impl Fn() -> [(Count, u64); N]) {
        let words = || counts().map(|(count, more)| (count as usize, more));
        if !pmem::RECORDING && !self.mem.tally(words()) {
            self.keep(&words());
        }
    }

    /// This thread's line.
    fn own_line(&self) -> Option<&Line> {
        let tag = thread_tag();
        let line = &self.counts.lines[tag as usize % THREADS];
        match line.tag.load(Ordering::Relaxed) == tag {
            true => Some(line),
            false => self.take_line(tag, line),
        }
    }

    /// Counts where the thread's last tally was another heap's, or stores need a window.
    #[cold]
    #[inline(never)]
    fn count_apart(&self, counts: &[(usize, u64)]) {
        match self.own_line() {
            Some(line) => self.count_in(line, counts),
            None => self.count_shared(counts),
        }
    }

    fn count_in(&self, line: &Line, counts: &[(usize, u64)]) {
        let at = line.at.load(Ordering::Relaxed);
        for &count in counts {
            self.mem.count::<WORDS, false, 1>(at, [count], true);
        }
        if line.calls.load(Ordering::Relaxed) != 0 {
            self.tell(line);
        }
        if self.mem.protection() == Protection::None {
            self.mem.tally_in(at);
        }
    }

    #[cold]
    #[inline(never)]
    fn keep(&self, counts: &[(usize, u64)]) {
        match self.own_line() {
            Some(line) if self.mem.protection() != Protection::None => {
                if line.keep(counts) >= KEPT {
                    let _writable = self.mem.writable();
                    self.tell(line);
                }
            }
            Some(line) => self.count_in(line, counts),
            None => {
                let _writable = self.mem.writable();
                self.count_shared(counts);
            }
        }
    }

    /// Tells the heap what was kept, in a write window. By the line's thread.
    #[cold]
    #[inline(never)]
    fn tell(&self, line: &Line) {
        let at = line.at.load(Ordering::Relaxed);
        line.calls.store(0, Ordering::Relaxed);
        for (word, kept) in line.kept.iter().enumerate() {
            let more = kept.load(Ordering::Relaxed);
            kept.store(0, Ordering::Relaxed);
            if more > 0 {
                let counts = [(word, more)];
                self.mem.count::<WORDS, false, 1>(at, counts, true);
            }
        }
    }

    /// Counts in the process's slot, in a write window.
    fn count_shared(&self, counts: &[(usize, u64)]) {
        let slot = self.places.slots + self.holder().slot * SLOT_BYTES;
        // The first count is a line's second word.
        let at = slot + SLOT_COUNTS_OFFSET - 8;
        for &count in counts {
            self.mem.count::<WORDS, false, 1>(at, [count], false);
        }
    }

    /// Has this thread have a line, if there is one for it.
    #[cold]
    fn take_line<'a>(&'a self, tag: u64, line: &'a Line) -> Option<&'a Line> {
        let known = &self.counts;
        let before = line.tag.load(Ordering::Relaxed);
        let was_refused = before != NOBODY || known.are_out.load(Ordering::Relaxed);
        if was_refused
            && !known
                .apart
                .fetch_add(1, Ordering::Relaxed)
                .is_multiple_of(LOOK_AGAIN)
        {
            return None;
        }
        if before != NOBODY && !thread_is_gone(before) {
            return None;
        }
        let _taking = known.taking.lock().unwrap_or_else(PoisonError::into_inner);
        if line.tag.load(Ordering::Relaxed) != before {
            return None;
        }
        if line.at.load(Ordering::Relaxed) == 0 {
            let found = self.take_from_heap();
            known.are_out.store(found.is_none(), Ordering::Relaxed);
            line.at.store(found?, Ordering::Relaxed);
        }
        line.tag.store(tag, Ordering::Relaxed);
        Some(line)
    }

    /// Takes a line of the heap.
    fn take_from_heap(&self) -> Option<u64> {
        let holder = self.holder();
        let (me, count) = (owner_word(holder), u64::from(self.header.slots));
        let _writable = self.mem.writable();
        // Those of a process begin at its slot's, so that few are looked at.
        let at = |nth| self.places.counts + (holder.slot + nth) % count * COUNTS_BYTES;
        (0..count).map(at).find(|&at| self.take_at(at, me))
    }

    fn take_at(&self, at: u64, me: u64) -> bool {
        let at_owner = at + COUNTS_OWNER_OFFSET;
        let owner = self.mem.load(at_owner);
        if self.is_somebodys(owner) || self.mem.cas(at_owner, owner, me | TAKING).is_err() {
            return false;
        }
        self.mem.write(at + 8, &[0; COUNTS]);
        self.mem.store(at_owner, me);
        true
    }

    /// Whether a line's owner has its slot still.
    fn is_somebodys(&self, owner: u64) -> bool {
        let owner = owner & !TAKING;
        let Some(slot) = (owner & SLOT_MASK).checked_sub(1) else {
            return false;
        };
        let incarnation = owner >> INCARNATION_SHIFT;
        slot < u64::from(self.header.slots) && self.is_held_as(Holder { slot, incarnation })
    }

    /// The lines that are somebody's: the owner, and the counts.
    pub fn counted(&self) -> Vec<(u64, [u64; COUNTS])> {
        let lines = (0..u64::from(self.header.slots)).map(|nth| {
            let line = self.places.counts + nth * COUNTS_BYTES;
            let [owner, counts @ ..] = self.mem.read::<WORDS>(line);
            (owner, counts)
        });
        lines
            .filter(|&(owner, _)| owner != 0 && owner & TAKING == 0)
            .collect()
    }
}

impl crate::ground::Ground<'_> {
    /// Counts calls of an engine, in a write window.
    #[inline(always)]
    pub fn count<const N: usize>(self, counts: impl Fn() -> [(Count, u64); N]) {
        self.core.count(counts);
    }

    /// Counts a look for a key, and the bytes of its value.
    #[inline(always)]
    pub fn count_get(self, bytes: u64) {
        self.core
            .count_look(|| [(Count::Gets, 1), (Count::GotBytes, bytes)]);
    }

    /// Counts a walk that begins. No call of it has entered the heap yet: a child of fork, or a
    /// reader of a heap that is lost, counts nothing.
    #[inline]
    pub fn count_walk(self) {
        if self.enter().is_ok() {
            self.core.count_look(|| [(Count::Walks, 1)]);
        }
    }

    /// Counts the bytes of a value that a walk shows.
    #[inline(always)]
    pub fn count_shown(self, bytes: u64) {
        self.core.count_look(|| [(Count::GotBytes, bytes)]);
    }
}
