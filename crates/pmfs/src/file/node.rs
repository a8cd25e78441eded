//! Nodes that several files name (docs/adr/0087-small-files-share-their-node.md): a clone of a file
//! of one node takes no block, and the first change of either file makes the node its own.

use super::Work;
use super::clone::RECORDS_LEFT;
use super::draft::Draft;
use crate::inode::{Inode, usage};
use crate::pool::Pool;
use crate::purpose::{Lane, Purpose};
use crate::tree::edit::Leaves;
use crate::tree::entry::Entry;
use crate::tree::{Tree, corrupt};
use crate::types::{Ino, Run};
use pm_journal::error::Result;
use pm_space::{Bitmap, Class, Zone};
use pm_store::FreshSet;
use pmfs_format::runtime::GROUP_UNITS;
use pmfs_format::superblock::FEATURE_SHARED_NODES;
use pmfs_format::tree::{FANOUT, SHARED};
use pmfs_format::{BLOCK_BYTES, BLOCK_SHIFT};

impl Work<'_> {
    /// Makes the root word of this file name the source's only node, if the range is all of the
    /// source and this file has no block; answers whether it does. The source's root word is marked
    /// before, and no leaf is touched. If `grown` is a size, the file gets it with the root word.
    pub(super) fn clone_node(
        &mut self,
        source: &Inode,
        (from_at, to_at): (u64, u64),
        len: u64,
        grown: Option<u64>,
    ) -> Result<bool> {
        let tree = source.tree();
        let is_all = (from_at, to_at) == (0, 0) && len == source.size() && self.inode.size() <= len;
        // An older build would take a node for one file's.
        let is_known = self.pool.superblock.features_incompat & FEATURE_SHARED_NODES != 0;
        let is_one = is_known && tree.root.is_node() && tree.root.height() == 1;
        if is_all && is_one && tree.root.is_shared_node() && self.tree().root == tree.root {
            return Ok(true);
        }
        if !is_all || !is_one || self.tree().root != Entry::HOLE {
            return Ok(false);
        }
        let root = tree.root.checked(&self.pool.data, BLOCK_BYTES, tree.slot)?;
        let leaves = match root.is_shared_node() {
            // It was looked at by the first clone, and has not changed since.
            true => usage::blocks(self.pool, source)
                .saturating_sub(source.xattr_run().count)
                .saturating_sub(1),
            false => match self.leaves_to_share(&tree)? {
                None => return Ok(false),
                Some(leaves) => leaves,
            },
        };
        let node = Run::one(root.off() >> BLOCK_SHIFT);
        let purpose = Purpose::Shared {
            ino: self.ino(),
            level: 1,
            index: 0,
        };
        if self.pool.make_room_for_shares(node) == 0
            || self.pool.share(self.lane, node, |_| purpose)? == 0
        {
            return Ok(false);
        }
        self.locks.change();
        // A mark is stored again where it is: a dead thread may not have flushed it.
        self.pool.pm.publish_hidden(tree.slot, root.shared().0);
        let swing = self.tree().swing_root(root.shared());
        match grown {
            Some(size) => {
                self.pool.pm.fresh().until_seal();
                self.publish_both(&swing, size);
            }
            None => {
                let durable = self.pool.pm.fresh().barrier();
                self.pool.pm.publish(swing.slot, swing.new.0, durable);
            }
        }
        self.reload()?;
        self.lane.count_blocks(purpose, leaves as i64);
        self.replaced();
        Ok(true)
    }

    /// Counts the leaves of a file's only node. `None`: it is not to be shared, because not all
    /// hold data, or because they are more runs than a lane has records for.
    fn leaves_to_share(&self, tree: &Tree) -> Result<Option<u64>> {
        let mut leaves = 0;
        let mut records = 0;
        let mut index = 0;
        while index < FANOUT {
            let found = tree.find(self.pool, index)?;
            if found.entry.is_hole() {
                index += 1;
                continue;
            }
            if found.entry.is_unwritten() {
                return Ok(None);
            }
            let run = self.run_at(tree, index)?;
            records += 1;
            leaves += run.count;
            index += run.count;
        }
        let most = self.lane.records().saturating_sub(RECORDS_LEFT);
        Ok((records <= most).then_some(leaves))
    }

    /// The blocks in a row in one group from the leaf of `index` on.
    fn run_at(&self, tree: &Tree, index: u64) -> Result<Run> {
        let extent = tree.extent(self.pool, index, FANOUT - index)?;
        let block = extent.off >> BLOCK_SHIFT;
        let count = extent.count.min(GROUP_UNITS - block % GROUP_UNITS);
        Ok(Run { block, count })
    }

    /// Makes the node that the root word names the file's own, if others may name it. A call that
    /// changes something below it does so first, and nothing of that shows.
    ///
    /// # Errors
    /// `NoSpace`; `class` is that of the node.
    #[inline(always)]
    pub fn own_node(&mut self, class: Class) -> Result<()> {
        if !Entry(self.inode.root).is_shared_node() || planted!("bug-node-edited-in-place") {
            return Ok(());
        }
        self.make_node_own(class)
    }

    #[cold]
    #[inline(never)]
    fn make_node_own(&mut self, class: Class) -> Result<()> {
        let tree = self.tree();
        if tree.root.height() != 1 {
            return Err(corrupt("tree entry that is shared", tree.slot));
        }
        let root = tree.root.checked(&self.pool.data, BLOCK_BYTES, tree.slot)?;
        // Others come to name it under this file's lock alone: a count of 0 stays.
        if Bitmap::blocks(self.pool).shares(root.off() >> BLOCK_SHIFT) == 0 {
            return self.keep_node(&tree);
        }
        let mut leaves = OwnLeaves {
            pool: self.pool,
            lane: self.lane,
            ino: self.ino(),
            shared: self.share_leaves(&tree)?,
        };
        self.swing(class, (0, FANOUT), &mut leaves)?;
        self.replaced();
        Ok(())
    }

    /// Takes the mark from a root word that is the last to name its node. Other nodes may name the
    /// leaves' blocks: those leaves are marked before.
    fn keep_node(&mut self, tree: &Tree) -> Result<()> {
        let map = Bitmap::blocks(self.pool);
        self.locks.change();
        for slot in (tree.root.off()..).step_by(8).take(FANOUT as usize) {
            let leaf = Entry(self.pool.pm.load(slot));
            let is_others = leaf.is_leaf() && map.shares(leaf.off() >> BLOCK_SHIFT) > 0;
            if is_others && !planted!("bug-leaves-of-kept-node-unmarked") {
                // A mark is stored again where it is: a dead thread may not have flushed it.
                self.pool.pm.publish_hidden(slot, leaf.shared().0);
            }
        }
        let durable = self.pool.pm.fresh().barrier();
        let word = tree.root.0 & !SHARED;
        self.pool.pm.publish(tree.slot, word, durable);
        self.reload()
    }

    /// Gives the blocks of a file's only node one more share each, for a second node; answers which
    /// leaves have one. The blocks of the others are to be copied.
    fn share_leaves(&self, tree: &Tree) -> Result<Vec<bool>> {
        let mut shared = vec![false; FANOUT as usize];
        let mut index = 0;
        while index < FANOUT {
            if tree.find(self.pool, index)?.entry.is_hole() {
                index += 1;
                continue;
            }
            let run = self.run_at(tree, index)?;
            let room = Run {
                count: self.pool.make_room_for_shares(run),
                ..run
            };
            let purpose = |by| Purpose::Shared {
                ino: self.ino(),
                level: 0,
                index: index + by,
            };
            let count = match room.count {
                0 => 0,
                _ => self.pool.share(self.lane, room, purpose)?,
            };
            shared[index as usize..(index + count) as usize].fill(true);
            index += run.count;
        }
        Ok(shared)
    }
}

/// The leaves of a node, for another that names the same blocks.
struct OwnLeaves<'a> {
    pool: &'a Pool,
    lane: &'a Lane<'a>,
    ino: Ino,
    /// The leaves whose blocks have a share for this node.
    shared: Vec<bool>,
}

impl Leaves for OwnLeaves<'_> {
    fn whole(&mut self, _level: u32, _index: u64) -> Result<Option<Entry>> {
        Ok(None)
    }

    fn one(&mut self, fresh: &mut FreshSet<'_>, index: u64, old: Entry) -> Result<Entry> {
        if old.is_hole() || self.shared[index as usize] {
            return Ok(if old.is_hole() { old } else { old.shared() });
        }
        old.checked(&self.pool.data, BLOCK_BYTES, old.off())?;
        let purpose = Purpose::leaf(self.ino, index);
        let run = self
            .pool
            .alloc(self.lane, 1, Class::Ordinary, Zone::Data, purpose)?;
        let off = run.block << BLOCK_SHIFT;
        let mut block = Draft::new();
        block.keep(self.pool, old.off(), 0, BLOCK_BYTES)?;
        block.store(fresh, off)?;
        Ok(Entry::leaf(off))
    }
}
