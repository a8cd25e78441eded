//! A pool whose medium is emulated: what calls are charged is what pmem's counters have of them,
//! all who have the pool share its bandwidth, and it is left as clean as any other.

use std::path::Path;

use pmem::counters::snapshot;
use pmfs::{Emulation, Fs, Ino, MapOptions, NewNode, OpenOptions, ROOT_INO, RecoveryKind};
use pmfs_admin::{Inspector, MkfsOptions, PoolState};

const NODE: NewNode = NewNode {
    umask: 0,
    mode: 0o644,
    uid: 0,
    gid: 0,
};

fn of(text: &str) -> Emulation {
    text.parse().expect(text)
}

fn made(dir: &Path) -> std::path::PathBuf {
    let path = dir.join("pool");
    let options = MkfsOptions {
        size: Some(32 << 20),
        ..MkfsOptions::default()
    };
    pmfs_admin::mkfs(&path, &options).expect("a pool");
    path
}

fn open(path: &Path, emulate: Emulation) -> Fs {
    let options = OpenOptions {
        map: MapOptions {
            emulate,
            ..MapOptions::default()
        },
        ..OpenOptions::default()
    };
    Fs::open(path, &options).expect("it opens")
}

/// Two blocks.
fn file(fs: &Fs) -> Ino {
    let ino = fs.create(ROOT_INO, b"file", &NODE).expect("a file").ino;
    fs.write(ino, 0, &[1; 8192]).expect("room");
    ino
}

#[test]
fn calls_are_charged_what_they_do() {
    let dir = tempfile::tempdir().expect("a directory");
    let fs = open(
        &made(dir.path()),
        of("read=1ns,barrier=1ns,write-bandwidth=1T"),
    );
    let ino = file(&fs);
    let (counted, charged) = (snapshot(), fs.charged());
    fs.write(ino, 0, &[2; 4096]).expect("room");
    fs.create(ROOT_INO, b"other", &NODE).expect("a file");
    let (counted, after) = (snapshot() - counted, fs.charged());
    assert_eq!(after.barriers - charged.barriers, counted.fences);
    let lines = counted.lines_flushed + counted.nt_bytes / 64;
    assert_eq!(after.lines_written - charged.lines_written, lines);
    assert!(counted.fences > 0 && lines > 64);
    let mut block = [0; 4096];
    let before = fs.charged();
    fs.read(ino, 0, &mut block).expect("it is there");
    let lines = fs.charged().lines_read - before.lines_read;
    // The data's, and some of what leads there: inode, tree.
    assert!((65..100).contains(&lines), "{lines} lines");
    assert_eq!(fs.charged().barriers, before.barriers);
}

#[test]
fn who_emulates_what_is_told() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = made(dir.path());
    let media = [
        of("pmep-2014"),
        of("dram"),
        of("read=7ns"),
        of("device:optane-200,dimms=12,power=18W"),
    ];
    let all = media.map(|medium| open(&path, medium));
    let look = Inspector::open(&path).expect("a pool");
    let told: Vec<Emulation> = look
        .processes()
        .iter()
        .map(|process| process.emulates)
        .collect();
    assert_eq!(told, media);
    assert_eq!(all[1].charged(), Default::default());
    // The next one in a slot has its own.
    let [first, ..] = all;
    first.detach().expect("it leaves");
    let _again = open(&path, of("dram"));
    assert!(
        Inspector::open(&path).expect("a pool").processes()[0]
            .emulates
            .is_off()
    );
}

/// The word that all share is in the area whose sum a clean pool has in its superblock.
#[test]
fn it_is_left_clean() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = made(dir.path());
    for medium in [
        "write-bandwidth=1G",
        "device:optane-100,dimms=16",
        "write-bandwidth=1G",
        "device:optane-100,dimms=16",
        "dram",
    ] {
        let (one, other) = (open(&path, of(medium)), open(&path, of(medium)));
        assert_eq!(one.recovery().kind, RecoveryKind::None);
        let _ = one.unlink(ROOT_INO, b"file");
        file(&one);
        other.detach().expect("it leaves");
        one.detach().expect("it leaves");
        assert_eq!(
            Inspector::open(&path).expect("a pool").state(),
            PoolState::Clean
        );
    }
}
