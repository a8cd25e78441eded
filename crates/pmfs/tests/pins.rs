//! Goal: what a program has mapped of a file's blocks stays the file's, whatever is called
//! meanwhile. Method: the program is played by the pool's file itself; what stands there and what a
//! read answers have to be the same.

mod scratch;

use pmfs::{BlockRun, Error, FallocateMode, Fs, Ino, NewNode, OpenOptions, ROOT_INO, SetAttr};
use pmfs_admin::Admin;
use scratch::Scratch;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

const NODE: NewNode = NewNode {
    mode: 0o644,
    uid: 1,
    gid: 2,
    umask: 0,
};
const PUNCH: FallocateMode = FallocateMode::KEEP_SIZE.union(FallocateMode::PUNCH_HOLE);
const MUCH: u64 = 1 << 30;

struct Bench {
    _dir: tempfile::TempDir,
    path: PathBuf,
    fs: Fs,
    ino: Ino,
}

impl Bench {
    /// A file of these bytes, pinned for writing.
    fn with(content: &[u8]) -> Bench {
        let Scratch { dir, path } = Scratch::new(32 << 20);
        let fs = open(&path);
        let ino = fs.create(ROOT_INO, b"file", &NODE).unwrap().ino;
        fs.write(ino, 0, content).unwrap();
        fs.hold(ino).unwrap();
        fs.pin(ino, true).unwrap();
        Bench {
            _dir: dir,
            path,
            fs,
            ino,
        }
    }

    fn blocks(&self) -> Vec<BlockRun> {
        self.fs.blocks(self.ino, 0, MUCH, MUCH).unwrap()
    }

    /// Returns what stands in these blocks, up to the file's end.
    fn mapped(&self, runs: &[BlockRun]) -> Vec<u8> {
        let pool = File::open(&self.path).unwrap();
        let size = self.fs.getattr(self.ino).unwrap().size;
        let mut all = vec![0; size as usize];
        for run in runs {
            let end = (run.at + run.len).min(size);
            if run.at < end {
                let here = &mut all[run.at as usize..end as usize];
                pool.read_exact_at(here, run.off).unwrap();
            }
        }
        all
    }

    fn read(&self) -> Vec<u8> {
        let size = self.fs.getattr(self.ino).unwrap().size;
        let mut all = vec![0; size as usize];
        assert_eq!(self.fs.read(self.ino, 0, &mut all).unwrap(), all.len());
        all
    }

    fn write(&self, at: u64, bytes: &[u8]) {
        assert_eq!(self.fs.write(self.ino, at, bytes).unwrap(), bytes.len());
    }

    fn append(&self, bytes: &[u8]) {
        self.fs.append(self.ino, bytes).unwrap();
    }

    fn resize(&self, size: u64) {
        let set = SetAttr {
            size: Some(size),
            ..SetAttr::default()
        };
        self.fs.setattr(self.ino, &set).unwrap();
    }

    fn sound(self) {
        assert_eq!(self.fs.check().unwrap().findings, []);
        self.fs.close().unwrap();
    }
}

fn open(path: &std::path::Path) -> Fs {
    Fs::open(path, &OpenOptions::default()).unwrap()
}

fn pattern(len: usize, salt: u8) -> Vec<u8> {
    (0..len).map(|at| (at / 7) as u8 ^ salt).collect()
}

/// A change, with its name.
type Change = (&'static str, fn(&Bench));

/// After each kind of change the blocks that were had before are still those of the file.
#[test]
fn blocks_stay_and_agree() {
    let calls: [Change; 9] = [
        ("one byte", |b| b.write(5, b"x")),
        ("a word", |b| b.write(8, b"12345678")),
        ("some bytes", |b| b.write(4090, &[9; 100])),
        ("many blocks", |b| b.write(100, &pattern(30_000, 3))),
        ("over the end", |b| b.write(39_000, &pattern(9000, 4))),
        ("append", |b| b.append(&pattern(9000, 4))),
        ("punch", |b| {
            b.fs.fallocate(b.ino, PUNCH, 3000, 20_000).unwrap()
        }),
        ("zero", |b| {
            let end = FallocateMode::ZERO_RANGE;
            b.fs.fallocate(b.ino, end, 30_000, 20_000).unwrap();
        }),
        ("down and up", |b| {
            b.resize(9000);
            b.resize(50_000);
        }),
    ];
    for (name, call) in calls {
        let bench = Bench::with(&pattern(40_000, 1));
        let before = bench.blocks();
        call(&bench);
        let after = bench.blocks();
        for run in &before {
            let inside =
                |other: &&BlockRun| other.at <= run.at && run.at + run.len <= other.at + other.len;
            let now = after
                .iter()
                .find(inside)
                .unwrap_or_else(|| panic!("{name}: {after:?}"));
            assert_eq!(now.off + (run.at - now.at), run.off, "{name}");
        }
        assert_eq!(bench.mapped(&after), bench.read(), "{name}");
        let old = bench.mapped(&before);
        assert_eq!(
            &old[..40_000],
            &bench.read()[..40_000],
            "{name}, by the old blocks"
        );
        bench.sound();
    }
}

/// A program's own stores are what reads answer, and no write beside them takes them back.
#[test]
fn stores_are_read() {
    let bench = Bench::with(&pattern(20_000, 1));
    // Another block lies in the file's way where it begins in one lane's part of the pool.
    let run = bench.blocks()[0];
    assert!(run.len >= 8192, "{run:?}");
    let pool = File::options().write(true).open(&bench.path).unwrap();
    pool.write_all_at(b"stored", run.off + 4096).unwrap();
    bench.fs.write(bench.ino, 4102, b"xy").unwrap();
    assert_eq!(&bench.read()[4096..4104], b"storedxy");
    bench.fs.flush_blocks(bench.ino, &[(0, MUCH)]).unwrap();
    bench.sound();
}

/// Holes and unwritten blocks get memory; the bytes behind the end are zeros.
#[test]
fn holes_become_real() {
    let bench = Bench::with(b"");
    bench.fs.write(bench.ino, 9 * 4096 + 5, b"end").unwrap();
    bench
        .fs
        .fallocate(bench.ino, FallocateMode::KEEP_SIZE, 4096, 8192)
        .unwrap();
    assert!(matches!(
        bench.fs.blocks(bench.ino, 0, MUCH, 8 * 4096),
        Err(Error::NoSpace)
    ));
    let runs = bench.blocks();
    assert_eq!(runs.iter().map(|run| run.len).sum::<u64>(), 10 * 4096);
    assert_eq!(bench.mapped(&runs), bench.read());
    let last = runs.last().unwrap();
    let pool = File::open(&bench.path).unwrap();
    let mut behind = [1; 4088];
    pool.read_exact_at(&mut behind, last.off + last.len - 4088)
        .unwrap();
    assert_eq!(behind, [0; 4088]);
    bench.sound();
}

/// The blocks of a file that was made shorter go with the last pin.
#[test]
fn the_last_pin_frees() {
    let bench = Bench::with(&pattern(100 * 4096, 1));
    let free = || bench.fs.statfs().unwrap().blocks_free;
    let full = free();
    let second = open(&bench.path);
    second.hold(bench.ino).unwrap();
    second.pin(bench.ino, false).unwrap();
    bench.resize(4096);
    assert_eq!(free(), full);
    bench.fs.unpin(bench.ino).unwrap();
    assert_eq!(free(), full);
    second.unpin(bench.ino).unwrap();
    assert!(free() >= full + 99, "{} {full}", free());
    second.release(bench.ino).unwrap();
    second.close().unwrap();
    bench.sound();
}

/// A mount's kernel and pins: never what could differ.
#[test]
fn pages_and_pins_exclude_each_other() {
    let bench = Bench::with(b"content");
    let mount = open(&bench.path);
    mount.tell_of_pages();
    let mapped = |answer: pmfs::Result<()>| matches!(answer, Err(Error::Mapped));
    assert!(mapped(mount.note_kernel_read(bench.ino, &|| false)));
    assert!(mapped(mount.note_kernel_read(bench.ino, &|| true)));
    bench.fs.unpin(bench.ino).unwrap();
    bench.fs.pin(bench.ino, false).unwrap();
    assert!(mapped(mount.note_kernel_read(bench.ino, &|| true)));
    mount.note_kernel_read(bench.ino, &|| false).unwrap();
    assert!(mapped(mount.begin_kernel_writing(bench.ino, &|| {})));
    assert!(mapped(bench.fs.pin(bench.ino, true)));
    mount.forget_kernel_copies(bench.ino, &|| false).unwrap();
    bench.fs.pin(bench.ino, true).unwrap();
    bench.fs.unpin(bench.ino).unwrap();
    mount.note_kernel_read(bench.ino, &|| true).unwrap();
    assert!(mapped(bench.fs.pin(bench.ino, false)));
    mount.close().unwrap();
    bench.fs.pin(bench.ino, true).unwrap();
    bench.sound();
}

/// Nobody moves pinned blocks; who has unmapped them may.
#[test]
fn shifts_wait_for_the_last_unmapping() {
    let bench = Bench::with(&pattern(40_000, 1));
    for shift in [Fs::collapse_range, Fs::insert_range] {
        assert!(matches!(
            shift(&bench.fs, bench.ino, 4096, 4096),
            Err(Error::Mapped)
        ));
    }
    bench.fs.unpin(bench.ino).unwrap();
    bench.fs.collapse_range(bench.ino, 4096, 4096).unwrap();
    bench.sound();
}

/// A large leaf is written in place, too, and no undo entry keeps what a program has stored in it.
#[test]
fn a_large_leaf() {
    let bench = Bench::with(b"");
    bench
        .fs
        .fallocate(bench.ino, FallocateMode::empty(), 0, 2 << 20)
        .unwrap();
    let [run] = bench.blocks()[..] else {
        panic!("one run: {:?}", bench.blocks())
    };
    assert_eq!(run.len, 2 << 20);
    let pool = File::options()
        .read(true)
        .write(true)
        .open(&bench.path)
        .unwrap();
    assert!(run.off.is_multiple_of(2 << 20));
    pool.write_all_at(b"by the program", run.off + 5000)
        .unwrap();
    bench.fs.write(bench.ino, 5014, &[b'w'; 9000]).unwrap();
    assert_eq!(&bench.read()[5000..5015], b"by the programw");
    assert_eq!(bench.mapped(&[run]), bench.read());
    bench.sound();
}
