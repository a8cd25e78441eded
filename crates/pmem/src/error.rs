//! The errors of a medium, one variant for each cause.

use std::io;
use std::path::{Path, PathBuf};

use thiserror::Error;

/// The cause for which a pool could not be opened, made or locked.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum Error {
    /// open(2) of the pool failed.
    #[error("can't open {}: check the path and its permissions", path.display())]
    Open {
        /// The pool.
        path: PathBuf,
        /// The kernel's error.
        source: io::Error,
    },
    /// The path is a directory, a block device, a terminal or the like.
    #[error("{} is neither a regular file nor a DAX character device", path.display())]
    NotAFile {
        /// The path that was given as the pool.
        path: PathBuf,
    },
    /// The pool is shorter than the smallest mapping.
    #[error("{} has {len} bytes, at least {min} are needed: is it a pool?", path.display())]
    TooSmall {
        /// The pool.
        path: PathBuf,
        /// Its length, bytes.
        len: u64,
        /// The least length, bytes.
        min: u64,
    },
    /// The medium only takes lengths that are multiples of its page size.
    #[error("{}: a length of {len} bytes is not a multiple of the medium's page size, {page_size} bytes", path.display())]
    Unaligned {
        /// The pool.
        path: PathBuf,
        /// The length asked for, bytes.
        len: u64,
        /// Page size of the medium, bytes.
        page_size: u64,
    },
    /// mmap(2) failed.
    #[error("can't map {len} bytes of {}: check address space limits (ulimit -v) and, on hugetlbfs, free huge pages", path.display())]
    Map {
        /// The pool.
        path: PathBuf,
        /// Length of the mapping, bytes.
        len: u64,
        /// The kernel's error.
        source: io::Error,
    },
    /// A view asks for less than a page of a medium with large pages, or for private copies of such
    /// pages.
    #[error("{}: only shared memory of whole pages of {page_size} bytes can be mapped here: give the file whole ones (fallocate), or map it through a mount", path.display())]
    LargePages {
        /// The pool.
        path: PathBuf,
        /// Page size of the medium, bytes.
        page_size: u64,
    },
    /// The requested protection is not available.
    #[error("{} can't be protected as asked: ask for auto, which takes what there is", path.display())]
    Protect {
        /// The pool.
        path: PathBuf,
        /// The kernel's error.
        source: io::Error,
    },
    /// The medium has less space than the pool needs.
    #[error("no space for {wanted} bytes at {}: free some, make a smaller pool, or make it sparse", path.display())]
    NoSpace {
        /// The pool.
        path: PathBuf,
        /// The requested length, bytes.
        wanted: u64,
        /// The kernel's error.
        source: io::Error,
    },
    /// The mapping can't grow to this length, because no address space was reserved for it.
    #[error("{} is to grow to {wanted} bytes, and has address space for {room}: open it with more, under a higher limit (ulimit -v) if there is one", path.display())]
    NoRoom {
        /// The pool.
        path: PathBuf,
        /// The requested length, bytes.
        wanted: u64,
        /// The greatest length, bytes.
        room: u64,
    },
    /// Setting the length failed for a reason other than space.
    #[error("can't give {} a length of {wanted} bytes", path.display())]
    Resize {
        /// The pool.
        path: PathBuf,
        /// The requested length, bytes.
        wanted: u64,
        /// The kernel's error.
        source: io::Error,
    },
    /// The medium's failed pages could not be replaced.
    #[error(
        "can't give pages of {} anew; clear the medium's errors first (devices: ndctl clear-errors), or restore a copy elsewhere",
        path.display()
    )]
    Renew {
        /// The pool.
        path: PathBuf,
        /// The kernel's error.
        source: io::Error,
    },
    /// A new pool was to be made at a path that exists.
    #[error("{} exists already: remove it first, or allow overwriting", path.display())]
    Exists {
        /// The pool.
        path: PathBuf,
    },
    /// The kernel's data about the medium could not be read.
    #[error("can't learn about the medium of {} from {what}", path.display())]
    Probe {
        /// The pool.
        path: PathBuf,
        /// The place that was to be read.
        what: String,
        /// The kernel's error.
        source: io::Error,
    },
    /// A byte lock could not be taken or probed. (A lock that is held is no error.)
    #[error("can't lock {}: the file system must have open file description locks", path.display())]
    Lock {
        /// The pool.
        path: PathBuf,
        /// The kernel's error.
        source: io::Error,
    },
    /// The CPU lacks an instruction that the pool's consistency needs.
    #[error("this CPU has no {what}, without which pools can't be shared")]
    Unsupported {
        /// The instruction.
        what: &'static str,
    },
}

impl Error {
    /// [`Error::Open`] of this path, for the kernel's error.
    pub(crate) fn open(path: &Path) -> impl Fn(io::Error) -> Error {
        |source| Error::Open {
            path: path.into(),
            source,
        }
    }

    /// [`Error::Lock`] of this path, for the kernel's error.
    pub(crate) fn lock(path: &Path) -> impl Fn(io::Error) -> Error {
        |source| Error::Lock {
            path: path.into(),
            source,
        }
    }
}

/// The end of a copy that failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// The pool: its medium failed or vanished (EIO).
    Pool,
    /// The caller's memory: a bad pointer (EFAULT).
    User,
}

/// A copy that met inaccessible memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("a copy stopped at pool offset {offset:#x} after {done} bytes: {}", match side { Side::Pool => "the medium failed", Side::User => "bad address" })]
pub struct Fault {
    /// Pool offset at which the copy stopped.
    pub offset: u64,
    /// Bytes copied before the fault.
    pub done: usize,
    /// The end that failed.
    pub side: Side,
}

/// A pointer of the program that can't be accessed (EFAULT).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadAddress {
    /// Bytes copied before the fault.
    pub done: usize,
}
