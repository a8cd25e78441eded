//! Building: a range of a file's tree is replaced by fresh nodes beside the old ones, and one slot
//! is swung.

use super::entry::{Entry, coverage, place, span};
use super::{Shape, Tree};
use crate::pool::Pool;
use crate::purpose::{Lane, Purpose};
use crate::types::Ino;
use pm_journal::error::Result;
use pm_space::{Class, Zone};
use pm_store::FreshSet;
use pmfs_format::tree::{FANOUT, FILE_HEIGHT_MAX, SHARED, UNWRITTEN};
use pmfs_format::{BLOCK_BYTES, BLOCK_SHIFT};
use zerocopy::IntoBytes;

/// A word to change: everything behind `new` is fresh and flushed, not yet behind a barrier.
#[derive(Clone, Copy, Debug)]
pub struct Swing {
    pub slot: u64,
    pub old: Entry,
    pub new: Entry,
    /// Height of the tree that `old` is the root of (0: a leaf), and the first index it covers:
    /// what freeing it needs.
    pub level: u32,
    pub base: u64,
}

impl Swing {
    /// The index behind all that `old` covers.
    pub fn end(&self) -> u64 {
        self.base + coverage(self.level)
    }
}

impl Tree {
    /// The height of a tree that covers the blocks before `end`, as high as this one at least.
    ///
    /// # Errors
    /// `FileTooBig`.
    #[inline]
    pub(crate) fn height_over(&self, end: u64) -> Result<u32> {
        let mut height = self.root.height();
        while coverage(height) < end {
            height += 1;
            if height > FILE_HEIGHT_MAX {
                return Err(crate::Error::FileTooBig);
            }
        }
        Ok(height)
    }

    /// The change of the root word to `new`.
    #[inline]
    pub(crate) fn swing_root(&self, new: Entry) -> Swing {
        Swing {
            slot: self.slot,
            old: self.root,
            new,
            level: self.root.height(),
            base: 0,
        }
    }
}

/// The leaves that are to stand in the range.
pub trait Leaves {
    /// The new entry for all that an entry of a node of `level` covers from `index`, if it can be
    /// given as a whole: a hole, or a large leaf. The method is called for ranges that lie wholly
    /// inside the edit.
    fn whole(&mut self, level: u32, index: u64) -> Result<Option<Entry>>;

    /// The new leaf for one block; `old` is what stands there (a hole, or a 4 KiB leaf).
    fn one(&mut self, fresh: &mut FreshSet<'_>, index: u64, old: Entry) -> Result<Entry>;
}

/// An edit of `from..to` (block indexes) of one file's tree.
pub struct Edit<'a> {
    pub pool: &'a Pool,
    pub lane: &'a Lane<'a>,
    pub ino: Ino,
    pub class: Class,
    pub from: u64,
    pub to: u64,
}

impl Edit<'_> {
    /// Builds the replacement. The tree must not change meanwhile (the inode's lock is held).
    ///
    /// # Errors
    /// `NoSpace`, `Corrupt`; nothing has changed then, and allocated blocks are left to resolving
    /// the lane's intents.
    pub fn build(
        &self,
        fresh: &mut FreshSet<'_>,
        tree: &Tree,
        leaves: &mut impl Leaves,
    ) -> Result<Swing> {
        let height = tree.height_over(self.to)?;
        if height > tree.root.height() || tree.root.is_hole() {
            // A hole takes the height of what is to fill it, if that is a node at all.
            let new = self.grown(fresh, tree, height, leaves)?;
            return Ok(tree.swing_root(new));
        }
        let mut level = height;
        let mut slot = tree.slot;
        let mut entry = tree.root.unrooted();
        let mut base = 0;
        while level > 0 && entry.is_node() {
            let child = place(level, self.from);
            let child_base = base + child * span(level);
            if self.to > child_base + span(level) {
                break;
            }
            entry.checked(&self.pool.data, BLOCK_BYTES, slot)?;
            slot = entry.off() + child * 8;
            entry = Entry(self.pool.pm.load(slot));
            base = child_base;
            level -= 1;
        }
        let new = self.subtree(fresh, entry, level, base, leaves)?;
        let (old, new) = if slot == tree.slot {
            (tree.root, new.rooted(if new.is_hole() { 0 } else { level }))
        } else {
            (entry, new)
        };
        Ok(Swing {
            slot,
            old,
            new,
            level,
            base,
        })
    }

    /// The root word of a tree grown to `height`, with the old one as its first branch.
    fn grown(
        &self,
        fresh: &mut FreshSet<'_>,
        tree: &Tree,
        height: u32,
        leaves: &mut impl Leaves,
    ) -> Result<Entry> {
        let new = self.raised(fresh, tree, height, leaves)?;
        Ok(new.rooted(if new.is_hole() { 0 } else { height }))
    }

    fn raised(
        &self,
        fresh: &mut FreshSet<'_>,
        tree: &Tree,
        level: u32,
        leaves: &mut impl Leaves,
    ) -> Result<Entry> {
        if level == tree.root.height() || tree.root.is_hole() {
            return self.subtree(fresh, tree.root.unrooted(), level, 0, leaves);
        }
        if let Some(entry) = self.whole(level, 0, leaves)? {
            return Ok(entry);
        }
        let mut entries = NO_ENTRIES;
        entries[0] = if self.from < span(level) {
            self.raised(fresh, tree, level - 1, leaves)?
        } else {
            self.carried(fresh, tree, level - 1)?
        };
        for (at, entry) in entries.iter_mut().enumerate().skip(1) {
            let base = at as u64 * span(level);
            if base < self.to && base + span(level) > self.from {
                *entry = self.subtree(fresh, Entry::HOLE, level - 1, base, leaves)?;
            }
        }
        self.node(fresh, level, 0, &entries)
    }

    /// The old tree unchanged, under as many new nodes as it takes to be an entry at `level`.
    fn carried(&self, fresh: &mut FreshSet<'_>, tree: &Tree, level: u32) -> Result<Entry> {
        if level == tree.root.height() {
            return Ok(tree.root.unrooted());
        }
        let mut entries = NO_ENTRIES;
        entries[0] = self.carried(fresh, tree, level - 1)?;
        self.node(fresh, level, 0, &entries)
    }

    /// The replacement of `old`, which covers what a tree of height `level` covers from `base`.
    fn subtree(
        &self,
        fresh: &mut FreshSet<'_>,
        old: Entry,
        level: u32,
        base: u64,
        leaves: &mut impl Leaves,
    ) -> Result<Entry> {
        if level == 0 {
            return leaves.one(fresh, base, old);
        }
        if let Some(entry) = self.whole(level, base, leaves)? {
            return Ok(entry);
        }
        let mut entries = NO_ENTRIES;
        expand(self.pool, old, level, &mut entries)?;
        let first = self.from.saturating_sub(base) / span(level);
        let behind = (self.to - base).div_ceil(span(level)).min(FANOUT);
        for at in first..behind {
            let entry = &mut entries[at as usize];
            *entry = self.subtree(fresh, *entry, level - 1, base + at * span(level), leaves)?;
        }
        self.node(fresh, level, base, &entries)
    }

    /// The new entry for what a tree of height `level` covers from `base`, if all of it changes and
    /// one entry can say it.
    fn whole(&self, level: u32, base: u64, leaves: &mut impl Leaves) -> Result<Option<Entry>> {
        match self.from <= base && base + coverage(level) <= self.to {
            true => leaves.whole(level + 1, base),
            false => Ok(None),
        }
    }

    /// Writes a fresh node, or none if it would be empty.
    fn node(
        &self,
        fresh: &mut FreshSet<'_>,
        level: u32,
        base: u64,
        entries: &Entries,
    ) -> Result<Entry> {
        if entries.iter().all(|entry| entry.is_hole()) {
            return Ok(Entry::HOLE);
        }
        let purpose = Purpose::Tree {
            ino: self.ino,
            level,
            index: base,
        };
        let run = self
            .pool
            .alloc(self.lane, 1, self.class, Zone::Meta, purpose)?;
        let off = run.block << BLOCK_SHIFT;
        write_node(fresh, off, entries)?;
        Ok(Entry::node(off))
    }
}

pub(crate) type Entries = [Entry; FANOUT as usize];

pub(crate) const NO_ENTRIES: Entries = [Entry::HOLE; FANOUT as usize];

/// Writes a fresh node at `off`.
///
/// # Errors
/// [`crate::Error::Medium`].
pub(crate) fn write_node(fresh: &mut FreshSet<'_>, off: u64, entries: &Entries) -> Result<()> {
    Ok(fresh.range(off, BLOCK_BYTES).bytes(0, entries.as_bytes())?)
}

/// Puts into `entries`, holes before, what `old` amounts to at `level` of a file's tree: a node's
/// own, a large leaf's parts, or holes.
///
/// # Errors
/// `Corrupt`; [`crate::Error::Medium`].
pub(crate) fn expand(pool: &Pool, old: Entry, level: u32, entries: &mut Entries) -> Result<()> {
    if old.is_node() {
        let node = old.checked(&pool.data, BLOCK_BYTES, old.off())?.off();
        pool.pm.copy_out(node, entries.as_mut_bytes())?;
    } else if old.is_leaf() {
        let part = Shape::File.leaf_blocks(span(level)) * BLOCK_BYTES;
        old.checked(&pool.data, part * FANOUT, old.off())?;
        let kept = match planted!("bug-parts-unshared") {
            true => UNWRITTEN,
            false => UNWRITTEN | SHARED,
        };
        for (at, entry) in entries.iter_mut().enumerate() {
            let off = old.off() + at as u64 * part;
            *entry = Entry(Entry::leaf(off).0 | old.0 & kept);
        }
    }
    Ok(())
}

/// Leaves that make a hole of everything; `one` is never asked for, as holes are given whole.
pub(crate) struct Holes;

impl Leaves for Holes {
    fn whole(&mut self, _level: u32, _index: u64) -> Result<Option<Entry>> {
        Ok(Some(Entry::HOLE))
    }

    fn one(&mut self, _fresh: &mut FreshSet<'_>, _index: u64, _old: Entry) -> Result<Entry> {
        Ok(Entry::HOLE)
    }
}
