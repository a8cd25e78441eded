//! Blocks of its own for a file in place of those that other leaves may name, too, before they are
//! stored to in place (docs/adr/0079-shared-blocks.md).

use super::Work;
use super::draft::Draft;
use crate::pool::Pool;
use crate::purpose::{Lane, Purpose};
use crate::tree::edit::Leaves;
use crate::tree::entry::Entry;
use crate::types::{Ino, Run};
use pm_journal::error::Result;
use pm_space::{Class, Zone};
use pm_store::FreshSet;
use pmfs_format::tree::FANOUT;
use pmfs_format::{BLOCK_BYTES, BLOCK_SHIFT};

impl Work<'_> {
    /// Replaces each shared leaf of the blocks `from..to` by a copy: zeros behind the end of the
    /// file, and a hole where nothing is before it. Each step is one pointer, and none shows.
    ///
    /// # Errors
    /// `NoSpace`.
    pub fn own(&mut self, from: u64, to: u64) -> Result<()> {
        let mut index = from;
        while index < to {
            let tree = self.tree();
            let found = tree.find(self.pool, index)?;
            let end = found.base.saturating_add(found.units).min(to);
            if !found.entry.is_shared() {
                index = end;
                continue;
            }
            let mut step = end.min(index + FANOUT);
            if found.level == 1 {
                // The node's neighbours go by one pointer.
                let in_node = FANOUT - found.slot % BLOCK_BYTES / 8;
                let is_shared = |&by: &u64| {
                    let entry = Entry(self.pool.pm.load(found.slot + by * 8));
                    entry.is_leaf() && entry.is_shared()
                };
                let most = in_node.min(to - index);
                step = index + (0..most).take_while(is_shared).count() as u64;
            }
            let mut leaves = Owned {
                pool: self.pool,
                lane: self.lane,
                ino: self.ino(),
                size: self.inode.size(),
                to: step,
                left: Run { block: 0, count: 0 },
            };
            self.swing(Class::Ordinary, (index, step), &mut leaves)?;
            self.lane_done();
            index = step;
        }
        Ok(())
    }
}

/// Copies of what shared leaves hold.
struct Owned<'a> {
    pool: &'a Pool,
    lane: &'a Lane<'a>,
    ino: Ino,
    size: u64,
    to: u64,
    /// Blocks allocated and not used yet.
    left: Run,
}

impl Leaves for Owned<'_> {
    fn whole(&mut self, _level: u32, _index: u64) -> Result<Option<Entry>> {
        Ok(None)
    }

    fn one(&mut self, fresh: &mut FreshSet<'_>, index: u64, old: Entry) -> Result<Entry> {
        let kept = self.size.saturating_sub(index * BLOCK_BYTES);
        let kept = kept.min(BLOCK_BYTES);
        if kept == 0 {
            return Ok(Entry::HOLE);
        }
        if self.left.count == 0 {
            let end = self.to.min(self.size.div_ceil(BLOCK_BYTES));
            let purpose = Purpose::leaf(self.ino, index);
            let class = Class::Ordinary;
            self.left = self
                .pool
                .alloc(self.lane, end - index, class, Zone::Data, purpose)?;
        }
        let off = self.left.block << BLOCK_SHIFT;
        self.left.block += 1;
        self.left.count -= 1;
        let mut block = Draft::new();
        block.keep(self.pool, old.off(), 0, kept)?;
        block.reach(BLOCK_BYTES);
        block.store(fresh, off)?;
        Ok(Entry::leaf(off))
    }
}
