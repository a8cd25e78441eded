//! Tables of a ledger, as text and as JSON.

use std::collections::BTreeMap;

use pmmon::account::{Figure, Usage};
use pmmon::ledger::{Life, Process};
use pmmon::{Access, Ledger};
use serde::Serialize;

/// A round: totals since the monitor began.
#[derive(Debug, Serialize)]
pub(crate) struct Round {
    schema: u32,
    time_ns: u64,
    seconds: f64,
    backend: Vec<String>,
    processes: Vec<ProcessRow>,
    not_seen: Vec<NotSeen>,
    lost_samples: u64,
    throttled: u64,
    undecoded: u64,
}

#[derive(Debug, Serialize)]
struct ProcessRow {
    pid: u32,
    start_ns: u64,
    command: String,
    inner_pid: Option<u32>,
    ended: bool,
    written: Option<Way>,
    read: Option<Way>,
    time: Option<Times>,
    threads: Vec<ThreadRow>,
}

#[derive(Debug, Serialize)]
struct ThreadRow {
    tid: u32,
    written: Option<Way>,
    read: Option<Way>,
    /// Calls and media are not measured.
    calls: Option<()>,
    media: Option<()>,
    time: Option<Times>,
}

/// The usage in one direction, `null` where it is not measured.
#[derive(Debug, Serialize)]
pub(crate) struct Way {
    pub bytes: f64,
    pub low: f64,
    pub high: f64,
    pub hits: u64,
    accesses: Ends,
    sizes: BTreeMap<u32, Ends>,
}

/// A figure with its interval of 95 %.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Ends {
    pub value: f64,
    pub low: f64,
    pub high: f64,
}

/// The time that accesses took, in seconds of the threads.
#[derive(Debug, Serialize)]
struct Times {
    writing: Ends,
    reading: Ends,
}

#[derive(Debug, Serialize)]
pub(crate) struct NotSeen {
    cause: String,
    remedy: String,
    pids: Vec<u32>,
}

impl From<Figure> for Ends {
    fn from(figure: Figure) -> Self {
        Self {
            value: figure.value,
            low: figure.low,
            high: figure.high,
        }
    }
}

impl From<Usage> for Way {
    fn from(usage: Usage) -> Self {
        let sizes = usage.sizes.into_iter();
        Self {
            bytes: usage.bytes.value,
            low: usage.bytes.low,
            high: usage.bytes.high,
            hits: usage.bytes.hits,
            accesses: usage.accesses.into(),
            sizes: sizes.map(|(size, figure)| (size, figure.into())).collect(),
        }
    }
}

fn way(ledger: &Ledger, threads: &[Life], access: Access) -> Option<Way> {
    ledger.usage(threads, access).map(Way::from)
}

fn times(ledger: &Ledger, threads: &[Life]) -> Option<Times> {
    if ledger.counts {
        return None;
    }
    let times = ledger.times(threads);
    Some(Times {
        writing: times.writing.into(),
        reading: times.reading.into(),
    })
}

fn process(ledger: &Ledger, process: &Process) -> ProcessRow {
    let thread = |life: &Life| {
        let one = std::slice::from_ref(life);
        ThreadRow {
            tid: life.tid,
            written: way(ledger, one, Access::Write),
            read: way(ledger, one, Access::Read),
            calls: None,
            media: None,
            time: times(ledger, one),
        }
    };
    let whole = |access| match process.is_refused() {
        true => None,
        false => way(ledger, &process.threads, access),
    };
    ProcessRow {
        pid: process.pid,
        start_ns: process.start_ns,
        command: process.command.clone(),
        inner_pid: process.inner_pid,
        ended: process.ended,
        written: whole(Access::Write),
        read: whole(Access::Read),
        time: times(ledger, &process.threads).filter(|_| !process.is_refused()),
        threads: process.threads.iter().map(thread).collect(),
    }
}

/// The parts that are not seen.
pub(crate) fn not_seen(ledger: &Ledger) -> Vec<NotSeen> {
    let told = ledger.not_seen();
    let told = told.map(|(cause, remedy, pids)| NotSeen {
        cause: cause.to_owned(),
        remedy: remedy.to_owned(),
        pids: pids.iter().copied().collect(),
    });
    told.collect()
}

/// A round.
pub(crate) fn round(ledger: &Ledger) -> Round {
    let processes = ledger.processes().iter();
    Round {
        schema: pmmon::event::SCHEMA,
        time_ns: ledger.begin_ns + ledger.time_ns,
        seconds: ledger.time_ns as f64 / 1e9,
        backend: vec![ledger.backend.clone()],
        processes: processes.map(|one| process(ledger, one)).collect(),
        not_seen: not_seen(ledger),
        lost_samples: ledger.lost,
        throttled: ledger.throttled,
        undecoded: ledger.undecoded,
    }
}

/// Bytes for people, with the interval's half width: `1.50 GiB +-2.0 %`.
pub(crate) fn shown(low: f64, value: f64, high: f64) -> String {
    if value <= 0.0 {
        return format!("0 (below {})", bytes(high));
    }
    let half = (high - low) / 2.0 / value * 100.0;
    format!("{} +-{half:.1} %", bytes(value))
}

fn bytes(value: f64) -> String {
    let units = ["KiB", "MiB", "GiB", "TiB", "PiB"];
    let (mut value, mut unit) = (value, "B");
    for larger in units {
        if value < 1024.0 {
            break;
        }
        (value, unit) = (value / 1024.0, larger);
    }
    format!("{value:.2} {unit}")
}

fn cells(written: Option<&Way>, read: Option<&Way>, time: Option<&Times>) -> String {
    let cell = |way: Option<&Way>| match way {
        Some(way) => shown(way.low, way.bytes, way.high),
        None => "not measured".to_owned(),
    };
    let mut line = format!("{:>26}  {:>26}", cell(written), cell(read));
    if let Some(time) = time {
        let seconds =
            |ends: Ends| format!("{:.3} s ({:.3} to {:.3})", ends.value, ends.low, ends.high);
        line.push_str(&format!(
            "  storing {}, loading {}",
            seconds(time.writing),
            seconds(time.reading)
        ));
    }
    line
}

impl Round {
    /// The table.
    pub fn text(&self, threads: bool) -> String {
        let mut lines = vec![
            format!("{:.1} s by {}", self.seconds, self.backend.join(", ")),
            format!(
                "{:>8}  {:<16} {:>26}  {:>26}",
                "PID", "COMMAND", "WRITTEN", "READ"
            ),
        ];
        for row in &self.processes {
            let cells = cells(row.written.as_ref(), row.read.as_ref(), row.time.as_ref());
            let ended = if row.ended { "  ended" } else { "" };
            lines.push(format!(
                "{:>8}  {:<16} {cells}{ended}",
                row.pid, row.command
            ));
            let each = row.threads.iter().filter(|_| threads);
            for row in each {
                let cells = self::cells(row.written.as_ref(), row.read.as_ref(), row.time.as_ref());
                lines.push(format!(
                    "{:>8}  {:<16} {cells}",
                    "",
                    format!("  thread {}", row.tid)
                ));
            }
        }
        if self.processes.is_empty() {
            lines.push("no process has persistent memory mapped; see --as-pm".to_owned());
        }
        lines.extend(self.notes());
        lines.join("\n")
    }

    /// Remarks on what the figures lack.
    fn notes(&self) -> Vec<String> {
        let mut lines = Vec::new();
        for (count, what) in [
            (self.lost_samples, "samples were lost, and are made up for"),
            (self.throttled, "times the kernel held samples back"),
            (self.undecoded, "samples had an unknown instruction"),
        ] {
            if count > 0 {
                lines.push(format!("note: {count} {what}"));
            }
        }
        for NotSeen {
            cause,
            remedy,
            pids,
        } in &self.not_seen
        {
            let shown: Vec<String> = pids.iter().take(8).map(u32::to_string).collect();
            let more = if pids.len() > 8 { ", ..." } else { "" };
            lines.push(format!(
                "not seen: {cause} (process {}{more}); {remedy}",
                shown.join(", ")
            ));
        }
        lines
    }
}
