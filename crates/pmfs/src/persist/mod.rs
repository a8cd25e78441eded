//! The ways to change persistent memory, each a method of a type (docs/design/consistency.md).
//!
//! [`Pm`] gives the rest of the crate loads. Only this module and [`crate::journal`] store to the
//! pool, in four ways:
//!
//! 1. [`Pm::publish`] and [`Pm::publish_pair`]: one aligned 8- or 16-byte store, of something
//!    durable;
//! 2. transactions, in [`crate::journal`]: ranges that they have logged, and no others;
//! 3. [`Fresh`]: memory that nothing durable refers to yet;
//! 4. [`Pm::lazy_write`]: bytes whose loss the contract allows (times, data in `ordered` mode).
//!
//! The first, second and fourth are stores in place. A thread completes its pending commits before
//! them (the module `pending`).
//!
//! Volatile state in the runtime area goes through [`Runtime`], which can't reach anything else.
//!
//! The right order compiles:
//!
//! ```
//! fn right(pm: &pmfs::persist::Pm, slot: u64, word: u64) {
//!     let durable = pm.fresh().barrier();
//!     pm.publish(slot, word, durable);
//! }
//! ```
//!
//! A pointer can't be published before what it names is durable, because publishing takes a
//! [`Durable`], which only the barrier of a [`FreshSet`] gives:
//!
//! ```compile_fail
//! fn early(pm: &pmfs::persist::Pm, slot: u64, word: u64) {
//!     pm.publish(slot, word); // no `Durable`: does not compile
//! }
//! ```

pub(crate) mod annexes;
mod fresh;
mod lazy;
mod pending;
mod restore;
mod runtime;

use crate::error::{Error, Result};
use annexes::Annexes;
pub use fresh::{Durable, Fresh, FreshSet};
pub use lazy::Noted;
pub(crate) use pending::committed_redo_ranges;
use pmem::Pmem;
pub(crate) use restore::Restore;
pub use runtime::Runtime;

/// The pool, readable. See the module's documentation for how it is written.
pub struct Pm {
    mem: Pmem,
    /// The runtime area, in bytes.
    runtime: std::ops::Range<u64>,
    /// The annexes, which are as volatile as the runtime area.
    annexes: Annexes,
}

impl Pm {
    /// Wraps a mapping whose runtime area is at `runtime` (bytes).
    #[must_use]
    pub fn new(mem: Pmem, runtime: std::ops::Range<u64>) -> Pm {
        assert!(runtime.start <= runtime.end && runtime.end <= mem.len());
        let annexes = Annexes::default();
        Pm {
            mem,
            runtime,
            annexes,
        }
    }

    /// The same, of a pool whose tables may have annexes.
    pub(crate) fn with_annexes(self, annexes: Annexes) -> Pm {
        Pm { annexes, ..self }
    }

    #[inline]
    pub(crate) fn annexes(&self) -> &Annexes {
        &self.annexes
    }

    /// The mapping, for its own properties.
    #[must_use]
    pub fn mapping(&self) -> &Pmem {
        &self.mem
    }

    /// The mapping back.
    #[must_use]
    pub fn into_mapping(self) -> Pmem {
        self.mem
    }

    /// Bytes in the pool.
    #[inline]
    #[must_use]
    pub fn len(&self) -> u64 {
        self.mem.len()
    }

    /// Returns whether the pool has no bytes (it never has none).
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The word at `off` (8-aligned).
    #[inline]
    #[must_use]
    pub fn load(&self, off: u64) -> u64 {
        self.mem.load(off)
    }

    /// The 16-byte pair at `off` (16-aligned), both halves of one store.
    #[inline]
    #[must_use]
    pub fn load_pair(&self, off: u64) -> [u64; 2] {
        self.mem.load_pair(off)
    }

    /// `W` words from `off`, each atomic.
    #[inline]
    #[must_use]
    pub fn read<const W: usize>(&self, off: u64) -> [u64; W] {
        self.mem.read(off)
    }

    /// Copies bytes out.
    ///
    /// # Errors
    /// [`Error::Medium`] where the medium fails.
    #[inline]
    pub fn copy_out(&self, off: u64, to: &mut [u8]) -> Result<()> {
        self.mem
            .copy_out(off, to)
            .map_err(|fault| medium(&self.mem, fault))
    }

    /// Writes zeros for a caller, in place of bytes that were never written.
    ///
    /// # Errors
    /// [`Error::BadAddress`].
    pub fn zero_out(&self, to: &mut [u8]) -> Result<()> {
        self.mem.zero_out(to).map_err(|_| Error::BadAddress)
    }

    /// As [`Pm::copy_out`], and the bytes to be copied next come nearer meanwhile.
    ///
    /// # Errors
    /// [`Error::Medium`] where the medium fails.
    pub fn copy_out_before(
        &self,
        off: u64,
        to: &mut [u8],
        next: std::ops::Range<u64>,
    ) -> Result<()> {
        self.mem
            .copy_out_before(off, to, next)
            .map_err(|fault| medium(&self.mem, fault))
    }

    /// Checks that the line at `off` can be read; it comes nearer, and nothing waits for it.
    ///
    /// # Errors
    /// [`Error::Medium`] where the medium fails.
    #[inline]
    pub(crate) fn touch(&self, off: u64) -> Result<()> {
        self.mem
            .touch(off)
            .map_err(|fault| medium(&self.mem, fault))
    }

    /// As [`Pm::load`], and never charged where a slower medium is emulated: for a word that was
    /// just read or stored.
    #[inline]
    pub fn load_cached(&self, off: u64) -> u64 {
        self.mem.load_cached(off)
    }

    /// As [`Pm::load_cached`], for an offset that nothing has checked: 0 where there is no such
    /// word.
    #[inline(always)]
    pub fn load_if_there(&self, off: u64) -> u64 {
        self.mem.load_if_there(off)
    }

    /// Hints that `off` is read soon.
    #[inline]
    pub fn prefetch(&self, off: u64) {
        self.mem.prefetch(off);
    }

    /// As [`Pm::prefetch`], for an offset that nothing has checked.
    #[inline(always)]
    pub fn prefetch_if_there(&self, off: u64) {
        self.mem.prefetch_if_there(off);
    }

    /// Orders the loads before it against those after it.
    #[inline]
    pub fn acquire(&self) {
        self.mem.acquire();
    }

    /// A fault of a copy, as the engine's error.
    #[cold]
    pub(crate) fn fault(&self, fault: pmem::Fault) -> Error {
        medium(&self.mem, fault)
    }

    /// Flushes this thread's pending commit, for the fence that follows.
    #[inline]
    #[cfg_attr(feature = "record", track_caller)]
    pub(crate) fn flush_pending(&self) {
        pending::flush(&self.mem);
    }

    /// Fails once the medium has failed under a load or store.
    ///
    /// # Errors
    /// [`Error::Medium`].
    #[inline]
    pub fn intact(&self) -> Result<()> {
        match self.mem.failed() {
            None => Ok(()),
            Some(offset) => Err(lost(offset)),
        }
    }

    /// The volatile, shared state.
    #[inline]
    #[must_use]
    pub fn runtime(&self) -> Runtime<'_> {
        Runtime::new(&self.mem, &self.runtime, &self.annexes)
    }

    /// Way 3: starts a set of writes to memory that nothing durable refers to.
    #[inline]
    #[must_use]
    pub fn fresh(&self) -> FreshSet<'_> {
        FreshSet::new(&self.mem)
    }

    /// Way 1: one aligned 8-byte store, durable on return. `durable` shows that its target is
    /// durable.
    #[inline]
    #[cfg_attr(feature = "record", track_caller)]
    pub fn publish(&self, slot: u64, word: u64, durable: Durable) {
        self.publish_early(slot, word, &durable);
        if !planted!("bug-publish-unfenced") {
            self.mem.fence();
        }
    }

    /// As [`Pm::publish`], but durable only with the caller's next barrier.
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
        if !planted!("bug-publish-unflushed") {
            self.mem.flush(slot, 8);
        }
    }

    /// Way 1: a pointer that no size exposes yet, to data that is undefined until one does. Durable
    /// with the next barrier.
    #[inline]
    #[cfg_attr(feature = "record", track_caller)]
    pub fn publish_hidden(&self, slot: u64, word: u64) {
        self.drain_for_pointer();
        let _window = self.mem.window();
        self.mem.store(slot, word);
        if !planted!("bug-hidden-pointer-unflushed") {
            self.mem.flush(slot, 8);
        }
    }

    /// As [`Pm::publish_hidden`], of pointers that stand in a row from `slot` on: each line is
    /// flushed once.
    #[cfg_attr(feature = "record", track_caller)]
    pub fn publish_hidden_run(&self, slot: u64, words: impl ExactSizeIterator<Item = u64>) {
        self.drain_for_pointer();
        let bytes = words.len() as u64 * 8;
        let _window = self.mem.window();
        for (off, word) in (slot..).step_by(8).zip(words) {
            self.mem.store(off, word);
        }
        if !planted!("bug-hidden-pointer-unflushed") {
            self.mem.flush(slot, bytes);
        }
    }

    /// Way 1: bytes inside one aligned word, as one store, durable on return.
    ///
    /// # Errors
    /// [`Error::Medium`] where the word can't be read; it is as it was then.
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
        if !planted!("bug-word-unflushed") {
            self.mem.flush(slot, 8);
        }
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
        let early = planted!("bug-size-flushed-first");
        if early {
            self.mem.flush(slot, 16);
        }
        if planted!("bug-size-torn") {
            self.mem.write(slot, &pair);
        } else {
            self.mem.store_pair(slot, pair);
        }
        if !early && !planted!("bug-size-unflushed") {
            self.mem.flush(slot, 16);
        }
        drop(window);
        if !planted!("bug-size-unfenced") {
            self.mem.fence();
        }
    }

    /// Way 4: a 16-byte store that may be lost or come early, for the times of an overwrite
    /// (docs/adr/0034-times.md). It is not flushed.
    #[inline]
    #[cfg_attr(feature = "record", track_caller)]
    pub fn lazy_pair(&self, _noted: Noted, slot: u64, pair: [u64; 2]) {
        self.drain_for_pointer();
        let _window = self.mem.window();
        self.mem.store_pair(slot, pair);
    }

    /// Way 4: one word that may be lost or come early: atime, the count of blocks. No commit
    /// checksum covers these, so no pending commit has to be completed first.
    #[inline]
    #[cfg_attr(feature = "record", track_caller)]
    pub fn lazy_word(&self, _noted: Noted, slot: u64, word: u64) {
        let _window = self.mem.window();
        self.mem.store(slot, word);
    }

    /// Way 4: file data in place, which may tear: `ordered` mode, and bytes that no size exposes.
    /// Durable with the next barrier.
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

    /// Way 4: as [`Pm::lazy_write`], zeros.
    #[cfg_attr(feature = "record", track_caller)]
    pub fn lazy_zero(&self, off: u64, len: u64) {
        self.drain();
        let _window = self.mem.window();
        self.mem.fence_stores();
        self.mem.zero_nt(off, len);
    }

    /// Way 4: flushes the stores that programs have made by themselves in a pinned file's blocks;
    /// durable with the next barrier.
    #[cfg_attr(feature = "record", track_caller)]
    pub fn flush_mapped(&self, off: u64, len: u64) {
        self.mem.flush(off, len);
    }

    /// The paper's `pm_wbarrier`: all this thread has flushed or stored non-temporally is durable.
    #[inline]
    #[cfg_attr(feature = "record", track_caller)]
    pub fn barrier(&self) {
        pending::flush(&self.mem);
        self.mem.fence();
        pending::close(&self.mem);
    }
}

/// A fault of a copy, as the engine's error.
#[cold]
fn medium(mem: &Pmem, fault: pmem::Fault) -> Error {
    match fault.side {
        pmem::Side::User => Error::BadAddress,
        pmem::Side::Pool => {
            // A bad block is an error for those calls alone that need it. If the file was cut
            // short, its end is gone too: this load then marks the mapping as failed, so that
            // nothing more is stored into the rest.
            let _ = mem.load_cached((mem.len() & !7) - 8);
            Error::Medium {
                offset: fault.offset,
            }
        }
    }
}

#[cold]
#[inline(never)]
fn lost(offset: u64) -> Error {
    Error::Medium { offset }
}
