//! Goal: a grown pool has its files and the new room; growing that is cut short leaves the pool as
//! before or as after. Method: the model's own check after each growing; every combination of torn
//! superblock lines. (Kills after each barrier are in the command's tests.)

use pmfs::{Error, Fs, NewNode, OpenOptions, ROOT_INO};
use pmfs_admin::{Admin, MkfsOptions, grow};
use std::path::Path;

const NODE: NewNode = NewNode {
    mode: 0o644,
    uid: 1,
    gid: 2,
    umask: 0,
};

fn open(path: &Path) -> Fs {
    Fs::open(path, &OpenOptions::default()).unwrap()
}

fn make(path: &Path, size: u64) {
    let options = MkfsOptions {
        size: Some(size),
        ..MkfsOptions::default()
    };
    pmfs_admin::mkfs(path, &options).unwrap();
}

/// Fills the pool with files of 64 KiB until there is no room; answers how many there are in all.
fn fill(path: &Path, from: u64) -> u64 {
    let fs = open(path);
    let mut number = from;
    loop {
        let name = format!("file-{number}");
        let Ok(file) = fs.create(ROOT_INO, name.as_bytes(), &NODE) else {
            break;
        };
        let content = vec![number as u8; 1 << 16];
        if !matches!(fs.write(file.ino, 0, &content), Ok(65536)) {
            fs.unlink(ROOT_INO, name.as_bytes()).unwrap();
            break;
        }
        number += 1;
    }
    fs.close().unwrap();
    number
}

fn verify(path: &Path, files: u64) {
    let fs = open(path);
    assert_eq!(fs.check().unwrap().findings, []);
    for number in 0..files {
        let name = format!("file-{number}");
        let attr = fs.lookup(ROOT_INO, name.as_bytes()).unwrap();
        let mut content = vec![0; 1 << 16];
        assert_eq!(fs.read(attr.ino, 0, &mut content).unwrap(), 1 << 16);
        assert!(content.iter().all(|&byte| byte == number as u8), "{name}");
    }
    fs.close().unwrap();
}

#[test]
fn growing_again_and_again_gives_room() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("pool");
    let mut size = 2 << 20;
    make(&path, size);
    let mut files = fill(&path, 0);
    for times in [2, 3, 2, 5] {
        let (old, before) = (size, files);
        size *= times;
        let free = open(&path).info();
        let report = grow(&path, size, false, &mut |_, _| {}).unwrap();
        assert_eq!(report.old_size, old);
        assert_eq!(report.info.size, size);
        assert_eq!(std::fs::metadata(&path).unwrap().len(), size);
        assert!(report.info.inodes >= free.inodes * times - 64, "{report:?}");
        verify(&path, files);
        files = fill(&path, files);
        // All but the tables of what was added, and perhaps the reserve, holds files.
        let room = ((size - old) * 7 / 10) >> 16;
        assert!(files - before >= room, "{} of {room} files", files - before);
        verify(&path, files);
    }
    // Once more to the same size: nothing to do.
    grow(&path, size, false, &mut |_, _| {}).unwrap();
    verify(&path, files);
    // The copy is as after power loss, when the tables have to be found again by walking.
    let copy = dir.path().join("copy");
    std::fs::copy(&path, &copy).unwrap();
    std::mem::forget(open(&path));
    verify(&copy, files);
}

#[test]
fn what_can_not_be_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("pool");
    make(&path, 8 << 20);
    let before = std::fs::metadata(&path).unwrap().len();
    for size in [4 << 20, (8 << 20) + 4096, 32 << 40] {
        let error = grow(&path, size, false, &mut |_, _| {}).unwrap_err();
        assert!(matches!(error, Error::Geometry(_)), "{size}: {error}");
    }
    let fs = open(&path);
    let error = grow(&path, 16 << 20, false, &mut |_, _| {}).unwrap_err();
    assert!(matches!(error, Error::Held { .. }), "{error}");
    fs.close().unwrap();
    assert_eq!(std::fs::metadata(&path).unwrap().len(), before);
    verify(&path, 0);
}

/// The 256 bytes of block 0 are four lines, each of which power loss may leave old or new; the copy
/// at the end is whole by then. The first growing is from mkfs's layout, the second from a grown
/// one.
#[test]
fn torn_superblocks() {
    let dir = tempfile::tempdir().unwrap();
    let (path, torn) = (dir.path().join("pool"), dir.path().join("torn"));
    make(&path, 2 << 20);
    let files = fill(&path, 0);
    for size in [4 << 20, 9 << 20] {
        let old = std::fs::read(&path).unwrap();
        grow(&path, size, false, &mut |_, _| {}).unwrap();
        let new = std::fs::read(&path).unwrap();
        for lines in 0..16 {
            // The old image tells what the trees are; the longer file's end is in the new one.
            let mut image = old.clone();
            image.resize(size as usize, 0);
            let end = size as usize - 4096;
            image[end..].copy_from_slice(&new[end..]);
            // Neither state nor run record vouch for the runtime area at that point.
            image[512..640].fill(0);
            for line in (0..4).filter(|line| lines >> line & 1 == 1) {
                let range = line * 64..line * 64 + 64;
                image[range.clone()].copy_from_slice(&new[range]);
            }
            std::fs::write(&torn, &image).unwrap();
            let fs = open(&torn);
            let grown = fs.info().size;
            assert!(grown == size || grown == old.len() as u64, "{lines:04b}");
            for finding in fs.check().unwrap().findings {
                // The superblock, its copy: what a second growing puts right.
                assert!(finding.number <= 2, "{lines:04b}: {finding}");
            }
            fs.close().unwrap();
            grow(&torn, size, false, &mut |_, _| {}).unwrap();
            verify(&torn, files);
        }
    }
}
