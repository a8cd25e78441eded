//! Marks of sharing that a leaf or a root word has lost.
//!
//! A word that names the same blocks as a marked one has most likely lost its own mark: one bit. To
//! set it keeps all files whole, where to cut the later word would empty a file.

use super::checker::Checker;
use super::fix::Fix;
use super::pieces::{Pieces, cut};
use super::report::number;
use pmfs::parts::inode::Inode;
use pmfs::parts::tree::visit::Piece;
use pmfs::types::Run;
use pmfs_format::tree::{SHARED, UNWRITTEN};
use std::collections::{HashMap, HashSet};

/// A marked piece of a file, whose blocks something without a mark has named before.
pub(super) struct Doubtful {
    piece: Piece,
    /// The file, in words.
    by: String,
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

    /// Returns whether a piece of a file lacks only the mark to share its blocks with others.
    /// `root` is the place of the file's root word.
    pub(super) fn lacks_mark(&self, piece: &Piece, root: u64) -> bool {
        let Run { block, count } = piece.run;
        !piece.shared
            && self.can_be_marked(piece, root)
            && (block..block + count).all(|block| self.shared.leaves(block) > 0)
    }

    /// Notes that a piece has lost its mark, and counts it as if it had one.
    pub(super) fn mark(&mut self, piece: &Piece, by: &str) {
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

    /// Notes pieces of a file whose blocks others have named: the file is cut there. Those that
    /// have a mark wait for [`Checker::settle`].
    pub(super) fn contest_file(&mut self, contested: Vec<Piece>, by: &str) {
        for piece in contested {
            match piece.shared {
                true => self.doubtful.push(Doubtful {
                    piece,
                    by: by.to_owned(),
                }),
                false => self.contest(&[piece], by),
            }
        }
    }

    /// Looks, once all files are known, for the words without a mark that name the blocks of marked
    /// pieces, and cuts the files of pieces for which there is none.
    pub(super) fn settle(&mut self) {
        let doubtful = std::mem::take(&mut self.doubtful);
        if doubtful.is_empty() {
            return;
        }
        let mut owners = self.unmarked(&doubtful);
        let mut settled = HashSet::new();
        for Doubtful { piece, by } in doubtful {
            let Run { block, count } = piece.run;
            if let Some((owner, of)) = owners.remove(&(block, count, piece.level)) {
                self.mark(&owner, &of);
                settled.insert((block, count, piece.level));
            }
            if settled.contains(&(block, count, piece.level)) {
                for block in block..block + count {
                    self.shared.add(block);
                }
            } else {
                self.contest(&[piece], &by);
            }
        }
    }

    /// The words of files that name blocks of these pieces and could have a mark, by first block,
    /// count of blocks and level, with the file in words.
    fn unmarked(&self, doubtful: &[Doubtful]) -> HashMap<(u64, u64, u32), (Piece, String)> {
        let key = |piece: &Piece| (piece.run.block, piece.run.count, piece.level);
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
