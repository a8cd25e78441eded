//! Whole blocks at several places of a file, all of them or none: the change that an atomic msync
//! publishes.
//!
//! The tree's nodes that lead to the blocks are built anew beside the old ones, from the root down,
//! with fresh blocks for the new bytes; the two trees share the nodes and blocks that did not
//! change. A single store of the root word publishes the new tree. Then the blocks that only the
//! old tree names are freed.

use super::Work;
use super::stock::{Need, Stock};
use crate::pool::Pool;
use crate::purpose::CHANGED;
use crate::resolve::intend_subtree;
use crate::tree::Tree;
use crate::tree::edit::{Entries, NO_ENTRIES, expand, write_node};
use crate::tree::entry::{Entry, span};
use crate::types::Ino;
use pm_journal::error::{Error, Result};
use pm_space::Class;
use pm_store::FreshSet;
use pmfs_format::{BLOCK_BYTES, BLOCK_SHIFT};

/// The most blocks that go through on a full pool: the blocks that they replace are freed at once.
const PRIVILEGED: u64 = 8;

/// A block of a file, and what it is to hold.
pub(crate) type Page<'a> = (u64, &'a [u8]);

impl Pool {
    /// See [`crate::Fs::write_pages`].
    pub(crate) fn write_pages(&self, ino: Ino, pages: &[(u64, &[u8])]) -> Result<()> {
        self.writable()?;
        let whole = |&(at, bytes): &(u64, &[u8])| {
            at.is_multiple_of(BLOCK_BYTES) && bytes.len() as u64 == BLOCK_BYTES
        };
        if !pages.iter().all(whole) || !pages.is_sorted_by(|one, next| one.0 < next.0) {
            return Err(Error::Invalid(
                &"whole blocks in ascending order are needed",
            ));
        }
        self.on_file(ino, |work| {
            if self.others_pin(work.locks.first(), ino) {
                return Err(Error::Mapped);
            }
            work.own_node(Class::Ordinary)?;
            let end = work.inode.size().div_ceil(BLOCK_BYTES);
            let pages: Vec<Page<'_>> = pages
                .iter()
                .map(|&(at, bytes)| (at >> BLOCK_SHIFT, bytes))
                .take_while(|page| page.0 < end)
                .collect();
            work.replace(&pages)
        })
    }
}

impl Work<'_> {
    fn replace(&mut self, pages: &[Page<'_>]) -> Result<()> {
        let Some(&(last, bytes)) = pages.last() else {
            return Ok(());
        };
        let old = self.tree();
        // Checks the root word, which nothing below does.
        old.find(self.pool, 0)?;
        let height = old.height_over(last + 1)?;
        if height == 0 {
            // A file of one block: the root word is its leaf.
            return self.overwrite_atomic(0, bytes);
        }
        let mut counted = Counted(0);
        raise(self.pool, &old, height, pages, &mut counted)?;
        let mut fresh = self.pool.pm.fresh();
        let count = pages.len() as u64;
        let is_privileged = counted.0 + count <= PRIVILEGED && !self.has_shared(&old, pages)?;
        let need = Need {
            height,
            nodes: counted.0,
            pages: count,
            class: match is_privileged {
                true => Class::Privileged,
                false => Class::Ordinary,
            },
            scattered: || Error::NoSpace,
        };
        let mut blocks = Blocks {
            stock: Stock::of(self, need)?,
            fresh: &mut fresh,
        };
        let new = raise(self.pool, &old, height, pages, &mut blocks)?;
        let swing = old.swing_root(new.rooted(height));
        intend_subtree(self.lane, &swing, (swing.base, swing.end()), CHANGED)?;
        let durable = fresh.barrier();
        self.locks.change();
        self.pool.pm.publish(swing.slot, swing.new.0, durable);
        self.reload()?;
        self.lazy_times();
        self.replaced();
        Ok(())
    }
}

impl Work<'_> {
    /// Whether other leaves may name one of the old pages, so that they stay.
    fn has_shared(&self, old: &Tree, pages: &[Page<'_>]) -> Result<bool> {
        for &(index, _) in pages {
            if old.find(self.pool, index)?.entry.is_shared() {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// The places for nodes and pages of a new tree.
trait Places {
    fn node(&mut self, entries: &Entries) -> Result<Entry>;
    fn page(&mut self, bytes: &[u8]) -> Result<Entry>;
}

/// The number of nodes that it takes.
struct Counted(u64);

impl Places for Counted {
    fn node(&mut self, _entries: &Entries) -> Result<Entry> {
        self.0 += 1;
        Ok(Entry::node(BLOCK_BYTES))
    }

    fn page(&mut self, _bytes: &[u8]) -> Result<Entry> {
        Ok(Entry::leaf(BLOCK_BYTES))
    }
}

/// Blocks that were allocated, and are stored.
struct Blocks<'f, 'p> {
    stock: Stock,
    fresh: &'f mut FreshSet<'p>,
}

impl Places for Blocks<'_, '_> {
    fn node(&mut self, entries: &Entries) -> Result<Entry> {
        let off = self.stock.node();
        write_node(self.fresh, off, entries)?;
        Ok(Entry::node(off))
    }

    fn page(&mut self, bytes: &[u8]) -> Result<Entry> {
        let off = self.stock.page();
        self.fresh.range(off, BLOCK_BYTES).bytes(0, bytes)?;
        Ok(Entry::leaf(off))
    }
}

/// The old tree with the pages in it, as a tree of height `level`.
fn raise(
    pool: &Pool,
    old: &Tree,
    level: u32,
    pages: &[Page<'_>],
    places: &mut dyn Places,
) -> Result<Entry> {
    if level == old.root.height() {
        let entry = old.root.unrooted();
        return match pages {
            [] => Ok(entry),
            _ => rebuild(pool, (entry, level, 0), pages, places),
        };
    }
    let (inside, behind) = pages.split_at(pages.partition_point(|page| page.0 < span(level)));
    if old.root.is_hole() && inside.is_empty() {
        return rebuild(pool, (Entry::HOLE, level, 0), behind, places);
    }
    let mut entries = NO_ENTRIES;
    entries[0] = raise(pool, old, level - 1, inside, places)?;
    replace_in(pool, (&mut entries, level, 0), behind, places)?;
    places.node(&entries)
}

/// Makes what is to stand in place of `old`, which covers what a tree of height `level` covers from
/// `base` on; the pages lie in there.
fn rebuild(
    pool: &Pool,
    (old, level, base): (Entry, u32, u64),
    pages: &[Page<'_>],
    places: &mut dyn Places,
) -> Result<Entry> {
    if level == 0 {
        return places.page(pages[0].1);
    }
    let mut entries = NO_ENTRIES;
    expand(pool, old, level, &mut entries)?;
    replace_in(pool, (&mut entries, level, base), pages, places)?;
    places.node(&entries)
}

/// Puts the pages behind a node's entries.
fn replace_in(
    pool: &Pool,
    (entries, level, base): (&mut Entries, u32, u64),
    pages: &[Page<'_>],
    places: &mut dyn Places,
) -> Result<()> {
    let mut rest = pages;
    while let Some(&(index, _)) = rest.first() {
        let at = (index - base) / span(level);
        let start = base + at * span(level);
        let count = rest.partition_point(|page| page.0 < start + span(level));
        let (inside, behind) = rest.split_at(count);
        let entry = &mut entries[at as usize];
        *entry = rebuild(pool, (*entry, level - 1, start), inside, places)?;
        rest = behind;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::scratch::{NODE, Scratch};
    use crate::{Fs, ROOT_INO};

    const PAGE: usize = 4096;

    fn file(fs: &Fs, bytes: usize) -> u64 {
        let attr = fs.create(ROOT_INO, b"f", &NODE).unwrap();
        fs.write(attr.ino, 0, &vec![1; bytes]).unwrap();
        fs.pin_apart(attr.ino).unwrap();
        attr.ino
    }

    fn page(byte: u8) -> Vec<u8> {
        vec![byte; PAGE]
    }

    /// Scattered pages of a file with nodes of three levels, a large leaf among them; what lies
    /// between stays, and nothing leaks.
    #[test]
    fn scattered_pages_are_replaced_and_nothing_else() {
        let scratch = Scratch::new(64 << 20);
        let fs = scratch.open();
        let bytes = 9 << 20;
        let ino = file(&fs, bytes);
        let free = fs.statfs().unwrap().blocks_free;
        let mut expected = vec![1; bytes];
        for round in 0..4u8 {
            let at = [
                0,
                3 * PAGE,
                511 * PAGE,
                512 * PAGE,
                1500 * PAGE,
                bytes - PAGE,
            ];
            let new = page(10 + round);
            let pages: Vec<(u64, &[u8])> = at.iter().map(|&at| (at as u64, &new[..])).collect();
            fs.write_pages(ino, &pages).unwrap();
            for at in at {
                expected[at..at + PAGE].fill(10 + round);
            }
            let mut found = vec![0; bytes];
            fs.read(ino, 0, &mut found).unwrap();
            assert!(found == expected, "round {round}");
        }
        fs.unpin(ino).unwrap();
        assert!(scratch.is_sound());
        let split = 4;
        assert!(
            free - fs.statfs().unwrap().blocks_free <= split,
            "blocks were lost"
        );
    }

    #[test]
    fn a_file_of_one_block_and_pages_past_the_end() {
        let scratch = Scratch::new(64 << 20);
        let fs = scratch.open();
        let ino = file(&fs, 100);
        let new = page(7);
        fs.write_pages(ino, &[(0, &new), (4096, &new)]).unwrap();
        let mut found = vec![0; 200];
        assert_eq!(fs.read(ino, 0, &mut found).unwrap(), 100);
        assert_eq!(found[..100], [7; 100]);
        assert!(fs.write_pages(ino, &[(1, &new)]).is_err());
        assert!(fs.write_pages(ino, &[(4096, &new), (0, &new)]).is_err());
    }
}
