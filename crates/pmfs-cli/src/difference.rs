//! `pmfs save --snapshot` and `pmfs load --onto`: a snapshot, or its difference to another one.

use std::fs::File;
use std::io::{self, BufWriter, Read};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::process::ExitCode;

use pmfs::{Error, OpenOptions};
use pmfs_admin::{Admin, ReceiveReport, SendReport};
use serde::Serialize;

use crate::Outcome;
use crate::cli::{Load, Save};
use crate::failure::Failure;
use crate::progress::Progress;
use crate::save::{failed as not_saved, to_file};
use crate::snapshot::named;
use crate::{pool, report};
use pm_cli::Size;

/// Bytes that are written at a time.
const BUFFER: usize = 1 << 20;

#[derive(Serialize)]
struct Saved {
    pool: String,
    file: String,
    snapshot: String,
    base: Option<String>,
    /// Names in the snapshot, and how many are as in the base.
    names: u64,
    unchanged: u64,
    /// Bytes of content in the file, and of changed files that the base has.
    content_bytes: u64,
    same_bytes: u64,
    /// The size of the file.
    bytes: u64,
}

#[derive(Serialize)]
struct Loaded {
    file: String,
    pool: String,
    snapshot: String,
    base: Option<String>,
    names: u64,
    content_bytes: u64,
}

pub fn save(pool: &Path, name: &str, arguments: &Save, to_stdout: bool) -> Outcome {
    let mut sent = SendReport::default();
    let mut send = |out: BorrowedFd<'_>| {
        sent = send(pool, name, arguments, out)?;
        Ok(())
    };
    match to_stdout {
        true => send(io::stdout().as_fd())?,
        false => to_file(arguments, &mut send)?,
    }
    let saved = Saved {
        pool: pool.display().to_string(),
        file: arguments.file.display().to_string(),
        snapshot: name.to_owned(),
        base: arguments.base.clone(),
        names: sent.names,
        unchanged: sent.unchanged,
        content_bytes: sent.content,
        same_bytes: sent.same,
        bytes: sent.bytes,
    };
    if !to_stdout {
        report::print(arguments.json, &saved, Saved::text)?;
    }
    Ok(ExitCode::SUCCESS)
}

fn send(
    path: &Path,
    name: &str,
    arguments: &Save,
    out: BorrowedFd<'_>,
) -> Result<SendReport, Failure> {
    let reading = OpenOptions {
        read_only: true,
        ..OpenOptions::default()
    };
    let mut progress = Progress::new(arguments.json, "saving", 0);
    pool::with(path, &reading, |fs| {
        let snapshot = named(fs, path, name)?;
        let base = arguments.base.as_deref();
        let base = base.map(|base| named(fs, path, base)).transpose()?;
        let file = File::from(out.try_clone_to_owned()?);
        let mut out = BufWriter::with_capacity(BUFFER, file);
        let watch = &mut |done, of| progress.of(done, of);
        let sent = fs.send_snapshot(&snapshot, base.as_ref(), &mut out, watch);
        sent.map_err(|error| match error {
            Error::Stale | Error::NotFound => Failure::new(
                format!("{}: a snapshot was deleted meanwhile", path.display()),
                "save another one",
            ),
            error => not_saved(path, &error),
        })
    })
}

pub fn load(input: &mut dyn Read, arguments: &Load) -> Outcome {
    let path = pool::resolved(&arguments.pool);
    let mut progress = Progress::new(arguments.json, "loading", 0);
    let received = pool::with(&path, &OpenOptions::default(), |fs| {
        let watch = &mut |done, of| progress.of(done, of);
        let received = fs.receive_snapshot(input, watch);
        received.map_err(|error| not_loaded(arguments, &path, &error))
    })?;
    drop(progress);
    let loaded = Loaded::new(arguments, &path, &received);
    report::print(arguments.json, &loaded, Loaded::text)?;
    Ok(ExitCode::SUCCESS)
}

fn not_loaded(arguments: &Load, pool: &Path, error: &Error) -> Failure {
    let file = arguments.file.display();
    match error {
        Error::BadImage(_) => Failure::new(
            format!("{file}: {error}"),
            "no snapshot was made; use another copy, or leave out --onto if it is a whole pool",
        ),
        Error::File(failed) if failed.what == "reading" => Failure::new(
            format!("{file}: {}", failed.source),
            "no snapshot was made; see whether it can be read",
        ),
        Error::NoBase(_) => Failure::whole(format!("{file}: {error}")),
        Error::Exists => Failure::new(
            format!("{}: it has a snapshot of that name", pool.display()),
            format!("`pmfs snapshot delete {} NAME` deletes it", pool.display()),
        ),
        error => Failure::engine(pool, error),
    }
}

impl Saved {
    fn text(&self) -> String {
        let base = self.base.as_ref();
        let difference = base.map(|base| format!(" by what differs from {base}"));
        format!(
            "saved snapshot {} of {} to {}{}: {}; {} of {} names are unchanged",
            self.snapshot,
            self.pool,
            self.file,
            difference.unwrap_or_default(),
            Size(self.bytes),
            self.unchanged,
            self.names,
        )
    }
}

impl Loaded {
    fn new(arguments: &Load, pool: &Path, received: &ReceiveReport) -> Loaded {
        let text = |name: &[u8]| String::from_utf8_lossy(name).into_owned();
        Loaded {
            file: arguments.file.display().to_string(),
            pool: pool.display().to_string(),
            snapshot: text(&received.name),
            base: received.base.as_deref().map(text),
            names: received.names,
            content_bytes: received.content,
        }
    }

    fn text(&self) -> String {
        let base = self.base.as_ref();
        let from = base.map(|base| format!(", from {base}"));
        format!(
            "loaded snapshot {} into {}{}: {} names, {} of content",
            self.snapshot,
            self.pool,
            from.unwrap_or_default(),
            self.names,
            Size(self.content_bytes),
        )
    }
}
