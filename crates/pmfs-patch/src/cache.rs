//! The cache of images: a file for each library, by its build-id.
//!
//! Images are code that programs will run, so the cache trusts only its owner and root: the
//! directory and the file must belong to one of them and be writable by no one else, no symbolic
//! link is followed inside, and the hashes are checked against the library as it is now, unless
//! neither has changed since ([`verified`](crate::verified)). A file that fails any of that is
//! never used, but made anew, beside it, and renamed over it; so two processes may do it at once.

use std::env;
use std::fs::{DirBuilder, File};
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rustix::fs::{AtFlags, FileType, Mode, OFlags, Stat};

use crate::elf::Library;
use crate::error::PatchError;
use crate::header::PAGE_BYTES;
use crate::patched_text::{PatchedText, is_patched_text_of};
use crate::verified::{self, Seen};

/// Root's images.
const ROOT_DIR: &str = "/var/cache/pmfs/images";
/// Write permission of the group and of others.
const WRITE_OF_OTHERS: u32 = 0o022;
/// Longer than any image: what is longer isn't read.
const IMAGE_BYTES_MAX: i64 = 1 << 30;

/// A directory of images.
#[derive(Clone, Debug)]
pub struct PatchedTexts {
    dir: PathBuf,
    /// The age of a change from which a file counts as verified.
    stable_after: Duration,
}

impl PatchedTexts {
    /// The images in a directory, which is made when it is needed.
    pub fn of(dir: impl Into<PathBuf>) -> Self {
        PatchedTexts {
            dir: dir.into(),
            stable_after: verified::STABLE_AFTER,
        }
    }

    /// The images of this process's user: /var/cache/pmfs/images for root, else
    /// $XDG_CACHE_HOME/pmfs/images or ~/.cache/pmfs/images.
    ///
    /// Fails if the environment names neither.
    pub fn of_user() -> Result<Self, PatchError> {
        let absolute = |name| {
            let path = env::var_os(name).map(PathBuf::from);
            path.filter(|path| path.is_absolute())
        };
        user_dir(is_root(), absolute("XDG_CACHE_HOME"), absolute("HOME"))
            .map(PatchedTexts::of)
            .ok_or(PatchError::NoCacheDirectory)
    }

    /// Returns the path of a library's image, which is made if there is none that may be used.
    ///
    /// Fails if the library can't be patched, or the cache is another user's or can't be written.
    pub fn find_or_make(&self, library: &Path) -> Result<PathBuf, PatchError> {
        let unreadable = |source| PatchError::Read {
            path: library.to_owned(),
            source,
        };
        let mut file = File::open(library).map_err(unreadable)?;
        let seen = Seen {
            path: library,
            status: rustix::fs::fstat(&file).map_err(|error| unreadable(error.into()))?,
        };
        let dir = self.open_dir()?;
        if let Some(name) = self.verified(&dir, &seen) {
            return Ok(self.dir.join(name));
        }
        let mut bytes = Vec::with_capacity(seen.status.st_size as usize);
        file.read_to_end(&mut bytes).map_err(unreadable)?;
        let parsed = Library::parse(&bytes)?;
        let name = file_name(parsed.build_id);
        match self.read_trusted(&dir, &name) {
            Some((found, image)) if is_patched_text_of(&found, &parsed) => {
                self.note(&dir, &seen, &name, &image);
            }
            _ => self.write(&dir, &name, &PatchedText::make(&bytes)?.bytes, Sync::Yes)?,
        }
        Ok(self.dir.join(name))
    }

    /// The name of the library's image, if both are as they were when they were verified.
    fn verified(&self, dir: &OwnedFd, seen: &Seen<'_>) -> Option<String> {
        let file = open_in(dir, &seen.record_name())?;
        let status = rustix::fs::fstat(&file).ok()?;
        if !nobody_elses(&status) {
            return None;
        }
        let mut record = String::new();
        let mut limited = file.take(verified::RECORD_BYTES_MAX);
        limited.read_to_string(&mut record).ok()?;
        let name = verified::patched_text_name(&record)?;
        let image = rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW).ok()?;
        let holds = may_be_used(&image) && record == seen.record(name, &image);
        holds.then(|| name.to_owned())
    }

    /// Notes that the image is the library's. An image that can't be noted is verified again the
    /// next time.
    fn note(&self, dir: &OwnedFd, seen: &Seen<'_>, name: &str, image: &Stat) {
        let stable = |status| verified::is_stable(status, self.stable_after);
        if stable(&seen.status) && stable(image) {
            let record = seen.record(name, image);
            let _ = self.write(dir, &seen.record_name(), record.as_bytes(), Sync::No);
        }
    }

    /// Opens the directory, makes it if it isn't there, and sees that it is ours.
    fn open_dir(&self) -> Result<OwnedFd, PatchError> {
        let failed = |what| move |source: io::Error| self.failed(what, self.dir.clone(), source);
        let mode = if is_root() { 0o755 } else { 0o700 };
        let mut builder = DirBuilder::new();
        let made = builder.recursive(true).mode(mode).create(&self.dir);
        made.map_err(failed("make"))?;
        let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::RDONLY;
        let dir = rustix::fs::open(&self.dir, flags, Mode::empty());
        let dir = dir.map_err(io::Error::from).map_err(failed("open"))?;
        let status = rustix::fs::fstat(&dir).map_err(io::Error::from);
        let status = status.map_err(failed("look at"))?;
        if !owned_by_us(&status) {
            return Err(PatchError::ForeignCache {
                path: self.dir.clone(),
                owner: status.st_uid,
            });
        }
        if status.st_mode & WRITE_OF_OTHERS != 0 {
            return Err(PatchError::OpenCache {
                path: self.dir.clone(),
            });
        }
        Ok(dir)
    }

    /// Returns the bytes of a file that no other user can have written, and its status before they
    /// were read.
    fn read_trusted(&self, dir: &OwnedFd, name: &str) -> Option<(Vec<u8>, Stat)> {
        let mut file = open_in(dir, name)?;
        let status = rustix::fs::fstat(&file).ok()?;
        if !may_be_used(&status) {
            return None;
        }
        let mut bytes = Vec::with_capacity(status.st_size as usize);
        file.read_to_end(&mut bytes).ok()?;
        Some((bytes, status))
    }

    /// Writes a file under a name of its own, and gives it the right one when it is whole.
    fn write(&self, dir: &OwnedFd, name: &str, bytes: &[u8], sync: Sync) -> Result<(), PatchError> {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let temporary = format!(".{name}.{}.{count}", process::id());
        let failed = |what, name: &str| {
            let path = self.dir.join(name);
            move |source: io::Error| self.failed(what, path, source)
        };
        let flags =
            OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        // A file that a killed process of the same number has left.
        let _ = rustix::fs::unlinkat(dir, &temporary, AtFlags::empty());
        let mode = Mode::from_raw_mode(if is_root() { 0o644 } else { 0o600 });
        let file = rustix::fs::openat(dir, &temporary, flags, mode);
        let file = file.map_err(io::Error::from);
        let mut file = File::from(file.map_err(failed("create", &temporary))?);
        let written = file.write_all(bytes).and_then(|()| match sync {
            Sync::Yes => file.sync_all(),
            Sync::No => Ok(()),
        });
        let written = written.map_err(failed("write", &temporary)).and_then(|()| {
            rustix::fs::renameat(dir, &temporary, dir, name)
                .map_err(io::Error::from)
                .map_err(failed("replace", name))
        });
        if written.is_err() {
            let _ = rustix::fs::unlinkat(dir, &temporary, AtFlags::empty());
        }
        written
    }

    fn failed(&self, what: &'static str, path: PathBuf, source: io::Error) -> PatchError {
        PatchError::Cache { what, path, source }
    }
}

/// The need of a file to be on the disk before it gets its name. A record that is lost or torn does
/// no harm.
enum Sync {
    Yes,
    No,
}

/// Opens a file of the cache to read it.
fn open_in(dir: &OwnedFd, name: &str) -> Option<File> {
    // Non-blocking: a fifo of that name must not hold us up.
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let file = rustix::fs::openat(dir, name, flags, Mode::empty()).ok()?;
    Some(File::from(file))
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

fn user_dir(is_root: bool, cache: Option<PathBuf>, home: Option<PathBuf>) -> Option<PathBuf> {
    if is_root {
        return Some(PathBuf::from(ROOT_DIR));
    }
    let cache = cache.or_else(|| Some(home?.join(".cache")))?;
    Some(cache.join("pmfs/images"))
}

fn file_name(build_id: &[u8]) -> String {
    let hex: String = build_id.iter().map(|byte| format!("{byte:02x}")).collect();
    hex + &verified::ending()
}

fn owned_by_us(status: &Stat) -> bool {
    status.st_uid == 0 || status.st_uid == rustix::process::geteuid().as_raw()
}

fn nobody_elses(status: &Stat) -> bool {
    FileType::from_raw_mode(status.st_mode) == FileType::RegularFile
        && owned_by_us(status)
        && status.st_mode & WRITE_OF_OTHERS == 0
}

fn may_be_used(status: &Stat) -> bool {
    nobody_elses(status)
        && status.st_size <= IMAGE_BYTES_MAX
        && status.st_size % PAGE_BYTES as i64 == 0
}

#[cfg(test)]
#[path = "cache_tests.rs"]
mod tests;
