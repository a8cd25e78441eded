//! Address space reserved behind a mapping, into which it may grow.

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::address_space::Mapping;

/// The access with which bytes are mapped.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Access {
    pub protection: libc::c_int,
    pub flags: libc::c_int,
    /// Advice for the kernel (madvise(2)).
    pub advice: &'static [libc::c_int],
}

impl Access {
    pub(crate) fn advise(self, mapping: &Mapping) {
        for advice in self.advice {
            mapping.advise(*advice);
        }
    }
}

/// The growth of a mapping.
#[derive(Debug)]
pub(crate) struct Growth {
    pub access: Access,
    /// Held while more bytes are mapped.
    pub one_at_a_time: Mutex<()>,
    /// Bytes of the pool that are mapped. The length never decreases.
    len: AtomicU64,
}

impl Growth {
    #[inline]
    pub(crate) fn len(&self) -> u64 {
        self.len.load(Ordering::Acquire)
    }

    /// Publishes that `len` bytes are mapped: a thread that reads the length may use them.
    pub(crate) fn admit(&self, len: u64) {
        self.len.fetch_max(len, Ordering::Release);
    }
}

/// Maps `len` bytes and reserves address space for `room`, if that is more. The limit of the
/// process (setrlimit(2), RLIMIT_AS) may leave less.
pub(crate) fn map(
    file: Option<BorrowedFd<'_>>,
    len: u64,
    room: u64,
    align: usize,
    access: Access,
) -> io::Result<(Mapping, Option<Box<Growth>>)> {
    let Access {
        protection, flags, ..
    } = access;
    let len = usize::try_from(len).map_err(io::Error::other)?;
    let mut room = usize::try_from(room.min(half_of_limit())).map_err(io::Error::other)?;
    while room > len {
        match Mapping::with_room(file, len, room, align, protection, flags) {
            Ok(mapping) => {
                access.advise(&mapping);
                let growth = Growth {
                    access,
                    one_at_a_time: Mutex::new(()),
                    len: AtomicU64::new(len as u64),
                };
                return Ok((mapping, Some(Box::new(growth))));
            }
            Err(error) if error.raw_os_error() == Some(libc::ENOMEM) => room /= 2,
            Err(error) => return Err(error),
        }
    }
    let mapping = Mapping::new(file, len, align, protection, flags)?;
    access.advise(&mapping);
    Ok((mapping, None))
}

/// Half of the address space that the process may have, bytes; the rest of the process needs the
/// other half.
fn half_of_limit() -> u64 {
    let mut limit = libc::rlimit {
        rlim_cur: libc::RLIM_INFINITY,
        rlim_max: libc::RLIM_INFINITY,
    };
    // SAFETY: fills the struct that it is given. A refusal leaves "no limit" in it.
    unsafe { libc::getrlimit(libc::RLIMIT_AS, &mut limit) };
    match limit.rlim_cur {
        libc::RLIM_INFINITY => u64::MAX,
        bytes => bytes / 2,
    }
}
