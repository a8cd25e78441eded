//! Goal: a clone of a tree is that tree, as it was at one instant, and is there whole or not at
//! all. Method: a tree with all kinds of files; writers beside the clone; pools without room.

#[path = "../../pmfs/tests/scratch/mod.rs"]
mod scratch;
mod tree;

use pmfs::types::{SetTime, mode};
use pmfs::{Error, Fs, Ino, NewNode, OpenOptions, ROOT_INO, SetAttr, XattrFlags};
use pmfs_admin::Admin;
use scratch::{NODE, Scratch};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tree::{dir, file, names, open, seen, tree};

/// A default ACL: all for owner and group, nothing for others.
const ACL: &[u8] = &[
    2, 0, 0, 0, // version
    1, 0, 7, 0, 255, 255, 255, 255, // owner
    4, 0, 7, 0, 255, 255, 255, 255, // group
    32, 0, 0, 0, 255, 255, 255, 255, // others
];

fn time(fs: &Fs, ino: Ino, ns: i64) {
    let set = SetAttr {
        atime_ns: Some(SetTime::At(ns)),
        mtime_ns: Some(SetTime::At(ns + 1)),
        ..SetAttr::default()
    };
    fs.setattr(ino, &set).unwrap();
}

/// A tree with all that a name can stand for.
fn all_kinds(fs: &Fs) -> Ino {
    let top = dir(fs, ROOT_INO, "top", 0o2750);
    let inner = dir(fs, top, "inner", 0o1700);
    file(fs, inner, "small", b"small");
    let large = file(fs, inner, "large", &vec![7; 3 << 20]);
    let sparse = file(fs, top, "sparse", b"begin");
    fs.write(sparse, 5 << 20, b"end").unwrap();
    let longer = SetAttr {
        size: Some(9 << 20),
        ..SetAttr::default()
    };
    fs.setattr(sparse, &longer).unwrap();
    fs.link(large, top, b"large too").unwrap();
    fs.symlink(top, b"link", b"inner/small", &NODE).unwrap();
    fs.symlink(top, b"long link", &[b'l'; 900], &NODE).unwrap();
    fs.mknod(top, b"pipe", &NODE, mode::S_IFIFO, 0).unwrap();
    fs.mknod(top, b"disk", &NODE, mode::S_IFBLK, 0x801).unwrap();
    let suid = NewNode {
        mode: 0o6755,
        uid: 3,
        gid: 4,
        umask: 0,
    };
    fs.create(top, b"suid", &suid).unwrap();
    fs.setxattr(inner, b"user.long", &[8; 5000], XattrFlags::empty())
        .unwrap();
    fs.setxattr(large, b"user.a", b"b", XattrFlags::empty())
        .unwrap();
    fs.setxattr(top, b"system.posix_acl_default", ACL, XattrFlags::empty())
        .unwrap();
    file(fs, top, "by default", b"");
    for (at, ino) in [top, inner, large, sparse].into_iter().enumerate() {
        time(fs, ino, 1_000_000_000 * (at as i64 + 1));
    }
    top
}

/// Goal: the clone has all that the tree has, is its own, and costs no blocks of data.
#[test]
fn a_clone_is_the_tree() {
    let scratch = Scratch::new(64 << 20);
    let fs = open(&scratch);
    let top = all_kinds(&fs);
    let before = tree(&fs, top);
    let free = fs.statfs().unwrap().blocks_free;
    let report = fs.clone_tree(top, ROOT_INO, b"copy").unwrap();
    assert_eq!((report.files, report.directories), (6, 2), "{report:?}");
    assert_eq!((report.symlinks, report.others), (2, 2), "{report:?}");
    assert_eq!(
        (report.bytes, report.copied),
        ((3 << 20) + (9 << 20) + 5, 0)
    );
    let taken = free - fs.statfs().unwrap().blocks_free;
    assert!(taken < 40, "{taken} blocks");
    let copy = fs.lookup(ROOT_INO, b"copy").unwrap().ino;
    assert_eq!(tree(&fs, copy), before);
    assert_eq!(tree(&fs, top), before, "the clone left the tree alone");
    let large = fs.lookup(copy, b"large too").unwrap();
    fs.write(large.ino, 0, &[9; 9000]).unwrap();
    assert_eq!(tree(&fs, top), before, "and changes nothing of it later");
    let mut there = names(&fs, ROOT_INO);
    there.sort();
    assert_eq!(there, ["copy", "top"]);
    fs.close().unwrap();
    assert!(scratch.is_sound());
}

/// Goal: any inode can be cloned to any place, and nothing is cloned over what is there.
#[test]
fn places() {
    let scratch = Scratch::new(64 << 20);
    let fs = open(&scratch);
    let top = all_kinds(&fs);
    let before = tree(&fs, top);
    for name in ["sparse", "link", "pipe"] {
        let attr = fs.lookup(top, name.as_bytes()).unwrap();
        fs.clone_tree(attr.ino, ROOT_INO, name.as_bytes()).unwrap();
        let copy = fs.lookup(ROOT_INO, name.as_bytes()).unwrap();
        assert_eq!(seen(&fs, &copy), seen(&fs, &attr), "{name}");
    }
    let there = fs.clone_tree(top, ROOT_INO, b"link");
    assert!(matches!(there, Err(Error::Exists)), "{there:?}");
    // Into itself: as it was before.
    fs.clone_tree(top, top, b"itself").unwrap();
    let itself = fs.lookup(top, b"itself").unwrap().ino;
    let inside: Vec<_> = tree(&fs, itself).into_keys().collect();
    assert_eq!(inside, before.into_keys().collect::<Vec<_>>());
    fs.clone_tree(ROOT_INO, ROOT_INO, b"all").unwrap();
    let all = fs.lookup(ROOT_INO, b"all").unwrap().ino;
    assert_eq!(names(&fs, all).len(), 4);
    let long = fs.clone_tree(top, ROOT_INO, &[b'n'; 256]);
    assert!(matches!(long, Err(Error::NameTooLong)), "{long:?}");
    let gone = fs.clone_tree(999_999, ROOT_INO, b"gone");
    assert!(gone.is_err(), "{gone:?}");
    let file = fs.lookup(top, b"suid").unwrap().ino;
    let below = fs.clone_tree(top, file, b"below");
    assert!(matches!(below, Err(Error::NotDirectory)), "{below:?}");
    assert!(
        names(&fs, ROOT_INO)
            .iter()
            .all(|name| !name.starts_with('.'))
    );
    fs.close().unwrap();
    assert!(scratch.is_sound());
}

/// Goal: a clone without room leaves nothing behind, and says why.
#[test]
fn no_room() {
    let scratch = Scratch::new(4 << 20);
    let fs = open(&scratch);
    let top = dir(&fs, ROOT_INO, "top", 0o755);
    for number in 0..200 {
        file(&fs, top, &format!("file-{number}"), &[number; 3000]);
    }
    let filler = file(&fs, ROOT_INO, "filler", b"");
    while fs.append(filler, &[1; 4096]).is_ok() {}
    let before = fs.statfs().unwrap();
    let full = fs.clone_tree(top, ROOT_INO, b"copy");
    assert!(
        matches!(full, Err(Error::NoSpace | Error::NoInodes)),
        "{full:?}"
    );
    let mut there = names(&fs, ROOT_INO);
    there.sort();
    assert_eq!(there, ["filler", "top"]);
    assert_eq!(fs.statfs().unwrap().inodes_free, before.inodes_free);
    fs.close().unwrap();
    assert!(scratch.is_sound());
}

/// Goal: the staging directories of others are no part of a clone, the next clone beside them
/// removes those of the dead, and nothing else that has such a name.
#[test]
fn staging_directories_of_others() {
    let scratch = Scratch::new(16 << 20);
    let fs = open(&scratch);
    let top = dir(&fs, ROOT_INO, "top", 0o755);
    for name in [".pmfs-clone-7-0", ".pmfs-clone-8-0", ".pmfs-clone-9-1"] {
        let staging = dir(&fs, top, name, 0o700);
        let tree = dir(&fs, staging, "tree", 0o755);
        file(&fs, tree, "half", b"of it");
        fs.setxattr(staging, b"user.pmfs.staging", b"", XattrFlags::empty())
            .unwrap();
    }
    let living = fs.lookup(top, b".pmfs-clone-8-0").unwrap().ino;
    fs.hold(living).unwrap();
    dir(&fs, top, ".pmfs-clone-10-0", 0o700);
    for name in [".pmfs-clone-11-0", ".pmfs-clone-mine", ".pmfs-clone-1-2-3"] {
        let own = dir(&fs, top, name, 0o700);
        file(&fs, own, "mine", b"kept");
    }
    fs.clone_tree(top, ROOT_INO, b"copy").unwrap();
    let copy = fs.lookup(ROOT_INO, b"copy").unwrap().ino;
    let own = [".pmfs-clone-1-2-3", ".pmfs-clone-11-0", ".pmfs-clone-mine"];
    let sorted = |dir| {
        let mut there = names(&fs, dir);
        there.sort();
        there
    };
    fn with<'n>(own: &[&'n str], more: &[&'n str]) -> Vec<&'n str> {
        let mut expected = [own, more].concat();
        expected.sort_unstable();
        expected
    }
    assert_eq!(sorted(copy), with(&own, &[".pmfs-clone-10-0"]));
    file(&fs, ROOT_INO, "file", b"more");
    let more = fs.lookup(ROOT_INO, b"file").unwrap().ino;
    fs.clone_tree(more, top, b"more").unwrap();
    assert_eq!(sorted(top), with(&own, &[".pmfs-clone-8-0", "more"]));
    fs.release(living).unwrap();
    fs.clone_tree(more, top, b"again").unwrap();
    assert_eq!(sorted(top), with(&own, &["again", "more"]));
    fs.close().unwrap();
    assert!(scratch.is_sound());
}

/// Goal: files of a block take inodes and names alone.
#[test]
fn small_files_take_no_blocks() {
    let scratch = Scratch::new(16 << 20);
    let fs = open(&scratch);
    let top = dir(&fs, ROOT_INO, "top", 0o755);
    for number in 0..300 {
        file(&fs, top, &format!("file-{number}"), &[1; 4000]);
    }
    let free = fs.statfs().unwrap().blocks_free;
    fs.clone_tree(top, ROOT_INO, b"copy").unwrap();
    let taken = free - fs.statfs().unwrap().blocks_free;
    assert!(taken < 40, "{taken} blocks for 300 inodes and names");
    fs.close().unwrap();
}

/// Goal: files of one node take 64 bytes at most beside inodes and names, which those of empty
/// files show.
#[test]
fn files_of_a_node_take_no_blocks() {
    const FILES: u64 = 1000;
    let taken_by = |bytes: usize| {
        let scratch = Scratch::new(128 << 20);
        let fs = open(&scratch);
        let top = dir(&fs, ROOT_INO, "top", 0o755);
        for number in 0..FILES {
            file(&fs, top, &format!("file-{number}"), &vec![1; bytes]);
        }
        let free = fs.statfs().unwrap().blocks_free;
        fs.clone_tree(top, ROOT_INO, b"copy").unwrap();
        let taken = free - fs.statfs().unwrap().blocks_free;
        fs.close().unwrap();
        assert!(scratch.is_sound());
        taken
    };
    let (with, without) = (taken_by(100_000), taken_by(0));
    let bytes = (with - without) * 4096;
    assert!(bytes <= 64 * FILES, "{bytes} bytes for {FILES} files");
}

/// Goal: an attachment that only reads clones nothing, and holds nobody up.
#[test]
fn readers_clone_nothing() {
    let scratch = Scratch::new(4 << 20);
    let fs = open(&scratch);
    let top = dir(&fs, ROOT_INO, "top", 0o755);
    let options = OpenOptions {
        read_only: true,
        ..OpenOptions::default()
    };
    let reader = Fs::open(&scratch.path, &options).unwrap();
    let refused = reader.clone_tree(top, ROOT_INO, b"copy");
    assert!(matches!(refused, Err(Error::ReadOnly)), "{refused:?}");
    file(&fs, top, "after", b"it");
    reader.close().unwrap();
    fs.close().unwrap();
}

/// Goal: a file that a program has mapped is copied.
#[test]
fn mapped_files_are_copied() {
    let scratch = Scratch::new(16 << 20);
    let fs = open(&scratch);
    let top = dir(&fs, ROOT_INO, "top", 0o755);
    let mapped = file(&fs, top, "mapped", &[3; 50_000]);
    fs.write(mapped, 2 << 20, &[4; 50_000]).unwrap();
    fs.pin(mapped, true).unwrap();
    let before = tree(&fs, top);
    let report = fs.clone_tree(top, ROOT_INO, b"copy").unwrap();
    assert_eq!((report.files, report.copied), (1, 1));
    let copy = fs.lookup(ROOT_INO, b"copy").unwrap().ino;
    assert_eq!(tree(&fs, copy), before);
    fs.unpin(mapped).unwrap();
    fs.close().unwrap();
    assert!(scratch.is_sound());
}

/// Goal: a clone is of one instant. Method: a writer counts in one file and then in another, which
/// is listed before a hundred more and comes first in the clone; the first is never behind.
#[test]
fn a_clone_is_of_one_instant() {
    let scratch = Scratch::new(32 << 20);
    let fs = open(&scratch);
    let top = dir(&fs, ROOT_INO, "top", 0o755);
    for number in 0..100 {
        file(&fs, top, &format!("file-{number}"), &0u64.to_le_bytes());
    }
    let listed = names(&fs, top);
    let [first, last] = [&listed[0], &listed[99]];
    let is_over = AtomicBool::new(false);
    let count = |dir: Ino, name: &str| {
        let mut bytes = [0; 8];
        let ino = fs.lookup(dir, name.as_bytes()).unwrap().ino;
        fs.read(ino, 0, &mut bytes).unwrap();
        u64::from_le_bytes(bytes)
    };
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let inos = [first, last].map(|name| fs.lookup(top, name.as_bytes()).unwrap().ino);
            let mut count = 1u64;
            while !is_over.load(Ordering::Relaxed) {
                for ino in inos {
                    fs.write(ino, 0, &count.to_le_bytes()).unwrap();
                }
                count += 1;
            }
        });
        let (mut seen, mut found) = (0, Vec::new());
        for number in 0..40 {
            let since = Instant::now();
            while count(top, last) == seen && since.elapsed() < Duration::from_secs(20) {
                std::thread::yield_now();
            }
            let name = format!("copy-{number}");
            fs.clone_tree(top, ROOT_INO, name.as_bytes()).unwrap();
            let copy = fs.lookup(ROOT_INO, name.as_bytes()).unwrap().ino;
            let [ahead, behind] = [first, last].map(|name| count(copy, name));
            found.push((ahead, behind));
            seen = behind;
        }
        is_over.store(true, Ordering::Relaxed);
        let is_one_instant = |&(ahead, behind): &(u64, u64)| ahead == behind || ahead == behind + 1;
        assert!(found.iter().all(is_one_instant), "{found:?}");
        let goes_on = found.windows(2).all(|two| two[0].1 < two[1].1);
        assert!(goes_on, "the writer goes on between the clones: {found:?}");
    });
    fs.close().unwrap();
    assert!(scratch.is_sound());
}
