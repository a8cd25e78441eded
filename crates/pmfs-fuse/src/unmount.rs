//! Ending a mount from outside: `umount2(2)`, or fusermount3 where that needs to be root.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::mount::{UnmountFlags, unmount as umount2};

use crate::MountError;

/// The most holders that an error names.
const HOLDERS_MAX: usize = 5;

/// The time for which unmounting is retried where the mount is busy for a moment only: no holder is
/// seen (`lsof` reads links below `/proc`), or it is pmfs (`pmfs list` asks every mount).
const PASSERS_BY: Duration = Duration::from_secs(2);

/// Takes the mount away. `lazy`: at once for names, and for open files when the last is closed.
///
/// # Errors
/// [`MountError::Busy`], [`MountError::Unmount`].
pub fn unmount(dir: &Path, lazy: bool) -> Result<(), MountError> {
    let deadline = Instant::now() + PASSERS_BY;
    while !unmount_now(dir, lazy)? {
        let holders = holders(dir);
        if holders.iter().any(|holder| !holder.is_ours) || Instant::now() > deadline {
            return Err(busy(dir, &holders));
        }
        thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

/// False if the mount is busy.
fn unmount_now(dir: &Path, lazy: bool) -> Result<bool, MountError> {
    let flags = if lazy {
        UnmountFlags::DETACH
    } else {
        UnmountFlags::empty()
    };
    match umount2(dir, flags) {
        Ok(()) => Ok(true),
        Err(Errno::BUSY) => Ok(false),
        Err(Errno::PERM) => by_helper(dir, lazy),
        Err(errno) => Err(MountError::Unmount {
            path: dir.to_owned(),
            reason: errno.to_string(),
        }),
    }
}

fn by_helper(dir: &Path, lazy: bool) -> Result<bool, MountError> {
    // PATH first, as the mount itself did, then where it stands everywhere.
    let output = ["fusermount3", "/usr/bin/fusermount3"]
        .iter()
        .find_map(|helper| {
            let mut command = Command::new(helper);
            command
                .arg("-u")
                .args(lazy.then_some("-z"))
                .arg("--")
                .arg(dir);
            command.stdin(Stdio::null()).output().ok()
        });
    let output = output.ok_or(MountError::NoHelper)?;
    if output.status.success() {
        return Ok(true);
    }
    let reason = String::from_utf8_lossy(&output.stderr)
        .trim()
        .replace('\n', "; ");
    if reason.contains("busy") {
        return Ok(false);
    }
    Err(MountError::Unmount {
        path: dir.to_owned(),
        reason,
    })
}

fn busy(dir: &Path, holders: &[Holder]) -> MountError {
    let names: Vec<&str> = holders.iter().map(|holder| holder.name.as_str()).collect();
    let holders = match names.len() {
        0 => ": files of it are open, or a process has its working directory there".to_owned(),
        1..=HOLDERS_MAX => format!(": in use by {}", names.join(", ")),
        _ => format!(": in use by {}, ...", names[..HOLDERS_MAX].join(", ")),
    };
    MountError::Busy {
        path: dir.to_owned(),
        holders,
    }
}

/// A process that keeps a mount busy.
struct Holder {
    /// `name[pid]`.
    name: String,
    /// The process has the name of this one: `pmfs`, at any path and of any build.
    is_ours: bool,
}

/// Processes with an open file, a working directory, a root or a program below `dir`, as far as
/// this user may look.
fn holders(dir: &Path) -> Vec<Holder> {
    let Ok(processes) = fs::read_dir("/proc") else {
        return Vec::new();
    };
    let command = |process: &Path| fs::read_to_string(process.join("comm")).unwrap_or_default();
    let ours = command(Path::new("/proc/self"));
    let holder = |process: fs::DirEntry| {
        let pid: u32 = process.file_name().to_str()?.parse().ok()?;
        let path = process.path();
        if !holds(&path, dir) {
            return None;
        }
        let command = command(&path);
        Some(Holder {
            name: format!("{}[{pid}]", command.trim()),
            is_ours: !ours.is_empty() && command == ours,
        })
    };
    processes.flatten().filter_map(holder).collect()
}

fn holds(process: &Path, dir: &Path) -> bool {
    let below = |link: &Path| fs::read_link(link).is_ok_and(|target| target.starts_with(dir));
    if ["cwd", "root", "exe"]
        .iter()
        .any(|link| below(&process.join(link)))
    {
        return true;
    }
    let links = |name: &str| {
        fs::read_dir(process.join(name))
            .into_iter()
            .flatten()
            .flatten()
    };
    links("fd")
        .chain(links("map_files"))
        .any(|entry| below(&entry.path()))
}
