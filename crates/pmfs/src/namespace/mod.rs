//! Calls that change names. Each is one transaction: a few header words of buckets, the directories' hot
//! words, the inodes' hot words; everything else is written to where nothing refers to yet.

pub(crate) mod attributes;
pub(crate) mod create;
pub(crate) mod inode_table;
pub(crate) mod link;
pub(crate) mod remove;
pub(crate) mod rename;
pub(crate) mod whiteout;

use crate::dir::{self, Hit, Name};
use crate::error::{Error, Result};
use crate::inode::{Hot, Inode};
use crate::locks::{self, LockSet};
use crate::pool::Pool;
use crate::types::{Attr, Ino, mode};

/// A directory that has gained or lost a name, of a directory or of something else.
fn with_names(dir: &Inode, by: i64, of_dir: bool, now_ns: i64) -> Hot {
    let mut hot = dir.hot();
    hot.set_size(dir.size().saturating_add_signed(by));
    if of_dir {
        hot.set_links(dir.links.saturating_add_signed(by as i32));
    }
    hot.touch(now_ns);
    hot
}

/// An inode that has so many links now.
fn with_links(inode: &Inode, links: u32, now_ns: i64) -> Hot {
    let mut hot = inode.hot();
    hot.set_links(links);
    hot.change(now_ns);
    hot
}

/// Reads a directory that names can be made in or removed from: one that still has a name itself.
pub(crate) fn named_dir(pool: &Pool, ino: Ino) -> Result<Inode> {
    let inode = Inode::load(pool, ino)?;
    if inode.links == 0 {
        return Err(Error::NotFound);
    }
    inode.require_dir()?;
    Ok(inode)
}

/// What a name names, or no name: the parent.
fn target(pool: &Pool, dir: Ino, name: Option<&Name<'_>>) -> Result<Ino> {
    let inode = Inode::live(pool, dir)?;
    inode.require_dir()?;
    match name {
        None => Ok(inode.parent),
        Some(name) => dir::lookup(pool, &inode, name)?
            .map(|hit| hit.ino)
            .ok_or(Error::NotFound),
    }
}

/// Looks a name up without locks: what it names, so that the right locks can be taken.
pub(crate) fn peek(pool: &Pool, dir: Ino, name: &Name<'_>) -> Result<Option<Ino>> {
    locks::read(pool, dir, || {
        let inode = Inode::live(pool, dir)?;
        inode.require_dir()?;
        let found = dir::lookup(pool, &inode, name)?.map(|hit| hit.ino);
        // Whoever asks takes the inode's lock next, and reads it.
        if let Some(ino) = found
            && let Ok(off) = pool.inode_off(ino)
        {
            pool.pm.prefetch(locks::line_of(pool, ino));
            pool.pm.prefetch(off);
            pool.pm.prefetch(off + 64);
        }
        Ok(found)
    })
}

/// Looks a name up under the directory's lock.
pub(crate) fn find(pool: &Pool, dir: &Inode, name: &Name<'_>) -> Result<Option<Hit>> {
    dir::lookup(pool, dir, name)
}

impl Pool {
    /// `lookup`: "." and ".." too.
    pub(crate) fn lookup(&self, dir: Ino, name: &[u8]) -> Result<Attr> {
        let mut attr = Attr::default();
        self.lookup_into(dir, name, &mut attr).map(|()| attr)
    }

    /// `lookup`, to where the answer is wanted.
    pub(crate) fn lookup_into(&self, dir: Ino, name: &[u8], attr: &mut Attr) -> Result<()> {
        self.alive()?;
        let named = match name {
            b"." => {
                self.getattr_into(dir, attr)?;
                return match attr.mode & mode::S_IFMT {
                    mode::S_IFDIR => Ok(()),
                    _ => Err(Error::NotDirectory),
                };
            }
            b".." => None,
            _ => Some(Name::new(self, name)?),
        };
        // The inode is read while the directory stands still: a name that is moved over has an old inode,
        // then a new one, and is never missing.
        let answer = locks::read_unlocked(self, dir, || {
            let ino = target(self, dir, named.as_ref())?;
            // A removed directory's parent.
            self.getattr_into(ino, attr).map_err(|error| match error {
                Error::Stale => Error::NotFound,
                error => error,
            })
        });
        answer.unwrap_or_else(|| self.lookup_locked(dir, named.as_ref(), attr))
    }

    /// A lookup in a directory that keeps changing.
    #[cold]
    fn lookup_locked(&self, dir: Ino, name: Option<&Name<'_>>, attr: &mut Attr) -> Result<()> {
        loop {
            let ino = locks::read(self, dir, || target(self, dir, name))?;
            let _locks = LockSet::take(self, &[dir, ino]);
            if target(self, dir, name)? == ino {
                let inode = Inode::live(self, ino).map_err(|_| Error::NotFound)?;
                *attr = self.attr_of(&inode);
                return Ok(());
            }
        }
    }

    /// `getattr`.
    pub(crate) fn getattr(&self, ino: Ino) -> Result<Attr> {
        let mut attr = Attr::default();
        self.getattr_into(ino, &mut attr).map(|()| attr)
    }

    /// `getattr`, to where the answer is wanted: to move it costs more than to find it. After an error it says nothing.
    pub(crate) fn getattr_into(&self, ino: Ino, attr: &mut Attr) -> Result<()> {
        self.alive()?;
        locks::read(self, ino, || {
            *attr = self.attr_of(&Inode::live(self, ino)?);
            Ok(())
        })
    }

    /// `readlink`.
    pub(crate) fn readlink(&self, ino: Ino) -> Result<Vec<u8>> {
        self.alive()?;
        locks::read(self, ino, || {
            create::link_target(self, &Inode::live(self, ino)?)
        })
    }
}
