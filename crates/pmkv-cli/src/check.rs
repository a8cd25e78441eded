//! `pmkv check` and `pmkv repair`. Exit codes as those of fsck(8): 0 clean, 1 repaired, 4 damaged,
//! 8 could not be done.

use std::path::Path;
use std::process::ExitCode;

use pm_cli::Size;
use pmkv_cli::{Check, Repair};
use pmlib::{Census, Error, Finding, Heap, Inspector, Repaired, finding_of};
use serde::Serialize;

use crate::Outcome;
use crate::failure::of_heap;
use crate::stat::looked_into;

const REPAIRED: u8 = 1;
const DAMAGED: u8 = 4;
const COULD_NOT_RUN: u8 = 8;

/// The JSON is an interface: fields may be added, not renamed.
#[derive(Serialize)]
struct Report {
    heap: String,
    clean: bool,
    /// The first finding, in words.
    #[serde(skip_serializing_if = "Option::is_none")]
    damage: Option<String>,
    findings: Vec<Found>,
    repaired: Vec<Found>,
    objects: u64,
    object_bytes: u64,
    spare_bytes: u64,
    free_bytes: u64,
    own_bytes: u64,
}

#[derive(Serialize)]
struct Found {
    number: u32,
    offset: u64,
    text: String,
    #[serde(skip)]
    line: String,
}

impl From<&Finding> for Found {
    fn from(finding: &Finding) -> Found {
        Found {
            number: finding.number,
            offset: finding.offset,
            text: finding.text.clone(),
            line: finding.to_string(),
        }
    }
}

pub fn run(arguments: &Check) -> Outcome {
    let path = &arguments.heap;
    let failed = |error: Error| of_heap(path, &error).with_code(COULD_NOT_RUN);
    let (census, findings) = look(path).map_err(failed)?;
    let report = Report::new(path, census, &findings, &[]);
    let way_out = format!("; to repair: pmkv repair {}", path.display());
    pm_cli::print(arguments.json, &report, |report| report.text(&way_out))?;
    Ok(match report.clean {
        true => ExitCode::SUCCESS,
        false => ExitCode::from(DAMAGED),
    })
}

fn look(path: &Path) -> Result<(Census, Vec<Finding>), Error> {
    let opened = looked_into(path).and_then(|heap| {
        let found = heap.findings()?;
        heap.close()?;
        Ok(found)
    });
    let error = match opened {
        // Damage that keeps a heap from being opened is a finding as well.
        Err(error) if finding_of(&error).is_some() => error,
        answer => return answer,
    };
    let mut findings = match Inspector::open(path) {
        Ok(heap) => heap.findings()?,
        Err(_) => Vec::new(),
    };
    if findings.is_empty() {
        findings.extend(finding_of(&error));
    }
    Ok((Census::default(), findings))
}

pub fn repair(arguments: &Repair) -> Outcome {
    let path = &arguments.heap;
    let done = match Heap::repair(path, arguments.dry_run) {
        Ok(done) => done,
        Err(error) => match finding_of(&error) {
            Some(left) => Repaired {
                left: vec![left],
                ..Repaired::default()
            },
            None => return Err(of_heap(path, &error).with_code(COULD_NOT_RUN)),
        },
    };
    let census = done.census.unwrap_or_default();
    let mut report = Report::new(path, census, &done.left, &done.repaired);
    let word = match arguments.dry_run {
        true => "would be repaired",
        false => "repaired",
    };
    for found in &mut report.repaired {
        found.line = format!("{} ({word})", found.line);
    }
    pm_cli::print(arguments.json, &report, |report| {
        report.text("; take a copy of it from elsewhere, or copy what can be read")
    })?;
    Ok(match (report.clean, report.repaired.is_empty()) {
        (true, true) => ExitCode::SUCCESS,
        (true, false) if !arguments.dry_run => ExitCode::from(REPAIRED),
        _ => ExitCode::from(DAMAGED),
    })
}

impl Report {
    fn new(path: &Path, census: Census, findings: &[Finding], repaired: &[Finding]) -> Report {
        Report {
            heap: path.display().to_string(),
            clean: findings.is_empty(),
            damage: findings.first().map(Finding::to_string),
            findings: findings.iter().map(Found::from).collect(),
            repaired: repaired.iter().map(Found::from).collect(),
            objects: census.objects,
            object_bytes: census.object_bytes,
            spare_bytes: census.spare_bytes,
            free_bytes: census.free_bytes,
            own_bytes: census.own_bytes,
        }
    }

    fn text(&self, way_out: &str) -> String {
        let heap = &self.heap;
        let found = self.repaired.iter().chain(&self.findings);
        let mut lines: Vec<String> = found.map(|found| found.line.clone()).collect();
        lines.push(match self.findings.len() {
            0 => format!(
                "{heap}: clean, {} objects of {} ({} more in their chunks), {} free, {} of the heap's own",
                self.objects,
                Size(self.object_bytes),
                Size(self.spare_bytes),
                Size(self.free_bytes),
                Size(self.own_bytes)
            ),
            1 => format!("{heap}: 1 finding{way_out}"),
            count => format!("{heap}: {count} findings{way_out}"),
        });
        lines.join("\n")
    }
}
