//! `pmfs fsck`. Exit codes as those of fsck(8): 0 clean, 4 errors found and left, 8 could not run.

use std::process::ExitCode;

use pmfs::{CheckReport, Fs, OpenOptions};
use serde::Serialize;

use crate::Outcome;
use crate::cli::Fsck;
use crate::failure::Failure;
use crate::progress::Watch;
use crate::report::{self, Recovery};

const FOUND: u8 = 4;
const COULD_NOT_RUN: u8 = 8;

#[derive(Serialize)]
struct FsckReport {
    pool: String,
    clean: bool,
    findings: Vec<FindingReport>,
    inodes: u64,
    directories: u64,
    blocks: u64,
    recovery: Recovery,
}

#[derive(Serialize)]
struct FindingReport {
    number: u32,
    text: String,
    #[serde(skip)]
    line: String,
}

pub fn run(arguments: &Fsck) -> Outcome {
    let report = check(arguments).map_err(|failure| failure.with_code(COULD_NOT_RUN))?;
    report::print(arguments.json, &report, text)?;
    Ok(if report.clean {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(FOUND)
    })
}

fn check(arguments: &Fsck) -> Result<FsckReport, Failure> {
    let pool = arguments
        .pool
        .canonicalize()
        .unwrap_or_else(|_| arguments.pool.clone());
    let failed = |error| Failure::engine(&pool, &error);
    let watch = Watch::spin(arguments.json, "checking");
    let fs = Fs::open(&pool, &OpenOptions::default()).map_err(failed)?;
    let recovery = Recovery::from(fs.recovery());
    let checked = fs.check().map_err(failed)?;
    fs.close().map_err(failed)?;
    drop(watch);
    let CheckReport {
        findings,
        inodes,
        directories,
        blocks,
        ..
    } = checked;
    Ok(FsckReport {
        pool: pool.display().to_string(),
        clean: findings.is_empty(),
        findings: findings
            .iter()
            .map(|finding| FindingReport {
                number: finding.number,
                text: finding.text.clone(),
                line: finding.to_string(),
            })
            .collect(),
        inodes,
        directories,
        blocks,
        recovery,
    })
}

fn text(report: &FsckReport) -> String {
    let mut lines: Vec<String> = report
        .findings
        .iter()
        .map(|found| found.line.clone())
        .collect();
    lines.push(format!("recovery: {}", report.recovery.sentence));
    lines.push(format!(
        "{}: {}; {} inodes, {} of them directories, {} blocks in use",
        report.pool,
        match report.findings.len() {
            0 => "clean".to_owned(),
            1 => "1 finding".to_owned(),
            n => format!("{n} findings"),
        },
        report.inodes,
        report.directories,
        report.blocks,
    ));
    lines.join("\n")
}
