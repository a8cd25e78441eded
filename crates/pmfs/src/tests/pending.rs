//! Pending commits, as calls on files leave them.

use crate::purpose::Lane;
use crate::scratch::{NODE, Scratch};
use crate::{Fs, ROOT_INO, RenameFlags};
use pm_journal::pending::PendingCommit;
use pmfs_format::runtime::{PENDING_ID_SHIFT, PENDING_REDO};
use pmfs_format::{LaneRaw, LockRaw};

/// Every lane's next transaction has this id.
fn go_on_at(fs: &Fs, id: u64) {
    let pool = fs.pool();
    let _writable = fs.mapping().writable();
    for lane in 0..pool.geometry.lanes {
        let line = pool.geometry.lane_line(lane);
        pool.pm.runtime().store(LaneRaw::last_id.of(line), id - 1);
    }
}

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
