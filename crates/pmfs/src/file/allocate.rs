//! fallocate: blocks that read as zeros, holes, zeroed ranges.

use super::draft::Draft;
use super::unwritten::Unwritten;
use super::{Work, block_of, is_direct};
use crate::pool::Pool;
use crate::purpose::Purpose;
use crate::tree::edit::Leaves;
use crate::tree::entry::{Entry, coverage};
use crate::types::Run;
use crate::types::{FallocateMode, Ino, LargePages};
use pm_journal::error::{Error, Result};
use pm_space::{Bitmap, Class, Zone};
use pm_store::FreshSet;
use pmfs_format::inode::SIZE_MAX;
use pmfs_format::tree::FANOUT;
use pmfs_format::{BLOCK_BYTES, BLOCK_SHIFT};

impl Pool {
    /// See `fallocate(2)`.
    pub(crate) fn fallocate(&self, ino: Ino, mode: FallocateMode, at: u64, len: u64) -> Result<()> {
        self.writable()?;
        if len == 0 {
            return Err(Error::Invalid(&"fallocate of no bytes"));
        }
        let punch = mode.contains(FallocateMode::PUNCH_HOLE);
        let zero = mode.contains(FallocateMode::ZERO_RANGE);
        let keep = mode.contains(FallocateMode::KEEP_SIZE);
        if punch && (!keep || zero) {
            return Err(Error::NotSupported(&"PUNCH_HOLE goes with KEEP_SIZE alone"));
        }
        let class = match punch {
            true => Class::Privileged,
            false => Class::Ordinary,
        };
        self.on_file(ino, |work| {
            let end = at.checked_add(len).filter(|&end| end <= SIZE_MAX);
            let end = end.ok_or(Error::FileTooBig)?;
            work.own_node(class)?;
            let size = work.inode.size();
            if work.pinned && (punch || zero) {
                let size = if keep { size } else { size.max(end) };
                return work.zero_pinned((at, end), size, punch);
            }
            if punch {
                return work.zero_range(at, end, size, true);
            }
            if zero {
                let size = if keep { size } else { size.max(end) };
                return work.zero_range(at, end, size, false);
            }
            work.allocate(at, end)?;
            if !keep && end > work.inode.size() {
                let durable = work.expose(work.inode.size(), end)?;
                work.publish_size(end, durable);
            }
            Ok(())
        })
    }
}

impl Work<'_> {
    /// Gives every hole in the range a block that reads as zeros. Each is one store, and none
    /// shows.
    pub fn allocate(&mut self, at: u64, end: u64) -> Result<()> {
        let last = block_of(end - 1);
        let mut index = block_of(at);
        while index <= last {
            let tree = self.tree();
            let found = tree.find(self.pool, index)?;
            if found.entry.is_leaf() {
                index = found.base + found.units;
                continue;
            }
            if self.lane.room() < 16 {
                self.lane_done();
            }
            let whole = index.is_multiple_of(FANOUT) && last - index + 1 >= FANOUT;
            if is_direct(&tree, &found, index) && !(whole && found.level == 0) {
                let leaf = Unwritten::of(self).block(index)?;
                self.pool.pm.publish_hidden(found.slot, leaf.0);
                if found.level == 0 {
                    self.reload()?;
                }
                index += 1;
                continue;
            }
            // A branch is missing: build it with all that it is to hold.
            let wide = if found.level > 1 {
                found.base + found.units
            } else {
                u64::MAX
            };
            let to = (last + 1).min(wide).min((index / FANOUT + 1) * FANOUT);
            let hole = if found.level == 0 {
                u64::MAX
            } else {
                found.units
            };
            let to = self.gigabyte(index, last, hole).unwrap_or(to);
            // Blocks one by one may be more than the lane has records for: then a part of them.
            let part = to.min(index + self.lane.room() / 2);
            match self.swing_in(index, to) {
                Err(Error::NoSpace) if part < to => {
                    self.lane_done();
                    self.swing_in(index, part)?;
                    index = part;
                }
                done => {
                    done?;
                    index = to;
                }
            }
        }
        self.pool.pm.barrier();
        self.lane_done();
        Ok(())
    }

    /// The end of the aligned gigabyte at `index`, if it is a hole and all to be allocated.
    fn gigabyte(&self, index: u64, last: u64, hole: u64) -> Option<u64> {
        let blocks = FANOUT * FANOUT;
        let whole = index.is_multiple_of(blocks) && last - index + 1 >= blocks && hole >= blocks;
        whole.then_some(index + blocks)
    }

    /// Fills the range's holes of 2 MiB that are to get large pages when they are first written to:
    /// they get such pages, that read as zeros. Without room for them they stay holes.
    pub fn touch(&mut self, at: u64, end: u64) -> Result<()> {
        if self.pool.large != LargePages::Always {
            return Ok(());
        }
        let last = block_of(end - 1) / FANOUT;
        let inside = self.inode.size() / BLOCK_BYTES / FANOUT;
        for region in block_of(at) / FANOUT..(last + 1).min(inside) {
            let index = region * FANOUT;
            let found = self.tree().find(self.pool, index)?;
            let is_hole = found.entry.is_hole() && found.level != 1;
            if is_hole && Bitmap::blocks(self.pool).has_region() {
                match self.swing_in(index, index + FANOUT) {
                    Err(Error::NoSpace) => self.lane_done(),
                    done => done?,
                }
            }
        }
        Ok(())
    }

    /// Gives the holes among these blocks blocks that read as zeros, by one pointer.
    fn swing_in(&mut self, from: u64, to: u64) -> Result<()> {
        self.swing(Class::Ordinary, (from, to), &mut Unwritten::of(self))?;
        self.lane_done();
        Ok(())
    }

    /// Makes the range read as zeros, as a hole or with blocks, all at once; `size` is the new
    /// size.
    fn zero_range(&mut self, at: u64, end: u64, size: u64, punch: bool) -> Result<()> {
        let old = self.inode.size();
        if size > old {
            let _ = self.expose(old, size)?;
        }
        let tree = self.tree();
        // Past the end of a tree there is nothing to punch.
        let limit = if punch {
            coverage(tree.root.height()) * BLOCK_BYTES
        } else {
            u64::MAX
        };
        let end = end.min(limit);
        if at >= end || punch && tree.root.is_hole() {
            return Ok(());
        }
        let range = (block_of(at), block_of(end - 1) + 1);
        let class = if punch {
            Class::Privileged
        } else {
            Class::Ordinary
        };
        let mut leaves = Zeroed {
            holes: Unwritten::of(self),
            size: old,
            at,
            end,
            punch,
            left: Run { block: 0, count: 0 },
        };
        if size == old {
            self.swing(class, range, &mut leaves)?;
            self.lazy_times();
        } else {
            let mut fresh = self.pool.pm.fresh();
            let swing = self.build(&mut fresh, class, range, &mut leaves)?;
            fresh.until_seal();
            self.publish_both(&swing, size);
        }
        self.lane_done();
        Ok(())
    }

    /// A range becomes zeros and keeps its blocks; `size` is the new size.
    pub fn zero_pinned(&mut self, (at, end): (u64, u64), size: u64, punch: bool) -> Result<()> {
        let old = self.inode.size();
        if !punch {
            self.allocate(at, end)?;
            self.reload()?;
        }
        self.zero_in_place(at, end.min(old).max(at))?;
        if size > old {
            let durable = self.expose(old, size)?;
            self.publish_size(size, durable);
        } else {
            self.lazy_times();
        }
        Ok(())
    }
}

/// A range that reads as zeros, with the bytes around it in its first and last block kept.
struct Zeroed<'a> {
    holes: Unwritten<'a>,
    size: u64,
    at: u64,
    end: u64,
    punch: bool,
    /// Blocks allocated and not used yet.
    left: Run,
}

impl Zeroed<'_> {
    /// The next block for `index`, from a run as long as the range still needs: a record for each
    /// block would be more than a lane has. A punch goes through on a full pool, unless other
    /// leaves may name the `old` block, which stays then.
    fn next_block(&mut self, index: u64, old: Entry) -> Result<u64> {
        if self.left.count == 0 {
            let (class, want) = match self.punch {
                true if old.is_shared() => (Class::Ordinary, 1),
                true => (Class::Privileged, 1),
                false => (Class::Ordinary, block_of(self.end - 1) + 1 - index),
            };
            let Unwritten { pool, lane, ino } = self.holes;
            let purpose = Purpose::leaf(ino, index);
            let want = want.min(1 << 20);
            self.left = pool.alloc(lane, want, class, Zone::Data, purpose)?;
        }
        let off = self.left.block << BLOCK_SHIFT;
        self.left.block += 1;
        self.left.count -= 1;
        Ok(off)
    }
}

impl Leaves for Zeroed<'_> {
    fn whole(&mut self, level: u32, index: u64) -> Result<Option<Entry>> {
        let start = index * BLOCK_BYTES;
        let units = 1 << (9 * (level - 1));
        if start < self.at || start + units * BLOCK_BYTES > self.end {
            return Ok(None);
        }
        if self.punch {
            return Ok(Some(Entry::HOLE));
        }
        if self.left.count > 0 {
            return Ok(None);
        }
        self.holes.whole(level, index)
    }

    fn one(&mut self, fresh: &mut FreshSet<'_>, index: u64, old: Entry) -> Result<Entry> {
        let start = index * BLOCK_BYTES;
        let from = self.at.max(start) - start;
        let to = self.end.min(start + BLOCK_BYTES) - start;
        let kept = self.size.saturating_sub(start).min(BLOCK_BYTES);
        let empty = old.is_hole() || old.is_unwritten() || from == 0 && to >= kept;
        if empty && self.punch {
            return Ok(Entry::HOLE);
        }
        let off = self.next_block(index, old)?;
        if empty {
            return Ok(Entry::unwritten(off));
        }
        let mut block = Draft::new();
        block.keep(self.holes.pool, old.off(), 0, from)?;
        block.keep(self.holes.pool, old.off(), to, BLOCK_BYTES)?;
        block.reach(BLOCK_BYTES);
        block.store(fresh, off)?;
        Ok(Entry::leaf(off))
    }
}
