//! Goal: tables of open files and file locks that need more room than mkfs gave them get blocks of
//! the pool, which it has again when all have left, or are dead. Method: many times what there is
//! room for, by several instances; what is free before and after.

mod scratch;

use pmfs::{
    Error, FileId, Fs, LockClass, LockKind, LockOwner, LockRange, ROOT_INO, RecoveryKind, SetAttr,
};
use pmfs_admin::{Admin, MkfsOptions};
use scratch::{NODE, Scratch};
use std::io::SeekFrom;

const POSIX: LockOwner = LockOwner {
    class: LockClass::Posix,
    id: 1,
};

fn bytes(start: u64, end: u64) -> LockRange {
    LockRange { start, end }
}

/// An empty file of this name.
fn file(fs: &Fs, name: &[u8]) -> u64 {
    fs.create(ROOT_INO, name, &NODE).unwrap().ino
}

fn open(fs: &Fs, ino: u64, count: u64) -> Vec<FileId> {
    (0..count).map(|_| fs.open_file(ino, 0).unwrap()).collect()
}

/// No finding, while it is in use.
fn sound(fs: &Fs) {
    let report = fs.check().unwrap();
    assert!(report.is_clean(), "{:#?}", report.findings);
}

/// Locks of bytes 0 to 2 of each four.
fn lock_many(fs: &Fs, ino: u64, count: u64) {
    for at in 0..count {
        let range = bytes(at * 4, at * 4 + 2);
        fs.lock(ino, POSIX, LockKind::Write, range, 1).unwrap();
    }
}

/// A small pool whose tables have room for 512 open files, with nothing in it.
fn bench() -> Scratch {
    Scratch::new(64 << 20)
}

#[test]
fn many_open_files() {
    let scratch = bench();
    let fs = scratch.open();
    let ino = file(&fs, b"file");
    let before = fs.info().blocks_free;
    let files = open(&fs, ino, 20_000);
    for (at, &file) in files.iter().enumerate() {
        fs.seek_file(file, SeekFrom::Start(at as u64)).unwrap();
    }
    assert_eq!(fs.details().open_files, 20_000);
    let other = scratch.open();
    let theirs = open(&other, ino, 1000);
    let at = |&file: &FileId| fs.file(file).unwrap().offset;
    assert!(files.iter().map(at).eq(0..20_000));
    sound(&fs);
    // A file without a name lives with the last of them.
    fs.unlink(ROOT_INO, b"file").unwrap();
    for file in files {
        fs.close_file(file).unwrap();
        assert!(fs.file(file).is_err());
    }
    assert!(fs.getattr(ino).is_ok());
    for file in theirs {
        other.close_file(file).unwrap();
    }
    assert!(fs.getattr(ino).is_err());
    sound(&other);
    fs.close().unwrap();
    other.close().unwrap();
    let again = scratch.open();
    assert_eq!(again.recovery().kind, RecoveryKind::None);
    assert!(again.info().blocks_free >= before);
    sound(&again);
}

#[test]
fn many_files_held() {
    let scratch = bench();
    let fs = scratch.open();
    let names: Vec<String> = (0..6000).map(|at| format!("file-{at}")).collect();
    let inos: Vec<u64> = names
        .iter()
        .map(|name| file(&fs, name.as_bytes()))
        .collect();
    for &ino in &inos {
        fs.hold(ino).unwrap();
    }
    let other = scratch.open();
    for name in &names {
        other.unlink(ROOT_INO, name.as_bytes()).unwrap();
    }
    assert!(inos.iter().all(|&ino| fs.getattr(ino).is_ok()));
    sound(&other);
    // The end of the process is found in the annexes, too.
    drop(fs);
    other.recover_dead().unwrap();
    assert!(inos.iter().all(|&ino| other.getattr(ino).is_err()));
    sound(&other);
}

#[test]
fn many_file_locks() {
    let scratch = bench();
    let (fs, other) = (scratch.open(), scratch.open());
    let ino = file(&fs, b"file");
    let before = fs.info().blocks_free;
    let count = 2000;
    lock_many(&fs, ino, count);
    for at in 0..count {
        fs.unlock(ino, POSIX, bytes(at * 4 + 1, at * 4 + 1))
            .unwrap();
    }
    assert_eq!(fs.details().file_locks, 2 * count);
    for at in [0, 777, count - 1] {
        let lock = |byte: u64| {
            let range = bytes(at * 4 + byte, at * 4 + byte);
            other.lock(ino, POSIX, LockKind::Write, range, 2)
        };
        assert!(matches!(lock(0), Err(Error::WouldBlock)));
        assert!(matches!(lock(2), Err(Error::WouldBlock)));
        lock(1).unwrap();
    }
    sound(&other);
    fs.unlock_all(ino, POSIX).unwrap();
    assert_eq!(fs.details().file_locks, 3);
    sound(&fs);
    fs.close().unwrap();
    other.close().unwrap();
    let again = scratch.open();
    assert_eq!(again.recovery().kind, RecoveryKind::None);
    assert_eq!(again.info().blocks_free, before);
    sound(&again);
}

/// The dead's entries in annexes go, and those of others there stay.
#[test]
fn annexes_of_the_dead() {
    let scratch = bench();
    let (fs, other) = (scratch.open(), scratch.open());
    let ino = file(&other, b"file");
    let before = other.info().blocks_free;
    open(&fs, ino, 3000);
    lock_many(&fs, ino, 600);
    let kept = open(&other, ino, 700);
    drop(fs);
    assert_eq!(other.recover_dead().unwrap(), 1);
    let details = other.details();
    assert_eq!((details.open_files, details.file_locks), (700, 0));
    sound(&other);
    assert!(kept.iter().all(|&file| other.file(file).is_ok()));
    // The last one dies, too: the next opener need not walk.
    drop(other);
    let again = scratch.open();
    assert_eq!(again.recovery().kind, RecoveryKind::Slots);
    assert_eq!(again.info().blocks_free, before);
    assert_eq!(again.details().open_files, 0);
    sound(&again);
}

/// A pool without a free block has the tables that it has, and unlocking goes through.
#[test]
fn no_block_for_an_annex() {
    let scratch = bench();
    let fs = scratch.open();
    let ino = file(&fs, b"file");
    let mut len = 0;
    for piece in [1 << 20, 4096] {
        while let Ok(written @ 1..) = fs.write(ino, len, &vec![1; piece]) {
            len += written as u64;
        }
    }
    let mut files = Vec::new();
    let refused = loop {
        match fs.open_file(ino, 0) {
            Ok(file) => files.push(file),
            Err(error) => break error,
        }
    };
    assert!(matches!(refused, Error::TooManyOpen));
    assert!((400..=1024).contains(&files.len()), "{}", files.len());
    fs.close_file(files.pop().unwrap()).unwrap();
    files.push(fs.open_file(ino, 0).unwrap());
    sound(&fs);
    // Room for more, as soon as there is a block.
    let shorter = SetAttr {
        size: Some(len - (1 << 20)),
        ..SetAttr::default()
    };
    fs.setattr(ino, &shorter).unwrap();
    files.extend(open(&fs, ino, 1000));
    sound(&fs);
    for file in files {
        fs.close_file(file).unwrap();
    }
}

/// The open files are as many as Linux lets one process have.
#[test]
fn a_million_open_files() {
    let scratch = Scratch::with(MkfsOptions {
        size: Some(400 << 20),
        ..MkfsOptions::default()
    });
    let fs = scratch.open();
    let ino = file(&fs, b"file");
    let before = fs.info().blocks_free;
    let files = open(&fs, ino, 1 << 20);
    assert!(fs.info().open_files >= 1 << 20);
    let used = before - fs.info().blocks_free;
    println!("{used} blocks for {} files", files.len());
    assert_eq!(fs.details().open_files, 1 << 20);
    for file in files {
        fs.close_file(file).unwrap();
    }
    assert_eq!(fs.details().open_files, 0);
    fs.close().unwrap();
    let again = scratch.open();
    assert_eq!(again.info().blocks_free, before);
    sound(&again);
}
