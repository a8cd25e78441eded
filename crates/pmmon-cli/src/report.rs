//! `pmmon report`: the accounting again, from a recording.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader, stdin};
use std::process::ExitCode;

use pm_cli::Failure;
use pmmon::ledger::{By, Life};
use pmmon::{Access, Ledger, recording};
use pmmon_cli::commands::{Lines, Report};
use serde::Serialize;

use crate::rows::{Ends, NotSeen, not_seen, round, shown};
use crate::{perf, replay};

#[derive(Serialize)]
struct Names {
    schema: u32,
    seconds: f64,
    backend: Vec<String>,
    by: &'static str,
    /// Bytes; by size, accesses. `null` is not measured.
    written: Option<Vec<Named>>,
    read: Option<Vec<Named>>,
    not_seen: Vec<NotSeen>,
}

#[derive(Serialize)]
struct Named {
    name: String,
    #[serde(flatten)]
    figure: Ends,
}

pub(crate) fn run(arguments: &Report) -> Result<ExitCode, Failure> {
    if perf::is_one(&arguments.file) {
        perf::report(&arguments.file, arguments.by, arguments.json)?;
        return Ok(ExitCode::SUCCESS);
    }
    let by = match arguments.by {
        Lines::Process | Lines::Thread | Lines::Size => By::Thread,
        Lines::Site => By::Site,
        Lines::File => By::File,
        Lines::Sample => {
            let cause = "--by sample: only files of perf are shown so";
            return Err(Failure::new(
                cause,
                "a recording of pmmon has a line for each event",
            ));
        }
    };
    let ledger = match replay::is_one(&arguments.file) {
        true => replay::read(&arguments.file, by)?,
        false => read(arguments, by)?,
    };
    match arguments.by {
        Lines::Process | Lines::Thread => {
            let threads = arguments.by == Lines::Thread;
            pm_cli::print(arguments.json, &round(&ledger), |round| round.text(threads))?;
        }
        Lines::Site => names(arguments, &ledger, "site")?,
        Lines::File => names(arguments, &ledger, "file")?,
        Lines::Size | Lines::Sample => names(arguments, &ledger, "size")?,
    }
    Ok(ExitCode::SUCCESS)
}

fn read(arguments: &Report, by: By) -> Result<Ledger, Failure> {
    let path = arguments.file.display();
    let mut from: Box<dyn BufRead> = if arguments.file.as_os_str() == "-" {
        Box::new(stdin().lock())
    } else {
        let file = File::open(&arguments.file).map_err(|error| {
            Failure::new(
                format!("{path}: {error}"),
                "name a recording of `pmmon record`",
            )
        })?;
        Box::new(BufReader::new(file))
    };
    let mut ledger = Ledger::new(by);
    let whole = recording::read(&mut from, |event| ledger.take(&event))
        .map_err(|error| Failure::whole(format!("{path}: {error}")))?;
    if !whole {
        eprintln!("pmmon: {path}: the recording was cut off; figures are of what is there");
    }
    Ok(ledger)
}

fn names(arguments: &Report, ledger: &Ledger, by: &'static str) -> Result<(), Failure> {
    let all: Vec<Life> = ledger
        .processes()
        .iter()
        .flat_map(|process| process.threads.iter().copied())
        .collect();
    let of = |access| {
        let usage = ledger.usage(&all, access)?;
        Some(match by {
            "size" => sizes(&usage.sizes),
            _ => {
                let named = ledger.named(&all, access).into_iter();
                let named = named.map(|(name, figure)| Named {
                    name: name.to_owned(),
                    figure: figure.into(),
                });
                named.collect()
            }
        })
    };
    let table = Names {
        schema: pmmon::event::SCHEMA,
        seconds: ledger.time_ns as f64 / 1e9,
        backend: ledger.backends.clone(),
        by,
        written: of(Access::Write),
        read: of(Access::Read),
        not_seen: not_seen(ledger),
    };
    pm_cli::print(arguments.json, &table, Names::text)?;
    Ok(())
}

fn sizes(sizes: &BTreeMap<u32, pmmon::account::Figure>) -> Vec<Named> {
    let named = sizes.iter().map(|(size, figure)| Named {
        name: size.to_string(),
        figure: (*figure).into(),
    });
    named.collect()
}

impl Names {
    fn text(&self) -> String {
        let mut lines = vec![format!(
            "{:.1} s by {}",
            self.seconds,
            self.backend.join(", ")
        )];
        for (what, rows) in [("written", &self.written), ("read", &self.read)] {
            let Some(rows) = rows else {
                lines.push(format!("{what}: not measured"));
                continue;
            };
            let unit = if self.by == "size" {
                "accesses"
            } else {
                "bytes"
            };
            lines.push(format!("{what}, {unit} by {}:", self.by));
            for Named { name, figure } in rows {
                let value = match self.by {
                    "size" => format!(
                        "{:.0} ({:.0} to {:.0})",
                        figure.value, figure.low, figure.high
                    ),
                    _ => shown(figure.low, figure.value, figure.high),
                };
                lines.push(format!("{value:>34}  {name}"));
            }
        }
        lines.join("\n")
    }
}
