//! Handing an attachment over, to a forked child and to the next program after exec
//! (docs/adr/0026-fork-exec-threads.md).
//!
//! A slot's life is that of an address space, so a successor needs a slot of its own, taken before:
//! with a reference to all that the old slot has, and with locks kept by a descriptor, which both
//! inherit. If the successor dies before it has moved in, that descriptor is gone, and the slot is
//! cleaned up after like any other.

use crate::error::{Error, Result};
use crate::holder::{Holder, this_thread_lives};
use crate::layout::Shared;
use crate::lock_bytes::BYTE_POOL;
use crate::member::Share;
use pmem::slots::ByteLock;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

/// A slot for a process or program that does not exist yet.
#[derive(Debug)]
pub struct Successor {
    /// The slot.
    pub holder: Holder,
    /// The locks of the slot and of the pool in one descriptor, because a program may have few
    /// left.
    locks: ByteLock,
}

/// The text with which the program moves in ([`Share::move_in`]).
impl fmt::Display for Successor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Holder { slot, incarnation } = self.holder;
        let locks = self.locks.descriptor().unwrap_or(-1);
        write!(f, "{slot}:{incarnation}:{locks}")
    }
}

impl Successor {
    /// Keeps the locks over exec.
    ///
    /// # Errors
    /// The descriptor can't be kept.
    pub fn keep_over_exec(&self) -> Result<()> {
        let kept = self.locks.keep_over_exec();
        kept.map_err(|source| Error::Keeping(Box::new(source)))
    }
}

impl<S: Shared> Share<S> {
    /// The pool's file.
    ///
    /// # Errors
    /// It has none.
    pub fn path(&self) -> Result<PathBuf> {
        let path = self.mem().path().map(Path::to_path_buf);
        path.ok_or(Error::NotSupported(&"handing on a pool without a file"))
    }

    /// Takes a slot for a successor, without marking it. The caller has the attach lock.
    ///
    /// # Errors
    /// All slots are taken; the pool is held exclusively.
    pub fn reserve(&self, path: &Path) -> Result<Successor> {
        let usable = 0..self.layout().slot_count - 1;
        let taken = self.take_slot(Some(path), usable, true)?;
        let both = match taken.lock {
            Some(slot) => slot.and_shared(path, BYTE_POOL)?,
            None => None,
        };
        // A pool held exclusively belongs to its holder, and has no successors.
        let locks = both.ok_or(Error::NotSupported(
            &"fork or exec with a pool opened for one process",
        ))?;
        Ok(Successor {
            holder: taken.holder,
            locks,
        })
    }

    /// Moves into the slot that the previous program has handed over.
    pub fn move_in(&self, path: &Path, handed: &str) -> Result<()> {
        let lost = Err(Error::Invalid(
            &"what was handed over exec: that slot is not there any more",
        ));
        let numbers: Vec<i64> = handed
            .split(':')
            .map_while(|part| part.parse().ok())
            .collect();
        let &[slot, incarnation, locks] = numbers.as_slice() else {
            return lost;
        };
        let holder = Holder {
            slot: slot as u64,
            incarnation: incarnation as u64,
        };
        let count = self.layout().slot_count;
        if holder.slot >= count || !self.is_held_as(holder) || !self.slot_locked(holder.slot) {
            return lost;
        }
        let number = i32::try_from(locks).ok();
        let Some(locks) = number.and_then(|number| ByteLock::from_exec(path, number)) else {
            return lost;
        };
        self.adopt(path, Successor { holder, locks })
    }

    /// Makes a slot this address space's own.
    pub fn adopt(&self, path: &Path, successor: Successor) -> Result<()> {
        let locks = vec![successor.locks.adopt(path)?];
        // The old locks are the parent's: dropping them here does not release those.
        *self
            .locks
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner) = locks;
        this_thread_lives();
        self.traces.all();
        // The parent adds its own reads.
        self.counting.take_reads();
        self.counting.begin_anew();
        self.held_as.store(successor.holder);
        self.rename_slot(successor.holder.slot);
        self.life.store(pmem::life::number(), Ordering::Relaxed);
        Ok(())
    }
}
