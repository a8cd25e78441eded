//! setattr: mode, owner, group and times in one transaction; a size first, by truncate.

use super::Change;
use crate::error::Result;
use crate::inode::Inode;
use crate::lane::Claim;
use crate::locks::LockSet;
use crate::persist::Transaction;
use crate::pool::Pool;
use crate::types::{Attr, Ino, SetAttr, SetTime};
use pmfs_format::inode::{CTIME_IS_MTIME, offset};

impl Pool {
    /// Changes attributes. Size and the rest are two steps, each all or nothing.
    pub(crate) fn setattr(&self, ino: Ino, set: &SetAttr) -> Result<Attr> {
        self.writable()?;
        if let Some(size) = set.size {
            self.truncate(ino, size)?;
        }
        let others = set.mode.is_some()
            || set.uid.is_some()
            || set.gid.is_some()
            || set.atime_ns.is_some()
            || set.mtime_ns.is_some()
            || set.ctime_ns.is_some();
        if others {
            self.set_words(ino, set)?;
        }
        self.getattr(ino)
    }

    fn set_words(&self, ino: Ino, set: &SetAttr) -> Result<()> {
        let locks = LockSet::take(self, &[ino]);
        let inode = Inode::live(self, ino)?;
        let now = self.clock.now_ns();
        let time = |set| match set {
            SetTime::Now => now,
            SetTime::At(ns) => ns,
        };
        let [atime, owner] = self.pm.read::<2>(inode.off + offset::ATIME);
        let uid = set.uid.unwrap_or(owner as u32);
        let gid = set.gid.unwrap_or((owner >> 32) as u32);
        let lane = Claim::new(self);
        let mut tx = Transaction::begin(&self.pm, &lane);
        let mut change = Change::log(&mut tx, &inode);
        if let Some(mtime) = set.mtime_ns {
            // The ctime that the flag stood for must not move along.
            change.hot.0[1] = time(mtime) as u64;
        }
        change.hot.change(set.ctime_ns.unwrap_or(now));
        let mode = set.mode.map(|mode| {
            let word = u64::from(inode.kind() | mode & 0o7777) | u64::from(inode.generation) << 32;
            (tx.log(inode.off + offset::MODE, 8), word)
        });
        let cold = (set.uid.is_some() || set.gid.is_some() || set.atime_ns.is_some())
            .then(|| tx.log(inode.off + offset::ATIME, 16));
        let mut tx = tx.seal();
        locks.change();
        change.apply(&mut tx);
        if let Some((range, word)) = mode {
            tx.set(&range, 0, word);
        }
        if let Some(range) = cold {
            tx.set(&range, 0, set.atime_ns.map_or(atime, |at| time(at) as u64));
            tx.set(&range, 1, u64::from(uid) | u64::from(gid) << 32);
        }
        tx.commit();
        debug_assert!(change.hot.0[0] & CTIME_IS_MTIME == 0);
        Ok(())
    }
}
