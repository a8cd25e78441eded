//! Fresh blocks in place of old ones, with the bytes of a write in them.

use super::draft::Draft;
use super::{Work, block_of};
use crate::pool::Pool;
use crate::purpose::{Lane, Purpose};
use crate::tree::edit::Leaves;
use crate::tree::entry::Entry;
use crate::types::Run;
use crate::types::{DataMode, Ino, LargePages};
use pm_journal::error::{Error, Result};
use pm_space::{Class, Zone};
use pm_store::FreshSet;
use pmfs_format::tree::FANOUT;
use pmfs_format::{BLOCK_BYTES, BLOCK_SHIFT};

/// A write as leaves: each block it touches, composed of old bytes, new bytes and zeros.
pub(crate) struct Replacement<'a> {
    pool: &'a Pool,
    lane: &'a Lane<'a>,
    ino: Ino,
    /// Old bytes from here on are undefined.
    size: u64,
    at: u64,
    data: &'a [u8],
    /// Blocks allocated and not used yet.
    left: Run,
}

impl<'a> Replacement<'a> {
    pub fn of(work: &Work<'a>, at: u64, data: &'a [u8]) -> Replacement<'a> {
        Replacement {
            pool: work.pool,
            lane: work.lane,
            ino: work.ino(),
            size: work.inode.size(),
            at,
            data,
            left: Run { block: 0, count: 0 },
        }
    }

    fn end(&self) -> u64 {
        self.at + self.data.len() as u64
    }

    /// Fills the block at `off` with what block `index` is to hold; `old` is its leaf, or a hole.
    pub fn compose(
        &self,
        fresh: &mut FreshSet<'_>,
        off: u64,
        index: u64,
        old: Entry,
    ) -> Result<()> {
        let start = index * BLOCK_BYTES;
        let from = self.at.max(start) - start;
        let to = self.end().min(start + BLOCK_BYTES) - start;
        let piece = &self.data[(start + from - self.at) as usize..(start + to - self.at) as usize];
        if piece.len() == BLOCK_BYTES as usize {
            return Ok(fresh.range(off, BLOCK_BYTES).bytes(0, piece)?);
        }
        // The old block's bytes of the file are kept; the rest of the fresh one is zeros up to the
        // write, and undefined past the end.
        let kept = if old.is_leaf() && !old.is_unwritten() {
            self.size.saturating_sub(start).min(BLOCK_BYTES)
        } else {
            0
        };
        let mut block = Draft::new();
        block.keep(self.pool, old.off(), 0, kept.min(from))?;
        block.put(from, piece)?;
        block.keep(self.pool, old.off(), to, kept)?;
        block.reach((self.size.max(self.end()) - start).min(BLOCK_BYTES));
        block.store(fresh, off)
    }

    /// The next block for `index`, from a run as long as the write still needs.
    /// Replacing goes through on a full pool, filling holes and leaving shared blocks does not.
    fn next_block(&mut self, index: u64, old: Entry) -> Result<u64> {
        if self.left.count == 0 {
            let want = block_of(self.end() - 1) + 1 - index;
            let purpose = Purpose::leaf(self.ino, index);
            let want = want.min(1 << 20);
            let ordinary = self
                .pool
                .alloc(self.lane, want, Class::Ordinary, Zone::Data, purpose);
            self.left = match ordinary {
                Err(Error::NoSpace) if old.is_leaf() && !old.is_shared() => {
                    self.pool
                        .alloc(self.lane, 1, Class::Privileged, Zone::Data, purpose)?
                }
                answer => answer?,
            };
        }
        let off = self.left.block << BLOCK_SHIFT;
        self.left.block += 1;
        self.left.count -= 1;
        Ok(off)
    }
}

impl Leaves for Replacement<'_> {
    fn whole(&mut self, level: u32, index: u64) -> Result<Option<Entry>> {
        let start = index * BLOCK_BYTES;
        let inside = start >= self.at && start + FANOUT * BLOCK_BYTES <= self.end();
        let large =
            self.pool.data_mode == DataMode::Ordered && self.pool.large != LargePages::Never;
        if level != 2 || !inside || !large || self.left.count > 0 {
            return Ok(None);
        }
        let purpose = Purpose::leaf(self.ino, index);
        let Ok(run) = self.pool.alloc_region(self.lane, Class::Ordinary, purpose) else {
            return Ok(None);
        };
        let off = run.block << BLOCK_SHIFT;
        let from = (start - self.at) as usize;
        let bytes = &self.data[from..from + (FANOUT * BLOCK_BYTES) as usize];
        let mut fresh = self.pool.pm.fresh();
        fresh.range(off, FANOUT * BLOCK_BYTES).bytes(0, bytes)?;
        fresh.until_seal();
        Ok(Some(Entry::leaf(off)))
    }

    fn one(&mut self, fresh: &mut FreshSet<'_>, index: u64, old: Entry) -> Result<Entry> {
        let off = self.next_block(index, old)?;
        self.compose(fresh, off, index, old)?;
        Ok(Entry::leaf(off))
    }
}

impl Work<'_> {
    /// A write that begins inside the file and ends past it: fresh blocks, and slot and size in one
    /// transaction.
    pub fn straddle(&mut self, at: u64, data: &[u8]) -> Result<()> {
        let end = at + data.len() as u64;
        let (from, to) = (block_of(at), block_of(end - 1) + 1);
        let mut fresh = self.pool.pm.fresh();
        let mut leaves = Replacement::of(self, at, data);
        let swing = self.build(&mut fresh, Class::Ordinary, (from, to), &mut leaves)?;
        fresh.until_seal();
        self.publish_both(&swing, end);
        self.replaced();
        Ok(())
    }
}
