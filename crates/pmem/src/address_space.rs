//! Address space: a mapping at an aligned address, unmapped on drop. A mapping that can grow
//! reserves the addresses behind it.

use std::io;
use std::ops::Range;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::{null_mut, with_exposed_provenance_mut};
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::pagemap::{self, Region, Scan};

/// The alignment that lets the kernel map 2 MiB pages.
pub(crate) const HUGE: usize = 2 << 20;

const PAGE: usize = 4096;

/// Flags of reserved addresses.
const RESERVED: libc::c_int = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;

/// An owned range of address space.
#[derive(Debug)]
pub(crate) struct Mapping {
    base: *mut u8,
    /// Bytes mapped; they may increase.
    len: AtomicUsize,
    /// Bytes owned. Addresses behind `len` can't be accessed.
    room: usize,
}

// SAFETY: a Mapping is an address range, owned; nothing in it belongs to a thread.
unsafe impl Send for Mapping {}
// SAFETY: as above; what changes through `&self` is atomic, and nothing that is mapped moves.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps `len` bytes of `file` from its start (no file: zeroed memory of
    /// this process), at a multiple of `align`, a power of two.
    pub(crate) fn new(
        file: Option<BorrowedFd<'_>>,
        len: usize,
        align: usize,
        protection: libc::c_int,
        flags: libc::c_int,
    ) -> io::Result<Mapping> {
        let align = align.max(PAGE);
        let len = whole(len, PAGE)?;
        // The address of the kernel's choice is usually aligned to the file's pages.
        let there = Mapping::anywhere(file, 0, len, protection, flags)?;
        if there.base.addr().is_multiple_of(align) {
            return Ok(there);
        }
        drop(there);
        Mapping::with_room(file, len, len, align, protection, flags)
    }

    /// Maps as [`Mapping::new`] does, in at least `room` bytes of address space, into which the
    /// mapping may grow ([`Mapping::put`]).
    pub(crate) fn with_room(
        file: Option<BorrowedFd<'_>>,
        len: usize,
        room: usize,
        align: usize,
        protection: libc::c_int,
        flags: libc::c_int,
    ) -> io::Result<Mapping> {
        let len = whole(len, PAGE)?;
        let mapping = Mapping::reserved(whole(room.max(len), PAGE)?, align.max(PAGE), 0)?;
        mapping.put(file, 0..len, protection, flags)?;
        mapping.len.store(len, Ordering::Release);
        Ok(mapping)
    }

    /// Maps these bytes of `file` (no file: zeroed memory) at their place in this range, over the
    /// previous mapping. The bytes are whole pages of the medium. [`Mapping::len`] stays the same.
    /// After a failure the bytes can't be accessed.
    pub(crate) fn put(
        &self,
        file: Option<BorrowedFd<'_>>,
        bytes: Range<usize>,
        protection: libc::c_int,
        flags: libc::c_int,
    ) -> io::Result<()> {
        if bytes.end > self.room || bytes.start > bytes.end {
            return Err(io::Error::from_raw_os_error(libc::ENOMEM));
        }
        let (len, off) = (bytes.len(), bytes.start);
        // A refusal here costs no address of the range.
        drop(Mapping::anywhere(file, off, len, protection, flags)?);
        let at = self.base.wrapping_add(off);
        // SAFETY: inside of the range, which is ours; no reference into it exists.
        let mapped = unsafe { map(at, file, off, len, protection, flags | libc::MAP_FIXED) };
        mapped.map(drop).inspect_err(|_| reserve_again(at, len))
    }

    /// Maps at an address of the kernel's choice.
    fn anywhere(
        file: Option<BorrowedFd<'_>>,
        off: usize,
        len: usize,
        protection: libc::c_int,
        flags: libc::c_int,
    ) -> io::Result<Mapping> {
        // SAFETY: a new mapping.
        let start = unsafe { map(null_mut(), file, off, len, protection, flags) }?;
        // The fault handler knows addresses and no pointers, so the provenance is exposed.
        Ok(Mapping::of(start.expose_provenance(), len))
    }

    /// Reserves `len` addresses that can't be accessed. The start is `first` bytes before a
    /// multiple of `align`.
    pub(crate) fn reserved(len: usize, align: usize, first: usize) -> io::Result<Mapping> {
        let len = whole(len, PAGE)?;
        let room = len.checked_add(align).ok_or(io::ErrorKind::OutOfMemory)?;
        let start = Mapping::anywhere(None, 0, room, libc::PROT_NONE, RESERVED)?;
        let before = first.wrapping_sub(start.base.addr()) % align;
        let first = start.base.addr() + before;
        let all = start.base.addr()..start.base.addr() + room;
        std::mem::forget(start);
        for (end, bytes) in [(all.start, before), (first + len, all.end - first - len)] {
            if bytes > 0 {
                // SAFETY: the ends of the reservation just made, which nobody else knows of.
                unsafe { libc::munmap(with_exposed_provenance_mut(end), bytes) };
            }
        }
        Ok(Mapping::of(first, len))
    }

    /// An owned range of address space, by an address that was exposed.
    fn of(start: usize, len: usize) -> Mapping {
        Mapping {
            base: with_exposed_provenance_mut(start),
            len: AtomicUsize::new(len),
            room: len,
        }
    }

    /// First byte.
    pub(crate) fn base(&self) -> *mut u8 {
        self.base
    }

    /// Bytes mapped: whole pages.
    pub(crate) fn len(&self) -> usize {
        self.len.load(Ordering::Acquire)
    }

    /// Bytes of address space owned.
    pub(crate) fn room(&self) -> usize {
        self.room
    }

    /// Notes that `len` bytes from the start are mapped, after [`Mapping::put`].
    pub(crate) fn grown(&self, len: usize) {
        self.len.store(len, Ordering::Release);
    }

    /// Calls madvise(2) for all of it. Nothing depends on the advice, which the kernel may refuse.
    pub(crate) fn advise(&self, advice: libc::c_int) -> bool {
        // SAFETY: the range is ours, and the advice given in this crate
        // (MADV_HUGEPAGE, MADV_DONTDUMP, MADV_DONTFORK)
        // changes no byte of it.
        unsafe { libc::madvise(self.base.cast(), self.len(), advice) == 0 }
    }
}

impl Mapping {
    /// Gives the bytes `off..off + len`, whole pages, memory of the file. Returns `false` if there
    /// is none. Kernels before Linux 5.14 can't be asked: `true`.
    pub(crate) fn populate(&self, off: usize, len: usize) -> bool {
        let mapped = self.len();
        assert!(off <= mapped && len <= mapped - off, "inside");
        loop {
            let at = self.base.wrapping_add(off).cast();
            // SAFETY: inside the range, which is ours; the advice changes no byte of it.
            if unsafe { libc::madvise(at, len, libc::MADV_POPULATE_WRITE) } == 0 {
                return true;
            }
            match std::io::Error::last_os_error().raw_os_error() {
                Some(libc::EINTR | libc::EAGAIN) => {}
                errno => return errno == Some(libc::EINVAL),
            }
        }
    }
}

/// mmap(2); no file: zeroed memory.
///
/// # Safety
/// The rules of the call: with `MAP_FIXED` the addresses are the caller's.
unsafe fn map(
    at: *mut u8,
    file: Option<BorrowedFd<'_>>,
    off: usize,
    len: usize,
    protection: libc::c_int,
    flags: libc::c_int,
) -> io::Result<*mut u8> {
    let (fd, off) = file.map_or((-1, 0), |file| (file.as_raw_fd(), off));
    let off = libc::off_t::try_from(off).map_err(io::Error::other)?;
    // SAFETY: the caller's promise.
    match unsafe { libc::mmap(at.cast(), len, protection, flags, fd, off) } {
        libc::MAP_FAILED => Err(io::Error::last_os_error()),
        start => Ok(start.cast()),
    }
}

/// Reserves addresses again that a failed attempt to map may have freed.
#[cold]
fn reserve_again(at: *mut u8, len: usize) {
    let flags = RESERVED | libc::MAP_FIXED_NOREPLACE;
    // SAFETY: takes addresses that nobody has, or none.
    let taken = unsafe { map(at, None, 0, len, libc::PROT_NONE, flags) };
    if taken.is_ok_and(|taken| taken == at) {
        return;
    }
    // Another thread may have mapped something there, and offsets of the pool must not reach it.
    eprintln!("pmfs: address space that a pool was to grow into is lost");
    std::process::abort();
}

/// Rounds up to whole pages.
fn whole(len: usize, page: usize) -> io::Result<usize> {
    len.checked_next_multiple_of(page)
        .ok_or_else(|| io::Error::from_raw_os_error(libc::ENOMEM))
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the range is ours and nothing refers to it any more.
        unsafe { libc::munmap(self.base.cast(), self.room()) };
    }
}

/// Returns whether the first 2 MiB at `base` are mapped by one page-table entry (or more). `false`
/// where the kernel can't tell (before 6.7, or no /proc).
pub(crate) fn is_huge(base: *const u8, len: usize) -> bool {
    const PAGE_IS_HUGE: u64 = 1 << 6;
    if len < HUGE {
        return false;
    }
    let Ok(pages) = pagemap::open() else {
        return false;
    };
    let start = base.addr() as u64;
    let mut scan = Scan {
        start,
        end: start + HUGE as u64,
        category_mask: PAGE_IS_HUGE,
        return_mask: PAGE_IS_HUGE,
        ..Scan::default()
    };
    let is_whole = |found: &Region| found.start == start && found.end >= start + HUGE as u64;
    let mut region = [Region::default()];
    let found = scan.run(&pages, &mut region);
    found.is_ok_and(|found| found.first().is_some_and(is_whole))
}
