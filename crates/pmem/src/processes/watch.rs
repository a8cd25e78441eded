//! The pages of a mapping that were stored to, as Linux 6.7 and later notes them (userfaultfd with
//! asynchronous write protection, and PAGEMAP_SCAN). There is no signal and no message, and system
//! calls of the program behave as before: the first store to a page costs a fault, in which the
//! kernel removes the protection.
//!
//! A large page that is watched is mapped as 4 KiB pages from then on.
//!
//! The state of pages that are not watched is unknown: after munmap, mremap, a mapping over the
//! watched one, or fork, [`Watch::take`] returns an error.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::process;

use crate::pagemap::{self, Region, Scan};
use crate::processes::slots;

const PAGE: usize = 4096;

/// Definitions of linux/userfaultfd.h, and of linux/fs.h for [`Scan`].
mod abi {
    pub const USER_MODE_ONLY: libc::c_int = 1;
    pub const API: u64 = 0xaa;
    pub const WP_ASYNC: u64 = 1 << 15;
    pub const REGISTER_WP: u64 = 1 << 1;
    pub const WRITEPROTECT: u64 = 1;
    pub const SCAN_PROTECTS: u64 = 1 << 0;
    pub const SCAN_WATCHED_ONLY: u64 = 1 << 1;
    pub const IS_WRITTEN: u64 = 1 << 1;

    const fn request(direction: u64, kind: u64, number: u64, bytes: usize) -> u64 {
        direction << 30 | (bytes as u64) << 16 | kind << 8 | number
    }
    const READ: u64 = 2;
    const BOTH: u64 = 3;
    pub const UFFDIO_API: u64 = request(BOTH, 0xaa, 0x3f, size_of::<Api>());
    pub const UFFDIO_REGISTER: u64 = request(BOTH, 0xaa, 0, size_of::<Register>());
    pub const UFFDIO_UNREGISTER: u64 = request(READ, 0xaa, 1, size_of::<Range>());
    pub const UFFDIO_WRITEPROTECT: u64 = request(BOTH, 0xaa, 6, size_of::<Protect>());

    #[repr(C)]
    pub struct Api {
        pub api: u64,
        pub features: u64,
        pub ioctls: u64,
    }

    #[repr(C)]
    pub struct Range {
        pub start: u64,
        pub len: u64,
    }

    #[repr(C)]
    pub struct Register {
        pub range: Range,
        pub mode: u64,
        pub ioctls: u64,
    }

    #[repr(C)]
    pub struct Protect {
        pub range: Range,
        pub mode: u64,
    }
}

/// Addresses `start..end`, whole pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stored {
    /// The first address.
    pub start: usize,
    /// The address after the last byte.
    pub end: usize,
}

/// The pages that this process watches. Dropping it ends the watching; a forked child has no part
/// in it.
#[derive(Debug)]
pub struct Watch {
    descriptor: OwnedFd,
    /// /proc/self/pagemap.
    pages: OwnedFd,
    /// The process that began. In a child's copy the kernel would take the addresses as the
    /// parent's.
    process: u32,
}

impl Watch {
    /// # Errors
    /// The kernel has no such feature, or does not allow it to this process.
    pub fn new() -> io::Result<Watch> {
        let flags = libc::O_CLOEXEC | libc::O_NONBLOCK | abi::USER_MODE_ONLY;
        // SAFETY: a new descriptor, which nobody else has.
        let made = unsafe { libc::syscall(libc::SYS_userfaultfd, flags) };
        if made < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: as above.
        let descriptor = slots::keep(unsafe { OwnedFd::from_raw_fd(made as i32) });
        let mut api = abi::Api {
            api: abi::API,
            features: abi::WP_ASYNC,
            ioctls: 0,
        };
        // SAFETY: the request's own structure.
        unsafe { ask(&descriptor, abi::UFFDIO_API, &mut api) }?;
        let pages = slots::keep(pagemap::open()?.into());
        Ok(Watch {
            descriptor,
            pages,
            process: process::id(),
        })
    }

    /// Returns whether `number` is one of its descriptors.
    #[must_use]
    pub fn has(&self, number: i32) -> bool {
        [&self.descriptor, &self.pages]
            .map(AsRawFd::as_raw_fd)
            .contains(&number)
    }

    /// Returns whether this process made it, and not the parent that forked this process.
    #[must_use]
    pub fn is_own(&self) -> bool {
        process::id() == self.process
    }

    fn own(&self) -> io::Result<&OwnedFd> {
        match self.is_own() {
            true => Ok(&self.descriptor),
            false => Err(io::ErrorKind::PermissionDenied.into()),
        }
    }

    /// Notes stores to these addresses from now on.
    ///
    /// # Errors
    /// The kernel refuses; some of the addresses may then be watched and others not.
    pub fn begin(&self, at: usize, len: usize) -> io::Result<()> {
        let mut register = abi::Register {
            range: range(at, len),
            mode: abi::REGISTER_WP,
            ioctls: 0,
        };
        let mut protect = abi::Protect {
            range: range(at, len),
            mode: abi::WRITEPROTECT,
        };
        // SAFETY: the requests' own structures. No byte at the addresses changes, and threads that
        // may store there still may.
        unsafe {
            ask(self.own()?, abi::UFFDIO_REGISTER, &mut register)?;
            ask(&self.descriptor, abi::UFFDIO_WRITEPROTECT, &mut protect)
        }
    }

    /// Ends the watching of these addresses.
    ///
    /// # Errors
    /// They were not watched.
    pub fn end(&self, at: usize, len: usize) -> io::Result<()> {
        let mut range = range(at, len);
        // SAFETY: the request's own structure.
        unsafe { ask(self.own()?, abi::UFFDIO_UNREGISTER, &mut range) }
    }

    /// Returns the ranges stored to since watching began, or since the last call, and begins anew.
    ///
    /// # Errors
    /// A part of the range is not watched. Its state is unknown, and watching has to begin anew.
    pub fn take(&self, at: usize, len: usize) -> io::Result<Vec<Stored>> {
        const REGIONS: usize = 128;
        self.own()?;
        let mut regions = [Region::default(); REGIONS];
        let mut stored: Vec<Stored> = Vec::new();
        let mut scan = Scan {
            flags: abi::SCAN_PROTECTS | abi::SCAN_WATCHED_ONLY,
            start: at as u64,
            end: (at + len).next_multiple_of(PAGE) as u64,
            category_mask: abi::IS_WRITTEN,
            return_mask: abi::IS_WRITTEN,
            ..Scan::default()
        };
        while scan.start < scan.end {
            for region in scan.run(&self.pages, &mut regions)? {
                let (start, end) = (region.start as usize, region.end as usize);
                match stored.last_mut() {
                    Some(last) if last.end == start => last.end = end,
                    _ => stored.push(Stored { start, end }),
                }
            }
            if scan.walk_end <= scan.start {
                return Err(io::ErrorKind::Other.into());
            }
            scan.start = scan.walk_end;
        }
        Ok(stored)
    }
}

fn range(at: usize, len: usize) -> abi::Range {
    abi::Range {
        start: at as u64,
        len: len.next_multiple_of(PAGE) as u64,
    }
}

/// # Safety
/// A request and the structure that belongs to it.
unsafe fn ask<T>(file: &impl AsRawFd, request: u64, with: &mut T) -> io::Result<()> {
    // SAFETY: the caller's promise.
    match unsafe { libc::ioctl(file.as_raw_fd(), request, std::ptr::from_mut(with)) } {
        ..0 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}
