//! Damage: any bit of what the file system reads of its own structures is flipped. Mounting, using
//! and checking the pool then end, without a panic and without reading outside it; and repair
//! leaves a pool in which nothing is found and all calls work.
//!
//! `PMFS_FLIPS` bits are tried (`all`: every one), chosen by `PMFS_FLIPS_SEED`.

use pmem::Pmem;
use pmem::record::{Observer, StoreKind, Verdict};
use pmfs::{Fs, OpenOptions, ROOT_INO};
use pmfs_admin::Admin;
use std::panic::{AssertUnwindSafe, Location, catch_unwind, resume_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use yat::files::damage::{NODE, Seen, disturb, fill, inspect, mkfs_options, words};

/// Files that share a block of the inode table.
const COSTLY: usize = 32;

/// Stops the thread before a store, and lets nothing of it reach the pool from then on.
struct Killer(AtomicU64);

const OFF: u64 = u64::MAX;

impl Observer for Killer {
    fn store(
        &self,
        _mem: &Pmem,
        _off: u64,
        _bytes: &[u8],
        _kind: StoreKind,
        _at: &'static Location<'static>,
    ) -> Verdict {
        match self.0.load(Ordering::Relaxed) {
            OFF => Verdict::Do,
            0 => Verdict::Skip,
            1 => {
                self.0.store(0, Ordering::Relaxed);
                resume_unwind(Box::new("killed"));
            }
            left => {
                self.0.store(left - 1, Ordering::Relaxed);
                Verdict::Do
            }
        }
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
        let seen = inspect(&fs);
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
    let seen = inspect(&fs);
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

/// A filled pool's bytes, the words of it that are structure, and its files.
fn filled(pool: &Path, path: &Path) -> (Vec<u8>, Vec<u64>, Seen) {
    pmfs_admin::mkfs(pool, &mkfs_options()).unwrap();
    let fs = open(pool, false).unwrap();
    fill(&fs);
    let sound = inspect(&fs);
    fs.close().unwrap();
    std::fs::copy(pool, path).unwrap();
    let words = words(|options| Fs::open(path, &options).unwrap(), &sound);
    (std::fs::read(pool).unwrap(), words, sound)
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
    let (image, words, sound) = filled(&pool, &path);
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

/// Repairs what a flip did, killed before its `n`-th store; answers whether it came to that. Then
/// repairs again.
fn interrupt(flip: &Flip, n: u64, image: &[u8], path: &Path) -> bool {
    std::fs::write(path, flip.of(image)).unwrap();
    let killer = Arc::new(Killer(AtomicU64::new(OFF)));
    let options = OpenOptions {
        repair: true,
        observer: Some(killer.clone()),
        ..OpenOptions::default()
    };
    let fs = Fs::open(path, &options).expect("attaching to repair");
    killer.0.store(n, Ordering::Relaxed);
    let killed = catch_unwind(AssertUnwindSafe(|| fs.repair())).is_err();
    drop(fs);
    let fs = open(path, true).expect("attaching after a killed repair");
    let report = fs.repair().expect("repair");
    assert!(
        report.left.is_clean(),
        "killed at store {n}, left: {:#?}",
        report.left.findings
    );
    let failed = disturb(&fs, &inspect(&fs));
    assert!(failed.is_empty(), "killed at store {n}: {failed:#?}");
    assert!(fs.check().expect("check").is_clean());
    fs.close().expect("close");
    killed
}

#[test]
fn a_repair_may_be_interrupted() {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let (pool, path) = (dir.path().join("pool"), dir.path().join("flipped"));
    let (image, words, _) = filled(&pool, &path);
    let seed: u64 = std::env::var("PMFS_FLIPS_SEED").map_or(1, |seed| seed.parse().unwrap());
    let mut random = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let (mut flips, mut kills) = (0, 0);
    // Flips whose repair is more than rebuilding the runtime area.
    while flips < 25 {
        let at = step(&mut random) % (words.len() as u64 * 64);
        let flip = Flip {
            word: words[(at / 64) as usize],
            bit: at % 64,
        };
        std::fs::write(&path, flip.of(&image)).unwrap();
        let fs = open(&path, true).unwrap();
        let repaired = fs.repair().unwrap().repaired;
        drop(fs);
        if !repaired
            .iter()
            .any(|finding| (20..50).contains(&finding.number))
        {
            continue;
        }
        flips += 1;
        let mut n = 1;
        // Each of the first, where the mending is, then ever fewer: the rest is rebuilding.
        while interrupt(&flip, n, &image, &path) {
            kills += 1;
            n += 1 + n / 8;
        }
    }
    println!("{kills} interrupted repairs of {flips} flips");
    assert!(kills > flips);
}

/// A flip that once left something: the root pointer of a directory came to name a free block, an
/// empty node.
#[test]
fn a_directory_with_an_empty_node_is_found() {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let (pool, path) = (dir.path().join("pool"), dir.path().join("flipped"));
    let (image, _, sound) = filled(&pool, &path);
    let flip = Flip {
        word: 0xa190,
        bit: 20,
    };
    try_flip(&flip, &image, &path, &sound);
}
