//! The check whether an emulated medium is as slow as it was asked to be: what a line read and a
//! barrier take longer, and how many bytes a second one and two processes write together.
//!
//! Method: in each round the same work once on memory as it is and once on the emulated medium, in
//! turns, of lines that are in the cache, so that the difference is the emulation's; bandwidth is
//! what it is. Each piece of work is short. A piece is made again, and counted, if the thread had
//! the processor for less than nearly all of its time.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use pmem::{Emulation, MapOptions, MediumWords, Pmem};
use rustix::time::{ClockId, clock_gettime};

use crate::ground::Ground;
use crate::measure::{Figures, Report};
use crate::pool::unprotected;
use crate::processor::keep_to;
use crate::random::Random;

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
/// The time that writers write in one piece.
const SPAN: Duration = Duration::from_millis(4);
/// The time at which writers begin, from the order on.
const LATER_NS: f64 = 300_000.0;
/// Pieces of which a round's figure is the median.
const PIECES: usize = 9;
/// Pieces that are made again at most, for one figure.
const AGAIN_MAX: usize = 5000;
/// A thread has to have the processor for so much of the time, parts of one.
const STEADY_MIN: f64 = 0.97;
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
    if asked.device.is_some() {
        bail!(
            "{asked} has no figures to compare with; write --emulate {DEFAULT}, or another medium of figures"
        );
    }
    let ground = Ground::new(1)?;
    let path = ground.path().join("pool");
    drop(Pmem::create(&path, LEN, false, true, &unprotected())?);
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

/// Pieces that were made again.
struct Strayed(usize);

impl Strayed {
    /// Returns the median over undisturbed pieces of work; a piece returns its figure and its time.
    fn steady(&mut self, mut work: impl FnMut() -> anyhow::Result<f64>) -> anyhow::Result<f64> {
        let mut good = Figures::default();
        let most = self.0 + AGAIN_MAX;
        while good.0.len() < PIECES {
            let (figure, is_steady) = watched(&mut work)?;
            if is_steady {
                good.0.push(figure);
                continue;
            }
            self.0 += 1;
            if self.0 > most {
                bail!(
                    "the machine is too busy: a piece of work strayed {AGAIN_MAX} times; try again when it is not"
                );
            }
        }
        Ok(good.median())
    }
}

/// Returns the result of some work, and whether the thread had the processor all the time.
fn watched<T>(work: &mut impl FnMut() -> anyhow::Result<T>) -> anyhow::Result<(T, bool)> {
    let processor = || {
        let time = clock_gettime(ClockId::ThreadCPUTime);
        time.tv_sec as f64 * 1e9 + time.tv_nsec as f64
    };
    let (had, since) = (processor(), Instant::now());
    let figure = work()?;
    let took = since.elapsed().as_nanos() as f64;
    Ok((figure, processor() - had >= took * STEADY_MIN))
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
    let alone = together(&mut writers[..1], strayed)?;
    let both = together(writers, strayed)?;
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

/// Returns what all of them write together, while all of them have a processor.
fn together(writers: &mut [Writer], strayed: &mut Strayed) -> anyhow::Result<f64> {
    let mut good = Figures::default();
    let most = strayed.0 + AGAIN_MAX;
    while good.0.len() < PIECES {
        let at = monotonic_ns() + LATER_NS;
        for writer in writers.iter_mut() {
            writer.order(at)?;
        }
        let answers: Vec<Span> = writers
            .iter_mut()
            .map(Writer::answer)
            .collect::<anyhow::Result<_>>()?;
        let begin = answers.iter().map(|span| span.begin).fold(0.0, f64::max);
        let end = answers.iter().map(|span| span.end).fold(f64::MAX, f64::min);
        let overlap = (end - begin) / (SPAN.as_nanos() as f64);
        if answers.iter().all(|span| span.is_steady) && overlap > STEADY_MIN {
            good.0.push(answers.iter().map(|span| span.rate).sum());
            continue;
        }
        strayed.0 += 1;
        if strayed.0 > most {
            bail!(
                "the machine is too busy: the writers never had a processor each; try again when it is not"
            );
        }
    }
    Ok(good.median())
}

/// The span in which a writer wrote, of CLOCK_MONOTONIC.
struct Span {
    begin: f64,
    end: f64,
    rate: f64,
    is_steady: bool,
}

/// A process that writes when it is told to.
struct Writer {
    child: Child,
    orders: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Writer {
    fn start(pool: &Path, asked: Emulation, number: u64) -> anyhow::Result<Writer> {
        let mut child = Command::new(std::env::current_exe()?)
            .arg("emulated-writer")
            .arg(pool)
            .arg(asked.to_string())
            .arg(number.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        Ok(Writer {
            orders: child.stdin.take().context("a pipe")?,
            answers: BufReader::new(child.stdout.take().context("a pipe")?),
            child,
        })
    }

    /// All begin at the same time, a little later.
    fn order(&mut self, at: f64) -> anyhow::Result<()> {
        Ok(writeln!(self.orders, "{at}")?)
    }

    fn answer(&mut self) -> anyhow::Result<Span> {
        let mut line = String::new();
        self.answers.read_line(&mut line)?;
        let words: Vec<f64> = line.split_whitespace().flat_map(str::parse).collect();
        let [begin, end, rate, steady] = words[..] else {
            bail!("a writer ended: it said {line:?}");
        };
        Ok(Span {
            begin,
            end,
            rate,
            is_steady: steady > 0.0,
        })
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn monotonic_ns() -> f64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as f64 * 1e9 + now.tv_nsec as f64
}

/// Blocks written past the caches, for [`SPAN`]: from when, until when, bytes a second.
fn write_for_a_span(mem: &Pmem, from: u64) -> anyhow::Result<[f64; 3]> {
    let block = [7; WRITTEN as usize];
    let (begin, since) = (monotonic_ns(), Instant::now());
    let mut blocks = 0;
    while since.elapsed() < SPAN {
        mem.write_nt(from + blocks % (LEN / 4 / WRITTEN) * WRITTEN, &block)?;
        blocks += 1;
    }
    let took = since.elapsed();
    let rate = (blocks * WRITTEN) as f64 / took.as_secs_f64();
    Ok([begin, begin + took.as_nanos() as f64, rate])
}

/// The process of a [`Writer`]: a quarter of the pool is its own, and a processor.
pub fn writer(pool: &Path, asked: Emulation, number: u64) -> anyhow::Result<()> {
    let mem = map(pool, asked)?;
    keep_to(number as usize)?;
    for order in std::io::stdin().lines() {
        let at: f64 = order?.parse()?;
        while monotonic_ns() < at {
            std::hint::spin_loop();
        }
        let ([begin, end, rate], is_steady) =
            watched(&mut || write_for_a_span(&mem, number * LEN / 4))?;
        println!("{begin} {end} {rate} {}", u8::from(is_steady));
    }
    Ok(())
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
