//! Goal: what a process has open in a pool goes over fork and exec as POSIX says, and a child that
//! was not prepared does no harm. Method: real forks, and this program executed again.

mod scratch;

use pmfs::{Error, Fs, LockClass, LockKind, LockOwner, LockRange, NewNode, OpenOptions, ROOT_INO};
use pmfs_admin::Admin;
use scratch::Scratch;
use std::io::SeekFrom;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::sync::Mutex;

/// Tells the program that this test becomes what it was handed.
const HANDED: &str = "PMFS_TEST_HANDED";
const POOL: &str = "PMFS_TEST_POOL";
const PROGRAM: &str = "after_exec";

/// A fork copies one thread, with whatever locks the others have at that moment.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

const NODE: NewNode = NewNode {
    mode: 0o644,
    uid: 1,
    gid: 2,
    umask: 0,
};
const POSIX: LockOwner = LockOwner {
    class: LockClass::Posix,
    id: 0,
};

fn bench() -> Scratch {
    Scratch::new(4 << 20)
}

fn open(path: &Path) -> Fs {
    Fs::open(path, &OpenOptions::default()).unwrap()
}

fn closed_and_sound(fs: Fs, path: &Path) {
    assert_eq!(fs.details().attached, 1);
    fs.close().unwrap();
    let fs = open(path);
    assert_eq!(fs.check().unwrap().findings, []);
    assert_eq!(fs.details().file_locks, 0);
    assert_eq!(fs.details().open_files, 0);
    fs.close().unwrap();
}

#[test]
fn a_child_that_was_not_prepared() {
    let _alone = ONE_AT_A_TIME.lock().unwrap();
    let bench = bench();
    let fs = open(&bench.path);
    let ino = fs.create(ROOT_INO, b"file", &NODE).unwrap().ino;
    let status = pmem::life::in_child(|| {
        assert!(matches!(fs.getattr(ino), Err(Error::Forked)));
        assert!(matches!(fs.write(ino, 0, b"x"), Err(Error::Forked)));
        assert!(matches!(fs.detach(), Err(Error::Forked)));
        // The child may open the pool for itself.
        let own = open(&bench.path);
        own.write(ino, 0, b"child").unwrap();
        own.close().unwrap();
        0
    });
    assert_eq!(status, 0);
    assert_eq!(fs.getattr(ino).unwrap().size, 5);
    assert_eq!(fs.recover_dead().unwrap(), 0);
    closed_and_sound(fs, &bench.path);
}

#[test]
fn a_child_shares_open_files() {
    let _alone = ONE_AT_A_TIME.lock().unwrap();
    let bench = bench();
    let fs = open(&bench.path);
    let ino = fs.create(ROOT_INO, b"file", &NODE).unwrap().ino;
    fs.write(ino, 0, b"0123456789").unwrap();
    let file = fs.open_file(ino, 0).unwrap();
    fs.unlink(ROOT_INO, b"file").unwrap();
    fs.lock(
        ino,
        POSIX,
        LockKind::Write,
        LockRange { start: 0, end: 3 },
        1,
    )
    .unwrap();
    fs.lock_file(file, LockClass::Flock, LockKind::Write, LockRange::WHOLE)
        .unwrap();
    let prepared = fs.before_fork().unwrap();
    assert_eq!(fs.details().attached, 2);
    let prepared = std::cell::Cell::new(Some(prepared));
    let status = pmem::life::in_child(|| {
        fs.after_fork_in_child(prepared.take().unwrap()).unwrap();
        let mut four = [0; 4];
        assert_eq!(fs.read_file(file, &mut four).unwrap(), 4);
        assert_eq!(&four, b"0123");
        // The parent's POSIX lock is not the child's; the flock is the open file's.
        let range = LockRange { start: 2, end: 2 };
        let lock = fs.lock(ino, POSIX, LockKind::Read, range, 2);
        assert!(matches!(lock, Err(Error::WouldBlock)));
        fs.lock_file(file, LockClass::Flock, LockKind::Read, LockRange::WHOLE)
            .unwrap();
        // The child ends without closing anything.
        0
    });
    drop(prepared);
    assert_eq!(status, 0);
    let mut rest = [0; 16];
    assert_eq!(fs.read_file(file, &mut rest).unwrap(), 6);
    assert_eq!(&rest[..6], b"456789");
    assert_eq!(fs.recover_dead().unwrap(), 1);
    assert_eq!(fs.file(file).unwrap().offset, 10);
    fs.close_file(file).unwrap();
    assert!(matches!(fs.file(file), Err(Error::NotOpen)));
    assert!(fs.getattr(ino).is_err());
    fs.unlock_all(ino, POSIX).unwrap();
    closed_and_sound(fs, &bench.path);
}

/// The child outlives what its parent closes.
#[test]
fn the_last_one_ends_the_file() {
    let _alone = ONE_AT_A_TIME.lock().unwrap();
    let bench = bench();
    let fs = open(&bench.path);
    let ino = fs.create(ROOT_INO, b"file", &NODE).unwrap().ino;
    let file = fs.open_file(ino, 0).unwrap();
    fs.lock_file(file, LockClass::File, LockKind::Write, LockRange::WHOLE)
        .unwrap();
    fs.dup_file(file).unwrap();
    let prepared = std::cell::Cell::new(Some(fs.before_fork().unwrap()));
    // The parent closes first, as far as the pool is concerned: a reference of the child's is there
    // already.
    fs.close_file(file).unwrap();
    fs.close_file(file).unwrap();
    assert!(matches!(fs.close_file(file), Err(Error::NotOpen)));
    fs.unlink(ROOT_INO, b"file").unwrap();
    assert_eq!(fs.details().file_locks, 1);
    let status = pmem::life::in_child(|| {
        fs.after_fork_in_child(prepared.take().unwrap()).unwrap();
        assert_eq!(fs.write_file(file, b"still", |_| false).unwrap(), 5);
        assert_eq!(fs.seek_file(file, SeekFrom::End(-2)).unwrap(), 3);
        fs.close_file(file).unwrap();
        assert!(fs.getattr(ino).is_ok());
        fs.close_file(file).unwrap();
        assert!(fs.getattr(ino).is_err());
        fs.detach().unwrap();
        0
    });
    drop(prepared);
    assert_eq!(status, 0);
    assert_eq!(fs.recover_dead().unwrap(), 0);
    closed_and_sound(fs, &bench.path);
}

#[test]
fn a_fork_or_exec_that_failed() {
    let bench = bench();
    let fs = open(&bench.path);
    let ino = fs.create(ROOT_INO, b"file", &NODE).unwrap().ino;
    let file = fs.open_file(ino, 0).unwrap();
    let prepared = fs.before_fork().unwrap();
    fs.cancel_fork(prepared);
    let prepared = fs.before_exec().unwrap();
    fs.cancel_exec(prepared);
    assert_eq!(fs.details().attached, 1);
    fs.close_file(file).unwrap();
    closed_and_sound(fs, &bench.path);
}

/// A child that execs this program again, which goes on where it was.
#[test]
fn a_program_after_exec() {
    let _alone = ONE_AT_A_TIME.lock().unwrap();
    let bench = bench();
    let fs = open(&bench.path);
    let ino = fs.create(ROOT_INO, b"file", &NODE).unwrap().ino;
    assert_eq!(ino, fs.lookup(ROOT_INO, b"file").unwrap().ino);
    fs.write(ino, 0, b"0123456789").unwrap();
    let status = pmem::life::in_child(|| {
        let own = open(&bench.path);
        let file = own.open_file(ino, 7).unwrap();
        own.seek_file(file, SeekFrom::Start(6)).unwrap();
        own.lock(
            ino,
            POSIX,
            LockKind::Write,
            LockRange { start: 0, end: 0 },
            5,
        )
        .unwrap();
        own.unlink(ROOT_INO, b"file").unwrap();
        let handed = own.before_exec().unwrap();
        let numbers = format!("{handed} {}", file.number());
        let failed = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", PROGRAM, "--nocapture"])
            .env(HANDED, numbers)
            .env(POOL, &bench.path)
            .exec();
        panic!("{failed}");
    });
    assert_eq!(status, 0);
    // The child's death is the end of the file, which has no name.
    fs.recover_dead().unwrap();
    assert!(fs.getattr(ino).is_err());
    closed_and_sound(fs, &bench.path);
}

/// The program of the test above; nothing by itself.
#[test]
fn after_exec() {
    let (Ok(handed), Ok(pool)) = (std::env::var(HANDED), std::env::var(POOL)) else {
        return;
    };
    let (handed, file) = handed.split_once(' ').unwrap();
    let path = Path::new(&pool);
    let fs = Fs::open_after_exec(path, &OpenOptions::default(), handed).unwrap();
    let file = pmfs::FileId::from_number(file.parse().unwrap());
    let state = fs.file(file).unwrap();
    assert_eq!((state.offset, state.flags), (6, 7));
    let mut rest = [0; 16];
    assert_eq!(fs.read_file(file, &mut rest).unwrap(), 4);
    assert_eq!(&rest[..4], b"6789");
    // The lock is still this process's: another owner is refused.
    let other = open(path);
    let refused = other.lock(state.ino, POSIX, LockKind::Read, LockRange::WHOLE, 9);
    assert!(matches!(refused, Err(Error::WouldBlock)));
    other.close().unwrap();
    fs.lock(state.ino, POSIX, LockKind::Read, LockRange::WHOLE, 5)
        .unwrap();
    assert!(Fs::open_after_exec(path, &OpenOptions::default(), "1:2:x").is_err());
    assert!(Fs::open_after_exec(path, &OpenOptions::default(), "900:1:0:1").is_err());
}
