//! Calls that change names. Each is one transaction: a few header words of buckets, the
//! directories' hot words, the inodes' hot words; everything else is written to where nothing
//! refers to yet.

pub(crate) mod attributes;
pub mod create;
pub mod inode_table;
pub(crate) mod link;
mod planted;
pub(crate) mod remove;
pub(crate) mod rename;
pub(crate) mod snapshot;
pub(crate) mod whiteout;

use crate::dir::{self, Hit, Name};
use crate::inode::{Hot, Inode};
use crate::pool::Pool;
use crate::types::{Attr, DirEntry, Ino, mode};
use pm_journal::error::{Error, Result};
use pm_journal::locks::{self, LockSet};
use pmfs_format::InodeRaw;
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

/// Reads a directory that names can be made in or removed from: one that still has a name itself,
/// and is of no snapshot.
pub fn named_dir(pool: &Pool, ino: Ino) -> Result<Inode> {
    let inode = Inode::load(pool, ino)?;
    if inode.links == 0 {
        return Err(Error::NotFound);
    }
    inode.require_dir()?;
    inode.changeable()?;
    inode.possible()
}

/// The inode that a name names, in one word, which is answered in a register: the number, above it
/// the type that the record tells, and [`NAMED`]. For a directory's parent the word is the number
/// alone.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Target(u64);

const KIND_SHIFT: u32 = 32;
const NAMED: u64 = 1 << 63;

impl Target {
    #[inline(always)]
    fn of(ino: Ino, kind: u8) -> Target {
        Target(ino | u64::from(kind) << KIND_SHIFT | NAMED)
    }

    #[inline(always)]
    fn ino(self) -> Ino {
        self.0 & u64::from(u32::MAX)
    }

    /// Returns whether an inode is what was found in `dir`.
    #[inline(always)]
    fn is(self, dir: Ino, inode: &Inode) -> bool {
        if self.0 & NAMED == 0 {
            return inode.is_dir();
        }
        let kind = (self.0 >> KIND_SHIFT) as u8;
        is_own(dir, u32::from(kind) << 12, inode)
    }
}

/// Returns the inode that a name names; without a name, the parent.
#[inline]
fn target(pool: &Pool, dir: Ino, name: Option<&Name<'_>>) -> Result<Target> {
    let inode = Inode::live_dir(pool, dir)?;
    let Some(name) = name else {
        let parent = Some(inode.parent).filter(|&ino| ino <= Ino::from(u32::MAX));
        return parent.map(Target).ok_or_else(|| misfit(inode.off));
    };
    let hit = dir::lookup(pool, &inode, name)?.ok_or(Error::NotFound)?;
    Ok(Target::of(hit.ino, hit.record.kind))
}

/// The gate for names: whether an inode is what a record of directory `dir` says. A directory has
/// one name, in its parent: so names that lead down never lead back up, and every walk ends.
#[inline(always)]
fn is_own(dir: Ino, kind: u32, inode: &Inode) -> bool {
    let one_name = !inode.is_dir() || inode.parent == dir && inode.ino != ROOT_INO;
    inode.kind() == kind && one_name
}

/// A name of no inode is damage; the parent of a directory that was removed may have gone before.
#[cold]
#[inline(never)]
fn without_inode(found: Target, error: Error) -> Error {
    match error {
        Error::Stale if found.0 & NAMED == 0 => Error::NotFound,
        Error::Stale => misfit(found.ino()),
        error => error,
    }
}

#[cold]
#[inline(never)]
fn misfit(off: u64) -> Error {
    crate::tree::corrupt("name of another inode", off)
}

/// The inode of a name found under locks, through that gate.
///
/// # Errors
/// [`Error::Corrupt`].
fn named(pool: &Pool, dir: &Inode, hit: &Hit) -> Result<Inode> {
    let inode = Inode::load(pool, hit.ino).map_err(|_| misfit(hit.record.off))?;
    if inode.links == 0 || !is_own(dir.ino, u32::from(hit.record.kind) << 12, &inode) {
        return Err(misfit(hit.record.off));
    }
    inode.possible()
}

/// Looks a name up without locks: what it names, so that the right locks can be taken.
pub(crate) fn peek(pool: &Pool, dir: Ino, name: &Name<'_>) -> Result<Option<Ino>> {
    locks::read(pool, dir, || {
        let inode = Inode::live_dir(pool, dir)?;
        let found = dir::lookup(pool, &inode, name)?.map(|hit| hit.ino);
        // The caller takes the inode's lock next, and reads it.
        if let Some(ino) = found
            && let Ok(off) = pool.inode_off(ino)
        {
            pool.pm.prefetch(locks::line_of(pool, ino));
            pool.pm.prefetch(off);
            pool.pm.prefetch(InodeRaw::atime_ns.of(off));
        }
        Ok(found)
    })
}

/// Looks a name up under the directory's lock.
pub fn find(pool: &Pool, dir: &Inode, name: &Name<'_>) -> Result<Option<Hit>> {
    dir::lookup(pool, dir, name)
}

impl Pool {
    /// `lookup`: "." and ".." too.
    pub fn lookup(&self, dir: Ino, name: &[u8]) -> Result<Attr> {
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
        // The inode is read while the directory stands still: a name that is moved over has an old
        // inode, then a new one, and is never missing.
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
            let _locks = LockSet::take(self, &[dir, found.ino()]);
            if target(self, dir, name)? == found {
                let live = Inode::live(self, found.ino());
                let inode = live.map_err(|error| without_inode(found, error))?;
                if !found.is(dir, &inode) {
                    return Err(misfit(inode.off));
                }
                *attr = self.attr_of(&inode);
                return Ok(());
            }
        }
    }

    /// The attributes of what was found in a directory.
    #[inline(always)]
    fn getattr_of(&self, dir: Ino, found: Target, attr: &mut Attr) -> Result<()> {
        let read = locks::read(self, found.ino(), || {
            let inode = Inode::live(self, found.ino())?;
            if !found.is(dir, &inode) {
                return Err(misfit(inode.off));
            }
            self.attr_into(&inode, attr);
            Ok(())
        });
        read.map_err(|error| without_inode(found, error))
    }

    /// A lookup of what was listed.
    pub(crate) fn listed(&self, dir: Ino, entry: &DirEntry<'_>) -> Result<Attr> {
        self.alive()?;
        let found = Target::of(entry.ino, (entry.kind >> 12) as u8);
        let mut attr = Attr::default();
        self.getattr_of(dir, found, &mut attr).map(|()| attr)
    }

    pub(crate) fn readlink(&self, ino: Ino) -> Result<Vec<u8>> {
        self.alive()?;
        locks::read(self, ino, || {
            create::link_target(self, &Inode::live(self, ino)?)
        })
    }
}
