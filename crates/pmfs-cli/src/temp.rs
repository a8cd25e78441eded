//! `pmfs run --temp`: a pool that is made for a run, and goes with its last program.
//!
//! The daemon of the run's mount, which outlives every program of it, deletes the pool; without a
//! daemon this process does. If that was killed, the next such run deletes the pool, whose name has
//! the process that made it.

use std::env;
use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use pmfs_admin::{Inspector, MkfsOptions, PoolState};
use pmfs_fuse::{mounts, unmount};

use crate::cli::Run;
use crate::failure::Failure;
use crate::umount;

const PREFIX: &str = "pmfs-temp-";

/// A directory in memory.
const MEMORY: &str = "/dev/shm";

/// A pool, and a directory for it.
#[derive(Debug, Default)]
pub struct Temp {
    pub pool: PathBuf,
    pub dir: PathBuf,
    /// The program is told of the directory, as one for temporary files.
    pub is_told: bool,
    /// Files and empty directories, in the order in which they are to go.
    goes: Vec<PathBuf>,
}

impl Temp {
    /// Makes the pool that the arguments ask for.
    pub fn make(arguments: &Run) -> Result<Option<Temp>, Failure> {
        let Some(size) = arguments.temp else {
            return Ok(None);
        };
        let name = own_name()?;
        let mut temp = Temp::default();
        temp.make_pool(arguments, &name, size.0)?;
        temp.make_dir(arguments.at.as_deref(), &name)?;
        Ok(Some(temp))
    }

    fn make_pool(&mut self, arguments: &Run, name: &str, size: u64) -> Result<(), Failure> {
        self.pool = match &arguments.keep {
            Some(pool) => std::path::absolute(pool)?,
            None => {
                let on = arguments.on.as_deref().unwrap_or(Path::new(MEMORY));
                let on = fs::canonicalize(on).map_err(|error| failed(on, &error))?;
                clear_away(&on);
                // No other user may read it, or have made it before.
                let around = on.join(name);
                let made = DirBuilder::new().mode(0o700).create(&around);
                made.map_err(|error| failed(&around, &error))?;
                self.goes.push(around.clone());
                around.join("pool")
            }
        };
        let options = MkfsOptions {
            size: Some(size),
            sparse: true,
            ..MkfsOptions::default()
        };
        pmfs_admin::mkfs(&self.pool, &options)
            .map_err(|error| Failure::engine(&self.pool, &error))?;
        if arguments.keep.is_none() {
            self.goes.insert(0, self.pool.clone());
        }
        Ok(())
    }

    /// Makes the directory, and those above, where they are missing.
    fn make_dir(&mut self, at: Option<&Path>, name: &str) -> Result<(), Failure> {
        let dir = match at {
            Some(at) => std::path::absolute(at)?,
            None => {
                let all = env::temp_dir();
                clear_away(&all);
                self.is_told = true;
                all.join(name)
            }
        };
        let missing: Vec<&Path> = dir.ancestors().take_while(|dir| !dir.exists()).collect();
        for dir in missing.iter().rev() {
            fs::create_dir(dir).map_err(|error| failed(dir, &error))?;
        }
        self.goes.extend(missing.into_iter().map(Path::to_owned));
        self.dir = dir;
        Ok(())
    }

    /// Leaves deleting it to another process from now on.
    pub fn hand_over(&mut self) {
        self.goes.clear();
    }

    pub fn goes(&self) -> &[PathBuf] {
        &self.goes
    }
}

impl Drop for Temp {
    fn drop(&mut self) {
        remove(&self.goes);
    }
}

/// Removes files, and directories that are empty. A path that can't be removed stays.
pub fn remove(paths: &[PathBuf]) {
    for path in paths {
        let removed = match fs::symlink_metadata(path) {
            Ok(there) if there.is_dir() => fs::remove_dir(path),
            Ok(_) => fs::remove_file(path),
            Err(_) => continue,
        };
        if let Err(error) = removed {
            log::warn!("{} stays: {error}", path.display());
        }
    }
}

fn failed(path: &Path, error: &io::Error) -> Failure {
    Failure::new(
        format!("{}: {error}", path.display()),
        "name another directory (--on, --at), or check the permissions of this one",
    )
}

/// A name of this process, and of no other that has its number before or after.
fn own_name() -> Result<String, Failure> {
    let began = began(std::process::id())
        .ok_or_else(|| Failure::new("/proc/self/stat can't be read".to_owned(), "mount /proc"))?;
    Ok(format!("{PREFIX}{}-{began}", std::process::id()))
}

/// When a process began, in the kernel's ticks; `None`: it is gone.
fn began(pid: u32) -> Option<u64> {
    /// A field of proc_pid_stat(5), counted from after the name.
    const STARTTIME: usize = 19;
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, behind) = stat.rsplit_once(") ")?;
    behind.split(' ').nth(STARTTIME)?.parse().ok()
}

/// Removes what runs of this user have left there that were killed.
fn clear_away(on: &Path) {
    for entry in fs::read_dir(on).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let path = entry.path();
        // The kernel says of a mount whose daemon is gone that it can't be looked at.
        if is_left(&name.to_string_lossy()) && (is_own(&path) || umount::is_gone(&path)) {
            clear_away_one(&path);
        }
    }
}

fn is_own(path: &Path) -> bool {
    let there = fs::symlink_metadata(path);
    there.is_ok_and(|dir| dir.is_dir() && dir.uid() == rustix::process::geteuid().as_raw())
}

/// Returns whether it is the name of one whose process is gone.
fn is_left(name: &str) -> bool {
    let numbers = name
        .strip_prefix(PREFIX)
        .and_then(|name| name.split_once('-'));
    let Some((Ok(pid), Ok(since))) =
        numbers.map(|(pid, since)| (pid.parse(), since.parse::<u64>()))
    else {
        return false;
    };
    began(pid) != Some(since)
}

fn clear_away_one(dir: &Path) {
    if umount::is_gone(dir) {
        let _ = unmount::unmount(dir, true);
    }
    let is_mounted = mounts::pool_mount_at(dir).is_ok_and(|there| there.is_some());
    let pool = dir.join("pool");
    let in_use = || Inspector::open(&pool).is_ok_and(|look| look.state() == PoolState::InUse);
    // The run's process was killed, and its programs go on.
    if is_mounted || pool.exists() && in_use() {
        return;
    }
    remove(&[pool, dir.to_owned()]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_tell_who_made_them() {
        let own = own_name().unwrap();
        assert!(!is_left(&own));
        let pid = std::process::id();
        assert!(is_left(&format!("{PREFIX}{pid}-1")));
        // The highest number is no process's.
        assert!(is_left(&format!("{PREFIX}4194304-1")));
        for other in [
            "",
            "pmfs-temp-",
            "pmfs-temp-1",
            "pmfs-temp-x-1",
            "pmfs-temp-1-x",
            "other",
        ] {
            assert!(!is_left(other), "{other}");
        }
    }

    #[test]
    fn only_what_was_left_is_cleared_away() {
        let place = tempfile::tempdir().unwrap();
        let dir = |name: &str| {
            let dir = place.path().join(name);
            fs::create_dir(&dir).unwrap();
            fs::write(dir.join("pool"), "").unwrap();
            dir
        };
        let left = dir(&format!("{PREFIX}4194304-1"));
        let own = dir(&own_name().unwrap());
        let other = dir("other");
        let strange = dir(&format!("{PREFIX}4194304-2"));
        fs::write(strange.join("file"), "").unwrap();
        clear_away(place.path());
        assert!(!left.exists() && own.join("pool").exists() && other.join("pool").exists());
        assert!(strange.join("file").exists(), "it is not a pool of a run");
    }
}
