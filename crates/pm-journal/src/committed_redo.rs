//! Committed redo records: changes whose log is durable and not closed
//! (docs/adr/0017-small-overwrites-wait-once.md).
//!
//! Once a log of new words is durable ([`crate::redo::Redo`]), its change is certain. The words are
//! stored in place, and the call returns. Recovery stores the words of a lane's last transaction
//! again if it is such a record. If the last transaction was cut short, recovery does the same for
//! the one before it: its words need not be durable until the barrier of the last one.
//!
//! - The next holder of the lane flushes the words, and makes them durable with its first barrier.
//!   The call that stored them does not, because its locks would wait for the flush.
//! - Before one of the words changes otherwise, the record is closed: its last entry becomes the
//!   closing one. The locks that cover the words name it as a [`PendingCommit`], and the next
//!   holder of such a lock takes the lane.
//! - When the pool is left clean, all lanes are closed in this way.

use crate::lane::Lane;
use crate::log_entry::Header;
use crate::medium::store::{Store, Waits};
use crate::pending::PendingCommit;
use pm_store::{Restore, committed_redo_ranges};
use pmem::thread::with;
use pmfs_format::journal::{ENTRIES_MAX, KIND_COMMIT, KIND_REDO};

/// The most entries of a committed redo record in a lane of `lane_entries`: recovery may need the
/// last two logs whole while a third one is being written.
#[inline]
pub(crate) fn entries_max(lane_entries: u64) -> u64 {
    (lane_entries - ENTRIES_MAX as u64 - 1) / 2
}

/// A key that identifies the pool of a thread's last committed redo record.
#[inline]
fn pool_key(store: &Store) -> u64 {
    let uuid = u128::from_le_bytes(store.superblock.uuid);
    (uuid ^ uuid >> 64) as u64 ^ store.pm.mapping().identity().ino.rotate_left(32)
}

/// Notes the ranges (offsets and bytes) that this thread's last record stored, so that the thread
/// need not read its log when it continues in the lane.
#[inline]
pub(crate) fn note_own(store: &Store, pending: PendingCommit, ranges: [(u64, u64); 2]) {
    let [(first, first_bytes), (second, second_bytes)] = ranges;
    let words = [
        pool_key(store),
        pending.word(),
        first,
        first_bytes,
        second,
        second_bytes,
    ];
    with(|thread| {
        for (word, value) in thread.redo_ranges.iter().zip(words) {
            word.set(value);
        }
    });
}

/// Closes the record whose last entry is at `entry`, durably. The caller has no lane.
#[cold]
#[cfg_attr(all(feature = "record", not(feature = "planted-bugs")), track_caller)]
pub(crate) fn close_at(waits: Waits<'_>, entry: u64) {
    let share = waits.share;
    let lane = Lane::claim_of(waits, entry);
    let header = Header::read(&share.pm, entry);
    if header.is_last_of_new() || header.kind() == KIND_COMMIT {
        let restore = Restore::new(&share.pm);
        lane.flush_committed_redo();
        restore.barrier();
        restore.make_commit(entry);
    }
    lane.release();
}

impl<'a> Lane<'a> {
    /// The last entry of the lane's committed redo record, if that is not closed.
    #[inline]
    fn committed_redo(&self) -> Option<u64> {
        let entry = self.last_entry()?;
        Header::read(&self.share().pm, entry)
            .is_last_of_new()
            .then_some(entry)
    }

    /// Takes over a lane that was just claimed, and flushes the words of its last committed redo
    /// record. The pending commit at `pending` that led here can then be completed.
    #[inline(always)]
    #[cfg_attr(all(feature = "record", not(feature = "planted-bugs")), track_caller)]
    pub fn take_over(&self, pending: Option<u64>) {
        if let Some(ranges) = self.own() {
            // This is the common case. The log was flushed, and is slow to read where a flush
            // evicts it.
            for (off, bytes) in ranges {
                if bytes > 0 {
                    Restore::new(&self.share().pm).flush(off, bytes);
                }
            }
            if pending.is_some() && pending == self.last_entry() {
                return self.share().pm.hold_redo_lane();
            }
        } else {
            self.flush_committed_redo();
        }
        if let Some(entry) = pending {
            self.take_over_pending(entry);
        }
    }

    #[cold]
    #[cfg_attr(feature = "record", track_caller)]
    fn take_over_pending(&self, entry: u64) {
        let pm = &self.share().pm;
        let header = Header::read(pm, entry);
        if header.is_last_of_new() {
            return pm.hold_redo_lane();
        }
        // The lane has continued, or another call has closed the record without waiting.
        pm.drop_if_complete(|_| true);
        if header.kind() == KIND_COMMIT {
            pm.defer(entry);
        }
    }

    /// The ranges that the lane's last committed redo record stored, if this thread wrote it.
    #[inline(always)]
    fn own(&self) -> Option<[(u64, u64); 2]> {
        let [key, word] = with(|thread| [0, 1].map(|at: usize| thread.redo_ranges[at].get()));
        let last = PendingCommit::of_redo(self.number_of(self.last_entry()?), self.last_id())?;
        let own = last.word() == word && key == pool_key(self.share());
        own.then(committed_redo_ranges)
    }

    /// Flushes the words in place of the lane's last committed redo record.
    #[cfg_attr(feature = "record", track_caller)]
    pub fn flush_committed_redo(&self) {
        let Some(last) = self.committed_redo() else {
            return;
        };
        let pm = &self.share().pm;
        let (log, entries) = self.log();
        let place = (last - log) / 64;
        for back in 0..=Header::read(pm, last).place() {
            let entry = log + (place + entries - back % entries) % entries * 64;
            let header = Header::read(pm, entry);
            let (off, words) = header.range();
            if header.kind() == KIND_REDO && self.share().data.contains(&off) {
                Restore::new(pm).flush(off, words * 8);
            }
        }
    }

    /// Closes the committed redo records of all lanes, and flushes the closing entries of the other
    /// lanes; durable with the next fence. The caller has the pool to itself.
    pub fn close_all(waits: impl Into<Waits<'a>>) {
        let waits = waits.into();
        let share = waits.share;
        let restore = Restore::new(&share.pm);
        let lanes = (0..share.geometry.lanes).map(|index| Lane::at(waits, index));
        let lasts: Vec<(Lane<'_>, u64)> = lanes
            .filter_map(|lane| lane.last_entry().map(|last| (lane, last)))
            .collect();
        let (open, closed): (Vec<_>, Vec<_>) = lasts
            .into_iter()
            .partition(|(lane, _)| lane.committed_redo().is_some());
        closed.iter().for_each(|&(_, last)| restore.flush(last, 64));
        if open.is_empty() {
            return;
        }
        open.iter()
            .for_each(|(lane, _)| lane.flush_committed_redo());
        restore.barrier();
        open.iter().for_each(|&(_, last)| restore.commit(last));
    }
}
