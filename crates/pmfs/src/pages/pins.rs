//! Pins among the records: the slots that have a file's own blocks mapped (docs/adr/0010-pins.md).

use crate::pages::records::Record;
use crate::pool::Pool;
use crate::types::Ino;
use pm_journal::error::{Error, Result};
use pm_journal::locks::LockSet;
use pmfs_format::runtime::{KERNEL_COPY_PIN_APART, KERNEL_COPY_PIN_READ, KERNEL_COPY_PIN_WRITE};
use pmfs_format::{KernelCopyRaw, LockRaw};

impl Pool {
    /// Returns whether programs have blocks of the inode mapped. Under its lock.
    #[inline]
    pub(crate) fn is_pinned(&self, line: u64, ino: Ino) -> bool {
        self.pm.load(LockRaw::copies.of(line)) != 0 && self.has_pin(line, ino)
    }

    #[cold]
    fn has_pin(&self, line: u64, ino: Ino) -> bool {
        self.copies_of(line, ino).any(|copy| copy.is_pin())
    }

    /// Before a mount's kernel gets pages, which programs may store to if they may be `dirty`.
    /// Under the inode's lock.
    ///
    /// # Errors
    /// [`Error::Mapped`].
    pub(crate) fn refuse_over_pins(&self, line: u64, ino: Ino, dirty: bool) -> Result<()> {
        if self.pm.load(LockRaw::copies.of(line)) == 0 {
            return Ok(());
        }
        let stands = |copy: Record| match copy.kind {
            KERNEL_COPY_PIN_WRITE => false,
            KERNEL_COPY_PIN_READ | KERNEL_COPY_PIN_APART => !dirty,
            _ => true,
        };
        if self.copies_of(line, ino).all(stands) {
            return Ok(());
        }
        Err(Error::Mapped)
    }

    /// Returns whether another process has blocks of the inode mapped. Under its lock.
    pub(crate) fn others_pin(&self, line: u64, ino: Ino) -> bool {
        let own = Some(self.holder().slot);
        let others = |copy: Record| copy.is_pin() && copy.slot() != own;
        self.is_pinned(line, ino) && self.copies_of(line, ino).any(others)
    }

    /// Gives the pins of this slot to one that no process has yet.
    pub(crate) fn copy_pins(&self, to: u64) -> Result<()> {
        for pin in self.copies_of_slot(self.holder().slot) {
            // Copies of blocks that are stored to are not shared with a child.
            if pin.is_pin() && pin.kind != KERNEL_COPY_PIN_APART {
                let locks = LockSet::take(self, &[pin.ino]);
                let off = self.claim_copy_for(to, locks.first(), pin.ino, pin.kind)?;
                let trims = self.pm.load(KernelCopyRaw::trims.of(pin.off));
                self.pm.runtime().store(KernelCopyRaw::trims.of(off), trims);
                if pin.kind == KERNEL_COPY_PIN_WRITE {
                    self.mark_stored_elsewhere(locks.first(), pin.ino);
                }
            }
        }
        Ok(())
    }

    /// Under the inode's lock: notes that one more mapping may store to its blocks from now on.
    pub(crate) fn mark_stored_elsewhere(&self, line: u64, ino: Ino) {
        for pin in self.copies_of(line, ino).filter(Record::is_pin) {
            self.pm
                .runtime()
                .store(KernelCopyRaw::stored_elsewhere.of(pin.off), 1);
        }
    }
}
