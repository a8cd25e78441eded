//! Every inode: its fields, its tree, its attributes.

use super::{Checker, Fix, number};
use crate::dir::bucket::kind_of;
use crate::error::Error;
use crate::inode::{Inode, PER_BLOCK, is_kind, plausible};
use crate::namespace::create::link_target;
use crate::pool::Pool;
use crate::tree::visit::{Piece, Visitor};
use crate::tree::{NEITHER, Tree, usage};
use crate::types::mode;
use crate::xattr;
use pmfs_format::BLOCK_BYTES;
use pmfs_format::inode::{CTIME_IS_MTIME, FIRST_INO, ROOT_INO, SIZE_MASK, SIZE_MAX, offset};
use pmfs_format::tree::PRESENT;
use std::collections::HashSet;

/// What check knows of an inode.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Known {
    /// It has links, or somebody holds it open.
    pub live: bool,
    pub links: u32,
    /// Names found, and for a directory "." and its children's "..".
    pub named: u32,
    pub kind: u32,
    /// The kind is none: a name may tell what it was.
    pub kindless: bool,
    /// It has blocks, which its kind can't have.
    pub misfit: bool,
    pub parent: u64,
    /// A name leads to it.
    pub reachable: bool,
    /// A directory's tree is damaged.
    pub torn: bool,
}

/// Collects what a tree names. A node that it meets again is not entered again.
pub(super) struct Pieces {
    pub all: Vec<Piece>,
    pub damage: Vec<Error>,
    nodes: HashSet<u64>,
}

impl Pieces {
    pub fn of(pool: &Pool, tree: &Tree) -> Pieces {
        let mut pieces = Pieces {
            all: Vec::new(),
            damage: Vec::new(),
            nodes: HashSet::new(),
        };
        tree.visit(pool, &mut pieces);
        pieces
    }

    pub fn leaves(&self) -> impl Iterator<Item = &Piece> {
        self.all.iter().filter(|piece| piece.level == 0)
    }

    pub fn blocks(&self) -> u64 {
        self.all.iter().map(|piece| piece.run.count).sum()
    }
}

impl Visitor for Pieces {
    fn piece(&mut self, piece: Piece) -> bool {
        self.all.push(piece);
        piece.level == 0 || self.nodes.insert(piece.run.block)
    }

    fn damage(&mut self, error: Error) {
        self.damage.push(error);
    }
}

/// Cuts off what the words that name a piece lead to.
fn cut(piece: &Piece) -> Fix {
    Fix::Words {
        off: piece.slot,
        words: vec![0; piece.entries as usize],
    }
}

/// Cuts off what could not be visited. An entry that lost its mark of being one gets it back first: if that
/// was not what it lost, the next round cuts it.
fn cut_damage(pool: &Pool, error: &Error) -> Fix {
    match error {
        Error::Corrupt(damage) if damage.what == NEITHER => {
            Fix::word(damage.offset, pool.pm.load(damage.offset) | PRESENT)
        }
        Error::Corrupt(damage) => Fix::word(damage.offset, 0),
        _ => Fix::Runtime,
    }
}

impl Checker<'_> {
    /// The root directory's inode: everything hangs on it.
    pub(super) fn root(&mut self) {
        let sound = Inode::load(self.pool, ROOT_INO)
            .is_ok_and(|root| root.links > 0 && plausible(&root).is_ok());
        if !sound {
            let text = "there is no root directory".to_owned();
            self.find_to_fix(number::ROOT, text, Fix::Root);
        }
    }

    /// The inode table and everything its inodes name.
    pub(super) fn table(&mut self) {
        let pool = self.pool;
        let pieces = Pieces::of(pool, &pool.inode_table());
        for error in &pieces.damage {
            self.find_to_fix(
                number::TREE,
                format!("inode table: {error}"),
                cut_damage(pool, error),
            );
        }
        for piece in pieces.leaves().filter(|leaf| leaf.units != 1) {
            let text = format!("inode table: a large leaf at {:#x}", piece.slot);
            self.find_to_fix(number::TREE, text, cut(piece));
        }
        // The root node lies before the blocks that are given out.
        let root = pool.geometry.inode_table_root;
        for piece in pieces.all.iter().filter(|piece| piece.run.block != root) {
            self.claim(piece.run, "the inode table", &|| cut(piece));
        }
        let leaves = || pieces.leaves().filter(|leaf| leaf.units == 1);
        let last = leaves().map(|leaf| leaf.base + 1).max().unwrap_or(0);
        let count = (last * PER_BLOCK).min(pool.geometry.inodes);
        self.inodes = vec![Known::default(); count as usize];
        for leaf in leaves() {
            for ino in leaf.base * PER_BLOCK..(leaf.base + 1) * PER_BLOCK {
                if ino >= ROOT_INO && ino < count {
                    self.inode(ino);
                }
            }
            self.step(PER_BLOCK);
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
        self.inodes[ino as usize] = Known {
            live: true,
            links: inode.links,
            kind: inode.kind(),
            parent: inode.parent,
            ..Known::default()
        };
        self.unused_bits(&inode);
        if let Err(error) = plausible(&inode) {
            let text = format!("inode {ino}: {error}");
            if !is_kind(inode.kind()) {
                self.inodes[ino as usize].kindless = true;
                return self.find(number::INODE, text);
            }
            if ino == ROOT_INO {
                return self.find(number::INODE, text);
            }
            let size = Pieces::of(pool, &inode.tree())
                .leaves()
                .map(|leaf| (leaf.base + leaf.units).saturating_mul(BLOCK_BYTES))
                .max();
            let word = inode.size_word & !SIZE_MASK | size.unwrap_or(0).min(SIZE_MAX);
            self.find_to_fix(number::INODE, text, Fix::word(inode.off, word));
        }
        if inode.has_tree() {
            self.tree(&inode);
        } else if inode.root != 0 {
            self.inodes[ino as usize].misfit = true;
            self.find(number::INODE, format!("inode {ino}: a device with blocks"));
        }
        self.attributes(&inode);
        if inode.kind() == mode::S_IFLNK
            && let Err(error) = link_target(pool, &inode)
        {
            let text = format!("inode {ino}: {error}");
            let fix = Fix::word(inode.off + offset::LINKS, 0);
            self.find_to_fix(number::SYMLINK, text, fix);
        }
    }

    /// Bits of an inode that have no meaning, and are zero.
    fn unused_bits(&mut self, inode: &Inode) {
        let ino = inode.ino;
        if inode.flags != 0 && inode.links > 0 {
            let fix = Fix::word(inode.off + offset::LINKS, u64::from(inode.links));
            self.find_to_fix(number::INODE, format!("inode {ino}: unknown flags"), fix);
        }
        if inode.mode >> 16 != 0 {
            let word = u64::from(inode.mode & 0xffff) | u64::from(inode.generation) << 32;
            let fix = Fix::word(inode.off + offset::MODE, word);
            self.find_to_fix(
                number::INODE,
                format!("inode {ino}: unknown mode bits"),
                fix,
            );
        }
        if inode.size_word & !(SIZE_MASK | CTIME_IS_MTIME) != 0 {
            let fix = Fix::word(inode.off, inode.size_word & (SIZE_MASK | CTIME_IS_MTIME));
            self.find_to_fix(
                number::INODE,
                format!("inode {ino}: unknown size bits"),
                fix,
            );
        }
    }

    fn tree(&mut self, inode: &Inode) {
        let ino = inode.ino;
        let pieces = Pieces::of(self.pool, &inode.tree());
        // A directory is filled anew instead of being cut.
        let torn = !pieces.damage.is_empty() || pieces.all.iter().any(|p| self.is_claimed(p.run));
        self.inodes[ino as usize].torn = inode.is_dir() && torn;
        for error in &pieces.damage {
            let text = format!("inode {ino}: {error}");
            if inode.is_dir() {
                self.find(number::TREE, text);
            } else {
                self.find_to_fix(number::TREE, text, cut_damage(self.pool, error));
            }
        }
        let blocks = pieces.blocks() + inode.xattr_run().count;
        let counted = usage::blocks(self.pool, inode);
        if counted != blocks {
            let text = format!("inode {ino} says {counted} blocks and has {blocks}");
            self.find_to_fix(number::BLOCKS, text, Fix::Runtime);
        }
        for piece in &pieces.all {
            if inode.is_dir() {
                let text = &format!("directory {ino}");
                self.claim(piece.run, text, &|| Fix::Runtime);
            } else {
                self.claim(piece.run, &format!("inode {ino}"), &|| cut(piece));
            }
        }
    }

    fn attributes(&mut self, inode: &Inode) {
        let drop = || Fix::word(inode.off + offset::XATTR, 0);
        match xattr::load(self.pool, inode) {
            Ok(_) if inode.xattr != 0 => {
                let by = format!("the attributes of inode {}", inode.ino);
                self.claim(inode.xattr_run(), &by, &drop);
            }
            Ok(_) => {}
            Err(error) => {
                self.find_to_fix(
                    number::XATTR,
                    format!("inode {}: {error}", inode.ino),
                    drop(),
                );
            }
        }
    }

    /// Link counts, and whether every live inode can be reached.
    pub(super) fn links(&mut self) {
        for ino in ROOT_INO..self.inodes.len() as u64 {
            let known = self.inodes[ino as usize];
            let Ok(inode) = Inode::load(self.pool, ino) else {
                continue;
            };
            let links = |count: u32| Fix::word(inode.off + offset::LINKS, u64::from(count));
            if known.kindless {
                // No name tells what it was.
                self.fixes.push(links(0));
                continue;
            }
            if known.misfit {
                self.fixes.push(Fix::word(inode.root_slot(), 0));
            }
            if known.live && known.links > 0 && known.named == 0 {
                let text = format!("inode {ino} has {} links and no name", known.links);
                self.find_to_fix(number::UNREACHABLE, text, Fix::Adopt(ino));
            } else if known.live && known.links != known.named {
                let text = format!(
                    "inode {ino} says {} links and has {}",
                    known.links, known.named
                );
                self.find_to_fix(number::LINKS, text, links(known.named));
            }
        }
    }

    /// What would bring back an inode without links that a name of this kind leads to: it must look like one,
    /// and what it names must be nobody else's.
    pub(super) fn revival(&self, ino: u64, kind: u8) -> Option<Fix> {
        let inode = Inode::load(self.pool, ino).ok()?;
        let same = kind_of(inode.mode) == kind && ino >= FIRST_INO && inode.links == 0;
        if !same || plausible(&inode).is_err() || self.inodes.get(ino as usize)?.live {
            return None;
        }
        if inode.kind() == mode::S_IFLNK && link_target(self.pool, &inode).is_err() {
            return None;
        }
        if inode.has_tree() {
            let pieces = Pieces::of(self.pool, &inode.tree());
            if !pieces.damage.is_empty() || pieces.all.iter().any(|p| self.is_claimed(p.run)) {
                return None;
            }
        }
        let links = if inode.is_dir() { 2 } else { 1 };
        Some(Fix::word(inode.off + offset::LINKS, links))
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
