//! Goal: sync of a mapping flushes every page that was stored to since it was flushed last, and,
//! where it can know them, no others. Method: the lines that it flushes are counted: exactly where
//! one process maps the file; against a model of the pages to be flushed where two processes map,
//! store, sync, unmap and die at random. Where the kernel notes no stores (before 6.7) all of a
//! mapping is flushed, which the model allows, and the exact counts are skipped, and said so.

mod scratch;

use pmem::counters;
use pmem::watch::Watch;
use pmfs::{FileMap, FlushMode, Fs, MapMode, MapOptions, OpenOptions, ROOT_INO};
use scratch::{NODE, Scratch};
use std::collections::BTreeSet;
use std::path::PathBuf;
use tempfile::TempDir;

const BLOCK: u64 = 4096;
const LINES: u64 = BLOCK / 64;
/// The pages of the file.
const PAGES: u64 = 4096;

struct Pool {
    _dir: TempDir,
    path: PathBuf,
    ino: u64,
}

impl Pool {
    fn new() -> Pool {
        let Scratch { dir, path } = Scratch::new(64 << 20);
        let mut pool = Pool {
            _dir: dir,
            path,
            ino: 0,
        };
        let fs = pool.open();
        pool.ino = fs.create(ROOT_INO, b"file", &NODE).unwrap().ino;
        let piece = vec![1; 1 << 20];
        for at in 0..(PAGES * BLOCK) >> 20 {
            fs.write(pool.ino, at << 20, &piece).unwrap();
        }
        fs.close().unwrap();
        pool
    }

    fn open(&self) -> Fs {
        let map = MapOptions {
            flush: FlushMode::Always,
            ..MapOptions::default()
        };
        let options = OpenOptions {
            map,
            ..OpenOptions::default()
        };
        Fs::open(&self.path, &options).unwrap()
    }

    /// The file from a page on.
    fn map<'a>(&self, fs: &'a Fs, from: u64) -> FileMap<'a> {
        let len = (PAGES - from) * BLOCK;
        fs.map(self.ino, from * BLOCK, len, MapMode::Shared)
            .unwrap()
    }
}

/// Lines that a call flushes, and its barriers.
fn flushed(call: impl FnOnce()) -> (u64, u64) {
    let before = counters::snapshot();
    call();
    let spent = counters::snapshot() - before;
    (spent.lines_flushed, spent.fences)
}

fn notes_stores() -> bool {
    let notes = Watch::new();
    if let Err(error) = &notes {
        println!("skipped: the kernel notes no stores: {error}");
    }
    notes.is_ok()
}

#[test]
fn a_page_costs_a_page() {
    if !notes_stores() {
        return;
    }
    let pool = Pool::new();
    let fs = pool.open();
    let map = pool.map(&fs, 0);
    let sync = || flushed(|| map.sync().unwrap()).0;
    let store = |page: u64| map.write(page * BLOCK + page % BLOCK, b"x").unwrap();
    store(7);
    let whole = PAGES * LINES;
    assert_eq!(sync(), whole, "the first time nothing is known");
    assert_eq!(sync(), 0);
    for pages in [&[3][..], &[0, 1, PAGES - 1], &[5; 9], &[100, 102, 104]] {
        pages.iter().for_each(|page| store(*page));
        let distinct = pages.iter().collect::<BTreeSet<_>>().len() as u64;
        let (lines, fences) = flushed(|| map.sync().unwrap());
        assert_eq!((lines, fences), (distinct * LINES, 1), "{pages:?}");
        assert_eq!(flushed(|| map.sync().unwrap()), (0, 0));
    }
    // Bytes that go by write are durable by themselves.
    fs.write(pool.ino, 9 * BLOCK, b"written").unwrap();
    assert_eq!(sync(), 0);

    // A mapping more: through it something may be stored, and has been.
    let second = pool.map(&fs, PAGES / 2);
    second.write(0, b"y").unwrap();
    assert_eq!(sync(), whole, "mapped twice");
    assert_eq!(sync(), whole, "mapped twice");
    drop(second);
    assert_eq!(sync(), whole, "what was known before is not any more");
    assert_eq!(sync(), 0);

    // Another process.
    let other = pool.open();
    let theirs = pool.map(&other, 0);
    assert_eq!(sync(), whole);
    assert_eq!(sync(), whole, "as long as it may store");
    std::mem::forget(theirs);
    drop(other);
    fs.recover_dead().unwrap();
    assert_eq!(sync(), whole, "it may have stored before it died");
    assert_eq!(sync(), 0);
    // One that reads only changes nothing.
    let other = pool.open();
    let whole_file = PAGES * BLOCK;
    let theirs = other.map(pool.ino, 0, whole_file, MapMode::Read).unwrap();
    store(1);
    assert_eq!(sync(), LINES);
    drop(theirs);
    drop(map);
}

struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end
    }
}

/// The places where mappings begin: all of them are long enough to be watched, and they overlap.
const FROM: [u64; 3] = [0, 1000, 2500];

/// The mappings of a process, from each of these on.
type Maps<'a> = [Option<FileMap<'a>>; 3];

/// The pages that nobody has flushed since they were stored to.
struct Model {
    random: Random,
    unflushed: BTreeSet<u64>,
    /// The first call that flushed too little: told in the end, for a panic while files are mapped
    /// ends with them.
    short: Option<String>,
}

impl Model {
    fn pays(&mut self, from: u64, what: &str, call: impl FnOnce()) {
        let (lines, _) = flushed(call);
        let due = self.unflushed.range(from..).count() as u64 * LINES;
        if lines < due {
            let short = || format!("{what}: {lines} of {due} lines");
            self.short.get_or_insert_with(short);
        }
        self.unflushed.retain(|page| *page < from);
    }

    /// A process does something with one of its first `count` mappings.
    fn step<'a>(&mut self, pool: &Pool, fs: &'a Fs, maps: &mut Maps<'a>, count: u64) {
        let which = self.random.below(count) as usize;
        let (from, slot) = (FROM[which], &mut maps[which]);
        match (self.random.below(10), slot.take()) {
            (_, None) => *slot = Some(pool.map(fs, from)),
            (0, Some(map)) => self.pays(from, "unmap", || drop(map)),
            (1..5, Some(map)) => {
                self.pays(from, "sync", || map.sync().unwrap());
                *slot = Some(map);
            }
            (_, Some(map)) => {
                for _ in 0..self.random.below(6) {
                    let page = from + self.random.below(PAGES - from);
                    map.write((page - from) * BLOCK, b"z").unwrap();
                    self.unflushed.insert(page);
                }
                *slot = Some(map);
            }
        }
    }
}

/// One process with some mappings, and others beside it, of which each does a little and is killed.
fn run(seed: u64) -> Option<String> {
    let pool = Pool::new();
    let mut model = Model {
        random: Random(seed),
        unflushed: BTreeSet::new(),
        short: None,
    };
    let (own, theirs) = [(3, 0), (1, 1), (1, 2), (2, 1)][seed as usize % 4];
    let fs = pool.open();
    let mut maps: Maps<'_> = [None, None, None];
    for _ in 0..12 {
        for _ in 0..8 {
            model.step(&pool, &fs, &mut maps, own);
        }
        if theirs == 0 || model.random.below(2) == 0 {
            continue;
        }
        let other = pool.open();
        let mut their_maps: Maps<'_> = [None, None, None];
        for _ in 0..6 {
            model.step(&pool, &other, &mut their_maps, theirs);
            if model.random.below(3) == 0 {
                model.step(&pool, &fs, &mut maps, own);
            }
        }
        std::mem::forget(their_maps);
        drop(other);
        fs.recover_dead().unwrap();
    }
    model.short
}

#[test]
fn what_was_stored_is_flushed() {
    for seed in 0..40 {
        assert_eq!(run(seed), None, "seed {seed}");
    }
}
