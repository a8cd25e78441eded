//! `pmfs load`: a pool from what `pmfs save` wrote.

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::Path;
use std::process::ExitCode;

use pmfs::Error;
use pmfs_admin::LoadOptions;
use serde::Serialize;

use crate::Outcome;
use crate::cli::Load;
use crate::failure::Failure;
use crate::progress::Progress;
use crate::time::utc;
use crate::{difference, pool, report};
use pm_cli::Size;

/// Bytes that are read at a time.
const BUFFER: usize = 1 << 20;

#[derive(Serialize)]
struct LoadedReport {
    file: String,
    pool: String,
    size_bytes: u64,
    /// Blocks with content.
    blocks: u64,
    saved_ns: i64,
    medium: String,
    durability: String,
    /// Structures that couldn't be right when it was saved.
    damage: u64,
}

pub fn run(arguments: &Load) -> Outcome {
    let mut input: Box<dyn Read> = if arguments.file == Path::new("-") {
        Box::new(io::stdin().lock())
    } else {
        let file = File::open(&arguments.file).map_err(|error| {
            Failure::new(
                format!("{}: {error}", arguments.file.display()),
                "name a file that `pmfs save` wrote",
            )
        })?;
        Box::new(BufReader::with_capacity(BUFFER, file))
    };
    if arguments.onto {
        return difference::load(&mut input, arguments);
    }
    let mut progress = Progress::new(arguments.json, "loading", 0);
    let options = LoadOptions {
        force: arguments.force,
        sparse: arguments.sparse,
    };
    let loaded = pmfs_admin::load(&mut input, &arguments.pool, &options, &mut |done, of| {
        progress.of(done, of);
    });
    drop(progress);
    let loaded = loaded.map_err(|error| failed(arguments, &error))?;
    let report = LoadedReport {
        file: arguments.file.display().to_string(),
        pool: pool::resolved(&arguments.pool).display().to_string(),
        size_bytes: loaded.info.size,
        blocks: loaded.blocks,
        saved_ns: loaded.time_ns,
        medium: loaded.info.medium,
        durability: loaded.info.durability,
        damage: loaded.damage,
    };
    if report.damage > 0 {
        eprintln!(
            "pmfs: {} damaged structures in {}, saved like that; run `pmfs fsck` on it",
            report.damage, report.pool
        );
    }
    report::print(arguments.json, &report, text)?;
    Ok(ExitCode::SUCCESS)
}

fn failed(arguments: &Load, error: &Error) -> Failure {
    match error {
        Error::BadImage(_) => Failure::new(
            format!("{}: {error}", arguments.file.display()),
            "no pool was made; use another copy of it",
        ),
        Error::File(failed) if failed.what == "reading" => Failure::new(
            format!("{}: {}", arguments.file.display(), failed.source),
            "no pool was made; see whether it can be read",
        ),
        _ => Failure::engine(&arguments.pool, error),
    }
}

fn text(report: &LoadedReport) -> String {
    format!(
        "loaded {} into {}: {} ({} blocks in use), saved {} UTC\nmedium: {}; {}",
        report.file,
        report.pool,
        Size(report.size_bytes),
        report.blocks,
        utc(report.saved_ns),
        report.medium,
        report.durability,
    )
}
