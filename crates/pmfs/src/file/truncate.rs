//! truncate: the size is one store, and the blocks past it are freed then. A call that was cut
//! short leaves nothing to repair, as no size exposes those blocks.

use super::Work;
use crate::pool::Pool;
use crate::tree::edit::Holes;
use crate::tree::entry::coverage;
use crate::types::Ino;
use pm_journal::error::{Error, Result};
use pm_space::Class;
use pm_store::Durable;
use pmfs_format::BLOCK_BYTES;
use pmfs_format::inode::SIZE_MAX;

impl Pool {
    /// Sets the size.
    pub(crate) fn truncate(&self, ino: Ino, size: u64) -> Result<()> {
        self.writable()?;
        if size > SIZE_MAX {
            return Err(Error::FileTooBig);
        }
        self.on_file(ino, |work| {
            let old = work.inode.size();
            if work.pinned && size < old {
                work.own_node(Class::Privileged)?;
                return work.shrink_pinned(size);
            }
            let durable = if size > old {
                work.own_node(Class::Ordinary)?;
                work.expose(old, size)?
            } else {
                Durable::nothing_exposed()
            };
            if planted!("bug-truncate-frees-first") && size < old {
                work.free_past(size)?;
            }
            work.publish_size(size, durable);
            if size < old || size == 0 && !work.pinned {
                work.trim(size)?;
            }
            Ok(())
        })
    }
}

impl Work<'_> {
    /// Frees the blocks that lie wholly past `size`, where there is room for what that takes. The
    /// size says what the file shows; blocks that are left go with the next truncate.
    pub fn trim(&mut self, size: u64) -> Result<()> {
        match self.free_past(size) {
            Err(Error::NoSpace) => Ok(()),
            done => done,
        }
    }

    /// Frees the blocks that lie wholly past `size`.
    fn free_past(&mut self, size: u64) -> Result<()> {
        let tree = self.tree();
        let from = size.div_ceil(BLOCK_BYTES);
        let to = coverage(tree.root.height());
        if tree.root.is_hole() || from >= to {
            return Ok(());
        }
        if self.tree().extent(self.pool, from, to - from)?.count >= to - from
            && tree.find(self.pool, from)?.entry.is_hole()
        {
            return Ok(());
        }
        if size > 0 {
            self.own_node(Class::Privileged)?;
        }
        self.swing(Class::Privileged, (from, to), &mut Holes)?;
        self.lane_done();
        Ok(())
    }
}
