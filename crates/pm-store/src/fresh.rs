//! Way 3: memory that nothing durable refers to yet.

use crate::error::{Result, medium};
use pmem::Pmem;

/// The proof that all writes of one [`FreshSet`] have passed a barrier.
#[must_use = "the barrier has been made: publish the data that it made durable"]
pub struct Durable(());

impl Durable {
    /// The proof for a change of size that exposes no data: shrinking, or growing over holes.
    #[inline]
    pub fn nothing_exposed() -> Durable {
        Durable(())
    }
}

/// Writes to unreachable memory, made durable together.
pub struct FreshSet<'a> {
    mem: &'a Pmem,
}

impl<'a> FreshSet<'a> {
    #[inline]
    pub(crate) fn new(mem: &'a Pmem) -> FreshSet<'a> {
        FreshSet { mem }
    }

    /// Gives access to `off..off + len`. The caller asserts that nothing durable refers to the
    /// range: it is a block or a slot that the allocator has just given, or bytes past the end of a
    /// file.
    #[inline]
    pub fn range(&mut self, off: u64, len: u64) -> Fresh<'_> {
        assert!(
            off.checked_add(len)
                .is_some_and(|end| end <= self.mem.len()),
            "fresh range {off:#x}+{len:#x} outside the pool"
        );
        Fresh {
            mem: self.mem,
            off,
            len,
        }
    }

    /// Makes all writes of the set durable by one barrier.
    #[inline]
    #[cfg_attr(feature = "record", track_caller)]
    pub fn barrier(self) -> Durable {
        crate::pending::flush(self.mem);
        self.mem.fence();
        crate::pending::close(self.mem);
        Durable(())
    }

    /// Leaves the barrier to the transaction whose log is sealed next.
    #[inline]
    pub fn until_seal(self) {}
}

/// A range of unreachable memory.
pub struct Fresh<'a> {
    mem: &'a Pmem,
    off: u64,
    len: u64,
}

impl Fresh<'_> {
    #[inline]
    fn within(&self, at: u64, len: u64) -> u64 {
        assert!(
            at.checked_add(len).is_some_and(|end| end <= self.len),
            "write past a fresh range"
        );
        self.off + at
    }

    /// Stores `bytes` at `at` (bytes from the start of the range) past the caches.
    ///
    /// # Errors
    /// [`crate::Error::Medium`].
    #[inline]
    #[cfg_attr(all(feature = "record", not(feature = "planted-bugs")), track_caller)]
    pub fn bytes(&self, at: u64, bytes: &[u8]) -> Result<()> {
        let off = self.within(at, bytes.len() as u64);
        let _window = self.mem.window();
        self.mem
            .write_nt(off, bytes)
            .map_err(|fault| medium(self.mem, fault))
    }

    /// Stores `len` zeros past the caches.
    #[inline]
    #[cfg_attr(feature = "record", track_caller)]
    pub fn zero(&self, at: u64, len: u64) {
        let off = self.within(at, len);
        let _window = self.mem.window();
        self.mem.zero_nt(off, len);
    }

    /// Copies `len` bytes of the pool from `from` past the caches.
    ///
    /// # Errors
    /// [`crate::Error::Medium`].
    #[inline]
    #[cfg_attr(feature = "record", track_caller)]
    pub fn copy(&self, at: u64, from: u64, len: u64) -> Result<()> {
        let off = self.within(at, len);
        let _window = self.mem.window();
        self.mem
            .copy_nt(off, from, len)
            .map_err(|fault| medium(self.mem, fault))
    }

    /// Stores words through the caches and flushes them. This suits words that are read again soon.
    #[inline]
    #[cfg_attr(feature = "record", track_caller)]
    pub fn words(&self, at: u64, words: &[u64]) {
        let off = self.cached(at, words);
        self.mem.flush(off, words.len() as u64 * 8);
    }

    /// Stores words through the caches without a flush. Returns their offset in the pool.
    #[inline]
    #[cfg_attr(feature = "record", track_caller)]
    pub fn cached(&self, at: u64, words: &[u64]) -> u64 {
        let off = self.within(at, words.len() as u64 * 8);
        let _window = self.mem.window();
        self.mem.write(off, words);
        off
    }

    /// Stores bytes through the caches and flushes them. This suits small appends.
    #[inline]
    #[cfg_attr(all(feature = "record", not(feature = "planted-bugs")), track_caller)]
    pub fn small(&self, at: u64, bytes: &[u8]) {
        let len = bytes.len() as u64;
        let off = self.within(at, len);
        let _window = self.mem.window();
        self.mem.write_bytes(off, bytes);
        self.mem.flush(off, len);
    }
}
