//! Way 2: undo-logged ranges.
//!
//! `Transaction` collects ranges, [`Transaction::seal`] writes their old content to the lane and
//! waits until that is durable, `Sealed` changes them in place, [`Sealed::commit`] makes the
//! changes durable and closes. Nothing can fail between seal and commit, so an undo is only ever
//! recovery's.
//!
//! [`Sealed::commit_by_checksum`] closes with one wait less: a hash of the new values of the logged
//! words is written back with them, and recovery compares. The commit that it leaves pending has to
//! be durable before any of these words changes again ([`PendingCommit`]).

use crate::checksum::CommitChecksum;
use crate::lane::Lane;
use crate::log_entry::{Header, WORDS};
use crate::pending::PendingCommit;
use arrayvec::ArrayVec;
use pm_store::{Durable, Pm};
use pmfs_format::journal::{
    ENTRIES_MAX, ENTRY_DATA_BYTES, KIND_CHECKSUM, KIND_COMMIT, KIND_DATA, KIND_SHIFT, KIND_UNDO,
    KIND_UNDOS,
};

/// The most lines that are noted before they are flushed: more than any call changes, except a
/// logged overwrite.
const LINES_MAX: usize = 16;

/// A range whose old content is in the log, or will be before a store to it.
#[derive(Debug)]
pub struct Logged {
    pub(super) off: u64,
    pub(super) words: u64,
}

/// A transaction that has changed nothing yet. Dropping it is free.
pub struct Transaction<'a> {
    pm: &'a Pm,
    lane: &'a Lane<'a>,
    /// The logged ranges, one in each entry.
    ranges: ArrayVec<Header, ENTRIES_MAX>,
    /// The count of free words in each entry.
    left: ArrayVec<u8, ENTRIES_MAX>,
    /// The place of the saved copy of each KIND_DATA range, and its length in bytes.
    saved: Vec<[u64; 2]>,
}

impl<'a> Transaction<'a> {
    /// Begins a transaction in `lane`. The caller holds the locks of all that it will log.
    #[inline]
    #[must_use]
    pub fn begin(lane: &'a Lane<'a>) -> Transaction<'a> {
        Transaction {
            pm: &lane.share().pm,
            lane,
            ranges: ArrayVec::new(),
            left: ArrayVec::new(),
            saved: Vec::new(),
        }
    }

    /// Adds a range to the first entry with room, because each entry is a line to be flushed. The
    /// order does not matter, because all of it is logged before any store.
    #[inline]
    fn push(&mut self, kind: u64, off: u64, words: u64) {
        let takes = match kind {
            KIND_DATA => WORDS as u8,
            _ => 1 + words as u8,
        };
        let place = self.left.iter().position(|&left| left >= takes);
        let (place, at) = match place {
            Some(place) => {
                let behind = |range: &Header| range.place() > place as u64;
                let at = self.ranges.iter().position(behind);
                (place, at.unwrap_or(self.ranges.len()))
            }
            None => {
                let made = self.left.try_push(WORDS as u8);
                assert!(made.is_ok(), "a transaction logs at most 32 entries");
                (self.left.len() - 1, self.ranges.len())
            }
        };
        self.left[place] -= takes;
        let header = Header::new(kind, off, words, place as u64);
        let logged = self.ranges.try_insert(at, header);
        assert!(logged.is_ok(), "a transaction logs at most 32 ranges");
    }

    /// Logs `len` bytes at `off` (both multiples of 8, at most 48 bytes).
    #[inline]
    #[must_use]
    #[cfg_attr(feature = "record", track_caller)]
    pub fn log(&mut self, off: u64, len: u64) -> Logged {
        assert!(
            off.is_multiple_of(8) && len.is_multiple_of(8) && len <= ENTRY_DATA_BYTES && len > 0
        );
        let words = len / 8;
        if self.pm.mapping().may_log(off) {
            self.push(KIND_UNDO, off, words);
        }
        Logged { off, words }
    }

    /// Logs a range of any length, in as many entries as needed, extended to whole words.
    #[inline]
    #[must_use]
    #[cfg_attr(feature = "record", track_caller)]
    pub fn log_bytes(&mut self, off: u64, len: u64) -> Logged {
        let start = off & !7;
        let end = (off + len).next_multiple_of(8);
        let mut at = start;
        while at < end {
            let piece = (end - at).min(ENTRY_DATA_BYTES);
            let _ = self.log(at, piece);
            at += piece;
        }
        Logged {
            off: start,
            words: (end - start) / 8,
        }
    }

    /// Logs `len` bytes at `off` whose old content was saved at `saved`, which must be durable
    /// (docs/adr/0032-large-leaves.md).
    #[inline]
    #[must_use]
    pub fn log_saved(&mut self, off: u64, len: u64, saved: u64, _durable: &Durable) -> Logged {
        self.push(KIND_DATA, off, 0);
        self.saved.push([saved, len]);
        Logged {
            off: off & !7,
            words: ((off + len).next_multiple_of(8) - (off & !7)) / 8,
        }
    }

    /// Writes the entries and waits until they and all earlier fresh writes are durable.
    #[must_use]
    #[cfg_attr(all(feature = "record", not(feature = "planted-bugs")), track_caller)]
    pub fn seal(self) -> Sealed<'a> {
        let mem = self.pm.mapping();
        let id = self.lane.next_id();
        let window = mem.window();
        let mut void = false;
        let mut saved = self.saved.iter();
        for ranges in self
            .ranges
            .chunk_by(|one, next| one.place() == next.place())
        {
            let mut line = [0u64; 8];
            let mut at = 0;
            for range in ranges {
                line[at] = range.word();
                if range.kind() == KIND_DATA {
                    line[1..3].copy_from_slice(saved.next().expect("pushed with the range"));
                }
                for (off, old) in range.words().zip(&mut line[at + 1..]) {
                    *old = mem.load(off);
                    at += 1;
                }
                at += 1;
            }
            if ranges.len() > 1 {
                line[0] ^= (KIND_UNDO ^ KIND_UNDOS) << KIND_SHIFT;
            }
            line[7] = id;
            if mem.failed().is_some() {
                // The loaded words may differ from the medium's: to undo them would be damage.
                void = true;
                break;
            }
            let at = self.lane.next_entry();
            mem.write(at, &line);
            mem.flush(at, 64);
        }
        drop(window);
        self.lane.complete_by_entries();
        self.pm.flush_pending();
        pmem::counters::add_logged(64 * (self.left.len() as u64 + 1));
        mem.fence();
        Sealed {
            pm: self.pm,
            lane: self.lane,
            id,
            ranges: self.ranges,
            lines: [0; LINES_MAX],
            count: 0,
            void,
        }
    }
}

/// A transaction whose log is durable: it may change what it logged.
pub struct Sealed<'a> {
    pm: &'a Pm,
    lane: &'a Lane<'a>,
    id: u64,
    ranges: ArrayVec<Header, ENTRIES_MAX>,
    /// Lines stored to, each to be flushed once: a line that was just flushed is slow to write
    /// again.
    lines: [u64; LINES_MAX],
    count: usize,
    /// The medium failed under a load for the log: the transaction stores nothing, and is closed.
    void: bool,
}

impl Sealed<'_> {
    /// Stores one word of a logged range.
    #[inline]
    #[cfg_attr(feature = "record", track_caller)]
    pub fn set(&mut self, range: &Logged, word: u64, value: u64) {
        self.set_words(range, word, &[value]);
    }

    /// Stores words of a logged range, from `first` on.
    #[inline]
    #[cfg_attr(feature = "record", track_caller)]
    pub fn set_words(&mut self, range: &Logged, first: u64, values: &[u64]) {
        let count = values.len() as u64;
        assert!(
            first + count <= range.words && count > 0,
            "store past a logged range"
        );
        if self.void {
            return;
        }
        let from = range.off + first * 8;
        let window = self.pm.mapping().window();
        for (off, &value) in (from..).step_by(8).zip(values) {
            self.pm.mapping().store(off, value);
        }
        drop(window);
        let last = from + (count - 1) * 8;
        for line in (from & !63..=last).step_by(64) {
            self.touch(line);
        }
    }

    /// Notes a line (the offset of its first byte) to be flushed.
    #[inline]
    #[cfg_attr(feature = "record", track_caller)]
    fn touch(&mut self, line: u64) {
        if self.lines[..self.count].contains(&line) {
            return;
        }
        if self.count == LINES_MAX {
            self.flush();
        }
        self.lines[self.count] = line;
        self.count += 1;
    }

    #[inline]
    #[cfg_attr(all(feature = "record", not(feature = "planted-bugs")), track_caller)]
    fn flush(&mut self) {
        for &line in &self.lines[..self.count] {
            self.pm.mapping().flush(line, 64);
        }
        self.count = 0;
    }

    /// Stores many bytes inside a logged range, past the caches.
    ///
    /// # Errors
    /// [`crate::Error::Medium`]; the transaction is then left to recovery.
    /// [`crate::Error::BadAddress`]: the caller puts the old bytes back ([`Sealed::put_back`]) and
    /// closes it.
    #[inline]
    #[cfg_attr(feature = "record", track_caller)]
    pub fn set_bulk(&mut self, range: &Logged, off: u64, bytes: &[u8]) -> crate::Result<()> {
        let len = bytes.len() as u64;
        assert!(
            off >= range.off && off + len <= range.off + range.words * 8,
            "store past a logged range"
        );
        if self.void {
            return Ok(());
        }
        let _window = self.pm.mapping().window();
        self.pm.mapping().fence_stores();
        let written = self.pm.mapping().write_nt(off, bytes);
        Ok(written.map_err(|fault| self.pm.fault(fault))?)
    }

    /// Copies saved bytes back into a logged range, from `from` on, past the caches.
    ///
    /// # Errors
    /// [`crate::Error::Medium`]; the transaction is then left to recovery.
    #[inline]
    #[cfg_attr(feature = "record", track_caller)]
    pub fn put_back(&mut self, range: &Logged, off: u64, from: u64, len: u64) -> crate::Result<()> {
        assert!(
            off >= range.off && off + len <= range.off + range.words * 8,
            "store past a logged range"
        );
        if self.void {
            return Ok(());
        }
        let _window = self.pm.mapping().window();
        self.pm.mapping().fence_stores();
        let copied = self.pm.mapping().copy_nt(off, from, len);
        Ok(copied.map_err(|fault| self.pm.fault(fault))?)
    }

    /// Makes the changes durable, then closes the transaction durably.
    #[inline]
    #[cfg_attr(feature = "record", track_caller)]
    pub fn commit(self) {
        self.make_durable().close();
    }

    /// Makes the changes durable together with a commit checksum, which closes the transaction: one
    /// wait less than [`Sealed::commit`]. The caller ensures that the pending commit is completed
    /// before any holder changes a logged word again ([`LockSet::commit`]). `None`: no commit is
    /// pending.
    ///
    /// [`LockSet::commit`]: crate::locks::LockSet::commit
    #[must_use = "a pending commit is to be complete before these words change again"]
    #[cfg_attr(all(feature = "record", not(feature = "planted-bugs")), track_caller)]
    pub(crate) fn commit_by_checksum(mut self) -> Option<PendingCommit> {
        let mem = self.pm.mapping();
        let mut checksum = CommitChecksum::default();
        for off in self.ranges.iter().flat_map(|range| range.words()) {
            checksum.add(mem.load_cached(off));
        }
        let failed = mem.failed().is_some();
        if self.void || failed || self.ranges.iter().any(|range| range.kind() == KIND_DATA) {
            self.commit();
            return None;
        }
        let [low, high] = checksum.words();
        let at = self.lane.next_entry();
        let window = mem.window();
        mem.write(
            at,
            &[KIND_CHECKSUM << KIND_SHIFT, low, high, 0, 0, 0, 0, self.id],
        );
        mem.flush(at, 64);
        drop(window);
        self.flush();
        mem.fence();
        if mem.failed().is_some() {
            // Stores were lost: the checksum does not match, and recovery undoes the stores that
            // arrived.
            return None;
        }
        let window = mem.window();
        mem.store(at, KIND_COMMIT << KIND_SHIFT);
        drop(window);
        let pending = PendingCommit::new(self.lane.number_of(at), self.id);
        if pending.is_none() {
            mem.flush(at, 64);
            mem.fence();
        }
        pending
    }
}

impl<'a> Sealed<'a> {
    /// Flushes the changed lines, and waits until they are durable.
    #[inline]
    #[cfg_attr(all(feature = "record", not(feature = "planted-bugs")), track_caller)]
    pub fn make_durable(mut self) -> Unclosed<'a> {
        self.flush();
        self.pm.mapping().fence();
        Unclosed {
            pm: self.pm,
            lane: self.lane,
            id: self.id,
            void: self.void,
        }
    }
}

/// A transaction whose changes are durable, and which may be closed.
#[must_use = "a transaction that is not closed is undone by the next recovery"]
pub struct Unclosed<'a> {
    pm: &'a Pm,
    lane: &'a Lane<'a>,
    id: u64,
    void: bool,
}

impl Unclosed<'_> {
    /// Closes it durably.
    #[inline]
    #[cfg_attr(all(feature = "record", not(feature = "planted-bugs")), track_caller)]
    pub fn close(self) {
        let mem = self.pm.mapping();
        if mem.failed().is_some() && !self.void {
            // Stores were lost: the log stays open, and recovery undoes the stores that arrived.
            return;
        }
        let at = self.lane.next_entry();
        let window = mem.window();
        mem.write(at, &[KIND_COMMIT << KIND_SHIFT, 0, 0, 0, 0, 0, 0, self.id]);
        mem.flush(at, 64);
        drop(window);
        mem.fence();
    }
}
