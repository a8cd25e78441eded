//! Processes that work on one emulated pool at the same time.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use pmem::{Emulation, Pmem};
use rustix::time::{ClockId, clock_gettime};

use super::modules::Work;
use super::steady::{AGAIN_MAX, PIECES, STEADY_MIN, Strayed, watched};
use super::{LEN, map, write_for_a_span};
use crate::measure::Figures;
use crate::processor::keep_to;

/// The time that writers write in one piece.
pub const SPAN: Duration = Duration::from_millis(4);
/// The time at which writers begin, from the order on.
const LATER_NS: f64 = 300_000.0;

/// The work that is ordered.
#[derive(Clone, Copy)]
pub enum Job {
    /// Blocks written past the caches.
    Blocks,
    /// The pattern of modules at a place of their table.
    Pattern(usize),
}

impl Job {
    /// One word of an order.
    fn number(self) -> i64 {
        match self {
            Job::Blocks => -1,
            Job::Pattern(place) => place as i64,
        }
    }
}

/// Medians of some pieces.
pub struct Done {
    /// Bytes a second, of all processes.
    pub rate: f64,
    /// Share of accesses to a device that came too late.
    pub late: f64,
}

/// Returns what all of them do together, while all of them have a processor.
pub fn together(writers: &mut [Writer], job: Job, strayed: &mut Strayed) -> anyhow::Result<Done> {
    let (mut good, mut late) = (Figures::default(), Figures::default());
    let most = strayed.0 + AGAIN_MAX;
    while good.0.len() < PIECES {
        let at = monotonic_ns() + LATER_NS;
        for writer in writers.iter_mut() {
            writer.order(at, job)?;
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
            late.0
                .push(answers.iter().map(|span| span.late).fold(0.0, f64::max));
            continue;
        }
        strayed.0 += 1;
        if strayed.0 > most {
            bail!(
                "the machine is too busy: the writers never had a processor each; try again when it is not"
            );
        }
    }
    Ok(Done {
        rate: good.median(),
        late: late.median(),
    })
}

/// The span in which a writer wrote, of CLOCK_MONOTONIC.
struct Span {
    begin: f64,
    end: f64,
    /// Bytes a second.
    rate: f64,
    /// Share of accesses that came too late.
    late: f64,
    is_steady: bool,
}

/// A process that works when it is told to.
pub struct Writer {
    child: Child,
    orders: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Writer {
    pub fn start(pool: &Path, asked: Emulation, number: u64) -> anyhow::Result<Writer> {
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
    fn order(&mut self, at: f64, job: Job) -> anyhow::Result<()> {
        Ok(writeln!(self.orders, "{at} {}", job.number())?)
    }

    fn answer(&mut self) -> anyhow::Result<Span> {
        let mut line = String::new();
        self.answers.read_line(&mut line)?;
        let words: Vec<f64> = line.split_whitespace().flat_map(str::parse).collect();
        let [begin, end, rate, late, steady] = words[..] else {
            bail!("a writer ended: it said {line:?}");
        };
        Ok(Span {
            begin,
            end,
            rate,
            late,
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

pub fn monotonic_ns() -> f64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as f64 * 1e9 + now.tv_nsec as f64
}

/// The process of a [`Writer`]: a quarter of the pool is its own, and a processor.
pub fn writer(pool: &Path, asked: Emulation, number: u64) -> anyhow::Result<()> {
    let mem = map(pool, asked)?;
    keep_to(number as usize)?;
    for order in std::io::stdin().lines() {
        let order = order?;
        let (at, job) = order.split_once(' ').context("an order")?;
        let (at, job): (f64, i64) = (at.parse()?, job.parse()?);
        while monotonic_ns() < at {
            std::hint::spin_loop();
        }
        let (span, is_steady) = watched(&mut || match usize::try_from(job) {
            Ok(place) => work_for_a_span(&mem, place, number),
            Err(_) => write_for_a_span(&mem, number * LEN / 4),
        })?;
        let [begin, end, rate, late] = span;
        println!("{begin} {end} {rate} {late} {}", u8::from(is_steady));
    }
    Ok(())
}

/// A pattern for [`SPAN`], after a quarter of that: from when, until when, bytes a second, and the
/// share of accesses that came too late.
fn work_for_a_span(mem: &Pmem, place: usize, number: u64) -> anyhow::Result<[f64; 4]> {
    let mut work = Work::new(mem, place, number)?;
    let since = Instant::now();
    while since.elapsed() < SPAN / 4 {
        work.some()?;
    }
    let (begin, since, before) = (monotonic_ns(), Instant::now(), mem.charged().late);
    let (mut bytes, mut accesses) = (0, 0);
    while since.elapsed() < SPAN {
        let done = work.some()?;
        bytes += done.bytes;
        accesses += done.accesses;
    }
    let took = since.elapsed();
    let late = (mem.charged().late - before) as f64 / accesses as f64;
    let rate = bytes as f64 / took.as_secs_f64();
    Ok([begin, begin + took.as_nanos() as f64, rate, late])
}
