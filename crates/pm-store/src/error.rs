//! The errors of a load or a store.

use pmem::Pmem;
use thiserror::Error;

/// The result of a load or a store.
pub type Result<T> = std::result::Result<T, Error>;

/// The cause of a failed copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Error {
    /// The medium answered a load or store with an error, or vanished.
    #[error("the medium failed at offset {offset:#x}")]
    Medium {
        /// The place, in bytes from the pool's start.
        offset: u64,
    },
    /// A buffer of the caller can't be reached.
    #[error("bad address")]
    BadAddress,
}

/// Converts a fault of a copy into the engine's error.
#[cold]
pub(crate) fn medium(mem: &Pmem, fault: pmem::Fault) -> Error {
    match fault.side {
        pmem::Side::User => Error::BadAddress,
        pmem::Side::Pool => {
            // A bad block fails only the calls that need it. A file that was cut short has lost its
            // end: this load then marks the mapping as failed, and nothing more is stored.
            let _ = mem.load_cached((mem.len() & !7) - 8);
            Error::Medium {
                offset: fault.offset,
            }
        }
    }
}
