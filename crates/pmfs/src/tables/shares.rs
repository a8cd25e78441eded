//! Counts of shares (docs/adr/0079-shared-blocks.md): the blocks that hold them, which come as
//! annexes do, and counts in the making.

use crate::pool::Pool;
use crate::types::Run;
use pm_journal::error::Result;
use pm_journal::medium::header::annex_word;
use pm_journal::medium::store::Held;
use pm_journal::medium::superblock;
use pm_space::{Bitmap, Class};
use pm_store::annexes::{Counter, has_counts};
use pmfs_format::runtime::{SHARES_MAX, SHARES_UNITS};
use pmfs_format::superblock::FEATURE_SHARED;
use pmfs_format::{BLOCK_BYTES, BLOCK_SHIFT, LINE_BYTES};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

/// How many shared leaves name each block, counted by a walk of all trees.
pub struct Counted(Vec<OnceLock<Box<[AtomicU32]>>>);

impl Counted {
    /// Counts for so many blocks, all 0.
    #[must_use]
    pub fn new(blocks: u64) -> Counted {
        Counted(
            (0..blocks.div_ceil(SHARES_UNITS))
                .map(|_| OnceLock::new())
                .collect(),
        )
    }

    /// Counts one more; answers how many there were. A block outside of the pool has none.
    pub fn add(&self, block: u64) -> u32 {
        let Some(page) = self.0.get((block / SHARES_UNITS) as usize) else {
            return 0;
        };
        let new = || (0..SHARES_UNITS).map(|_| AtomicU32::new(0)).collect();
        let count = &page.get_or_init(new)[(block % SHARES_UNITS) as usize];
        count.fetch_add(1, Ordering::Relaxed)
    }

    /// The count of shared leaves that name a block.
    #[must_use]
    pub fn leaves(&self, block: u64) -> u32 {
        let page = self.0.get((block / SHARES_UNITS) as usize);
        let count = page.and_then(OnceLock::get);
        let count = count.map(|counts| &counts[(block % SHARES_UNITS) as usize]);
        count.map_or(0, |count| count.load(Ordering::Relaxed))
    }

    /// The blocks that several leaves name: block, and leaves beside one that name it.
    pub fn all(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        let pages = (0..).zip(&self.0);
        pages
            .filter_map(|(page, counts)| Some((page, counts.get()?)))
            .flat_map(|(page, counts)| (page * SHARES_UNITS..).zip(counts.iter().map(shares_of)))
            .filter(|&(_, shares)| shares > 0)
    }
}

fn shares_of(count: &AtomicU32) -> u64 {
    u64::from(count.load(Ordering::Relaxed)).saturating_sub(1)
}

impl Pool {
    /// The blocks that are there for counts, each node before what it names.
    #[must_use]
    pub fn counters(&self) -> Vec<Counter> {
        self.pm.annexes().counters(self.pm.mapping())
    }

    /// Has a place for the counts of these blocks be there; answers for how many of them, from the
    /// first on.
    #[cfg_attr(feature = "record", track_caller)]
    pub(crate) fn make_room_for_shares(&self, run: Run) -> u64 {
        let end = run.block + run.count;
        let mut block = run.block;
        while block < end && self.has_room_for_share(block) {
            block = ((block / SHARES_UNITS + 1) * SHARES_UNITS).min(end);
        }
        block - run.block
    }

    #[cfg_attr(feature = "record", track_caller)]
    fn has_room_for_share(&self, block: u64) -> bool {
        let (annexes, mem) = (self.pm.annexes(), self.pm.mapping());
        if annexes.missing_for_share(mem, block) == Ok(None) {
            return true;
        }
        // A reader of a pool without the feature does not know shared leaves.
        if self.superblock.features_incompat & FEATURE_SHARED == 0 {
            return false;
        }
        // In a bitmap that was made of damaged trees a free bit may belong to a block in use.
        if self.is_damaged() {
            return false;
        }
        let _held = Held::new(self, annex_word(self));
        loop {
            match annexes.missing_for_share(mem, block) {
                Ok(None) => return true,
                Ok(Some(missing)) if self.lend(missing.slot, missing.name, Class::Ordinary) => {}
                _ => return false,
            }
        }
    }

    /// Gives back the blocks in which all counts are 0, and nodes that name none: for a process
    /// that has the pool to itself.
    pub(crate) fn give_shares_back(&self) {
        let is_empty = |counter: &Counter| {
            let off = counter.off.unwrap_or(0);
            let mut words = (LINE_BYTES..BLOCK_BYTES).step_by(8);
            words.all(|word| self.pm.load(off + word) == 0)
        };
        // A node stands before what it names.
        for counter in self
            .counters()
            .iter()
            .rev()
            .filter(|counter| is_empty(counter))
        {
            self.give_back(counter.slot);
        }
    }

    /// Returns whether each block for counts has its name and its bit.
    pub(crate) fn counters_rest(&self) -> bool {
        let map = Bitmap::blocks(self);
        self.counters().into_iter().all(|counter| {
            let off = counter.off.unwrap_or(0);
            self.pm.load(off) == counter.name && map.is_set(off >> BLOCK_SHIFT)
        })
    }

    /// Stores the counts of a walk into a runtime area that has none; `block` gives a free block.
    /// Answers whether all had room.
    pub(crate) fn store_shares(
        &self,
        counted: &Counted,
        mut block: impl FnMut() -> Option<u64>,
    ) -> bool {
        let (annexes, mem, runtime) = (self.pm.annexes(), self.pm.mapping(), self.pm.runtime());
        for (page, counts) in (0..).zip(&counted.0) {
            let Some(counts) = counts.get() else { continue };
            if counts.iter().all(|count| shares_of(count) == 0) {
                continue;
            }
            let first = page * SHARES_UNITS;
            while let Ok(Some(missing)) = annexes.missing_for_share(mem, first) {
                let Some(block) = block() else { return false };
                runtime.begin_annex(block << BLOCK_SHIFT, missing.name);
                runtime.store(missing.slot, block << BLOCK_SHIFT);
            }
            let Some(off) = annexes.shares_word(mem, first) else {
                return false;
            };
            for (word, counts) in (0..).zip(counts.chunks_exact(4)) {
                let counts = counts.iter().map(shares_of);
                let mut value = 0;
                for (at, count) in counts.enumerate() {
                    if count > SHARES_MAX {
                        return false;
                    }
                    value |= count << (16 * at);
                }
                runtime.store(off + word * 8, value);
            }
        }
        true
    }

    /// Goes on with the checksum of the runtime area through the counts.
    ///
    /// # Errors
    /// `Medium`.
    pub(crate) fn crc_of_shares(&self, mut crc: u32) -> Result<u32> {
        for off in self
            .counters()
            .into_iter()
            .filter_map(|counter| counter.off)
        {
            crc = superblock::crc_on(self.pm.mapping(), crc, off..off + BLOCK_BYTES, |_, _| {})?;
        }
        Ok(crc)
    }

    /// The counts of all blocks that have one: block, and leaves beside one that name it.
    pub fn all_shares(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        let map = Bitmap::blocks(self);
        let pages = self
            .counters()
            .into_iter()
            .filter(|counter| has_counts(counter.name));
        pages
            .flat_map(|page| pm_store::annexes::counted_by(page.name))
            .map(move |block| (block, map.shares(block)))
            .filter(|&(_, shares)| shares > 0)
    }
}
