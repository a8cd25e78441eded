//! Way 2, forwards: bytes in place whose new content is logged first.
//!
//! [`Redo::seal`] writes the new words to the lane. Once they are durable the record is committed:
//! whatever happens, recovery makes the change. So the old bytes need not be read first, and their
//! lines come from memory while the log is on its way there. [`CommittedRedo::apply`] only stores
//! the bytes: the next holder of the lane makes them durable ([`crate::committed_redo`]).
//!
//! A log of new words may be applied only to the words that it was made for. Two lanes never have
//! records of the same words, as nothing would tell which is the later one: a call that finds a
//! committed redo record of words that it is to change goes on in that lane.

use crate::committed_redo;
use crate::error::Result;
use crate::lane::Lane;
use crate::pending::PendingCommit;
use arrayvec::ArrayVec;
use pm_store::Pm;
use pmfs_format::journal::{
    ADDRESS_MASK, ENTRY_DATA_BYTES, ENTRY_LAST, KIND_ABORT, KIND_COMMIT, KIND_REDO, KIND_SHIFT,
    PLACE_SHIFT, WORDS_SHIFT,
};

const DATA_WORDS: usize = (ENTRY_DATA_BYTES / 8) as usize;
/// The most ranges of one change: a file's bytes across the end of a block.
const RANGES_MAX: usize = 2;

/// Bytes to be stored, and their places.
type Ranges<'a> = ArrayVec<(u64, &'a [u8]), RANGES_MAX>;

/// A change of bytes in place without any log yet. Dropping it is free.
pub struct Redo<'a> {
    pm: &'a Pm,
    lane: &'a Lane<'a>,
    ranges: Ranges<'a>,
    /// The count of its entries.
    count: u64,
    /// Whether the record is closed before the call returns.
    closes: bool,
}

impl<'a> Redo<'a> {
    /// Begins a change in `lane`. The caller holds the locks of all that it will change. With
    /// `closes`, recovery must not make the change again once the call has returned, because a word
    /// that it changes in part has bytes that others may store to without reading the lock's
    /// pending commit.
    #[inline]
    pub fn begin(lane: &'a Lane<'a>, closes: bool) -> Redo<'a> {
        Redo {
            pm: &lane.share().pm,
            lane,
            ranges: Ranges::new(),
            count: 0,
            closes,
        }
    }

    /// Adds `bytes`, at least one, to be stored at `off`.
    #[inline]
    pub fn add(&mut self, off: u64, bytes: &'a [u8]) {
        self.ranges.push((off, bytes));
        self.count += entries(off, bytes);
    }

    /// Returns whether the log fits the lane.
    #[inline]
    pub fn fits(&self) -> bool {
        self.count <= committed_redo::entries_max(self.lane.log().1)
    }

    /// Writes the entries and waits until they are durable. Readers must wait from before this call
    /// on, because recovery may make the change at any moment.
    ///
    /// # Errors
    /// [`crate::Error::Medium`]: the bytes to change can't be read. The log is closed, and nothing
    /// is committed.
    #[inline]
    #[cfg_attr(all(feature = "record", not(feature = "planted-bugs")), track_caller)]
    pub fn seal(self) -> Result<CommittedRedo<'a>> {
        let mem = self.pm.mapping();
        let id = self.lane.next_id();
        let log = Log {
            pm: self.pm,
            lane: self.lane,
            id,
        };
        let written = self.write(id);
        pmem::counters::add_logged(64 * self.count);
        self.lane.complete_by_entries();
        self.pm.flush_pending();
        if let Err(error) = written.and_then(|()| self.prefetch()) {
            log.close(KIND_ABORT);
            return Err(error);
        }
        mem.fence();
        Ok(CommittedRedo {
            log,
            ranges: self.ranges,
            closes: self.closes,
        })
    }

    /// Writes and flushes the entries; stops at an entry whose old word can't be read.
    #[inline]
    #[cfg_attr(feature = "record", track_caller)]
    fn write(&self, id: u64) -> Result<()> {
        let head = self.lane.head();
        let mut place = 0;
        let written = self.write_from(head, &mut place, id);
        self.lane.set_head(head + place);
        written
    }

    /// Writes the entries from number `head` on; `place` counts them, also after a failure.
    #[inline]
    #[cfg_attr(all(feature = "record", not(feature = "planted-bugs")), track_caller)]
    fn write_from(&self, head: u64, place: &mut u64, id: u64) -> Result<()> {
        let mem = self.pm.mapping();
        for &(off, bytes) in &self.ranges {
            let end = (off + bytes.len() as u64).next_multiple_of(8);
            let mut at = off & !7;
            while at < end {
                let words = ((end - at) / 8).min(DATA_WORDS as u64);
                let data = self.data(at, words as usize, (off, bytes))?;
                let mut header = at & ADDRESS_MASK
                    | words << WORDS_SHIFT
                    | KIND_REDO << KIND_SHIFT
                    | *place << PLACE_SHIFT;
                let entry = self.lane.entry(head + *place);
                *place += 1;
                if *place == self.count || planted!("bug-redo-cut-short") {
                    header |= ENTRY_LAST;
                }
                let [first, second, third, fourth, fifth, sixth] = data;
                let _window = mem.window();
                mem.write(
                    entry,
                    &[header, first, second, third, fourth, fifth, sixth, id],
                );
                mem.flush(entry, 64);
                at += words * 8;
            }
        }
        Ok(())
    }

    /// Reads the lines to be changed. A bad line fails here, where nothing is committed yet; good
    /// ones are prefetched while the log is written.
    #[inline]
    fn prefetch(&self) -> Result<()> {
        for &(off, bytes) in &self.ranges {
            let end = off + bytes.len() as u64;
            for line in (off & !63..end).step_by(64) {
                self.pm.touch(line)?;
            }
        }
        Ok(())
    }

    /// The `words` words from `at` on, as they are once `bytes` are stored at `off`, followed by
    /// zeros.
    #[inline]
    fn data(&self, at: u64, words: usize, (off, bytes): (u64, &[u8])) -> Result<[u64; DATA_WORDS]> {
        let mut data = [0; DATA_WORDS];
        let whole = at.checked_sub(off).map(|before| {
            let (words, _) = bytes[before as usize..].as_chunks::<8>();
            words
        });
        match whole {
            // Most entries are full.
            Some([first, second, third, fourth, fifth, sixth, ..]) if words == DATA_WORDS => {
                data = [first, second, third, fourth, fifth, sixth]
                    .map(|word| u64::from_le_bytes(*word));
            }
            Some(whole) if whole.len() >= words => {
                for (new, word) in data[..words].iter_mut().zip(whole) {
                    *new = u64::from_le_bytes(*word);
                }
            }
            _ => {
                for (new, word) in data[..words].iter_mut().zip((at..).step_by(8)) {
                    *new = self.word(word, off, bytes)?;
                }
            }
        }
        Ok(data)
    }

    /// The new word at `at`: the rest of a word that is changed in part keeps its bytes.
    #[inline]
    fn word(&self, at: u64, off: u64, bytes: &[u8]) -> Result<u64> {
        let end = off + bytes.len() as u64;
        let (from, to) = (at.max(off), (at + 8).min(end));
        let piece = &bytes[(from - off) as usize..(to - off) as usize];
        if let Ok(whole) = piece.try_into() {
            return Ok(u64::from_le_bytes(whole));
        }
        let mut word = [0; 8];
        self.pm.copy_out(at, &mut word)?;
        if !planted!("bug-unaligned-tail-unlogged") || from > at {
            word[(from - at) as usize..(to - at) as usize].copy_from_slice(piece);
        }
        Ok(u64::from_le_bytes(word))
    }
}

/// The count of entries for a range.
#[inline]
fn entries(off: u64, bytes: &[u8]) -> u64 {
    let end = (off + bytes.len() as u64).next_multiple_of(8);
    (end - (off & !7)).div_ceil(ENTRY_DATA_BYTES)
}

struct Log<'a> {
    pm: &'a Pm,
    lane: &'a Lane<'a>,
    id: u64,
}

impl Log<'_> {
    /// Writes the closing entry, durable on return.
    #[cold]
    #[cfg_attr(feature = "record", track_caller)]
    fn close(&self, kind: u64) {
        let mem = self.pm.mapping();
        let entry = self.lane.next_entry();
        let window = mem.window();
        mem.write(entry, &[kind << KIND_SHIFT, 0, 0, 0, 0, 0, 0, self.id]);
        mem.flush(entry, 64);
        drop(window);
        mem.fence();
    }
}

/// A change whose log is durable, and which must be made.
pub struct CommittedRedo<'a> {
    log: Log<'a>,
    ranges: Ranges<'a>,
    closes: bool,
}

impl CommittedRedo<'_> {
    /// Makes the change, durable with the lane's next barrier. `None`: no commit is pending.
    #[must_use = "a pending commit is to be complete before these words change again"]
    #[cfg_attr(feature = "record", track_caller)]
    pub fn apply(self) -> Option<PendingCommit> {
        let Log { pm, lane, id } = self.log;
        let mem = pm.mapping();
        if mem.failed().is_some() {
            self.log.close(KIND_ABORT);
            return None;
        }
        let window = mem.window();
        for &(off, bytes) in &self.ranges {
            mem.write_bytes(off, bytes);
        }
        drop(window);
        if mem.failed().is_some() {
            // Stores were lost: the log stays open, and recovery makes them again.
            return None;
        }
        let last = lane.last_entry().expect("the log just written");
        let pending = PendingCommit::of_redo(lane.number_of(last), id);
        let pending = pending.filter(|_| !self.closes);
        let Some(pending) = pending else {
            for &(off, bytes) in &self.ranges {
                mem.flush(off, bytes.len() as u64);
            }
            mem.fence();
            self.log.close(KIND_COMMIT);
            return None;
        };
        let mut ranges = [(0, 0); RANGES_MAX];
        for (range, (off, bytes)) in ranges.iter_mut().zip(&self.ranges) {
            *range = (*off, bytes.len() as u64);
        }
        committed_redo::note_own(lane.share(), pending, ranges);
        Some(pending)
    }
}
