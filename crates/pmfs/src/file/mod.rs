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
mod locked;
mod node;
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
use crate::purpose::Lane;
use crate::resolve::intend_subtree;
use crate::tree::edit::{Edit, Leaves, Swing};
use crate::tree::{Found, Tree};
use crate::types::Ino;
use pm_journal::Transaction;
use pm_journal::error::Result;
use pm_journal::locks::LockSet;
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

/// Returns whether one store to `found.slot` can set the leaf of block `index` alone.
pub fn is_direct(tree: &Tree, found: &Found, index: u64) -> bool {
    found.level == 1 || found.slot == tree.slot && index == 0 && tree.root.height() == 0
}

#[inline]
pub(crate) fn block_of(offset: u64) -> u64 {
    offset / BLOCK_BYTES
}
