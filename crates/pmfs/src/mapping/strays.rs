//! Strays: words of inodes that are stored and not flushed, for nothing is promised of them across
//! a power loss (docs/adr/0034-times.md). A clean close promises all, so it has to know which
//! inodes may have some.

use crate::persist::Restore;
use crate::pool::Pool;
use crate::types::Ino;
use pmfs_format::InodeRaw;
use pmfs_format::runtime::{GROUP_UNITS, STRAY_INODES};

/// The right to store a word of an inode without flushing it.
#[derive(Clone, Copy)]
pub struct Noted(());

impl Pool {
    /// Writes down, before it is stored, that `ino` gets a word that is not flushed. Most often that is known.
    #[inline]
    pub(crate) fn note_stray(&self, ino: Ino) -> Noted {
        if planted!("bug-stray-not-noted") {
            return Noted(());
        }
        let slot = self.geometry.strays + ino / GROUP_UNITS * 8;
        let bit = 1 << (ino % GROUP_UNITS / STRAY_INODES);
        let runtime = self.pm.runtime();
        let mut known = runtime.load(slot);
        while known & bit == 0 {
            match runtime.cas(slot, known, known | bit) {
                Ok(_) => break,
                Err(found) => known = found,
            }
        }
        Noted(())
    }

    /// Flushes all of them, for the next barrier. The caller is the only one in the pool. The notes stay: should this
    /// process die before the barrier, the next to leave flushes them again.
    pub(crate) fn flush_strays(&self) {
        for (group, bits) in self.noted() {
            for bit in (0..64).filter(|bit| bits >> bit & 1 == 1) {
                let first = group * GROUP_UNITS + bit * STRAY_INODES;
                self.flush_inodes(first..first + STRAY_INODES);
            }
        }
    }

    /// Forgets the notes in a pool that was left clean.
    pub(crate) fn forget_strays(&self) {
        for (group, _) in self.noted() {
            self.pm.runtime().store(self.geometry.strays + group * 8, 0);
        }
    }

    /// The groups of inodes that have some, with their bits.
    fn noted(&self) -> impl Iterator<Item = (u64, u64)> {
        let groups = 0..self.geometry.inode_map.group_count();
        let words = groups.map(|group| (group, self.pm.load(self.geometry.strays + group * 8)));
        words.filter(|&(_, bits)| bits != 0)
    }

    fn flush_inodes(&self, range: std::ops::Range<Ino>) {
        let restore = Restore::new(&self.pm);
        for ino in range {
            // Where the table has no block there are none.
            if let Ok(off) = self.inode_off(ino)
                && !planted!("bug-strays-unflushed")
            {
                restore.flush(off, InodeRaw::SIZE);
            }
        }
    }
}
