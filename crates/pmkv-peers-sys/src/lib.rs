//! Key-value engines of others by their C interfaces: RocksDB and pmemkv.
//!
//! Contract:
//! - The libraries are looked for when an engine is opened, so that nothing is linked with them. A
//!   missing one is [`Error::Missing`], which says what has it.
//! - A library stays in the process once it is loaded: its threads and destructors would outlive
//!   an unloading.
//! - Calls take and fill slices: no pointer leaves this crate.

#[macro_use]
mod library;

pub mod pmemkv;
pub mod rocksdb;

/// The reason why a call has not been done.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// There is no such library here, or it lacks the engine.
    #[error("{0}")]
    Missing(String),
    /// The engine has failed, in its own words.
    #[error("{0}")]
    Failed(String),
}

/// A call's result.
pub type Result<T> = std::result::Result<T, Error>;
