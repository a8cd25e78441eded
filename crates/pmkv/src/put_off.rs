//! Runs of single records that are given back to the heap some at a time: each time is a
//! transaction, which waits more often than a delete does.
//!
//! The list is a hint of this process. A run that no slot names is anybody's to drop, as one
//! whose process was killed before it could.

use std::sync::{Mutex, PoisonError};

use pmlib_format::CHUNK_BYTES;

use crate::engine::Index;
use crate::error::Result;
use crate::kv::Kv;

/// Runs that a process puts off at most, and chunks of each.
const RUNS_MAX: usize = 8;
const CHUNKS_MAX: u64 = 2;

/// The records whose runs are to be dropped.
#[derive(Debug, Default)]
pub(crate) struct PutOff {
    offsets: Mutex<Vec<u64>>,
}

impl PutOff {
    /// Notes one; answers all, if they are many.
    fn add(&self, offset: u64) -> Vec<u64> {
        let offsets = self.offsets.lock();
        // After a panic it is a hint as before.
        let mut offsets = offsets.unwrap_or_else(PoisonError::into_inner);
        offsets.push(offset);
        match offsets.len() < RUNS_MAX {
            true => Vec::new(),
            false => std::mem::take(&mut *offsets),
        }
    }

    fn take(&self) -> Vec<u64> {
        let offsets = self.offsets.lock();
        std::mem::take(&mut *offsets.unwrap_or_else(PoisonError::into_inner))
    }
}

impl<I: Index> Kv<'_, I> {
    /// Drops the run of a record that no slot names, or puts that off; nothing is locked.
    pub(crate) fn drop_later(&self, offset: u64) -> Result<()> {
        let chunks = self.ground.owned(offset / CHUNK_BYTES, self.head);
        if chunks > CHUNKS_MAX {
            return self.drop_alone(offset);
        }
        self.drop_all(&self.pools.put_off.add(offset))
    }

    fn drop_all(&self, offsets: &[u64]) -> Result<()> {
        let mut unused = Vec::with_capacity(offsets.len());
        for &offset in offsets {
            unused.extend(self.unused_run(offset)?);
        }
        if !unused.is_empty() {
            self.free_chunks(&unused, false)?;
        }
        Ok(())
    }
}

impl<I: Index> Drop for Kv<'_, I> {
    fn drop(&mut self) {
        let offsets = self.pools.put_off.take();
        if offsets.is_empty() || std::thread::panicking() || self.ground.enter_to_change().is_err()
        {
            return;
        }
        let _window = self.ground.mem().window();
        // A failure leaves them to whoever looks for room.
        let _ = self.drop_all(&offsets);
    }
}
