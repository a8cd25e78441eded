//! Lazy words: words of inodes that are stored without a flush, because the contract lets them go
//! after power loss (docs/adr/0034-times.md). A clean close makes all durable, so it has to know
//! which inodes may have some.

use crate::medium::store::Store;
use crate::types::Ino;
use pm_store::Noted;
use pmfs_format::runtime::{GROUP_UNITS, LAZY_INODES};

impl Store {
    /// Writes down, before it is stored, that `ino` gets a word that is not flushed.
    #[inline(always)]
    pub fn note_lazy(&self, ino: Ino) -> Noted {
        let slot = self.geometry.lazy + ino / GROUP_UNITS * 8;
        let bit = 1 << (ino % GROUP_UNITS / LAZY_INODES);
        self.pm.runtime().note(slot, bit)
    }

    /// Forgets the notes in a pool that was left clean.
    pub fn forget_lazy(&self) {
        for (group, _) in self.noted() {
            self.pm.runtime().store(self.geometry.lazy + group * 8, 0);
        }
    }

    /// The groups of inodes that have some, with their bits.
    pub fn noted(&self) -> impl Iterator<Item = (u64, u64)> {
        let groups = 0..self.geometry.inode_map.group_count();
        let words = groups.map(|group| (group, self.pm.load(self.geometry.lazy + group * 8)));
        words.filter(|&(_, bits)| bits != 0)
    }
}
