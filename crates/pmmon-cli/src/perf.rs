//! `pmmon report` of a file of perf: events by process, thread or instruction, or sample by sample.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufReader, Read};
use std::path::Path;

use pm_cli::Failure;
use pmmon::account::{Account, Figure};
use pmmon::perfdata::{self, MAGIC, PerfData, PerfSample};
use pmmon::{Access, Drained, Exposure, Origin, Sample};
use pmmon_cli::commands::Lines;
use serde::Serialize;

use crate::rows::Ends;

#[derive(Serialize)]
struct Table {
    schema: u32,
    format: &'static str,
    by: &'static str,
    samples: usize,
    lost_samples: u64,
    throttled: u64,
    /// Events, each sample of which stands for its period.
    rows: Vec<Row>,
}

#[derive(Serialize)]
struct Row {
    name: String,
    /// The event, by type and configuration.
    event: String,
    samples: u64,
    events: Ends,
    /// Sizes of accesses are not in the file.
    bytes: Option<()>,
}

#[derive(Serialize)]
struct Line {
    event: String,
    pid: Option<u32>,
    tid: Option<u32>,
    cpu: Option<u32>,
    time_ns: Option<u64>,
    period: u64,
    address: Option<u64>,
    ip: Option<u64>,
}

/// Whether a file is one of perf.
pub(crate) fn is_one(path: &Path) -> bool {
    let mut head = [0; 8];
    let read = File::open(path).and_then(|mut file| file.read_exact(&mut head));
    // The other byte order is answered by the reader.
    read.is_ok() && (head == MAGIC || head.iter().rev().eq(&MAGIC))
}

pub(crate) fn report(path: &Path, by: Lines, json: bool) -> Result<(), Failure> {
    let shown = path.display();
    let file = File::open(path)
        .map_err(|error| Failure::new(format!("{shown}: {error}"), "name a file of perf"))?;
    let data = perfdata::read(BufReader::new(file))
        .map_err(|error| Failure::whole(format!("{shown}: {error}")))?;
    let (by, name): (_, fn(&PerfSample) -> String) = match by {
        Lines::Process => ("process", |one| named(one.thread.map(|(pid, _)| pid))),
        Lines::Thread => ("thread", |one| named(one.thread.map(|(_, tid)| tid))),
        Lines::Site => ("site", |one| address(one.ip)),
        Lines::Sample => return samples(&data, json),
        Lines::File | Lines::Size => {
            let cause = format!("{shown}: a file of perf has no sizes and no files of accesses");
            return Err(Failure::new(
                cause,
                "take --by process, thread, site or sample",
            ));
        }
    };
    let table = Table {
        schema: pmmon::event::SCHEMA,
        format: "perf.data",
        by,
        samples: data.samples.len(),
        lost_samples: data.lost,
        throttled: data.throttled,
        rows: rows(&data, name),
    };
    pm_cli::print(json, &table, Table::text)?;
    Ok(())
}

fn event(data: &PerfData, number: usize) -> String {
    let found = data.events.get(number);
    found.map_or_else(String::new, |event| {
        format!("{}:{:#x}", event.kind, event.config)
    })
}

fn named(number: Option<u32>) -> String {
    number.map_or_else(|| "not recorded".to_owned(), |it| it.to_string())
}

fn address(at: Option<u64>) -> String {
    at.map_or_else(|| "not recorded".to_owned(), |it| format!("{it:#x}"))
}

/// The events of each name, the most frequent first. A sample of period n was seen with the
/// probability 1 / n; lost samples were like those that were seen.
fn rows(data: &PerfData, name: impl Fn(&PerfSample) -> String) -> Vec<Row> {
    let mut numbers = BTreeMap::<_, (u32, u64)>::new();
    let mut samples = Vec::with_capacity(data.samples.len());
    for one in &data.samples {
        let next = u32::try_from(numbers.len()).unwrap_or(u32::MAX);
        let (number, count) = numbers.entry((name(one), one.event)).or_insert((next, 0));
        *count += 1;
        samples.push(Sample {
            tid: *number,
            time_ns: one.time_ns.unwrap_or(0),
            ip: one.ip.unwrap_or(0),
            address: one.address.unwrap_or(0),
            access: Access::Write,
            bytes: 0,
            exposure: Exposure::Probability(1.0 / one.period.max(1) as f64),
            origin: Origin::Mapped,
        });
    }
    let mut account = Account::new(0.0);
    let drained = Drained {
        lost: data.lost,
        ..Drained::default()
    };
    account.add(&samples, &drained);
    let figure = |number| account.usage(&[number], Access::Write).accesses;
    let row = |((name, of), (number, samples)): ((String, usize), (u32, u64))| Row {
        name,
        event: event(data, of),
        samples,
        events: Figure::into(figure(number)),
        bytes: None,
    };
    let mut rows: Vec<Row> = numbers.into_iter().map(row).collect();
    rows.sort_by(|one, other| other.events.value.total_cmp(&one.events.value));
    rows
}

fn samples(data: &PerfData, json: bool) -> Result<(), Failure> {
    for one in &data.samples {
        let line = Line {
            event: event(data, one.event),
            pid: one.thread.map(|(pid, _)| pid),
            tid: one.thread.map(|(_, tid)| tid),
            cpu: one.cpu,
            time_ns: one.time_ns,
            period: one.period,
            address: one.address,
            ip: one.ip,
        };
        pm_cli::print(json, &line, |line| {
            let time_ns = line.time_ns.unwrap_or(0);
            format!(
                "{:>8} {:>5}.{:09}: {:>10} {} {:>18} {:>18}",
                named(line.tid),
                time_ns / 1_000_000_000,
                time_ns % 1_000_000_000,
                line.period,
                line.event,
                address(line.address),
                address(line.ip)
            )
        })?;
    }
    Ok(())
}

impl Table {
    fn text(&self) -> String {
        let mut lines = vec![format!(
            "{} samples of perf, events by {}:",
            self.samples, self.by
        )];
        for row in &self.rows {
            let Ends { value, low, high } = row.events;
            lines.push(format!(
                "{value:>14.0} ({low:.0} to {high:.0})  {}  event {}",
                row.name, row.event
            ));
        }
        for (count, what) in [
            (self.lost_samples, "samples were lost, and are made up for"),
            (self.throttled, "times the kernel held samples back"),
        ] {
            if count > 0 {
                lines.push(format!("note: {count} {what}"));
            }
        }
        lines.join("\n")
    }
}
