//! What keeping stray stores away costs: PMFS's figure 11. No protection, protection keys, page permissions, on writes of 64 B to 256 KiB
//! and on a mix of calls like Filebench's fileserver, by one thread and by two.
//!
//! Method: one pool, attached once for each protection, which take turns. How many windows an operation opens is counted. Where
//! the machine has no keys that count is all that can be said of them here: each is two WRPKRU.

use crate::ground::Ground;
use crate::measure::{Figures, Report, ratio, time};
use crate::pool::{NODE, map_options, unprotected};
use crate::random::Random;
use pmem::counters;
use pmfs::{
    AtimeMode, Fs, Ino, MapOptions, MkfsOptions, OpenOptions, ProtectMode, Protection, ROOT_INO,
};
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
/// Of the mix, as Filebench has it: a file's bytes, and what is appended to it.
const WHOLE: usize = 128 * KIB;
const MORE: usize = 16 * KIB;

/// One attachment.
struct Closed {
    fs: Fs,
    protection: Protection,
    file: Ino,
    dirs: [Ino; 2],
    random: Random,
    made: u64,
}

impl Closed {
    fn open(path: &Path, protect: ProtectMode, file: Ino) -> anyhow::Result<Closed> {
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
            random: Random(1),
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
    Fs::mkfs(path, &made)?;
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
pub fn run(report: &Report) -> anyhow::Result<()> {
    let ground = Ground::new(2)?;
    let path = ground.path().join("pool");
    let file = make(&path)?;
    let mut modes = vec![ProtectMode::None, ProtectMode::Pages];
    let keys = pmem::protection::keys();
    if keys.is_ok() {
        modes.insert(1, ProtectMode::Keys);
    }
    let mut all = Vec::new();
    for mode in modes {
        all.push(Closed::open(&path, mode, file)?);
    }
    if !report.json {
        println!(
            "{} rounds; ns an operation: median (least-most)",
            report.rounds
        );
        if let Err(why) = &keys {
            println!("protection keys were not measured: {why}; each window would be two WRPKRU");
        }
        println!(
            "{:<28} {:>10} {:>26} {:>9} {:>9}",
            "", "protection", "ns", "times", "windows"
        );
    }
    let bytes = vec![9; 256 * KIB];
    for (len, count) in WRITES {
        let name = if len < KIB {
            format!("write {len} B")
        } else {
            format!("write {} KiB", len / KIB)
        };
        measure(report, &name, count, &mut all, |one| {
            one.write(&bytes[..len], count)
        })?;
    }
    for threads in [1, 2] {
        let name = format!("fileserver mix, {threads} thread{}", &"s"[..threads - 1]);
        measure(report, &name, MIXES, &mut all, |one| {
            one.mix(&bytes, threads)
        })?;
    }
    for one in &all {
        one.fs.detach()?;
    }
    Ok(())
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
        for (at, one) in all.iter_mut().enumerate() {
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
                serde_json::json!({"operation": name, "protection": protection, "ns": ns.0, "times": times, "windows": windows})
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
