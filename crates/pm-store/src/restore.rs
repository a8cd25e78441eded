//! The stores of recovery and mkfs: restoring old content, closing a transaction, writing a new
//! pool. Recovery holds every lock of the content that it restores; mkfs has the pool to itself.

use crate::error::{Result, medium};
use crate::pm::Pm;
use pmfs_format::journal::{KIND_ABORT, KIND_COMMIT, KIND_SHIFT};

/// The right to restore, which only recovery and mkfs create.
pub struct Restore<'a> {
    pm: &'a Pm,
}

impl<'a> Restore<'a> {
    /// Creates the right. The caller holds the dead transaction's locks, or has the pool to itself.
    pub fn new(pm: &'a Pm) -> Restore<'a> {
        Restore { pm }
    }

    /// Restores old words; durable with the next barrier.
    #[cfg_attr(feature = "record", track_caller)]
    pub fn words(&self, off: u64, words: &[u64]) {
        let _window = self.pm.mem.window();
        self.pm.mem.write(off, words);
        self.pm.mem.flush(off, words.len() as u64 * 8);
    }

    /// Compares and swaps a word that has no meaning after a reboot. This is a full barrier for
    /// memory order.
    ///
    /// # Errors
    /// The word found, if it was not `old`.
    pub fn cas(&self, off: u64, old: u64, new: u64) -> std::result::Result<u64, u64> {
        let _window = self.pm.mem.window();
        self.pm.mem.cas(off, old, new)
    }

    /// Makes all earlier stores and flushes of this thread durable.
    #[cfg_attr(feature = "record", track_caller)]
    pub fn barrier(&self) {
        self.pm.mem.fence();
    }

    /// Restores saved data from another place in the pool; durable with the next barrier.
    #[cfg_attr(feature = "record", track_caller)]
    pub fn data(&self, to: u64, from: u64, len: u64) -> Result<()> {
        let _window = self.pm.mem.window();
        self.pm
            .mem
            .copy_nt(to, from, len)
            .map_err(|fault| medium(&self.pm.mem, fault))
    }

    /// Flushes a range that a dead thread may have stored to without a flush.
    #[cfg_attr(feature = "record", track_caller)]
    pub fn flush(&self, off: u64, len: u64) {
        self.pm.mem.flush(off, len);
    }

    /// Closes transaction `id` as undone; durable on return.
    #[cfg_attr(feature = "record", track_caller)]
    pub fn close(&self, entry: u64, id: u64) {
        let window = self.pm.mem.window();
        self.pm
            .mem
            .write(entry, &[KIND_ABORT << KIND_SHIFT, 0, 0, 0, 0, 0, 0, id]);
        self.pm.mem.flush(entry, 64);
        drop(window);
        self.pm.mem.fence();
    }

    /// Turns a matching commit checksum into a commit record; durable on return. The record stays
    /// valid when the words that the checksum covered change.
    #[cfg_attr(feature = "record", track_caller)]
    pub fn make_commit(&self, checksum: u64) {
        self.commit(checksum);
        self.barrier();
    }

    /// Makes the last entry of a log its closing one; durable with the next barrier.
    #[cfg_attr(feature = "record", track_caller)]
    pub fn commit(&self, last: u64) {
        let _window = self.pm.mem.window();
        self.pm.mem.store(last, KIND_COMMIT << KIND_SHIFT);
        self.pm.mem.flush(last, 64);
    }

    /// Zeros a range.
    #[cfg_attr(feature = "record", track_caller)]
    pub fn zero(&self, off: u64, len: u64) {
        let _window = self.pm.mem.window();
        self.pm.mem.zero_nt(off, len);
    }

    /// Stores bytes.
    #[cfg_attr(feature = "record", track_caller)]
    pub fn bytes(&self, off: u64, bytes: &[u8]) -> Result<()> {
        let _window = self.pm.mem.window();
        self.pm
            .mem
            .write_nt(off, bytes)
            .map_err(|fault| medium(&self.pm.mem, fault))
    }
}
