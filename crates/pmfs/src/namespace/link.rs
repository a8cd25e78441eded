//! link: one more name for a file.

use super::{find, named_dir, with_links, with_names};
use crate::dir::bucket::{HeaderEdit, kind_of};
use crate::dir::{Name, bucket_of, split};
use crate::inode::Inode;
use crate::pool::Pool;
use crate::purpose::Claim;
use crate::types::{Attr, Ino};
use pm_journal::Transaction;
use pm_journal::error::{Error, Result};
use pm_journal::locks::LockSet;
use pmfs_format::inode::{FLAG_LINKABLE, LINKS_MAX};

impl Pool {
    /// Gives `ino` the name `name` in `dir`.
    pub(crate) fn link(&self, ino: Ino, dir: Ino, name: &[u8]) -> Result<Attr> {
        self.writable()?;
        let name = match name {
            b"." | b".." => return Err(Error::Exists),
            _ => Name::new(self, name)?,
        };
        let locks = LockSet::take(self, &[dir, ino]);
        let parent = named_dir(self, dir)?;
        let inode = Inode::live(self, ino)?;
        inode.changeable()?;
        if find(self, &parent, &name)?.is_some() {
            return Err(Error::Exists);
        }
        if inode.is_dir() {
            return Err(Error::NotPermitted(&"directories have one name"));
        }
        if inode.links == 0 && inode.flags & FLAG_LINKABLE == 0 {
            return Err(Error::NotFound);
        }
        if inode.links >= LINKS_MAX {
            return Err(Error::TooManyLinks);
        }
        let lane = Claim::new(self);
        let parent = split::make_room(self, &lane, &locks, parent, name.hash, name.bytes.len())?
            .unwrap_or(parent);
        let now = self.clock.now_ns();
        let mut fresh = self.pm.fresh();
        let mut header = HeaderEdit::of(self, bucket_of(self, &parent.tree(), name.hash)?);
        header.insert(&mut fresh, ino, kind_of(inode.mode), name.hash, name.bytes);
        fresh.until_seal();

        let mut tx = Transaction::begin(&lane);
        let logged = header.log(&mut tx);
        let named = parent.log(&mut tx, &with_names(&parent, 1, false, now));
        let target = inode.log(&mut tx, &with_links(&inode, inode.links + 1, now));
        let mut tx = tx.seal();
        locks.change();
        logged.apply(&mut tx);
        named.apply(&mut tx);
        target.apply(&mut tx);
        locks.commit(tx);
        Ok(self.attr_of(&Inode::load(self, ino)?))
    }
}
