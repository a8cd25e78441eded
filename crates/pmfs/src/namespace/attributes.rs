//! setattr: mode (with the access ACL's share of it), owner, group and times in one transaction; a size first,
//! by truncate.

use crate::acl;
use crate::error::Result;
use crate::inode::Inode;
use crate::lane::{Claim, Lane};
use crate::locks::LockSet;
use crate::persist::{FreshSet, Transaction};
use crate::pool::Pool;
use crate::types::{Attr, Ino, SetAttr, SetTime};
use crate::xattr;
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
        let mut fresh = self.pm.fresh();
        let xattr = self.masked(&lane, &mut fresh, &inode, set.mode)?;
        fresh.until_seal();
        let mut tx = Transaction::begin(&self.pm, &lane);
        let mut hot = inode.hot();
        hot.set_xattr(xattr);
        if let Some(mtime) = set.mtime_ns {
            // The ctime that the flag stood for must not move along.
            hot.0[1] = time(mtime) as u64;
        }
        hot.change(set.ctime_ns.unwrap_or(now));
        debug_assert!(hot.0[0] & CTIME_IS_MTIME == 0);
        let change = inode.log(&mut tx, &hot);
        let mode = set
            .mode
            .map(|mode| (tx.log(inode.off + offset::MODE, 8), inode.mode_word(mode)));
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
            // Reads store the atime without any lock: no proof could speak of it.
            tx.commit();
        } else {
            locks.commit(tx);
        }
        Ok(())
    }

    /// The attributes' word with an access ACL that says what the new mode says, if there is one to change.
    fn masked(
        &self,
        lane: &Lane<'_>,
        fresh: &mut FreshSet<'_>,
        inode: &Inode,
        mode: Option<u32>,
    ) -> Result<u64> {
        let Some(mode) = mode.filter(|_| inode.xattr != 0) else {
            return Ok(inode.xattr);
        };
        let mut attributes = xattr::load(self, inode)?;
        let Some(mut acl) = xattr::acl_of(&attributes, acl::ACCESS, inode.off)? else {
            return Ok(inode.xattr);
        };
        acl.set_mode(mode);
        xattr::put(&mut attributes, acl::ACCESS, Some(acl.encode()));
        lane.work_on(inode);
        self.shadow_xattrs(lane, fresh, inode, &attributes)
    }
}
