//! Visiting everything that a tree names: what recovery's walk and check are made of.

use super::entry::{Entry, coverage, span};
use super::{NEITHER, Shape, Tree, corrupt};
use crate::pool::Pool;
use crate::types::Run;
use pm_journal::error::Error;
use pmfs_format::tree::FANOUT;
use pmfs_format::{BLOCK_BYTES, BLOCK_SHIFT};

/// A block or node that a tree names.
#[derive(Clone, Copy, Debug)]
pub struct Piece {
    /// The blocks.
    pub run: Run,
    /// Level of a node, 0 for a leaf.
    pub level: u32,
    /// First index it covers.
    pub base: u64,
    /// Indexes it covers.
    pub units: u64,
    /// Byte offset of the word that names it, and how many words from there on do.
    pub slot: u64,
    pub entries: u64,
    /// Others may name the blocks of this leaf, or this node.
    pub shared: bool,
}

/// A visitor is shown the pieces, and told of damage.
pub trait Visitor {
    /// A node or leaf. `false`: don't descend.
    fn piece(&mut self, piece: Piece) -> bool;

    /// An entry that can't be right, in whose place nothing is visited.
    fn damage(&mut self, error: Error);
}

impl Tree {
    /// Shows the visitor every node, before what it holds, and every leaf; a bucket shared by
    /// neighbouring entries once, with all the indexes it covers.
    pub fn visit(&self, pool: &Pool, visitor: &mut impl Visitor) {
        if self.root.is_hole() {
            if self.root.unrooted() != Entry::HOLE {
                visitor.damage(corrupt(NEITHER, self.slot));
            }
            return;
        }
        let height = self.root.height();
        let limit = if self.shape == Shape::File { 4 } else { 7 };
        if height > limit {
            return visitor.damage(corrupt("tree height", self.slot));
        }
        let units = if self.shape == Shape::Directory {
            coverage(7)
        } else {
            coverage(height)
        };
        let is_shared = self.root.is_shared_node() && height == 1 && self.shape == Shape::File;
        visit(
            pool,
            (self.shape, is_shared),
            self.root.unrooted(),
            (self.slot, 1),
            height,
            (0, units),
            visitor,
        );
    }
}

/// `is_shared`: the root word names a node that others may name, the only one of its tree.
fn visit(
    pool: &Pool,
    (shape, is_shared): (Shape, bool),
    entry: Entry,
    (slot, entries): (u64, u64),
    level: u32,
    (base, units): (u64, u64),
    visitor: &mut impl Visitor,
) {
    let blocks = if entry.is_node() {
        1
    } else {
        shape.leaf_blocks(units)
    };
    if let Err(error) = entry.checked(&pool.data, blocks * BLOCK_BYTES, slot) {
        return visitor.damage(error);
    }
    if entry != entry.unrooted() {
        return visitor.damage(corrupt("tree entry with a height", slot));
    }
    if entry.is_shared() && (entry.is_node() && !is_shared || shape == Shape::Directory) {
        return visitor.damage(corrupt("tree entry that is shared", slot));
    }
    if entry.is_node() && level == 0 {
        return visitor.damage(corrupt("tree deeper than its height", slot));
    }
    let piece = Piece {
        run: Run {
            block: entry.off() >> BLOCK_SHIFT,
            count: blocks,
        },
        level: if entry.is_node() { level } else { 0 },
        base,
        units,
        slot,
        entries,
        shared: entry.is_shared() || is_shared,
    };
    if !visitor.piece(piece) || entry.is_leaf() {
        return;
    }
    let node = entry.off();
    let child_units = span(level);
    let mut at = 0;
    while at < FANOUT {
        let child_slot = node + at * 8;
        let child = Entry(pool.pm.load(child_slot));
        let mut same = 1;
        if shape == Shape::Directory && child.is_leaf() {
            while at + same < FANOUT && pool.pm.load(child_slot + same * 8) == child.0 {
                same += 1;
            }
        }
        if !child.is_hole() {
            let covered = (base + at * child_units, same * child_units);
            let named = (child_slot, same);
            let of = (shape, is_shared);
            visit(pool, of, child, named, level - 1, covered, visitor);
        } else if child != Entry::HOLE {
            visitor.damage(corrupt(NEITHER, child_slot));
        } else if shape == Shape::Directory {
            visitor.damage(corrupt("hole in a directory's node", child_slot));
        }
        at += same;
    }
}
