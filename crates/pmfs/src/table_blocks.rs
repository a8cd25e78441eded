//! Where blocks of the inode table stand, as this process found them: every call looks at an inode, and the way there is half of what a
//! small read costs. A block of the table stays where it is for good, so what was found once need not be looked for again.
//!
//! Where accesses are recorded it is always looked for: an image that a checker puts back may be one from before the block was there.

use pmfs_format::BLOCK_SHIFT;
use std::sync::atomic::{AtomicU64, Ordering};

/// Blocks that are kept, each at the place that its index says.
const KEPT: u64 = 64;
/// Bits of a block's number in a word; above them is its index in the table.
const BLOCK_BITS: u32 = 32;

/// The blocks found last, of those that share a place.
#[derive(Debug)]
pub(crate) struct TableBlocks([AtomicU64; KEPT as usize]);

impl Default for TableBlocks {
    fn default() -> TableBlocks {
        TableBlocks([const { AtomicU64::new(0) }; KEPT as usize])
    }
}

impl TableBlocks {
    /// Byte offset of the table's block `index`.
    #[inline(always)]
    pub fn get(&self, index: u64) -> Option<u64> {
        if cfg!(feature = "record") {
            return None;
        }
        let word = self.0[(index % KEPT) as usize].load(Ordering::Acquire);
        let block = word & ((1 << BLOCK_BITS) - 1);
        (word >> BLOCK_BITS == index && block != 0).then_some(block << BLOCK_SHIFT)
    }

    /// Keeps it, if it fits.
    #[inline]
    pub fn keep(&self, index: u64, off: u64) {
        let block = off >> BLOCK_SHIFT;
        if (index | block) >> BLOCK_BITS == 0 {
            let word = index << BLOCK_BITS | block;
            self.0[(index % KEPT) as usize].store(word, Ordering::Release);
        }
    }

    /// Blocks may have been given anew.
    pub fn forget(&self) {
        for word in &self.0 {
            word.store(0, Ordering::Release);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::TableBlocks;

    #[test]
    fn a_block_is_told_from_those_that_share_its_place() {
        let blocks = TableBlocks::default();
        assert_eq!(blocks.get(0), None);
        blocks.keep(7, 5 << 12);
        let found = |index| blocks.get(index).filter(|_| !cfg!(feature = "record"));
        let kept = (!cfg!(feature = "record")).then_some(5 << 12);
        assert_eq!([7, 71, 0].map(found), [kept, None, None]);
        blocks.keep(71, 1 << 50);
        assert_eq!(
            found(7),
            kept,
            "it does not fit, and nothing is kept for it"
        );
        blocks.forget();
        assert_eq!(found(7), None);
    }
}
