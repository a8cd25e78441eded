//! The causes for which a process can't attach or continue.

use thiserror::Error;

/// The result of a call that may fail.
pub type Result<T> = std::result::Result<T, Error>;

/// The cause of a failure.
#[derive(Debug, Error)]
pub enum Error {
    /// Another process holds the file.
    #[error("in use by process {pid}")]
    Held {
        /// The holder, or 0 if it could not be told.
        pid: u32,
    },
    /// The file is being copied, and must not change.
    #[error("being copied")]
    Frozen,
    /// The slot table is full.
    #[error("{slots} processes have it open, and there is room for no more")]
    TooManyProcesses {
        /// The count of slots.
        slots: u64,
    },
    /// A process with another layout of the shared words has the file open.
    #[error("open in a process of another version (layout {theirs})")]
    UnlikeBuild {
        /// The layout that they use.
        theirs: u64,
    },
    /// Another process has, or may have, the file open by another name.
    #[error("in use under another name")]
    Elsewhere,
    /// This process has left, or was declared dead.
    #[error("shut down")]
    ShutDown,
    /// The process is a copy of the one that attached.
    #[error("forked from the process that had it open")]
    Forked,
    /// Changes are refused.
    #[error("read-only")]
    ReadOnly,
    /// There is no file to hand over, or a process has it exclusively.
    #[error("not supported: {0}")]
    NotSupported(&'static &'static str),
    /// The slot that was handed over exec is lost.
    #[error("{0}")]
    Invalid(&'static &'static str),
    /// A descriptor can't be kept over exec.
    #[error("keeping a descriptor over exec: {0}")]
    Keeping(Box<std::io::Error>),
    /// Opening or locking the file failed.
    #[error(transparent)]
    Media(Box<pmem::Error>),
}

impl From<pmem::Error> for Error {
    #[cold]
    fn from(error: pmem::Error) -> Error {
        Error::Media(Box::new(error))
    }
}
