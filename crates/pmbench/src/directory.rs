//! The cost of create, lookup and unlink in a directory of 10 k entries, and in one of a million.
//!
//! Two comparisons. *As it is*: the small directory alone is small enough for the caches, so the
//! difference holds cache misses that any structure has. *Same memory*: as many small directories
//! as make up the large one's entries, so that only the directory's size differs.

use crate::ground::Ground;
use crate::measure::{Figures, Report, ratio, time};
use crate::pool::{NODE, map_options};
use crate::random::Random;
use pmfs::{Fs, Ino, OpenOptions, ROOT_INO};
use pmfs_admin::MkfsOptions;

const SMALL: u64 = 10_000;
const COUNT: u64 = 10_000;

/// Directories that are asked in turn, each of `entries` names.
struct Set {
    dirs: Vec<Ino>,
    entries: u64,
}

impl Set {
    fn new(fs: &Fs, name: &str, dirs: u64, entries: u64) -> anyhow::Result<Set> {
        let mut set = Set {
            dirs: Vec::new(),
            entries,
        };
        for dir in 0..dirs {
            set.dirs.push(
                fs.mkdir(ROOT_INO, format!("{name}{dir}").as_bytes(), &NODE)?
                    .ino,
            );
        }
        for entry in 0..entries {
            for &dir in &set.dirs {
                fs.create(dir, format!("file-{entry:08}").as_bytes(), &NODE)?;
            }
        }
        Ok(set)
    }

    fn dir(&self, random: &mut Random) -> Ino {
        self.dirs[random.below(self.dirs.len() as u64) as usize]
    }

    /// ns a create, a lookup, an unlink.
    fn round(&self, fs: &Fs, random: &mut Random) -> anyhow::Result<[f64; 3]> {
        let mut made = Vec::new();
        let create = time(COUNT, || {
            for n in 0..COUNT {
                let dir = self.dir(random);
                let name = format!("made-{n:08}");
                fs.create(dir, name.as_bytes(), &NODE)?;
                made.push((dir, name));
            }
            Ok(())
        })?;
        let lookup = time(COUNT, || {
            for _ in 0..COUNT {
                let name = format!("file-{:08}", random.below(self.entries));
                fs.lookup(self.dir(random), name.as_bytes())?;
            }
            Ok(())
        })?;
        let unlink = time(COUNT, || {
            for (dir, name) in &made {
                fs.unlink(*dir, name.as_bytes())?;
            }
            Ok(())
        })?;
        Ok([create, lookup, unlink])
    }
}

/// Runs and prints.
pub fn run(report: &Report, entries: u64) -> anyhow::Result<()> {
    let ground = Ground::new(8)?;
    let path = ground.path().join("pool");
    let mkfs = MkfsOptions {
        size: Some(6 << 30),
        inodes: Some(4 * entries + 1_000_000),
        map: map_options(),
        ..MkfsOptions::default()
    };
    pmfs_admin::mkfs(&path, &mkfs)?;
    let open = OpenOptions {
        map: map_options(),
        ..OpenOptions::default()
    };
    let fs = Fs::open(&path, &open)?;
    let small = Set::new(&fs, "small", 1, SMALL)?;
    let many = Set::new(&fs, "many", entries / SMALL, SMALL)?;
    let large = Set::new(&fs, "large", 1, entries)?;
    let mut random = Random(1);
    let mut figures: [[Figures; 3]; 3] = Default::default();
    for round in 0..=report.rounds {
        for (set, figures) in [&small, &many, &large].iter().zip(&mut figures) {
            let ns = set.round(&fs, &mut random)?;
            for (ns, figures) in ns.iter().zip(figures) {
                if round > 0 {
                    figures.0.push(*ns);
                }
            }
        }
    }
    println!(
        "{:10} {:>20} {:>24} {:>20} {:>8} {:>12}",
        "ns",
        "10 k, alone",
        "10 k, as many files",
        format!("{entries} in one"),
        "as it is",
        "same memory"
    );
    for (at, name) in ["create", "lookup", "unlink"].iter().enumerate() {
        let [small, many, large] = &figures;
        println!(
            "{name:10} {:>20} {:>24} {:>20} {:>7.2}x {:>11.2}x",
            small[at].text(),
            many[at].text(),
            large[at].text(),
            ratio(&large[at], &small[at]),
            ratio(&large[at], &many[at])
        );
    }
    Ok(())
}
