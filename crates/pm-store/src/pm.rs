//! The pool, readable.

use crate::annexes::Annexes;
use crate::error::{Error, Result, medium};
use crate::runtime::Runtime;
use pmem::Pmem;

/// The pool, readable. See the crate's documentation for how it is written.
pub struct Pm {
    pub(crate) mem: Pmem,
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
    pub fn with_annexes(self, annexes: Annexes) -> Pm {
        Pm { annexes, ..self }
    }

    /// The blocks that are as volatile as the runtime area.
    #[inline]
    pub fn annexes(&self) -> &Annexes {
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
    #[inline]
    pub fn zero_out(&self, to: &mut [u8]) -> Result<()> {
        self.mem.zero_out(to).map_err(|_| Error::BadAddress)
    }

    /// Copies out as [`Pm::copy_out`] does; the bytes to be copied next come nearer meanwhile.
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

    /// Checks that the line at `off` can be read; it comes nearer, and nothing waits for it.
    ///
    /// # Errors
    /// [`Error::Medium`] where the medium fails.
    #[inline]
    pub fn touch(&self, off: u64) -> Result<()> {
        self.mem
            .touch(off)
            .map_err(|fault| medium(&self.mem, fault))
    }

    /// Loads as [`Pm::load`] does, for a word that was just read or stored. An emulated slower
    /// medium never charges for it.
    #[inline]
    pub fn load_cached(&self, off: u64) -> u64 {
        self.mem.load_cached(off)
    }

    /// Loads as [`Pm::load_cached`] does, at an offset that nothing has checked. The answer is 0
    /// where there is no such word.
    #[inline(always)]
    pub fn load_if_there(&self, off: u64) -> u64 {
        self.mem.load_if_there(off)
    }

    /// Hints that `off` is read soon.
    #[inline]
    pub fn prefetch(&self, off: u64) {
        self.mem.prefetch(off);
    }

    /// Hints as [`Pm::prefetch`] does, for an offset that nothing has checked.
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
