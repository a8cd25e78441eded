//! Measures the memory itself: the limits that no file system on it can exceed.
//!
//!     cargo run --release -p pmem --example limits -- PATH [MIB]
//!
//! The program makes a pool of MIB MiB (1024) at PATH, which must not exist, measures on it with
//! flush=always, and removes it. The cases take turns, so that a disturbance affects all of them.
//! The result of a case is the median of nine rounds, with the least and the greatest.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

use pmem::{FlushMode, MapOptions, Pmem, ProtectMode};

const ROUNDS: usize = 9;
const BLOCK: usize = 4096;

/// Options without protection: stores need no window here.
fn unprotected() -> MapOptions {
    MapOptions {
        protect: ProtectMode::None,
        ..MapOptions::default()
    }
}

/// Removes the pool, also after a failure.
struct Remove(PathBuf);

impl Drop for Remove {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_file(&self.0) {
            eprintln!("limits: {}: {error}", self.0.display());
        }
    }
}

/// A cheap random generator (xorshift64*), good enough to miss the caches.
struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 32) % n
    }
}

/// The pool and the state that each case works with.
struct Bench<'a> {
    mem: &'a Pmem,
    random: Random,
    buffer: Box<[u8; BLOCK]>,
    /// Next line of the sequential case.
    line: u64,
}

type Step = fn(&mut Bench<'_>);

/// Name, operations a round, one operation.
const CASES: &[(&str, u64, Step)] = &[
    ("64 B store + flush + fence, next line", 100_000, |b| {
        b.line = (b.line + 64) % b.mem.len();
        store_line(b.mem, b.line);
    }),
    ("64 B store + flush + fence, random line", 100_000, |b| {
        let line = b.random.below(b.mem.len() / 64) * 64;
        store_line(b.mem, line);
    }),
    ("64 B store + flush + fence, same line", 100_000, |b| {
        store_line(b.mem, 0);
    }),
    ("64 B copy out, random", 100_000, |b| {
        let off = b.random.below(b.mem.len() / 64) * 64;
        let _ = b.mem.copy_out(off, &mut b.buffer[..64]);
    }),
    ("64 B non-temporal in + fence, random", 100_000, |b| {
        let off = b.random.below(b.mem.len() / 64) * 64;
        let _ = b.mem.write_nt(off, &b.buffer[..64]);
        b.mem.fence();
    }),
    ("4 KiB copy out, random", 50_000, |b| {
        let off = random_block(b);
        let _ = b.mem.copy_out(off, &mut b.buffer[..]);
    }),
    ("4 KiB copy out, same block", 100_000, |b| {
        let _ = b.mem.copy_out(0, &mut b.buffer[..]);
    }),
    ("4 KiB non-temporal in + fence, random", 50_000, |b| {
        let off = random_block(b);
        let _ = b.mem.write_nt(off, &b.buffer[..]);
        b.mem.fence();
    }),
    ("4 KiB non-temporal in + fence, next block", 50_000, |b| {
        b.line = (b.line / 4096 * 4096 + 4096) % (b.mem.len() / 4096 * 4096);
        let _ = b.mem.write_nt(b.line, &b.buffer[..]);
        b.mem.fence();
    }),
    (
        "4 KiB pool to pool non-temporal + fence, random",
        50_000,
        |b| {
            let (to, from) = (random_block(b), random_block(b));
            if to != from {
                let _ = b.mem.copy_nt(to, from, BLOCK as u64);
                b.mem.fence();
            }
        },
    ),
];

fn random_block(b: &mut Bench<'_>) -> u64 {
    b.random.below(b.mem.len() / 4096) * 4096
}

fn store_line(mem: &Pmem, line: u64) {
    mem.write(line, &[line; 8]);
    mem.flush(line, 64);
    mem.fence();
}

fn measure(mem: &Pmem) -> Vec<Vec<f64>> {
    let mut bench = Bench {
        mem,
        random: Random(0x9e37_79b9_7f4a_7c15),
        buffer: Box::new([7; BLOCK]),
        line: 0,
    };
    let mut nanoseconds = vec![Vec::new(); CASES.len()];
    // Round 0 warms up and is not counted.
    for round in 0..=ROUNDS {
        for (case, (_, count, step)) in CASES.iter().enumerate() {
            let start = Instant::now();
            for _ in 0..*count {
                step(&mut bench);
            }
            if round > 0 {
                nanoseconds[case].push(start.elapsed().as_nanos() as f64 / *count as f64);
            }
        }
    }
    nanoseconds
}

fn run(path: &Path, len: u64) -> Result<(), pmem::Error> {
    let options = MapOptions {
        flush: FlushMode::Always,
        ..unprotected()
    };
    let mem = Pmem::create(path, len, false, true, &options)?;
    let _remove = Remove(path.into());
    // All pages are mapped before the first round.
    mem.zero_nt(0, mem.len());
    mem.fence();
    let medium = mem.medium();
    println!(
        "{} MiB on {}, flush {}, {}",
        len >> 20,
        medium.kind,
        medium.flush,
        if mem.has_huge_pages() {
            "huge pages"
        } else {
            "4 KiB pages"
        },
    );
    println!("{:>8} {:>8} {:>8}  ns", "median", "least", "greatest");
    for ((name, ..), mut times) in CASES.iter().zip(measure(&mem)) {
        times.sort_by(f64::total_cmp);
        let (least, median, greatest) = (times[0], times[ROUNDS / 2], times[ROUNDS - 1]);
        println!("{median:8.1} {least:8.1} {greatest:8.1}  {name}");
    }
    Ok(())
}

fn main() -> ExitCode {
    let mut args = std::env::args_os().skip(1);
    let mib = |text: std::ffi::OsString| text.to_str()?.parse::<u64>().ok();
    let (Some(path), Some(mib)) = (args.next(), args.next().map_or(Some(1024), mib)) else {
        eprintln!("usage: limits PATH [MIB]");
        return ExitCode::from(2);
    };
    match run(Path::new(&path), mib << 20) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("limits: {error}");
            ExitCode::FAILURE
        }
    }
}
