//! A mapping of a pool: its properties, and the check of offsets.

use std::fmt;
use std::fs::Metadata;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use crate::Medium;
use crate::access::copy::Copier;
use crate::access::dirty::DirtyRanges;
use crate::access::landing::{self, Node};
use crate::address_space::{HUGE, Mapping, is_huge};
use crate::emulate::Emulator;
use crate::mapping::room::{self, Access, Growth};
use crate::protection::Guard;

/// The identity of a pool's file, independent of its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Identity {
    /// Device: st_dev, or st_rdev of a DAX device; 0 = private memory.
    pub dev: u64,
    /// Inode number; private memory has a number that is unique in this process.
    pub ino: u64,
}

impl Identity {
    /// The identity of an open file, or of a file with a name.
    #[must_use]
    pub fn of(file: &Metadata) -> Identity {
        let device = file.file_type().is_char_device();
        Identity {
            dev: if device { file.rdev() } else { file.dev() },
            ino: file.ino(),
        }
    }
}

/// The bytes that the kernel zeroes between two reports of progress.
const POPULATED_AT_ONCE: u64 = 64 << 20;

/// One mapping of one pool, shared with any number of processes.
///
/// All methods take `&self`, and any thread may call them: a pool is memory
/// that changes at any time, and every access here allows for that.
pub struct Pmem {
    pub(crate) base: *mut u8,
    /// Bytes when the mapping was made; a growing mapping may have more now.
    len: u64,
    /// The bytes that accesses are checked against, and the whole 8-byte words in them. A mapping
    /// that grows counts all reserved address space: a check that loads a changing length costs one
    /// instruction more an access.
    bound: u64,
    words: u64,
    /// Whole words in `len`.
    words_at_first: u64,
    pub(crate) copier: Copier,
    /// The number by which threads know that they have tallies here.
    pub(crate) tally: u64,
    /// Aligned 16-byte moves are atomic.
    pub(crate) wide_moves: bool,
    /// Each fence is an sfence, even without non-temporal stores.
    pub(crate) fence_always: bool,
    pub(crate) medium: Medium,
    /// The ranges that the next fence syncs, for a plain file that must survive power loss.
    pub(crate) dirty: Option<Box<DirtyRanges>>,
    /// The delays of an emulated slower medium.
    pub(crate) emulator: Option<Box<Emulator>>,
    /// Entry in the registry of the fault handler (file mappings).
    pub(crate) node: Option<&'static Node>,
    /// The protection against stray stores.
    pub(crate) guard: Guard,
    path: Option<PathBuf>,
    identity: Identity,
    sparse: bool,
    #[cfg(feature = "record")]
    pub(crate) observer: Option<std::sync::Arc<dyn crate::recorder::record::Observer>>,
    pub(crate) mapping: Mapping,
    /// The growth of the mapping, if address space was reserved.
    pub(crate) growth: Option<Box<Growth>>,
}

// SAFETY: the mapping belongs to no thread. `base` is only ever used for
// atomic accesses and for assembly that may meet concurrent stores.
unsafe impl Send for Pmem {}
// SAFETY: as above.
unsafe impl Sync for Pmem {}

/// The arguments of `Pmem::assemble`, except the mapping.
pub(crate) struct Parts {
    pub mapping: Mapping,
    pub len: u64,
    pub medium: Medium,
    pub fence_always: bool,
    pub guard: Guard,
    pub path: Option<PathBuf>,
    pub identity: Identity,
    /// The file had less space than bytes.
    pub sparse: bool,
    pub growth: Option<Box<Growth>>,
}

impl Pmem {
    /// Zeroed anonymous memory: for tests and crash images.
    ///
    /// # Panics
    /// If there is no address space for `len` bytes.
    pub fn private(len: u64) -> Pmem {
        Pmem::private_within(len, len)
    }

    /// Creates memory as [`Pmem::private`] does, with address space to grow to `room` bytes
    /// ([`Pmem::extend`]).
    ///
    /// # Panics
    /// If there is no address space for `len` bytes.
    pub fn private_within(len: u64, room: u64) -> Pmem {
        Pmem::try_private_within(len, room)
            .unwrap_or_else(|e| panic!("no address space for {len} bytes: {e}"))
    }

    /// Creates memory as [`Pmem::private_within`] does, if there is address space.
    ///
    /// # Errors
    /// The kernel's.
    pub fn try_private_within(len: u64, room: u64) -> std::io::Result<Pmem> {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let huge = len.max(room) >= HUGE as u64;
        let access = Access {
            protection: libc::PROT_READ | libc::PROT_WRITE,
            flags: libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
            advice: if huge { &[libc::MADV_HUGEPAGE] } else { &[] },
        };
        let align = if huge { HUGE } else { 4096 };
        let (mapping, growth) = room::map(None, len.max(1), room, align, access)?;
        landing::install();
        Ok(Pmem::assemble(Parts {
            mapping,
            len,
            medium: Medium::PRIVATE,
            fence_always: false,
            guard: Guard::None,
            path: None,
            identity: Identity {
                dev: 0,
                ino: NEXT.fetch_add(1, Ordering::Relaxed),
            },
            sparse: false,
            growth,
        }))
    }

    pub(crate) fn assemble(parts: Parts) -> Pmem {
        let base = parts.mapping.base();
        let durable = parts.medium.durability == crate::Durability::ProcessAndMsync;
        let node = parts
            .path
            .is_some()
            .then(|| landing::register(base, parts.mapping.len(), parts.medium.page_size as usize));
        let bound = match parts.growth {
            Some(_) => parts.mapping.room() as u64,
            None => parts.len,
        };
        Pmem {
            base,
            len: parts.len,
            bound,
            words: bound / 8,
            words_at_first: parts.len / 8,
            copier: Copier::best(),
            tally: crate::thread::next_tally(),
            wide_moves: crate::cpu::cpu().avx,
            fence_always: parts.fence_always,
            medium: parts.medium,
            dirty: durable.then(Box::default),
            emulator: None,
            node,
            guard: parts.guard,
            path: parts.path,
            identity: parts.identity,
            sparse: parts.sparse,
            #[cfg(feature = "record")]
            observer: None,
            mapping: parts.mapping,
            growth: parts.growth,
        }
    }

    /// Lets the kernel zero every page from byte `from` (page-aligned) on, so that no later store
    /// waits for it. `progress` gets the bytes done and the bytes in all. Before Linux 5.14, or
    /// without memory, nothing happens, and the first store pays.
    ///
    /// # Panics
    /// If `from` is behind the end.
    pub fn populate(&self, from: u64, progress: &mut dyn FnMut(u64, u64)) {
        let total = self.len().checked_sub(from).expect("inside the pool");
        let mut done = 0;
        while done < total {
            let here = POPULATED_AT_ONCE.min(total - done);
            let writable = self.writable();
            let is_there = self.mapping.populate((from + done) as usize, here as usize);
            drop(writable);
            if !is_there {
                return;
            }
            done += here;
            progress(done, total);
        }
    }

    /// Returns whether the file had less space than bytes when it was mapped: a store where it has
    /// none may fail.
    pub fn is_sparse(&self) -> bool {
        self.sparse
    }

    /// Allocates space of the file for the bytes `off..off + len` (whole pages), by this thread, in
    /// a write window. Returns `false` if there is none.
    ///
    /// # Panics
    /// If the range is not inside the pool.
    #[must_use]
    pub fn back(&self, off: u64, len: u64) -> bool {
        assert!(off + len <= self.len(), "inside the pool");
        self.mapping.populate(off as usize, len as usize)
    }

    /// The pool's path; `None` for private memory.
    pub fn path(&self) -> Option<&Path> {
        self.path.as_deref()
    }

    /// Length of the pool, bytes.
    #[inline(always)]
    #[expect(clippy::len_without_is_empty, reason = "a pool is never empty")]
    pub fn len(&self) -> u64 {
        match &self.growth {
            None => self.len,
            Some(growth) => growth.len(),
        }
    }

    /// The greatest length that the pool can grow to, bytes.
    pub fn room(&self) -> u64 {
        self.bound
    }

    /// The addresses of the mapping.
    #[must_use]
    pub fn addresses(&self) -> std::ops::Range<u64> {
        let start = self.range(0, 1).addr() as u64;
        start..start + self.len()
    }

    /// The medium of the pool.
    pub fn medium(&self) -> &Medium {
        &self.medium
    }

    /// Returns whether the start of the pool is mapped with pages of 2 MiB or more. `false` also
    /// where the kernel can't tell (before 6.7).
    pub fn has_huge_pages(&self) -> bool {
        // The page must be mapped before its size can be read.
        self.copy_out(0, &mut [0; 8]).is_ok() && is_huge(self.base, self.len() as usize)
    }

    /// The file's identity.
    pub fn identity(&self) -> Identity {
        self.identity
    }

    /// The offset at which a load, a store or an msync first met a failure of the medium. That page
    /// now holds zeros of this process: nothing read from the mapping is valid any more.
    #[inline]
    pub fn failed(&self) -> Option<u64> {
        self.node.and_then(Node::failed)
    }

    /// Returns whether a store met a failure of the medium and was lost. Stores to a page that had
    /// failed before do not count.
    pub fn lost_store(&self) -> bool {
        self.node.is_some_and(Node::lost)
    }

    /// Returns whether there is a word at `off`. One rotation puts the low three bits on top, so
    /// that one comparison refuses a misaligned offset and one past the end.
    #[inline(always)]
    fn may_have_word(&self, off: u64) -> bool {
        off.rotate_right(3) < self.words
    }

    /// Returns whether there is a word at `off`, which may have any value.
    #[inline(always)]
    pub(crate) fn has_word(&self, off: u64) -> bool {
        off.rotate_right(3) < self.words_at_first || self.has_more_words(off)
    }

    #[cold]
    #[inline(never)]
    fn has_more_words(&self, off: u64) -> bool {
        self.growth.is_some() && off.rotate_right(3) < self.len() / 8
    }

    /// Returns whether bytes inside the bound are behind the end of a mapping that grows. Only
    /// builds with debug assertions ask; in others the access itself ends the process.
    #[inline(always)]
    fn is_behind(&self, off: u64, len: u64) -> bool {
        cfg!(debug_assertions) && self.growth.is_some() && off + len > self.len()
    }

    #[inline(always)]
    pub(crate) fn word(&self, off: u64) -> *mut u64 {
        if !self.may_have_word(off) || self.is_behind(off, 8) {
            self.refuse(off, 8);
        }
        self.base.wrapping_add(off as usize).cast()
    }

    /// The 16-byte pair at `off`, checked as in `word`.
    #[inline(always)]
    pub(crate) fn pair(&self, off: u64) -> *mut u64 {
        if off.rotate_right(4) >= self.words / 2 || self.is_behind(off, 16) {
            self.refuse(off, 16);
        }
        self.base.wrapping_add(off as usize).cast()
    }

    /// `len` bytes from `off` on, any alignment.
    #[inline(always)]
    pub(crate) fn range(&self, off: u64, len: u64) -> *mut u8 {
        let is_inside = off.checked_add(len).is_some_and(|end| end <= self.bound);
        if !is_inside || self.is_behind(off, len) {
            self.refuse(off, len);
        }
        self.base.wrapping_add(off as usize)
    }

    #[inline(always)]
    pub(crate) fn word_range(&self, off: u64, words: usize) -> *mut u64 {
        let words = words as u64;
        if words > self.words
            || off.rotate_right(3) > self.words - words
            || self.is_behind(off, words * 8)
        {
            self.refuse(off, words.saturating_mul(8));
        }
        self.base.wrapping_add(off as usize).cast()
    }

    /// Panics because of an offset that only a fault of the program can produce.
    #[cold]
    #[inline(never)]
    fn refuse(&self, off: u64, len: u64) -> ! {
        panic!(
            "access of {len} bytes at offset {off:#x} is misaligned or outside the pool of {:#x} bytes",
            self.len()
        );
    }
}

impl Drop for Pmem {
    fn drop(&mut self) {
        if let Some(node) = self.node {
            landing::unregister(node);
        }
    }
}

impl fmt::Debug for Pmem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pmem")
            .field("path", &self.path)
            .field("len", &self.len())
            .field("medium", &self.medium)
            .field("protection", &self.protection())
            .field("identity", &self.identity)
            .field("failed", &self.failed())
            .finish_non_exhaustive()
    }
}
