//! statfs: sums over the groups' lines.

use crate::pool::Pool;
use crate::purpose::Lane;
use crate::types::StatFs;
use pm_journal::error::Result;
use pm_space::Bitmap;
use pmfs_format::BLOCK_BYTES;
use pmfs_format::directory::NAME_MAX;

impl Pool {
    /// Blocks that belong to no file, including the lanes' spare blocks.
    pub fn blocks_free(&self) -> u64 {
        Bitmap::blocks(self).free() + Lane::spares(self)
    }

    pub(crate) fn statfs(&self) -> Result<StatFs> {
        self.alive()?;
        let uuid = self.superblock.uuid;
        Ok(StatFs {
            block_size: BLOCK_BYTES as u32,
            blocks: self.geometry.blocks - self.geometry.overhead_blocks(),
            blocks_free: self
                .blocks_free()
                .saturating_sub(self.geometry.reserve_blocks),
            inodes: self.geometry.inodes,
            inodes_free: Bitmap::inodes(self).free(),
            name_max: NAME_MAX as u32,
            fsid: u64::from_le_bytes(uuid[..8].try_into().expect("eight bytes")),
        })
    }
}
