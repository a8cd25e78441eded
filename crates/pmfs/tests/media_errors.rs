//! Media errors: a page that can't be read costs what stands in it, and nothing else.

mod scratch;

use pmfs::{Fs, OpenOptions, ROOT_INO};
use scratch::{NODE, Scratch};
use std::path::{Path, PathBuf};
use tempfile::TempDir;

const BLOCK: usize = 4096;
const EIO: i32 = 5;

fn pool() -> (TempDir, PathBuf) {
    let Scratch { dir, path } = Scratch::new(16 << 20);
    (dir, path)
}

/// A pool with a file of ten blocks, and where its blocks are.
fn with_file(path: &Path) -> (Fs, u64, Vec<u64>) {
    let fs = Fs::open(path, &OpenOptions::default()).unwrap();
    let ino = fs.create(ROOT_INO, b"file", &NODE).unwrap().ino;
    fs.write(ino, 0, &[7; 10 * BLOCK]).unwrap();
    fs.hold(ino).unwrap();
    fs.pin(ino, false).unwrap();
    let runs = fs.blocks(ino, 0, 10 * BLOCK as u64, 0).unwrap();
    fs.unpin(ino).unwrap();
    let blocks = runs
        .iter()
        .flat_map(|run| (run.off..run.off + run.len).step_by(BLOCK))
        .collect();
    (fs, ino, blocks)
}

fn errno<T>(answer: pmfs::Result<T>) -> Option<i32> {
    answer.err().map(|error| error.errno().raw_os_error())
}

/// Where an inode stands in the pool.
fn place_of(fs: &Fs, ino: u64) -> u64 {
    let mut blocks = (0..fs.mapping().len()).step_by(BLOCK);
    let holds = |off: &u64| {
        let name = fs.name_of(*off);
        let first = name
            .strip_prefix("inode ")
            .and_then(|first| first.parse::<u64>().ok());
        first.is_some_and(|first| (first..first + 32).contains(&ino))
    };
    blocks.find(holds).unwrap() + ino % 32 * 128
}

/// `false`: this kernel has no such errors to give.
fn poison(fs: &Fs, off: u64) -> bool {
    match fs.mapping().poison(off) {
        Ok(()) => true,
        Err(error) => {
            eprintln!("skipped: no UFFDIO_POISON here: {error}");
            false
        }
    }
}

#[test]
fn a_bad_block_of_data_costs_that_block() {
    let (_dir, path) = pool();
    let (fs, ino, blocks) = with_file(&path);
    if !poison(&fs, blocks[4]) {
        return;
    }
    let mut got = [0; 10 * BLOCK];
    // What comes before is read; from there on nothing is.
    assert_eq!(fs.read(ino, 0, &mut got).unwrap(), 4 * BLOCK);
    assert_eq!(got[..4 * BLOCK], [7; 4 * BLOCK]);
    assert_eq!(errno(fs.read(ino, 4 * BLOCK as u64, &mut got)), Some(EIO));
    assert_eq!(fs.read(ino, 5 * BLOCK as u64, &mut got).unwrap(), 5 * BLOCK);
    // Everything else goes on, and the block can be written over.
    fs.create(ROOT_INO, b"another", &NODE).unwrap();
    assert_eq!(
        errno(fs.write(ino, 4 * BLOCK as u64 + 1, &[8; 1000])),
        Some(EIO)
    );
    fs.write(ino, 4 * BLOCK as u64, &[9; BLOCK]).unwrap();
    assert_eq!(fs.read(ino, 0, &mut got).unwrap(), 10 * BLOCK);
    assert_eq!(got[4 * BLOCK..5 * BLOCK], [9; BLOCK]);
    fs.unlink(ROOT_INO, b"another").unwrap();
}

#[test]
fn bad_blocks_are_found_and_named() {
    let (_dir, path) = pool();
    let (fs, _, blocks) = with_file(&path);
    let free = (fs.mapping().len() / 2) & !0xfff;
    for off in [blocks[2], blocks[9], free] {
        if !poison(&fs, off) {
            return;
        }
    }
    let bad = fs.bad_blocks(&mut |_, _| {}).unwrap();
    let what: Vec<&str> = bad.iter().map(|bad| bad.what.as_str()).collect();
    assert!(what.contains(&"bytes 8192 to 12287 of /file"), "{what:?}");
    assert!(what.contains(&"bytes 36864 to 40959 of /file"), "{what:?}");
    assert!(what.contains(&"free space") && what.len() == 3, "{what:?}");
}

/// What was to be logged can't be read: nothing of the call is done, nothing is logged that would be damage if it were undone, and
/// whoever comes next finds the pool as it was.
#[test]
fn a_bad_page_under_a_transaction_changes_nothing() {
    let (_dir, path) = pool();
    let (fs, ino, _) = with_file(&path);
    let other = fs.create(ROOT_INO, b"other", &NODE).unwrap().ino;
    let before = fs.getattr(other).unwrap();
    // The inode's own line: a chmod logs it.
    let inode = place_of(&fs, ino);
    if !poison(&fs, inode) {
        return;
    }
    let set = pmfs::SetAttr {
        mode: Some(0o600),
        uid: Some(7),
        ..pmfs::SetAttr::default()
    };
    assert_eq!(errno(fs.setattr(ino, &set)), Some(EIO));
    // This attachment has lost its mapping, loudly.
    assert_eq!(errno(fs.getattr(other)), Some(EIO));
    drop(fs);
    let fs = Fs::open(&path, &OpenOptions::default()).unwrap();
    assert_eq!(fs.getattr(other).unwrap(), before);
    assert_eq!(fs.getattr(ino).unwrap().mode & 0o777, 0o644);
    assert!(fs.check().unwrap().is_clean());
}

/// A file that was cut short is no bad block: what is left of the pool takes nothing more.
#[test]
fn a_pool_that_was_cut_takes_no_more() {
    let (_dir, path) = pool();
    let (fs, ino, blocks) = with_file(&path);
    let last = *blocks.iter().max().unwrap();
    let file = std::fs::OpenOptions::new().write(true).open(&path);
    file.unwrap().set_len(last).unwrap();
    let at = blocks.iter().position(|block| *block == last).unwrap();
    let mut got = [0; BLOCK];
    let read = fs.read(ino, (at * BLOCK) as u64, &mut got);
    assert_eq!(errno(read), Some(EIO));
    let made = fs.create(ROOT_INO, b"another", &NODE);
    assert_eq!(errno(made), Some(EIO));
}
