//! Writing at or past the end: into memory that no size exposes, then the size. No log.

use super::source::Source;
use super::unwritten::Unwritten;
use super::{Work, block_of, is_direct};
use crate::purpose::Purpose;
use crate::tree::Found;
use crate::tree::edit::Leaves;
use crate::tree::entry::Entry;
use crate::types::LargePages;
use pm_journal::error::Result;
use pm_space::{Class, Wish, Zone};
use pm_store::FreshSet;
use pmfs_format::tree::FANOUT;
use pmfs_format::{BLOCK_BYTES, BLOCK_SHIFT};

/// A file at least this large grows by 2 MiB leaves; in the checker's small pools, where there is
/// nothing as large, sooner.
const GROW_LARGE: u64 = if pmem::RECORDING { 2 << 20 } else { 16 << 20 };

impl Work<'_> {
    /// Writes `data` at `at`, at or past the end.
    pub fn extend(&mut self, at: u64, data: Source<'_>) -> Result<()> {
        let size = self.inode.size();
        let end = at + data.len();
        if at > size {
            // The barrier before the size covers this too.
            let _ = self.expose(size, at)?;
        }
        let last = block_of(end - 1);
        let mut index = block_of(at);
        let mut fresh = self.pool.pm.fresh();
        while index <= last {
            index += self.fill(&mut fresh, index, last - index + 1, at, data)?;
        }
        let durable = fresh.barrier();
        self.publish_size(end, durable);
        if self.lane.intent_count() > 0 {
            self.replaced();
        }
        Ok(())
    }

    /// Gives blocks from `index` on their bytes, as many as are of one kind; answers how many.
    fn fill(
        &mut self,
        fresh: &mut FreshSet<'_>,
        index: u64,
        want: u64,
        at: u64,
        data: Source<'_>,
    ) -> Result<u64> {
        let tree = self.tree();
        let found = tree.find(self.pool, index)?;
        if found.entry.is_leaf() {
            let inside = index - found.base;
            let count = (found.units - inside).min(want);
            if found.entry.is_shared() {
                self.own(index, index + 1)?;
                return Ok(0);
            }
            if found.entry.is_unwritten() {
                if found.units > 1 {
                    self.write_out_large(&found)?;
                } else {
                    self.place(fresh, &found, (found.entry.off(), 1), index, at);
                    if found.level == 0 {
                        // The next block's branch is built from the root word, which must not be
                        // the old one.
                        self.reload()?;
                    }
                }
            }
            let off = found.entry.off() + inside * BLOCK_BYTES;
            self.put(fresh, off, (index, count), at, data)?;
            return Ok(count);
        }
        let large = found.level != 1 && self.grows_large(index, want, at);
        if is_direct(&tree, &found, index) && !large {
            // A run has as many neighbouring holes as are in the node.
            let in_node = FANOUT - (found.slot % BLOCK_BYTES / 8);
            let mut holes = 1;
            while found.level == 1
                && holes < want.min(in_node)
                && self.pool.pm.load(found.slot + holes * 8) == 0
            {
                holes += 1;
            }
            let purpose = Purpose::leaf(self.ino(), index);
            let wish = self.wish(&found, holes);
            let run =
                self.pool
                    .alloc_wish(self.lane, wish, Class::Ordinary, Zone::Data, purpose)?;
            let off = run.block << BLOCK_SHIFT;
            self.put(fresh, off, (index, run.count), at, data)?;
            self.place(fresh, &found, (off, run.count), index, at);
            if found.level == 0 {
                self.reload()?;
            }
            return Ok(run.count);
        }
        self.branch(index, large)?;
        Ok(0)
    }

    /// Blocks go behind the one before them in the file.
    fn wish(&self, found: &Found, want: u64) -> Wish {
        let before = match found.level == 1 && !found.slot.is_multiple_of(BLOCK_BYTES) {
            true => Entry(self.pool.pm.load(found.slot - 8)),
            false => Entry::HOLE,
        };
        Wish {
            want,
            after: before.is_leaf().then(|| before.off() >> BLOCK_SHIFT),
        }
    }

    /// Sets the leaves of so many blocks from `index` on, which stand at an offset in a row; the
    /// first one's bytes before `at` are zeros. If the size already exposes some of them, they must
    /// be durable first.
    fn place(
        &self,
        fresh: &mut FreshSet<'_>,
        found: &Found,
        (off, count): (u64, u64),
        index: u64,
        at: u64,
    ) {
        let start = index * BLOCK_BYTES;
        let head = at.saturating_sub(start).min(BLOCK_BYTES);
        if head > 0 {
            fresh.range(off, head).zero(0, head);
        }
        let pm = &self.pool.pm;
        let leaf = |block: u64| Entry::leaf(off + block * BLOCK_BYTES).0;
        let mut hidden = 0;
        if start < self.inode.size() {
            let durable = pm.fresh().barrier();
            self.locks.change();
            pm.publish(found.slot, leaf(0), durable);
            hidden = 1;
        }
        if hidden < count {
            let leaves = (hidden as usize..count as usize).map(|block| leaf(block as u64));
            pm.publish_hidden_run(found.slot + hidden * 8, leaves);
        }
    }

    /// Returns whether a whole large leaf is to begin at `index`: where a large file goes on
    /// without a gap, or a large write fills it.
    fn grows_large(&self, index: u64, want: u64, at: u64) -> bool {
        let size = self.inode.size();
        let goes_on = |bound| want >= FANOUT || size >= bound && at == size;
        let large = match self.pool.large {
            LargePages::Never => false,
            LargePages::Grow => goes_on(GROW_LARGE),
            LargePages::Always => goes_on(FANOUT * BLOCK_BYTES),
        };
        large && index.is_multiple_of(FANOUT) && at <= index * BLOCK_BYTES
    }

    /// Adds the nodes that lead to `index`: with a whole large leaf, or with one block, whose
    /// neighbours are then filled by runs.
    fn branch(&mut self, index: u64, large: bool) -> Result<()> {
        if large {
            if self.branch_with(index, index + FANOUT).is_ok() {
                return Ok(());
            }
            // No region was to be had: the nodes that would have led to it go.
            self.lane_done();
        }
        self.branch_with(index, index + 1)
    }

    fn branch_with(&mut self, from: u64, to: u64) -> Result<()> {
        let mut leaves = HiddenLeaves(Unwritten::of(self));
        self.swing(Class::Ordinary, (from, to), &mut leaves)
    }

    /// Writes the part of `data` (which starts at byte `at`) that falls into `count` blocks from
    /// `index`.
    fn put(
        &self,
        fresh: &mut FreshSet<'_>,
        off: u64,
        (index, count): (u64, u64),
        at: u64,
        data: Source<'_>,
    ) -> Result<()> {
        let start = (index * BLOCK_BYTES).max(at);
        let end = ((index + count) * BLOCK_BYTES).min(at + data.len());
        let to = off + start - index * BLOCK_BYTES;
        data.put(self.pool, fresh, to, start - at..end - at)
    }

    /// Resolves the intents of the replaced blocks, once all blocks that the call allocated are in
    /// place.
    pub fn replaced(&self) {
        crate::resolve::resolve_old(self.pool, self.lane);
        self.lane.store_block_count();
        self.lane.clear_intents();
    }

    /// Resolves the call's intents, with its locks still held.
    pub fn lane_done(&self) {
        crate::resolve::resolve(self.pool, self.lane);
        self.lane.store_block_count();
        self.lane.clear_intents();
    }
}

/// Leaves past the end: their content is undefined until a size exposes it.
struct HiddenLeaves<'a>(Unwritten<'a>);

impl Leaves for HiddenLeaves<'_> {
    fn whole(&mut self, level: u32, index: u64) -> Result<Option<Entry>> {
        if level != 2 {
            return Ok(None);
        }
        let Unwritten { pool, lane, ino } = self.0;
        let run = pool.alloc_region(lane, Class::Ordinary, Purpose::leaf(ino, index))?;
        Ok(Some(Entry::grown(run.block << BLOCK_SHIFT)))
    }

    fn one(&mut self, _fresh: &mut FreshSet<'_>, index: u64, old: Entry) -> Result<Entry> {
        debug_assert!(old.is_hole(), "only holes are filled here");
        // An 8 KiB gap's inside must read as zeros: unwritten until it is filled.
        self.0.block(index)
    }
}
