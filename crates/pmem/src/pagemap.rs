//! The kernel's account of this process's pages: the request PAGEMAP_SCAN to /proc/self/pagemap
//! (Linux 6.7, include/uapi/linux/fs.h).

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

/// `_IOWR('f', 16, struct pm_scan_arg)`, of 96 bytes.
const PAGEMAP_SCAN: libc::c_ulong = 0xc060_6610;
const _: () = assert!(size_of::<Scan>() == 96);

/// `struct pm_scan_arg`: the addresses to look at, and the properties to look for.
#[repr(C)]
#[derive(Default)]
pub(crate) struct Scan {
    pub size: u64,
    pub flags: u64,
    pub start: u64,
    pub end: u64,
    /// Where the kernel stopped.
    pub walk_end: u64,
    pub vec: u64,
    pub vec_len: u64,
    pub max_pages: u64,
    pub category_inverted: u64,
    pub category_mask: u64,
    pub category_anyof_mask: u64,
    pub return_mask: u64,
}

/// `struct page_region`: addresses `start..end` of pages that are alike.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(crate) struct Region {
    pub start: u64,
    pub end: u64,
    categories: u64,
}

pub(crate) fn open() -> io::Result<File> {
    File::open("/proc/self/pagemap")
}

impl Scan {
    /// Fills `regions` from the start on, and returns how many there are.
    ///
    /// # Errors
    /// The kernel's; `ENOTTY` where it has no such request.
    pub fn run<'a>(
        &mut self,
        pages: &impl AsRawFd,
        regions: &'a mut [Region],
    ) -> io::Result<&'a [Region]> {
        self.size = size_of::<Scan>() as u64;
        self.vec = regions.as_mut_ptr().expose_provenance() as u64;
        self.vec_len = regions.len() as u64;
        // SAFETY: the argument has the size it says, `vec` points to as many regions as it says,
        // and the kernel writes to these two alone.
        let answer = unsafe { libc::ioctl(pages.as_raw_fd(), PAGEMAP_SCAN, &raw mut *self) };
        let count = usize::try_from(answer).map_err(|_| io::Error::last_os_error())?;
        // The kernel has stored to the regions by their address.
        Ok(&std::hint::black_box(regions)[..count])
    }
}
