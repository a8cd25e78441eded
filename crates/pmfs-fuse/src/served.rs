//! The pool that a mount serves. The kernel's table has the pool's name at the time of the mount;
//! by now it may have another name, and another pool that one. The daemon is therefore asked for
//! its file, and the file's present name.

use std::fs::{self, File};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use pmem::Identity;
use rustix::fs::{major, minor};

use crate::MountError;
use crate::mounts::{self, PoolMount};

/// The size of the answer, bytes.
const ANSWER_BYTES: usize = 4096 + 24;

/// `_IOR('P', 0xf7, ...)`.
pub(crate) const REQUEST: u32 = 2 << 30 | (ANSWER_BYTES as u32) << 16 | (b'P' as u32) << 8 | 0xf7;

/// For a daemon to answer; one that is stopped doesn't.
const PATIENCE: Duration = Duration::from_secs(2);

/// The facts that a daemon tells of its pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Served {
    /// The pool's file.
    pub file: Identity,
    /// The daemon, by its own number.
    pub pid: u32,
    /// The file's present name; `None` if it has none any more, or none here.
    pub pool: Option<PathBuf>,
}

impl Served {
    /// The answer of this process, which has the pool.
    pub(crate) fn answer(file: Identity, named: Option<&Path>) -> Vec<u8> {
        let mut answer = Vec::with_capacity(ANSWER_BYTES);
        answer.extend(file.dev.to_ne_bytes());
        answer.extend(file.ino.to_ne_bytes());
        answer.extend(u64::from(std::process::id()).to_ne_bytes());
        let name = named.map_or(&[][..], |path| path.as_os_str().as_bytes());
        answer.extend(&name[..name.len().min(ANSWER_BYTES - answer.len() - 1)]);
        answer
    }

    /// The rest of the room is zeros, which no name has.
    fn read(answer: &[u8]) -> Option<Served> {
        let number = |at: usize| Some(u64::from_ne_bytes(answer.get(at..at + 8)?.try_into().ok()?));
        let file = Identity {
            dev: number(0)?,
            ino: number(8)?,
        };
        let name = answer.get(24..)?.split(|byte| *byte == 0).next()?;
        let pool = PathBuf::from(std::ffi::OsString::from_vec(name.to_vec()));
        Some(Served {
            file,
            pid: u32::try_from(number(16)?).ok()?,
            pool: (identity_of(&pool) == Some(file)).then_some(pool),
        })
    }
}

/// Returns the identity of the file at `pool`, the same for each of its names.
#[must_use]
pub fn identity_of(pool: &Path) -> Option<Identity> {
    fs::metadata(pool).ok().map(|file| Identity::of(&file))
}

impl PoolMount {
    /// Asks the daemon. `None`: it does not answer, or may not be asked.
    #[must_use]
    pub fn served(&self) -> Option<Served> {
        let mount = self.clone();
        let (answer, answered) = mpsc::channel();
        thread::spawn(move || answer.send(mount.ask()));
        answered.recv_timeout(PATIENCE).ok()?
    }

    fn ask(&self) -> Option<Served> {
        let root = File::open(&self.dir).ok()?;
        // Another file system may be mounted above.
        let device = root.metadata().ok()?.dev();
        if format!("{}:{}", major(device), minor(device)) != self.device {
            return None;
        }
        let mut answer = vec![0; ANSWER_BYTES];
        pmem::request::request_for_bytes(root.as_fd(), REQUEST, &mut answer).ok()?;
        Served::read(&answer)
    }

    /// Returns whether this pool is mounted there. The name counts if the daemon does not say.
    #[must_use]
    pub fn serves(&self, pool: &Path) -> bool {
        match (self.served(), identity_of(pool)) {
            (Some(served), Some(file)) => served.file == file,
            _ => self.pool == pool,
        }
    }

    /// The present name of its pool, as far as it is known.
    #[must_use]
    pub fn pool_now(&self) -> PathBuf {
        let now = self.served().and_then(|served| served.pool);
        now.unwrap_or_else(|| self.pool.clone())
    }
}

/// The mounts of a pool, oldest first.
///
/// # Errors
/// If the kernel's table can't be read.
pub fn mounts_of(pool: &Path) -> Result<Vec<PoolMount>, MountError> {
    let mut all = mounts::pool_mounts()?;
    all.retain(|mount| mount.serves(pool));
    Ok(all)
}

/// The name of an open file, as the kernel has it.
pub(crate) fn name_of_open(file: &File) -> io::Result<PathBuf> {
    use std::os::fd::AsRawFd;
    fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_understood() {
        let pool = tempfile::NamedTempFile::new().unwrap();
        let file = identity_of(pool.path()).unwrap();
        let read = |answer: &[u8]| {
            let mut room = vec![0; ANSWER_BYTES];
            room[..answer.len()].copy_from_slice(answer);
            Served::read(&room).unwrap()
        };
        let served = read(&Served::answer(file, Some(pool.path())));
        assert_eq!((served.file, served.pid), (file, std::process::id()));
        assert_eq!(served.pool.as_deref(), Some(pool.path()));
        // A pool that has no name any more, or one that another file has.
        assert_eq!(read(&Served::answer(file, None)).pool, None);
        assert_eq!(
            read(&Served::answer(file, Some(Path::new("/proc/version")))).pool,
            None
        );
        let long = PathBuf::from("/x".repeat(5000));
        assert!(Served::answer(file, Some(&long)).len() < ANSWER_BYTES);
        assert_eq!(Served::read(&[0; 20]), None);
    }
}
