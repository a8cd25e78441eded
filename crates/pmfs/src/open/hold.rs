//! Held inodes: they outlive their last name, and the last holder frees them.

use crate::inode::Inode;
use crate::pool::Pool;
use crate::purpose::Claim;
use crate::resolve::intend_reclaim;
use crate::tables::open_table::Thing;
use crate::types::{Attr, Ino};
use pm_journal::error::{Error, Result};
use pm_journal::locks::LockSet;
use pm_space::Bitmap;

impl Pool {
    /// Adds a holder of `ino`.
    pub(crate) fn hold(&self, ino: Ino) -> Result<Attr> {
        self.alive()?;
        // A number without an inode must not get into the table, where it would not fit its word.
        self.inode_off(ino)?;
        self.open_add(Thing::Inode(ino))?;
        let held = Inode::load(self, ino).map(|inode| {
            if inode.links > 0 {
                return true;
            }
            // An inode without links lives while its number is in use; nobody frees it under the
            // lock.
            let _locks = LockSet::take(self, &[ino]);
            Bitmap::inodes(self).is_set(ino)
        });
        if !matches!(held, Ok(true)) {
            self.open_remove(Thing::Inode(ino))?;
            return Err(Error::Stale);
        }
        let attr = self.getattr(ino);
        if attr.is_err() {
            self.open_remove(Thing::Inode(ino))?;
        }
        attr
    }

    /// Removes a holder. The last one of an unlinked file frees it.
    pub(crate) fn release(&self, ino: Ino) -> Result<()> {
        self.alive()?;
        let locks = LockSet::take(self, &[ino]);
        let inode = Inode::load(self, ino)?;
        if inode.links > 0 || !self.open_is_last(ino) {
            self.open_remove(Thing::Inode(ino))?;
            return Ok(());
        }
        let lane = Claim::new(self);
        intend_reclaim(&lane, ino)?;
        locks.change();
        self.open_remove(Thing::Inode(ino))?;
        Ok(())
    }
}
