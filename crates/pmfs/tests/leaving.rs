//! Goal: who leaves a pool leaves nothing in the tables that all share. Method: for each table, an
//! instance that puts something there and closes the pool, and another one that looks.

mod scratch;

use pmfs::{Fs, Ino, LockClass, LockKind, LockOwner, LockRange, OpenOptions, ROOT_INO};
use pmfs_admin::Admin;
use scratch::{NODE, Scratch};

/// The deed before leaving.
type Deed = fn(&Fs, Ino) -> pmfs::Result<()>;

const DEEDS: &[(&str, Deed)] = &[
    ("nothing", |_, _| Ok(())),
    ("a held inode", |fs, ino| fs.hold(ino).map(drop)),
    ("an open file", |fs, ino| fs.open_file(ino, 0).map(drop)),
    ("a lock", |fs, ino| {
        let owner = LockOwner {
            class: LockClass::Posix,
            id: 7,
        };
        fs.lock(ino, owner, LockKind::Write, LockRange::WHOLE, 1)
    }),
    ("a pin", |fs, ino| fs.pin(ino, true)),
];

#[test]
fn nothing_stays() {
    let Scratch { dir: _dir, path } = Scratch::new(16 << 20);
    let looks = Fs::open(&path, &OpenOptions::default()).unwrap();
    let ino = looks.create(ROOT_INO, b"file", &NODE).unwrap().ino;
    let other = LockOwner {
        class: LockClass::Posix,
        id: 9,
    };
    for (what, deed) in DEEDS {
        let leaves = Fs::open(&path, &OpenOptions::default()).unwrap();
        deed(&leaves, ino).unwrap();
        leaves.close().unwrap();
        assert!(
            looks.holdings().is_empty(),
            "{what}: {:?}",
            looks.holdings()
        );
        let copies = looks.kernel_copies();
        assert!(copies.is_empty(), "{what}: {copies:?}");
        let way = looks.lock_conflict(ino, other, LockKind::Write, LockRange::WHOLE);
        assert!(way.unwrap().is_none(), "{what}");
    }
    looks.close().unwrap();
}
