//! How many blocks a file takes: counted when asked, never stored (DECISIONS 16: `blocks` is derived).

use super::Shape;
use super::entry::{Entry, coverage, span};
use crate::error::Result;
use crate::inode::Inode;
use crate::pool::Pool;
use pmfs_format::BLOCK_BYTES;
use pmfs_format::tree::FANOUT;

/// Blocks that an inode's data, nodes and attributes take.
pub(crate) fn blocks(pool: &Pool, inode: &Inode) -> Result<u64> {
    let attributes = inode.xattr_run().count;
    let root = Entry(inode.root);
    if !inode.has_tree() || root.is_hole() {
        return Ok(attributes);
    }
    if root.is_leaf() {
        return Ok(attributes + inode.shape().leaf_blocks(coverage(root.height().min(4))));
    }
    if inode.is_dir() {
        // Buckets hold some 40 names; exact counting would read every node at each stat.
        return Ok(attributes + 1 + inode.size() / 40 + 1);
    }
    Ok(attributes + count(pool, root.unrooted(), root.height(), inode.shape())?)
}

fn count(pool: &Pool, node: Entry, level: u32, shape: Shape) -> Result<u64> {
    if level == 0 || level > 7 {
        return Err(super::corrupt("tree deeper than its height", node.off()));
    }
    let off = node.checked(&pool.data, BLOCK_BYTES, node.off())?.off();
    let mut blocks = 1;
    for at in 0..FANOUT {
        let entry = Entry(pool.pm.load(off + at * 8));
        if entry.is_node() {
            blocks += count(pool, entry, level - 1, shape)?;
        } else if entry.is_leaf() {
            blocks += shape.leaf_blocks(span(level));
        }
    }
    Ok(blocks)
}
