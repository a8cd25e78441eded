//! Damage: any bit of what the file system reads of its own structures is flipped. Whatever it is, mounting,
//! using and checking the pool end, without a panic and without reading outside it; and repair leaves a pool
//! in which nothing is found and all calls work.
//!
//! `PMFS_FLIPS` bits are tried (`all`: every one), chosen by `PMFS_FLIPS_SEED`.

use pmem::Pmem;
use pmem::record::Observer;
use pmfs::{Fs, Ino, MkfsOptions, NewNode, OpenOptions, ROOT_INO, SetAttr, XattrFlags};
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

const NODE: NewNode = NewNode {
    mode: 0o644,
    uid: 0,
    gid: 0,
    umask: 0,
};

/// Files that share a block of the inode table.
const COSTLY: usize = 32;

/// A file as it is seen, up to its first MiB.
type Seen = BTreeMap<Vec<u8>, (u32, u64, Vec<u8>)>;

/// The words that were loaded.
#[derive(Default)]
struct Loads(Mutex<BTreeSet<u64>>);

impl Observer for Loads {
    fn load(&self, _mem: &Pmem, off: u64, len: u64) {
        let mut words = self.0.lock().unwrap();
        words.extend((off / 8..(off + len).div_ceil(8)).map(|word| word * 8));
    }
}

/// The case that is being tried, for the watchdog.
static CASE: AtomicU64 = AtomicU64::new(0);

/// Ends the process, with a word on why, if a case takes longer than a minute.
fn watch() {
    std::thread::spawn(|| {
        let mut last = 0;
        let mut since = 0;
        loop {
            std::thread::sleep(Duration::from_secs(1));
            let now = CASE.load(Ordering::Relaxed);
            since = if now == last { since + 1 } else { 0 };
            last = now;
            if since > 60 {
                eprintln!(
                    "bit {} of the word at {:#x}: it does not end",
                    now % 64,
                    now / 64 * 8
                );
                std::process::abort();
            }
        }
    });
}

fn open(path: &Path, repair: bool) -> pmfs::Result<Fs> {
    let options = OpenOptions {
        repair,
        ..OpenOptions::default()
    };
    Fs::open(path, &options)
}

/// A small pool with one of everything.
fn build(path: &Path) -> Seen {
    let options = MkfsOptions {
        size: Some(2 << 20),
        ..MkfsOptions::default()
    };
    Fs::mkfs(path, &options).unwrap();
    let fs = open(path, false).unwrap();
    let dir = fs.mkdir(ROOT_INO, b"dir", &NODE).unwrap().ino;
    let below = fs.mkdir(dir, b"below", &NODE).unwrap().ino;
    for n in 0..90 {
        let file = fs
            .create(dir, format!("file-{n}").as_bytes(), &NODE)
            .unwrap()
            .ino;
        fs.write(file, 0, format!("content {n}").as_bytes())
            .unwrap();
    }
    let long = fs.create(below, &[b'n'; 200], &NODE).unwrap().ino;
    fs.write(long, 0, &[1; 40_000]).unwrap();
    fs.setxattr(long, b"user.one", &[2; 300], XattrFlags::empty())
        .unwrap();
    let sparse = fs.create(below, b"sparse", &NODE).unwrap().ino;
    fs.write(sparse, 1 << 30, b"far").unwrap();
    fs.symlink(below, b"short", b"target", &NODE).unwrap();
    fs.symlink(below, b"long", &[b't'; 300], &NODE).unwrap();
    fs.link(long, ROOT_INO, b"linked").unwrap();
    fs.mknod(below, b"device", &NODE, 0o020_000, 0x103).unwrap();
    let seen = look(&fs);
    fs.close().unwrap();
    seen
}

/// Reads whatever can be read.
fn look(fs: &Fs) -> Seen {
    let mut seen = Seen::new();
    let mut known = HashSet::new();
    let mut next = vec![(ROOT_INO, Vec::new())];
    while let Some((dir, path)) = next.pop() {
        if !known.insert(dir) || known.len() > 1000 {
            continue;
        }
        let mut names = Vec::new();
        let _ = fs.readdir(dir, 0, &mut |entry| {
            names.push(entry.name.to_vec());
            names.len() < 1000
        });
        for name in names.iter().filter(|name| !name.starts_with(b".")) {
            let Ok(attr) = fs.lookup(dir, name) else {
                continue;
            };
            let mut child = path.clone();
            child.push(b'/');
            child.extend_from_slice(name);
            let kind = attr.mode & 0o170_000;
            let data = content(fs, attr.ino, kind, attr.size);
            if kind == 0o040_000 {
                next.push((attr.ino, child.clone()));
            }
            let size = if kind == 0o040_000 { 0 } else { attr.size };
            seen.insert(child, (attr.mode, size, data));
        }
    }
    seen
}

fn content(fs: &Fs, ino: Ino, kind: u32, size: u64) -> Vec<u8> {
    let mut data = Vec::new();
    match kind {
        0o100_000 => {
            data = vec![0; size.min(1 << 20) as usize];
            if fs.read(ino, 0, &mut data).is_err() {
                data.clear();
            }
        }
        0o120_000 => data = fs.readlink(ino).unwrap_or_default(),
        _ => {}
    }
    for name in fs.listxattr(ino).unwrap_or_default() {
        data.extend(fs.getxattr(ino, &name).unwrap_or_default());
    }
    data
}

/// Directories that can be found, and files.
fn inodes(fs: &Fs, seen: &Seen) -> (Vec<Ino>, Vec<Ino>) {
    let mut dirs = vec![ROOT_INO];
    let mut files = Vec::new();
    for (path, (mode, ..)) in seen {
        let mut at = Ok(ROOT_INO);
        for part in path.split(|&byte| byte == b'/').skip(1) {
            at = at.and_then(|dir| fs.lookup(dir, part).map(|attr| attr.ino));
        }
        match (at, mode & 0o170_000) {
            (Ok(ino), 0o040_000) => dirs.push(ino),
            (Ok(ino), _) => files.push(ino),
            _ => {}
        }
    }
    (dirs, files)
}

/// Uses everything that can be found; answers what failed.
fn disturb(fs: &Fs, seen: &Seen) -> Vec<String> {
    let mut failed = Vec::new();
    let mut note = |what: &str, ino: Ino, result: pmfs::Result<()>| {
        if let Err(error) = result {
            failed.push(format!("{what} {ino}: {error}"));
        }
    };
    let (dirs, files) = inodes(fs, seen);
    for &ino in files.iter().step_by(7) {
        let Ok(attr) = fs.getattr(ino) else { continue };
        if attr.mode & 0o170_000 != 0o100_000 {
            continue;
        }
        note("write", ino, fs.write(ino, 10, &[7; 5000]).map(drop));
        note("append", ino, fs.append(ino, b"more").map(drop));
        let shorter = SetAttr {
            size: Some(20),
            ..SetAttr::default()
        };
        note("truncate", ino, fs.setattr(ino, &shorter).map(drop));
        let set = fs.setxattr(ino, b"user.new", b"value", XattrFlags::empty());
        note("setxattr", ino, set);
    }
    for &dir in &dirs {
        let made = fs.create(dir, b"made here", &NODE);
        let Ok(made) = made else {
            note("create", dir, made.map(drop));
            continue;
        };
        note(
            "write",
            made.ino,
            fs.write(made.ino, 0, &[5; 9000]).map(drop),
        );
        note("unlink", dir, fs.unlink(dir, b"made here"));
        let sub = fs.mkdir(dir, b"sub", &NODE).map(drop);
        note("mkdir", dir, sub.and_then(|()| fs.rmdir(dir, b"sub")));
    }
    failed
}

/// One flipped bit.
struct Flip {
    word: u64,
    bit: u64,
}

impl Flip {
    fn of(&self, image: &[u8]) -> Vec<u8> {
        let mut image = image.to_vec();
        image[(self.word + self.bit / 8) as usize] ^= 1 << (self.bit % 8);
        image
    }
}

/// Tries one flip; answers how many files are not as they were, and whether anything was found.
fn try_flip(flip: &Flip, image: &[u8], path: &Path, sound: &Seen) -> (usize, bool) {
    std::fs::write(path, flip.of(image)).unwrap();
    if let Ok(fs) = open(path, false) {
        let seen = look(&fs);
        let failed = disturb(&fs, &seen);
        if failed.iter().any(|what| what.contains("corrupt pool")) {
            let more = fs.create(ROOT_INO, b"more", &NODE);
            assert!(
                more.is_err(),
                "a pool that is damaged goes on being written"
            );
        }
        let _ = fs.check();
        let _ = fs.close();
    }
    std::fs::write(path, flip.of(image)).unwrap();
    let fs = open(path, true).expect("attaching to repair");
    let report = fs.repair().expect("repair");
    assert!(report.left.is_clean(), "left: {:#?}", report.left.findings);
    let seen = look(&fs);
    let lost = sound
        .iter()
        .filter(|(path, file)| seen.get(*path) != Some(file))
        .count();
    let failed = disturb(&fs, &seen);
    assert!(
        failed.is_empty(),
        "after repair of {:#?}: {failed:#?}",
        report.repaired
    );
    let again = fs.check().expect("check");
    assert!(again.is_clean(), "after use: {:#?}", again.findings);
    fs.close().expect("close");
    (lost, !report.repaired.is_empty())
}

/// The words that opening, checking and using the pool loads, files' data left out.
fn words(path: &Path, pool: &Path, sound: &Seen) -> Vec<u64> {
    std::fs::copy(pool, path).unwrap();
    let loads = Arc::new(Loads::default());
    let options = OpenOptions {
        observer: Some(loads.clone()),
        repair: true,
        ..OpenOptions::default()
    };
    let fs = Fs::open(path, &options).unwrap();
    assert!(fs.check().unwrap().is_clean());
    for ino in inodes(&fs, sound).1 {
        let _ = fs.getattr(ino);
        let _ = fs.readlink(ino);
    }
    fs.close().unwrap();
    loads.0.lock().unwrap().iter().copied().collect()
}

fn step(random: &mut u64) -> u64 {
    *random ^= *random << 13;
    *random ^= *random >> 7;
    *random ^= *random << 17;
    *random
}

#[test]
fn any_bit_may_flip() {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let pool: PathBuf = dir.path().join("pool");
    let path = dir.path().join("flipped");
    let sound = build(&pool);
    let words = words(&path, &pool, &sound);
    let image = std::fs::read(&pool).unwrap();
    let bits = words.len() as u64 * 64;
    let asked = std::env::var("PMFS_FLIPS").unwrap_or_else(|_| "1500".into());
    let count = if asked == "all" {
        bits
    } else {
        asked.parse().unwrap()
    };
    let seed: u64 = std::env::var("PMFS_FLIPS_SEED").map_or(1, |seed| seed.parse().unwrap());
    println!(
        "PMFS_FLIPS_SEED={seed}, {} words, {count} of {bits} bits",
        words.len()
    );
    watch();
    let mut random = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let (mut found, mut costly, mut harmed) = (0, 0, 0);
    for at in 0..count {
        let at = if asked == "all" {
            at
        } else {
            step(&mut random) % bits
        };
        let flip = Flip {
            word: words[(at / 64) as usize],
            bit: at % 64,
        };
        CASE.store(flip.word * 8 + flip.bit, Ordering::Relaxed);
        let tried = catch_unwind(AssertUnwindSafe(|| try_flip(&flip, &image, &path, &sound)));
        let Ok((lost, something)) = tried else {
            panic!(
                "PMFS_FLIPS_SEED={seed}: bit {} of the word at {:#x}",
                flip.bit, flip.word
            );
        };
        found += u64::from(something);
        costly += u64::from(lost > COSTLY);
        harmed += u64::from(lost > 0);
    }
    println!(
        "{count} bits flipped: {found} found and repaired, {harmed} changed files, {costly} more than {COSTLY}"
    );
    // The inode table's upper nodes have no copy: their pointers are some 200 of the bits.
    assert!(
        costly * 200 <= count,
        "{costly} bits cost more than {COSTLY} files each"
    );
}
