//! A lane's spare block: what an overwrite leaves is what the next one fills, so that overwriting
//! touches no bitmap.

mod scratch;

use pmfs::{FreePages, Fs, OpenOptions, ROOT_INO};
use pmfs_admin::Admin;
use scratch::{NODE, Scratch};
use std::path::{Path, PathBuf};
use tempfile::TempDir;

const BLOCK: usize = 4096;
const BLOCKS: u64 = 300;

fn pool() -> (TempDir, PathBuf) {
    let Scratch { dir, path } = Scratch::new(16 << 20);
    (dir, path)
}

fn opened(path: &Path) -> Fs {
    Fs::open(path, &OpenOptions::default()).unwrap()
}

fn free(fs: &Fs) -> u64 {
    fs.statfs().unwrap().blocks_free
}

/// Blocks and regions that are free.
fn pages(fs: &Fs) -> FreePages {
    fs.details().free
}

/// A file of many blocks.
fn written(fs: &Fs) -> u64 {
    let ino = fs.create(ROOT_INO, b"file", &NODE).unwrap().ino;
    fs.write(ino, 0, &vec![1; BLOCKS as usize * BLOCK]).unwrap();
    ino
}

/// Overwrites blocks in some order that is not the file's.
fn overwrite(fs: &Fs, ino: u64, times: u64) {
    for n in 0..times {
        let index = n * 7919 % BLOCKS;
        let bytes = [(n % 251) as u8; BLOCK];
        fs.write(ino, index * BLOCK as u64, &bytes).unwrap();
    }
}

fn is_sound(fs: &Fs) {
    let report = fs.check().unwrap();
    assert!(report.findings.is_empty(), "{:?}", report.findings);
}

#[test]
fn overwriting_leaves_free_space_as_it_is() {
    let (_dir, path) = pool();
    let fs = opened(&path);
    let ino = written(&fs);
    let sectors = |fs: &Fs| fs.getattr(ino).unwrap().sectors;
    overwrite(&fs, ino, 1);
    let before = (free(&fs), pages(&fs), sectors(&fs));
    overwrite(&fs, ino, 2000);
    assert_eq!((free(&fs), pages(&fs), sectors(&fs)), before);
    is_sound(&fs);
    fs.close().unwrap();
    // The spare block is still the lane's when the pool is opened next.
    let fs = opened(&path);
    overwrite(&fs, ino, 100);
    assert_eq!(free(&fs), before.0);
    is_sound(&fs);
    fs.close().unwrap();
}

#[test]
fn a_pool_that_was_lost_has_its_spare_blocks_back() {
    let (_dir, path) = pool();
    let fs = opened(&path);
    let ino = written(&fs);
    let before = free(&fs);
    let pages_before = pages(&fs);
    overwrite(&fs, ino, 10);
    assert_eq!(free(&fs), before, "it is as good as free");
    assert_eq!(pages(&fs).small, pages_before.small - 1);
    fs.defrag(false, &mut |_, _| {}).unwrap();
    assert_eq!(pages(&fs).small, pages_before.small, "given back");
    overwrite(&fs, ino, 10);
    // The copy is as after a power loss: nothing but the trees counts.
    let copy = path.with_extension("copy");
    std::fs::copy(&path, &copy).unwrap();
    drop(fs);
    let options = OpenOptions {
        adopt: true,
        ..OpenOptions::default()
    };
    let fs = Fs::open(&copy, &options).unwrap();
    assert_eq!(free(&fs), before);
    is_sound(&fs);
}
