//! `pmfs snapshot`: trees of a pool as they were, which nobody can change.

use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use pmfs::{Error, Fs, OpenOptions};
use pmfs_admin::{Admin, SNAPSHOTS, Snapshot};
use serde::Serialize;

use crate::Outcome;
use crate::cli::{SnapshotCommand, SnapshotCreate, SnapshotDelete, SnapshotList, SnapshotRestore};
use crate::clone::{Cloned, failed as not_cloned};
use crate::failure::Failure;
use crate::names::Names;
use crate::time::utc;
use crate::{pool, report};
use pm_cli::escaped;

#[derive(Serialize)]
struct Listed {
    pool: String,
    snapshots: Vec<Line>,
}

#[derive(Serialize)]
struct Line {
    name: String,
    /// The path that its source had.
    of: String,
    /// Where it is in the pool.
    path: String,
    /// Nanoseconds since 1970.
    made_ns: i64,
}

#[derive(Serialize)]
struct Deleted {
    pool: String,
    deleted: Vec<String>,
}

pub fn run(command: &SnapshotCommand) -> Outcome {
    match command {
        SnapshotCommand::Create(arguments) => create(arguments),
        SnapshotCommand::List(arguments) => list(arguments),
        SnapshotCommand::Delete(arguments) => delete(arguments),
        SnapshotCommand::Restore(arguments) => restore(arguments),
    }
}

fn create(arguments: &SnapshotCreate) -> Outcome {
    let path = pool::resolved(&arguments.pool);
    check_name(&arguments.name)?;
    let made = pool::with(&path, &OpenOptions::default(), |fs| {
        let names = Names { fs, pool: &path };
        let of = Path::new("/").join(&arguments.of);
        let source = names.find(&of, true)?;
        let dest = place(&arguments.name);
        let name = arguments.name.as_bytes();
        let done = fs.create_snapshot(source.ino, of.as_os_str().as_bytes(), name);
        let report = done.map_err(|error| match error {
            Error::NotDirectory => Failure::new(
                format!("{} is not a directory", of.display()),
                format!(
                    "`pmfs clone {} {} DST` clones a file",
                    arguments.pool.display(),
                    of.display()
                ),
            ),
            error => not_cloned(&names, &dest, &error),
        })?;
        Ok(Cloned::new(&path, &of, &dest, &report))
    })?;
    report::print(arguments.json, &made, |made| made.text_of("snapshot"))?;
    Ok(ExitCode::SUCCESS)
}

fn list(arguments: &SnapshotList) -> Outcome {
    let path = pool::resolved(&arguments.pool);
    let reading = OpenOptions {
        read_only: true,
        ..OpenOptions::default()
    };
    let listed = pool::with(&path, &reading, |fs| {
        let all = fs
            .snapshots()
            .map_err(|error| Failure::engine(&path, &error))?;
        Ok(Listed {
            pool: path.display().to_string(),
            snapshots: all.iter().map(Line::of).collect(),
        })
    })?;
    report::print(arguments.json, &listed, Listed::text)?;
    Ok(ExitCode::SUCCESS)
}

fn delete(arguments: &SnapshotDelete) -> Outcome {
    let path = pool::resolved(&arguments.pool);
    let deleted = pool::with(&path, &OpenOptions::default(), |fs| {
        // Either all of several go, or none.
        for name in &arguments.names {
            named(fs, &path, name)?;
        }
        for name in &arguments.names {
            fs.delete_snapshot(name.as_bytes())
                .map_err(|error| missing(&path, name, &error))?;
        }
        Ok(Deleted {
            pool: path.display().to_string(),
            deleted: arguments.names.clone(),
        })
    })?;
    report::print(arguments.json, &deleted, |deleted| {
        format!("deleted {}", deleted.deleted.join(", "))
    })?;
    Ok(ExitCode::SUCCESS)
}

fn restore(arguments: &SnapshotRestore) -> Outcome {
    let path = pool::resolved(&arguments.pool);
    let restored = pool::with(&path, &OpenOptions::default(), |fs| {
        let names = Names { fs, pool: &path };
        let snapshot = named(fs, &path, &arguments.name)?;
        let to = names.parent(&arguments.dest)?;
        let done = fs.restore_snapshot(&snapshot, to, arguments.replace);
        let report = done.map_err(|error| match error {
            Error::Exists => Failure::new(
                format!("{}: {} exists", path.display(), arguments.dest.display()),
                "name another place, or add --replace to have the snapshot in place of it",
            ),
            error => not_cloned(&names, &arguments.dest, &error),
        })?;
        let from = place(&arguments.name);
        Ok(Cloned::new(&path, &from, &arguments.dest, &report))
    })?;
    report::print(arguments.json, &restored, |restored| {
        restored.text_of("restored")
    })?;
    Ok(ExitCode::SUCCESS)
}

/// Where a snapshot is in its pool.
fn place(name: &str) -> PathBuf {
    Path::new("/").join(SNAPSHOTS).join(name)
}

fn check_name(name: &str) -> Result<(), Failure> {
    let is_one_name = !name.is_empty() && !name.contains('/') && name != "." && name != "..";
    match is_one_name {
        true => Ok(()),
        false => Err(Failure::new(
            format!("'{name}' can't be a snapshot's name"),
            "choose one like monday, without a slash",
        )),
    }
}

pub(crate) fn named(fs: &Fs, pool: &Path, name: &str) -> Result<Snapshot, Failure> {
    check_name(name)?;
    let found = fs.snapshot(name.as_bytes());
    found.map_err(|error| missing(pool, name, &error))
}

fn missing(pool: &Path, name: &str, error: &Error) -> Failure {
    match error {
        Error::NotFound => Failure::new(
            format!("{}: there is no snapshot '{name}'", pool.display()),
            format!(
                "`pmfs snapshot list {}` shows what there is",
                pool.display()
            ),
        ),
        error => Failure::engine(pool, error),
    }
}

impl Line {
    fn of(snapshot: &Snapshot) -> Line {
        let name = String::from_utf8_lossy(&snapshot.name).into_owned();
        Line {
            path: place(&name).display().to_string(),
            of: String::from_utf8_lossy(&snapshot.origin).into_owned(),
            made_ns: snapshot.made_ns,
            name,
        }
    }
}

impl Listed {
    fn text(&self) -> String {
        if self.snapshots.is_empty() {
            return format!("{} has no snapshots", self.pool);
        }
        let widest = self.snapshots.iter().map(|line| line.name.chars().count());
        let widest = widest.max().unwrap_or(0);
        let lines = self.snapshots.iter().map(|line| {
            let [name, of] = [&line.name, &line.of].map(|text| escaped(text.as_bytes()));
            let when = utc(line.made_ns);
            format!("{when}  {name:widest$}  of {of}")
        });
        lines.collect::<Vec<_>>().join("\n")
    }
}
