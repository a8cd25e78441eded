//! Changes of a file whose blocks programs have mapped: the blocks stay, and what goes becomes
//! zeros (docs/adr/0010-pins.md).

use super::{Work, block_of};
use pm_journal::error::Result;
use pmfs_format::{BLOCK_BYTES, KernelCopyRaw};

impl Work<'_> {
    /// Makes a range zeros where it has blocks that hold anything.
    pub fn zero_in_place(&mut self, from: u64, to: u64) -> Result<()> {
        // Here already: blocks without room for their copies leave all of it as it was.
        self.own(block_of(from), to.div_ceil(BLOCK_BYTES))?;
        let mut at = from;
        while at < to {
            let blocks = (to - at).div_ceil(BLOCK_BYTES) + 1;
            let extent = self.tree().extent(self.pool, block_of(at), blocks)?;
            let within = at % BLOCK_BYTES;
            let len = (extent.count * BLOCK_BYTES - within).min(to - at);
            if extent.written {
                self.locks.change();
                self.pool.pm.lazy_zero(extent.off + within, len);
            }
            at += len;
        }
        self.pool.pm.barrier();
        Ok(())
    }

    /// The size becomes less, and the blocks stay where programs have them mapped.
    pub fn shrink_pinned(&mut self, size: u64) -> Result<()> {
        let old = self.inode.size();
        // The block that stays in part, while there may be no room for its copy.
        self.own(block_of(size), size.div_ceil(BLOCK_BYTES))?;
        self.publish_size(size, pm_store::Durable::nothing_exposed());
        // No size exposes them any more, whenever this is cut short.
        self.zero_in_place(size, old)?;
        for pin in self.pool.copies_of(self.locks.first(), self.ino()) {
            self.pool
                .pm
                .runtime()
                .store(KernelCopyRaw::trims.of(pin.off), 1);
        }
        Ok(())
    }
}
