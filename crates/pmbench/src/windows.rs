//! The cost of keeping stray stores away: PMFS's figure 11. No protection, protection keys, page
//! permissions, on writes of 64 B to 256 KiB and on a mix of calls like Filebench's fileserver, by
//! one thread and by two.
//!
//! Method: one pool, attached once for each protection, which take turns. The windows that an
//! operation opens are counted. The count is all that can be said of keys on a machine that has
//! none: each window is two WRPKRU.

use crate::experiments::shell::Cannot;
use crate::ground::Ground;
use crate::measure::{Figures, Report, ratio, time};
use crate::pool::{NODE, map_options, unprotected};
use crate::random::Random;
use anyhow::ensure;
use clap::Args;
use pmem::counters;
use pmfs::{AtimeMode, Fs, Ino, MapOptions, OpenOptions, ProtectMode, Protection, ROOT_INO};
use pmfs_admin::MkfsOptions;
use std::path::Path;

const KIB: usize = 1 << 10;
/// Bytes written at a time, and operations in a round.
const WRITES: [(usize, u64); 7] = [
    (64, 4000),
    (KIB, 4000),
    (4 * KIB, 4000),
    (16 * KIB, 1000),
    (64 * KIB, 400),
    (128 * KIB, 200),
    (256 * KIB, 100),
];
/// Runs through the mix in a round, each thread.
const MIXES: u64 = 100;
const POOL: u64 = 1 << 30;
const FILE: u64 = 128 << 20;
/// The sizes of the mix, as Filebench has it: a file's bytes, and what is appended to it.
const WHOLE: usize = 128 * KIB;
const MORE: usize = 16 * KIB;

/// The operations to measure.
#[derive(Args)]
pub struct Options {
    /// Measure only this operation, by its name in the table [default: all of them].
    #[arg(long)]
    operation: Option<String>,
    /// Measure only this protection [default: none, keys and pages in turns].
    #[arg(long)]
    protection: Option<ProtectMode>,
}

impl Options {
    fn modes(&self) -> anyhow::Result<Vec<ProtectMode>> {
        let keys = pmem::protection::keys();
        match (self.protection, keys) {
            (Some(ProtectMode::Keys), Err(why)) => Err(Cannot(why.to_string()).into()),
            (Some(mode), _) => Ok(vec![mode]),
            (None, Ok(_)) => Ok(vec![
                ProtectMode::None,
                ProtectMode::Keys,
                ProtectMode::Pages,
            ]),
            (None, Err(_)) => Ok(vec![ProtectMode::None, ProtectMode::Pages]),
        }
    }

    fn wants(&self, operation: &str) -> bool {
        self.operation.as_ref().is_none_or(|one| one == operation)
    }

    fn check(&self) -> anyhow::Result<()> {
        let writes = WRITES.iter().map(|(len, _)| name_of_write(*len));
        let all: Vec<String> = writes.chain([1, 2].map(name_of_mix)).collect();
        ensure!(
            all.iter().any(|name| self.wants(name)),
            "there is no such operation; there are: {}",
            all.join("; ")
        );
        Ok(())
    }
}

fn name_of_write(bytes: usize) -> String {
    match bytes {
        ..KIB => format!("write {bytes} B"),
        _ => format!("write {} KiB", bytes / KIB),
    }
}

fn name_of_mix(threads: usize) -> String {
    format!("fileserver mix, {threads} thread{}", &"s"[..threads - 1])
}

/// A pool that is attached, with its windows closed.
struct Closed {
    fs: Fs,
    protection: Protection,
    file: Ino,
    dirs: [Ino; 2],
    random: Random,
    made: u64,
}

impl Closed {
    /// `seed` is another one each time: a run over the same places as the last one would find them
    /// in a cache.
    fn open(path: &Path, protect: ProtectMode, file: Ino, seed: u64) -> anyhow::Result<Closed> {
        let options = OpenOptions {
            map: MapOptions {
                protect,
                ..map_options()
            },
            atime: AtimeMode::Noatime,
            ..OpenOptions::default()
        };
        let fs = Fs::open(path, &options)?;
        let dir = |number: u64| -> anyhow::Result<Ino> {
            let name = format!("{protect}-{number}");
            Ok(fs.mkdir(ROOT_INO, name.as_bytes(), &NODE)?.ino)
        };
        let dirs = [dir(0)?, dir(1)?];
        let protection = fs.mapping().protection();
        Ok(Closed {
            fs,
            protection,
            file,
            dirs,
            random: Random(seed),
            made: 0,
        })
    }

    fn write(&mut self, bytes: &[u8], count: u64) -> anyhow::Result<()> {
        let len = bytes.len() as u64;
        for _ in 0..count {
            let at = self.random.below(FILE / len) * len;
            self.fs.write(self.file, at, bytes)?;
        }
        Ok(())
    }

    /// Each thread in a directory of its own.
    fn mix(&mut self, bytes: &[u8], threads: usize) -> anyhow::Result<()> {
        self.made += 1;
        let (fs, made) = (&self.fs, self.made);
        let work = |dir: Ino| (0..MIXES).try_for_each(|n| mix(fs, dir, made * MIXES + n, bytes));
        std::thread::scope(|scope| {
            let others: Vec<_> = self.dirs[1..threads]
                .iter()
                .map(|&dir| scope.spawn(move || work(dir)))
                .collect();
            work(self.dirs[0])?;
            others
                .into_iter()
                .try_for_each(|other| other.join().expect("it does not panic"))
        })
    }
}

/// Make a file and write it whole; open and append; open and read it whole; look at it; delete it.
fn mix(fs: &Fs, dir: Ino, number: u64, bytes: &[u8]) -> anyhow::Result<()> {
    let name = format!("file-{number}");
    let name = name.as_bytes();
    let ino = fs.create(dir, name, &NODE)?.ino;
    fs.hold(ino)?;
    fs.write(ino, 0, &bytes[..WHOLE])?;
    fs.release(ino)?;
    let ino = fs.lookup(dir, name)?.ino;
    fs.hold(ino)?;
    fs.append(ino, &bytes[..MORE])?;
    fs.release(ino)?;
    let mut into = vec![0; WHOLE + MORE];
    fs.hold(ino)?;
    fs.read(ino, 0, &mut into)?;
    fs.release(ino)?;
    fs.getattr(ino)?;
    fs.unlink(dir, name)?;
    Ok(())
}

/// A pool with a file in it.
fn make(path: &Path) -> anyhow::Result<Ino> {
    let made = MkfsOptions {
        size: Some(POOL),
        map: map_options(),
        ..MkfsOptions::default()
    };
    pmfs_admin::mkfs(path, &made)?;
    let open = OpenOptions {
        map: unprotected(),
        ..OpenOptions::default()
    };
    let fs = Fs::open(path, &open)?;
    let file = fs.create(ROOT_INO, b"file", &NODE)?.ino;
    let block = [7; 4096];
    for at in (0..FILE).step_by(block.len()) {
        fs.write(file, at, &block)?;
    }
    fs.detach()?;
    Ok(file)
}

/// Measures and prints.
pub fn run(report: &Report, options: &Options) -> anyhow::Result<()> {
    options.check()?;
    let modes = options.modes()?;
    let ground = Ground::new(2)?;
    let path = ground.path().join("pool");
    let file = make(&path)?;
    let mut all = Vec::new();
    for (seed, mode) in (1..).zip(modes) {
        all.push(Closed::open(&path, mode, file, seed)?);
    }
    if !report.json {
        head(report);
    }
    let bytes = vec![9; 256 * KIB];
    for (len, count) in WRITES {
        let name = name_of_write(len);
        if options.wants(&name) {
            measure(report, &name, count, &mut all, |one| {
                one.write(&bytes[..len], count)
            })?;
        }
    }
    for threads in [1, 2] {
        let name = name_of_mix(threads);
        if options.wants(&name) {
            measure(report, &name, MIXES, &mut all, |one| {
                one.mix(&bytes, threads)
            })?;
        }
    }
    for one in &all {
        one.fs.detach()?;
    }
    Ok(())
}

fn head(report: &Report) {
    println!(
        "{} rounds; ns an operation: median (least-most)",
        report.rounds
    );
    if let Err(why) = pmem::protection::keys() {
        println!("protection keys were not measured: {why}; each window would be two WRPKRU");
    }
    println!(
        "{:<28} {:>10} {:>26} {:>9} {:>9}",
        "", "protection", "ns", "times", "windows"
    );
}

/// All protections in turns; `count` operations each time.
fn measure(
    report: &Report,
    name: &str,
    count: u64,
    all: &mut [Closed],
    mut work: impl FnMut(&mut Closed) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let mut figures = vec![Figures::default(); all.len()];
    let mut windows = vec![0.0; all.len()];
    // The first round warms up.
    for round in 0..=report.rounds {
        // Another one begins each time.
        for turn in 0..all.len() {
            let at = (round + turn) % all.len();
            let one = &mut all[at];
            let before = counters::snapshot();
            let ns = time(count, || work(one))?;
            let opened = (counters::snapshot() - before).windows;
            windows[at] = opened as f64 / count as f64;
            if round > 0 {
                figures[at].0.push(ns);
            }
        }
    }
    for ((one, ns), windows) in all.iter().zip(&figures).zip(windows) {
        let times = ratio(ns, &figures[0]);
        let protection = one.protection.to_string();
        if report.json {
            println!(
                "{}",
                serde_json::json!({"operation": name, "protection": protection, "ns": ns.0, "median_ns": ns.median(), "times": times, "windows": windows})
            );
        } else {
            println!(
                "{name:<28} {protection:>10} {:>26} {times:>8.2}x {windows:>9.2}",
                ns.text()
            );
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_operation_is_chosen_by_its_name() {
        let named = |name: &str| Options {
            operation: Some(name.into()),
            protection: Some(ProtectMode::Pages),
        };
        for name in ["write 64 B", "write 4 KiB", "fileserver mix, 2 threads"] {
            assert!(named(name).check().is_ok(), "{name}");
        }
        let why = named("write 64").check().unwrap_err().to_string();
        assert!(why.contains("write 64 B; "), "{why}");
        assert_eq!(named("").modes().unwrap(), [ProtectMode::Pages]);
    }
}
