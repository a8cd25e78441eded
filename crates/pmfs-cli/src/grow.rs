//! `pmfs grow`: a larger pool.

use std::process::ExitCode;

use pmfs::Error;
use serde::Serialize;

use crate::Outcome;
use crate::cli::Grow;
use crate::failure::Failure;
use crate::progress::Progress;
use crate::{crash, pool, report};
use pm_cli::Size;

#[derive(Serialize)]
struct GrowReport {
    pool: String,
    old_size_bytes: u64,
    size_bytes: u64,
    blocks: u64,
    blocks_free: u64,
    inodes: u64,
    inodes_free: u64,
    overhead_bytes: u64,
}

pub fn run(arguments: &Grow) -> Outcome {
    let path = pool::resolved(&arguments.pool);
    crash::arm();
    let mut progress = Progress::new(arguments.json, "growing", arguments.size().0);
    let grown = pmfs_admin::grow(
        &path,
        arguments.size().0,
        arguments.sparse,
        &mut |done, of| {
            progress.of(done, of);
        },
    );
    drop(progress);
    let grown = grown.map_err(|error| match error {
        Error::Geometry(_) => Failure::new(
            format!("{}: {error}", path.display()),
            "choose another SIZE",
        ),
        Error::File(failed) => Failure::new(
            format!("{}: making it larger: {}", path.display(), failed.source),
            "make room there, or choose a smaller SIZE; the pool is as it was",
        ),
        error => Failure::engine(&path, &error),
    })?;
    let report = GrowReport {
        pool: path.display().to_string(),
        old_size_bytes: grown.old_size,
        size_bytes: grown.info.size,
        blocks: grown.info.blocks,
        blocks_free: grown.info.blocks_free,
        inodes: grown.info.inodes,
        inodes_free: grown.info.inodes_free,
        overhead_bytes: grown.info.overhead_bytes,
    };
    report::print(arguments.json, &report, text)?;
    Ok(ExitCode::SUCCESS)
}

fn text(report: &GrowReport) -> String {
    format!(
        "{} has grown from {} to {}: {} free, {} inodes",
        report.pool,
        Size(report.old_size_bytes),
        Size(report.size_bytes),
        Size(report.blocks_free * 4096),
        report.inodes,
    )
}
