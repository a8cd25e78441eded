//! The pieces of one tree: what it names, and which of it others name too.

use super::fix::Fix;
use pmfs::Error;
use pmfs::parts::pool::Pool;
use pmfs::parts::tree::Tree;
use pmfs::parts::tree::visit::{Piece, Visitor};
use std::collections::HashSet;

/// Collects what a tree names. A node that belongs to another tree, or that is met again, is not
/// entered: this tree must not mend anything below it.
pub(super) struct Pieces<'a> {
    pub all: Vec<Piece>,
    /// The pieces that something else names too, or this tree twice.
    pub contested: Vec<Piece>,
    pub damage: Vec<Error>,
    nodes: HashSet<u64>,
    is_others: &'a dyn Fn(&Piece) -> bool,
}

impl<'a> Pieces<'a> {
    pub fn of(pool: &Pool, tree: &Tree) -> Pieces<'a> {
        Pieces::apart(pool, tree, &|_| false)
    }

    /// Without what is others' already.
    pub fn apart(pool: &Pool, tree: &Tree, is_others: &'a dyn Fn(&Piece) -> bool) -> Pieces<'a> {
        let mut pieces = Pieces {
            all: Vec::new(),
            contested: Vec::new(),
            damage: Vec::new(),
            nodes: HashSet::new(),
            is_others,
        };
        tree.visit(pool, &mut pieces);
        pieces
    }

    /// Returns whether each of its blocks is named once, and by no other tree, as far as is known.
    pub fn is_sound(&self) -> bool {
        self.damage.is_empty() && self.contested.is_empty()
    }

    pub fn leaves(&self) -> impl Iterator<Item = &Piece> {
        self.all.iter().filter(|piece| piece.level == 0)
    }

    pub fn blocks(&self) -> u64 {
        self.all.iter().map(|piece| piece.run.count).sum()
    }
}

impl Visitor for Pieces<'_> {
    fn piece(&mut self, piece: Piece) -> bool {
        let again = piece.level > 0 && !self.nodes.insert(piece.run.block);
        if again || (self.is_others)(&piece) {
            self.contested.push(piece);
            return false;
        }
        self.all.push(piece);
        true
    }

    fn damage(&mut self, error: Error) {
        self.damage.push(error);
    }
}

/// Cuts off what the words that name a piece lead to.
pub(super) fn cut(piece: &Piece) -> Fix {
    Fix::Words {
        off: piece.slot,
        words: vec![0; piece.entries as usize],
    }
}
