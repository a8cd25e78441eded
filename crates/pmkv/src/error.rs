//! Errors of an engine: one variant a cause.

use thiserror::Error;

use crate::opening::Kind;

/// The cause for which a call on an engine failed. Nothing has changed then, unless the medium
/// failed.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum Error {
    /// The heap's: it is full, damaged, only read, lost, or of no use any more.
    #[error(transparent)]
    Heap(#[from] pmlib::Error),
    /// A key or a value that is too long.
    #[error("a key of {key} and a value of {value} bytes: keys have 64 KiB at most, values 4 GiB")]
    TooLarge {
        /// Bytes of the key.
        key: u64,
        /// Bytes of the value.
        value: u64,
    },
    /// A batch of too many changes.
    #[error("a batch of {count} changes: it can have 65,535")]
    TooMany {
        /// How many they are.
        count: u64,
    },
    /// A record that is not as it was stored. Other keys are not touched by that.
    #[error("the record at offset {offset:#x} is damaged: its check does not fit")]
    Corrupt {
        /// Where it is.
        offset: u64,
    },
    /// The engine's own bytes are not what any call makes.
    #[error("the engine is damaged: {what} at offset {offset:#x}")]
    Damaged {
        /// The part that is damaged.
        what: &'static str,
        /// Where.
        offset: u64,
    },
    /// The engine of this name is of another kind.
    #[error("the engine is a {found}: open it as one")]
    Kind {
        /// The kind that it is.
        found: Kind,
    },
    /// The root of this name is an engine of another version.
    #[error(
        "the engine has shape {found:#x}, which this build does not know: use the build that made it"
    )]
    Shape {
        /// The word that says so.
        found: u64,
    },
    /// A reader's session, or a snapshot, was ended by a writer, since it has lasted longer than it
    /// may.
    #[error("the session has lasted longer than it may, and was ended: begin another one")]
    Ended,
    /// A snapshot of several engines: two are of different heaps, or are the same.
    #[error("a snapshot is of different engines of one heap: name each once, as it was opened")]
    Apart,
    /// There is no room, and a process has sessions of readers open, which hold some.
    #[error(
        "no room for {wanted} bytes in the heap while process {pid} ({command}) has a reader's \
         session or a snapshot open: have it end, or make a larger heap"
    )]
    Held {
        /// Bytes that were asked for.
        wanted: u64,
        /// The process.
        pid: u64,
        /// The name of its program.
        command: String,
    },
    /// A group of the index is full and can't be split further.
    #[error("the index has no room for this key: it can't be split any further")]
    Crowded,
}

/// The answer of a call that may fail.
pub type Result<T> = std::result::Result<T, Error>;

impl From<pmem::Fault> for Error {
    fn from(fault: pmem::Fault) -> Error {
        Error::Heap(fault.into())
    }
}
