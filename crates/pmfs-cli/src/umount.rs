//! `pmfs umount`: takes the mount away and waits until its daemon has closed the pool.

use std::fs::{self, File};
use std::path::{self, Path, PathBuf};
use std::process::ExitCode;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use pmfs_fuse::mounts::PoolMount;
use pmfs_fuse::{MountError, mounts, presence, unmount};
use rustix::io::Errno;
use serde::Serialize;

use crate::Outcome;
use crate::cli::Umount;
use crate::report;

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
    let mount = mounts::pool_mount_at(&dir)?.ok_or_else(|| MountError::NotMounted {
        path: arguments.dir.clone(),
    })?;
    let gone = is_gone(&dir);
    let daemon = Daemon::of(&mount, gone);
    let gone = gone || daemon.wait(Duration::ZERO).is_ok();
    unmount::unmount(&dir, arguments.lazy)?;
    let released = if arguments.lazy && !gone {
        // It may be in use for as long as it likes.
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
        pool: mount.pool.display().to_string(),
        dir: dir.display().to_string(),
        released,
        daemon_was_gone: gone,
    };
    if !arguments.quiet {
        report::print(arguments.json, &report, text)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Who serves a mount.
struct Daemon {
    pool: PathBuf,
    /// What it calls the mount. `None`: it did not say.
    name: Option<u32>,
    /// The pool is mounted elsewhere, too, so "no mount at all" will not come.
    others: bool,
}

impl Daemon {
    /// Asks it, unless it is gone.
    fn of(mount: &PoolMount, gone: bool) -> Daemon {
        let all = mounts::pool_mounts().unwrap_or_default();
        let other = |at: &PoolMount| at.pool == mount.pool && at.device != mount.device;
        let dir = mount.dir.clone();
        let ask = move || presence::name_of(&File::open(dir)?);
        Daemon {
            pool: mount.pool.clone(),
            name: (!gone).then(|| answer(ask)?.ok()).flatten(),
            others: all.iter().any(other),
        }
    }

    /// Waits until it has let go of the pool.
    fn wait(&self, patience: Duration) -> Result<(), MountError> {
        match self.name {
            Some(name) => presence::wait_for(&self.pool, name, patience),
            None if self.others => Ok(()),
            None => presence::wait_for_end(&self.pool, patience),
        }
    }
}

/// Whether nobody serves the mount. The kernel asks the daemon each time for what statfs tells; of a killed one
/// that it is still taking leave of, it answers when that is done. A daemon that does not answer is there.
fn is_gone(dir: &Path) -> bool {
    let dir = dir.to_owned();
    let errno = answer(move || rustix::fs::statfs(&dir).err()).flatten();
    matches!(errno, Some(Errno::NOTCONN | Errno::CONNABORTED))
}

/// What a daemon answers, if it does.
fn answer<T: Send + 'static>(ask: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    let (answer, answered) = mpsc::channel();
    thread::spawn(move || answer.send(ask()));
    answered.recv_timeout(PATIENCE_FOR_ANSWER).ok()
}

/// As the kernel's table has it. A mount whose daemon is gone can't be looked at, but its parent
/// directory can.
fn mount_point(dir: &Path) -> PathBuf {
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
