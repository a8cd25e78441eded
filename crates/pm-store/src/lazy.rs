//! Lazy words: words stored without a flush, after a note has named their inodes
//! (docs/adr/0034-times.md).

use crate::runtime::Runtime;

/// The right to store a word of an inode without a flush.
#[derive(Clone, Copy)]
pub struct Noted(());

impl Runtime<'_> {
    /// Sets `bit` in the word at `slot`: the inodes of that bit may have unflushed words. Usually
    /// the bit is set already.
    #[inline(always)]
    pub fn note(&self, slot: u64, bit: u64) -> Noted {
        let mut known = self.load(slot);
        while known & bit == 0 {
            match self.cas(slot, known, known | bit) {
                Ok(_) => break,
                Err(found) => known = found,
            }
        }
        Noted(())
    }
}
