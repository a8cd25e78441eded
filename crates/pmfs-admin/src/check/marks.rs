//! Words that name the same blocks as words with the mark of sharing, and have none themselves.
//!
//! Such a word has lost its mark, or it names the wrong blocks. The pool's count of the shares
//! tells: it counts each word that had its mark when the count was made. A word that lost its mark
//! since gets it back, and all files stay whole. Any other is cut: with a mark, its file would show
//! another's content.

use super::checker::Checker;
use super::fix::Fix;
use super::pieces::{Pieces, cut};
use super::report::number;
use pm_space::Bitmap;
use pmfs::parts::inode::Inode;
use pmfs::parts::tree::visit::Piece;
use pmfs::types::Run;
use pmfs_format::tree::{SHARED, UNWRITTEN};
use std::collections::{BTreeMap, HashMap, HashSet};

/// A piece of a file that names blocks which something else named before, where one of the two has
/// a mark.
pub(super) struct Doubtful {
    piece: Piece,
    /// The file, in words.
    by: String,
}

/// Blocks, and the level of the words that name them.
type Key = (u64, u64, u32);

fn key(piece: &Piece) -> Key {
    (piece.run.block, piece.run.count, piece.level)
}

impl Checker<'_> {
    /// Returns whether a piece of a file could have a mark: a leaf with data, or the node that the
    /// root word at `root` names.
    fn can_be_marked(&self, piece: &Piece, root: u64) -> bool {
        match piece.level {
            0 => self.pool.pm.load(piece.slot) & UNWRITTEN == 0,
            1 => piece.slot == root,
            _ => false,
        }
    }

    /// Returns whether a piece without a mark names blocks that marked words share.
    fn meets_shared(&self, piece: &Piece, root: u64) -> bool {
        let Run { block, count } = piece.run;
        self.can_be_marked(piece, root)
            && (block..block + count).all(|block| self.shared.leaves(block) > 0)
    }

    /// Returns whether the pool counts so many shares of each of these blocks beside one.
    fn has_shares(&self, run: Run, shares: u64) -> bool {
        let map = Bitmap::blocks(self.pool);
        (run.block..run.block + run.count).all(|block| map.shares(block) == shares)
    }

    /// Notes that a piece has lost its mark, and counts it as if it had one.
    fn mark(&mut self, piece: &Piece, by: &str) {
        let Run { block, count } = piece.run;
        for block in block..block + count {
            self.shared.add(block);
        }
        let text = format!("block {block} is shared, and {by} names it without the mark of that");
        let word = self.pool.pm.load(piece.slot) | SHARED;
        self.find_to_fix(number::BLOCK_TWICE, text, Fix::word(piece.slot, word));
    }

    /// Leaves what is another's to that one: the word that names it here goes.
    pub(super) fn contest(&mut self, contested: &[Piece], by: &str) {
        for piece in contested {
            let block = piece.run.block;
            let text = format!("block {block} is named twice, the second time by {by}");
            self.find_to_fix(number::BLOCK_TWICE, text, cut(piece));
        }
    }

    /// Notes pieces of a file whose blocks others have named: the file is cut there. Where a mark
    /// is on one side, [`Checker::settle`] decides. `root` is the place of the file's root word.
    pub(super) fn contest_file(&mut self, contested: Vec<Piece>, root: u64, by: &str) {
        for piece in contested {
            if piece.shared || self.meets_shared(&piece, root) {
                let by = by.to_owned();
                self.doubtful.push(Doubtful { piece, by });
            } else {
                self.contest(&[piece], by);
            }
        }
    }

    /// Decides, once all files are known, on the pieces of which one side has a mark.
    pub(super) fn settle(&mut self) {
        let doubtful = std::mem::take(&mut self.doubtful);
        let (marked, unmarked): (Vec<_>, Vec<_>) =
            doubtful.into_iter().partition(|one| one.piece.shared);
        self.settle_marked(marked);
        for Doubtful { piece, by } in unmarked {
            let named = u64::from(self.shared.leaves(piece.run.block));
            match self.has_shares(piece.run, named) {
                true => self.mark(&piece, &by),
                false => self.contest(&[piece], &by),
            }
        }
    }

    /// Decides on marked pieces, whose blocks a word without a mark has named before.
    fn settle_marked(&mut self, marked: Vec<Doubtful>) {
        if marked.is_empty() {
            return;
        }
        let mut owners = self.unmarked(&marked);
        let mut groups: BTreeMap<Key, Vec<Doubtful>> = BTreeMap::new();
        for one in marked {
            groups.entry(key(&one.piece)).or_default().push(one);
        }
        for (key, group) in groups {
            let (run, named) = (group[0].piece.run, group.len() as u64);
            match owners.remove(&key) {
                Some((owner, of)) if self.has_shares(run, named) => self.mark(&owner, &of),
                Some((owner, of)) if named > 1 && self.has_shares(run, named - 1) => {
                    self.contest(&[owner], &of);
                }
                _ => {
                    for Doubtful { piece, by } in group {
                        self.contest(&[piece], &by);
                    }
                    continue;
                }
            }
            for block in (0..named).flat_map(|_| run.block..run.block + run.count) {
                self.shared.add(block);
            }
        }
    }

    /// The words of files that name blocks of these pieces and could have a mark, with the file in
    /// words.
    fn unmarked(&self, doubtful: &[Doubtful]) -> HashMap<Key, (Piece, String)> {
        let wanted: HashSet<_> = doubtful.iter().map(|one| key(&one.piece)).collect();
        let mut owners = HashMap::new();
        for ino in 0..self.inodes.len() as u64 {
            let known = self.inodes[ino as usize];
            let Ok(inode) = Inode::load(self.pool, ino) else {
                continue;
            };
            if !known.live || !inode.has_tree() || inode.is_dir() {
                continue;
            }
            let tree = inode.tree();
            for piece in Pieces::of(self.pool, &tree).all {
                let is_owner = !piece.shared
                    && wanted.contains(&key(&piece))
                    && self.can_be_marked(&piece, tree.slot);
                if is_owner {
                    owners
                        .entry(key(&piece))
                        .or_insert((piece, format!("inode {ino}")));
                }
            }
        }
        owners
    }
}
