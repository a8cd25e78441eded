//! The places of the inode table's blocks, as this process found them. Every call reads an inode,
//! and the search took some two hundred of the 1,700 instructions of a small read. Only inodes
//! whose blocks are kept get hints, so it is worth keeping those of some tens of thousands. A block
//! of the table never moves, so a place once found stays right.
//!
//! The table is always searched where accesses are recorded: a crash image that a checker puts back
//! may be from before the block was there.

use pmfs_format::BLOCK_SHIFT;
use std::sync::atomic::{AtomicU64, Ordering};
use zerocopy::FromZeros;

/// Blocks that are kept, each at the place that its index says.
const KEPT: usize = 1 << KEPT_BITS;
const KEPT_BITS: u32 = 10;
/// Bits of a block's number in a word; above them is one more than its index in the table, so that
/// 0 is of none.
const BLOCK_BITS: u32 = 32;

/// Lanes take their inodes from parts of the table that lie far apart, by powers of two. This
/// multiplier (of Steele and Vigna's spectrally good ones) parts sixteen of them wherever they lie;
/// the golden ratio does not.
#[inline(always)]
fn place(index: u64) -> usize {
    (index.wrapping_mul(0xda94_2042_e4dd_58b5) >> (u64::BITS - KEPT_BITS)) as usize
}

/// The blocks found last, of those that share a place.
#[derive(Debug)]
pub struct TableBlocks(Box<[AtomicU64]>);

impl Default for TableBlocks {
    /// Zeros as the kernel gives them: what is not used is no memory.
    fn default() -> TableBlocks {
        TableBlocks(<[AtomicU64]>::new_box_zeroed_with_elems(KEPT).expect("memory"))
    }
}

impl TableBlocks {
    /// Byte offset of the table's block `index`.
    #[inline(always)]
    pub fn get(&self, index: u64) -> Option<u64> {
        if cfg!(feature = "record") {
            return None;
        }
        let word = self.0[place(index)].load(Ordering::Acquire);
        let block = word & ((1 << BLOCK_BITS) - 1);
        (word >> BLOCK_BITS == index + 1).then_some(block << BLOCK_SHIFT)
    }

    /// Keeps it, if it fits.
    #[inline]
    pub fn keep(&self, index: u64, off: u64) {
        let block = off >> BLOCK_SHIFT;
        if ((index + 1) | block) >> BLOCK_BITS == 0 {
            let word = (index + 1) << BLOCK_BITS | block;
            self.0[place(index)].store(word, Ordering::Release);
        }
    }

    /// Blocks may have been given anew.
    pub fn forget(&self) {
        for word in &*self.0 {
            word.store(0, Ordering::Release);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{TableBlocks, place};

    #[test]
    fn a_block_is_told_from_those_that_share_its_place() {
        let other = (8..).find(|&index| place(index) == place(7)).expect("one");
        let blocks = TableBlocks::default();
        assert_eq!(blocks.get(0), None);
        blocks.keep(7, 5 << 12);
        let kept = (!cfg!(feature = "record")).then_some(5 << 12);
        assert_eq!([7, other].map(|index| blocks.get(index)), [kept, None]);
        blocks.keep(other, 1 << 50);
        assert_eq!(
            blocks.get(7),
            kept,
            "it does not fit, and nothing is kept for it"
        );
        blocks.forget();
        assert_eq!(blocks.get(7), None);
    }

    /// Goal: the first inodes of lanes, and of the root, don't take each other's place.
    #[test]
    fn parts_of_a_table_have_places_of_their_own() {
        for apart in [1, 32, 64, 128, 1024] {
            let places: std::collections::BTreeSet<usize> =
                (0..16).map(|lane| place(lane * apart)).collect();
            assert!(places.len() >= 15, "{apart}: {places:?}");
        }
    }
}
