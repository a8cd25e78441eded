//! The byte lock that says "the pool is to stand still": a process that copies a pool that others
//! hold has it. It falls with its holder, however that ends, so nobody has to be told that it is
//! over. A server that means to honour it looks at it before each change ([`FreezeProbe`]), once it
//! has been asked to; nobody new attaches while it is held.

use crate::error::{Error, Result};
use pmem::slots::{ByteLock, Prober};
use pmshare::attach::is_frozen;
use pmshare::lock_bytes::BYTE_FREEZE;
use std::path::Path;

/// Held: the pool is to stand still.
#[derive(Debug)]
pub struct Freeze {
    _lock: ByteLock,
}

impl Freeze {
    /// Takes the lock. By itself it only keeps others from attaching.
    ///
    /// # Errors
    /// [`Error::Frozen`] if somebody else has it; the pool can't be opened for writing.
    pub fn take(path: &Path) -> Result<Freeze> {
        match ByteLock::try_exclusive(path, BYTE_FREEZE)? {
            Some(lock) => Ok(Freeze { _lock: lock }),
            None => Err(Error::Frozen),
        }
    }
}

/// Looks whether the lock is held.
#[derive(Debug)]
pub struct FreezeProbe(Prober);

impl FreezeProbe {
    /// For the pool at `path`.
    ///
    /// # Errors
    /// The pool can't be opened.
    pub fn open(path: &Path) -> Result<FreezeProbe> {
        Ok(FreezeProbe(Prober::open(path)?))
    }

    /// Returns whether a process holds it. A lock that can't be probed counts as free.
    #[must_use]
    pub fn held(&self) -> bool {
        is_frozen(&self.0)
    }
}
