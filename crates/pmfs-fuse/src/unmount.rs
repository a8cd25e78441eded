//! Ending a mount from outside: `umount2(2)`, or fusermount3 where that needs to be root.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::mount::{UnmountFlags, unmount as umount2};

use crate::MountError;

/// How many holders an error names.
const HOLDERS_MAX: usize = 5;

/// How long a mount that nobody is seen to hold is asked again. Who reads a link below `/proc` that
/// leads into a mount, as `lsof` does, holds the mount for that moment.
const PASSERS_BY: Duration = Duration::from_millis(500);

/// Takes the mount away. `lazy`: at once for names, and for open files when the last is closed.
///
/// # Errors
/// [`MountError::Busy`], [`MountError::Unmount`].
pub fn unmount(dir: &Path, lazy: bool) -> Result<(), MountError> {
    let deadline = Instant::now() + PASSERS_BY;
    while !unmount_now(dir, lazy)? {
        let holders = holders(dir);
        if !holders.is_empty() || Instant::now() > deadline {
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

fn busy(dir: &Path, holders: &[String]) -> MountError {
    let holders = match holders.len() {
        0 => ": files of it are open, or a process has its working directory there".to_owned(),
        _ => format!(": in use by {}", holders.join(", ")),
    };
    MountError::Busy {
        path: dir.to_owned(),
        holders,
    }
}

/// Processes with an open file, a working directory, a root or a program below `dir`, as
/// `name[pid]`, as far as this user may look.
fn holders(dir: &Path) -> Vec<String> {
    let Ok(processes) = fs::read_dir("/proc") else {
        return Vec::new();
    };
    let mut found = Vec::new();
    for process in processes.flatten() {
        let name = process.file_name();
        let Some(pid) = name.to_str().and_then(|name| name.parse::<u32>().ok()) else {
            continue;
        };
        if !holds(&process.path(), dir) {
            continue;
        }
        if found.len() == HOLDERS_MAX {
            found.push("...".to_owned());
            break;
        }
        let command = fs::read_to_string(process.path().join("comm")).unwrap_or_default();
        found.push(format!("{}[{pid}]", command.trim()));
    }
    found
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
