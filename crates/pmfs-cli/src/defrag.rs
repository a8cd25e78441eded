//! `pmfs defrag`: small pages of files become large ones, and free space becomes whole
//! regions, while others use the pool.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use pmfs::{Attr, Fs, OpenOptions, types::mode};
use pmfs_admin::{Admin, DefragReport};
use serde::Serialize;

use crate::Outcome;
use crate::cli::Defrag;
use crate::failure::Failure;
use crate::names::{Names, below, is_dir};
use crate::progress::Progress;
use crate::{pool, report};

#[derive(Serialize)]
struct Report {
    pool: String,
    dry_run: bool,
    /// Pages of 2 MiB made of small ones.
    merged: u64,
    /// Regions of 2 MiB that were to be emptied, and blocks of 4 KiB moved out of them.
    regions: u64,
    moved: u64,
    /// Steps not taken: a file was mapped, or in a kernel's pages; no region was free as a whole.
    busy: u64,
    no_region: u64,
    free_4k_pages_before: u64,
    free_2m_pages_before: u64,
    free_4k_pages: u64,
    free_2m_pages: u64,
}

pub fn run(arguments: &Defrag) -> Outcome {
    let path = pool::resolved(&arguments.pool);
    let report = pool::with(&path, &OpenOptions::default(), |fs| {
        let before = fs.details().free;
        let done = defragment(fs, &path, arguments)?;
        let after = fs.details().free;
        Ok(Report {
            pool: path.display().to_string(),
            dry_run: arguments.dry_run,
            merged: done.merged,
            regions: done.regions,
            moved: done.moved,
            busy: done.busy,
            no_region: done.no_region,
            free_4k_pages_before: before.small,
            free_2m_pages_before: before.large,
            free_4k_pages: after.small,
            free_2m_pages: after.large,
        })
    })?;
    report::print(arguments.json, &report, text)?;
    Ok(ExitCode::SUCCESS)
}

fn defragment(fs: &Fs, pool: &Path, arguments: &Defrag) -> Result<DefragReport, Failure> {
    let dry = arguments.dry_run;
    let mut progress = Progress::counting(arguments.json, "defragmenting");
    if arguments.paths.is_empty() {
        return fs
            .defrag(dry, &mut |done, of| progress.of(done, of))
            .map_err(|error| Failure::engine(pool, &error));
    }
    let names = Names { fs, pool };
    let mut files = Vec::new();
    for path in &arguments.paths {
        collect(&names, path, &mut files)?;
    }
    let mut sum = DefragReport::default();
    for (at, (path, file)) in files.iter().enumerate() {
        progress.of(at as u64, files.len() as u64);
        let done = fs.defrag_file(file.ino, dry);
        let done = done.map_err(|error| names.failed(path, &error))?;
        sum.merged += done.merged;
        sum.busy += done.busy;
        sum.no_region += done.no_region;
    }
    Ok(sum)
}

/// A file, or all files below a directory.
fn collect(
    names: &Names<'_>,
    path: &Path,
    files: &mut Vec<(PathBuf, Attr)>,
) -> Result<(), Failure> {
    let mut next = vec![(path.to_owned(), names.find(path, true)?)];
    while let Some((path, attr)) = next.pop() {
        if is_dir(&attr) {
            let children = names.children(attr.ino, &path)?;
            next.extend(
                children
                    .into_iter()
                    .map(|child| (below(&path, &child.name), child.attr)),
            );
        } else if attr.mode & mode::S_IFMT == mode::S_IFREG {
            files.push((path, attr));
        }
    }
    Ok(())
}

fn text(report: &Report) -> String {
    let would = if report.dry_run { "could be " } else { "" };
    let share = |large: u64, small: u64| report::percent(large * 512, small);
    let mut lines = vec![
        format!("{would}merged  {} pages of 2 MiB", report.merged),
        format!(
            "{would}emptied {} regions of 2 MiB ({} blocks moved)",
            report.regions, report.moved
        ),
        format!(
            "free in whole regions  {} before, {} now",
            share(report.free_2m_pages_before, report.free_4k_pages_before),
            share(report.free_2m_pages, report.free_4k_pages)
        ),
    ];
    if report.busy > 0 {
        lines.push(format!(
            "left alone  {} times 2 MiB of files that are mapped",
            report.busy
        ));
    }
    if report.no_region > 0 {
        lines.push(format!(
            "not merged  {} pages, as no region was free as a whole",
            report.no_region
        ));
    }
    lines.join("\n")
}
