//! Requests about names: finding, making, moving and removing them, and forgetting inodes.

use std::time::Duration;

use pmfs::{Attr, DirEntry, Error, INODE_NAME, Ino};
use rustix::fs::OFlags;
use zerocopy::{FromZeros, Immutable, IntoBytes};

use super::content::access;
use super::dispatch::{Adapter, Answer, Refusal};
use super::translate::{absent, caller, entry, new_node, within_a_file};
use crate::server::{Access, Server};
use crate::wire::message::Body;
use crate::wire::reply::{Dirent, DirentPlus, EntryOut, OpenOut, PAST_PAGES, Reply};
use crate::wire::request::{
    BatchForgetIn, CreateIn, ForgetIn, ForgetOne, InHeader, LinkIn, MkdirIn, MknodIn, ReadIn,
    Rename2In, RenameIn,
};

/// Bits of a mode above the permissions: the type, as `readdir(3)` gives it.
const TYPE_SHIFT: u32 = 12;

/// Returns whether a file that is there is an error.
fn is_exclusive(flags: u32) -> bool {
    OFlags::from_bits_retain(flags).contains(OFlags::EXCL)
}

impl Adapter {
    pub(super) fn lookup(
        &self,
        header: &InHeader,
        mut body: Body<'_>,
        reply: &mut Reply,
    ) -> Answer {
        let name = body.name()?;
        if let Some(ino) = by_number(header, name) {
            let found = self.run(|server| server.lookup_number(ino))?;
            reply.put(&entry(&found, Duration::ZERO));
            return Ok(());
        }
        match self.run(|server| server.lookup(header.nodeid, name)) {
            Ok(found) => self.put_entry(reply, &found),
            Err(Refusal::Engine(Error::NotFound)) => return self.put_absent(reply),
            Err(refusal) => return Err(refusal),
        }
        Ok(())
    }

    pub(super) fn forget(&self, header: &InHeader, mut body: Body<'_>) -> Answer {
        let ForgetIn { nlookup } = body.take()?;
        self.run(|server| {
            server.forget(header.nodeid, nlookup);
            Ok(())
        })
    }

    pub(super) fn batch_forget(&self, mut body: Body<'_>) -> Answer {
        let BatchForgetIn { count, .. } = body.take()?;
        for _ in 0..count {
            let ForgetOne { nodeid, nlookup } = body.take()?;
            self.run(|server| {
                server.forget(nodeid, nlookup);
                Ok(())
            })?;
        }
        Ok(())
    }

    pub(super) fn create(
        &self,
        header: &InHeader,
        mut body: Body<'_>,
        reply: &mut Reply,
    ) -> Answer {
        let CreateIn {
            flags, mode, umask, ..
        } = body.take()?;
        let name = body.name()?;
        let new = new_node(header, mode & 0o7777, umask);
        let access = access(flags);
        let made = self.run(|server| server.create(header.nodeid, name, &new, access));
        let (made, handle) = made.map_err(|refusal| match refusal {
            // A process beside this mount has made it since the kernel looked. ESTALE makes the
            // kernel look again, and check the permission to open it.
            Refusal::Engine(Error::Exists) if !is_exclusive(flags) => Error::Stale.into(),
            other => other,
        })?;
        self.put_entry(reply, &made);
        self.put_opened(reply, handle);
        Ok(())
    }

    pub(super) fn tmpfile(
        &self,
        header: &InHeader,
        mut body: Body<'_>,
        reply: &mut Reply,
    ) -> Answer {
        // A name follows that means nothing.
        let CreateIn {
            flags, mode, umask, ..
        } = body.take()?;
        let new = new_node(header, mode & 0o7777, umask);
        let access = access(flags);
        let (made, handle) = self.run(|server| server.tmpfile(header.nodeid, &new, access))?;
        self.put_entry(reply, &made);
        self.put_opened(reply, handle);
        Ok(())
    }

    pub(super) fn mknod(&self, header: &InHeader, mut body: Body<'_>, reply: &mut Reply) -> Answer {
        let asked: MknodIn = body.take()?;
        let name = body.name()?;
        let new = new_node(header, asked.mode, asked.umask);
        let made = self.run(|server| server.mknod(header.nodeid, name, &new, asked.rdev))?;
        self.put_entry(reply, &made);
        Ok(())
    }

    pub(super) fn mkdir(&self, header: &InHeader, mut body: Body<'_>, reply: &mut Reply) -> Answer {
        let MkdirIn { mode, umask } = body.take()?;
        let name = body.name()?;
        let new = new_node(header, mode, umask);
        let made = self.run(|server| server.mkdir(header.nodeid, name, &new))?;
        self.put_entry(reply, &made);
        Ok(())
    }

    pub(super) fn symlink(
        &self,
        header: &InHeader,
        mut body: Body<'_>,
        reply: &mut Reply,
    ) -> Answer {
        let name = body.name()?;
        let target = body.name()?;
        let new = new_node(header, 0o777, 0);
        let made = self.run(|server| server.symlink(header.nodeid, name, target, &new))?;
        self.put_entry(reply, &made);
        Ok(())
    }

    pub(super) fn link(&self, header: &InHeader, mut body: Body<'_>, reply: &mut Reply) -> Answer {
        let LinkIn { oldnodeid } = body.take()?;
        let name = body.name()?;
        let linked = self.run(|server| server.link(oldnodeid, header.nodeid, name))?;
        self.put_entry(reply, &linked);
        Ok(())
    }

    pub(super) fn unlink(&self, header: &InHeader, mut body: Body<'_>) -> Answer {
        let name = body.name()?;
        self.run(|server| server.unlink(header.nodeid, name))
    }

    pub(super) fn rmdir(&self, header: &InHeader, mut body: Body<'_>) -> Answer {
        let name = body.name()?;
        self.run(|server| server.rmdir(header.nodeid, name))
    }

    pub(super) fn rename(&self, header: &InHeader, mut body: Body<'_>) -> Answer {
        let RenameIn { newdir } = body.take()?;
        self.rename_to(header, newdir, 0, body)
    }

    pub(super) fn rename2(&self, header: &InHeader, mut body: Body<'_>) -> Answer {
        let Rename2In { newdir, flags, .. } = body.take()?;
        self.rename_to(header, newdir, flags, body)
    }

    fn rename_to(&self, header: &InHeader, newdir: u64, flags: u32, mut body: Body<'_>) -> Answer {
        let from = (header.nodeid, body.name()?);
        let to = (newdir, body.name()?);
        self.run(|server| server.rename(from, to, flags, &caller(header)))
    }

    pub(super) fn readlink(&self, header: &InHeader, reply: &mut Reply) -> Answer {
        let target = self.run(|server| server.readlink(header.nodeid))?;
        reply.append(&target);
        Ok(())
    }

    pub(super) fn opendir(&self, header: &InHeader, reply: &mut Reply) -> Answer {
        let fh = self.run(|server| server.open(header.nodeid, Access::Reading))?;
        reply.put(&OpenOut {
            fh,
            open_flags: 0,
            padding: 0,
        });
        Ok(())
    }

    pub(super) fn readdir(&self, header: &InHeader, body: Body<'_>, reply: &mut Reply) -> Answer {
        self.list(header, body, reply, |_, found| dirent(found))
    }

    /// READDIR with each name looked up, if the mount has the lease: else it would be asked for
    /// again, or stand for another file by then.
    pub(super) fn readdirplus(
        &self,
        header: &InHeader,
        body: Body<'_>,
        reply: &mut Reply,
    ) -> Answer {
        let ttl = self.server.term(&mut reply.grant);
        self.list(header, body, reply, |server, found| {
            let known = (!ttl.is_zero())
                .then(|| server.looked_up(header.nodeid, found))
                .flatten();
            DirentPlus {
                entry: known.map_or_else(EntryOut::new_zeroed, |attr| entry(&attr, ttl)),
                dirent: dirent(found),
            }
        })
    }

    /// Puts down entries by `entry` while there is room. The entries before an error are answered:
    /// some may have been looked up, and only answered ones are forgotten again.
    fn list<T: IntoBytes + Immutable>(
        &self,
        header: &InHeader,
        mut body: Body<'_>,
        reply: &mut Reply,
        entry: impl Fn(&Server, &DirEntry<'_>) -> T,
    ) -> Answer {
        let ReadIn {
            offset,
            size,
            flags,
            ..
        } = body.take()?;
        let offset = within_a_file(offset)?;
        let listed = self.run(|server| {
            server.readdir(
                header.nodeid,
                offset,
                pmfs::wants_atime(flags.into()),
                &mut |found| {
                    let has_room = reply.has_room::<T>(size as usize, found.name);
                    if has_room {
                        reply.named(&entry(server, &found), found.name);
                    }
                    has_room
                },
            )
        });
        match listed {
            Err(_) if !reply.bytes().is_empty() => Ok(()),
            listed => listed,
        }
    }

    fn put_entry(&self, reply: &mut Reply, attr: &Attr) {
        let ttl = self.ttl_of(attr, reply);
        reply.put(&entry(attr, ttl));
    }

    /// Answers that there is no such name, which may be remembered, too.
    fn put_absent(&self, reply: &mut Reply) -> Answer {
        let ttl = self.server.term(&mut reply.grant);
        if ttl.is_zero() {
            return Err(Error::NotFound.into());
        }
        reply.put(&absent(ttl));
        Ok(())
    }

    pub(super) fn put_opened(&self, reply: &mut Reply, fh: u64) {
        reply.put(&OpenOut {
            fh,
            open_flags: match Server::access(fh) {
                // A file open for writing alone is never mapped. Through pages the kernel cuts a
                // write where it has not all of a page.
                Access::Writing => PAST_PAGES,
                _ => self.terms.open_flags,
            },
            padding: 0,
        });
    }
}

fn dirent(found: &DirEntry<'_>) -> Dirent {
    Dirent {
        ino: found.ino,
        off: found.cookie,
        namelen: found.name.len() as u32,
        kind: found.kind >> TYPE_SHIFT,
    }
}

/// Returns the inode that a name in the root stands for, to callers that have the pool anyway.
fn by_number(header: &InHeader, name: &[u8]) -> Option<Ino> {
    let digits = name.strip_prefix(INODE_NAME)?;
    let trusted = header.uid == 0 || header.uid == rustix::process::geteuid().as_raw();
    let ino = std::str::from_utf8(digits).ok()?.parse().ok()?;
    (header.nodeid == 1 && trusted).then_some(ino)
}
