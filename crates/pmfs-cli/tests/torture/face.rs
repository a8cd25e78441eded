//! The ways into a pool. Paths are relative to its root.

mod library;

use std::collections::BTreeMap;

use pmfs::RenameFlags;
use rustix::io::Errno;

use crate::model::Kind;
pub use library::Library;

pub type Done<T> = Result<T, Errno>;

/// What is asked of a file.
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

/// One process's way into a pool. Calls are those of POSIX.
pub trait Face {
    fn create(&self, path: &str, mode: u32) -> Done<()>;
    fn mkdir(&self, path: &str, mode: u32) -> Done<()>;
    fn symlink(&self, target: &str, path: &str) -> Done<()>;
    fn link(&self, from: &str, to: &str) -> Done<()>;
    fn unlink(&self, path: &str) -> Done<()>;
    fn rmdir(&self, path: &str) -> Done<()>;
    fn rename(&self, from: &str, to: &str, flags: RenameFlags) -> Done<()>;
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
    /// Leaves the pool in good order.
    fn leave(&self) -> Done<()>;
}
