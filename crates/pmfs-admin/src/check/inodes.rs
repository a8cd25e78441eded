//! Every inode: its fields, its tree, its attributes.

use super::checker::{Checker, Known};
use super::fix::Fix;
use super::pieces::{Pieces, cut};
use super::report::number;
use crate::staging::HOME;
use pmfs::Error;
use pmfs::parts::dir::bucket::{Bucket, Header, fingerprint, kind_of};
use pmfs::parts::inode::{Inode, PER_BLOCK, is_kind, plausible};
use pmfs::parts::inode::{usage, xattr};
use pmfs::parts::namespace::create::link_target;
use pmfs::parts::pool::Pool;
use pmfs::parts::tree::NEITHER;
use pmfs::parts::tree::entry::coverage;
use pmfs::parts::tree::visit::Piece;
use pmfs::types::mode;
use pmfs_format::inode::{CTIME_IS_MTIME, FIRST_INO, FLAG_SNAPSHOT, ROOT_INO, SIZE_MASK, SIZE_MAX};
use pmfs_format::tree::{DIRECTORY_HEIGHT, FANOUT, PRESENT, SHARED};
use pmfs_format::{BLOCK_BYTES, BLOCK_SHIFT, InodeRaw};
use std::collections::HashSet;

/// Returns whether what a directory names looks like a bucket of that place: each record whole, and
/// its hash one of the place.
fn is_bucket(pool: &Pool, piece: &Piece) -> bool {
    let bucket = Bucket::at(piece.run.block << BLOCK_SHIFT);
    let header = bucket.header(pool);
    let mut expected = header;
    expected.0[1..].fill(0);
    for line in header.starts() {
        let Ok(record) = bucket.record(pool, line) else {
            return false;
        };
        if record.hash.wrapping_sub(piece.base) >= piece.units {
            return false;
        }
        expected.put(line, record.lines, fingerprint(record.hash));
    }
    expected == header && has_depth(&header, piece)
}

/// Returns whether a bucket's depth is that of its place: one at the root covers everything; one in
/// a node, its part of the node's entries.
pub(super) fn has_depth(header: &Header, piece: &Piece) -> bool {
    let depth = u32::from(header.depth()).min(u64::BITS - 1);
    match piece.units == coverage(DIRECTORY_HEIGHT) {
        true => depth == 0,
        false => piece.entries == FANOUT >> depth,
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
        self.cut_damage(&pieces.damage, "inode table");
        for piece in pieces.leaves().filter(|leaf| leaf.units != 1) {
            let text = format!("inode table: a large leaf at {:#x}", piece.slot);
            self.find_to_fix(number::TREE, text, cut(piece));
        }
        for piece in pieces.leaves().filter(|leaf| leaf.shared) {
            let text = format!("inode table: a shared leaf at {:#x}", piece.slot);
            let word = pool.pm.load(piece.slot) & !SHARED;
            self.find_to_fix(number::TREE, text, Fix::word(piece.slot, word));
        }
        self.contest(&pieces.contested, "the inode table");
        // The root node lies before the blocks that are given out.
        let root = pool.geometry.inode_table_root;
        let mut leaves = Vec::new();
        for piece in pieces.all.iter().filter(|piece| piece.run.block != root) {
            // A block that is named twice holds the inodes of the first place alone.
            if self.claim(piece.run, "the inode table", &|| cut(piece))
                && (piece.level, piece.units) == (0, 1)
            {
                leaves.push(piece.base);
            }
        }
        let last = leaves.iter().max().map_or(0, |base| base + 1);
        let count = (last * PER_BLOCK).min(pool.geometry.inodes);
        self.inodes = vec![Known::default(); count as usize];
        let of = |leaf: u64| leaf * PER_BLOCK..((leaf + 1) * PER_BLOCK).min(count);
        for &leaf in &leaves {
            for ino in of(leaf).filter(|&ino| ino >= ROOT_INO) {
                self.inodes[ino as usize].there = true;
                self.whole_directory(ino);
            }
        }
        for &leaf in &leaves {
            for ino in of(leaf).filter(|&ino| ino >= ROOT_INO) {
                self.inode(ino);
            }
            self.step(PER_BLOCK);
        }
        for &leaf in &leaves {
            for ino in of(leaf) {
                self.torn_directory(ino);
            }
        }
    }

    /// A directory in which all looks right has its blocks before any file: what a damaged pointer
    /// makes of one is hardly ever so, while a file may have any bytes.
    fn whole_directory(&mut self, ino: u64) {
        let pool = self.pool;
        let Ok(inode) = Inode::load(pool, ino) else {
            return;
        };
        if !inode.is_dir() || inode.links == 0 && !pool.is_open(ino) {
            return;
        }
        let others = |piece: &Piece| self.is_claimed(piece);
        let pieces = Pieces::apart(pool, &inode.tree(), &others);
        let mut blocks = HashSet::new();
        let once = pieces
            .all
            .iter()
            .all(|piece| blocks.insert(piece.run.block));
        let whole = pieces.is_sound() && once && pieces.leaves().all(|leaf| is_bucket(pool, leaf));
        let Pieces { all, .. } = pieces;
        self.inodes[ino as usize].torn = !whole;
        if whole {
            for piece in &all {
                self.claim(piece.run, &format!("directory {ino}"), &|| Fix::Runtime);
            }
        }
    }

    /// Claims the unclaimed blocks of a directory that is to be filled anew.
    fn torn_directory(&mut self, ino: u64) {
        if !self.inodes[ino as usize].torn {
            return;
        }
        let Ok(inode) = Inode::load(self.pool, ino) else {
            return;
        };
        let pieces = Pieces::of(self.pool, &inode.tree()).all;
        for piece in pieces {
            let by = format!("directory {ino}");
            if self.claim(piece.run, &by, &|| Fix::Runtime) {
                self.torn_blocks.insert(piece.run.block);
            }
        }
    }

    /// Cuts off what could not be visited. An entry that lost its mark of being one gets it back
    /// first: if that was not what it lost, the next round cuts it.
    fn cut_damage(&mut self, damage: &[Error], of: &str) {
        for error in damage {
            let fix = match error {
                Error::Corrupt(damage) if damage.what == NEITHER => {
                    let word = self.pool.pm.load(damage.offset);
                    Fix::word(damage.offset, word | PRESENT)
                }
                Error::Corrupt(damage) => Fix::word(damage.offset, 0),
                _ => Fix::Runtime,
            };
            self.find_to_fix(number::TREE, format!("{of}: {error}"), fix);
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
            of_snapshot: inode.is_of_snapshot(),
            ..self.inodes[ino as usize]
        };
        self.unused_bits(&inode);
        if let Err(error) = plausible(&inode) {
            let text = format!("inode {ino}: {error}");
            let kindless = !is_kind(inode.kind());
            self.inodes[ino as usize].kindless |= kindless;
            if kindless || ino == ROOT_INO {
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
            let fix = Fix::word(InodeRaw::links.of(inode.off), 0);
            self.find_to_fix(number::SYMLINK, text, fix);
        }
    }

    /// Bits of an inode that have no meaning, and are zero.
    fn unused_bits(&mut self, inode: &Inode) {
        let mut unknown = |what: &str, off, word| {
            let text = format!("inode {}: unknown {what}", inode.ino);
            self.find_to_fix(number::INODE, text, Fix::word(off, word));
        };
        let can_be = if inode.ino == ROOT_INO {
            0
        } else {
            FLAG_SNAPSHOT
        };
        if inode.flags & !can_be != 0 && inode.links > 0 {
            let links = InodeRaw::links.of(inode.off);
            let mut hot = inode.hot();
            hot.set_links(inode.links);
            hot.set_of_snapshot(inode.flags & can_be != 0);
            unknown("flags", links, hot.links_word());
        }
        if inode.mode >> 16 != 0 {
            let word = u64::from(inode.mode & 0xffff) | u64::from(inode.generation) << 32;
            unknown("mode bits", InodeRaw::mode.of(inode.off), word);
        }
        let known_size = inode.size_word & (SIZE_MASK | CTIME_IS_MTIME);
        if known_size != inode.size_word {
            unknown("size bits", inode.off, known_size);
        }
    }

    fn tree(&mut self, inode: &Inode) {
        let ino = inode.ino;
        let pieces = Pieces::of(self.pool, &inode.tree());
        let blocks = pieces.blocks() + inode.xattr_run().count;
        let counted = usage::blocks(self.pool, inode);
        if counted != blocks {
            let text = format!("inode {ino} says {counted} blocks and has {blocks}");
            self.find_to_fix(number::BLOCKS, text, Fix::Runtime);
        }
        if inode.is_dir() {
            // The directory is filled anew instead of being cut.
            for error in &pieces.damage {
                self.find(number::TREE, format!("inode {ino}: {error}"));
            }
            for piece in &pieces.contested {
                let block = piece.run.block;
                let text = format!("block {block} is named twice by directory {ino}");
                self.find(number::BLOCK_TWICE, text);
            }
            return;
        }
        let tree = inode.tree();
        let root = tree.slot;
        let others = |piece: &Piece| self.is_claimed(piece);
        let Pieces {
            all,
            contested,
            damage,
            ..
        } = Pieces::apart(self.pool, &tree, &others);
        let by = format!("inode {ino}");
        self.cut_damage(&damage, &by);
        self.contest_file(contested, root, &by);
        for (at, piece) in all.iter().enumerate() {
            let is_first = self.claim_piece(piece, &by, &|| cut(piece));
            if at == 0 && piece.level > 0 && !is_first {
                // The leaves were claimed with the first file whose root word names the node.
                break;
            }
        }
    }

    fn attributes(&mut self, inode: &Inode) {
        let drop = || Fix::word(InodeRaw::xattr.of(inode.off), 0);
        match xattr::load(self.pool, inode) {
            Ok(attributes) if inode.xattr != 0 => {
                let known = &mut self.inodes[inode.ino as usize];
                known.has_snapshots = attributes.iter().any(|(name, _)| name == HOME);
                let by = format!("the attributes of inode {}", inode.ino);
                self.claim(inode.xattr_run(), &by, &drop);
            }
            Ok(_) => {}
            Err(error) => {
                let text = format!("inode {}: {error}", inode.ino);
                self.find_to_fix(number::XATTR, text, drop());
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
            let links = |count| Fix::word(InodeRaw::links.of(inode.off), inode.with_links(count));
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

    /// Returns the fix that would bring back an inode without links that a name of this kind leads
    /// to: the inode must look like one, and its blocks must belong to no other.
    pub(super) fn revival(&self, ino: u64, kind: u8) -> Option<Fix> {
        let inode = Inode::load(self.pool, ino).ok()?;
        let same = kind_of(inode.mode) == kind && ino >= FIRST_INO && inode.links == 0;
        let known = self.inodes.get(ino as usize)?;
        if !same || plausible(&inode).is_err() || known.live || !known.there {
            return None;
        }
        if inode.kind() == mode::S_IFLNK && link_target(self.pool, &inode).is_err() {
            return None;
        }
        if inode.has_tree() {
            let pieces = Pieces::of(self.pool, &inode.tree());
            if !pieces.is_sound() || pieces.all.iter().any(|piece| self.is_claimed(piece)) {
                return None;
            }
        }
        let links = if inode.is_dir() { 2 } else { 1 };
        Some(Fix::word(InodeRaw::links.of(inode.off), links))
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
