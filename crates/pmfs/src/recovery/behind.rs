//! The stores that a dead thread made and did not flush. Others see them and build on them.

use crate::inode::Inode;
use crate::pool::Pool;
use crate::purpose::{Lane, Purpose};
use crate::resolve::tree_of;
use crate::tree::visit::{Piece, Visitor};
use crate::types::Ino;
use pm_journal::error::Error;
use pm_store::Restore;
use pmfs_format::{BLOCK_BYTES, BLOCK_SHIFT};

/// Flushes what the dead thread stored and others will build on: its log, the inode it worked on
/// with its nodes, and the slots of its intents. A closing entry that is seen here and lost with
/// the power would have a finished transaction undone, over what others have done since its locks
/// were released. `is_locked`: the dead thread has the lock of the inode that it worked on.
pub fn flush_behind(pool: &Pool, lane: &Lane<'_>, is_locked: bool) {
    let restore = Restore::new(&pool.pm);
    let (log, entries) = lane.log();
    restore.flush(log, entries * 64);
    if let Ok(off) = pool.inode_off(lane.working()) {
        restore.flush(off, 128);
    }
    if is_locked {
        flush_nodes(pool, lane.working(), &restore);
    }
    for record in 0..lane.intent_count() {
        match lane.intent(record) {
            Some((word, Purpose::Tree { ino, index, .. } | Purpose::Shared { ino, index, .. })) => {
                let Ok(tree) = tree_of(pool, ino) else {
                    continue;
                };
                if tree.root.is_shared_node() {
                    restore.flush(tree.slot, 8);
                }
                // A run of blocks has a slot each.
                for index in index..index + Lane::run_of(word).count {
                    if let Ok(found) = tree.find(pool, index)
                        && found.slot != 0
                    {
                        restore.flush(found.slot, 8);
                    }
                }
            }
            Some((_, Purpose::Subtree { slot, .. } | Purpose::Word { off: slot }))
                if slot + 8 <= pool.pm.len() =>
            {
                restore.flush(slot, 8);
            }
            _ => {}
        }
    }
    restore.barrier();
}

/// Flushes the nodes of an inode's tree: some changes of a leaf's word have no intent.
fn flush_nodes(pool: &Pool, ino: Ino, restore: &Restore<'_>) {
    struct Nodes<'a> {
        restore: &'a Restore<'a>,
        /// Nodes that name each other would be flushed without end.
        left: u64,
    }
    impl Visitor for Nodes<'_> {
        fn piece(&mut self, piece: Piece) -> bool {
            if piece.level == 0 || self.left == 0 {
                return false;
            }
            self.left -= 1;
            let off = piece.run.block << BLOCK_SHIFT;
            self.restore.flush(off, BLOCK_BYTES);
            // The leaves are words of this node.
            piece.level > 1
        }

        fn damage(&mut self, _error: Error) {}
    }
    let left = pool.geometry.blocks;
    if let Ok(inode) = Inode::load(pool, ino)
        && inode.has_tree()
    {
        inode.tree().visit(pool, &mut Nodes { restore, left });
    }
}
