//! Counts of shares: volatile blocks outside of the runtime area, found by two levels of words
//! (docs/adr/0079-shared-blocks.md). The format is in [`pmfs_format::runtime`].

use crate::annexes::Annexes;
use pmem::Pmem;
use pmfs_format::runtime::{SHARES, SHARES_NODE, SHARES_TOP, SHARES_UNITS};
use pmfs_format::{BLOCK_BYTES, LINE_BYTES};

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
