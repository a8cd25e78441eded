//! `pmfs top`: the work of each process on a pool, from the counters in its slot. No process is
//! asked or slowed down. With `--mapped` the monitor looks at their loads and stores as well, and
//! asks them for their calls by thread.

use std::collections::HashMap;
use std::io::{self, IsTerminal};
use std::path::Path;
use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

use pmfs::Totals;
use pmfs_admin::{Inspector, Process};
use serde::Serialize;

use crate::Outcome;
use crate::cli::Top;
use crate::failure::Failure;
use crate::holders::ProcessReport;
use crate::mapped::{Mapped, Monitor, Told};
use crate::pool;
use pm_cli::{Size, escaped, print_round};

/// A round. Rates are per second, over the time since the round before; in the first one since the
/// process attached.
#[derive(Serialize)]
struct Round {
    pool: String,
    seconds: f64,
    processes: Vec<Row>,
    #[serde(flatten)]
    mapped: Option<MappedRound>,
}

/// The part of a round that the monitor tells. Figures are totals of its time.
#[derive(Serialize)]
struct MappedRound {
    mapped_seconds: f64,
    mapped_by: Vec<String>,
    /// Processes that have the pool mapped and are not attached.
    mapped_by_others: Vec<Mapped>,
}

#[derive(Serialize)]
struct Row {
    #[serde(flatten)]
    process: ProcessReport,
    rates: Rates,
    totals: TotalsReport,
    #[serde(skip_serializing_if = "Option::is_none")]
    mapped: Option<Mapped>,
}

#[derive(Serialize)]
struct Rates {
    reads: f64,
    changes: f64,
    read_bytes: f64,
    written_bytes: f64,
    barriers: f64,
    flushed_lines: f64,
    logged_bytes: f64,
    waits: f64,
    /// Share of the time that was spent waiting, all threads together: 1 is one thread
    /// all the time.
    waiting: f64,
}

#[derive(Serialize)]
struct TotalsReport {
    reads: u64,
    changes: u64,
    read_bytes: u64,
    written_bytes: u64,
    barriers: u64,
    flushed_lines: u64,
    logged_bytes: u64,
    waits: u64,
    waited_ns: u64,
    recoveries: u64,
}

impl From<&Totals> for TotalsReport {
    fn from(totals: &Totals) -> TotalsReport {
        TotalsReport {
            reads: totals.reads,
            changes: totals.changes,
            read_bytes: totals.read_bytes,
            written_bytes: totals.written_bytes,
            barriers: totals.barriers,
            flushed_lines: totals.flushed_lines,
            logged_bytes: totals.logged_bytes,
            waits: totals.waits,
            waited_ns: totals.waited_ns,
            recoveries: totals.recoveries,
        }
    }
}

impl Rates {
    fn new(now: &Totals, before: &Totals, seconds: f64) -> Rates {
        let rate = |now: u64, before: u64| now.saturating_sub(before) as f64 / seconds.max(1e-9);
        Rates {
            reads: rate(now.reads, before.reads),
            changes: rate(now.changes, before.changes),
            read_bytes: rate(now.read_bytes, before.read_bytes),
            written_bytes: rate(now.written_bytes, before.written_bytes),
            barriers: rate(now.barriers, before.barriers),
            flushed_lines: rate(now.flushed_lines, before.flushed_lines),
            logged_bytes: rate(now.logged_bytes, before.logged_bytes),
            waits: rate(now.waits, before.waits),
            waiting: rate(now.waited_ns, before.waited_ns) / 1e9,
        }
    }
}

pub fn run(arguments: &Top) -> Outcome {
    let path = pool::resolved(&arguments.pool);
    let interval = Duration::from_secs_f64(arguments.interval);
    let live = io::stdout().is_terminal() && !arguments.json;
    // Into a file or a pipe one round is enough, unless more are asked for.
    let rounds = arguments.count.or((!live && !arguments.json).then_some(1));
    let failed = |error| Failure::engine(&path, &error);
    let look = Inspector::open(&path).map_err(failed)?;
    let monitor = arguments.mapped.as_ref();
    let monitor = monitor.map(|backend| Monitor::start(&path, backend.name(), interval));
    let mut monitor = monitor.transpose()?;
    let mut before: HashMap<(u64, i64), Totals> = HashMap::new();
    let mut since: Option<Instant> = None;
    let mut done = 0;
    loop {
        // The monitor's rounds are as long as the interval.
        let told = monitor.as_mut().map(Monitor::next).transpose()?;
        let elapsed = since.map(|since| since.elapsed().as_secs_f64());
        since = Some(Instant::now());
        let processes = look.processes();
        let round = round(&path, &processes, &before, elapsed, told.as_ref());
        let is_read = print_round(arguments.json, &round, |round| match live {
            // Home, and what follows is cleared line by line and below.
            true => format!("\x1b[H\x1b[J{}", text(round)),
            false => text(round),
        })?;
        before = processes
            .iter()
            .map(|process| ((process.slot, process.since_ns), process.totals))
            .collect();
        done += 1;
        if !is_read || rounds.is_some_and(|rounds| done >= rounds) {
            return Ok(ExitCode::SUCCESS);
        }
        if monitor.is_none() {
            thread::sleep(interval);
        }
    }
}

fn round(
    path: &Path,
    processes: &[Process],
    before: &HashMap<(u64, i64), Totals>,
    elapsed: Option<f64>,
    told: Option<&Told>,
) -> Round {
    let now_ns = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .map_or(0, |now| now.as_nanos() as i64);
    let row = |process: &Process| {
        let age = (now_ns - process.since_ns) as f64 / 1e9;
        let known = before.get(&(process.slot, process.since_ns));
        let (earlier, seconds) = match (known, elapsed) {
            (Some(earlier), Some(elapsed)) => (*earlier, elapsed),
            _ => (Totals::default(), age),
        };
        Row {
            process: process.into(),
            rates: Rates::new(&process.totals, &earlier, seconds),
            totals: (&process.totals).into(),
            mapped: told.and_then(|told| told.of(process.pid)).cloned(),
        }
    };
    let mut rows: Vec<Row> = processes.iter().map(row).collect();
    let busy = |row: &Row| row.rates.reads + row.rates.changes;
    rows.sort_by(|one, other| busy(other).total_cmp(&busy(one)));
    let is_attached = |pid| processes.iter().any(|process| process.pid == pid);
    Round {
        pool: path.display().to_string(),
        seconds: elapsed.unwrap_or(0.0),
        processes: rows,
        mapped: told.map(|told| MappedRound {
            mapped_seconds: told.seconds,
            mapped_by: told.backend.clone(),
            mapped_by_others: told.others(is_attached),
        }),
    }
}

fn text(round: &Round) -> String {
    let count = round.processes.len();
    let mut lines = vec![format!(
        "{}: {count} {}; each second:",
        round.pool,
        if count == 1 { "process" } else { "processes" }
    )];
    let mapped = round.mapped.as_ref();
    let names = mapped.map(|_| format!(" {:>21} {:>21}", "MAPPED WRITTEN", "MAPPED READ"));
    let cells = |one: Option<&Mapped>| match (mapped, one) {
        (Some(round), Some(one)) => format!(" {}", one.cells(round.mapped_seconds.max(1e-9))),
        (Some(_), None) => format!(" {:>21} {:>21}", "-", "-"),
        (None, _) => String::new(),
    };
    lines.push(format!(
        "{:>8} {:<15} {:>10} {:>10} {:>11} {:>11} {:>10} {:>11} {:>8} {:>6}{}",
        "PID",
        "COMMAND",
        "READS",
        "CHANGES",
        "READ",
        "WRITTEN",
        "BARRIERS",
        "LOGGED",
        "WAITS",
        "WAIT%",
        names.unwrap_or_default()
    ));
    let bytes = |rate: f64| Size(rate.round() as u64).to_string();
    for row in &round.processes {
        let (process, rates) = (&row.process, &row.rates);
        lines.push(format!(
            "{:>8} {:<15} {:>10.0} {:>10.0} {:>11} {:>11} {:>10.0} {:>11} {:>8.0} {:>6.1}{}{}",
            process.pid,
            escaped(process.command.as_bytes()),
            rates.reads,
            rates.changes,
            bytes(rates.read_bytes),
            bytes(rates.written_bytes),
            rates.barriers,
            bytes(rates.logged_bytes),
            rates.waits,
            rates.waiting * 100.0,
            cells(row.mapped.as_ref()),
            if process.alive { "" } else { "  dead" },
        ));
        if let (Some(round), Some(mapped)) = (mapped, &row.mapped) {
            lines.extend(mapped.threads(round.mapped_seconds.max(1e-9)));
        }
    }
    if let Some(round) = mapped {
        for other in &round.mapped_by_others {
            let (pid, command) = (other.pid, escaped(other.command.as_bytes()));
            let cells = cells(Some(other));
            lines.push(format!(
                "{pid:>8} {command:<15} {:>84}{cells}",
                "not attached"
            ));
        }
        let (seconds, by) = (round.mapped_seconds, round.mapped_by.join(", "));
        lines.push(format!(
            "mapped: each second of {seconds:.1} s, by {by}; a process's own copies for its calls \
             are among it"
        ));
    }
    lines.join("\n")
}
