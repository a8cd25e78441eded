//! The flag of a snapshot's inodes: they do not change while they have it.
//!
//! All that a directory with the flag leads to has it. It is set from the leaves up, in a tree that
//! has no name yet where users look, and cleared from the top down in one that has none any more.

use super::rename::How;
use crate::inode::Inode;
use crate::pool::Pool;
use crate::purpose::Claim;
use crate::types::{Ino, RenameFlags};
use pm_journal::Transaction;
use pm_journal::error::Result;
use pm_journal::locks::LockSet;
use pmfs_format::InodeRaw;

impl Pool {
    /// Returns whether an inode has the flag.
    ///
    /// # Errors
    /// [`pm_journal::error::Error::Stale`]: there is no such number.
    pub(crate) fn is_of_snapshot(&self, ino: Ino) -> Result<bool> {
        Ok(Inode::load(self, ino)?.is_of_snapshot())
    }

    /// Sets or clears the flag of one inode. Its times stay.
    ///
    /// # Errors
    /// Those of a change.
    pub fn set_of_snapshot(&self, ino: Ino, is_of_one: bool) -> Result<()> {
        self.writable()?;
        let locks = LockSet::take(self, &[ino]);
        let inode = Inode::live(self, ino)?;
        if is_of_one && inode.is_dir() && planted!("bug-snapshot-directory-left-open") {
            return Ok(());
        }
        let mut hot = inode.hot();
        hot.set_of_snapshot(is_of_one);
        if planted!("bug-snapshot-flags-unflushed") {
            let off = InodeRaw::links.of(inode.off);
            self.pm
                .lazy_word(self.note_lazy(ino), off, hot.links_word());
            return Ok(());
        }
        let lane = Claim::new(self);
        let mut tx = Transaction::begin(&lane);
        let change = inode.log(&mut tx, &hot);
        let mut tx = tx.seal();
        locks.change();
        change.apply(&mut tx);
        locks.commit(tx);
        Ok(())
    }

    /// Moves the directory at the top of a snapshot to a name that is free.
    ///
    /// # Errors
    /// Those of a rename.
    pub fn move_snapshot(&self, from: (Ino, &[u8]), to: (Ino, &[u8])) -> Result<()> {
        let how = How {
            flags: RenameFlags::NOREPLACE,
            moves_snapshots: true,
            ..How::default()
        };
        self.rename(from, to, how, None)
    }
}
