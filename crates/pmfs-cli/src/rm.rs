//! `pmfs rm`: deletes pool files, and nothing else.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use pmfs::Error;
use pmfs_admin::{Inspector, PoolState};
use pmfs_fuse::served;
use serde::Serialize;

use crate::Outcome;
use crate::cli::Rm;
use crate::failure::Failure;
use crate::{pool, report};

#[derive(Serialize)]
struct RmReport {
    removed: Vec<String>,
}

pub fn run(arguments: &Rm) -> Outcome {
    let pools: Vec<PathBuf> = arguments.pools.iter().map(|p| pool::resolved(p)).collect();
    for path in &pools {
        judge(path, arguments.force)?;
    }
    let mut removed = Vec::new();
    for path in &pools {
        pmfs_admin::remove(path, arguments.force).map_err(|error| failed(path, &error))?;
        removed.push(path.display().to_string());
    }
    report::print(arguments.json, &RmReport { removed }, |report| {
        format!("deleted {}", report.removed.join(", "))
    })?;
    Ok(ExitCode::SUCCESS)
}

/// Fails if something keeps the pool from being deleted, so that either all of several go, or none.
fn judge(path: &Path, force: bool) -> Result<(), Failure> {
    if let Some(mount) = served::mounts_of(path)?.first() {
        return Err(Failure::new(
            format!("{} is mounted on {}", path.display(), mount.dir.display()),
            format!("run `pmfs umount {}` first", mount.dir.display()),
        ));
    }
    let file = std::fs::metadata(path);
    let file = file.map_err(|source| failed(path, &Error::file("looking", source)))?;
    if !file.is_file() {
        return Err(Failure::new(
            format!("{} is not a regular file", path.display()),
            "rm deletes pool files; a device is made anew with `pmfs mkfs --force`",
        ));
    }
    if !force && !pmfs_admin::is_pool(path).unwrap_or(false) {
        return Err(failed(path, &Error::not_a_pool("no PMFS superblock")));
    }
    match Inspector::open(path) {
        Ok(look) if look.state() == PoolState::InUse => {
            Err(Failure::engine(path, &Error::Held { pid: 0 }))
        }
        _ => Ok(()),
    }
}

fn failed(path: &Path, error: &Error) -> Failure {
    match error {
        Error::NotAPool(_) => Failure::new(
            format!("{}: {error}", path.display()),
            "check the path; --force deletes it all the same",
        ),
        _ => Failure::engine(path, error),
    }
}
