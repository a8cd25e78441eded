//! Calls on a file under its lock, or beside another under both.

use super::Work;
use crate::inode::Inode;
use crate::pool::Pool;
use crate::purpose::Claim;
use crate::types::Ino;
use pm_journal::error::Result;
use pm_journal::locks::{LockSet, line_of};

impl Pool {
    /// Runs one change of a regular file's content: under its lock, with a lane of its own. A
    /// change below the root word begins with [`Work::own_node`], once the call's arguments are
    /// known to be right.
    pub fn on_file<T>(
        &self,
        ino: Ino,
        change: impl FnOnce(&mut Work<'_>) -> Result<T>,
    ) -> Result<T> {
        let early = planted!("bug-inode-read-unlocked").then(|| Inode::live_file(self, ino));
        let locks = LockSet::take(self, &[ino]);
        self.on_locked(&locks, ino, true, early, change)
    }

    /// Runs work on a regular file's blocks that leaves its content as it is.
    pub fn on_blocks<T>(
        &self,
        ino: Ino,
        change: impl FnOnce(&mut Work<'_>) -> Result<T>,
    ) -> Result<T> {
        let locks = LockSet::take(self, &[ino]);
        self.on_locked(&locks, ino, false, None, change)
    }

    /// Works as [`Pool::on_file`] on `to`, beside a file `from` that `change` may read as it
    /// stands on the medium; the flag tells that a program has a page of either mapped.
    pub(super) fn on_two_files<T>(
        &self,
        from: Ino,
        to: Ino,
        change: impl FnOnce(&mut Work<'_>, &Inode, bool) -> Result<T>,
    ) -> Result<T> {
        self.writable()?;
        let locks = LockSet::take(self, &[from, to]);
        let line = line_of(self, from);
        self.pages_are_clean(line, from)?;
        let source = Inode::live(self, from)?;
        source.require_file()?;
        self.on_locked(&locks, to, true, None, |work| {
            let is_pinned = work.pinned || self.is_pinned(line, from);
            change(work, &source, is_pinned)
        })
    }

    /// Works as [`Pool::on_file`], with locks that are had already; `early` is the inode as it was
    /// before that. `changes`: what the file shows.
    fn on_locked<T>(
        &self,
        locks: &LockSet<'_>,
        ino: Ino,
        changes: bool,
        early: Option<Result<Inode>>,
        change: impl FnOnce(&mut Work<'_>) -> Result<T>,
    ) -> Result<T> {
        let line = line_of(self, ino);
        self.pages_are_ours(line, ino)?;
        let inode = match early {
            Some(early) => early?,
            None => Inode::live_file(self, ino)?,
        };
        if changes {
            inode.changeable()?;
        }
        let lane = Claim::new(self);
        inode.account_in(&lane);
        change(&mut Work {
            pool: self,
            locks,
            lane: &lane,
            inode,
            now_ns: self.clock.now_ns(),
            pinned: self.is_pinned(line, ino),
        })
    }
}
