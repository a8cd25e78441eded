//! Errors of a heap: one variant a cause.

use thiserror::Error;

/// The cause for which a call on a heap failed. Nothing has changed then, unless the medium failed.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum Error {
    /// The medium could not be opened, made, mapped or locked.
    #[error(transparent)]
    Medium(#[from] pmem::Error),
    /// The file holds something else.
    #[error("this is no heap: its first bytes are {found:#018x}")]
    Foreign {
        /// The first eight bytes.
        found: u64,
    },
    /// Another build made it.
    #[error(
        "the heap has format version {found}, and this build reads {known} alone: use the build \
         that made it; its engines come over by its `pmkv save` and this one's `pmkv load`"
    )]
    Version {
        /// The heap's.
        found: u32,
        /// This build's.
        known: u32,
    },
    /// A later build made it, with something in it that this one does not know.
    #[error("the heap has features {unknown:#x}, which this build does not know: use a later one")]
    Features {
        /// The bits.
        unknown: u64,
    },
    /// A heap that was opened without the right to write was to be changed.
    #[error("the heap was opened to be read: open it without `read_only` to change it")]
    ReadOnly,
    /// A heap that may only be read is in no state in which it can be.
    #[error("the heap needs recovery, and was opened to be read: {why}; open it once to write")]
    NeedsRecovery {
        /// How that is known.
        why: &'static str,
    },
    /// The heap has lost chunks at its end since it was opened to be read.
    #[error("the heap has become shorter since it was opened: open it again")]
    Shorter,
    /// There is no room for a heap's own parts.
    #[error("{len} bytes are too few for this heap: at least {min} are needed")]
    TooSmall {
        /// Bytes that there are.
        len: u64,
        /// Bytes that are needed.
        min: u64,
    },
    /// Bytes that the format does not allow, or that their check does not fit.
    #[error("the heap is damaged: {what} at offset {offset:#x}")]
    Damaged {
        /// The part that is damaged.
        what: &'static str,
        /// Where.
        offset: u64,
    },
    /// Another process attaches, leaves or, to one who may only read, commits for too long.
    #[error("{}", busy(*pid))]
    Busy {
        /// The process, or 0 if it could not be told.
        pid: u32,
    },
    /// No slot is left for a process.
    #[error("{slots} processes have the heap, and there is room for no more: end one of them")]
    Processes {
        /// How many can have it.
        slots: u64,
    },
    /// Processes that can't share it have it, or may have.
    #[error("the heap can't be shared with those who have it: {0}")]
    Apart(#[source] pmshare::Error),
    /// No room, and none can be had.
    #[error("no room for {wanted} bytes in the heap: free objects, or make a larger one")]
    Full {
        /// Bytes that were asked for.
        wanted: u64,
    },
    /// An object of no bytes, or of more than a heap can have.
    #[error("there are no objects of {size} bytes")]
    Size {
        /// Bytes that were asked for.
        size: u64,
    },
    /// Nothing is allocated there: freed already, or never an object.
    #[error("there is no object at offset {offset:#x}")]
    NoObject {
        /// The offset.
        offset: u64,
    },
    /// The object there can't be of the type that was asked for: it has another size.
    #[error(
        "the object at {offset:#x} has {found} bytes, and one of this type {wanted}: it is something else"
    )]
    Class {
        /// The object.
        offset: u64,
        /// Bytes of an object of the type, as they are given out.
        wanted: u64,
        /// Bytes of the object.
        found: u64,
    },
    /// A named root is of another type.
    #[error(
        "the root {name:?} is of another type: its fingerprint is {found:#018x}, and {expected:#018x} was asked for"
    )]
    Type {
        /// The root's name.
        name: String,
        /// The fingerprint of the type that was asked for.
        expected: u64,
        /// The fingerprint that the heap has.
        found: u64,
    },
    /// A root's name of no bytes, or of too many.
    #[error("a root's name has 1 to 255 bytes, and this one {len}")]
    Name {
        /// Its length, bytes.
        len: usize,
    },
    /// No element of a vector has this index.
    #[error("the vector has {len} elements, and none has index {index}")]
    Index {
        /// The index.
        index: u64,
        /// The vector's length, elements.
        len: u64,
    },
    /// No record of a log begins there.
    #[error("no record of the log begins at position {position}")]
    NoRecord {
        /// The position.
        position: u64,
    },
    /// A part of a heap that it does not have.
    #[error("the heap has no {what} {asked}: there are {there}")]
    NoSuch {
        /// The kind of part.
        what: &'static str,
        /// The number that was asked for.
        asked: u64,
        /// How many there are.
        there: u64,
    },
    /// A range that leaves its object.
    #[error("bytes {start} to {end} are not all in the object of {size} bytes at {offset:#x}")]
    Range {
        /// The object.
        offset: u64,
        /// Its size, bytes.
        size: u64,
        /// First byte of the range.
        start: u64,
        /// The byte after the range.
        end: u64,
    },
    /// Transactions wait for each other in a circle.
    #[error("waiting for this lock would never end: its holder waits for this transaction")]
    Deadlock,
    /// A container's call failed in a transaction that went on without minding it, and may have
    /// left half of its change. Nothing has happened.
    #[error(
        "a call of a container failed in this transaction: return its error, or run the call in `Tx::nested`"
    )]
    Spoiled,
    /// A transaction inside one of the same thread.
    #[error("this thread has a transaction of this heap: use its `nested`")]
    Nested,
    /// A panic in the middle of an open transaction's call has ended it.
    #[error("a panic has ended this transaction, and nothing of it has happened: begin another")]
    Ended,
    /// The end of a part, where none was begun.
    #[error("no part of this transaction is open: `begin_part` begins one")]
    NoPart,
    /// A forked child has a copy of what its parent knows, which the parent changes.
    #[error("the heap was opened before fork: open it again in the child")]
    Forked,
    /// The medium failed under a load or store. Whether this call has happened is not known.
    #[error("the medium failed at offset {offset:#x}: close the heap and look after the medium")]
    Lost {
        /// Where.
        offset: u64,
    },
    /// An earlier call ended in the middle of a commit.
    #[error("an earlier call broke off in the middle of a commit: open the heap again")]
    Broken,
}

fn busy(pid: u32) -> String {
    match pid {
        0 => "others attach to the heap, leave it or commit without an end: see whether they run"
            .into(),
        _ => format!(
            "the heap is held by process {pid}, which attaches, leaves or commits: see whether it runs"
        ),
    }
}

/// The answer of a call that may fail.
pub type Result<T> = std::result::Result<T, Error>;

/// Makes damage of the error of an offset that the heap has at `offset`, and no caller.
pub(crate) fn inside<T>(result: Result<T>, what: &'static str, offset: u64) -> Result<T> {
    result.map_err(|error| match error {
        Error::NoObject { .. } | Error::Range { .. } | Error::Class { .. } => {
            Error::Damaged { what, offset }
        }
        other => other,
    })
}

/// Whether a range is in the object of `size` bytes at `offset`.
pub(crate) fn in_object(offset: u64, size: u64, start: u64, len: u64) -> Result<()> {
    let end = start.saturating_add(len);
    if end <= size {
        return Ok(());
    }
    Err(Error::Range {
        offset,
        size,
        start,
        end,
    })
}

impl From<pmem::Fault> for Error {
    fn from(fault: pmem::Fault) -> Error {
        Error::Lost {
            offset: fault.offset,
        }
    }
}

impl From<pmshare::Error> for Error {
    #[cold]
    fn from(error: pmshare::Error) -> Error {
        match error {
            pmshare::Error::Held { pid } => Error::Busy { pid },
            pmshare::Error::TooManyProcesses { slots } => Error::Processes { slots },
            pmshare::Error::Forked => Error::Forked,
            pmshare::Error::ShutDown | pmshare::Error::ReadOnly => Error::Broken,
            pmshare::Error::Media(error) => Error::Medium(*error),
            other => Error::Apart(other),
        }
    }
}
