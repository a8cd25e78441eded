//! truncate: the size is one store; what lay past it is then freed, and by whoever finds the call cut short
//! nothing needs to be done, for no size exposes it.

use super::Work;
use crate::alloc::Class;
use crate::error::{Error, Result};
use crate::inode::Inode;
use crate::lane::Claim;
use crate::locks::LockSet;
use crate::persist::Durable;
use crate::pool::Pool;
use crate::settle::intend_subtree;
use crate::tree::edit::{Edit, Holes};
use crate::tree::entry::coverage;
use crate::types::Ino;
use pmfs_format::BLOCK_BYTES;
use pmfs_format::inode::SIZE_MAX;

impl Pool {
    /// Sets the size.
    pub(crate) fn truncate(&self, ino: Ino, size: u64) -> Result<()> {
        self.writable()?;
        if size > SIZE_MAX {
            return Err(Error::FileTooBig);
        }
        let locks = LockSet::take(self, &[ino]);
        let inode = Inode::live(self, ino)?;
        inode.require_file()?;
        let lane = Claim::new(self);
        lane.work_on(&inode);
        let mut work = Work {
            pool: self,
            locks: &locks,
            lane: &lane,
            inode,
            now_ns: self.clock.now_ns(),
        };
        let old = inode.size();
        let durable = if size > old {
            work.expose(old, size)?
        } else {
            Durable::nothing_exposed()
        };
        work.publish_size(size, durable);
        if size < old || size == 0 {
            match work.free_past(size) {
                // The size is set, which is what was asked for; the blocks go with the next truncate.
                Err(Error::NoSpace) => {}
                done => done?,
            }
        }
        Ok(())
    }
}

impl Work<'_> {
    /// Frees the blocks that lie wholly past `size`.
    pub fn free_past(&mut self, size: u64) -> Result<()> {
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
        let mut fresh = self.pool.pm.fresh();
        let edit = Edit {
            pool: self.pool,
            lane: self.lane,
            ino: self.ino(),
            class: Class::Privileged,
            from,
            to,
        };
        let swing = edit.build(&mut fresh, &tree, &mut Holes)?;
        intend_subtree(self.lane, &swing, from, to)?;
        let durable = fresh.barrier();
        self.locks.change();
        self.pool.pm.publish(swing.slot, swing.new.0, durable);
        self.reload()?;
        self.lane_done();
        Ok(())
    }
}
