//! Calls on file locks.

use super::Fs;
use crate::types::{FileId, Ino, LockClass, LockInfo, LockKind, LockOwner, LockRange};
use pm_journal::error::Result;

#[allow(clippy::missing_errors_doc)]
impl Fs {
    /// Takes a lock for an open file (F_OFD_SETLK or flock). It ends with the open file's last
    /// descriptor, in any process.
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

    /// Locks as [`Fs::lock_file`] does, and waits as [`Fs::lock_wait`] does.
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

    /// The lock that conflicts with one of an open file: F_OFD_GETLK of `fcntl(2)`.
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

    /// Releases an open file's locks in a range.
    pub fn unlock_file(&self, file: FileId, class: LockClass, range: LockRange) -> Result<()> {
        self.store(|pool| {
            let ino = pool.file_state(file)?.ino;
            let owner = pool.file_owner(file.index(), class);
            pool.file_unlock(ino, owner, range)
        })
    }

    /// Takes a lock, or changes the kind of the owner's lock, unless another lock conflicts. `pid`
    /// is the process id that others see.
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

    /// Locks as [`Fs::lock`] does, and waits for conflicting locks. `interrupted` is called every
    /// few milliseconds; if it returns true, or this thread handles a signal, the wait ends with
    /// [`crate::Error::Interrupted`].
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

    /// Releases an owner's locks in a range.
    pub fn unlock(&self, ino: Ino, owner: LockOwner, range: LockRange) -> Result<()> {
        self.store(|pool| pool.unlock_of(ino, owner, range))
    }

    /// Releases all of an owner's locks on an inode.
    pub fn unlock_all(&self, ino: Ino, owner: LockOwner) -> Result<()> {
        self.unlock(ino, owner, LockRange::WHOLE)
    }

    /// Releases all of an owner's locks on all inodes.
    pub fn end_lock_owner(&self, owner: LockOwner) -> Result<()> {
        self.store(|pool| {
            pool.end_lock_owner(owner);
            Ok(())
        })
    }

    /// The lock that conflicts with another: F_GETLK of `fcntl(2)`.
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
