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
//! ([`crate::journal::committed_redo`]).

use crate::medium::store::Store;
use pmfs_format::LaneRaw;
use pmfs_format::runtime::{PENDING_ID_SHIFT, PENDING_REDO};

const LINE_MASK: u64 = (1 << PENDING_ID_SHIFT) - 1;

/// A lock's word for a transaction that is not closed durably for certain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PendingCommit(u64);

impl PendingCommit {
    /// For transaction `id`, whose closing entry is the journal's line `number`; `None` where these
    /// don't fit a word.
    #[inline]
    pub fn new(number: u64, id: u64) -> Option<PendingCommit> {
        let fits = number <= LINE_MASK && id < PENDING_REDO >> PENDING_ID_SHIFT;
        fits.then_some(PendingCommit(id << PENDING_ID_SHIFT | number))
    }

    /// For transaction `id`, which has no closing entry: the last entry of its log is the journal's
    /// line `number`.
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

    #[inline]
    pub fn word(self) -> u64 {
        self.0
    }

    #[inline]
    pub fn is_redo(self) -> bool {
        self.0 & PENDING_REDO != 0
    }

    /// The byte offset of that entry.
    #[inline]
    pub fn line(self, store: &Store) -> u64 {
        store.geometry.journal + (self.0 & LINE_MASK) * 64
    }

    fn id(self) -> u64 {
        (self.0 & !PENDING_REDO) >> PENDING_ID_SHIFT
    }

    /// Returns whether the lane has gone on so far that the commit is complete. After a commit
    /// checksum one transaction must have ended: an entry of it is durable, which shows that this
    /// one is done. After a committed redo record it must be two: recovery applies the last two.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::journal::lane::Lane;
    use crate::scratch::{NODE, Scratch};
    use crate::{Fs, ROOT_INO, RenameFlags};
    use pmfs_format::LockRaw;

    /// Every lane's next transaction has this id.
    fn go_on_at(fs: &Fs, id: u64) {
        let pool = fs.pool();
        let _writable = fs.mapping().writable();
        for lane in 0..pool.geometry.lanes {
            let line = pool.geometry.lane_line(lane);
            pool.pm.runtime().store(LaneRaw::last_id.of(line), id - 1);
        }
    }

    /// The pending commit of each lock.
    fn pending_commits(fs: &Fs) -> Vec<Option<PendingCommit>> {
        let g = &fs.pool().geometry;
        let lines = (0..g.lock_count).map(|lock| g.locks + lock * LockRaw::SIZE);
        let word = LockRaw::pending_commit.offset();
        lines
            .map(|line| PendingCommit::load(fs.pool(), line + word))
            .collect()
    }

    /// Goal: transactions whose ids are too large for a lock's word leave no pending commit, and
    /// all else goes on. Method: ids that pass that limit, by two attachments in turn, each call on
    /// words that the other has changed; the pending commits of locks have ids below it. Then the
    /// pool as its next opener finds it.
    #[test]
    fn ids_beyond_a_locks_word() {
        let end = PENDING_REDO >> PENDING_ID_SHIFT;
        assert!(PendingCommit::new(7, end - 1).is_some() && PendingCommit::new(7, end).is_none());
        let scratch = Scratch::new(16 << 20);
        let all = [scratch.open(), scratch.open()];
        let ino = all[0].create(ROOT_INO, b"a", &NODE).unwrap().ino;
        all[0].write(ino, 0, &[7; 8000]).unwrap();
        let before = pending_commits(&all[0]);
        go_on_at(&all[0], end - 20);
        let names: [&[u8]; 2] = [b"a", b"b"];
        for turn in 0..60 {
            let (fs, byte) = (&all[turn / 3 % 2], turn as u8);
            fs.write(ino, 100, &[byte; 64]).unwrap();
            fs.append(ino, &[byte; 10]).unwrap();
            let (from, to) = (names[turn % 2], names[(turn + 1) % 2]);
            let none = RenameFlags::empty();
            fs.rename(ROOT_INO, from, ROOT_INO, to, none).unwrap();
            let mut got = [0; 64];
            all[0].read(ino, 100, &mut got).unwrap();
            assert_eq!(got, [byte; 64]);
            for (now, before) in pending_commits(&all[0]).into_iter().zip(&before) {
                let is_of_late = |pending: &PendingCommit| {
                    now != *before && !(end - 20..end).contains(&pending.id())
                };
                assert_eq!(now.filter(is_of_late), None, "turn {turn}");
            }
        }
        let lanes = 0..all[0].pool().geometry.lanes;
        let ids = lanes.map(|lane| Lane::at(all[0].pool(), lane).last_id());
        assert!(ids.max() > Some(end), "it is passed");
        assert!(scratch.is_sound());
        for fs in all {
            fs.close().unwrap();
        }
        let again = scratch.open();
        assert_eq!(again.getattr(ino).unwrap().size, 8600);
        assert_eq!(again.lookup(ROOT_INO, b"a").unwrap().ino, ino);
    }
}
