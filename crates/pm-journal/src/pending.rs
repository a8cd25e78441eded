//! Pending commits: transactions whose closing entry is not durable for certain
//! (docs/adr/0016-closing-without-waiting.md, docs/adr/0017-small-overwrites-wait-once.md).
//!
//! A commit checksum closes a transaction only while the logged words have the values that it was
//! made of. A committed redo record may be applied again by recovery. So the transaction must be
//! closed durably before one of these words changes again or gets another owner. Each lock that
//! covers such words names the pending commit. For a commit checksum, the next holder of the lock
//! flushes the line of the closing entry, and fences before it stores in place, which its own first
//! barrier mostly does. For a committed redo record, it goes on in the same lane, where the next
//! transaction is all that is needed, or closes the record there
//! ([`crate::committed_redo`]).

use crate::medium::store::Store;
use pmfs_format::LaneRaw;
use pmfs_format::runtime::{PENDING_ID_SHIFT, PENDING_REDO};

const LINE_MASK: u64 = (1 << PENDING_ID_SHIFT) - 1;

/// The word of a lock that names a transaction whose closing may not be durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PendingCommit(u64);

impl PendingCommit {
    /// For transaction `id`, whose closing entry is line `number` of the journal. `None` if the
    /// numbers don't fit a word.
    #[inline]
    pub fn new(number: u64, id: u64) -> Option<PendingCommit> {
        let fits = number <= LINE_MASK && id < PENDING_REDO >> PENDING_ID_SHIFT;
        fits.then_some(PendingCommit(id << PENDING_ID_SHIFT | number))
    }

    /// For transaction `id` without a closing entry: the last entry of its log is line `number` of
    /// the journal.
    #[inline]
    pub fn of_redo(number: u64, id: u64) -> Option<PendingCommit> {
        PendingCommit::new(number, id).map(|pending| PendingCommit(pending.0 | PENDING_REDO))
    }

    /// Reads a lock's word.
    #[inline]
    pub fn load(store: &Store, word: u64) -> Option<PendingCommit> {
        let word = store.pm.runtime().load(word);
        (word != 0).then_some(PendingCommit(word))
    }

    /// The word that a lock keeps.
    #[inline]
    pub fn word(self) -> u64 {
        self.0
    }

    /// Returns whether a redo record is pending.
    #[inline]
    pub fn is_redo(self) -> bool {
        self.0 & PENDING_REDO != 0
    }

    /// The byte offset of that entry.
    #[inline]
    pub fn line(self, store: &Store) -> u64 {
        store.geometry.journal + (self.0 & LINE_MASK) * 64
    }

    /// The id of its transaction.
    #[inline]
    pub fn id(self) -> u64 {
        (self.0 & !PENDING_REDO) >> PENDING_ID_SHIFT
    }

    /// Returns whether the lane has continued so far that the commit is complete. After a commit
    /// checksum one later transaction must have ended: a durable entry of it shows that this one is
    /// complete. After a committed redo record it must be two, because recovery applies the last
    /// two.
    #[inline]
    pub fn is_complete(self, store: &Store) -> bool {
        let lane = store.geometry.lane_of_line(self.0 & LINE_MASK);
        if lane >= store.geometry.lanes {
            return true;
        }
        let last = store
            .pm
            .runtime()
            .load(LaneRaw::last_id.of(store.geometry.lane_line(lane)));
        let behind = 2 + u64::from(self.is_redo() && !planted!("bug-redo-completed-early"));
        last >= self.id() + behind
    }
}
