//! `pmfs mount`: what was asked for, made absolute and checked; then in the foreground, or by
//! [`crate::daemon`].

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{self, ExitCode};
use std::sync::Arc;

use pmfs::Fs;
use pmfs_admin::Admin;
use pmfs_fuse::presence::Presence;
use pmfs_fuse::{Ending, MountError, Mounted, mounts};
use pmfs_posix::mount_options::MountOptions;
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use crate::cli::Mount;
use crate::failure::Failure;
use crate::logger::{self, Target};
use crate::report::{self, Recovery};
use crate::{Outcome, crash, daemon, remount, signals, trust};

/// The pool and directory of a mount to make.
pub struct Request {
    pub pool: PathBuf,
    pub dir: PathBuf,
    pub options: MountOptions,
}

/// The mount that was made.
#[derive(Clone, Serialize, Deserialize)]
pub struct MountReport {
    pub pool: String,
    pub dir: String,
    pub pid: u32,
    pub read_only: bool,
    pub medium: String,
    pub durability: String,
    /// The slower medium that it emulates.
    pub emulates: Option<String>,
    /// The protection of the pool against stray stores of the daemon.
    pub protection: String,
    pub recovery: Recovery,
    /// Entries of the directory that the mount hides.
    pub hides: u64,
}

pub fn run(arguments: &Mount) -> Outcome {
    if arguments.daemon {
        return daemon::run(arguments);
    }
    let options = options(arguments)?;
    if options.remount {
        return remount::run(arguments);
    }
    let request = Request::new(arguments)?;
    if arguments.fake {
        return Ok(ExitCode::SUCCESS);
    }
    if !arguments.foreground {
        let report = daemon::start(arguments, &request)?;
        warn_of_damage(&report);
        if !arguments.quiet {
            report::print(arguments.json, &report, text)?;
        }
        return Ok(ExitCode::SUCCESS);
    }
    let (_, stop) = signals::as_messages()?;
    logger::start(
        &arguments
            .log
            .as_deref()
            .map_or(Target::Stderr, Target::File),
    )?;
    let (attached, report) = Attached::new(&request)?;
    warn_of_damage(&report);
    if !arguments.quiet {
        report::print(arguments.json, &report, text)?;
    }
    attached.serve(stop)
}

fn options(arguments: &Mount) -> Result<MountOptions, MountError> {
    let is_root = rustix::process::geteuid().is_root();
    let mut options = MountOptions::new(is_root);
    (options.suid, options.dev) = (
        is_root && arguments.by_mount8,
        is_root && arguments.by_mount8,
    );
    for list in &arguments.options {
        options.parse(list)?;
    }
    options.emulate = arguments.emulate.unwrap_or(options.emulate);
    options.protect = arguments.protect.unwrap_or(options.protect);
    Ok(options)
}

impl Request {
    /// Checks what can be checked before the pool is touched.
    pub fn new(arguments: &Mount) -> Result<Request, Failure> {
        let mut options = options(arguments)?;
        let pool = fs::canonicalize(&arguments.pool).map_err(|error| {
            Failure::new(
                format!("{}: {error}", arguments.pool.display()),
                format!(
                    "name a pool file; `pmfs mkfs --size 1G {}` makes one",
                    arguments.pool.display()
                ),
            )
        })?;
        let dir = mount_point(&arguments.dir)?;
        if let Some(there) = mounts::pool_mount_at(&dir)? {
            return Err(MountError::AlreadyMounted {
                pool: there.pool_now(),
                dir,
            }
            .into());
        }
        if (options.suid || options.dev)
            && let Err(refused) = may_honour(&pool, &dir)
        {
            if !arguments.by_mount8 {
                return Err(refused.into());
            }
            // The two were not asked for by name.
            (options.suid, options.dev) = (false, false);
        }
        Ok(Request { pool, dir, options })
    }
}

/// Checks that only root can have made set-id bits and devices of the pool.
fn may_honour(pool: &Path, dir: &Path) -> Result<(), MountError> {
    trust::is_roots(pool)?;
    if fs::metadata(dir).is_ok_and(|file| file.uid() != 0) {
        return Err(MountError::NotRoots {
            path: dir.to_owned(),
        });
    }
    Ok(())
}

fn mount_point(dir: &Path) -> Result<PathBuf, MountError> {
    let path = || dir.to_owned();
    let resolved = fs::canonicalize(dir).and_then(|path| Ok((fs::metadata(&path)?, path)));
    match resolved {
        Ok((file, resolved)) if file.is_dir() => Ok(resolved),
        Ok(_) => Err(MountError::NotDirectory { path: path() }),
        Err(error) if error.raw_os_error() == Some(Errno::NOTCONN.raw_os_error()) => {
            Err(MountError::DeadMount { path: path() })
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            Err(MountError::NoDirectory { path: path() })
        }
        Err(source) => Err(MountError::Io {
            what: "looking at",
            path: path(),
            source,
        }),
    }
}

/// A pool that this process has attached and mounted.
pub struct Attached {
    mounted: Mounted,
    /// Held until the pool is closed: an unmount waits for it.
    presence: Presence,
}

impl Attached {
    /// Attaches (and recovers) the pool and mounts it. If the mount is refused the pool is closed.
    pub fn new(request: &Request) -> Result<(Attached, MountReport), Failure> {
        let Request { pool, dir, options } = request;
        let presence = Presence::take(pool)?;
        let failed = |error| Failure::engine(pool, &error);
        crash::arm();
        let fs = Arc::new(Fs::open(pool, &options.open_options()).map_err(failed)?);
        let info = fs.info();
        let hides = fs::read_dir(dir).map_or(0, |entries| entries.count() as u64);
        let report = MountReport {
            pool: pool.display().to_string(),
            dir: dir.display().to_string(),
            pid: process::id(),
            read_only: options.read_only,
            medium: info.medium,
            durability: info.durability,
            emulates: (!options.emulate.is_off()).then(|| options.emulate.to_string()),
            protection: fs.mapping().protection().to_string(),
            recovery: Recovery::from(fs.recovery()),
            hides,
        };
        match pmfs_fuse::mount(Arc::clone(&fs), pool, dir, options, &presence) {
            Ok(mounted) => Ok((Attached { mounted, presence }, report)),
            Err(refused) => {
                fs.detach().map_err(failed)?;
                Err(refused.into())
            }
        }
    }

    /// By which it is told from other mounts of the pool.
    pub fn name(&self) -> u32 {
        self.presence.name()
    }

    /// Serves it to the end.
    pub fn serve(self, stop: std::sync::mpsc::Receiver<pmfs_fuse::Stop>) -> Outcome {
        let ending = self.mounted.serve(stop, daemon::this_program("drop-pages"));
        drop(self.presence);
        match ending? {
            Ending::Unmounted => log::info!("unmounted, the pool is clean"),
            Ending::CutOff => log::warn!("ended with files open, the pool is clean"),
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// Warns of damage, also if the result is not read.
fn warn_of_damage(report: &MountReport) {
    if report.recovery.damage > 0 {
        eprintln!(
            "pmfs: {} damaged structures in {}: it is read-only; copy what you need, and run `pmfs fsck`",
            report.recovery.damage, report.pool
        );
    }
}

fn text(report: &MountReport) -> String {
    let emulates = report.emulates.iter();
    let emulates: String = emulates
        .map(|medium| format!("\nemulates: {medium}"))
        .collect();
    let hides = match report.hides {
        0 => String::new(),
        count => format!(
            "\nhidden until it is unmounted: what was in {} before ({count})",
            report.dir
        ),
    };
    format!(
        "mounted {} on {}{} (process {})\nrecovery: {}\nmedium: {}; {}{emulates}\nprotection: {}{hides}",
        report.pool,
        report.dir,
        if report.read_only { ", read-only" } else { "" },
        report.pid,
        report.recovery.sentence,
        report.medium,
        report.durability,
        report.protection,
    )
}
