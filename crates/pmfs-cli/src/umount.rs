//! `pmfs umount`: takes the mount away and waits until its daemon has closed the pool.

use std::fs::{self, File};
use std::os::fd::OwnedFd;
use std::path::{self, Path, PathBuf};
use std::process::ExitCode;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use pmfs_fuse::mounts::PoolMount;
use pmfs_fuse::{MountError, mounts, presence, served, unmount};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use serde::Serialize;

use crate::Outcome;
use crate::cli::Umount;
use crate::failure::Failure;
use crate::{pool, report};

/// After a lazy unmount: enough for a mount that was not in use.
const GLANCE: Duration = Duration::from_millis(200);

/// For a daemon to answer; one that is stopped doesn't.
const PATIENCE_FOR_ANSWER: Duration = Duration::from_secs(2);

#[derive(Serialize)]
struct UmountReport {
    pool: String,
    dir: String,
    /// The daemon has let go of the pool.
    released: bool,
    /// The daemon was gone before: the next mount recovers.
    daemon_was_gone: bool,
}

pub fn run(arguments: &Umount) -> Outcome {
    let dir = mount_point(&arguments.dir);
    let Some(mount) = mounts::pool_mount_at(&dir)? else {
        return Err(not_mounted(&arguments.dir));
    };
    let gone = is_gone(&dir);
    let daemon = Daemon::of(&mount, gone);
    let gone = gone || daemon.wait(Duration::ZERO).is_ok();
    unmount::unmount(&dir, arguments.lazy)?;
    let released = if arguments.lazy && !gone {
        // The mount may be in use for any time.
        daemon.wait(GLANCE).is_ok()
    } else {
        match daemon.wait(Duration::from_secs(arguments.wait.into())) {
            Ok(()) => true,
            Err(error @ MountError::StillServing { .. }) => {
                return Err(mounts::copied(&mount).unwrap_or(error).into());
            }
            Err(error) => {
                eprintln!("pmfs: unmounted, but whether the pool is closed can't be told: {error}");
                false
            }
        }
    };
    let report = UmountReport {
        pool: daemon.pool.display().to_string(),
        dir: dir.display().to_string(),
        released,
        daemon_was_gone: gone,
    };
    if !arguments.quiet {
        report::print(arguments.json, &report, text)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// A pool is named by mistake where its directory is meant.
fn not_mounted(path: &Path) -> Failure {
    if !pmfs_admin::is_pool(path).unwrap_or(false) {
        return MountError::NotMounted {
            path: path.to_owned(),
        }
        .into();
    }
    let mounts = served::mounts_of(&pool::resolved(path)).unwrap_or_default();
    let dirs: Vec<String> = mounts
        .iter()
        .map(|at| at.dir.display().to_string())
        .collect();
    let pool = path.display();
    match &dirs[..] {
        [] => Failure::new(
            format!("{pool} is a pool, and not mounted"),
            "nothing is to be done",
        ),
        [dir] => Failure::new(
            format!("{pool} is a pool, which is mounted on {dir}"),
            format!("run `pmfs umount {dir}`"),
        ),
        dirs => Failure::new(
            format!(
                "{pool} is a pool, which is mounted on {}",
                dirs.join(" and ")
            ),
            "name the one to unmount",
        ),
    }
}

/// The server of a mount.
struct Daemon {
    /// The pool by its present name.
    pool: PathBuf,
    /// The process, if the pool has no name any more by which it could be looked at.
    process: Option<OwnedFd>,
    /// The daemon's name of the mount. `None`: it did not tell.
    name: Option<u32>,
    /// The pool is mounted elsewhere, too, so "no mount at all" will not come.
    others: bool,
}

impl Daemon {
    /// Asks it, unless it is gone.
    fn of(mount: &PoolMount, gone: bool) -> Daemon {
        let served = (!gone).then(|| mount.served()).flatten();
        let is_nameless = served.as_ref().is_some_and(|served| served.pool.is_none());
        let pid = served
            .as_ref()
            .filter(|_| is_nameless)
            .map(|served| served.pid as i32);
        let process = pid.and_then(Pid::from_raw);
        let pool = served
            .and_then(|served| served.pool)
            .unwrap_or_else(|| mount.pool.clone());
        let all = served::mounts_of(&pool).unwrap_or_default();
        let dir = mount.dir.clone();
        let ask = move || presence::name_of(&File::open(dir)?);
        Daemon {
            pool,
            process: process.and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok()),
            name: (!gone).then(|| answer(ask)?.ok()).flatten(),
            others: all.iter().any(|at| at.device != mount.device),
        }
    }

    /// Waits until it has let go of the pool.
    fn wait(&self, patience: Duration) -> Result<(), MountError> {
        if let Some(process) = &self.process {
            return self.wait_for(process, patience);
        }
        match self.name {
            Some(name) => presence::wait_for(&self.pool, name, patience),
            None if self.others => Ok(()),
            None => presence::wait_for_end(&self.pool, patience),
        }
    }

    fn wait_for(&self, process: &OwnedFd, patience: Duration) -> Result<(), MountError> {
        let mut ended = [PollFd::new(process, PollFlags::IN)];
        let seconds = patience.as_secs();
        let patience = Timespec::try_from(patience).ok();
        match poll(&mut ended, patience.as_ref()) {
            Ok(ready) if ready > 0 => Ok(()),
            _ => Err(MountError::StillServing {
                pool: self.pool.clone(),
                seconds,
            }),
        }
    }
}

/// Returns whether no daemon serves the mount. The kernel asks the daemon for each statfs; while a
/// killed daemon is still ending, statfs returns when it is gone. A daemon that does not answer is
/// there.
pub fn is_gone(dir: &Path) -> bool {
    let dir = dir.to_owned();
    let errno = answer(move || rustix::fs::statfs(&dir).err()).flatten();
    matches!(errno, Some(Errno::NOTCONN | Errno::CONNABORTED))
}

/// A daemon's answer, if it gives one.
fn answer<T: Send + 'static>(ask: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    let (answer, answered) = mpsc::channel();
    thread::spawn(move || answer.send(ask()));
    answered.recv_timeout(PATIENCE_FOR_ANSWER).ok()
}

/// The mount point as the kernel's table names it. A mount whose daemon is gone can't be looked at,
/// but its parent directory can.
pub fn mount_point(dir: &Path) -> PathBuf {
    if let Ok(resolved) = fs::canonicalize(dir) {
        return resolved;
    }
    let absolute = path::absolute(dir).unwrap_or_else(|_| dir.to_owned());
    match (
        absolute.parent().map(fs::canonicalize),
        absolute.file_name(),
    ) {
        (Some(Ok(parent)), Some(name)) => parent.join(name),
        _ => absolute,
    }
}

fn text(report: &UmountReport) -> String {
    let state = match (report.daemon_was_gone, report.released) {
        (true, _) => "its daemon was gone, so the next mount recovers the pool",
        (false, true) => "the pool is closed",
        (false, false) => "its daemon ends with the last open file",
    };
    format!("unmounted {} from {}: {state}", report.pool, report.dir)
}
