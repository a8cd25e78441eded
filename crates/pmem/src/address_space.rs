//! Address space: a mapping at an aligned address, unmapped on drop.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::null_mut;

/// The alignment that lets the kernel map 2 MiB pages.
pub(crate) const HUGE: usize = 2 << 20;

/// A range of address space that is ours.
#[derive(Debug)]
pub(crate) struct Mapping {
    base: *mut u8,
    len: usize,
}

// SAFETY: a Mapping is an address range, owned; nothing in it belongs to a thread.
unsafe impl Send for Mapping {}
// SAFETY: as above; no method changes it through `&self`.
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
        let align = align.max(4096);
        let len = len
            .checked_next_multiple_of(4096)
            .ok_or_else(|| io::Error::from_raw_os_error(libc::ENOMEM))?;
        // Mostly the kernel knows what the file's pages want.
        let there = Mapping::anywhere(file, len, protection, flags)?;
        if there.base.addr().is_multiple_of(align) {
            return Ok(there);
        }
        drop(there);
        let room = len
            .checked_add(align)
            .ok_or_else(|| io::Error::from_raw_os_error(libc::ENOMEM))?;
        // SAFETY: a new reservation at an address of the kernel's choice.
        let start = unsafe {
            libc::mmap(
                null_mut(),
                room,
                libc::PROT_NONE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
                -1,
                0,
            )
        };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let start = start.cast::<u8>();
        let before = start.addr().next_multiple_of(align) - start.addr();
        let after = room - before - len;
        let base = start.wrapping_add(before);
        let fd = file.map_or(-1, |f| f.as_raw_fd());
        // SAFETY: base..base+len lies in the reservation just made, which
        // nobody else knows of; so do the two ends that are given back.
        unsafe {
            let mapped = libc::mmap(base.cast(), len, protection, flags | libc::MAP_FIXED, fd, 0);
            if mapped == libc::MAP_FAILED {
                // The attempt has taken the middle out of the reservation, and another thread may
                // have mapped something there since: only the ends are still ours.
                let error = io::Error::last_os_error();
                for (end, len) in [(start, before), (base.wrapping_add(len), after)] {
                    if len > 0 {
                        libc::munmap(end.cast(), len);
                    }
                }
                return Err(error);
            }
            if before > 0 {
                libc::munmap(start.cast(), before);
            }
            if after > 0 {
                libc::munmap(base.wrapping_add(len).cast(), after);
            }
        }
        // Handed to the fault handler, which knows addresses, not pointers.
        let _ = base.expose_provenance();
        Ok(Mapping { base, len })
    }

    /// At an address of the kernel's choice.
    fn anywhere(
        file: Option<BorrowedFd<'_>>,
        len: usize,
        protection: libc::c_int,
        flags: libc::c_int,
    ) -> io::Result<Mapping> {
        let fd = file.map_or(-1, |f| f.as_raw_fd());
        // SAFETY: a new mapping.
        let start = unsafe { libc::mmap(null_mut(), len, protection, flags, fd, 0) };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let base = start.cast::<u8>();
        let _ = base.expose_provenance();
        Ok(Mapping { base, len })
    }

    /// Takes over a range of address space.
    ///
    /// # Safety
    /// It is nobody else's.
    pub(crate) unsafe fn of(base: *mut u8, len: usize) -> Mapping {
        Mapping { base, len }
    }

    /// First byte.
    pub(crate) fn base(&self) -> *mut u8 {
        self.base
    }

    /// Bytes mapped: whole pages.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// madvise(2) over all of it. Advice may be refused: nothing depends on it.
    pub(crate) fn advise(&self, advice: libc::c_int) -> bool {
        // SAFETY: the range is ours, and the advice given in this crate
        // (MADV_HUGEPAGE, MADV_DONTDUMP, MADV_DONTFORK)
        // changes no byte of it.
        unsafe { libc::madvise(self.base.cast(), self.len, advice) == 0 }
    }
}

impl Mapping {
    /// Gives the bytes `off..off + len`, of whole pages, memory of the file's. `false`: there is
    /// none to be had. An older kernel (before Linux 5.14) can't be asked: `true`.
    pub(crate) fn populate(&self, off: usize, len: usize) -> bool {
        assert!(off <= self.len && len <= self.len - off, "inside");
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

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the range is ours and nothing refers to it any more.
        unsafe { libc::munmap(self.base.cast(), self.len) };
    }
}

/// Returns whether the first 2 MiB at `base` are mapped by one page-table entry (or more). `false`
/// where the kernel can't tell (before 6.7, or no /proc).
pub(crate) fn is_huge(base: *const u8, len: usize) -> bool {
    // include/uapi/linux/fs.h: struct pm_scan_arg, struct page_region.
    #[repr(C)]
    struct ScanArg {
        size: u64,
        flags: u64,
        start: u64,
        end: u64,
        walk_end: u64,
        vec: u64,
        vec_len: u64,
        max_pages: u64,
        category_inverted: u64,
        category_mask: u64,
        category_anyof_mask: u64,
        return_mask: u64,
    }
    #[repr(C)]
    #[derive(Default)]
    struct Region {
        start: u64,
        end: u64,
        categories: u64,
    }
    const PAGEMAP_SCAN: libc::c_ulong = 0xc060_6610; // _IOWR('f', 16, 96 bytes)
    const PAGE_IS_HUGE: u64 = 1 << 6;
    if len < HUGE {
        return false;
    }
    let Ok(pagemap) = std::fs::File::open("/proc/self/pagemap") else {
        return false;
    };
    let mut region = Region::default();
    let start = base.addr() as u64;
    let mut arg = ScanArg {
        size: size_of::<ScanArg>() as u64,
        flags: 0,
        start,
        end: start + HUGE as u64,
        walk_end: 0,
        vec: (&raw mut region).addr() as u64,
        vec_len: 1,
        max_pages: 0,
        category_inverted: 0,
        category_mask: PAGE_IS_HUGE,
        category_anyof_mask: 0,
        return_mask: PAGE_IS_HUGE,
    };
    // SAFETY: the argument has the size it says, `vec` points to one region,
    // and the kernel writes to these two alone.
    let regions = unsafe { libc::ioctl(pagemap.as_raw_fd(), PAGEMAP_SCAN, &mut arg) };
    regions == 1 && region.start == start && region.end >= start + HUGE as u64
}
