//! Lazy words, which may be stored without a flush, once a note names the inodes that they belong
//! to (docs/adr/0034-times.md).

use crate::runtime::Runtime;

/// The right to store a word of an inode without flushing it.
#[derive(Clone, Copy)]
pub struct Noted(());

impl Runtime<'_> {
    /// Sets a bit of the word at `slot`: the inodes that it stands for may have words that are not
    /// flushed. Mostly it is set already.
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
