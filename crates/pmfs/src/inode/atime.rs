//! The time of access of what is read (docs/adr/0034-times.md).

use super::Inode;
use crate::pool::Pool;
use crate::types::{AtimeMode, Ino};
use pm_journal::error::Result;
use pmfs_format::InodeRaw;

/// relatime: an atime this old is renewed.
const DAY_NS: i64 = 24 * 3600 * 1_000_000_000;

impl Pool {
    /// The inode was read: its atime becomes now, as far as the mode of this instance wants it to.
    pub(crate) fn accessed(&self, inode: &Inode) {
        if let Some(now) = self.atime_due(inode) {
            self.store_atime(inode.ino, inode.off, now);
        }
    }

    /// The atime that an inode which is read now is to have, if another than it has.
    #[inline(always)]
    pub(crate) fn atime_due(&self, inode: &Inode) -> Option<i64> {
        let mode = self.atime_mode();
        if mode == AtimeMode::Noatime || self.is_read_only() || inode.is_of_snapshot() {
            return None;
        }
        let now = self.clock.now_ns();
        if mode == AtimeMode::Relatime {
            let atime = self.pm.load(InodeRaw::atime_ns.of(inode.off)) as i64;
            // Linux does so too: an atime that is as old as a change may be of a read before it.
            let newer = atime > inode.mtime_ns && atime > inode.ctime_ns();
            if newer && now.saturating_sub(atime) < DAY_NS {
                return None;
            }
        }
        Some(now)
    }

    #[cold]
    pub(crate) fn set_atime(&self, ino: Ino, now: i64) -> Result<()> {
        self.store_atime(ino, self.inode_off(ino)?, now);
        Ok(())
    }

    fn store_atime(&self, ino: Ino, inode: u64, now: i64) {
        let slot = InodeRaw::atime_ns.of(inode);
        self.pm.lazy_word(self.note_lazy(ino), slot, now as u64);
    }
}
