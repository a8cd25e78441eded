//! The engine's error, one variant for each cause. `errno()` is the only place that turns a cause
//! into a number.

use crate::types::PagesInTheWay;
use rustix::io::Errno;
use std::borrow::Cow;
use thiserror::Error;

/// The result of an engine call.
pub type Result<T> = std::result::Result<T, Error>;

/// The cause of a failed call. The error takes two words, and so does a result with it, so that
/// every call of the engine returns in registers. Details are in a box, whose cost does not matter
/// by then.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum Error {
    /// No entry of that name, or no such inode.
    #[error("no such file or directory")]
    NotFound,
    /// The inode number was given up, or given to another file.
    #[error("stale inode number")]
    Stale,
    /// The name is taken.
    #[error("file exists")]
    Exists,
    /// A directory was needed.
    #[error("not a directory")]
    NotDirectory,
    /// A directory was not wanted.
    #[error("is a directory")]
    IsDirectory,
    /// rmdir, or rename over, a directory with entries.
    #[error("directory not empty")]
    NotEmpty,
    /// Symbolic links that lead to each other.
    #[error("too many symbolic links")]
    Loop,
    /// The name is longer than 255 bytes.
    #[error("name too long (255 bytes at most)")]
    NameTooLong,
    /// An argument that has no meaning here.
    #[error("invalid argument: {0}")]
    Invalid(Reason),
    /// The inode is not of a type that the call can work on.
    #[error("operation not supported: {0}")]
    NotSupported(Reason),
    /// The call is not permitted on this inode.
    #[error("operation not permitted: {0}")]
    NotPermitted(Reason),
    /// Refused on this inode to every caller.
    #[error("permission denied: {0}")]
    Denied(Reason),
    /// The name is "." or ".." (rename).
    #[error("the name is in use by the system")]
    Busy,
    /// Beyond the largest file, 2^48 bytes.
    #[error("file too large")]
    FileTooBig,
    /// No free block that this call may take.
    #[error("no space left in the pool")]
    NoSpace,
    /// Every inode is in use.
    #[error("no free inode in the pool")]
    NoInodes,
    /// The link count is at its limit.
    #[error("too many links")]
    TooManyLinks,
    /// No such extended attribute.
    #[error("no such attribute")]
    NoAttribute,
    /// An attribute's name is empty or longer than 255 bytes.
    #[error("attribute name too long or empty (255 bytes at most)")]
    AttributeName,
    /// An attribute's value is longer than 64 KiB.
    #[error("attribute value too long (64 KiB at most)")]
    AttributeTooLong,
    /// The attributes of one inode do not fit.
    #[error("extended attributes too large")]
    AttributesTooBig,
    /// SEEK_DATA or SEEK_HOLE past the end.
    #[error("no data or hole past that offset")]
    NoSuchOffset,
    /// The pool, or this handle on it, is read-only.
    #[error("read-only file system")]
    ReadOnly,
    /// The file is of a snapshot.
    #[error("it is of a snapshot, which does not change; clone it to have a copy that does")]
    OfSnapshot,
    /// A saved snapshot is the difference to one that the pool does not have.
    #[error(
        "it is the difference to a snapshot '{}', which this pool does not have; load that one first",
        .0.name
    )]
    NoBase(Box<NoBase>),
    /// Programs have the file's blocks, or a mount's kernel has pages of it, mapped in a way that
    /// this can't stand beside.
    #[error("the file is mapped by others; it is free for this once they have unmapped it")]
    Mapped,
    /// A table is full, and the pool has no block for more of it.
    #[error("too many open files in the pool")]
    TooManyOpen,
    /// No such open file.
    #[error("the file is not open")]
    NotOpen,
    /// The slot table is full.
    #[error(
        "{slots} processes have the pool open, and there is room for no more; close one, or go through a mount"
    )]
    TooManyProcesses {
        /// The count of slots.
        slots: u64,
    },
    /// A file lock of another owner is in the way.
    #[error("the file is locked by another")]
    WouldBlock,
    /// A signal ended the wait.
    #[error("interrupted")]
    Interrupted,
    /// The wait would be a deadlock: the holder waits for the caller.
    #[error("waiting for that lock would never end")]
    Deadlock,
    /// The table of file locks is full.
    #[error("no room for another file lock in the pool")]
    NoLocks,
    /// The process is a copy of the one that opened the pool.
    #[error(
        "this process was forked from the one that opened the pool; open it again in the child"
    )]
    Forked,
    /// Another process has, or may have, the pool open by another name.
    #[error(
        "the pool is or was in use under another name (another device node, or it is a copy of one in use); \
         open it by that name, or run pmfs fsck on it if nobody has it open"
    )]
    Elsewhere,
    /// A process of another version has the pool open.
    #[error(
        "the pool is open in a process of another PMFS version (layout {theirs}, this one has {ours}); \
         end it first, or use the same version",
        ours = pmfs_format::runtime::LAYOUT
    )]
    UnlikeBuild {
        /// Layout of the runtime area that they use.
        theirs: u64,
    },
    /// The kernel of another mount has pages of the file that programs below it have mapped. Calls
    /// wait for these unless `Fs::tell_of_pages` was called.
    #[error("pages of the file are mapped below another mount of the pool")]
    PagesElsewhere(Box<PagesInTheWay>),
    /// The bytes on the medium can't be right.
    #[error("corrupt pool: {} at offset {:#x}; run pmfs fsck", .0.what, .0.offset)]
    Corrupt(Box<Damage>),
    /// The medium answered a load or store with an error, or vanished.
    #[error(
        "input/output error: the medium failed at offset {offset:#x}; pmfs fsck --badblocks tells what stands there"
    )]
    Medium {
        /// The place, in bytes from the pool's start.
        offset: u64,
    },
    /// A buffer of the caller can't be accessed.
    #[error("bad address")]
    BadAddress,
    /// The instance was declared dead by another one and may not go on.
    #[error("this instance of the pool was shut down")]
    ShutDown,
    /// The file is not a pool.
    #[error("not a PMFS pool: {0}")]
    NotAPool(Box<Cow<'static, str>>),
    /// mkfs would overwrite something.
    #[error("the file is not empty; --force overwrites it")]
    NotEmptyFile,
    /// A format that this build does not know.
    #[error("pool format {found} is newer than this build understands ({known})")]
    TooNew {
        /// The pool's format version.
        found: u32,
        /// The newest this build knows.
        known: u32,
    },
    /// The pool has features that this build does not know.
    #[error("the pool has features that this build does not know ({unknown:#x})")]
    Features {
        /// Their bits in the superblock.
        unknown: u64,
    },
    /// Another process holds the pool.
    #[error("the pool is in use by process {pid}")]
    Held {
        /// The holder, or 0 if it could not be told.
        pid: u32,
    },
    /// The pool is too small, or its geometry is impossible.
    #[error("bad geometry: {0}")]
    Geometry(Box<Cow<'static, str>>),
    /// A system call on a file, the pool's or another, failed.
    #[error("{}: {}", .0.what, .0.source)]
    File(Box<FileError>),
    /// The pool is being copied, and must not change.
    #[error("the pool is being saved")]
    Frozen,
    /// The input of `load` is not an output of `save`.
    #[error("not a saved pool, or damaged: {} (byte {})", .0.what, .0.offset)]
    BadImage(Box<Damage>),
    /// Opening, locking or mapping the pool failed.
    #[error(transparent)]
    Media(Box<pmem::Error>),
}

const _: () = assert!(size_of::<Result<u64>>() == 16);

/// A reason in words, thin.
pub type Reason = &'static &'static str;

/// A fault, and its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Damage {
    /// The structure that is damaged.
    pub what: &'static str,
    /// The place, in bytes from the pool's or the stream's start.
    pub offset: u64,
}

/// A snapshot that is missing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoBase {
    /// Its name in the pool in which it was saved.
    pub name: String,
}

/// A system call on a file, the pool's or another, that failed.
#[derive(Debug)]
pub struct FileError {
    /// The step that failed.
    pub what: &'static str,
    /// The kernel's error.
    pub source: std::io::Error,
}

impl From<pm_store::Error> for Error {
    #[cold]
    fn from(error: pm_store::Error) -> Error {
        match error {
            pm_store::Error::Medium { offset } => Error::Medium { offset },
            pm_store::Error::BadAddress => Error::BadAddress,
        }
    }
}

impl From<pmshare::Error> for Error {
    #[cold]
    fn from(error: pmshare::Error) -> Error {
        use pmshare::Error as Cause;
        match error {
            Cause::Held { pid } => Error::Held { pid },
            Cause::Frozen => Error::Frozen,
            Cause::TooManyProcesses { slots } => Error::TooManyProcesses { slots },
            Cause::UnlikeBuild { theirs } => Error::UnlikeBuild { theirs },
            Cause::Elsewhere => Error::Elsewhere,
            Cause::ShutDown => Error::ShutDown,
            Cause::Forked => Error::Forked,
            Cause::ReadOnly => Error::ReadOnly,
            Cause::NotSupported(why) => Error::NotSupported(why),
            Cause::Invalid(why) => Error::Invalid(why),
            Cause::Keeping(why) => Error::file("keeping a descriptor over exec", *why),
            Cause::Media(why) => Error::Media(why),
        }
    }
}

impl From<pmem::Error> for Error {
    #[cold]
    fn from(error: pmem::Error) -> Error {
        Error::Media(Box::new(error))
    }
}

impl Error {
    /// [`Error::Corrupt`].
    #[cold]
    #[must_use]
    pub fn corrupt(what: &'static str, offset: u64) -> Error {
        Error::Corrupt(Box::new(Damage { what, offset }))
    }

    /// [`Error::File`].
    #[cold]
    #[must_use]
    pub fn file(what: &'static str, source: std::io::Error) -> Error {
        Error::File(Box::new(FileError { what, source }))
    }

    /// [`Error::NotAPool`].
    #[cold]
    #[must_use]
    pub fn not_a_pool(why: impl Into<Cow<'static, str>>) -> Error {
        Error::NotAPool(Box::new(why.into()))
    }

    /// [`Error::Geometry`].
    #[cold]
    #[must_use]
    pub fn geometry(why: impl Into<Cow<'static, str>>) -> Error {
        Error::Geometry(Box::new(why.into()))
    }

    /// [`Error::PagesElsewhere`].
    #[cold]
    #[must_use]
    pub fn pages(pages: PagesInTheWay) -> Error {
        Error::PagesElsewhere(Box::new(pages))
    }

    /// Returns whether a resource has run out that the end of another process may give back.
    pub fn is_shortage(&self) -> bool {
        matches!(
            self,
            Error::NoSpace | Error::NoInodes | Error::TooManyOpen | Error::NoLocks
        )
    }

    /// The errno of a system call that fails for this cause.
    #[must_use]
    pub fn errno(&self) -> Errno {
        match self {
            Error::NotFound | Error::NoBase(_) => Errno::NOENT,
            Error::Stale => Errno::STALE,
            Error::Exists => Errno::EXIST,
            Error::NotDirectory => Errno::NOTDIR,
            Error::IsDirectory => Errno::ISDIR,
            Error::NotEmpty => Errno::NOTEMPTY,
            Error::Loop => Errno::LOOP,
            Error::NameTooLong => Errno::NAMETOOLONG,
            Error::Invalid(_) => Errno::INVAL,
            Error::NotSupported(_) => Errno::OPNOTSUPP,
            Error::NotPermitted(_) => Errno::PERM,
            Error::Denied(_) => Errno::ACCESS,
            Error::Busy | Error::Mapped | Error::PagesElsewhere(_) => Errno::BUSY,
            Error::FileTooBig => Errno::FBIG,
            Error::AttributeName => Errno::RANGE,
            Error::AttributeTooLong => Errno::TOOBIG,
            Error::NoSpace | Error::NoInodes | Error::AttributesTooBig => Errno::NOSPC,
            Error::TooManyLinks => Errno::MLINK,
            Error::NoAttribute => Errno::NODATA,
            Error::NoSuchOffset => Errno::NXIO,
            Error::ReadOnly | Error::OfSnapshot => Errno::ROFS,
            Error::TooManyOpen | Error::TooManyProcesses { .. } => Errno::NFILE,
            Error::NotOpen => Errno::BADF,
            Error::BadAddress => Errno::FAULT,
            Error::WouldBlock => Errno::AGAIN,
            Error::Interrupted => Errno::INTR,
            Error::Deadlock => Errno::DEADLK,
            Error::NoLocks => Errno::NOLCK,
            Error::Corrupt(_) | Error::Medium { .. } | Error::ShutDown | Error::Forked => Errno::IO,
            Error::NotAPool(_)
            | Error::TooNew { .. }
            | Error::Features { .. }
            | Error::Geometry(_)
            | Error::BadImage(_) => Errno::INVAL,
            Error::NotEmptyFile => Errno::EXIST,
            Error::Held { .. } | Error::Frozen | Error::Elsewhere | Error::UnlikeBuild { .. } => {
                Errno::BUSY
            }
            Error::File(failed) => said_by_the_kernel(&failed.source),
            Error::Media(error) => said_by_the_kernel(&**error),
        }
    }
}

/// The errno of a system call among the sources of the error.
fn said_by_the_kernel(error: &(dyn std::error::Error + 'static)) -> Errno {
    let mut cause = Some(error);
    while let Some(error) = cause {
        if let Some(number) = error
            .downcast_ref::<std::io::Error>()
            .and_then(std::io::Error::raw_os_error)
        {
            return Errno::from_raw_os_error(number);
        }
        cause = error.source();
    }
    Errno::IO
}
