//! Way 2, forwards: bytes in place whose new content is logged first.
//!
//! [`Redo::seal`] writes the new words to the lane. Once they are durable the change is promised: whatever happens, recovery makes
//! it. So what stood there need not be read first, and comes from memory while the log is on its way there.
//! [`Promised::apply`] stores the bytes, waits until they are durable, and closes; the closing entry is a [`Debt`].
//!
//! A log of new words may be applied to none but the words that it was made for. So other lanes' debts are paid before it is written,
//! not with it: else a crash might leave two logs of the same words and nothing to say which is the later.

use super::Pm;
use crate::debt::Debt;
use crate::lane::Lane;
use arrayvec::ArrayVec;
use pmfs_format::journal::{
    ADDRESS_MASK, ENTRY_DATA_BYTES, ENTRY_LAST, KIND_ABORT, KIND_COMMIT, KIND_REDO, KIND_SHIFT,
    PLACE_SHIFT, WORDS_SHIFT,
};

/// Ranges of one change: a file's bytes across the end of a block.
const RANGES_MAX: usize = 2;

/// Bytes that are to be stored, and where.
type Ranges<'a> = ArrayVec<(u64, &'a [u8]), RANGES_MAX>;

/// A change of bytes in place that nothing is logged of yet. Dropping it is free.
pub(crate) struct Redo<'a> {
    pm: &'a Pm,
    lane: &'a Lane<'a>,
    ranges: Ranges<'a>,
}

impl<'a> Redo<'a> {
    /// Begins one in `lane`. The caller holds the lock of all it will change.
    pub fn begin(pm: &'a Pm, lane: &'a Lane<'a>) -> Redo<'a> {
        Redo {
            pm,
            lane,
            ranges: Ranges::new(),
        }
    }

    /// `bytes`, at least one, are to stand at `off`.
    pub fn add(&mut self, off: u64, bytes: &'a [u8]) {
        self.ranges.push((off, bytes));
    }

    /// What the lane itself owes is paid by its next entry, which proves the transaction before it done.
    pub fn pay_by_entry(&self) {
        self.pm.forgive(|line| self.lane.has_line(line));
    }

    /// Writes the entries and waits until they are durable. Readers wait from before this on: recovery may make the change at any
    /// moment.
    #[must_use = "what is promised must be done"]
    #[cfg_attr(feature = "record", track_caller)]
    pub fn seal(self) -> Promised<'a> {
        let mem = &self.pm.mem;
        let id = self.lane.next_id();
        let entries = self.ranges.iter().map(|&(off, bytes)| entries(off, bytes));
        let count: u64 = entries.sum();
        let window = mem.window();
        let mut place = 0;
        for &(off, bytes) in &self.ranges {
            let end = off + bytes.len() as u64;
            for at in (off & !7..end).step_by(ENTRY_DATA_BYTES as usize) {
                let words = (end.next_multiple_of(8) - at).min(ENTRY_DATA_BYTES) / 8;
                let mut line = [0u64; 8];
                for (word, new) in (0..words).zip(&mut line[1..]) {
                    *new = self.word(at + word * 8, off, bytes);
                }
                line[0] = at & ADDRESS_MASK
                    | words << WORDS_SHIFT
                    | KIND_REDO << KIND_SHIFT
                    | place << PLACE_SHIFT;
                place += 1;
                if place == count || planted!("bug-redo-cut-short") {
                    line[0] |= ENTRY_LAST;
                }
                line[7] = id;
                let entry = self.lane.next_entry();
                mem.write(entry, &line);
                if !planted!("bug-redo-unflushed") {
                    mem.flush(entry, 64);
                }
            }
        }
        drop(window);
        pmem::counters::add_logged(64 * (count + 1));
        // Memory that fails shows it here, where nothing is promised yet; else its line comes nearer meanwhile.
        for &(off, bytes) in &self.ranges {
            let end = off + bytes.len() as u64;
            for line in (off & !63..end).step_by(64) {
                mem.load(line);
            }
        }
        if !planted!("bug-redo-unfenced") {
            mem.fence();
        }
        Promised {
            pm: self.pm,
            lane: self.lane,
            id,
            ranges: self.ranges,
        }
    }

    /// The word at `at` as it is to be: of one that is changed in part, the rest as it is.
    #[inline]
    fn word(&self, at: u64, off: u64, bytes: &[u8]) -> u64 {
        let end = off + bytes.len() as u64;
        let (from, to) = (at.max(off), (at + 8).min(end));
        let piece = &bytes[(from - off) as usize..(to - off) as usize];
        if let Ok(whole) = piece.try_into() {
            return u64::from_le_bytes(whole);
        }
        let mut word = self.pm.mem.load(at).to_le_bytes();
        if !planted!("bug-unaligned-tail-unlogged") || from > at {
            word[(from - at) as usize..(to - at) as usize].copy_from_slice(piece);
        }
        u64::from_le_bytes(word)
    }
}

/// Entries that a range takes.
fn entries(off: u64, bytes: &[u8]) -> u64 {
    let end = (off + bytes.len() as u64).next_multiple_of(8);
    (end - (off & !7)).div_ceil(ENTRY_DATA_BYTES)
}

/// A change whose log is durable: it is to be made.
pub(crate) struct Promised<'a> {
    pm: &'a Pm,
    lane: &'a Lane<'a>,
    id: u64,
    ranges: Ranges<'a>,
}

impl Promised<'_> {
    /// Makes the change, durable on return. `None`: nothing is owed.
    #[must_use = "what is owed must be paid before these words change again"]
    #[cfg_attr(feature = "record", track_caller)]
    pub fn apply(self) -> Option<Debt> {
        let mem = &self.pm.mem;
        if mem.failed().is_some() {
            let entry = self.close(KIND_ABORT);
            mem.flush(entry, 64);
            mem.fence();
            return None;
        }
        let window = mem.window();
        for &(off, bytes) in &self.ranges {
            mem.write_bytes(off, bytes);
            if !planted!("bug-redone-unflushed") {
                mem.flush(off, bytes.len() as u64);
            }
        }
        drop(window);
        if !planted!("bug-redone-unfenced") {
            mem.fence();
        }
        if mem.failed().is_some() {
            // Stores were lost: the log stays open, and whoever recovers makes them again.
            return None;
        }
        let entry = self.close(KIND_COMMIT);
        let debt = Debt::new(self.lane.number_of(entry), self.id);
        if debt.is_none() {
            mem.flush(entry, 64);
            mem.fence();
        }
        debt
    }

    /// Writes the closing entry, not flushed; answers where it is.
    #[cfg_attr(feature = "record", track_caller)]
    fn close(&self, kind: u64) -> u64 {
        let mem = &self.pm.mem;
        let entry = self.lane.next_entry();
        let _window = mem.window();
        mem.write(entry, &[kind << KIND_SHIFT, 0, 0, 0, 0, 0, 0, self.id]);
        entry
    }
}
