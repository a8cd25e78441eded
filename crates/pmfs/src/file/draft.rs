//! A block put together of old bytes, new bytes and zeros: in this process's own memory first, so
//! that it reaches the pool in whole lines, each stored once.

use crate::pool::Pool;
use pm_journal::error::{Error, Result};
use pm_store::FreshSet;
use pmfs_format::BLOCK_BYTES;

const LINE: usize = 64;

/// A block's bytes in the making; bytes that are not filled in are zeros.
pub(super) struct Draft {
    bytes: [u8; BLOCK_BYTES as usize],
    /// From here on the block may hold anything.
    end: usize,
}

impl Draft {
    pub fn new() -> Draft {
        Draft {
            bytes: [0; BLOCK_BYTES as usize],
            end: 0,
        }
    }

    /// The bytes `at..to` of the old block, which is at `off`.
    ///
    /// # Errors
    /// [`crate::Error::Medium`].
    pub fn keep(&mut self, pool: &Pool, off: u64, at: u64, to: u64) -> Result<()> {
        if at < to {
            let piece = &mut self.bytes[at as usize..to as usize];
            pool.pm.copy_out(off + at, piece)?;
            self.reach(to);
        }
        Ok(())
    }

    /// New bytes: a program's own, which may not be there.
    ///
    /// # Errors
    /// [`crate::Error::BadAddress`].
    pub fn put(&mut self, at: u64, bytes: &[u8]) -> Result<()> {
        let at = at as usize;
        let room = &mut self.bytes[at..at + bytes.len()];
        pmem::program::copy_in(room, bytes.as_ptr().expose_provenance())
            .map_err(|_| Error::BadAddress)?;
        self.reach((at + bytes.len()) as u64);
        Ok(())
    }

    /// Zeros up to `end`, where nothing else is.
    pub fn reach(&mut self, end: u64) {
        self.end = self.end.max(end as usize);
    }

    /// Stores it in the fresh block at `off`.
    ///
    /// # Errors
    /// [`crate::Error::Medium`].
    #[cfg_attr(feature = "record", track_caller)]
    pub fn store(&self, fresh: &mut FreshSet<'_>, off: u64) -> Result<()> {
        let end = self.end.next_multiple_of(LINE);
        Ok(fresh.range(off, BLOCK_BYTES).bytes(0, &self.bytes[..end])?)
    }
}
