//! Stores in place (ways 1 and 4), the barrier, and the start of way 3.

use crate::error::{Result, medium};
use crate::fresh::{Durable, FreshSet};
use crate::lazy::Noted;
use crate::pending;
use crate::pm::Pm;

impl Pm {
    /// Flushes this thread's pending commit, for the fence that follows.
    #[inline]
    #[cfg_attr(feature = "record", track_caller)]
    pub fn flush_pending(&self) {
        pending::flush(&self.mem);
    }

    /// Way 3: starts a set of writes to memory that nothing durable refers to.
    #[inline]
    #[must_use]
    pub fn fresh(&self) -> FreshSet<'_> {
        FreshSet::new(&self.mem)
    }

    /// Way 1: one aligned 8-byte store, durable on return. `durable` proves that the word's target
    /// is durable.
    #[inline]
    #[cfg_attr(feature = "record", track_caller)]
    pub fn publish(&self, slot: u64, word: u64, durable: Durable) {
        self.publish_early(slot, word, &durable);
        self.mem.fence();
    }

    /// Publishes as [`Pm::publish`] does. The store becomes durable with the caller's next barrier.
    #[inline]
    #[cfg_attr(feature = "record", track_caller)]
    pub fn publish_early(&self, slot: u64, word: u64, _durable: &Durable) {
        if self.mem.failed().is_some() {
            // The data that the word would expose may be lost.
            return;
        }
        self.drain_for_pointer();
        let _window = self.mem.window();
        self.mem.store(slot, word);
        self.mem.flush(slot, 8);
    }

    /// Way 1: a pointer to undefined data that no size exposes yet. It becomes durable with the
    /// next barrier.
    #[inline]
    #[cfg_attr(feature = "record", track_caller)]
    pub fn publish_hidden(&self, slot: u64, word: u64) {
        self.drain_for_pointer();
        let _window = self.mem.window();
        self.mem.store(slot, word);
        self.mem.flush(slot, 8);
    }

    /// Publishes as [`Pm::publish_hidden`] does, for adjacent pointers from `slot` on. Each line is
    /// flushed once.
    #[cfg_attr(feature = "record", track_caller)]
    pub fn publish_hidden_run(&self, slot: u64, words: impl ExactSizeIterator<Item = u64>) {
        self.drain_for_pointer();
        let bytes = words.len() as u64 * 8;
        let _window = self.mem.window();
        for (off, word) in (slot..).step_by(8).zip(words) {
            self.mem.store(off, word);
        }
        self.mem.flush(slot, bytes);
    }

    /// Way 1: bytes inside one aligned word, as one store, durable on return.
    ///
    /// # Errors
    /// [`Error::Medium`] where the word can't be read; it is as it was then.
    #[inline]
    #[cfg_attr(feature = "record", track_caller)]
    pub fn publish_bytes(&self, off: u64, bytes: &[u8]) -> Result<()> {
        let slot = off & !7;
        let at = (off - slot) as usize;
        assert!(at + bytes.len() <= 8, "bytes of one word");
        let mut word = [0; 8];
        self.copy_out(slot, &mut word)?;
        word[at..at + bytes.len()].copy_from_slice(bytes);
        self.drain();
        let window = self.mem.window();
        self.mem.store(slot, u64::from_le_bytes(word));
        self.mem.flush(slot, 8);
        drop(window);
        self.mem.fence();
        Ok(())
    }

    /// Way 1: one aligned 16-byte store, durable on return.
    #[inline]
    #[cfg_attr(feature = "record", track_caller)]
    pub fn publish_pair(&self, slot: u64, pair: [u64; 2], _durable: Durable) {
        if self.mem.failed().is_some() {
            return;
        }
        self.drain_for_pointer();
        let window = self.mem.window();
        self.mem.store_pair(slot, pair);
        self.mem.flush(slot, 16);
        drop(window);
        self.mem.fence();
    }

    /// Way 4: an unflushed 16-byte store that may be lost or become durable early, for the times of
    /// an overwrite (docs/adr/0034-times.md).
    #[inline]
    #[cfg_attr(feature = "record", track_caller)]
    pub fn lazy_pair(&self, _noted: Noted, slot: u64, pair: [u64; 2]) {
        self.drain_for_pointer();
        let _window = self.mem.window();
        self.mem.store_pair(slot, pair);
    }

    /// Way 4: an unflushed word that may be lost or become durable early: atime, the count of
    /// blocks. No commit checksum covers it, so no pending commit has to be completed first.
    #[inline]
    #[cfg_attr(feature = "record", track_caller)]
    pub fn lazy_word(&self, _noted: Noted, slot: u64, word: u64) {
        let _window = self.mem.window();
        self.mem.store(slot, word);
    }

    /// Way 4: file data in place, which may tear: `ordered` mode, and bytes that no size exposes.
    /// It becomes durable with the next barrier.
    ///
    /// # Errors
    /// [`Error::Medium`] where the medium fails.
    #[inline]
    #[cfg_attr(feature = "record", track_caller)]
    pub fn lazy_write(&self, off: u64, bytes: &[u8]) -> Result<()> {
        self.drain();
        let _window = self.mem.window();
        self.mem.fence_stores();
        self.mem
            .write_nt(off, bytes)
            .map_err(|fault| medium(&self.mem, fault))
    }

    /// Way 4: stores zeros as [`Pm::lazy_write`] stores data.
    #[cfg_attr(feature = "record", track_caller)]
    pub fn lazy_zero(&self, off: u64, len: u64) {
        self.drain();
        let _window = self.mem.window();
        self.mem.fence_stores();
        self.mem.zero_nt(off, len);
    }

    /// Way 4: flushes the stores of programs in a pinned file's blocks. They become durable with
    /// the next barrier.
    #[cfg_attr(feature = "record", track_caller)]
    pub fn flush_mapped(&self, off: u64, len: u64) {
        self.mem.flush(off, len);
    }

    /// The barrier, `pm_wbarrier` in the PMFS paper: all that this thread has flushed or stored
    /// past the caches is durable on return.
    #[inline]
    #[cfg_attr(feature = "record", track_caller)]
    pub fn barrier(&self) {
        pending::flush(&self.mem);
        self.mem.fence();
        pending::close(&self.mem);
    }
}
