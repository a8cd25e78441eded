//! The check whether an emulated medium is as slow as it was asked to be: what a line read and a
//! barrier take longer, and how many bytes a second one and two processes write together.
//!
//! Method: in each round the same work once on memory as it is and once on the emulated medium, in
//! turns, of lines that are in the cache, so that the difference is the emulation's; bandwidth is
//! what it is. Each piece of work is short. A piece is made again, and counted, if the thread had
//! the processor for less than nearly all of its time. A device's patterns are in [`modules`].

mod modules;
mod steady;
mod writers;

use std::path::Path;
use std::time::Instant;

use anyhow::bail;
use pmem::{Emulation, MapOptions, MediumWords, Pmem};

use crate::ground::Ground;
use crate::measure::{Figures, Report};
use crate::pool::unprotected;
use crate::random::Random;
use steady::Strayed;
pub use writers::writer;
use writers::{Job, SPAN, Writer, monotonic_ns, together};

/// The default medium: PMEP's.
pub const DEFAULT: &str = "read=300ns,write-bandwidth=9.5G,barrier=100ns";

const LEN: u64 = 64 << 20;
/// The place of the shared word: in a page of its own.
const WORD: u64 = 0;
/// Lines that are read, bytes: what a cache holds.
const WARM: u64 = 128 << 10;
/// Lines read, and barriers made, in one piece of work.
const COUNT: u64 = 1024;
const BLOCK: u64 = 4096;
/// Bytes written at a time: so many that what the emulation takes itself is little beside the
/// fastest media.
const WRITTEN: u64 = 64 << 10;
/// A figure that is further from what was asked for is an error, parts of one; but for a few ns,
/// which the clock takes itself.
const ERROR_MAX: f64 = 0.05;
const ERROR_NS: f64 = 5.0;

/// The probes, in the order of the table.
const PROBES: [&str; 6] = [
    "read, 64 B",
    "read, 4 KiB",
    "read, a word",
    "barrier",
    "write, one process",
    "write, two processes",
];

fn map(path: &Path, emulate: Emulation) -> anyhow::Result<Pmem> {
    let options = MapOptions {
        emulate,
        ..unprotected()
    };
    let mem = Pmem::open(path, &options)?;
    let words = MediumWords {
        busy: WORD,
        more: Some(std::array::from_fn(|word| WORD + 8 + 8 * word as u64)),
    };
    mem.share_bandwidth(Some(&words));
    Ok(mem)
}

/// Measures and prints; an error if a figure is not what was asked for.
pub fn run(report: &Report, asked: Emulation) -> anyhow::Result<()> {
    if asked.is_off() {
        bail!("{asked} is memory as it is; write --emulate {DEFAULT}, or another medium");
    }
    let ground = Ground::new(1)?;
    let path = ground.path().join("pool");
    drop(Pmem::create(&path, LEN, false, true, &unprotected())?);
    if let Some(device) = asked.device {
        return modules::run(report, asked, device, &path);
    }
    let (plain, slow) = (map(&path, Emulation::OFF)?, map(&path, asked)?);
    let mut writers = [
        Writer::start(&path, asked, 1)?,
        Writer::start(&path, asked, 2)?,
    ];
    let mut figures: [Figures; PROBES.len()] = Default::default();
    let mut strayed = Strayed(0);
    for _ in 0..report.rounds {
        let round = round(&plain, &slow, &mut writers, &mut strayed)?;
        for (all, figure) in figures.iter_mut().zip(round) {
            all.0.push(figure);
        }
    }
    let limit = strayed.steady(|| Ok(write_for_a_span(&plain, 3 * LEN / 4)?[2]))?;
    show(report, asked, &figures, (strayed.0, limit))
}

/// Returns a figure for each probe: ns more, or bytes a second.
fn round(
    plain: &Pmem,
    slow: &Pmem,
    writers: &mut [Writer; 2],
    strayed: &mut Strayed,
) -> anyhow::Result<[f64; 6]> {
    let mut more = |work: &dyn Fn(&Pmem) -> anyhow::Result<f64>| -> anyhow::Result<f64> {
        let as_it_is = strayed.steady(|| work(plain))?;
        Ok(strayed.steady(|| work(slow))? - as_it_is)
    };
    let lines = more(&|mem| read(mem, 64))?;
    let blocks = more(&|mem| read(mem, BLOCK))?;
    let words = more(&|mem| Ok(read_words(mem)))?;
    let barriers = more(&|mem| Ok(make_barriers(mem)))?;
    let alone = together(&mut writers[..1], Job::Blocks, strayed)?.rate;
    let both = together(writers, Job::Blocks, strayed)?.rate;
    Ok([lines, blocks, words, barriers, alone, both])
}

fn ns_each(count: u64, since: Instant) -> f64 {
    since.elapsed().as_nanos() as f64 / count as f64
}

/// ns a line, of pieces of `bytes` anywhere.
fn read(mem: &Pmem, bytes: u64) -> anyhow::Result<f64> {
    let mut random = Random(7);
    let mut into = vec![0; bytes as usize];
    let since = Instant::now();
    for _ in 0..COUNT * 64 / bytes {
        let off = BLOCK + random.below(WARM / bytes) * bytes;
        mem.copy_out(off, &mut into)?;
    }
    Ok(ns_each(COUNT, since))
}

/// ns a word, each of another line than the one before.
fn read_words(mem: &Pmem) -> f64 {
    let mut sum = 0u64;
    let since = Instant::now();
    for step in 0..COUNT {
        sum = sum.wrapping_add(mem.load(BLOCK + step * 192 % WARM));
    }
    std::hint::black_box(sum);
    ns_each(COUNT, since)
}

fn make_barriers(mem: &Pmem) -> f64 {
    let since = Instant::now();
    for _ in 0..COUNT {
        mem.fence();
    }
    ns_each(COUNT, since)
}

/// Blocks written past the caches, for [`SPAN`]: from when, until when, bytes a second, none late.
fn write_for_a_span(mem: &Pmem, from: u64) -> anyhow::Result<[f64; 4]> {
    let block = [7; WRITTEN as usize];
    let (begin, since) = (monotonic_ns(), Instant::now());
    let mut blocks = 0;
    while since.elapsed() < SPAN {
        mem.write_nt(from + blocks % (LEN / 4 / WRITTEN) * WRITTEN, &block)?;
        blocks += 1;
    }
    let took = since.elapsed();
    let rate = (blocks * WRITTEN) as f64 / took.as_secs_f64();
    Ok([begin, begin + took.as_nanos() as f64, rate, 0.0])
}

fn show(
    report: &Report,
    asked: Emulation,
    figures: &[Figures; 6],
    (strayed, limit): (usize, f64),
) -> anyhow::Result<()> {
    let (read, barrier) = (asked.read_ns as f64, asked.barrier_ns as f64);
    let rate = asked.write_bytes_per_s as f64;
    let wanted = [read, read, read, barrier, rate, rate];
    let mut worst = 0.0f64;
    if !report.json {
        println!(
            "emulated: {asked}; {} rounds, {strayed} pieces strayed and were made again",
            report.rounds
        );
        println!(
            "this memory itself takes {:.2} GB/s of one thread",
            limit * 1e-9
        );
        println!(
            "{:<24} {:>12} {:>24} {:>8}",
            "", "asked", "measured", "error"
        );
    }
    for ((name, wanted), all) in PROBES.iter().zip(wanted).zip(figures) {
        let is_rate = name.starts_with("write");
        let (unit, scale) = if is_rate { ("GB/s", 1e-9) } else { ("ns", 1.0) };
        let error = all.median() / wanted - 1.0;
        let counts = wanted > 0.0;
        let is_close = !is_rate && (all.median() - wanted).abs() <= ERROR_NS;
        if counts && !is_close {
            worst = worst.max(error.abs());
        }
        if report.json {
            let error = counts.then_some(error);
            println!(
                "{}",
                serde_json::json!({"probe": name, "asked": wanted, "measured": all.median(), "all": all.0, "error": error, "strayed": strayed})
            );
            continue;
        }
        let scaled = Figures(all.0.iter().map(|figure| figure * scale).collect());
        let error = if counts {
            format!("{:+.1} %", error * 100.0)
        } else {
            "-".to_owned()
        };
        println!(
            "{name:<24} {:>12} {:>24} {error:>8}",
            format!("{:.4} {unit}", wanted * scale),
            text(&scaled, is_rate)
        );
    }
    if worst > ERROR_MAX {
        bail!("a figure is {:.1} % from what was asked for", worst * 100.0);
    }
    Ok(())
}

fn text(all: &Figures, is_rate: bool) -> String {
    let (least, most) = all
        .0
        .iter()
        .fold((f64::MAX, f64::MIN), |(least, most), figure| {
            (least.min(*figure), most.max(*figure))
        });
    let digits = if is_rate { 2 } else { 1 };
    format!(
        "{:.digits$} ({least:.digits$}-{most:.digits$})",
        all.median()
    )
}
