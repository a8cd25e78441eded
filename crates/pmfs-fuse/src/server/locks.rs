//! Open files and their locks.
//!
//! The kernel knows two kinds of lock request: flock(2), and ranges, whose owner is a
//! process (POSIX) or an open file (OFD); which of the two it does not say. Ranges of
//! both are the engine's POSIX ranges here, told apart by the owner's number, so a
//! circle of waiting open files is answered EDEADLK, too.

use std::sync::atomic::Ordering;

use pmfs::{Attr, Error, FileId, LockClass, LockInfo, LockKind, LockOwner, LockRange, Result};

use super::handles::{Access, Handles};
use super::{Server, ino_of};

/// A lock as the kernel asks for it.
#[derive(Clone, Copy, Debug)]
pub struct LockRequest {
    /// The inode's number.
    pub node: u64,
    /// The open file that it comes through.
    pub handle: u64,
    /// The owner that it is to have.
    pub owner: u64,
    /// True for flock(2).
    pub flock: bool,
    /// The range that it covers.
    pub range: LockRange,
    /// The kind of lock; `None` gives up.
    pub kind: Option<LockKind>,
    /// The process that asks, for others to be told.
    pub pid: u32,
}

impl LockRequest {
    fn owner(&self) -> LockOwner {
        if self.flock {
            flock_owner(self.owner)
        } else {
            range_owner(self.owner)
        }
    }
}

fn range_owner(id: u64) -> LockOwner {
    LockOwner {
        class: LockClass::Posix,
        id,
    }
}

fn flock_owner(id: u64) -> LockOwner {
    LockOwner {
        class: LockClass::Flock,
        id,
    }
}

impl Server {
    /// OPEN and OPENDIR: the inode stays until the RELEASE, even if it is unlinked. Returns the
    /// number for the kernel.
    ///
    /// # Errors
    /// Those of the engine's call; [`Error::Stale`] if the number is another file's by now;
    /// [`Error::PagesElsewhere`] if it can be mapped to be stored to.
    pub fn open(&self, node: u64, access: Access) -> Result<u64> {
        let attr = self.fs.hold(ino_of(node))?;
        if !self.known.see(attr.ino, attr.generation, attr.size) {
            self.release(attr.ino);
            return Err(Error::Stale);
        }
        if access != Access::Reading && self.fs.is_of_snapshot(attr.ino).unwrap_or(false) {
            self.release(attr.ino);
            return Err(Error::OfSnapshot);
        }
        if let Err(error) = self.count_handle(attr.ino, access) {
            self.release(attr.ino);
            return Err(error);
        }
        Ok(self.handles.number(access))
    }

    /// The access of the open file of that number.
    #[must_use]
    pub fn access(handle: u64) -> Access {
        Handles::access(handle)
    }

    /// Opens as [`Server::open`] does, an inode just made: if that fails the kernel is not told of
    /// it.
    ///
    /// # Errors
    /// Those of [`Server::open`].
    pub(super) fn open_new(&self, attr: Attr, access: Access) -> Result<(Attr, u64)> {
        match self.open(attr.ino, access) {
            Ok(handle) => Ok((attr, handle)),
            Err(error) => {
                self.forget(attr.ino, 1);
                Err(error)
            }
        }
    }

    /// RELEASE and RELEASEDIR: an open file is no more.
    ///
    /// # Errors
    /// Those of the engine's calls; nothing of it is left undone that can be done.
    pub fn close_file(&self, node: u64, handle: u64) -> Result<()> {
        let ino = ino_of(node);
        let mut outcome = Ok(());
        self.handles.close(ino, handle, |owner, range| {
            let unlocked = self.fs.unlock(ino, owner, range);
            outcome = std::mem::replace(&mut outcome, Ok(())).and(unlocked);
        });
        outcome = outcome.and(self.stop_following(self.following.remove(handle)));
        outcome = outcome.and(self.uncount_handle(ino, handle));
        self.release(ino);
        outcome
    }

    /// FLUSH: a process has closed one of its descriptors of the file, which ends its POSIX locks.
    ///
    /// # Errors
    /// Those of the engine's call; so for all below.
    pub fn flush(&self, node: u64, owner: u64) -> Result<()> {
        let ino = ino_of(node);
        let owner = range_owner(owner);
        self.handles.forget(ino, owner);
        self.fs.unlock_all(ino, owner)
    }

    /// The open file whose flock is asked for: its lock is every descriptor's that stands for it.
    fn flock_of(&self, asked: &LockRequest) -> Option<FileId> {
        let follower = self.following.get(asked.handle)?;
        asked.flock.then_some(follower.file)
    }

    /// GETLK: what would be in the way.
    pub fn lock_conflict(&self, asked: &LockRequest) -> Result<Option<LockInfo>> {
        let kind = asked.kind.ok_or(Error::Invalid(&"the kind of a lock"))?;
        let ino = ino_of(asked.node);
        self.fs.lock_conflict(ino, asked.owner(), kind, asked.range)
    }

    /// SETLK, and the first try of SETLKW: [`Error::WouldBlock`] if another lock conflicts.
    pub fn lock(&self, asked: &LockRequest) -> Result<()> {
        let (ino, owner) = (ino_of(asked.node), asked.owner());
        if let Some(file) = self.flock_of(asked) {
            return match asked.kind {
                Some(kind) => self.fs.lock_file(file, LockClass::Flock, kind, asked.range),
                None => self.fs.unlock_file(file, LockClass::Flock, asked.range),
            };
        }
        let lock = (owner, asked.range);
        let Some(kind) = asked.kind else {
            self.handles.unnote(ino, owner, asked.range);
            let unlocked = self.fs.unlock(ino, owner, asked.range);
            if unlocked.is_err() {
                self.handles.note(ino, asked.handle, lock);
            }
            return unlocked;
        };
        self.handles.note(ino, asked.handle, lock);
        self.fs.lock(ino, owner, kind, asked.range, asked.pid)
    }

    /// The rest of SETLKW: waits until no lock conflicts, until `interrupted` says so, or to the
    /// end of the mount.
    pub fn lock_wait(&self, asked: &LockRequest, interrupted: &dyn Fn() -> bool) -> Result<()> {
        let kind = asked.kind.ok_or(Error::Invalid(&"the kind of a lock"))?;
        let ends = || interrupted() || self.ending.load(Ordering::SeqCst);
        let (ino, owner) = (ino_of(asked.node), asked.owner());
        let waited = match self.flock_of(asked) {
            Some(file) => self
                .fs
                .lock_file_wait(file, LockClass::Flock, kind, asked.range, &ends),
            None => self
                .fs
                .lock_wait(ino, owner, kind, asked.range, asked.pid, &ends),
        };
        match waited {
            // Without a signal the kernel must not be told of one.
            Err(Error::Interrupted) if !interrupted() => Err(Error::ShutDown),
            other => other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{made, server};
    use super::*;

    /// Goal: the end of an open file that is served late takes no lock of the file that was opened
    /// after it, for which the kernel has the same number of an owner; but what it alone has
    /// locked.
    #[test]
    fn a_late_end_takes_no_lock_of_the_next_open_file() {
        let dir = tempfile::tempdir_in("/dev/shm").unwrap();
        let server = server(&dir);
        let node = made(&server, b"file");
        for flock in [false, true] {
            let [first, second, third] = [(); 3].map(|()| server.open(node, Access::Both).unwrap());
            let asked = |handle, owner, start, end| LockRequest {
                node,
                handle,
                owner,
                flock,
                range: LockRange { start, end },
                kind: Some(LockKind::Write),
                pid: 0,
            };
            let whole = |handle, owner| asked(handle, owner, 0, u64::MAX);
            server.lock(&whole(first, 5)).unwrap();
            match flock {
                true => server.lock(&whole(second, 5)).unwrap(),
                false => server.lock(&asked(second, 5, 10, 19)).unwrap(),
            }
            server.close_file(node, first).unwrap();
            if !flock {
                server.lock(&asked(third, 6, 20, 29)).unwrap();
            }
            let other = server.lock(&asked(third, 6, 10, 10));
            assert!(matches!(other, Err(Error::WouldBlock)), "{other:?}");
            server.close_file(node, second).unwrap();
            server.lock(&asked(third, 6, 10, 10)).unwrap();
            server.close_file(node, third).unwrap();
        }
    }
}
