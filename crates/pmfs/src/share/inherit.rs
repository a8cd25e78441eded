//! Handing an attachment on: to a forked child, and to the program that a process becomes by exec
//! (docs/adr/0026-fork-exec-threads.md).
//!
//! A slot's life is that of an address space, so a successor needs one of its own, taken before: with a reference to
//! all that the old one has, and with locks kept by descriptors, which both inherit. Should the successor die before it has
//! settled in it, those descriptors are gone, and the slot is cleaned up after like any other.

use crate::error::{Error, Result};
use crate::open::file_lock::Owner;
use crate::open::open_table::Thing;
use crate::pool::Pool;
use crate::recovery;
use crate::share::attach::{attach_lock, attach_lock_by};
use crate::share::lock_bytes::BYTE_POOL;
use crate::share::owner::{self, Holder};
use crate::share::slot::SLOT_STATE;
use crate::types::{FileId, LockOwner};
use pmem::slots::ByteLock;
use pmfs_format::runtime::SLOT_FREE;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

/// A slot taken for a child.
#[derive(Debug)]
pub struct ForFork(Successor);

/// A slot taken for a program, and whose locks it was given, if not this process's. Its text is what that program has to know.
#[derive(Debug)]
pub struct ForExec(Successor, Option<Heirloom>);

/// Locks of one owner of this process, which are a successor's.
#[derive(Debug)]
struct Heirloom {
    before: Owner,
    after: Owner,
}

/// A slot that waits for its holder.
#[derive(Debug)]
struct Successor {
    holder: Holder,
    slot: ByteLock,
    pool: ByteLock,
}

impl fmt::Display for ForExec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Holder { slot, incarnation } = self.0.holder;
        let number = |lock: &ByteLock| lock.descriptor().unwrap_or(-1);
        let (first, second) = (number(&self.0.slot), number(&self.0.pool));
        write!(f, "{slot}:{incarnation}:{first}:{second}")
    }
}

impl Pool {
    fn path(&self) -> Result<PathBuf> {
        let path = self.pm.mapping().path().map(Path::to_path_buf);
        path.ok_or(Error::NotSupported(&"handing on a pool without a file"))
    }

    /// Takes a slot and gives it a reference to all that this process has.
    fn prepare(&self, token: u64) -> Result<Successor> {
        let mine = self.references_of(self.holder().slot);
        let all = mine
            .iter()
            .map(|reference| (reference.thing, reference.count));
        self.prepare_with(token, all)
    }

    /// Takes a slot and gives it these references.
    fn prepare_with(
        &self,
        token: u64,
        things: impl Iterator<Item = (Thing, u64)>,
    ) -> Result<Successor> {
        self.alive()?;
        let path = self.path()?;
        let prober = self.prober.as_ref();
        let _entry = prober.map_or_else(|| attach_lock(&path), attach_lock_by)?;
        let usable = 0..self.geometry.slot_count - 1;
        let taken = self.take_slot(Some(&path), usable, true)?;
        let pool = ByteLock::try_shared_inherited(&path, BYTE_POOL)?;
        // A pool held exclusively is its holder's own, and has no successors.
        let (Some(pool), Some(slot)) = (pool, taken.lock) else {
            return Err(Error::NotSupported(
                &"fork or exec with a pool opened for one process",
            ));
        };
        if !planted!("bug-child-marked-last") {
            self.mark_slot(taken.holder, token);
        }
        let successor = Successor {
            holder: taken.holder,
            slot,
            pool,
        };
        for (thing, count) in things {
            let added = self.open_add_for(taken.holder.slot, thing, count);
            if let Err(error) = added {
                self.cancel(successor);
                return Err(error);
            }
        }
        if planted!("bug-child-marked-last") {
            self.mark_slot(successor.holder, token);
        }
        Ok(successor)
    }

    /// Gives a slot back that nobody moved into.
    fn cancel(&self, successor: Successor) {
        let slot = successor.holder.slot;
        if !planted!("bug-child-cancelled-with-files") {
            recovery::close_for(self, slot);
        }
        let off = self.geometry.slot(slot);
        self.pm.runtime().store(off + SLOT_STATE, SLOT_FREE);
    }

    pub(crate) fn before_fork(&self) -> Result<ForFork> {
        let successor = self.prepare(0)?;
        // The child's memory maps what the parent's does; a program that follows maps nothing yet.
        match self.copy_pins(successor.holder.slot) {
            Ok(()) => Ok(ForFork(successor)),
            Err(error) => {
                self.cancel(successor);
                Err(error)
            }
        }
    }

    pub(crate) fn cancel_fork(&self, prepared: ForFork) {
        self.cancel(prepared.0);
    }

    pub(crate) fn after_fork_in_child(&self, prepared: ForFork) -> Result<()> {
        let path = self.path()?;
        self.settle(&path, prepared.0)
    }

    pub(crate) fn before_exec(&self) -> Result<ForExec> {
        let token = self.slot_token(self.holder().slot);
        self.keep_over_exec(self.prepare(token)?)
    }

    /// As [`Pool::before_exec`], with these open files alone: one mention for each descriptor.
    pub(crate) fn before_exec_with(&self, files: &[FileId]) -> Result<ForExec> {
        let token = self.slot_token(self.holder().slot);
        self.keep_over_exec(self.prepare_files(token, files)?)
    }

    /// As [`Pool::before_exec_with`], for a child that shares this process's memory until then: an owner of locks of its own,
    /// which keeps what it has locked as `owner`.
    pub(crate) fn before_exec_of_guest(
        &self,
        files: &[FileId],
        owner: LockOwner,
    ) -> Result<ForExec> {
        let ForExec(successor, _) = self.keep_over_exec(self.prepare_files(0, files)?)?;
        let before = self.lock_owner(owner);
        let after = Owner {
            token: self.slot_token(successor.holder.slot),
            id: 0,
            ..before
        };
        self.rename_locks(before, after, successor.holder.slot);
        Ok(ForExec(successor, Some(Heirloom { before, after })))
    }

    fn prepare_files(&self, token: u64, files: &[FileId]) -> Result<Successor> {
        let mut things = Vec::new();
        for (at, file) in files.iter().enumerate() {
            things.push((Thing::File(file.index()), 1));
            if !files[..at].contains(file) {
                things.push((Thing::Inode(self.file_state(*file)?.ino), 1));
            }
        }
        self.prepare_with(token, things.into_iter())
    }

    fn keep_over_exec(&self, successor: Successor) -> Result<ForExec> {
        for lock in [&successor.slot, &successor.pool] {
            let kept = lock.keep_over_exec();
            kept.map_err(|source| Error::file("keeping a descriptor over exec", source))?;
        }
        Ok(ForExec(successor, None))
    }

    pub(crate) fn cancel_exec(&self, prepared: ForExec) {
        if let Some(Heirloom { before, after }) = prepared.1 {
            self.rename_locks(after, before, self.holder().slot);
        }
        self.cancel(prepared.0);
    }

    /// Moves into the slot that a program was handed; answers whether there is one.
    pub(crate) fn move_in(&self, path: &Path, handed: &str) -> Result<()> {
        let lost = Err(Error::Invalid(
            &"what was handed over exec: that slot is not there any more",
        ));
        let numbers: Vec<i64> = handed
            .split(':')
            .map_while(|part| part.parse().ok())
            .collect();
        let &[slot, incarnation, first, second] = numbers.as_slice() else {
            return lost;
        };
        let holder = Holder {
            slot: slot as u64,
            incarnation: incarnation as u64,
        };
        let count = self.geometry.slot_count;
        if holder.slot >= count || !self.is_held_as(holder) || !self.slot_locked(holder.slot) {
            return lost;
        }
        let lock = |number: i64| ByteLock::from_exec(path, i32::try_from(number).ok()?);
        let (Some(slot), Some(pool)) = (lock(first), lock(second)) else {
            return lost;
        };
        self.settle(path, Successor { holder, slot, pool })
    }

    /// Makes a slot this address space's own.
    fn settle(&self, path: &Path, successor: Successor) -> Result<()> {
        let locks = vec![successor.slot.settle(path)?, successor.pool.settle(path)?];
        // The old ones are the parent's: dropping them here does nothing to those.
        *self
            .locks
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner) = locks;
        owner::this_thread_lives();
        self.traces.all();
        // The parent tells of its own.
        self.counting.take_reads();
        self.counting.begin_anew();
        self.held_as.store(successor.holder);
        self.rename_slot(successor.holder.slot);
        self.life.store(pmem::life::number(), Ordering::Relaxed);
        Ok(())
    }
}
