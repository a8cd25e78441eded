//! `pmfs fsck`. Exit codes as those of fsck(8): 0 clean, 1 errors repaired, 4 errors
//! left, 8 could not run.

use std::path::Path;
use std::process::ExitCode;

use pmfs::{Fs, OpenOptions};
use pmfs_admin::check::{BadBlock, Holds, finding_of, media_error};
use pmfs_admin::{Admin, CheckReport, Finding};
use pmfs_fuse::presence;
use serde::Serialize;

use crate::Outcome;
use crate::cli::Fsck;
use crate::failure::Failure;
use crate::progress::{Progress, Watch};
use crate::report::{self, Recovery};

const REPAIRED: u8 = 1;
const LEFT: u8 = 4;
const COULD_NOT_RUN: u8 = 8;

/// The finding of blocks that the medium can't give.
const MEDIA_ERROR: u32 = 3;

#[derive(Serialize)]
struct FsckReport {
    pool: String,
    clean: bool,
    findings: Vec<FindingReport>,
    repaired: Vec<FindingReport>,
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

impl From<&Finding> for FindingReport {
    fn from(finding: &Finding) -> FindingReport {
        FindingReport {
            number: finding.number,
            text: finding.text.clone(),
            line: finding.to_string(),
        }
    }
}

pub fn run(arguments: &Fsck) -> Outcome {
    let report = check(arguments).map_err(|failure| failure.with_code(COULD_NOT_RUN))?;
    report::print(arguments.json, &report, |report| {
        text(report, arguments.repair)
    })?;
    Ok(match (report.clean, report.repaired.is_empty()) {
        (true, true) => ExitCode::SUCCESS,
        (true, false) => ExitCode::from(REPAIRED),
        (false, _) => ExitCode::from(LEFT),
    })
}

fn check(arguments: &Fsck) -> Result<FsckReport, Failure> {
    let pool = arguments
        .pool
        .canonicalize()
        .unwrap_or_else(|_| arguments.pool.clone());
    let failed = |error| Failure::engine(&pool, &error);
    let watch = Watch::spin(arguments.json, "opening");
    let options = OpenOptions {
        repair: arguments.repair,
        exclusive: true,
        adopt: true,
        ..OpenOptions::default()
    };
    presence::wait_if_ending(&pool);
    if arguments.badblocks && arguments.repair {
        drop(watch);
        return mend(arguments, &pool, &options).map_err(failed);
    }
    let fs = match Fs::open(&pool, &options) {
        Ok(fs) => fs,
        // Too damaged to attach to is a finding as well.
        Err(error) => match finding_of(&error) {
            Some(finding) => return Ok(damaged(&pool, &finding)),
            None => return Err(failed(error)),
        },
    };
    let recovery = Recovery::from(fs.recovery());
    drop(watch);
    let mut bad = Vec::new();
    if arguments.badblocks {
        let mut progress = Progress::counting(arguments.json, "reading");
        let mut watch = |done, all| progress.of(done, all);
        bad = fs.bad_blocks(&mut watch).map_err(failed)?;
        let checkable = |bad: &BadBlock| matches!(bad.holds, Holds::Data | Holds::Nothing);
        if !bad.iter().all(checkable) {
            // A check would meet them again, by loads that can't be told from those of
            // what is there.
            drop(progress);
            return Ok(unreadable(&pool, &fs, bad.iter().map(media_error)));
        }
    }
    let mut progress = Progress::counting(arguments.json, "checking");
    let mut watch = |done, all| progress.of(done, all);
    let (checked, repaired) = if arguments.repair {
        let report = fs.repair_watched(&mut watch).map_err(failed)?;
        (report.left, report.repaired)
    } else {
        (fs.check_watched(&mut watch).map_err(failed)?, Vec::new())
    };
    drop(progress);
    fs.close().map_err(failed)?;
    Ok(of_pool(&pool, &bad, checked, &repaired, recovery))
}

/// Replaces blocks that the medium can't read where that is possible, and repairs the consequences
/// of their loss.
fn mend(arguments: &Fsck, pool: &Path, options: &OpenOptions) -> pmfs::Result<FsckReport> {
    let mut progress = Progress::counting(arguments.json, "reading");
    let mut watch = |done, all| progress.of(done, all);
    let mended = pmfs_admin::mend(pool, options, &mut watch)?;
    drop(progress);
    let mut repaired: Vec<Finding> = mended.renewed.iter().map(media_error).collect();
    repaired.extend(mended.repair.repaired);
    let recovery = Recovery::from(&mended.recovery);
    Ok(of_pool(
        pool,
        &mended.left,
        mended.repair.left,
        &repaired,
        recovery,
    ))
}

/// The report on a pool that could be checked.
fn of_pool(
    pool: &Path,
    bad: &[BadBlock],
    checked: CheckReport,
    repaired: &[Finding],
    recovery: Recovery,
) -> FsckReport {
    let media = bad.iter().map(media_error);
    let findings: Vec<Finding> = media.chain(checked.findings).collect();
    FsckReport {
        pool: pool.display().to_string(),
        clean: findings.is_empty(),
        findings: findings.iter().map(FindingReport::from).collect(),
        repaired: repaired.iter().map(FindingReport::from).collect(),
        inodes: checked.inodes,
        directories: checked.directories,
        blocks: checked.blocks,
        recovery,
    }
}

fn damaged(pool: &Path, finding: &Finding) -> FsckReport {
    let recovery = pmfs::RecoveryReport::default();
    unchecked(pool, &recovery, vec![FindingReport::from(finding)])
}

fn unreadable(pool: &Path, fs: &Fs, bad: impl Iterator<Item = Finding>) -> FsckReport {
    let findings = bad.map(|finding| FindingReport::from(&finding)).collect();
    unchecked(pool, fs.recovery(), findings)
}

/// The report of a pool that can't be checked.
fn unchecked(
    pool: &Path,
    recovery: &pmfs::RecoveryReport,
    findings: Vec<FindingReport>,
) -> FsckReport {
    FsckReport {
        pool: pool.display().to_string(),
        clean: false,
        findings,
        repaired: Vec::new(),
        inodes: 0,
        directories: 0,
        blocks: 0,
        recovery: Recovery::from(recovery),
    }
}

/// The command that repairs what was found.
fn way_out(report: &FsckReport) -> &'static str {
    let is_media = |found: &FindingReport| found.number == MEDIA_ERROR;
    match report.findings.iter().any(is_media) {
        true => "to repair: pmfs fsck --badblocks --repair POOL",
        false => "to repair: pmfs fsck --repair POOL",
    }
}

fn text(report: &FsckReport, repair: bool) -> String {
    let mut lines: Vec<String> = Vec::new();
    for found in &report.repaired {
        lines.push(format!("{} (repaired)", found.line));
    }
    for found in &report.findings {
        lines.push(found.line.clone());
    }
    lines.push(format!("recovery: {}", report.recovery.sentence));
    let count = |n: usize| match n {
        1 => "1 finding".to_owned(),
        n => format!("{n} findings"),
    };
    let state = match (report.findings.len(), report.repaired.len()) {
        (0, 0) => "clean".to_owned(),
        (0, n) => format!("clean now, {} repaired", count(n)),
        (n, m) if repair => format!("{} left, {m} repaired", count(n)),
        (n, _) => format!("{}; {}", count(n), way_out(report)),
    };
    lines.push(format!(
        "{}: {state}; {} inodes, {} of them directories, {} blocks in use",
        report.pool, report.inodes, report.directories, report.blocks,
    ));
    lines.join("\n")
}
