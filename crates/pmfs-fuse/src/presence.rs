//! A lock that says "a mount serves this pool", held from before the pool is attached until after
//! it is marked clean. The kernel's unmount returns before the daemon has let go of the pool; who
//! has to know (`pmfs umount`, the next `pmfs mount`) waits for this lock.
//!
//! It is a `flock(2)` on the pool file itself: it falls when its holder ends, however that happens,
//! needs no file of its own, reaches across containers, and is of another kind than the engine's
//! byte locks, so the two don't meet.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use crate::{MountError, mounts};

/// A mount that was just unmounted lets go of its pool within this time, or something is wrong.
const ENDING: Duration = Duration::from_secs(10);

const POLL: Duration = Duration::from_millis(2);

/// Held: a mount serves the pool, and it is this process.
#[derive(Debug)]
pub struct Presence {
    _file: File,
}

impl Presence {
    /// Takes the lock; if a mount is just ending, waits for its end.
    ///
    /// # Errors
    /// [`MountError::AlreadyMounted`], [`MountError::Served`], or the pool can't be opened.
    pub fn take(pool: &Path) -> Result<Presence, MountError> {
        let file = open(pool)?;
        let deadline = Instant::now() + ENDING;
        while !try_lock(&file, FlockOperation::NonBlockingLockExclusive, pool)? {
            if let Some(mount) = mounts::pool_mounts()?
                .into_iter()
                .find(|mount| mount.pool == pool)
            {
                return Err(MountError::AlreadyMounted {
                    pool: mount.pool,
                    dir: mount.dir,
                });
            }
            if Instant::now() > deadline {
                return Err(MountError::Served {
                    pool: pool.to_owned(),
                });
            }
            thread::sleep(POLL);
        }
        Ok(Presence { _file: file })
    }
}

/// Waits for a mount that is just ending, as `umount(8)` leaves it: taken out of the table, its daemon about to
/// close the pool. Returns at once if the pool is mounted or nobody has it; what is wrong with it, if anything,
/// who opens it next will say.
pub fn wait_if_ending(pool: &Path) {
    let Ok(pool) = fs::canonicalize(pool) else {
        return;
    };
    let is_mounted = |mounts: Vec<mounts::PoolMount>| mounts.iter().any(|at| at.pool == pool);
    if pool.is_file() && !mounts::pool_mounts().is_ok_and(is_mounted) {
        let _ = wait_for_end(&pool, ENDING);
    }
}

/// Waits until no mount serves the pool.
///
/// # Errors
/// [`MountError::StillServing`] after `patience`, or the pool can't be opened.
pub fn wait_for_end(pool: &Path, patience: Duration) -> Result<(), MountError> {
    let file = open(pool)?;
    let deadline = Instant::now() + patience;
    while !try_lock(&file, FlockOperation::NonBlockingLockShared, pool)? {
        if Instant::now() > deadline {
            return Err(MountError::StillServing {
                pool: pool.to_owned(),
                seconds: patience.as_secs(),
            });
        }
        thread::sleep(POLL);
    }
    Ok(())
}

/// The process that serves the pool, if there is one and it can be seen from here.
#[must_use]
pub fn holder(pool: &Path) -> Option<u32> {
    let file = fs::metadata(pool).ok()?;
    let (major, minor) = (rustix::fs::major(file.dev()), rustix::fs::minor(file.dev()));
    let name = format!("{major:02x}:{minor:02x}:{}", file.ino());
    let table = fs::read_to_string("/proc/locks").ok()?;
    table.lines().find_map(|line| holder_in(line, &name))
}

/// `1: FLOCK  ADVISORY  WRITE 717 00:16:1044 0 EOF`, proc_locks(5).
fn holder_in(line: &str, name: &str) -> Option<u32> {
    let fields: Vec<&str> = line.split_whitespace().collect();
    match fields[..] {
        [_, "FLOCK", _, "WRITE", pid, file, ..] if file == name => {
            pid.parse().ok().filter(|pid| *pid > 0)
        }
        _ => None,
    }
}

fn open(pool: &Path) -> Result<File, MountError> {
    File::open(pool).map_err(|source| MountError::Io {
        what: "opening",
        path: pool.to_owned(),
        source,
    })
}

fn try_lock(file: &File, how: FlockOperation, pool: &Path) -> Result<bool, MountError> {
    match flock(file, how) {
        Ok(()) => Ok(true),
        Err(Errno::WOULDBLOCK | Errno::INTR) => Ok(false),
        Err(errno) => Err(MountError::Io {
            what: "locking",
            path: pool.to_owned(),
            source: io::Error::from(errno),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waiting_lasts_as_long_as_the_holder() {
        let pool = tempfile::NamedTempFile::new().unwrap();
        assert_eq!(holder(pool.path()), None);
        let held = Presence::take(pool.path()).unwrap();
        assert_eq!(holder(pool.path()), Some(std::process::id()));
        let error = wait_for_end(pool.path(), Duration::from_millis(20)).unwrap_err();
        assert!(matches!(error, MountError::StillServing { .. }), "{error}");
        let waiter = thread::spawn({
            let path = pool.path().to_owned();
            move || wait_for_end(&path, Duration::from_secs(30))
        });
        thread::sleep(Duration::from_millis(20));
        assert!(!waiter.is_finished());
        let ending = thread::spawn({
            let path = pool.path().to_owned();
            move || wait_if_ending(&path)
        });
        thread::sleep(Duration::from_millis(20));
        assert!(!ending.is_finished());
        drop(held);
        waiter.join().unwrap().unwrap();
        ending.join().unwrap();
        wait_if_ending(Path::new("/nowhere"));
        wait_for_end(pool.path(), Duration::ZERO).unwrap();
    }
}
