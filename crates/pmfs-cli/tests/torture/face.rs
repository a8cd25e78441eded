//! The ways into a pool. Paths are relative to its root.

mod c;
mod library;
mod mount;

use std::collections::BTreeMap;
use std::path::Path;

use pmfs::{LockClass, LockKind, RenameFlags};
use rustix::io::Errno;

use crate::model::Kind;
use crate::worker::Orders;
pub use c::C;
pub use library::Library;
pub use mount::Mount;

pub type Done<T> = Result<T, Errno>;

/// The facts that are asked of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stat {
    pub ino: u64,
    /// Type and permission bits.
    pub mode: u32,
    pub links: u64,
    pub size: u64,
}

/// A file held open, by a number that the face gave.
pub type Handle = u64;

/// Bytes of a file: the first one, and how many; 0: to the end.
pub type Range = (u64, u64);

/// The way in which a worker reaches the pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    Library,
    /// The library for C, in a program of its own at the other end of stdin.
    C,
    /// System calls of a program of its own that `pmfs run` has started, beside one of the mounts.
    Run(usize),
    /// One of the mounts.
    Mount(usize),
}

impl Way {
    /// Returns which mount it needs.
    pub fn mount(self) -> Option<usize> {
        match self {
            Way::Run(mount) | Way::Mount(mount) => Some(mount),
            Way::Library | Way::C => None,
        }
    }

    pub fn name(self) -> &'static str {
        match self {
            Way::Library => "library",
            Way::C => "C library",
            Way::Run(_) => "pmfs run",
            Way::Mount(_) => "below a mount",
        }
    }
}

/// Returns where a mount is.
pub fn mount_dir(dir: &Path, mount: usize) -> std::path::PathBuf {
    dir.join(format!("m{mount}"))
}

/// Makes that way into the pool in `dir`.
pub fn attach(way: Way, dir: &Path) -> Box<dyn Face> {
    match way {
        Way::Library => Box::new(Library::attach(&Orders::pool(dir)).expect("attach")),
        Way::C => Box::new(C::attach(&Orders::pool(dir))),
        // The directory stands for the pool.
        Way::Run(mount) => Box::new(C::attach(&mount_dir(dir, mount))),
        Way::Mount(mount) => Box::new(Mount::attach(dir, mount)),
    }
}

/// One process's way into a pool. Calls are those of POSIX.
pub trait Face {
    fn create(&self, path: &str, mode: u32) -> Done<()>;
    fn mkdir(&self, path: &str, mode: u32) -> Done<()>;
    fn symlink(&self, target: &str, path: &str) -> Done<()>;
    fn link(&self, from: &str, to: &str) -> Done<()>;
    fn unlink(&self, path: &str) -> Done<()>;
    fn rmdir(&self, path: &str) -> Done<()>;
    fn rename(&self, from: &str, to: &str, flags: RenameFlags) -> Done<()>;
    /// Returns what a rename may give when somebody else has moved the source.
    fn moved_before(&self) -> &'static [Errno] {
        &[Errno::NOENT]
    }
    fn truncate(&self, path: &str, len: u64) -> Done<()>;
    fn chmod(&self, path: &str, mode: u32) -> Done<()>;
    fn punch(&self, path: &str, at: u64, len: u64) -> Done<()>;
    fn setxattr(&self, path: &str, name: &str, value: &[u8]) -> Done<()>;
    fn removexattr(&self, path: &str, name: &str) -> Done<()>;
    fn xattrs(&self, path: &str) -> Done<BTreeMap<String, Vec<u8>>>;
    fn stat(&self, path: &str) -> Done<Stat>;
    fn kind(&self, path: &str, stat: &Stat) -> Done<Kind>;
    /// Names without "." and "..".
    fn list(&self, path: &str) -> Done<Vec<String>>;
    /// Has to write all.
    fn write(&self, path: &str, at: u64, bytes: &[u8]) -> Done<()>;
    /// Has to write all, at the end; where that ended, if the face can tell.
    fn append(&self, path: &str, bytes: &[u8]) -> Done<Option<u64>>;
    fn read(&self, path: &str, at: u64, len: usize) -> Done<Vec<u8>>;
    fn open(&self, path: &str) -> Done<Handle>;
    fn close(&self, handle: Handle) -> Done<()>;
    fn write_open(&self, handle: Handle, at: u64, bytes: &[u8]) -> Done<()>;
    fn read_open(&self, handle: Handle, at: u64, len: usize) -> Done<Vec<u8>>;
    fn dup(&self, handle: Handle) -> Done<Handle>;
    fn seek(&self, handle: Handle, to: u64) -> Done<()>;
    /// Has to write all, at the offset.
    fn write_next(&self, handle: Handle, bytes: &[u8]) -> Done<()>;
    fn read_next(&self, handle: Handle, len: usize) -> Done<Vec<u8>>;
    /// Locks a range; waits for who is in the way, or does not: [`Errno::AGAIN`].
    fn lock(
        &self,
        handle: Handle,
        lock: LockClass,
        kind: LockKind,
        range: Range,
        waits: bool,
    ) -> Done<()>;
    fn unlock(&self, handle: Handle, lock: LockClass, range: Range) -> Done<()>;
    /// Empties the file, forks, and both write these bytes so often, each time at the
    /// offset that they share. Nothing where the face can't.
    fn write_with_child(&self, _path: &str, _bytes: &[u8], _times: u64) -> Done<()> {
        Ok(())
    }
    /// Leaves the pool in good order.
    fn leave(&self) -> Done<()>;
}
