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
use crate::types::{Attr, DirEntry, Ino, mode};
use pmfs_format::inode::ROOT_INO;

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
    inode.possible()
}

/// What a name names.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Target {
    ino: Ino,
    /// The type that its record tells, as a mode; of a directory's parent none.
    kind: Option<u32>,
}

/// What a name names, or no name: the parent.
fn target(pool: &Pool, dir: Ino, name: Option<&Name<'_>>) -> Result<Target> {
    let inode = Inode::live(pool, dir)?;
    inode.require_dir()?;
    let (ino, kind) = match name {
        None => (inode.parent, None),
        Some(name) => {
            let hit = dir::lookup(pool, &inode, name)?.ok_or(Error::NotFound)?;
            (hit.ino, Some(u32::from(hit.record.kind) << 12))
        }
    };
    Ok(Target { ino, kind })
}

/// The gate for names: whether an inode is what a record of directory `dir` says. A directory has one name, in its parent: so names
/// that lead down never lead back up, and every walk ends.
///
/// # Errors
/// [`Error::Corrupt`]
#[inline]
fn fits(dir: Ino, kind: u32, inode: &Inode) -> Result<()> {
    let own = !inode.is_dir() || inode.parent == dir && inode.ino != ROOT_INO;
    if inode.kind() == kind && own {
        return Ok(());
    }
    Err(misfit(inode.off))
}

#[cold]
#[inline(never)]
fn misfit(off: u64) -> Error {
    crate::tree::corrupt("name of another inode", off)
}

/// As [`fits`], of a name found under locks.
///
/// # Errors
/// As there.
fn named(pool: &Pool, dir: &Inode, hit: &Hit) -> Result<Inode> {
    let inode = Inode::load(pool, hit.ino).map_err(|_| misfit(hit.record.off))?;
    if inode.links == 0 {
        return Err(misfit(hit.record.off));
    }
    fits(dir.ino, u32::from(hit.record.kind) << 12, &inode)?;
    inode.possible()
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
            let found = target(self, dir, named.as_ref())?;
            self.getattr_of(dir, found, attr)
        });
        answer.unwrap_or_else(|| self.lookup_locked(dir, named.as_ref(), attr))
    }

    /// A lookup in a directory that keeps changing.
    #[cold]
    fn lookup_locked(&self, dir: Ino, name: Option<&Name<'_>>, attr: &mut Attr) -> Result<()> {
        loop {
            let found = locks::read(self, dir, || target(self, dir, name))?;
            let _locks = LockSet::take(self, &[dir, found.ino]);
            if target(self, dir, name)? == found {
                let inode = self.live_of(dir, found)?;
                *attr = self.attr_of(&inode);
                return Ok(());
            }
        }
    }

    /// The inode that was found in a directory.
    #[inline(always)]
    fn live_of(&self, dir: Ino, found: Target) -> Result<Inode> {
        let inode = match Inode::live(self, found.ino) {
            // A removed directory's parent.
            Err(Error::Stale) if found.kind.is_none() => return Err(Error::NotFound),
            Err(Error::Stale) => return Err(misfit(found.ino)),
            inode => inode?,
        };
        match found.kind {
            Some(kind) => fits(dir, kind, &inode)?,
            None => inode.require_dir()?,
        }
        Ok(inode)
    }

    #[inline(always)]
    fn getattr_of(&self, dir: Ino, found: Target, attr: &mut Attr) -> Result<()> {
        self.alive()?;
        locks::read(self, found.ino, || {
            *attr = self.attr_of(&self.live_of(dir, found)?);
            Ok(())
        })
    }

    /// A lookup of what was listed.
    pub(crate) fn listed(&self, dir: Ino, entry: &DirEntry<'_>) -> Result<Attr> {
        let found = Target {
            ino: entry.ino,
            kind: Some(entry.kind),
        };
        let mut attr = Attr::default();
        self.getattr_of(dir, found, &mut attr).map(|()| attr)
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
