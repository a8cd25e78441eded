//! Every inode: its fields, its tree, its attributes.

use super::{Checker, number};
use crate::error::Error;
use crate::inode::{Inode, PER_BLOCK, plausible};
use crate::lane::Run;
use crate::namespace::create::link_target;
use crate::pool::Pool;
use crate::tree::usage;
use crate::tree::visit::{Piece, Visitor};
use crate::types::mode;
use crate::xattr;
use pmfs_format::inode::{FIRST_INO, ROOT_INO};

/// What check knows of an inode.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Known {
    /// It has links, or somebody holds it open.
    pub live: bool,
    pub links: u32,
    /// Names found, and for a directory "." and its children's "..".
    pub named: u32,
    pub kind: u32,
    pub parent: u64,
    /// A directory's entries found.
    pub reachable: bool,
}

/// Collects what a tree names.
pub(super) struct Pieces {
    pub runs: Vec<Run>,
    pub leaves: Vec<Piece>,
    pub damage: Vec<Error>,
}

impl Pieces {
    pub fn new() -> Pieces {
        Pieces {
            runs: Vec::new(),
            leaves: Vec::new(),
            damage: Vec::new(),
        }
    }
}

impl Visitor for Pieces {
    fn piece(&mut self, piece: Piece) -> bool {
        self.runs.push(piece.run);
        if piece.level == 0 {
            self.leaves.push(piece);
        }
        true
    }

    fn damage(&mut self, error: Error) {
        self.damage.push(error);
    }
}

impl Checker<'_> {
    /// The inode table and everything its inodes name.
    pub(super) fn table(&mut self) {
        let pool = self.pool;
        let mut pieces = Pieces::new();
        pool.inode_table().visit(pool, &mut pieces);
        for error in std::mem::take(&mut pieces.damage) {
            self.find(number::TREE, format!("inode table: {error}"));
        }
        // The root node lies before the blocks that are given out.
        let root = pool.geometry.inode_table_root;
        for run in pieces.runs.iter().filter(|run| run.block != root) {
            self.claim(*run, "the inode table");
        }
        let last = pieces
            .leaves
            .iter()
            .map(|leaf| leaf.base + 1)
            .max()
            .unwrap_or(0);
        let count = (last * PER_BLOCK).min(pool.geometry.inodes);
        self.inodes = vec![Known::default(); count as usize];
        for leaf in pieces.leaves {
            for ino in leaf.base * PER_BLOCK..(leaf.base + 1) * PER_BLOCK {
                if ino >= ROOT_INO && ino < count {
                    self.inode(ino);
                }
            }
        }
    }

    fn inode(&mut self, ino: u64) {
        let pool = self.pool;
        let Ok(inode) = Inode::load(pool, ino) else {
            return;
        };
        if inode.links == 0 && !pool.is_open(ino) {
            return;
        }
        self.report.inodes += 1;
        let known = &mut self.inodes[ino as usize];
        known.live = true;
        known.links = inode.links;
        known.kind = inode.kind();
        known.parent = inode.parent;
        if let Err(error) = plausible(&inode) {
            return self.find(number::INODE, format!("inode {ino}: {error}"));
        }
        if inode.has_tree() {
            let mut pieces = Pieces::new();
            inode.tree().visit(pool, &mut pieces);
            for error in pieces.damage {
                self.find(number::TREE, format!("inode {ino}: {error}"));
            }
            let blocks: u64 = pieces.runs.iter().map(|run| run.count).sum();
            let counted = usage::blocks(pool, &inode);
            if counted != blocks + inode.xattr_run().count {
                let text = format!(
                    "inode {ino} says {counted} blocks and has {}",
                    blocks + inode.xattr_run().count
                );
                self.find(number::BLOCKS, text);
            }
            for run in pieces.runs {
                self.claim(run, &format!("inode {ino}"));
            }
        } else if inode.root != 0 {
            self.find(number::INODE, format!("inode {ino}: a device with blocks"));
        }
        self.attributes(&inode);
        if inode.kind() == mode::S_IFLNK
            && let Err(error) = link_target(pool, &inode)
        {
            self.find(number::SYMLINK, format!("inode {ino}: {error}"));
        }
    }

    fn attributes(&mut self, inode: &Inode) {
        match xattr::load(self.pool, inode) {
            Ok(_) if inode.xattr != 0 => {
                self.claim(
                    inode.xattr_run(),
                    &format!("the attributes of inode {}", inode.ino),
                );
            }
            Ok(_) => {}
            Err(error) => self.find(number::XATTR, format!("inode {}: {error}", inode.ino)),
        }
    }

    /// Link counts, and whether every live inode can be reached.
    pub(super) fn links(&mut self) {
        for ino in FIRST_INO..self.inodes.len() as u64 {
            let known = self.inodes[ino as usize];
            if known.live && known.links > 0 && known.named == 0 {
                let text = format!("inode {ino} has {} links and no name", known.links);
                self.find(number::UNREACHABLE, text);
            } else if known.live && known.links != known.named {
                let text = format!(
                    "inode {ino} says {} links and has {}",
                    known.links, known.named
                );
                self.find(number::LINKS, text);
            }
        }
        let root = self
            .inodes
            .get(ROOT_INO as usize)
            .copied()
            .unwrap_or_default();
        if root.links != root.named {
            let text = format!("the root says {} links and has {}", root.links, root.named);
            self.find(number::LINKS, text);
        }
    }

    pub(super) fn is_directory(&self, ino: u64) -> bool {
        self.inodes
            .get(ino as usize)
            .is_some_and(|known| known.live && known.kind == mode::S_IFDIR)
    }

    pub(super) fn pool(&self) -> &Pool {
        self.pool
    }
}
