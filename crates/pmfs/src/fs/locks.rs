//! Calls on file locks.

use super::Fs;
use crate::types::{FileId, Ino, LockClass, LockInfo, LockKind, LockOwner, LockRange};
use pm_journal::error::Result;

#[allow(clippy::missing_errors_doc)]
impl Fs {
    /// Takes a file lock for an open file (F_OFD_SETLK or flock): it ends with the last descriptor,
    /// whichever process has that.
    pub fn lock_file(
        &self,
        file: FileId,
        class: LockClass,
        kind: LockKind,
        range: LockRange,
    ) -> Result<()> {
        let request = self.pool().file_request(file, class, (kind, range))?;
        self.change(|pool| pool.file_lock(&request))
    }

    /// Locks like [`Fs::lock_file`], but waits as [`Fs::lock_wait`] does.
    pub fn lock_file_wait(
        &self,
        file: FileId,
        class: LockClass,
        kind: LockKind,
        range: LockRange,
        interrupted: &dyn Fn() -> bool,
    ) -> Result<()> {
        let request = self.pool().file_request(file, class, (kind, range))?;
        self.pool().file_lock_wait(&request, interrupted)
    }

    /// The lock in the way of one of an open file; F_OFD_GETLK of `fcntl(2)`.
    pub fn file_lock_conflict(
        &self,
        file: FileId,
        class: LockClass,
        kind: LockKind,
        range: LockRange,
    ) -> Result<Option<LockInfo>> {
        let request = self.pool().file_request(file, class, (kind, range))?;
        self.pool().file_lock_conflict(&request)
    }

    /// Gives up what an open file has of a range.
    pub fn unlock_file(&self, file: FileId, class: LockClass, range: LockRange) -> Result<()> {
        self.store(|pool| {
            let ino = pool.file_state(file)?.ino;
            let owner = pool.file_owner(file.index(), class);
            pool.file_unlock(ino, owner, range)
        })
    }

    /// Takes a file lock, or changes the kind of one that the owner has, if nobody is in the way.
    /// `pid` is what others are told of who has it.
    pub fn lock(
        &self,
        ino: Ino,
        owner: LockOwner,
        kind: LockKind,
        range: LockRange,
        pid: u32,
    ) -> Result<()> {
        let request = self.pool().lock_request(ino, owner, (kind, range), pid);
        self.change(|pool| pool.file_lock(&request))
    }

    /// Locks like [`Fs::lock`], but waits for who is in the way. `interrupted` is asked every few
    /// milliseconds and ends the wait with [`crate::Error::Interrupted`], as does a signal that
    /// this thread handles meanwhile.
    pub fn lock_wait(
        &self,
        ino: Ino,
        owner: LockOwner,
        kind: LockKind,
        range: LockRange,
        pid: u32,
        interrupted: &dyn Fn() -> bool,
    ) -> Result<()> {
        let request = self.pool().lock_request(ino, owner, (kind, range), pid);
        self.pool().file_lock_wait(&request, interrupted)
    }

    /// Gives up what an owner has of a range.
    pub fn unlock(&self, ino: Ino, owner: LockOwner, range: LockRange) -> Result<()> {
        self.store(|pool| pool.unlock_of(ino, owner, range))
    }

    /// Gives up all that an owner has of an inode.
    pub fn unlock_all(&self, ino: Ino, owner: LockOwner) -> Result<()> {
        self.unlock(ino, owner, LockRange::WHOLE)
    }

    /// Gives up all that an owner has of all inodes.
    pub fn end_lock_owner(&self, owner: LockOwner) -> Result<()> {
        self.store(|pool| {
            pool.end_lock_owner(owner);
            Ok(())
        })
    }

    /// The lock in the way of another; F_GETLK of `fcntl(2)`.
    pub fn lock_conflict(
        &self,
        ino: Ino,
        owner: LockOwner,
        kind: LockKind,
        range: LockRange,
    ) -> Result<Option<LockInfo>> {
        let request = self.pool().lock_request(ino, owner, (kind, range), 0);
        self.pool().file_lock_conflict(&request)
    }
}
