//! COLLAPSE_RANGE and INSERT_RANGE: the data behind a point moves to lower or higher offsets.
//!
//! Data stays where it is. From that point on the tree's nodes are built anew beside the old ones,
//! with the moved blocks in their new places (a large leaf that no longer lies on its boundary
//! becomes small ones, in the same memory), and root word and size change in one transaction. Then
//! the old nodes are freed, and of the leaves only those that a collapse took out.

use super::stock::{Need, Stock};
use super::{Work, block_of};
use crate::pool::Pool;
use crate::resolve::intend_subtree;
use crate::tree::Tree;
use crate::tree::edit::{Entries, write_node};
use crate::tree::entry::{Entry, coverage, place, span};
use crate::types::Ino;
use pm_journal::error::{Error, Result};
use pm_space::Class;
use pm_store::Durable;
use pmfs_format::BLOCK_BYTES;
use pmfs_format::inode::SIZE_MAX;
use pmfs_format::tree::{FANOUT, SHARED, UNWRITTEN};

/// A collapse that takes no more nodes than this goes through on a full pool: it may be what makes
/// room.
const PRIVILEGED_NODES: u64 = 8;

/// A move of blocks: its place, its length and its direction, in blocks.
#[derive(Clone, Copy)]
struct Shift {
    at: u64,
    len: u64,
    insert: bool,
}

impl Pool {
    /// Takes a range out of a file: what lies behind it moves up to its start.
    pub(crate) fn collapse_range(&self, ino: Ino, at: u64, len: u64) -> Result<()> {
        self.shift(ino, at, len, false)
    }

    /// Makes room in a file: what lies from `at` on moves by `len` bytes and leaves a hole.
    pub(crate) fn insert_range(&self, ino: Ino, at: u64, len: u64) -> Result<()> {
        self.shift(ino, at, len, true)
    }

    fn shift(&self, ino: Ino, at: u64, len: u64, insert: bool) -> Result<()> {
        self.writable()?;
        if len == 0 || !at.is_multiple_of(BLOCK_BYTES) || !len.is_multiple_of(BLOCK_BYTES) {
            return Err(Error::Invalid(&"a range of whole blocks is needed"));
        }
        let end = at.checked_add(len).filter(|&end| end <= SIZE_MAX);
        let end = end.ok_or(Error::FileTooBig)?;
        let shift = Shift {
            at: block_of(at),
            len: block_of(len),
            insert,
        };
        self.on_file(ino, |work| {
            if work.pinned {
                return Err(Error::Mapped);
            }
            let size = work.inode.size();
            let new_size = match insert {
                true if size + len > SIZE_MAX => return Err(Error::FileTooBig),
                true if at >= size => return Err(Error::Invalid(&"insert at or past the end")),
                true => size + len,
                false if end >= size => return Err(Error::Invalid(&"collapse up to the end")),
                false => size - len,
            };
            work.own_node(match insert {
                true => Class::Ordinary,
                false => Class::Privileged,
            })?;
            work.shift(shift, new_size)
        })
    }
}

impl Work<'_> {
    fn shift(&mut self, shift: Shift, size: u64) -> Result<()> {
        let old = self.tree();
        let Some(last) = last_leaf(self.pool, &old)?.filter(|&last| last >= shift.at) else {
            // Nothing is there that could move, or that the new end could show.
            self.publish_size(size, Durable::nothing_exposed());
            return Ok(());
        };
        let end = if shift.insert {
            last + 1 + shift.len
        } else {
            0
        };
        let height = old.height_over(end)?;
        let rebuild = Rebuild {
            pool: self.pool,
            old,
            shift,
        };
        let mut count = 0;
        rebuild.subtree(height, 0, &mut |_| {
            count += 1;
            Ok(Entry::node(BLOCK_BYTES))
        })?;
        let need = Need {
            height,
            nodes: count,
            pages: 0,
            class: match !shift.insert && count <= PRIVILEGED_NODES {
                true => Class::Privileged,
                false => Class::Ordinary,
            },
            scattered: || Error::FileTooBig,
        };
        let mut stock = Stock::of(self, need)?;
        let mut fresh = self.pool.pm.fresh();
        let new = rebuild.subtree(height, 0, &mut |entries| {
            let off = stock.node();
            write_node(&mut fresh, off, entries)?;
            Ok(Entry::node(off))
        })?;
        let swing = old.swing_root(new.rooted(if new.is_hole() { 0 } else { height }));
        let stay = shift.insert && !planted!("bug-insert-frees-moved");
        let gone = if stay { 0 } else { shift.len };
        intend_subtree(self.lane, &swing, (shift.at, swing.end()), shift.at + gone)?;
        fresh.until_seal();
        self.publish_both(&swing, size);
        self.lane_done();
        Ok(())
    }
}

/// The last index that has a block.
fn last_leaf(pool: &Pool, tree: &Tree) -> Result<Option<u64>> {
    if tree.root.is_hole() {
        return Ok(None);
    }
    // Checks the root word, which nothing below does.
    tree.find(pool, 0)?;
    last_below(pool, tree.root.unrooted(), tree.slot, tree.root.height(), 0)
}

fn last_below(pool: &Pool, entry: Entry, slot: u64, level: u32, base: u64) -> Result<Option<u64>> {
    if entry.is_hole() {
        return Ok(None);
    }
    if entry.is_leaf() {
        return Ok(Some(base + coverage(level) - 1));
    }
    if level == 0 {
        return Err(crate::tree::corrupt("tree deeper than its height", slot));
    }
    let node = entry.checked(&pool.data, BLOCK_BYTES, slot)?.off();
    for at in (0..FANOUT).rev() {
        let child = Entry(pool.pm.load(node + at * 8));
        let child_base = base + at * span(level);
        let last = last_below(pool, child, node + at * 8, level - 1, child_base)?;
        if last.is_some() {
            return Ok(last);
        }
    }
    Ok(None)
}

/// The new tree, seen from the old one.
struct Rebuild<'a> {
    pool: &'a Pool,
    old: Tree,
    shift: Shift,
}

/// Gives a node its place.
type Placing<'a> = &'a mut dyn FnMut(&Entries) -> Result<Entry>;

impl Rebuild<'_> {
    /// Makes what a tree of height `level` is to have from `base` on.
    fn subtree(&self, level: u32, base: u64, place: Placing<'_>) -> Result<Entry> {
        let units = coverage(level);
        let Shift { at, len, insert } = self.shift;
        if base + units <= at {
            return self.kept(level, base);
        }
        let moved_from = if insert { at + len } else { at };
        if insert && base >= at && base + units <= moved_from {
            return Ok(Entry::HOLE);
        }
        if base >= moved_from {
            let from = if insert { base - len } else { base + len };
            if let Some(entry) = self.moved(level, from)? {
                return Ok(entry);
            }
        }
        let mut entries = [Entry::HOLE; FANOUT as usize];
        for (child, entry) in entries.iter_mut().enumerate() {
            *entry = self.subtree(level - 1, base + child as u64 * span(level), place)?;
        }
        if entries.iter().all(|entry| entry.is_hole()) {
            return Ok(Entry::HOLE);
        }
        place(&entries)
    }

    /// The old tree's entry for all that a tree of height `level` covers from `base` on, nodes and
    /// all.
    fn kept(&self, level: u32, base: u64) -> Result<Entry> {
        let mut here = self.old.root.height();
        let mut entry = self.old.root.unrooted();
        let mut slot = self.old.slot;
        while here > level && entry.is_node() {
            let node = entry.checked(&self.pool.data, BLOCK_BYTES, slot)?.off();
            slot = node + place(here, base) * 8;
            entry = Entry(self.pool.pm.load(slot));
            here -= 1;
        }
        if entry.is_leaf() && here > level {
            return Ok(part(entry, base % coverage(here)));
        }
        Ok(entry)
    }

    /// The entry for as much, which stood from `from` on and moves, if one entry can say it: a
    /// hole, or a leaf on its boundary. A single block always has one.
    fn moved(&self, level: u32, from: u64) -> Result<Option<Entry>> {
        let units = coverage(level);
        let found = self.old.find(self.pool, from)?;
        if from + units > found.base + found.units {
            return Ok(None);
        }
        if found.entry.is_hole() {
            return Ok(Some(Entry::HOLE));
        }
        let aligned = from.is_multiple_of(units);
        Ok(aligned.then(|| part(found.entry.unrooted(), from - found.base)))
    }
}

/// A part of a leaf, from the block at `inside` on.
fn part(leaf: Entry, inside: u64) -> Entry {
    let off = leaf.off() + inside * BLOCK_BYTES;
    Entry(Entry::leaf(off).0 | leaf.0 & (UNWRITTEN | SHARED))
}
