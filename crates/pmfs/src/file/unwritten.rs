//! Leaves of blocks that read as zeros until they are written to.

use super::Work;
use crate::pool::Pool;
use crate::purpose::{Lane, Purpose};
use crate::tree::edit::Leaves;
use crate::tree::entry::Entry;
use crate::types::Ino;
use pm_journal::error::Result;
use pm_space::{Class, Zone};
use pm_store::FreshSet;
use pmfs_format::BLOCK_SHIFT;

/// Holes become blocks that read as zeros; what is there stays.
pub(super) struct Unwritten<'a> {
    pub pool: &'a Pool,
    pub lane: &'a Lane<'a>,
    pub ino: Ino,
}

impl<'a> Unwritten<'a> {
    pub fn of(work: &Work<'a>) -> Unwritten<'a> {
        Unwritten {
            pool: work.pool,
            lane: work.lane,
            ino: work.ino(),
        }
    }

    /// A leaf of one block.
    pub fn block(&self, index: u64) -> Result<Entry> {
        let purpose = Purpose::leaf(self.ino, index);
        let run = self
            .pool
            .alloc(self.lane, 1, Class::Ordinary, Zone::Data, purpose)?;
        Ok(Entry::unwritten(run.block << BLOCK_SHIFT))
    }
}

impl Leaves for Unwritten<'_> {
    fn whole(&mut self, level: u32, index: u64) -> Result<Option<Entry>> {
        let (pool, class) = (self.pool, Class::Ordinary);
        let purpose = |inside: u64| Purpose::leaf(self.ino, index + inside);
        let run = match level {
            2 => pool.alloc_region(self.lane, class, purpose(0)),
            3 => pool.alloc_gigabyte(self.lane, class, purpose),
            _ => return Ok(None),
        };
        // No large page left: small ones do.
        Ok(run
            .ok()
            .map(|run| Entry::unwritten(run.block << BLOCK_SHIFT)))
    }

    fn one(&mut self, _fresh: &mut FreshSet<'_>, index: u64, _old: Entry) -> Result<Entry> {
        self.block(index)
    }
}
