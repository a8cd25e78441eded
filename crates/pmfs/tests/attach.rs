//! Goal: who may attach beside whom, and what they are told. Method: several instances in one
//! process, each with a slot and locks of its own; pools that look like another build's or another
//! name's.

mod scratch;

use pmfs::{Error, Fs, NewNode, OpenOptions, ROOT_INO, RecoveryKind};
use pmfs_admin::Admin;
use scratch::Scratch;
use std::path::Path;

const NODE: NewNode = NewNode {
    mode: 0o644,
    uid: 1,
    gid: 2,
    umask: 0,
};

fn open(path: &Path) -> Result<Fs, Error> {
    Fs::open(path, &OpenOptions::default())
}

fn alone(path: &Path) -> Result<Fs, Error> {
    let options = OpenOptions {
        exclusive: true,
        ..OpenOptions::default()
    };
    Fs::open(path, &options)
}

#[test]
fn one_who_wants_it_alone() {
    let bench = Scratch::new(4 << 20);
    let first = open(&bench.path).unwrap();
    assert!(matches!(alone(&bench.path), Err(Error::Held { .. })));
    first.close().unwrap();
    let only = alone(&bench.path).unwrap();
    assert!(matches!(open(&bench.path), Err(Error::Held { .. })));
    only.close().unwrap();
    open(&bench.path).unwrap().close().unwrap();
}

/// The last one to leave makes the pool clean; who comes after finds no work.
#[test]
fn last_closer() {
    let bench = Scratch::new(4 << 20);
    let first = open(&bench.path).unwrap();
    let second = open(&bench.path).unwrap();
    first.create(ROOT_INO, b"file", &NODE).unwrap();
    first.close().unwrap();
    second.lookup(ROOT_INO, b"file").unwrap();
    second.close().unwrap();
    let third = open(&bench.path).unwrap();
    assert_eq!(third.recovery().kind, RecoveryKind::None);
    assert_eq!(third.details().attached, 1);
    third.close().unwrap();
}

/// A copy of a pool in use is another file with the same history: nobody can tell that it is not
/// the same pool reached in another way, so it has to be said.
#[test]
fn a_copy_of_a_pool_in_use() {
    let bench = Scratch::new(4 << 20);
    let fs = open(&bench.path).unwrap();
    fs.create(ROOT_INO, b"file", &NODE).unwrap();
    let copy = bench.dir.path().join("copy");
    std::fs::copy(&bench.path, &copy).unwrap();
    assert!(matches!(open(&copy), Err(Error::Elsewhere)));
    let options = OpenOptions {
        exclusive: true,
        adopt: true,
        ..OpenOptions::default()
    };
    let adopted = Fs::open(&copy, &options).unwrap();
    assert_eq!(adopted.recovery().kind, RecoveryKind::Walk);
    adopted.lookup(ROOT_INO, b"file").unwrap();
    adopted.close().unwrap();
    // Clean, it is a pool like any other.
    open(&copy).unwrap().close().unwrap();
    fs.close().unwrap();
}

/// Every slot taken: refused with the number, and free again when one leaves or dies.
#[test]
fn a_full_slot_table() {
    let bench = Scratch::new(4 << 20);
    let mut all = Vec::new();
    let slots = loop {
        match open(&bench.path) {
            Ok(fs) => all.push(fs),
            Err(Error::TooManyProcesses { slots }) => break slots,
            Err(error) => panic!("{error}"),
        }
    };
    assert_eq!(slots, all.len() as u64);
    all.pop().unwrap().close().unwrap();
    all.push(open(&bench.path).unwrap());
    // The last one goes as one that is killed.
    drop(all.pop());
    all.push(open(&bench.path).unwrap());
    for fs in all {
        fs.close().unwrap();
    }
    assert_eq!(open(&bench.path).unwrap().details().attached, 1);
}

/// The pool's file is cut short under two who have it: calls that need what is gone fail, with the
/// cause, and nobody crashes or hangs.
#[test]
fn a_pool_that_is_cut_short() {
    let bench = Scratch::new(16 << 20);
    let first = open(&bench.path).unwrap();
    let second = open(&bench.path).unwrap();
    let ino = first.create(ROOT_INO, b"file", &NODE).unwrap().ino;
    for block in 0..2000 {
        first.write(ino, block * 4096, &[7; 4096]).unwrap();
    }
    let file = std::fs::OpenOptions::new()
        .write(true)
        .open(&bench.path)
        .unwrap();
    file.set_len(4 << 20).unwrap();
    let mut gone = 0;
    for block in 0..2000 {
        for fs in [&first, &second] {
            match fs.read(ino, block * 4096, &mut [0; 4096]) {
                Ok(read) => assert_eq!(read, 4096),
                Err(Error::Medium { .. }) => gone += 1,
                Err(error) => panic!("{error}"),
            }
        }
    }
    assert!(gone > 0);
    assert!(matches!(
        first.write(ino, 0, &[8; 10_000]),
        Err(Error::Medium { .. })
    ));
    // Both can leave, and the next opener is told what is wrong.
    let _ = first.close();
    let _ = second.close();
    let error = open(&bench.path).err().expect("half of it is not there");
    assert!(error.to_string().contains("shorter"), "{error}");
}

/// The pool's file is deleted under two who have it: they go on with it, and who comes next finds
/// none.
#[test]
fn a_pool_that_is_deleted() {
    let bench = Scratch::new(4 << 20);
    let first = open(&bench.path).unwrap();
    let second = open(&bench.path).unwrap();
    std::fs::remove_file(&bench.path).unwrap();
    let ino = first.create(ROOT_INO, b"file", &NODE).unwrap().ino;
    assert_eq!(second.lookup(ROOT_INO, b"file").unwrap().ino, ino);
    assert!(open(&bench.path).is_err());
    first.write(ino, 0, b"still here").unwrap();
    // To leave takes the attach lock, by the file's name.
    let answers = [first.close(), second.close()];
    assert!(answers.iter().all(Result::is_err), "{answers:?}");
}

/// A full table of open files refuses, and the next close makes room.
#[test]
fn a_full_table_of_open_files() {
    let bench = Scratch::new(4 << 20);
    let fs = open(&bench.path).unwrap();
    let ino = fs.create(ROOT_INO, b"file", &NODE).unwrap().ino;
    let mut files = Vec::new();
    while let Ok(file) = fs.open_file(ino, 0) {
        files.push(file);
        assert!(files.len() < 100_000);
    }
    assert!(matches!(fs.open_file(ino, 0), Err(Error::TooManyOpen)));
    fs.close_file(files.pop().unwrap()).unwrap();
    files.push(fs.open_file(ino, 0).unwrap());
    for file in files {
        fs.close_file(file).unwrap();
    }
    assert_eq!(fs.details().open_files, 0);
    assert_eq!(fs.check().unwrap().findings, []);
    fs.close().unwrap();
}

/// A child that is forked at the moment in which a lock is taken has a copy of it until it becomes
/// another program: on a closed pool such a lock is nobody's.
#[test]
fn a_lock_that_outlives_its_holder() {
    use pmfs_format::superblock::{STATE_ACTIVE, STATE_OFFSET};
    use std::os::unix::fs::FileExt;
    const POOL_BYTE: u64 = (1 << 62) + 1;
    let bench = Scratch::new(4 << 20);
    let left = pmem::slots::ByteLock::try_shared(&bench.path, POOL_BYTE).unwrap();
    assert!(left.is_some());
    let fs = open(&bench.path).unwrap();
    let mut state = [0; 8];
    let file = std::fs::File::open(&bench.path).unwrap();
    file.read_exact_at(&mut state, STATE_OFFSET).unwrap();
    assert_eq!(
        u64::from_le_bytes(state),
        STATE_ACTIVE,
        "as its first opener"
    );
    drop(left);
    fs.close().unwrap();
}
