//! `pmfs save`: a pool as it is at one instant, as a stream of bytes. An unmounted pool
//! is attached for it; a mount is made to stand still (see [`pmfs_fuse::freeze`]).

use std::collections::HashSet;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{self, ExitCode};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use pmfs::{Error, Freeze, OpenOptions};
use pmfs_admin::{Admin, Inspector, NewFile, SaveReport};
use pmfs_fuse::freeze::{self, Frozen};
use pmfs_fuse::mounts::PoolMount;
use pmfs_fuse::served;
use serde::Serialize;

use crate::Outcome;
use crate::cli::Save;
use crate::failure::Failure;
use crate::progress::Progress;
use crate::{difference, pool, report};
use pm_cli::{Size, escaped};

/// A mount doesn't stand still for an output that takes nothing for so long: its reader
/// may be waiting for the mount.
const STALLED: Duration = Duration::from_secs(60);

/// A short command is done with the pool within this.
const LEAVING: Duration = Duration::from_secs(1);

#[derive(Serialize)]
struct SavedReport {
    pool: String,
    file: String,
    /// The size of the pool.
    size_bytes: u64,
    /// Blocks with content.
    blocks: u64,
    /// The size of the file.
    bytes: u64,
    mounted_on: Option<String>,
    /// The time for which the mount stood still.
    frozen_ms: Option<u64>,
}

pub fn run(arguments: &Save) -> Outcome {
    let path = pool::resolved(&arguments.pool);
    let to_stdout = arguments.file == Path::new("-");
    if to_stdout && arguments.json {
        return Err(
            Failure::new("stdout takes the pool", "leave out --json, or name a file").with_code(2),
        );
    }
    if let Some(name) = &arguments.snapshot {
        return difference::save(&path, name, arguments, to_stdout);
    }
    let mounts = mounts_of(&path)?;
    let mut saver = Saver {
        path: &path,
        progress: Progress::new(arguments.json, "saving", 0),
        report: SavedReport {
            pool: path.display().to_string(),
            file: arguments.file.display().to_string(),
            size_bytes: 0,
            blocks: 0,
            bytes: 0,
            mounted_on: mounts.last().map(|mount| mount.dir.display().to_string()),
            frozen_ms: None,
        },
    };
    if to_stdout {
        saver.save(&mounts, io::stdout().as_fd())?;
    } else {
        to_file(arguments, &mut |out| saver.save(&mounts, out))?;
    }
    let Saver {
        progress, report, ..
    } = saver;
    drop(progress);
    if !to_stdout {
        report::print(arguments.json, &report, text)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Returns a mount for each daemon: one that is bound elsewhere is in the table more than once.
fn mounts_of(path: &Path) -> Result<Vec<PoolMount>, Failure> {
    let mut all = served::mounts_of(path)?;
    let mut seen = HashSet::new();
    all.retain(|mount| seen.insert(mount.device.clone()));
    Ok(all)
}

/// Has what is saved be the content of a file, which gets its name when it is whole.
pub(crate) fn to_file(
    arguments: &Save,
    save: &mut dyn FnMut(BorrowedFd<'_>) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let dest = &arguments.file;
    let failed = |error: &io::Error| {
        Failure::new(
            format!("{}: {error}", dest.display()),
            "choose another FILE, or make room there",
        )
    };
    let there = fs::metadata(dest).ok();
    if there.as_ref().is_some_and(|file| !file.is_file()) {
        let special = File::options().write(true).open(dest);
        return save(special.map_err(|error| failed(&error))?.as_fd());
    }
    let taken = || {
        Failure::new(
            format!("{} is there already", dest.display()),
            "name another file, or replace this one with --force",
        )
    };
    if there.is_some() && !arguments.force {
        return Err(taken());
    }
    let new = NewFile::create(dest).map_err(|error| failed(&error))?;
    save(new.file().as_fd())?;
    new.file().sync_all().map_err(|error| failed(&error))?;
    match new.publish(arguments.force) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Err(taken()),
        other => other.map_err(|error| failed(&error)),
    }
}

struct Saver<'a> {
    path: &'a Path,
    progress: Progress,
    report: SavedReport,
}

impl Saver<'_> {
    fn save(&mut self, mounts: &[PoolMount], out: BorrowedFd<'_>) -> Result<(), Failure> {
        let mut out = File::from(out.try_clone_to_owned()?);
        let saved = match mounts {
            [] => self.unmounted(&mut out)?,
            mounts => self.mounted(mounts, &mut out)?,
        };
        self.report.blocks = saved.blocks;
        self.report.bytes = saved.bytes;
        Ok(())
    }

    fn unmounted(&mut self, out: &mut File) -> Result<SaveReport, Failure> {
        let path = self.path;
        let alone = OpenOptions {
            exclusive: true,
            ..pool::for_reading()
        };
        pool::with(path, &alone, |fs| {
            self.report.size_bytes = fs.info().size;
            fs.save(out, &mut |done, of| self.progress.of(done, of))
                .map_err(|error| failed(path, &error))
        })
    }

    fn mounted(&mut self, mounts: &[PoolMount], out: &mut File) -> Result<SaveReport, Failure> {
        let dev = out.metadata()?.dev();
        let (major, minor) = (rustix::fs::major(dev), rustix::fs::minor(dev));
        let device = format!("{major}:{minor}");
        if let Some(mount) = mounts.iter().find(|mount| mount.device == device) {
            return Err(Failure::new(
                format!("the output is on {} itself", mount.dir.display()),
                "write it somewhere else",
            ));
        }
        // Before anything is asked of a mount, which may be standing still for another copier.
        let lock = Freeze::take(self.path).map_err(|error| failed(self.path, &error))?;
        let since = Instant::now();
        let mut everything = false;
        // Open until the end, so that they can't be unmounted.
        let mut roots = Vec::new();
        for mount in mounts {
            let wrong = |what: &str, error: &io::Error| {
                Failure::new(
                    format!("{what} {}: {error}", mount.dir.display()),
                    "do it as root, or as the user who mounted it; or unmount it first",
                )
            };
            let root = File::open(&mount.dir).map_err(|error| wrong("opening", &error))?;
            let frozen = freeze::ask(&root).map_err(|error| wrong("freezing", &error))?;
            everything |= frozen == Frozen::Damaged;
            roots.push(root);
        }
        let watch = Arc::new(AtomicU64::new(0));
        watch_output(&watch);
        let look = Inspector::open(self.path).map_err(|error| failed(self.path, &error))?;
        nobody_else(self.path, &look, mounts.len())?;
        self.report.size_bytes = look.info().size;
        let mut out = Watched { out, taken: &watch };
        let saved = look.save(everything, &mut out, &mut |done, of| {
            self.progress.of(done, of)
        });
        watch.store(u64::MAX, Ordering::Relaxed);
        drop(lock);
        self.report.frozen_ms = Some(since.elapsed().as_millis() as u64);
        drop(roots);
        saved.map_err(|error| failed(self.path, &error))
    }
}

/// Refuses a pool that a program has open beside its mounts: it can't be asked to stand
/// still. New ones don't get in meanwhile, and one that is just leaving is waited for.
fn nobody_else(path: &Path, look: &Inspector, mounts: usize) -> Result<(), Failure> {
    let since = Instant::now();
    loop {
        let mut there = look.processes();
        there.retain(|process| process.is_alive);
        if there.len() <= mounts {
            return Ok(());
        }
        if since.elapsed() > LEAVING {
            let names = there
                .iter()
                .map(|process| (escaped(process.command.as_bytes()), process.pid))
                .map(|(command, pid)| format!("{command}[{pid}]"));
            return Err(Failure::new(
                format!(
                    "{} is in use beside its mounts: {}",
                    path.display(),
                    names.collect::<Vec<_>>().join(", ")
                ),
                "end what has it open; only mounts can stand still",
            ));
        }
        thread::sleep(Duration::from_millis(5));
    }
}

/// Counts what the output has taken.
struct Watched<'a> {
    out: &'a mut File,
    taken: &'a AtomicU64,
}

impl Write for Watched<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.out.write(bytes)?;
        self.taken.fetch_add(written as u64, Ordering::Relaxed);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

/// Ends the process, and with it the freeze, if the output stalls.
fn watch_output(taken: &Arc<AtomicU64>) {
    let taken = Arc::clone(taken);
    thread::spawn(move || {
        let mut last = 0;
        loop {
            thread::sleep(STALLED);
            let now = taken.load(Ordering::Relaxed);
            if now == u64::MAX {
                return;
            }
            if now == last {
                eprintln!(
                    "pmfs: the output took nothing for {} s while the mount stood still; \
                     write to a file that is not on the mount",
                    STALLED.as_secs()
                );
                process::exit(1);
            }
            last = now;
        }
    });
}

pub(crate) fn failed(path: &Path, error: &Error) -> Failure {
    match error {
        Error::File(failed) => Failure::new(
            format!("writing the saved pool: {}", failed.source),
            "make room, or write it somewhere else",
        ),
        _ => Failure::engine(path, error),
    }
}

fn text(report: &SavedReport) -> String {
    let still = report
        .frozen_ms
        .map(|ms| format!("; its mount stood still for {ms} ms"));
    format!(
        "saved {} to {}: {} of {}{}",
        report.pool,
        report.file,
        Size(report.bytes),
        Size(report.size_bytes),
        still.unwrap_or_default(),
    )
}
