//! Annexes: volatile blocks outside of the runtime area, found by two levels of words
//! (docs/adr/0061-annexes.md).

use pmem::Pmem;
use pmfs_format::runtime::{
    ANNEX_COUNT_MAX, ANNEX_NODE, ANNEX_NODE_WORDS, ANNEX_ROOTS, SHARES, SHARES_NODE, SHARES_TOP,
    SHARES_UNITS,
};
use pmfs_format::{BLOCK_BYTES, LINE_BYTES};
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

/// Words of a node that name blocks.
const NODE_WORDS: u64 = (BLOCK_BYTES - LINE_BYTES) / 8;
/// Bits of a name that are its number.
const NUMBER: u64 = SHARES_TOP - SHARES - 1;

/// A block that is there for counts: its name, and the word that names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counter {
    /// The first word of the block.
    pub name: u64,
    /// The offset in bytes of the word that names it.
    pub slot: u64,
    /// Byte offset of the block; `None`: it is missing.
    pub off: Option<u64>,
}

impl Annexes {
    fn counter(&self, mem: &Pmem, name: u64, slot: u64) -> Counter {
        let off = mem.load_cached(slot);
        let is_there = off.is_multiple_of(BLOCK_BYTES) && self.data.contains(&off);
        let off = is_there.then_some(off);
        Counter { name, slot, off }
    }

    /// The uppermost node.
    fn shares_top(&self, mem: &Pmem) -> Counter {
        self.counter(mem, SHARES_TOP, self.shares)
    }

    /// Node `node`; `None` if no word can name it.
    fn shares_node(&self, mem: &Pmem, node: u64) -> Option<Counter> {
        let top = self.shares_top(mem).off?;
        let slot = top + LINE_BYTES + node * 8;
        (node < NODE_WORDS).then(|| self.counter(mem, SHARES_NODE | node, slot))
    }

    /// The block with the counts of the blocks from `page * SHARES_UNITS` on; `None` if no word can
    /// name it.
    fn shares_page(&self, mem: &Pmem, page: u64) -> Option<Counter> {
        let node = self.shares_node(mem, page / NODE_WORDS)?.off?;
        let slot = node + LINE_BYTES + page % NODE_WORDS * 8;
        Some(self.counter(mem, SHARES | page, slot))
    }

    /// The offset of the word with the count of `block` and its three neighbours; `None`: all are
    /// 0.
    #[must_use]
    pub fn shares_word(&self, mem: &Pmem, block: u64) -> Option<u64> {
        let page = self.shares_page(mem, block / SHARES_UNITS)?.off?;
        Some(page + LINE_BYTES + block % SHARES_UNITS / 4 * 8)
    }

    /// The uppermost missing block of those that the count of `block` needs. `None`: none is
    /// missing. A block so far behind that no count can be kept has an error instead.
    ///
    /// # Errors
    /// `()`.
    #[allow(clippy::result_unit_err, reason = "there is one cause")]
    pub fn missing_for_share(&self, mem: &Pmem, block: u64) -> Result<Option<Counter>, ()> {
        let page = block / SHARES_UNITS;
        if page / NODE_WORDS >= NODE_WORDS {
            return Err(());
        }
        let mut way = [Some(self.shares_top(mem)), None, None];
        way[1] = self.shares_node(mem, page / NODE_WORDS);
        way[2] = self.shares_page(mem, page);
        Ok(way.into_iter().flatten().find(|found| found.off.is_none()))
    }

    /// All blocks that are there for counts, each node before what it names.
    #[must_use]
    pub fn counters(&self, mem: &Pmem) -> Vec<Counter> {
        let top = self.shares_top(mem);
        let mut all = Vec::new();
        if top.off.is_none() {
            return all;
        }
        all.push(top);
        for node in 0..NODE_WORDS {
            let Some(found) = self
                .shares_node(mem, node)
                .filter(|node| node.off.is_some())
            else {
                continue;
            };
            all.push(found);
            let pages = node * NODE_WORDS..(node + 1) * NODE_WORDS;
            let pages = pages.filter_map(|page| self.shares_page(mem, page));
            all.extend(pages.filter(|page| page.off.is_some()));
        }
        all
    }

    /// Returns whether the block at `off`, with this name, is there for counts.
    pub(crate) fn is_counter(&self, mem: &Pmem, off: u64, name: u64) -> bool {
        let number = name & NUMBER;
        let found = match name & !NUMBER {
            SHARES_TOP => Some(self.shares_top(mem)),
            SHARES_NODE => self.shares_node(mem, number),
            SHARES => self.shares_page(mem, number),
            _ => None,
        };
        found.is_some_and(|found| found.off == Some(off))
    }
}

/// Returns whether a block with this name has counts, rather than names.
#[must_use]
pub fn has_counts(name: u64) -> bool {
    name & !NUMBER == SHARES
}

/// The blocks that a block of this name counts.
#[must_use]
pub fn counted_by(name: u64) -> std::ops::Range<u64> {
    let page = name & NUMBER;
    page * SHARES_UNITS..(page + 1) * SHARES_UNITS
}
