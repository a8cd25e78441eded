//! The count of a file's blocks, beside the inode, kept without log or flush. The count is derived
//! (docs/adr/0034-times.md): recovery counts anew.

use super::Inode;
use crate::pool::Pool;
use crate::tree::entry::Entry;
use crate::tree::visit::{Piece, Visitor};
use pm_journal::error::Error;
use pmfs_format::InodeRaw;

/// Blocks that an inode's data, nodes and attributes take, as its count has it.
pub fn blocks(pool: &Pool, inode: &Inode) -> u64 {
    if inode.counts_blocks() {
        return pool.pm.load(InodeRaw::inline.of(inode.off));
    }
    inode.xattr_run().count + u64::from(!Entry(inode.root).is_hole())
}

/// Stores an inode's count of blocks if it is another.
pub(crate) fn correct(pool: &Pool, inode: &Inode, blocks: u64) {
    if inode.counts_blocks() && pool.pm.load(InodeRaw::inline.of(inode.off)) != blocks {
        let noted = pool.note_lazy(inode.ino);
        pool.pm
            .lazy_word(noted, InodeRaw::inline.of(inode.off), blocks);
    }
}

/// Counts an inode's blocks anew, for recovery.
pub(crate) fn recount(pool: &Pool, inode: &Inode) {
    struct Count {
        blocks: u64,
        all: u64,
    }
    impl Visitor for Count {
        fn piece(&mut self, piece: Piece) -> bool {
            self.blocks = self.blocks.saturating_add(piece.run.count);
            // Nodes that name each other would be counted without end.
            self.blocks <= self.all
        }

        fn damage(&mut self, _error: Error) {}
    }
    let mut count = Count {
        blocks: inode.xattr_run().count,
        all: pool.geometry.blocks,
    };
    if inode.has_tree() {
        inode.tree().visit(pool, &mut count);
    }
    correct(pool, inode, count.blocks);
}
