//! Annexes: volatile blocks outside of the runtime area, found by two levels of words
//! (docs/adr/0061-annexes.md).

use pmfs_format::BLOCK_BYTES;
use pmfs_format::runtime::{ANNEX_COUNT_MAX, ANNEX_NODE, ANNEX_NODE_WORDS, ANNEX_ROOTS, SHARES};
use std::ops::Range;

/// The end of the annex numbers: the greatest number, plus one.
const ANNEXES_END: u64 = ANNEX_ROOTS * ANNEX_NODE_WORDS;

/// The offset in bytes of the block that the word `word` names.
pub fn block_of(word: u64) -> u64 {
    word & !ANNEX_COUNT_MAX
}

/// Returns whether a block's name word is that of an annex (else it is that of a node).
fn is_annex(name: u64) -> bool {
    name & ANNEX_NODE == 0
}

/// The annexes of a pool. [`crate::Runtime`] may store to these volatile blocks beside its area.
#[derive(Clone, Debug, Default)]
pub struct Annexes {
    /// The offset in bytes of the words that name nodes.
    pub roots: u64,
    /// The offset in bytes of the word that names the uppermost node of the counts of shares.
    pub shares: u64,
    /// The range of bytes where blocks may be.
    pub data: Range<u64>,
}

impl Annexes {
    /// The offset of the block that the word at `slot` names; `None` if the word can name no block.
    pub fn named(&self, mem: &pmem::Pmem, slot: u64) -> Option<u64> {
        let block = block_of(mem.load_cached(slot));
        (block != 0 && self.data.contains(&block)).then_some(block)
    }

    /// The offset of the word that names a node.
    pub fn root(&self, node: u64) -> u64 {
        self.roots + node * 8
    }

    /// The offset of the word that names an annex; `None` if the annex's node is missing.
    pub fn slot(&self, mem: &pmem::Pmem, annex: u64) -> Option<u64> {
        let node = self.named(mem, self.root(annex / ANNEX_NODE_WORDS))?;
        Some(node + 8 + annex % ANNEX_NODE_WORDS * 8)
    }

    /// The offset of an annex; `None` if it does not exist.
    pub fn find(&self, mem: &pmem::Pmem, annex: u64) -> Option<u64> {
        self.named(mem, self.slot(mem, annex)?)
    }

    /// Returns whether `off..off + len` lies inside one annex or one node.
    #[cold]
    pub fn contain(&self, mem: &pmem::Pmem, off: u64, len: u64) -> bool {
        let block = off & !(BLOCK_BYTES - 1);
        if !self.data.contains(&block) || off + len > block + BLOCK_BYTES {
            return false;
        }
        let name = mem.load_cached(block);
        if name & SHARES != 0 && name & ANNEX_NODE == 0 {
            return self.is_counter(mem, block, name);
        }
        let found = match is_annex(name) {
            true if name < ANNEXES_END => self.find(mem, name),
            true => None,
            false => {
                let node = name & !ANNEX_NODE;
                let is_one = node * ANNEX_NODE_WORDS < ANNEXES_END;
                is_one.then(|| self.named(mem, self.root(node))).flatten()
            }
        };
        found == Some(block)
    }
}
