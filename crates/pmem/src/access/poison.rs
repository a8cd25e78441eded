//! Media errors on demand, for tests: a page of a mapping raises SIGBUS in this process, as a page
//! of memory with an uncorrectable error does (userfaultfd's UFFDIO_POISON, Linux 6.6).

use std::io;

use crate::Pmem;

/// include/uapi/linux/userfaultfd.h.
#[repr(C)]
struct Api {
    api: u64,
    features: u64,
    ioctls: u64,
}

#[repr(C)]
struct Register {
    start: u64,
    len: u64,
    mode: u64,
    ioctls: u64,
}

#[repr(C)]
struct Poison {
    start: u64,
    len: u64,
    mode: u64,
    updated: i64,
}

const API: u64 = 0xaa;
const FEATURE_POISON: u64 = 1 << 14;
const MODE_MISSING: u64 = 1;
const USER_MODE_ONLY: libc::c_int = 1;
/// _IOWR(0xaa, 0x3f, 24 bytes), _IOWR(0xaa, 0x00, 32), _IOWR(0xaa, 0x08, 32).
const UFFDIO_API: libc::c_ulong = 0xc018_aa3f;
const UFFDIO_REGISTER: libc::c_ulong = 0xc020_aa00;
const UFFDIO_POISON: libc::c_ulong = 0xc020_aa08;

impl Pmem {
    /// Lets each later access of this process to the page at `off` meet a media error.
    ///
    /// # Errors
    /// The kernel is older than 6.6, or forbids userfaultfd.
    pub fn poison(&self, off: u64) -> io::Result<()> {
        let page = self.range(off & !4095, 4096);
        let start = page.addr() as u64;
        // SAFETY: no memory is involved.
        let fd = unsafe { libc::syscall(libc::SYS_userfaultfd, libc::O_CLOEXEC | USER_MODE_ONLY) };
        let Ok(fd) = libc::c_int::try_from(fd) else {
            return Err(io::Error::last_os_error());
        };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        let mut api = Api {
            api: API,
            features: FEATURE_POISON,
            ioctls: 0,
        };
        let mut register = Register {
            start,
            len: 4096,
            mode: MODE_MISSING,
            ioctls: 0,
        };
        let mut poison = Poison {
            start,
            len: 4096,
            mode: 0,
            updated: 0,
        };
        // SAFETY: the structures have the shapes of the calls. Only this process's view of the page
        // changes: an access to it is SIGBUS, which `landing` expects of any page of a mapping. The
        // descriptor stays open, and so do registration and error.
        let done = unsafe {
            libc::ioctl(fd, UFFDIO_API, &raw mut api) == 0
                && libc::ioctl(fd, UFFDIO_REGISTER, &raw mut register) == 0
                && libc::madvise(page.cast(), 4096, libc::MADV_DONTNEED) == 0
                && libc::ioctl(fd, UFFDIO_POISON, &raw mut poison) == 0
        };
        if done {
            Ok(())
        } else {
            Err(io::Error::last_os_error())
        }
    }
}
