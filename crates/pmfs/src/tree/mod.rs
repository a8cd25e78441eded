//! Trees: finding, building and freeing. Files, directories and the inode table share them; the
//! format is in [`pmfs_format::tree`].
//!
//! Nothing here publishes: edits build fresh nodes beside the old ones and answer the one slot that
//! is to be swung ([`edit::Swing`]); the caller decides how (alone, or logged with the inode).

pub mod edit;
pub mod entry;
pub(crate) mod free;
pub mod visit;

use crate::pool::Pool;
use entry::{Entry, coverage, place, span};
use pm_journal::error::{Error, Result};
use pmfs_format::tree::{DIRECTORY_HEIGHT, FILE_HEIGHT_MAX, SHARED};
use pmfs_format::{BLOCK_BYTES, BLOCK_SHIFT};
use std::ops::Range;

/// Units of a hole past a tree's end: more than any file has blocks.
const HOLE_UNITS: u64 = 1 << 40;

/// An entry that is not there, and is not zero.
pub const NEITHER: &str = "tree entry that says neither";

/// The kind of a tree: it decides what a leaf above level 1 is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// A leaf in a node of level `l` is `512^(l-1)` blocks.
    File,
    /// A leaf is one block, and neighbours may share it.
    Directory,
}

impl Shape {
    /// Blocks in a leaf that covers `units` indexes.
    pub fn leaf_blocks(self, units: u64) -> u64 {
        match self {
            Shape::File => units,
            Shape::Directory => 1,
        }
    }

    /// Levels of the highest tree of this shape.
    fn height_max(self) -> u32 {
        match self {
            Shape::File => FILE_HEIGHT_MAX,
            Shape::Directory => DIRECTORY_HEIGHT,
        }
    }
}

/// The place where a lookup ended.
#[derive(Clone, Copy, Debug)]
pub struct Found {
    /// The entry: a leaf or a hole.
    pub entry: Entry,
    /// Byte offset of the word that holds it.
    pub slot: u64,
    /// Level of the node that holds it; 0 for the root word.
    pub level: u32,
    /// First index that the entry covers.
    pub base: u64,
    /// Indexes that it covers.
    pub units: u64,
}

/// A tree: its root word, where that stands, and its shape.
#[derive(Clone, Copy, Debug)]
pub struct Tree {
    pub root: Entry,
    pub slot: u64,
    pub shape: Shape,
}

impl Tree {
    /// A file's tree, its root word as read from `slot`.
    pub fn file(root: u64, slot: u64) -> Tree {
        Tree {
            root: Entry(root),
            slot,
            shape: Shape::File,
        }
    }

    /// Finds the entry that covers `index`: a leaf or a hole.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if an entry on the way can't be right.
    #[inline]
    pub fn find(&self, pool: &Pool, index: u64) -> Result<Found> {
        let mut level = self.root.height();
        let mut entry = self.root;
        let mut slot = self.slot;
        if self.shape == Shape::File && level <= 4 && index >= coverage(level) || entry.is_hole() {
            if entry.is_hole() && entry.unrooted() != Entry::HOLE {
                return Err(corrupt(NEITHER, slot));
            }
            return Ok(Found {
                entry: Entry::HOLE,
                slot,
                level: 0,
                base: index,
                units: HOLE_UNITS,
            });
        }
        self.check_height(level)?;
        let mut units = coverage(level);
        let mut inside = 0;
        while level > 0 && entry.is_node() {
            let node = entry.checked(&pool.data, BLOCK_BYTES, slot)?.off();
            slot = node + place(level, index) * 8;
            entry = Entry(pool.pm.load(slot));
            units = span(level);
            inside = level;
            level -= 1;
        }
        if entry.is_node() {
            return Err(corrupt("tree deeper than its height", slot));
        }
        if entry.is_hole() && (entry.unrooted() != Entry::HOLE || self.shape == Shape::Directory) {
            // A directory's nodes are full: a split fills all of one.
            return Err(corrupt(NEITHER, slot));
        }
        if entry.is_leaf() {
            let blocks = self.shape.leaf_blocks(units);
            entry.checked(&pool.data, blocks * BLOCK_BYTES, slot)?;
            entry = self.below_root(entry);
        }
        Ok(Found {
            entry,
            slot,
            level: inside,
            base: index & !(units - 1),
            units,
        })
    }

    /// A leaf of this tree, which others may name too if they may name the node.
    #[inline(always)]
    fn below_root(&self, leaf: Entry) -> Entry {
        Entry(leaf.0 | self.root.0 & SHARED)
    }

    /// Prefetches the line of the slot that [`Tree::find`] will look at last, if that lies below a
    /// node that other ranges share: in a large file it is likely in no cache. Changes nothing, and
    /// may be called without the lock; the loads are charged to the later search.
    #[inline]
    pub fn expect(&self, pool: &Pool, index: u64) {
        if self.root.height() > 1
            && let Some((entry, _)) = self.descend(pool, index, 1, |off| pool.pm.load_cached(off))
            && entry.is_node()
            && let Ok(node) = entry.checked(&pool.data, BLOCK_BYTES, self.slot)
        {
            pool.pm.prefetch(node.off() + place(1, index) * 8);
        }
    }

    /// Prefetches the line of a file that has this byte: a small read or write waits mostly for its
    /// old bytes. Changes nothing, and may be called without the lock. The walk takes as few steps
    /// as it can, without most of the checks of [`Tree::find`]: while one call waits for its line
    /// the processor goes on a few hundred instructions, and if they reach the next call's
    /// prefetch, both lines are on their way at once. A node may be a file's bytes by now: few of
    /// them look like an entry, and following one is a harmless load of some word of the pool.
    #[inline(always)]
    pub fn expect_byte(&self, pool: &Pool, at: u64) {
        let (mut level, mut entry) = (self.root.height(), self.root);
        if level > FILE_HEIGHT_MAX {
            return;
        }
        while level > 0 && entry.is_node() && entry.is_plausible() {
            let slot = entry.off() + place(level, at / BLOCK_BYTES) * 8;
            entry = Entry(pool.pm.load_if_there(slot));
            level -= 1;
        }
        if entry.is_leaf() {
            let within = at & (coverage(level) * BLOCK_BYTES - 1);
            pool.pm.prefetch_if_there(entry.off() + within);
        }
    }

    /// Returns where byte `at` of a file stands, and how many from there on are below the same
    /// entry. `None` says no more than that it is for [`Tree::find`] to look: it may be a hole,
    /// unwritten, or damage.
    #[inline(always)]
    pub fn byte(&self, pool: &Pool, at: u64, load: impl Fn(u64) -> u64) -> Option<(u64, u64)> {
        let (entry, level) = self.descend(pool, at / BLOCK_BYTES, 0, load)?;
        let bytes = coverage(level) * BLOCK_BYTES;
        if !entry.is_leaf() || entry.is_unwritten() {
            return None;
        }
        let leaf = entry.unrooted().checked(&pool.data, bytes, self.slot);
        let within = at & (bytes - 1);
        Some((leaf.ok()?.off() + within, bytes - within))
    }

    /// Works as [`Tree::byte`], for a store in place: `None` where other leaves may name the block.
    #[inline(always)]
    pub fn own_byte(&self, pool: &Pool, at: u64) -> Option<(u64, u64)> {
        let (entry, level) = self.descend(pool, at / BLOCK_BYTES, 0, |off| pool.pm.load(off))?;
        let bytes = coverage(level) * BLOCK_BYTES;
        if !entry.is_leaf() || !self.below_root(entry).is_in_place() {
            return None;
        }
        let leaf = entry.unrooted().checked(&pool.data, bytes, self.slot);
        let within = at & (bytes - 1);
        Some((leaf.ok()?.off() + within, bytes - within))
    }

    /// Prefetches the first line of the block that covers `index` in a directory's tree, a bucket's
    /// header; otherwise as [`Tree::expect_byte`].
    #[inline]
    pub fn expect_bucket(&self, pool: &Pool, index: u64) {
        if let Some(off) = self.bucket(pool, index, |off| pool.pm.load_cached(off)) {
            pool.pm.prefetch(off);
        }
    }

    /// Returns where the block stands that covers `index`, of a directory's tree. `None` means the
    /// same as from [`Tree::byte`].
    #[inline(always)]
    pub fn bucket(&self, pool: &Pool, index: u64, load: impl Fn(u64) -> u64) -> Option<u64> {
        let (entry, _) = self.descend(pool, index, 0, load)?;
        if !entry.is_leaf() {
            return None;
        }
        let bucket = entry.unrooted().checked(&pool.data, BLOCK_BYTES, self.slot);
        Some(bucket.ok()?.off())
    }

    /// Goes down towards `index`, to `least` or to what is no node: the entry there, and its level.
    /// Without the lock: it may be anything.
    #[inline(always)]
    fn descend(
        &self,
        pool: &Pool,
        index: u64,
        least: u32,
        load: impl Fn(u64) -> u64,
    ) -> Option<(Entry, u32)> {
        let (mut level, mut entry) = (self.root.height(), self.root);
        // The only bucket of a directory covers every hash.
        let is_behind =
            self.shape == Shape::File && level <= FILE_HEIGHT_MAX && index >= coverage(level);
        if level > self.shape.height_max() || is_behind {
            return None;
        }
        while level > least && entry.is_node() {
            let node = entry.checked(&pool.data, BLOCK_BYTES, self.slot).ok()?;
            entry = Entry(load(node.off() + place(level, index) * 8));
            level -= 1;
        }
        Some((entry, level))
    }

    fn check_height(&self, height: u32) -> Result<()> {
        if height > self.shape.height_max() {
            return Err(corrupt("tree height", self.slot));
        }
        Ok(())
    }

    /// The longest run from `index` (at most `max` blocks) that is one kind of thing: contiguous
    /// written blocks, or blocks that read as zeros. Files only.
    ///
    /// # Errors
    /// Those of [`Tree::find`].
    pub fn extent(&self, pool: &Pool, index: u64, max: u64) -> Result<Extent> {
        let first = self.find(pool, index)?;
        let mut extent = Extent::of(&first, index);
        // Grow within the node that holds the entry: neighbours cost one load each.
        if first.level > 0 {
            let node_end = (first.slot | (BLOCK_BYTES - 1)) + 1;
            let mut slot = first.slot + 8;
            if extent.written {
                slot += 8 * self.follow(pool, &first, node_end, max, &mut extent);
            }
            let mut at = first.base + first.units * ((slot - first.slot) / 8);
            while extent.count < max && slot < node_end {
                let mut entry = Entry(pool.pm.load(slot));
                if entry.is_node() {
                    break;
                }
                if entry.is_leaf() {
                    entry = self.below_root(entry);
                }
                let next = Found {
                    entry,
                    slot,
                    base: at,
                    ..first
                };
                if !extent.join(&Extent::of(&next, at)) {
                    break;
                }
                if entry.is_leaf() {
                    entry.checked(&pool.data, first.units * BLOCK_BYTES, slot)?;
                }
                slot += 8;
                at += first.units;
            }
        }
        extent.count = extent.count.min(max);
        Ok(extent)
    }

    /// Goes on in `extent` through the entries behind `first` that name the blocks behind its own,
    /// and are like it in all else: nearly all do in a file that was written in order. Answers how
    /// many.
    fn follow(
        &self,
        pool: &Pool,
        first: &Found,
        node_end: u64,
        max: u64,
        extent: &mut Extent,
    ) -> u64 {
        let bytes = first.units * BLOCK_BYTES;
        let in_node = (node_end - first.slot) / 8 - 1;
        let in_pool = ((pool.data.end - first.entry.off()) / bytes).saturating_sub(1);
        let wanted = max.saturating_sub(extent.count).div_ceil(first.units);
        let most = wanted.min(in_node).min(in_pool);
        let word = match self.root.is_shared_node() {
            true => pool.pm.load(first.slot),
            false => first.entry.0,
        };
        let follows = |count: &u64| pool.pm.load(first.slot + 8 * count) == word + bytes * count;
        let count = (1..=most).take_while(follows).count() as u64;
        extent.count += count * first.units;
        count
    }

    /// Returns whether `block` is this tree's node of `level` at `index`, or (level 0) a leaf's
    /// block there.
    ///
    /// # Errors
    /// Those of [`Tree::find`].
    pub fn names(&self, pool: &Pool, level: u32, index: u64, block: u64) -> Result<bool> {
        let off = block << BLOCK_SHIFT;
        if level == 0 {
            let found = self.find(pool, index)?;
            return Ok(found.entry.is_leaf()
                && match self.shape {
                    Shape::File => found.entry.off() + (index - found.base) * BLOCK_BYTES == off,
                    Shape::Directory => found.entry.off() == off,
                });
        }
        let mut here = self.root.height();
        let mut entry = self.root;
        if entry.is_hole() || (self.shape == Shape::File && index >= coverage(here)) {
            return Ok(false);
        }
        self.check_height(here)?;
        while entry.is_node() && here > level {
            let node = entry.checked(&pool.data, BLOCK_BYTES, self.slot)?.off();
            entry = Entry(pool.pm.load(node + place(here, index) * 8));
            here -= 1;
        }
        Ok(entry.is_node() && here == level && entry.off() == off)
    }
}

/// A run of a file's blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// Byte offset of the first block; 0 if there is none.
    pub off: u64,
    /// Blocks.
    pub count: u64,
    /// Says whether it holds data; else it reads as zeros.
    pub written: bool,
    /// Other leaves may name the blocks too, so that they are not written in place.
    pub shared: bool,
}

impl Extent {
    fn of(found: &Found, index: u64) -> Extent {
        let inside = index - found.base;
        Extent {
            off: if found.entry.is_leaf() {
                found.entry.off() + inside * BLOCK_BYTES
            } else {
                0
            },
            count: found.units - inside,
            written: found.entry.is_leaf() && !found.entry.is_unwritten(),
            shared: found.entry.is_shared(),
        }
    }

    /// Returns what is read of its first block, of so many bytes from there on: a range of the
    /// pool. `None` where that is zeros.
    pub fn first_bytes(&self, bytes: usize) -> Option<Range<u64>> {
        let bytes = (bytes as u64).min(BLOCK_BYTES);
        self.written.then_some(self.off..self.off + bytes)
    }

    fn join(&mut self, next: &Extent) -> bool {
        let fits = self.written == next.written
            && self.shared == next.shared
            && (!self.written || self.off + self.count * BLOCK_BYTES == next.off);
        if fits {
            self.count += next.count;
        }
        fits
    }
}

/// Damage found in a tree.
pub(crate) fn corrupt(what: &'static str, offset: u64) -> Error {
    Error::corrupt(what, offset)
}
