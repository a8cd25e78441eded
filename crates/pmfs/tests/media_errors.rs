//! Media errors: a page that can't be read costs what stands in it, and nothing else; given anew,
//! it can be repaired. (With errors of memory as the kernel makes them: tests/media/badblocks.py.)

mod scratch;

use pmfs::{Fs, OpenOptions, ROOT_INO};
use pmfs_admin::Admin;
use scratch::{NODE, Scratch};
use std::path::{Path, PathBuf};
use std::process::Command;
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

/// Returns where an inode stands in the pool.
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
    // The bytes before are read; from there on nothing is.
    assert_eq!(fs.read(ino, 0, &mut got).unwrap(), 4 * BLOCK);
    assert_eq!(got[..4 * BLOCK], [7; 4 * BLOCK]);
    assert_eq!(errno(fs.read(ino, 4 * BLOCK as u64, &mut got)), Some(EIO));
    assert_eq!(fs.read(ino, 5 * BLOCK as u64, &mut got).unwrap(), 5 * BLOCK);
    let counted = fs.totals();
    assert_eq!(
        (counted.reads, counted.read_bytes),
        (3, 9 * BLOCK as u64),
        "what could not be read is not counted as read"
    );
    // Everything else goes on, and the block can be written over.
    fs.create(ROOT_INO, b"another", &NODE).unwrap();
    for bytes in [3, 60, 1000, 2000] {
        let write = fs.write(ino, 4 * BLOCK as u64 + 1, &vec![8; bytes]);
        assert_eq!(errno(write), Some(EIO), "{bytes}");
    }
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

/// The bytes to be logged can't be read: nothing of the call is done, nothing is logged that would
/// be damage if it were undone, and whoever comes next finds the pool as it was.
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

/// Tables that are made anew don't lack what can't be read: nobody gets the pool, or its blocks
/// would be taken for free.
#[test]
fn a_pool_is_not_recovered_around_a_bad_page() {
    let (_dir, path) = pool();
    let (fs, ino, _) = with_file(&path);
    let inode = place_of(&fs, ino);
    fs.close().unwrap();
    let options = OpenOptions::default();
    let mapped = || pmem::Pmem::open(&path, &options.map).unwrap();
    // The pool is as after power loss.
    drop(Fs::open_private(mapped(), &options).unwrap());
    let mem = mapped();
    if let Err(error) = mem.poison(inode) {
        eprintln!("skipped: no UFFDIO_POISON here: {error}");
        return;
    }
    let error = Fs::open_private(mem, &options).err().unwrap();
    assert!(error.to_string().contains("fsck --badblocks"), "{error}");
}

/// Returns the options that a repair asks for.
fn mending() -> OpenOptions {
    OpenOptions {
        repair: true,
        exclusive: true,
        adopt: true,
        ..OpenOptions::default()
    }
}

/// Names with their content: some in a directory of two hundred, one file of many blocks.
fn fill(fs: &Fs) -> Vec<(String, Vec<u8>)> {
    let mut files = vec![("big".to_owned(), vec![5; 700 * BLOCK])];
    for index in 0..200 {
        files.push((format!("{index}"), vec![index as u8; 100 * index + 1]));
    }
    let many = fs.mkdir(ROOT_INO, b"many", &NODE).unwrap().ino;
    for (name, bytes) in &files {
        let ino = fs.create(many, name.as_bytes(), &NODE).unwrap().ino;
        fs.write(ino, 0, bytes).unwrap();
    }
    files
}

/// Returns how many of these files are there as they were. A file that is there has its length.
fn whole(fs: &Fs, files: &[(String, Vec<u8>)]) -> usize {
    let Ok(many) = fs.lookup(ROOT_INO, b"many") else {
        return 0;
    };
    let is_whole = |(name, bytes): &&(String, Vec<u8>)| {
        let Ok(file) = fs.lookup(many.ino, name.as_bytes()) else {
            return false;
        };
        let mut got = vec![0; bytes.len() + 1];
        let count = fs.read(file.ino, 0, &mut got).unwrap();
        got[..count] == bytes[..]
    };
    files.iter().filter(is_whole).count()
}

/// Any one block of a pool at rest, as zeros: repair makes it a sound pool again, and what is not
/// in that block is as it was.
#[test]
fn each_block_can_be_given_anew() {
    let (dir, path) = pool();
    let fs = Fs::open(&path, &OpenOptions::default()).unwrap();
    let files = fill(&fs);
    fs.close().unwrap();
    let bytes = std::fs::read(&path).unwrap();
    let used = bytes
        .chunks(BLOCK)
        .map(|block| block.iter().any(|&byte| byte != 0));
    let used: Vec<u64> = (0..)
        .step_by(BLOCK)
        .zip(used)
        .filter(|(_, used)| *used)
        .map(|(off, _)| off)
        .collect();
    let copy = dir.path().join("copy");
    let (mut lost, mut spared) = (0, 0);
    for off in used {
        // A few of the file of 700 equal blocks will do.
        let block = &bytes[off as usize..][..BLOCK];
        if block.iter().all(|&byte| byte == 5) && off % (64 << 12) != 0 {
            continue;
        }
        std::fs::write(&copy, &bytes).unwrap();
        pmfs_admin::renew(&copy, &mending(), &[off]).unwrap();
        let mended = pmfs_admin::mend(&copy, &mending(), &mut |_, _| {}).unwrap();
        assert!(mended.renewed.is_empty() && mended.left.is_empty());
        let findings = &mended.repair.left.findings;
        assert!(findings.is_empty(), "block at {off:#x}: {findings:?}");
        let fs = Fs::open(&copy, &OpenOptions::default()).unwrap();
        assert!(fs.check().unwrap().is_clean(), "block at {off:#x}");
        let found = whole(&fs, &files);
        match files.len() - found {
            0 => spared += 1,
            // A block of data, of 32 inodes, of names.
            _ => lost += 1,
        }
        fs.close().unwrap();
    }
    assert!(lost > 100 && spared > 5, "{lost} {spared}");
}

/// A process that ended in the middle left the runtime area to be believed; what was given anew in
/// it is not.
#[test]
fn tables_given_anew_are_not_believed() {
    const POOL: &str = "PMFS_TEST_POOL";
    if let Some(path) = std::env::var_os(POOL) {
        let fs = Fs::open(Path::new(&path), &OpenOptions::default()).unwrap();
        fill(&fs);
        std::process::abort();
    }
    let (_dir, path) = pool();
    let fs = Fs::open(&path, &OpenOptions::default()).unwrap();
    let regions = fs.details().regions;
    let (_, start, len) = regions
        .iter()
        .find(|region| region.0 == "runtime area")
        .unwrap();
    let is_bits = |off: u64| fs.name_of(off).starts_with("bits of group of");
    let tables: Vec<u64> = (*start..start + len)
        .step_by(BLOCK)
        .filter(|&block| (block..block + BLOCK as u64).step_by(64).any(is_bits))
        .collect();
    fs.close().unwrap();
    assert!(!tables.is_empty());
    let itself = std::env::current_exe().unwrap();
    let ended = Command::new(itself)
        .args(["--exact", "tables_given_anew_are_not_believed"])
        .env(POOL, &path)
        .output()
        .unwrap();
    assert!(!ended.status.success());
    pmfs_admin::renew(&path, &mending(), &tables).unwrap();
    let fs = Fs::open(&path, &OpenOptions::default()).unwrap();
    fs.create(ROOT_INO, b"another", &NODE).unwrap();
    assert!(fs.check().unwrap().is_clean());
    fs.close().unwrap();
}
