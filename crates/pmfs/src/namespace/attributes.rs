//! setattr: mode (with the access ACL's share of it), owner, group and times in one transaction; a
//! size first, by truncate.

use crate::inode::Inode;
use crate::inode::acl;
use crate::inode::xattr;
use crate::pool::Pool;
use crate::purpose::{Claim, Lane};
use crate::types::{Attr, Ino, SetAttr, SetTime};
use pm_journal::Transaction;
use pm_journal::error::Result;
use pm_journal::locks::LockSet;
use pm_store::FreshSet;
use pmfs_format::InodeRaw;
use pmfs_format::inode::CTIME_IS_MTIME;

impl Pool {
    /// Changes attributes. Size and the rest are two steps, each all or nothing.
    pub(crate) fn setattr(&self, ino: Ino, set: &SetAttr) -> Result<Attr> {
        self.writable()?;
        if let Some(size) = set.size {
            self.truncate(ino, size)?;
        }
        if set.has_words() {
            self.set_words(ino, &|_| *set)?;
        }
        self.getattr(ino)
    }

    /// See [`crate::Fs::setattr_by`].
    pub(crate) fn setattr_by(&self, ino: Ino, change: &dyn Fn(&Attr) -> SetAttr) -> Result<Attr> {
        self.writable()?;
        self.set_words(ino, change)?;
        self.getattr(ino)
    }

    fn set_words(&self, ino: Ino, change: &dyn Fn(&Attr) -> SetAttr) -> Result<()> {
        let locks = LockSet::take(self, &[ino]);
        let inode = Inode::live(self, ino)?;
        inode.changeable()?;
        let set = change(&self.attr_of(&inode));
        if !set.has_words() {
            return Ok(());
        }
        let now = self.clock.now_ns();
        let time = |set| match set {
            SetTime::Now => now,
            SetTime::At(ns) => ns,
        };
        let [atime, owner] = self.pm.read::<2>(InodeRaw::atime_ns.of(inode.off));
        let uid = set.uid.unwrap_or(owner as u32);
        let gid = set.gid.unwrap_or((owner >> 32) as u32);
        let lane = Claim::new(self);
        let mut fresh = self.pm.fresh();
        let xattr = self.masked(&lane, &mut fresh, &inode, set.mode)?;
        fresh.until_seal();
        let mut tx = Transaction::begin(&lane);
        let mut hot = inode.hot();
        hot.set_xattr(xattr);
        if let Some(mtime) = set.mtime_ns {
            // The ctime that the flag stood for must not move along.
            hot.0[1] = time(mtime) as u64;
        }
        hot.change(set.ctime_ns.unwrap_or(now));
        debug_assert!(hot.0[0] & CTIME_IS_MTIME == 0);
        let change = inode.log(&mut tx, &hot);
        let mode = set.mode.map(|mode| {
            (
                tx.log(InodeRaw::mode.of(inode.off), 8),
                inode.mode_word(mode),
            )
        });
        let cold = (set.uid.is_some() || set.gid.is_some() || set.atime_ns.is_some())
            .then(|| tx.log(InodeRaw::atime_ns.of(inode.off), 16));
        let mut tx = tx.seal();
        locks.change();
        change.apply(&mut tx);
        if let Some((range, word)) = mode {
            tx.set(&range, 0, word);
        }
        if let Some(range) = cold {
            tx.set(&range, 0, set.atime_ns.map_or(atime, |at| time(at) as u64));
            tx.set(&range, 1, u64::from(uid) | u64::from(gid) << 32);
            // Reads store the atime without any lock: no commit checksum can cover it.
            tx.commit();
        } else {
            locks.commit(tx);
        }
        Ok(())
    }

    /// The attributes' word with an access ACL that says what the new mode says, if there is one to
    /// change.
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
        inode.account_in(lane);
        self.shadow_xattrs(lane, fresh, inode, &attributes)
    }
}

#[cfg(test)]
mod tests {
    use crate::scratch::{NODE, Scratch};
    use crate::types::mode::{S_ISGID, S_ISUID};
    use crate::{ROOT_INO, SetAttr};
    use std::sync::mpsc;
    use std::time::Duration;

    fn mode(bits: u32) -> SetAttr {
        SetAttr {
            mode: Some(bits),
            ..SetAttr::default()
        }
    }

    /// Goal: the bits taken away are those of the mode at that moment, with no change in between.
    /// Method: a chmod to fewer bits that begins when the mode has been read, and may end only
    /// after the change that follows.
    #[test]
    fn nobody_comes_between_a_look_and_its_change() {
        let scratch = Scratch::new(16 << 20);
        let fs = scratch.open();
        let ino = fs.create(ROOT_INO, b"file", &NODE).unwrap().ino;
        fs.setattr(ino, &mode(0o6775)).unwrap();
        let (told, ends) = mpsc::channel();
        let fs = &fs;
        std::thread::scope(|scope| {
            let less = |now: &crate::Attr| {
                let told = told.clone();
                scope.spawn(move || {
                    fs.setattr(ino, &mode(0o700)).unwrap();
                    told.send(()).unwrap();
                });
                let early = ends.recv_timeout(Duration::from_millis(50));
                assert!(early.is_err(), "the other came between");
                mode(now.mode & !(S_ISUID | S_ISGID))
            };
            fs.setattr_by(ino, &less).unwrap();
        });
        assert_eq!(fs.getattr(ino).unwrap().mode & 0o7777, 0o700);
    }

    #[test]
    fn nothing_to_change_is_no_change() {
        let scratch = Scratch::new(16 << 20);
        let fs = scratch.open();
        let before = fs.create(ROOT_INO, b"file", &NODE).unwrap();
        let after = fs.setattr_by(before.ino, &|now| {
            assert_eq!(*now, before);
            SetAttr::default()
        });
        assert_eq!(after.unwrap(), before);
        assert!(fs.setattr_by(99, &|_| SetAttr::default()).is_err());
    }
}
