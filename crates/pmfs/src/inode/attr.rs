//! The attributes that `stat` tells of an inode.

use super::{Inode, usage};
use crate::pool::Pool;
use crate::types::{Attr, Ino, mode};
use pm_journal::error::Result;
use pm_journal::locks;
use pmfs_format::{BLOCK_BYTES, InodeRaw};

impl Pool {
    /// Everything `stat` says of an inode just read.
    pub fn attr_of(&self, inode: &Inode) -> Attr {
        let mut attr = Attr::default();
        self.attr_into(inode, &mut attr);
        attr
    }

    /// Finds what [`Pool::attr_of`] does, and puts it where it is wanted: to move it costs more
    /// than to find it.
    #[inline(always)]
    pub(crate) fn attr_into(&self, inode: &Inode, attr: &mut Attr) {
        let cold = self.pm.read::<3>(InodeRaw::atime_ns.of(inode.off));
        let blocks = usage::blocks(self, inode);
        let device = matches!(inode.kind(), mode::S_IFBLK | mode::S_IFCHR);
        attr.ino = inode.ino;
        attr.generation = inode.generation;
        attr.mode = inode.mode;
        attr.links = inode.links;
        attr.uid = cold[1] as u32;
        attr.gid = (cold[1] >> 32) as u32;
        attr.rdev = if device { inode.parent as u32 } else { 0 };
        attr.size = match inode.is_dir() {
            true => inode.size() * 64,
            false => inode.size(),
        };
        // The count is a lazy word and may be wrong: no file has more blocks than the pool.
        attr.sectors = blocks.min(self.geometry.blocks) * (BLOCK_BYTES / 512);
        attr.atime_ns = cold[0] as i64;
        attr.mtime_ns = inode.mtime_ns;
        attr.ctime_ns = inode.ctime_ns();
        attr.crtime_ns = cold[2] as i64;
    }

    pub(crate) fn getattr(&self, ino: Ino) -> Result<Attr> {
        let mut attr = Attr::default();
        self.getattr_into(ino, &mut attr).map(|()| attr)
    }

    /// `getattr`, to where the answer is wanted: to move it costs more than to find it. After an
    /// error it says nothing.
    pub(crate) fn getattr_into(&self, ino: Ino, attr: &mut Attr) -> Result<()> {
        self.alive()?;
        locks::read(self, ino, || {
            self.attr_into(&Inode::live(self, ino)?, attr);
            Ok(())
        })
    }
}
