//! Freeing: a tree, or a range of an old subtree, in an order that a killed thread's successor can
//! resume.
//!
//! Leaves go in index order, a node after all it holds. The lane's record keeps a cursor:
//! everything before it is free. Bits are cleared and the cursor moved under one group lock, so
//! that a block is never freed twice while another file may have it, and no node is read after it
//! was freed.

use super::entry::{Entry, coverage, span};
use super::{Shape, Tree, corrupt};
use crate::pool::Pool;
use crate::purpose::Lane;
use crate::types::Run;
use pm_journal::error::Result;
use pm_space::{Bitmap, Told};
use pmfs_format::runtime::GROUP_UNITS;
use pmfs_format::tree::FANOUT;
use pmfs_format::{BLOCK_BYTES, BLOCK_SHIFT};
use pmshare::rescue::cleaning;

/// Cursor of a record: past every position of a tree, the inode's attributes are free too.
pub(crate) const ATTRIBUTES_DONE: u64 = 1 << 62;

/// Frees `from..to` of what `entry` (the root of a tree of `height` that starts at `base`) holds:
/// leaves there, up to `kept`, and every node that overlaps it.
pub(crate) struct Freeing<'a> {
    pub pool: &'a Pool,
    pub lane: &'a Lane<'a>,
    /// The lane's record with the cursor.
    pub record: u64,
    pub shape: Shape,
    pub from: u64,
    pub to: u64,
    /// Leaves from here on stay: they stand in another place of the new tree.
    pub kept: u64,
    /// The nodes and leaves that this tree names stay: it has a part of the old one's.
    pub unless: Option<Tree>,
    /// All before it is done.
    pub cursor: u64,
    /// Nodes entered.
    pub nodes: u64,
    /// Others may name the leaves: the root word was the last to name their node.
    pub shared: bool,
}

impl Freeing<'_> {
    /// Runs to the end.
    ///
    /// # Errors
    /// `Corrupt`: what is damaged stays allocated.
    pub fn run(&mut self, entry: Entry, height: u32, base: u64) -> Result<()> {
        if height > 7 {
            return Err(corrupt("tree height", entry.off()));
        }
        let units = match self.shape {
            // A directory that is one bucket covers all hashes.
            Shape::Directory => coverage(7),
            Shape::File => coverage(height),
        };
        self.entry(entry, height, base, units)
    }

    fn entry(&mut self, entry: Entry, level: u32, base: u64, units: u64) -> Result<()> {
        let start = base.max(self.from);
        let end = (base + units).min(self.to);
        if entry.is_hole() || start >= end {
            return Ok(());
        }
        if entry.is_leaf() {
            return self.leaf(entry, base, start, end, units);
        }
        if self.cursor >= self.position(end, level) {
            return Ok(());
        }
        let node = entry
            .checked(&self.pool.data, BLOCK_BYTES, entry.off())?
            .off();
        if level == 0 {
            return Err(corrupt("tree deeper than its height", node));
        }
        if self.stays(level, base, node >> BLOCK_SHIFT)? {
            return Ok(());
        }
        // A node that is named twice was freed with the first: a walk that went on there might
        // never end.
        if !cleaning(self.pool) && !Bitmap::blocks(self.pool).is_set(node >> BLOCK_SHIFT) {
            return Err(corrupt("node that is free", node));
        }
        if entry.is_shared() && self.shape == Shape::File {
            let whole = (start, end) == (base, base + units);
            if self.lets_node_go(node, whole, self.position(end, level))? {
                return Ok(());
            }
            self.shared = true;
        }
        self.nodes += 1;
        if self.nodes > self.pool.geometry.blocks {
            return Err(corrupt("nodes without end", node));
        }
        if level == 1 && self.shape == Shape::File && self.unless.is_none() {
            self.leaves(node, base, (start, end))?;
        } else {
            self.children(node, level, base, (start, end))?;
        }
        self.clear(Run::one(node >> BLOCK_SHIFT), self.position(end, level));
        Ok(())
    }

    /// Drops this tree's share of a node that others name too, with all its leaves, and moves the
    /// cursor. Answers `false` for the last one that names it: nobody comes to share it any more,
    /// because that takes the lock of a file which names it.
    fn lets_node_go(&mut self, node: u64, whole: bool, cursor: u64) -> Result<bool> {
        if !whole {
            return Err(corrupt("shared node in a part of a tree", node));
        }
        let map = Bitmap::blocks(self.pool);
        let block = node >> BLOCK_SHIFT;
        let held = map.lock(block);
        if map.shares(block) == 0 || planted!("bug-node-freed-with-leaves") {
            return Ok(false);
        }
        let leaves = (0..FANOUT).filter(|at| self.pool.pm.load(node + at * 8) != 0);
        let blocks = 1 + leaves.count() as u64;
        let told = Told {
            record: self.record,
            is_cursor: true,
            after: &|_| cursor,
        };
        map.let_go(self.lane, Run::one(block), &told);
        drop(held);
        self.lane.lose_blocks(blocks);
        self.cursor = cursor;
        Ok(true)
    }

    /// Returns what a node holds of `start..end`.
    fn children(
        &mut self,
        node: u64,
        level: u32,
        base: u64,
        (start, end): (u64, u64),
    ) -> Result<()> {
        let child_units = span(level);
        let first = (start - base) / child_units;
        let mut previous = Entry::HOLE;
        if first > 0 {
            previous = Entry(self.pool.pm.load(node + (first - 1) * 8));
        }
        for at in first..FANOUT {
            let child_base = base + at * child_units;
            if child_base >= end {
                break;
            }
            let child = Entry(self.pool.pm.load(node + at * 8));
            let shared = self.shape == Shape::Directory && child.is_leaf() && child == previous;
            previous = child;
            if !shared {
                self.entry(child, level - 1, child_base, child_units)?;
            }
        }
        Ok(())
    }

    /// The blocks that a node names in `start..end`, as many at a time as lie in a row in one
    /// group.
    fn leaves(&mut self, node: u64, base: u64, (start, end): (u64, u64)) -> Result<()> {
        let end = end.min(self.kept);
        let leaf_at = |pool: &Pool, at: u64| -> Result<Entry> {
            let entry = Entry(pool.pm.load(node + (at - base) * 8));
            match entry.is_hole() {
                true => Ok(entry),
                false if entry.is_leaf() => entry.checked(&pool.data, BLOCK_BYTES, entry.off()),
                false => Err(corrupt("tree deeper than its height", entry.off())),
            }
        };
        let mut at = start.max(self.index_of(self.cursor));
        while at < end {
            let leaf = leaf_at(self.pool, at)?;
            if leaf.is_hole() {
                at += 1;
                continue;
            }
            let block = leaf.off() >> BLOCK_SHIFT;
            let most = (GROUP_UNITS - block % GROUP_UNITS).min(end - at);
            let mut count = 1;
            // A damaged entry is met when those before it are free.
            let goes_on = |count| {
                let next = leaf_at(self.pool, at + count);
                next.is_ok_and(|next| {
                    !next.is_hole()
                        && next.off() >> BLOCK_SHIFT == block + count
                        && next.is_shared() == leaf.is_shared()
                })
            };
            while count < most && goes_on(count) {
                count += 1;
            }
            self.clear_leaves(leaf, Run { block, count }, at);
            at += count;
        }
        Ok(())
    }

    fn leaf(&mut self, leaf: Entry, base: u64, start: u64, end: u64, units: u64) -> Result<()> {
        let blocks = self.shape.leaf_blocks(units);
        leaf.checked(&self.pool.data, blocks * BLOCK_BYTES, leaf.off())?;
        let end = end.min(self.kept);
        if start >= end {
            return Ok(());
        }
        if self.cursor >= self.position(end, 0) {
            return Ok(());
        }
        if self.shape == Shape::Directory {
            let block = leaf.off() >> BLOCK_SHIFT;
            self.clear(Run { block, count: 1 }, self.position(end, 0));
            return Ok(());
        }
        let mut at = start.max(self.index_of(self.cursor));
        while at < end {
            let block = (leaf.off() >> BLOCK_SHIFT) + (at - base);
            let mut count = (GROUP_UNITS - block % GROUP_UNITS).min(end - at);
            if self.unless.is_some() {
                count = 1;
                if self.stays(0, at, block)? {
                    at += 1;
                    continue;
                }
            }
            self.clear_leaves(leaf, Run { block, count }, at);
            at += count;
        }
        Ok(())
    }

    fn stays(&self, level: u32, index: u64, block: u64) -> Result<bool> {
        let Some(new) = &self.unless else {
            return Ok(false);
        };
        let stays = new.names(self.pool, level, index, block);
        self.pool.pm.intact()?;
        stays
    }

    /// Frees a run of leaves inside one group, from index `at` on, or drops its shares, and moves
    /// the cursor.
    fn clear_leaves(&mut self, leaf: Entry, run: Run, at: u64) {
        let is_shared = leaf.is_shared() || self.shared && !planted!("bug-node-leaves-freed");
        if !is_shared || planted!("bug-share-frees") {
            return self.clear(run, self.position(at + run.count, 0));
        }
        let told = Told {
            record: self.record,
            is_cursor: true,
            after: &|done| self.position(at + done, 0),
        };
        let map = Bitmap::blocks(self.pool);
        let held = map.lock(run.block);
        map.let_go(self.lane, run, &told);
        drop(held);
        self.lane.lose_blocks(run.count);
        self.cursor = self.position(at + run.count, 0);
    }

    /// Frees a run inside one group and moves the cursor, under the group's lock.
    fn clear(&mut self, run: Run, cursor: u64) {
        let map = Bitmap::blocks(self.pool);
        let _held = map.lock(run.block);
        map.mark(run, false);
        self.lane.lose_blocks(run.count);
        self.cursor = cursor;
        self.lane.set_cursor(self.record, cursor);
    }

    /// The cursor once everything before `index`, and nodes up to `level` that end there, are free.
    /// Directories have no nodes of level 1 (54 bits of hash are enough), which frees the bits it
    /// takes.
    fn position(&self, index: u64, level: u32) -> u64 {
        match self.shape {
            Shape::File => index << 4 | u64::from(level),
            Shape::Directory => index >> 9 << 4 | u64::from(level),
        }
    }

    fn index_of(&self, cursor: u64) -> u64 {
        match self.shape {
            Shape::File => cursor >> 4,
            Shape::Directory => cursor >> 4 << 9,
        }
    }
}
