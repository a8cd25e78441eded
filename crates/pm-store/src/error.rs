//! The errors of a load or a store.

use pmem::Pmem;
use thiserror::Error;

/// The answer of a copy.
pub type Result<T> = std::result::Result<T, Error>;

/// Causes for which bytes could not be copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Error {
    /// The medium answered a load or store with an error, or vanished.
    #[error("the medium failed at offset {offset:#x}")]
    Medium {
        /// The place, in bytes from the pool's start.
        offset: u64,
    },
    /// A buffer of the caller's can't be reached.
    #[error("bad address")]
    BadAddress,
}

/// A fault of a copy, as the engine's error.
#[cold]
pub(crate) fn medium(mem: &Pmem, fault: pmem::Fault) -> Error {
    match fault.side {
        pmem::Side::User => Error::BadAddress,
        pmem::Side::Pool => {
            // A bad block is an error for those calls alone that need it. If the file was cut
            // short, its end is gone too: this load then marks the mapping as failed, so that
            // nothing more is stored into the rest.
            let _ = mem.load_cached((mem.len() & !7) - 8);
            Error::Medium {
                offset: fault.offset,
            }
        }
    }
}
