//! Ageing: rounds of deleting and filling at 75 % full must leave the free space in whole 2 MiB
//! regions, or a pool that has been in use for long has no large pages left to give.
//!
//! **Sizes** are those of Impressions (Agrawal, Arpaci-Dusseau and Arpaci-Dusseau, Generating
//! Realistic Impressions for File-System Benchmarking, FAST 2009, table 2), which fit the 4,000
//! file systems of Agrawal et al., A Five-Year Study of File-System Metadata, FAST 2007: lognormal,
//! mu 9.48, sigma 2.46 (a median of 13 KiB; half of the bytes in files of more than 5 MiB), here up
//! to a sixteenth of the pool.
//!
//! **A round** deletes files at random until half of the pool is used, then makes new ones until
//! three quarters are. On the way some files are written over in part, appended to, cut short, and
//! replaced by a new one of the same name. Files are written in pieces of 64 KiB, or 1 MiB for
//! large ones, as programs do.
//!
//! **With clones**, a round begins by copying all files by sharing their blocks, changes the
//! sources and deletes the copies; then it makes clones beside the new files, which stay, and
//! changes either side. The pool counts the blocks in use.
//!
//! **A large file** that is written afterwards has as many large pages as in a fresh pool, but for
//! its first 16 MiB; how fast it is copied through its blocks, beside one in a fresh pool, is told
//! and not judged.
//!
//! `PMFS_AGEING_ROUNDS` (100 in `make check-long`), `PMFS_AGEING_MIB` and `PMFS_AGEING_SEED` change
//! what is tried, `PMFS_AGEING_DIR` where: a tmpfs with huge=always, say.

use pmfs::{Fs, Ino, NewNode, OpenOptions, ROOT_INO, RenameFlags, SetAttr};
use pmfs_admin::{Admin, MkfsOptions};
use std::time::Instant;

const NODE: NewNode = NewNode {
    mode: 0o644,
    uid: 0,
    gid: 0,
    umask: 0,
};

/// Blocks of 4 KiB in a region.
const REGION: u64 = 512;
/// The share of the free space that must be left in whole regions, in the mean of the rounds after
/// the first tenth: a round in which much of what was in small blocks gives way to large files
/// leaves gaps that the next ones fill.
const SHARE_MIN: f64 = 0.90;

fn setting(name: &str, default: u64) -> u64 {
    let set = std::env::var(name).ok();
    set.map_or(default, |text| text.parse().expect(name))
}

/// SplitMix64 (Steele, Lea and Flood 2014).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    /// Returns a number of the open interval from 0 to 1.
    fn unit(&mut self) -> f64 {
        ((self.next() >> 11) as f64 + 0.5) / (1u64 << 53) as f64
    }

    /// A file's size, in bytes.
    fn size(&mut self, max: u64) -> u64 {
        let angle = std::f64::consts::TAU * self.unit();
        let normal = (-2.0 * self.unit().ln()).sqrt() * angle.cos();
        ((9.48 + 2.46 * normal).exp() as u64).min(max)
    }
}

/// A file of an [`Ager`]'s.
#[derive(Clone, Copy)]
struct File {
    ino: Ino,
    dir: Ino,
    name: u64,
    /// Blocks that it takes.
    blocks: u64,
}

/// One thread's files, in directories of its own.
struct Ager<'a> {
    fs: &'a Fs,
    random: Random,
    dirs: Vec<Ino>,
    files: Vec<File>,
    names: u64,
    size_max: u64,
    /// Blocks that its files take, and may take when the pool is full.
    blocks: u64,
    blocks_max: u64,
    bytes: Vec<u8>,
    /// Some files are clones, which share blocks: the thread is alone, and asks the pool what is
    /// used.
    clones: bool,
}

impl<'a> Ager<'a> {
    fn new(fs: &'a Fs, seed: u64, index: u64, threads: u64, size_max: u64) -> Ager<'a> {
        let dirs = (0..20).map(|dir| {
            let name = format!("{index}-{dir}");
            fs.mkdir(ROOT_INO, name.as_bytes(), &NODE).unwrap().ino
        });
        Ager {
            fs,
            random: Random(seed.wrapping_mul(31).wrapping_add(index)),
            dirs: dirs.collect(),
            files: Vec::new(),
            names: 0,
            size_max,
            blocks: 0,
            blocks_max: fs.statfs().unwrap().blocks / threads,
            bytes: (0..1 << 20).map(|at: u32| (at >> 3) as u8).collect(),
            clones: false,
        }
    }

    /// Makes a file of a size of the mix.
    fn make(&mut self) {
        let dir = self.dirs[self.random.below(self.dirs.len() as u64) as usize];
        let name = self.names;
        self.names += 1;
        let ino = self.fs.create(dir, &name_of(name), &NODE).unwrap().ino;
        let size = self.random.size(self.size_max);
        let piece = if size > 4 << 20 { 1 << 20 } else { 64 << 10 };
        let mut done = 0;
        while done < size {
            let len = (size - done).min(piece) as usize;
            done += self.fs.write(ino, done, &self.bytes[..len]).unwrap() as u64;
        }
        self.files.push(File {
            ino,
            dir,
            name,
            blocks: 0,
        });
        self.count(self.files.len() - 1);
    }

    /// Clones a file.
    fn clone_of(&mut self, source: File) -> File {
        let name = self.names;
        self.names += 1;
        let created = self.fs.create(source.dir, &name_of(name), &NODE).unwrap();
        let clone = File {
            ino: created.ino,
            name,
            blocks: 0,
            ..source
        };
        self.fs
            .clone_range((source.ino, 0), (clone.ino, 0), 0)
            .unwrap();
        clone
    }

    /// Clones a file, and changes the clone or its source.
    fn clone_one(&mut self) {
        let at = self.any();
        let clone = self.clone_of(self.files[at]);
        self.files.push(clone);
        self.count(self.files.len() - 1);
        let changed = [at, self.files.len() - 1][self.random.below(2) as usize];
        self.overwrite(changed);
    }

    /// Clones all files, changes some of the sources, as far as `used` allows, and deletes the
    /// clones.
    fn copy_and_change(&mut self, used: f64) {
        let clones: Vec<File> = (0..self.files.len())
            .map(|at| self.clone_of(self.files[at]))
            .collect();
        for _ in 0..self.files.len() {
            if self.uses(used) {
                break;
            }
            let at = self.any();
            self.overwrite(at);
        }
        for clone in clones {
            self.fs.unlink(clone.dir, &name_of(clone.name)).unwrap();
        }
    }

    /// Writes over a part of a file.
    fn overwrite(&mut self, at: usize) {
        let ino = self.files[at].ino;
        let size = self.fs.getattr(ino).unwrap().size;
        let len = 1 + self.random.below(64 << 10);
        let place = self.random.below(size + 1);
        let bytes = &self.bytes[..len as usize];
        self.fs.write(ino, place, bytes).unwrap();
    }

    /// Counts a file's blocks anew.
    fn count(&mut self, at: usize) {
        let file = &mut self.files[at];
        let blocks = self.fs.getattr(file.ino).unwrap().sectors / 8;
        self.blocks = self.blocks + blocks - file.blocks;
        file.blocks = blocks;
    }

    fn any(&mut self) -> usize {
        self.random.below(self.files.len() as u64) as usize
    }

    fn delete(&mut self) {
        let at = self.any();
        let file = self.files.swap_remove(at);
        self.blocks -= file.blocks;
        self.fs.unlink(file.dir, &name_of(file.name)).unwrap();
    }

    /// Changes a file as programs do.
    fn change(&mut self) {
        let at = self.any();
        let file = self.files[at];
        let size = self.fs.getattr(file.ino).unwrap().size;
        let len = 1 + self.random.below(64 << 10);
        let bytes = &self.bytes[..len as usize];
        match self.random.below(8) {
            0..4 => drop(self.fs.write(file.ino, self.random.below(size + 1), bytes)),
            4 | 5 => drop(self.fs.append(file.ino, bytes).unwrap()),
            6 => {
                let size = Some(self.random.below(size + 1));
                let cut = SetAttr {
                    size,
                    ..SetAttr::default()
                };
                self.fs.setattr(file.ino, &cut).unwrap();
            }
            _ => {
                self.make();
                let new = self.files.pop().unwrap();
                self.blocks -= new.blocks;
                let none = RenameFlags::empty();
                let (from, to) = (name_of(new.name), name_of(file.name));
                self.fs.rename(new.dir, &from, file.dir, &to, none).unwrap();
                self.files[at] = File {
                    ino: new.ino,
                    ..file
                };
            }
        }
        self.count(at);
    }

    fn uses(&self, part: f64) -> bool {
        if self.clones {
            let now = self.fs.statfs().unwrap();
            return (now.blocks - now.blocks_free) as f64 > now.blocks as f64 * part;
        }
        self.blocks as f64 > self.blocks_max as f64 * part
    }

    fn delete_to(&mut self, used: f64) {
        while self.uses(used) {
            self.delete();
        }
    }

    fn fill_to(&mut self, used: f64) {
        while !self.uses(used) {
            self.make();
            if self.random.below(4) == 0 {
                self.change();
            }
            if self.clones && self.random.below(4) == 0 {
                self.clone_one();
            }
        }
    }
}

fn name_of(name: u64) -> Vec<u8> {
    format!("file {name}").into_bytes()
}

/// Free space, and what of it is in whole regions.
fn share(fs: &Fs) -> f64 {
    let free = fs.details().free;
    (free.large * REGION) as f64 / free.small as f64
}

fn pool(mib: u64) -> (Fs, tempfile::TempDir) {
    let place = std::env::var("PMFS_AGEING_DIR").unwrap_or("/dev/shm".to_owned());
    let dir = tempfile::tempdir_in(place).unwrap();
    let path = dir.path().join("pool");
    let options = MkfsOptions {
        size: Some(mib << 20),
        ..MkfsOptions::default()
    };
    pmfs_admin::mkfs(&path, &options).unwrap();
    (Fs::open(&path, &OpenOptions::default()).unwrap(), dir)
}

/// Ages a pool; answers the shares after each round.
fn age(fs: &Fs, rounds: u64, seed: u64, threads: u64, size_max: u64) -> Vec<f64> {
    let agers = (0..threads).map(|index| Ager::new(fs, seed, index, threads, size_max));
    age_by(fs, agers.collect(), rounds)
}

fn age_by(fs: &Fs, mut agers: Vec<Ager<'_>>, rounds: u64) -> Vec<f64> {
    let mut shares = Vec::new();
    for round in 0..rounds {
        for (used, fills) in [(0.50, false), (0.75, true)] {
            std::thread::scope(|scope| {
                for ager in &mut agers {
                    scope.spawn(move || {
                        if fills {
                            if ager.clones {
                                ager.copy_and_change(used);
                            }
                            ager.fill_to(used);
                        } else {
                            ager.delete_to(used);
                        }
                    });
                }
            });
        }
        shares.push(share(fs));
        if round % 10 == 9 {
            println!("round {}: {:.3}", round + 1, share(fs));
        }
    }
    shares
}

fn stays_whole(threads: u64, clones: bool) {
    let mib = setting("PMFS_AGEING_MIB", 256);
    let rounds = setting("PMFS_AGEING_ROUNDS", 12);
    let seed = setting("PMFS_AGEING_SEED", 1);
    println!("PMFS_AGEING_SEED={seed}");
    let (fs, _dir) = pool(mib);
    let since = Instant::now();
    let size_max = (mib << 14).min(32 << 20);
    let agers = (0..threads).map(|index| Ager {
        clones,
        ..Ager::new(&fs, seed, index, threads, size_max)
    });
    let shares = age_by(&fs, agers.collect(), rounds);
    let least = shares.iter().copied().fold(1.0, f64::min);
    let late = &shares[shares.len() / 10..];
    let late = late.iter().sum::<f64>() / late.len() as f64;
    let how = if clones { "clones" } else { "no clones" };
    println!(
        "ageing: {rounds} rounds, {threads} threads, {mib} MiB, {how}: of the free space in whole regions {:.1} % at the end, {:.1} % in the \
         mean after the first tenth, {:.1} % at least ({:.0} s)",
        shares.last().unwrap() * 100.0,
        late * 100.0,
        least * 100.0,
        since.elapsed().as_secs_f64()
    );
    let report = fs.check().unwrap();
    assert!(report.is_clean(), "{:#?}", report.findings);
    assert!(late >= SHARE_MIN, "{shares:.3?}");
}

#[test]
fn an_aged_pool_has_its_free_space_in_whole_regions() {
    stays_whole(1, false);
}

#[test]
fn so_has_one_that_several_threads_have_aged() {
    stays_whole(4, false);
}

#[test]
fn so_has_one_with_clones() {
    stays_whole(1, true);
}

/// A file of a sixteenth of the pool, written in pieces of 1 MiB.
fn large_file(fs: &Fs, mib: u64) -> Ino {
    let ino = fs.create(ROOT_INO, b"large", &NODE).unwrap().ino;
    for _ in 0..mib / 16 {
        fs.append(ino, &vec![7; 1 << 20]).unwrap();
    }
    ino
}

/// Copies a file out of the pool; bytes a second.
fn bandwidth(fs: &Fs, ino: Ino, buffer: &mut [u8]) -> f64 {
    let size = fs.getattr(ino).unwrap().size;
    let since = Instant::now();
    let mut at = 0;
    while at < size {
        at += fs.read(ino, at, buffer).unwrap() as u64;
    }
    size as f64 / since.elapsed().as_secs_f64()
}

#[test]
fn a_large_file_in_an_aged_pool_is_as_one_in_a_fresh_one() {
    let mib = setting("PMFS_AGEING_MIB", 512);
    let rounds = setting("PMFS_AGEING_ROUNDS", 12);
    let (aged, _dir) = pool(mib);
    let seed = setting("PMFS_AGEING_SEED", 1);
    age(&aged, rounds, seed, 1, (mib << 14).min(32 << 20));
    let (fresh, _other_dir) = pool(mib);
    let files = [large_file(&aged, mib), large_file(&fresh, mib)];
    let pages = [&aged, &fresh]
        .map(|fs| fs.pages(fs.lookup(ROOT_INO, b"large").unwrap().ino))
        .map(Result::unwrap);
    let mut buffer = vec![0; 1 << 20];
    let mut ratios: Vec<f64> = (0..41)
        .map(|_| {
            // Always in turn: what was copied last is still in the caches.
            let mut copy = |one: usize| bandwidth([&aged, &fresh][one], files[one], &mut buffer);
            let [old, new] = [0, 1].map(&mut copy);
            old / new
        })
        .collect();
    ratios.sort_by(f64::total_cmp);
    println!(
        "ageing: a file of {} MiB is copied out of an aged pool {:.3} times as fast as out of a fresh one (quartiles {:.3} and {:.3}); \
         {} and {} large pages",
        mib / 16,
        ratios[20],
        ratios[10],
        ratios[30],
        pages[0].large,
        pages[1].large
    );
    assert_eq!(pages[0], pages[1]);
}
