//! The backend `pages`: which pages of a mapping were written, without threads and without bytes.
//!
//! A process asks for it by [`TrackedPages`]: its mapping is registered with a userfaultfd in the
//! asynchronous mode, in which the kernel itself lifts the protection of a page at its first store
//! and sends no event. A reader of the process's `pagemap` then takes the written pages and
//! protects them again, in one step ([`WrittenPages::take`]). Linux has both since 6.7.
//!
//! Pages that one monitor has taken another does not see. Calls like write(2) on the file go past
//! the mapping and are not seen.

use std::fs::File;
use std::io::{self, ErrorKind};
use std::mem::size_of;
use std::ops::Range;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::FileExt;

use libc::{c_ulong, c_void};
use pmmon::Lacking;
use rustix::mm::{UserfaultfdFlags, userfaultfd};

/// Bytes of a page as the kernel's tables of pages count.
pub const PAGE: u64 = 4096;
const NAME: &str = "pages";
/// Ranges that one request takes.
const RANGES: usize = 512;

// linux/userfaultfd.h
const UFFD_API: u64 = 0xaa;
const UFFD_USER_MODE_ONLY: u32 = 1;
/// Pages of shared memory, pages that are not there yet, and no events.
const UFFD_FEATURES: u64 = 1 << 12 | 1 << 13 | 1 << 15;
const UFFD_MODE_WP: u64 = 1 << 1;
const UFFDIO_API: c_ulong = 0xc018_aa3f;
const UFFDIO_REGISTER: c_ulong = 0xc020_aa00;

// linux/fs.h
const PAGEMAP_SCAN: c_ulong = 0xc060_6610;
const PM_SCAN_WP_MATCHING: u64 = 1;
const PAGE_IS_WPALLOWED: u64 = 1;
const PAGE_IS_WRITTEN: u64 = 1 << 1;

/// `Documentation/admin-guide/mm/pagemap.rst`: written since the last `clear_refs`.
const SOFT_DIRTY: u64 = 1 << 55;

#[repr(C)]
struct Api {
    api: u64,
    features: u64,
    ioctls: u64,
}

#[repr(C)]
struct Register {
    start: u64,
    bytes: u64,
    mode: u64,
    ioctls: u64,
}

/// `struct page_region`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Found {
    start: u64,
    end: u64,
    categories: u64,
}

/// `struct pm_scan_arg`.
#[repr(C)]
#[derive(Default)]
struct Scan {
    size: u64,
    flags: u64,
    start: u64,
    end: u64,
    walk_end: u64,
    ranges: u64,
    ranges_len: u64,
    max_pages: u64,
    category_inverted: u64,
    category_mask: u64,
    category_anyof_mask: u64,
    return_mask: u64,
}

/// Pages of this process that a monitor may ask about, for as long as the value lives.
#[derive(Debug)]
pub struct TrackedPages {
    _registered: OwnedFd,
}

impl TrackedPages {
    /// Registers whole pages of this process. The first store to each page after a look takes one
    /// to two microseconds longer.
    ///
    /// # Errors
    /// The kernel has no such tracking, or refuses it.
    pub fn of(range: &Range<u64>) -> Result<Self, Lacking> {
        register(range).map_err(|error| lacking(&error))
    }
}

fn register(range: &Range<u64>) -> io::Result<TrackedPages> {
    let flags = UserfaultfdFlags::CLOEXEC | UserfaultfdFlags::from_bits_retain(UFFD_USER_MODE_ONLY);
    // SAFETY: a descriptor alone; ranges are registered in a mode in which the kernel resolves all
    // faults itself, so that no thread waits for a reader.
    let descriptor = unsafe { userfaultfd(flags) }?;
    let mut api = Api {
        api: UFFD_API,
        features: UFFD_FEATURES,
        ioctls: 0,
    };
    let mut asked = Register {
        start: range.start,
        bytes: range.end.saturating_sub(range.start),
        mode: UFFD_MODE_WP,
        ioctls: 0,
    };
    // SAFETY: both are the structures of their requests and live as long as the calls.
    unsafe {
        request(&descriptor, UFFDIO_API, &raw mut api)?;
        request(&descriptor, UFFDIO_REGISTER, &raw mut asked)?;
    }
    Ok(TrackedPages {
        _registered: descriptor,
    })
}

/// An ioctl whose argument the kernel reads and writes.
///
/// # Safety
/// `argument` is the request's structure, and its pointers are to memory that the kernel may
/// write.
unsafe fn request<T>(
    descriptor: &impl AsRawFd,
    number: c_ulong,
    argument: *mut T,
) -> io::Result<usize> {
    // SAFETY: as the caller says.
    let done = unsafe { libc::ioctl(descriptor.as_raw_fd(), number, argument.cast::<c_void>()) };
    usize::try_from(done).map_err(|_| io::Error::last_os_error())
}

/// The written pages of a process.
#[derive(Debug)]
pub struct WrittenPages {
    pagemap: File,
}

impl WrittenPages {
    /// A process whose pages are asked for.
    ///
    /// # Errors
    /// It is gone, or not one that this user may look at.
    pub fn open(pid: u32) -> io::Result<Self> {
        let pagemap = File::open(format!("/proc/{pid}/pagemap"))?;
        Ok(Self { pagemap })
    }

    /// Tells whether the process has asked for it in a part of a range.
    ///
    /// # Errors
    /// The process is gone, or the kernel does not tell.
    pub fn are_tracked(&self, range: &Range<u64>) -> io::Result<bool> {
        let mut scan = scan(range);
        scan.category_mask = PAGE_IS_WPALLOWED;
        scan.return_mask = PAGE_IS_WPALLOWED;
        scan.max_pages = 1;
        let mut found = [Found::default()];
        Ok(self.ask(&mut scan, &mut found)? > 0)
    }

    /// Pages of a range that were written since the last call, as ranges of addresses in order. The
    /// first call has all that were never protected, and so tells nothing.
    ///
    /// # Errors
    /// The process is gone, or the kernel does not tell.
    pub fn take(&self, range: &Range<u64>) -> io::Result<Vec<Range<u64>>> {
        let mut written = Vec::new();
        let mut scan = scan(range);
        scan.flags = PM_SCAN_WP_MATCHING;
        scan.category_mask = PAGE_IS_WPALLOWED | PAGE_IS_WRITTEN;
        scan.return_mask = PAGE_IS_WRITTEN;
        let mut found = [Found::default(); RANGES];
        while scan.start < range.end {
            let count = self.ask(&mut scan, &mut found)?;
            let ranges = found.iter().take(count);
            written.extend(ranges.map(|one| one.start..one.end));
            // The kernel's walk goes on.
            if scan.walk_end <= scan.start {
                return Err(io::Error::other("the kernel's walk does not go on"));
            }
            scan.start = scan.walk_end;
        }
        Ok(written)
    }

    fn ask(&self, scan: &mut Scan, found: &mut [Found]) -> io::Result<usize> {
        scan.ranges = found.as_mut_ptr() as u64;
        scan.ranges_len = found.len() as u64;
        // SAFETY: the structure is that of the request; `ranges` is the array of so many elements,
        // which the kernel fills and this function has alone.
        unsafe { request(&self.pagemap, PAGEMAP_SCAN, &raw mut *scan) }
    }
}

fn scan(range: &Range<u64>) -> Scan {
    Scan {
        size: size_of::<Scan>() as u64,
        start: range.start,
        end: range.end,
        ..Scan::default()
    }
}

/// Tries the backend on memory of this process.
///
/// # Errors
/// The kernel or the user lacks it.
pub fn probe_pages() -> Result<(), Lacking> {
    let memory = vec![0_u8; 2 * PAGE as usize];
    let start = (memory.as_ptr() as u64).next_multiple_of(PAGE);
    let range = start..start + PAGE;
    let tracked = register(&range);
    let looked = tracked.and_then(|tracked| {
        WrittenPages::open(std::process::id())?.take(&range)?;
        drop(tracked);
        Ok(())
    });
    looked.map_err(|error| lacking(&error))
}

/// Tells whether the kernel has soft-dirty bits of pages, which older ones have. A page that was
/// just made has its bit set, so that nothing needs to be cleared for a look.
///
/// # Errors
/// `/proc` is not there.
pub fn has_soft_dirty() -> io::Result<bool> {
    let memory = vec![1_u8; 2 * PAGE as usize];
    let page = std::hint::black_box(memory.as_ptr()) as u64 / PAGE;
    let mut entry = [0; 8];
    File::open("/proc/self/pagemap")?.read_exact_at(&mut entry, page * 8)?;
    Ok(u64::from_ne_bytes(entry) & SOFT_DIRTY != 0)
}

fn lacking(error: &io::Error) -> Lacking {
    let remedy = match error.raw_os_error() {
        Some(libc::EPERM) => "let no seccomp refuse userfaultfd, or take watch",
        Some(libc::ENOTTY | libc::EINVAL | libc::ENOSYS) => {
            "take Linux 6.7 or later with userfaultfd, or take watch"
        }
        _ => "take watch",
    };
    Lacking {
        backend: NAME,
        cause: error.to_string(),
        remedy,
        gone: error.kind() == ErrorKind::NotFound || error.raw_os_error() == Some(libc::ESRCH),
    }
}
