//! Pools whose file has less space than bytes (`mkfs --sparse`): a block gets space before it is
//! given out, so that where there is none the caller is told so (docs/adr/0035-space.md). A store
//! would be a signal, and the end of this process's use of the pool.

use crate::error::{Error, Result};
use crate::medium::store::Store;
use crate::types::Run;
use pmfs_format::BLOCK_BYTES;
use pmfs_format::tree::FANOUT;
use std::sync::atomic::{AtomicU64, Ordering};

/// Blocks that get space together.
pub const REGION: u64 = FANOUT;

/// The regions that are known to have space; none of a pool that is not sparse.
#[derive(Debug, Default)]
pub(crate) struct Backed(Box<[AtomicU64]>);

impl Backed {
    pub fn of(mem: &pmem::Pmem, blocks: u64) -> Backed {
        let regions = match mem.is_sparse() {
            true => blocks.div_ceil(REGION),
            false => 0,
        };
        Backed(
            (0..regions.div_ceil(64))
                .map(|_| AtomicU64::new(0))
                .collect(),
        )
    }

    #[inline]
    fn is_known(&self, region: u64) -> bool {
        let word = &self.0[(region / 64) as usize];
        word.load(Ordering::Relaxed) >> (region % 64) & 1 == 1
    }

    fn note(&self, region: u64) {
        let word = &self.0[(region / 64) as usize];
        word.fetch_or(1 << (region % 64), Ordering::Relaxed);
    }
}

impl Store {
    /// Returns whether blocks may have no space.
    #[inline]
    pub fn is_sparse(&self) -> bool {
        !self.backed.0.is_empty()
    }

    /// Returns whether a region of blocks, [`REGION`] each, is known to have space.
    #[inline]
    pub fn is_backed(&self, region: u64) -> bool {
        self.backed.is_known(region)
    }

    /// Sees to it that these blocks have space. `false`: there is not enough.
    #[inline]
    pub fn has_space(&self, run: Run) -> bool {
        !self.is_sparse() || self.back(run)
    }

    #[cold]
    fn back(&self, run: Run) -> bool {
        let end = run.block + run.count;
        let regions = run.block / REGION..end.div_ceil(REGION);
        regions.into_iter().all(|region| {
            let first = region * REGION;
            let whole = first..(first + REGION).min(self.geometry.blocks);
            if self.backed.is_known(region) {
                return true;
            }
            if self.back_blocks(whole.start, whole.end) {
                self.backed.note(region);
                return true;
            }
            // The space left may be enough for these.
            self.back_blocks(run.block.max(whole.start), end.min(whole.end))
        })
    }

    /// Gives blocks space, whether or not they have some. `false`: there is not enough.
    pub fn back_blocks(&self, from: u64, to: u64) -> bool {
        let mem = self.pm.mapping();
        mem.back(from * BLOCK_BYTES, (to - from) * BLOCK_BYTES)
    }

    /// Before anybody uses them: the tables have space.
    ///
    /// # Errors
    /// [`Error::NoSpace`].
    pub fn back_tables(&self) -> Result<()> {
        let head = Run {
            block: 0,
            count: self.geometry.data_start,
        };
        let has = !self.is_sparse()
            || [head, self.geometry.tail()]
                .iter()
                .all(|run| self.back_blocks(run.block, run.block + run.count));
        has.then_some(()).ok_or(Error::NoSpace)
    }
}
