//! The pool with its loads. The other modules add the ways to store.

use crate::annexes::Annexes;
use crate::error::{Error, Result, medium};
use crate::runtime::Runtime;
use pmem::Pmem;

/// A mapped pool. The crate's documentation lists the ways to store to it.
pub struct Pm {
    pub(crate) mem: Pmem,
    /// The range of the runtime area, bytes.
    runtime: std::ops::Range<u64>,
    /// The annexes, as volatile as the runtime area.
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

    /// Adds the annexes of a pool whose tables may grow.
    pub fn with_annexes(self, annexes: Annexes) -> Pm {
        Pm { annexes, ..self }
    }

    /// The blocks that are as volatile as the runtime area.
    #[inline]
    pub fn annexes(&self) -> &Annexes {
        &self.annexes
    }

    /// The mapping.
    #[must_use]
    pub fn mapping(&self) -> &Pmem {
        &self.mem
    }

    /// Unwraps the mapping.
    #[must_use]
    pub fn into_mapping(self) -> Pmem {
        self.mem
    }

    /// Length of the pool, bytes.
    #[inline]
    #[must_use]
    pub fn len(&self) -> u64 {
        self.mem.len()
    }

    /// Returns whether the pool has no bytes; no pool is empty.
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

    /// `W` words from `off` on, each loaded atomically.
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

    /// Writes zeros to the caller's buffer, in place of bytes that were never written.
    ///
    /// # Errors
    /// [`Error::BadAddress`].
    #[inline]
    pub fn zero_out(&self, to: &mut [u8]) -> Result<()> {
        self.mem.zero_out(to).map_err(|_| Error::BadAddress)
    }

    /// Copies out as [`Pm::copy_out`] does, and prefetches the range that is copied next.
    ///
    /// # Errors
    /// [`Error::Medium`] where the medium fails.
    #[inline]
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

    /// Checks that the line at `off` can be read, and prefetches it without waiting.
    ///
    /// # Errors
    /// [`Error::Medium`] where the medium fails.
    #[inline]
    pub fn touch(&self, off: u64) -> Result<()> {
        self.mem
            .touch(off)
            .map_err(|fault| medium(&self.mem, fault))
    }

    /// Loads as [`Pm::load`] does, for a word that was just read or stored. Emulation never charges
    /// for the load.
    #[inline]
    pub fn load_cached(&self, off: u64) -> u64 {
        self.mem.load_cached(off)
    }

    /// Loads as [`Pm::load_cached`] does, at an unchecked offset. Returns 0 where the pool has no
    /// such word.
    #[inline(always)]
    pub fn load_if_there(&self, off: u64) -> u64 {
        self.mem.load_if_there(off)
    }

    /// Prefetches the line at `off`.
    #[inline]
    pub fn prefetch(&self, off: u64) {
        self.mem.prefetch(off);
    }

    /// Prefetches as [`Pm::prefetch`] does, at an unchecked offset.
    #[inline(always)]
    pub fn prefetch_if_there(&self, off: u64) {
        self.mem.prefetch_if_there(off);
    }

    /// Orders the loads before this call against the loads after it.
    #[inline]
    pub fn acquire(&self) {
        self.mem.acquire();
    }

    /// Converts a fault of a copy into the engine's error.
    #[cold]
    pub fn fault(&self, fault: pmem::Fault) -> Error {
        medium(&self.mem, fault)
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
}

#[cold]
#[inline(never)]
fn lost(offset: u64) -> Error {
    Error::Medium { offset }
}
