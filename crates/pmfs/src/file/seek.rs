//! SEEK_DATA, SEEK_HOLE.

use crate::inode::Inode;
use crate::pool::Pool;
use crate::types::Ino;
use pm_journal::error::{Error, Result};
use pm_journal::locks;
use pmfs_format::BLOCK_BYTES;

impl Pool {
    /// The first offset from `at` on that holds data (`data`), or that reads as a hole, the end
    /// included.
    pub(crate) fn seek(&self, ino: Ino, at: u64, data: bool) -> Result<u64> {
        self.alive()?;
        locks::read_line(self, ino, |line| {
            self.pages_are_clean(line, ino)?;
            let inode = Inode::live(self, ino)?;
            inode.require_file()?;
            let size = inode.size();
            if at >= size {
                return Err(Error::NoSuchOffset);
            }
            let tree = inode.tree();
            let mut here = at;
            while here < size {
                let blocks = (size - here).div_ceil(BLOCK_BYTES) + 1;
                let extent = tree.extent(self, here / BLOCK_BYTES, blocks)?;
                if extent.written == data {
                    return Ok(here);
                }
                here = (here / BLOCK_BYTES + extent.count.max(1)).saturating_mul(BLOCK_BYTES);
            }
            if data {
                Err(Error::NoSuchOffset)
            } else {
                Ok(size)
            }
        })
    }
}
