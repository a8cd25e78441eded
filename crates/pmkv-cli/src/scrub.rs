//! `pmkv scrub`: the checks of all records of an engine. Exit codes: 0 whole, 1 damaged ones were
//! dropped, 4 damaged ones are left, 8 could not be done.

use std::io::{self, IsTerminal};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use pm_cli::Size;
use pmkv::{Damage, OnDamage};
use pmkv_cli::Scrub;
use serde::Serialize;

use crate::Outcome;
use crate::failure::of_engine;
use crate::keys::{COULD_NOT_RUN, closed, found, opened};
use crate::shown::{Entry, escaped};

const DROPPED: u8 = 1;
const DAMAGED: u8 = 4;

/// The JSON is an interface: fields may be added, not renamed.
#[derive(Serialize)]
struct Report {
    heap: String,
    engine: String,
    records: u64,
    bytes: u64,
    dropped: bool,
    damaged: Vec<Damaged>,
}

#[derive(Serialize)]
struct Damaged {
    offset: u64,
    #[serde(flatten)]
    entry: Option<Entry>,
    #[serde(skip)]
    line: String,
}

impl From<Damage> for Damaged {
    fn from(damage: Damage) -> Damaged {
        let key = damage.key.as_deref();
        let told = key.map_or("a key that can't be told".to_owned(), escaped);
        Damaged {
            offset: damage.offset,
            entry: key.map(Entry::of_key),
            line: format!("{:#x}\t{told}", damage.offset),
        }
    }
}

pub fn run(arguments: &Scrub) -> Outcome {
    let heap = opened(&arguments.heap)?;
    let kv = found(&arguments.heap, &heap, &arguments.engine)?;
    let mut report = Report {
        heap: arguments.heap.display().to_string(),
        engine: arguments.engine.engine.clone(),
        records: 0,
        bytes: 0,
        dropped: arguments.drop,
        damaged: Vec::new(),
    };
    let on_damage = match arguments.drop {
        true => OnDamage::Drop,
        false => OnDamage::Keep,
    };
    let mut progress = Progress::begin();
    for step in kv.scrub(on_damage) {
        let step =
            step.map_err(|error| of_engine(&arguments.heap, &error).with_code(COULD_NOT_RUN))?;
        report.records += step.records;
        report.bytes += step.bytes;
        report
            .damaged
            .extend(step.damaged.into_iter().map(Damaged::from));
        progress.show(step.per_mille);
    }
    progress.end();
    drop(kv);
    closed(&arguments.heap, heap)?;
    pm_cli::print(arguments.json, &report, Report::text)?;
    Ok(match (report.damaged.is_empty(), arguments.drop) {
        (true, _) => ExitCode::SUCCESS,
        (false, true) => ExitCode::from(DROPPED),
        (false, false) => ExitCode::from(DAMAGED),
    })
}

impl Report {
    fn text(&self) -> String {
        let mut lines: Vec<&str> = self.damaged.iter().map(|one| &one.line[..]).collect();
        let word = match (self.damaged.len(), self.dropped) {
            (0, _) => "all whole".to_owned(),
            (count, true) => format!("{count} damaged ones dropped"),
            (count, false) => format!("{count} damaged; to drop them: pmkv scrub --drop"),
        };
        let last = format!(
            "{}: {} records, {} of them whole, {word}",
            self.engine,
            self.records,
            Size(self.bytes)
        );
        lines.push(&last);
        lines.join("\n")
    }
}

/// The part that is done, on a terminal, where it takes long.
struct Progress {
    is_shown: bool,
    next: Instant,
    was_shown: bool,
}

impl Progress {
    const FIRST_AFTER: Duration = Duration::from_secs(2);
    const EACH: Duration = Duration::from_millis(500);

    fn begin() -> Progress {
        Progress {
            is_shown: io::stderr().is_terminal(),
            next: Instant::now() + Self::FIRST_AFTER,
            was_shown: false,
        }
    }

    fn show(&mut self, per_mille: u32) {
        if self.is_shown && Instant::now() >= self.next {
            eprint!("\r{:3}.{} %", per_mille / 10, per_mille % 10);
            self.was_shown = true;
            self.next = Instant::now() + Self::EACH;
        }
    }

    fn end(&self) {
        if self.was_shown {
            eprintln!("\r100.0 %");
        }
    }
}
