//! `pmfs save`: a pool as it is at one instant, as a stream of bytes. An unmounted pool is attached for it; a
//! mount is made to stand still (see [`pmfs_fuse::freeze`]).

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{self, ExitCode};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use pmfs::{Error, Freeze, Look, NewFile, SaveReport};
use pmfs_fuse::freeze::{self, Frozen};
use pmfs_fuse::mounts::{self, PoolMount};
use serde::Serialize;

use crate::Outcome;
use crate::cli::Save;
use crate::failure::Failure;
use crate::progress::Progress;
use crate::size::Size;
use crate::{pool, report};

/// A mount doesn't stand still for an output that takes nothing for so long: its reader may be waiting for
/// the mount.
const STALLED: Duration = Duration::from_secs(60);

#[derive(Serialize)]
struct SavedReport {
    pool: String,
    file: String,
    /// Of the pool.
    size_bytes: u64,
    /// With content.
    blocks: u64,
    /// Of the file.
    bytes: u64,
    mounted_on: Option<String>,
    /// How long the mount stood still.
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
    let mount = mounts::pool_mounts()?
        .into_iter()
        .rfind(|mount| mount.pool == path);
    let mut saver = Saver {
        path: &path,
        progress: Progress::new(arguments.json, "saving", 0),
        report: SavedReport {
            pool: path.display().to_string(),
            file: arguments.file.display().to_string(),
            size_bytes: 0,
            blocks: 0,
            bytes: 0,
            mounted_on: mount.as_ref().map(|mount| mount.dir.display().to_string()),
            frozen_ms: None,
        },
    };
    if to_stdout {
        saver.save(mount.as_ref(), io::stdout().as_fd())?;
    } else {
        to_file(arguments, &mut saver, mount.as_ref())?;
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

fn to_file(
    arguments: &Save,
    saver: &mut Saver<'_>,
    mount: Option<&PoolMount>,
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
        return saver.save(mount, special.map_err(|error| failed(&error))?.as_fd());
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
    saver.save(mount, new.file().as_fd())?;
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
    fn save(
        &mut self,
        mount: Option<&PoolMount>,
        out: std::os::fd::BorrowedFd<'_>,
    ) -> Result<(), Failure> {
        let mut out = File::from(out.try_clone_to_owned()?);
        let saved = match mount {
            Some(mount) => self.mounted(mount, &mut out)?,
            None => self.unmounted(&mut out)?,
        };
        self.report.blocks = saved.blocks;
        self.report.bytes = saved.bytes;
        Ok(())
    }

    fn unmounted(&mut self, out: &mut File) -> Result<SaveReport, Failure> {
        let path = self.path;
        pool::with(path, &pool::for_reading(), |fs| {
            self.report.size_bytes = fs.info().size;
            fs.save(out, &mut |done, of| self.progress.of(done, of))
                .map_err(|error| failed(path, &error))
        })
    }

    fn mounted(&mut self, mount: &PoolMount, out: &mut File) -> Result<SaveReport, Failure> {
        let wrong = |what: &str, error: &io::Error| {
            Failure::new(
                format!("{what} {}: {error}", mount.dir.display()),
                "do it as root, or as the user who mounted it; or unmount it first",
            )
        };
        let dev = out.metadata()?.dev();
        let (major, minor) = (rustix::fs::major(dev), rustix::fs::minor(dev));
        if mount.device == format!("{major}:{minor}") {
            return Err(Failure::new(
                format!("the output is on {} itself", mount.dir.display()),
                "write it somewhere else",
            ));
        }
        // Before anything is asked of the mount, which may be standing still for another copier.
        let lock = Freeze::take(self.path).map_err(|error| failed(self.path, &error))?;
        let root = File::open(&mount.dir).map_err(|error| wrong("opening", &error))?;
        let since = Instant::now();
        let frozen = freeze::ask(&root).map_err(|error| wrong("freezing", &error))?;
        let watch = Arc::new(AtomicU64::new(0));
        watch_output(&watch);
        let look = Look::open(self.path).map_err(|error| failed(self.path, &error))?;
        self.report.size_bytes = look.info().size;
        let mut out = Watched { out, taken: &watch };
        let everything = frozen == Frozen::Damaged;
        let saved = look.save(everything, &mut out, &mut |done, of| {
            self.progress.of(done, of)
        });
        watch.store(u64::MAX, Ordering::Relaxed);
        drop(lock);
        self.report.frozen_ms = Some(since.elapsed().as_millis() as u64);
        // Open until now, so that nobody could unmount it.
        drop(root);
        saved.map_err(|error| failed(self.path, &error))
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

fn failed(path: &Path, error: &Error) -> Failure {
    match error {
        Error::File { source, .. } => Failure::new(
            format!("writing the saved pool: {source}"),
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
