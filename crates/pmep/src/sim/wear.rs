//! Wear levelling: a block of 64 KiB that takes most of a module's writes is moved elsewhere now
//! and then, and its module answers nobody meanwhile.
//!
//! A vote finds the block in two words: writes to the block that leads add to its count, others
//! take off from it, and one that finds no votes leads. So two blocks that share the writes evenly
//! are never moved, as measured tails are gone at regions of two blocks (Yang et al. 2020, figure
//! 3).

use crate::geometry::{LINE, WEAR_BLOCK};

/// A module's vote.
#[derive(Clone, Debug, Default)]
pub(super) struct Wear {
    block: u64,
    votes: f64,
    /// Blocks moved so far.
    pub moves: u64,
}

impl Wear {
    /// The media writes `lines` lines, at `line`. Returns whether the block has to move, which it
    /// does after `limit` votes.
    #[inline]
    pub fn write(&mut self, line: u64, lines: f64, limit: f64) -> bool {
        let block = line / (WEAR_BLOCK / LINE);
        if block == self.block {
            self.votes += lines;
        } else {
            self.votes -= lines;
            if self.votes < 0.0 {
                self.block = block;
                self.votes = -self.votes;
            }
        }
        let is_worn = self.votes >= limit;
        if is_worn {
            self.votes = 0.0;
            self.moves += 1;
        }
        is_worn
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn moves(lines: u64) -> u64 {
        let mut wear = Wear::default();
        for step in 0..100_000_u64 {
            wear.write(step % lines, 1.0, 10_000.0);
        }
        wear.moves
    }

    /// Goal: the tails of a hot spot, and their end. Method: regions of one block and of two, in
    /// lines of 256 B.
    #[test]
    fn one_hot_block_moves_and_two_do_not() {
        assert_eq!(moves(1), 10);
        assert_eq!(moves(128), 10);
        assert_eq!(moves(256), 10);
        assert!((1..10).contains(&moves(320)), "{}", moves(320));
        assert_eq!(moves(512), 0);
        assert_eq!(moves(100_000), 0);
    }
}
