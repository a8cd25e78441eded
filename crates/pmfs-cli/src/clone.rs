//! `pmfs clone`: a second place for a tree of a pool, which others may use meanwhile.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use pmfs::{Error, OpenOptions};
use pmfs_admin::{Admin, CloneReport};
use serde::Serialize;

use crate::Outcome;
use crate::cli::CloneTree;
use crate::failure::Failure;
use crate::names::{Names, is_dir};
use crate::{pool, report};
use pm_cli::Size;

#[derive(Serialize)]
pub struct Cloned {
    pool: String,
    path: String,
    dest: String,
    files: u64,
    directories: u64,
    symlinks: u64,
    /// Devices, FIFOs, sockets.
    others: u64,
    /// Sizes of the files, each once.
    bytes: u64,
    /// Files that programs had mapped: their bytes were copied.
    copied: u64,
    /// The time for which all changes of the pool waited.
    frozen_ms: f64,
}

pub fn run(arguments: &CloneTree) -> Outcome {
    let path = pool::resolved(&arguments.pool);
    let cloned = pool::with(&path, &OpenOptions::default(), |fs| {
        let names = Names { fs, pool: &path };
        let source = names.find(&arguments.src, false)?;
        let dest = destination(&names, &arguments.src, &arguments.dest)?;
        let (dir, name) = names.parent(&dest)?;
        let done = fs.clone_tree(source.ino, dir, name);
        let report = done.map_err(|error| failed(&names, &dest, &error))?;
        Ok(Cloned::new(&path, &arguments.src, &dest, &report))
    })?;
    report::print(arguments.json, &cloned, |cloned| cloned.text_of("cloned"))?;
    Ok(ExitCode::SUCCESS)
}

/// DST, or SRC's name in it if it is a directory.
fn destination(names: &Names<'_>, src: &Path, dest: &Path) -> Result<PathBuf, Failure> {
    let there = names.peek(dest, true)?;
    match (there, src.file_name()) {
        (Some(attr), Some(name)) if is_dir(&attr) => Ok(dest.join(name)),
        _ => Ok(dest.to_owned()),
    }
}

pub fn failed(names: &Names<'_>, dest: &Path, error: &Error) -> Failure {
    let pool = names.pool.display();
    let way_out = match error {
        Error::Exists => "name another place, or remove what is there",
        Error::PagesElsewhere(_) => {
            "a program stores to mapped files of it all the time; end it, or try again"
        }
        _ => return names.failed(dest, error),
    };
    Failure::new(format!("{pool}: {}: {error}", dest.display()), way_out)
}

impl Cloned {
    pub fn new(pool: &Path, src: &Path, dest: &Path, report: &CloneReport) -> Cloned {
        Cloned {
            pool: pool.display().to_string(),
            path: src.display().to_string(),
            dest: dest.display().to_string(),
            files: report.files,
            directories: report.directories,
            symlinks: report.symlinks,
            others: report.others,
            bytes: report.bytes,
            copied: report.copied,
            frozen_ms: report.frozen_ns as f64 / 1e6,
        }
    }

    /// A line that begins with what was done.
    pub fn text_of(&self, deed: &str) -> String {
        let mut parts = vec![format!("{} files ({})", self.files, Size(self.bytes))];
        for (count, what) in [
            (self.directories, "directories"),
            (self.symlinks, "symlinks"),
            (self.others, "special files"),
            (self.copied, "mapped files copied"),
        ] {
            if count > 0 {
                parts.push(format!("{count} {what}"));
            }
        }
        let (dest, parts) = (&self.dest, parts.join(", "));
        format!(
            "{deed} {dest}: {parts}; changes waited {:.2} ms",
            self.frozen_ms
        )
    }
}
