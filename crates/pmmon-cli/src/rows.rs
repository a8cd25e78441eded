//! Tables of a ledger, as text and as JSON.

use std::collections::BTreeMap;

use pmmon::account::{Figure, Usage};
use pmmon::calls::Calls;
use pmmon::ledger::{ENGINE, Life, Process, are_others};
use pmmon::media::{DEVICE, Source, Written};
use pmmon::{Access, Ledger};
use serde::Serialize;

/// The kind of media bytes.
const MODEL: &str = "model";

/// A round: totals since the monitor began.
#[derive(Debug, Serialize)]
pub(crate) struct Round {
    schema: u32,
    time_ns: u64,
    pub seconds: f64,
    pub backend: Vec<String>,
    pub processes: Vec<ProcessRow>,
    /// The assumptions of the model of media bytes, if there are any.
    media_model: Option<Model>,
    not_seen: Vec<NotSeen>,
    lost_samples: u64,
    throttled: u64,
    undecoded: u64,
}

#[derive(Debug, Serialize)]
pub(crate) struct ProcessRow {
    pub pid: u32,
    pub start_ns: u64,
    pub command: String,
    inner_pid: Option<u32>,
    ended: bool,
    written: Option<Way>,
    read: Option<Way>,
    /// Counts of calls of all threads, if they are counted.
    calls: Option<Calls>,
    media: Option<Media>,
    time: Option<Times>,
    pub threads: Vec<ThreadRow>,
}

#[derive(Debug, Serialize)]
pub(crate) struct ThreadRow {
    pub tid: u32,
    written: Option<Way>,
    read: Option<Way>,
    /// Counts of calls, if the backend has them: exact, as `written` and `read` then are.
    calls: Option<Calls>,
    media: Option<Media>,
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

/// Bytes that media write, by a model.
#[derive(Debug, Serialize)]
struct Media {
    /// Never measured.
    kind: &'static str,
    by: &'static str,
    written_bytes: f64,
    low: f64,
    high: f64,
    /// Media bytes by those written.
    amplification: Option<Ends>,
    /// Bytes written by media bytes.
    ewr: Option<f64>,
    #[serde(skip)]
    source: Source,
}

/// The model of media bytes.
#[derive(Debug, Serialize)]
struct Model {
    kind: &'static str,
    device: &'static str,
    assumes: &'static [&'static str],
}

impl From<Written> for Media {
    fn from(written: Written) -> Self {
        let ratio = written.amplification;
        Self {
            kind: MODEL,
            by: written.source.name(),
            written_bytes: written.bytes.value,
            low: written.bytes.low,
            high: written.bytes.high,
            amplification: ratio.map(Ends::from),
            ewr: ratio.filter(|it| it.value > 0.0).map(|it| 1.0 / it.value),
            source: written.source,
        }
    }
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
            calls: ledger.calls(one),
            media: ledger.media(one).map(Media::from),
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
        calls: ledger
            .calls(&process.threads)
            .filter(|_| !process.is_refused()),
        media: ledger
            .media(&process.threads)
            .filter(|_| !process.is_refused())
            .map(Media::from),
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
    let processes: Vec<ProcessRow> = processes.map(|one| process(ledger, one)).collect();
    let source = processes
        .iter()
        .find_map(|row| Some(row.media.as_ref()?.source));
    Round {
        schema: pmmon::event::SCHEMA,
        time_ns: ledger.begin_ns + ledger.time_ns,
        seconds: ledger.time_ns as f64 / 1e9,
        backend: ledger.backends.clone(),
        processes,
        media_model: source.map(|source| Model {
            kind: MODEL,
            device: DEVICE,
            assumes: source.assumes(),
        }),
        not_seen: not_seen(ledger),
        lost_samples: ledger.lost,
        throttled: ledger.throttled,
        undecoded: ledger.undecoded,
    }
}

/// Bytes for people, with the interval's half width: `1.50 GiB +-2.0 %`.
pub(crate) fn shown(low: f64, value: f64, high: f64) -> String {
    if low == high && value > 0.0 {
        return format!("{} +-0 %", bytes(value));
    }
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

/// The cells of both directions, in bytes, or in seconds where accesses were not counted.
fn cells(written: Option<&Way>, read: Option<&Way>, time: Option<&Times>) -> String {
    let seconds = |ends: Ends| format!("{:.3} s ({:.3} to {:.3})", ends.value, ends.low, ends.high);
    let bytes = |way: &Way| shown(way.low, way.bytes, way.high);
    let cell = |way: Option<&Way>, time: Option<Ends>| match (way, time) {
        (Some(way), _) => bytes(way),
        (None, Some(time)) => seconds(time),
        (None, None) => "not measured".to_owned(),
    };
    format!(
        "{:>26}  {:>26}",
        cell(written, time.map(|time| time.writing)),
        cell(read, time.map(|time| time.reading))
    )
}

/// The cells of calls beside mapped use.
fn calls(calls: Option<Calls>) -> String {
    calls.map_or_else(String::new, |calls| {
        let (written, read) = (calls.written_bytes as f64, calls.read_bytes as f64);
        format!("  {:>15}  {:>15}", bytes(written), bytes(read))
    })
}

/// The cell of media bytes, which no row has if they are not asked for.
fn media(media: Option<&Media>) -> String {
    media.map_or_else(String::new, |media| {
        let ratio = media.amplification.as_ref();
        let ratio = ratio.map_or_else(String::new, |it| format!(" x{:.2}", it.value));
        let ends = format!("{} to {}", bytes(media.low), bytes(media.high));
        format!("  {}{ratio} ({ends})", bytes(media.written_bytes))
    })
}

/// A name of a foreign program, which may have characters that are orders to a terminal.
fn printable(name: &str) -> String {
    name.replace(char::is_control, "?")
}

/// The bytes or else the seconds of one direction.
fn size(way: Option<&Way>, time: Option<Ends>) -> Option<f64> {
    way.map(|way| way.bytes)
        .or_else(|| time.map(|time| time.value))
}

impl ProcessRow {
    /// The line of a table; with calls where they are counted beside something else.
    pub fn text(&self, beside: bool) -> String {
        let cells = cells(
            self.written.as_ref(),
            self.read.as_ref(),
            self.time.as_ref(),
        );
        let calls = calls(self.calls.filter(|_| beside));
        let media = media(self.media.as_ref());
        let ended = if self.ended { "  ended" } else { "" };
        let command = printable(&self.command);
        format!(
            "{:>8}  {command:<16} {cells}{calls}{media}{ended}",
            self.pid
        )
    }

    /// The extent in one direction, in one unit for all rows of a round. `None` is not measured.
    pub fn size(&self, access: Access) -> Option<f64> {
        let time = self.time.as_ref();
        match access {
            Access::Write => size(self.written.as_ref(), time.map(|time| time.writing)),
            Access::Read => size(self.read.as_ref(), time.map(|time| time.reading)),
        }
    }
}

impl ThreadRow {
    /// The line of a table; with calls where they are counted beside something else.
    pub fn text(&self, beside: bool) -> String {
        let cells = cells(
            self.written.as_ref(),
            self.read.as_ref(),
            self.time.as_ref(),
        );
        let name = match are_others(self.tid) {
            true => "  others".to_owned(),
            false => format!("  thread {}", self.tid),
        };
        let calls = calls(self.calls.filter(|_| beside));
        let media = media(self.media.as_ref());
        format!("{:>8}  {name:<16} {cells}{calls}{media}", "")
    }
}

impl Round {
    /// The time and the backend.
    pub fn title(&self) -> String {
        format!("{:.1} s by {}", self.seconds, self.backend.join(", "))
    }

    /// Calls are counted beside mapped use.
    pub fn has_calls_beside(&self) -> bool {
        self.backend.len() > 1
    }

    /// Accesses have times and no bytes.
    fn has_times(&self) -> bool {
        self.processes.iter().any(|process| process.time.is_some())
    }

    /// The names of the columns.
    pub fn header(&self) -> String {
        let (written, read) = match self.has_times() {
            true => ("TIME IN STORES", "TIME IN LOADS"),
            false => ("WRITTEN", "READ"),
        };
        let calls = match self.has_calls_beside() {
            true => format!("  {:>15}  {:>15}", "WRITTEN BY CALL", "READ BY CALL"),
            false => String::new(),
        };
        let media = match self.media_model {
            Some(_) => "  MEDIA WRITTEN (MODEL)",
            None => "",
        };
        format!(
            "{:>8}  {:<16} {written:>26}  {read:>26}{calls}{media}",
            "PID", "COMMAND"
        )
    }

    /// The table.
    pub fn text(&self, threads: bool) -> String {
        let mut lines = vec![self.title(), self.header()];
        for row in &self.processes {
            let beside = self.has_calls_beside();
            lines.push(row.text(beside));
            let each = row.threads.iter().filter(|_| threads);
            lines.extend(each.map(|row| row.text(beside)));
        }
        lines.extend(self.notes());
        lines.join("\n")
    }

    /// Remarks on what the figures lack.
    pub fn notes(&self) -> Vec<String> {
        let mut lines = Vec::new();
        if self.processes.is_empty() {
            lines.push(match self.backend.iter().all(|name| name == ENGINE) {
                true => "no process has made calls on a pool".to_owned(),
                false => "no process has persistent memory mapped; see --as-pm".to_owned(),
            });
        }
        if self.has_times() {
            lines.push("note: a clock tells the time that accesses take, and no bytes".to_owned());
        }
        for assumed in self.media_model.iter().flat_map(|model| model.assumes) {
            lines.push(format!("model of media bytes: {assumed}"));
        }
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
