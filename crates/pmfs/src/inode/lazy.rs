//! Flushing of lazy words of inodes. A clean close makes them durable (docs/adr/0034-times.md).

use crate::pool::Pool;
use crate::types::Ino;
use pm_store::Restore;
use pmfs_format::InodeRaw;
use pmfs_format::runtime::{GROUP_UNITS, LAZY_INODES};

impl Pool {
    /// Flushes all of them, for the next barrier. The caller is the only one in the pool. The notes
    /// stay: should this process die before the barrier, the next to leave flushes them again.
    pub(crate) fn flush_lazy(&self) {
        for (group, bits) in self.noted() {
            for bit in (0..64).filter(|bit| bits >> bit & 1 == 1) {
                let first = group * GROUP_UNITS + bit * LAZY_INODES;
                self.flush_inodes(first..first + LAZY_INODES);
            }
        }
    }

    fn flush_inodes(&self, range: std::ops::Range<Ino>) {
        let restore = Restore::new(&self.pm);
        for ino in range {
            // A place without a block of the table holds no inodes.
            if let Ok(off) = self.inode_off(ino) {
                restore.flush(off, InodeRaw::SIZE);
            }
        }
    }
}
