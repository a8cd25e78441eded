//! Locks that say "a mount serves this pool", held from before the pool is attached until after it
//! was left. The kernel's unmount returns before the daemon has let go of the pool; a program that
//! has to know (`pmfs umount`, a tool that wants the pool to itself) waits for these locks.
//!
//! A mount takes two, because there may be several mounts of a pool:
//! - a shared `flock(2)` on the pool file itself: any mount at all. The lock falls when its holder
//!   ends in any way, needs no file of its own, reaches across containers, and is of another kind
//!   than the engine's byte locks, so the two don't meet;
//! - a locked byte far behind the engine's, whose number is the mount's name, drawn at random: this
//!   mount. A mount tells its name on request ([`name_of`]).

use std::fs::{self, File};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use pmem::slots::{ByteLock, Probe, Prober};
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use rustix::rand::{GetRandomFlags, getrandom};

use crate::{MountError, mounts, served};

/// A mount that was just unmounted lets go of its pool within this time, or something is wrong.
const ENDING: Duration = Duration::from_secs(10);

const POLL: Duration = Duration::from_millis(2);

/// `_IO('P', 0xf4)`: a mount's name.
pub(crate) const REQUEST: u32 = (b'P' as u32) << 8 | 0xf4;

/// The first of the names' bytes; the engine's, from 2^62 on, are not so many.
const BYTE_NAMES: u64 = 1 << 62 | 1 << 40;

/// Names are what an ioctl can answer.
const NAME_MASK: u32 = 0x3fff_ffff;

/// Held: a mount serves the pool, and it is this process.
#[derive(Debug)]
pub struct Presence {
    name: u32,
    _name: ByteLock,
    /// Locked.
    file: File,
}

impl Presence {
    /// Takes the locks, beside other mounts.
    ///
    /// # Errors
    /// [`MountError::Served`] if another process keeps mounts away; the pool can't be opened or
    /// locked.
    pub fn take(pool: &Path) -> Result<Presence, MountError> {
        let file = open(pool)?;
        let deadline = Instant::now() + ENDING;
        // Another process may just be probing the lock.
        while !try_lock(&file, FlockOperation::NonBlockingLockShared, pool)? {
            if Instant::now() > deadline {
                return Err(MountError::Served {
                    pool: pool.to_owned(),
                });
            }
            thread::sleep(POLL);
        }
        let mut bytes = [0; 4];
        let drawn = getrandom(&mut bytes, GetRandomFlags::empty());
        drawn.map_err(|errno| failed("naming a mount of", pool, errno.into()))?;
        let name = u32::from_ne_bytes(bytes) & NAME_MASK;
        let locked = ByteLock::try_shared(pool, BYTE_NAMES + u64::from(name));
        let locked = locked.map_err(|error| failed("locking", pool, io::Error::other(error)))?;
        Ok(Presence {
            name,
            _name: locked.ok_or_else(|| MountError::Served {
                pool: pool.to_owned(),
            })?,
            file,
        })
    }

    /// By which a mount is told from others of the same pool.
    #[must_use]
    pub fn name(&self) -> u32 {
        self.name
    }

    pub(crate) fn file(&self) -> io::Result<File> {
        self.file.try_clone()
    }
}

/// The name of the mount whose root is open as `root`.
///
/// # Errors
/// The mount is gone, or too old to have one.
pub fn name_of(root: &File) -> io::Result<u32> {
    let name = pmem::request::request(root.as_fd(), REQUEST)?;
    u32::try_from(name).map_err(io::Error::other)
}

/// Waits until the mount of that name has let go of the pool.
///
/// # Errors
/// [`MountError::StillServing`] after `patience`, or the pool can't be opened.
pub fn wait_for(pool: &Path, name: u32, patience: Duration) -> Result<(), MountError> {
    let wrong = |error| failed("locking", pool, io::Error::other(error));
    let prober = Prober::open(pool).map_err(wrong)?;
    let deadline = Instant::now() + patience;
    while prober.probe(BYTE_NAMES + u64::from(name)).map_err(wrong)? != Probe::Free {
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

/// Waits for a mount that is just ending, as `umount(8)` leaves it: taken out of the table, its
/// daemon about to close the pool. Returns at once if the pool is mounted or in no use; the next
/// open of the pool reports its errors.
pub fn wait_if_ending(pool: &Path) {
    let Ok(pool) = fs::canonicalize(pool) else {
        return;
    };
    if !pool.is_file() || wait_for_end(&pool, Duration::ZERO).is_ok() {
        return;
    }
    // A mount of that name is not asked: its daemon may stand still.
    let is_named = |mounts: Vec<mounts::PoolMount>| mounts.iter().any(|at| at.pool == pool);
    if mounts::pool_mounts().is_ok_and(is_named) {
        return;
    }
    if served::mounts_of(&pool).is_ok_and(|mounts| mounts.is_empty()) {
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
    while !try_lock(&file, FlockOperation::NonBlockingLockExclusive, pool)? {
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

/// A process that serves the pool, if there is one and it can be seen from here.
#[must_use]
pub fn holder(pool: &Path) -> Option<u32> {
    let file = fs::metadata(pool).ok()?;
    let (major, minor) = (rustix::fs::major(file.dev()), rustix::fs::minor(file.dev()));
    let name = format!("{major:02x}:{minor:02x}:{}", file.ino());
    let table = fs::read_to_string("/proc/locks").ok()?;
    table.lines().find_map(|line| holder_in(line, &name))
}

/// `1: FLOCK  ADVISORY  READ 717 00:16:1044 0 EOF`, proc_locks(5).
fn holder_in(line: &str, name: &str) -> Option<u32> {
    let fields: Vec<&str> = line.split_whitespace().collect();
    match fields[..] {
        [_, "FLOCK", _, "READ", pid, file, ..] if file == name => {
            pid.parse().ok().filter(|pid| *pid > 0)
        }
        _ => None,
    }
}

fn open(pool: &Path) -> Result<File, MountError> {
    File::open(pool).map_err(|source| failed("opening", pool, source))
}

fn failed(what: &'static str, pool: &Path, source: io::Error) -> MountError {
    MountError::Io {
        what,
        path: pool.to_owned(),
        source,
    }
}

fn try_lock(file: &File, how: FlockOperation, pool: &Path) -> Result<bool, MountError> {
    match flock(file, how) {
        Ok(()) => Ok(true),
        Err(Errno::WOULDBLOCK | Errno::INTR) => Ok(false),
        Err(errno) => Err(failed("locking", pool, errno.into())),
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

    /// Goal: a wait for one of two mounts to end does not wait for the other.
    #[test]
    fn each_has_a_name() {
        let pool = tempfile::NamedTempFile::new().unwrap();
        let one = Presence::take(pool.path()).unwrap();
        let other = Presence::take(pool.path()).unwrap();
        let names = [one.name(), other.name()];
        let short = Duration::from_millis(20);
        for name in names {
            assert!(wait_for(pool.path(), name, short).is_err());
        }
        drop(one);
        wait_for(pool.path(), names[0], Duration::from_secs(10)).unwrap();
        assert!(wait_for(pool.path(), names[1], short).is_err());
        assert!(wait_for_end(pool.path(), short).is_err());
        drop(other);
        wait_for(pool.path(), names[1], Duration::from_secs(10)).unwrap();
        wait_for_end(pool.path(), short).unwrap();
    }
}
