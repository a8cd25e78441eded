//! Calls on a file's content. Sizes and pointers are published by single stores wherever that is
//! enough (append, single-block overwrite, truncate); a transaction is used where two words must
//! change together.

mod alike;
pub(crate) mod allocate;
mod clone;
mod copy;
mod draft;
pub(crate) mod expose;
pub(crate) mod extend;
pub(crate) mod extents;
pub(crate) mod overwrite;
mod own;
pub(crate) mod pages;
mod pinned;
pub(crate) mod read;
pub(crate) mod replace;
pub(crate) mod seek;
pub(crate) mod shift;
mod source;
mod stock;
pub(crate) mod truncate;
mod unwritten;
pub(crate) mod write;

use crate::inode::Inode;
use crate::pool::Pool;
use crate::purpose::{Claim, Lane};
use crate::resolve::intend_subtree;
use crate::tree::edit::{Edit, Leaves, Swing};
use crate::tree::{Found, Tree};
use crate::types::Ino;
use pm_journal::Transaction;
use pm_journal::error::Result;
use pm_journal::locks::{LockSet, line_of};
use pm_space::Class;
use pm_store::{Durable, FreshSet};
use pmfs_format::BLOCK_BYTES;
use pmfs_format::inode::{CTIME_IS_MTIME, SIZE_MASK};
use pmfs_format::tree::FANOUT;

/// A change of one file's content: what every step of it needs.
pub struct Work<'a> {
    pub pool: &'a Pool,
    pub locks: &'a LockSet<'a>,
    pub lane: &'a Lane<'a>,
    pub inode: Inode,
    pub now_ns: i64,
    /// Programs have blocks of it mapped: they are written in place.
    pub pinned: bool,
}

impl Work<'_> {
    /// The size pair with a new size, mtime and ctime now.
    fn pair(&self, size: u64) -> [u64; 2] {
        [
            self.inode.size_word & !SIZE_MASK | size | CTIME_IS_MTIME,
            self.now_ns as u64,
        ]
    }

    /// Publishes a new size with its times, durable on return; what it exposes is.
    #[cfg_attr(feature = "record", track_caller)]
    pub fn publish_size(&mut self, size: u64, durable: Durable) {
        self.locks.change();
        let pair = self.pair(size);
        self.pool.pm.publish_pair(self.inode.off, pair, durable);
        self.inode.size_word = pair[0];
        self.inode.mtime_ns = self.now_ns;
    }

    /// Builds a replacement of the blocks `from..to`, fresh and not yet behind a barrier, and
    /// writes down that the old one is to go.
    pub fn build(
        &self,
        fresh: &mut FreshSet<'_>,
        class: Class,
        (from, to): (u64, u64),
        leaves: &mut impl Leaves,
    ) -> Result<Swing> {
        let edit = Edit {
            pool: self.pool,
            lane: self.lane,
            ino: self.ino(),
            class,
            from,
            to,
        };
        let swing = edit.build(fresh, &self.tree(), leaves)?;
        if planted!("bug-grown-leaf-freed") && swing.old.is_grown() {
            let to = swing.base + FANOUT;
            intend_subtree(self.lane, &swing, (swing.base, to), to)?;
            return Ok(swing);
        }
        intend_subtree(self.lane, &swing, (from, to), to)?;
        Ok(swing)
    }

    /// Replaces the blocks `from..to` by one pointer, durable on return. The intents of the old
    /// ones are still to be resolved.
    #[cfg_attr(all(feature = "record", not(feature = "planted-bugs")), track_caller)]
    pub fn swing(
        &mut self,
        class: Class,
        range: (u64, u64),
        leaves: &mut impl Leaves,
    ) -> Result<()> {
        let mut fresh = self.pool.pm.fresh();
        let swing = self.build(&mut fresh, class, range, leaves)?;
        let durable = fresh.barrier();
        self.locks.change();
        self.pool.pm.publish(swing.slot, swing.new.0, durable);
        self.reload()
    }

    /// Publishes a slot and a size together, durable on return.
    #[cfg_attr(feature = "record", track_caller)]
    pub fn publish_both(&mut self, swing: &Swing, size: u64) {
        let mut tx = Transaction::begin(self.lane);
        let slot = tx.log(swing.slot, 8);
        let range = tx.log(self.inode.off, 16);
        let mut tx = tx.seal();
        self.locks.change();
        let pair = self.pair(size);
        tx.set(&slot, 0, swing.new.0);
        tx.set_words(&range, 0, &pair);
        tx.commit();
        self.inode.size_word = pair[0];
    }

    /// mtime and ctime of an overwrite: stored, not flushed (docs/adr/0034-times.md).
    #[cfg_attr(feature = "record", track_caller)]
    pub fn lazy_times(&self) {
        self.locks.change();
        let noted = self.pool.note_lazy(self.ino());
        let pair = self.pair(self.inode.size());
        self.pool.pm.lazy_pair(noted, self.inode.off, pair);
    }

    /// Reads the inode again after its root may have changed.
    pub fn reload(&mut self) -> Result<()> {
        self.inode = Inode::load(self.pool, self.inode.ino)?;
        Ok(())
    }

    pub fn tree(&self) -> Tree {
        self.inode.tree()
    }

    pub fn ino(&self) -> Ino {
        self.inode.ino
    }
}

impl Pool {
    /// Runs one change of a regular file's content: under its lock, with a lane of its own.
    pub fn on_file<T>(
        &self,
        ino: Ino,
        change: impl FnOnce(&mut Work<'_>) -> Result<T>,
    ) -> Result<T> {
        let early = planted!("bug-inode-read-unlocked").then(|| Inode::live_file(self, ino));
        let locks = LockSet::take(self, &[ino]);
        self.on_locked(&locks, ino, true, early, change)
    }

    /// Runs work on a regular file's blocks that leaves its content as it is.
    pub fn on_blocks<T>(
        &self,
        ino: Ino,
        change: impl FnOnce(&mut Work<'_>) -> Result<T>,
    ) -> Result<T> {
        let locks = LockSet::take(self, &[ino]);
        self.on_locked(&locks, ino, false, None, change)
    }

    /// Works as [`Pool::on_file`] on `to`, beside a file `from` that `change` may read as it stands
    /// on the medium; the flag tells that a program has a page of either mapped.
    fn on_two_files<T>(
        &self,
        from: Ino,
        to: Ino,
        change: impl FnOnce(&mut Work<'_>, &Inode, bool) -> Result<T>,
    ) -> Result<T> {
        self.writable()?;
        let locks = LockSet::take(self, &[from, to]);
        let line = line_of(self, from);
        self.pages_are_clean(line, from)?;
        let source = Inode::live(self, from)?;
        source.require_file()?;
        self.on_locked(&locks, to, true, None, |work| {
            let is_pinned = work.pinned || self.is_pinned(line, from);
            change(work, &source, is_pinned)
        })
    }

    /// Works as [`Pool::on_file`], with locks that are had already; `early` is the inode as it was
    /// before that. `changes`: what the file shows.
    fn on_locked<T>(
        &self,
        locks: &LockSet<'_>,
        ino: Ino,
        changes: bool,
        early: Option<Result<Inode>>,
        change: impl FnOnce(&mut Work<'_>) -> Result<T>,
    ) -> Result<T> {
        let line = line_of(self, ino);
        self.pages_are_ours(line, ino)?;
        let inode = match early {
            Some(early) => early?,
            None => Inode::live_file(self, ino)?,
        };
        if changes {
            inode.changeable()?;
        }
        let lane = Claim::new(self);
        inode.account_in(&lane);
        change(&mut Work {
            pool: self,
            locks,
            lane: &lane,
            inode,
            now_ns: self.clock.now_ns(),
            pinned: self.is_pinned(line, ino),
        })
    }
}

/// Returns whether one store to `found.slot` can set the leaf of block `index` alone.
pub fn is_direct(tree: &Tree, found: &Found, index: u64) -> bool {
    found.level == 1 || found.slot == tree.slot && index == 0 && tree.root.height() == 0
}

#[inline]
pub(crate) fn block_of(offset: u64) -> u64 {
    offset / BLOCK_BYTES
}
