//! Handing an attachment on: to a forked child, and to the program that a process becomes by exec
//! (docs/adr/0026-fork-exec-threads.md).
//!
//! A successor gets a reference to all that this process has open, in a slot of its own
//! ([`pmshare::inherit`]).

use crate::open::file_lock::Owner;
use crate::pool::Pool;
use crate::recovery::close_for;
use crate::tables::open_table::Thing;
use crate::types::{FileId, LockOwner};
use pm_journal::error::Result;
use pmshare::inherit::Successor;
use std::fmt;

/// A slot taken for a child.
#[derive(Debug)]
pub struct ForFork(Successor);

/// A slot taken for a program, and the process whose locks it was given, if not this one. The text
/// form is the argument that the program needs.
#[derive(Debug)]
pub struct ForExec(Successor, Option<Heirloom>);

/// Locks of one owner of this process, which are a successor's.
#[derive(Debug)]
struct Heirloom {
    before: Owner,
    after: Owner,
}

impl fmt::Display for ForExec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Pool {
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
        let _entry = self.lock_to_prepare(&path)?;
        let successor = self.reserve(&path)?;
        self.mark_slot(successor.holder, token);
        for (thing, count) in things {
            let added = self.open_add_for(successor.holder.slot, thing, count);
            if let Err(error) = added {
                self.cancel(successor);
                return Err(error);
            }
        }
        Ok(successor)
    }

    /// Gives back a slot that the program did not take over.
    fn cancel(&self, successor: Successor) {
        let slot = successor.holder.slot;
        if !planted!("bug-child-cancelled-with-files") {
            close_for(self, slot);
        }
        self.free_slot(slot);
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
        Ok(self.adopt(&path, prepared.0)?)
    }

    pub(crate) fn before_exec(&self) -> Result<ForExec> {
        let token = self.slot_token(self.holder().slot);
        kept(self.prepare(token)?)
    }

    /// Prepares like [`Pool::before_exec`], with these open files alone: one mention for each
    /// descriptor.
    pub(crate) fn before_exec_with(&self, files: &[FileId]) -> Result<ForExec> {
        let token = self.slot_token(self.holder().slot);
        kept(self.prepare_files(token, files)?)
    }

    /// Prepares like [`Pool::before_exec_with`], for a child that shares this process's memory
    /// until then: an owner of locks of its own, which keeps what it has locked as `owner`.
    pub(crate) fn before_exec_of_guest(
        &self,
        files: &[FileId],
        owner: LockOwner,
    ) -> Result<ForExec> {
        let ForExec(successor, _) = kept(self.prepare_files(0, files)?)?;
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

    pub(crate) fn cancel_exec(&self, prepared: ForExec) {
        if let Some(Heirloom { before, after }) = prepared.1 {
            self.rename_locks(after, before, self.holder().slot);
        }
        self.cancel(prepared.0);
    }
}

/// A slot that is kept over exec.
fn kept(successor: Successor) -> Result<ForExec> {
    successor.keep_over_exec()?;
    Ok(ForExec(successor, None))
}
