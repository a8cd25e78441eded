//! A thread's user, groups and capabilities for files, from the kernel.

use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

use pmfs_posix::Subject;

use crate::own::kernel;

/// A process's credentials, as far as files are concerned.
#[derive(Clone, Debug, Default)]
pub(crate) struct Credentials {
    pub uid: u32,
    pub gid: u32,
    groups: Vec<u32>,
    capabilities: u64,
}

/// The known credentials of a thread, in its room: the kernel has them for each thread, and only
/// libc makes them equal in a process.
pub(crate) struct Known {
    /// A box. A guest (`vfork.rs`) leaks those that it reads, because it could be killed while it
    /// frees one.
    pub all: AtomicPtr<Credentials>,
    /// The previous credentials, which are freed when the next ones are replaced.
    before: AtomicPtr<Credentials>,
    /// Set if nothing is denied: the common case of root, kept apart so that walks need not check.
    pub all_may: AtomicBool,
}

impl Known {
    /// Forgets credentials that may have changed. In a guest the previous ones stay.
    pub fn forget(&self, is_guest: bool) {
        self.all_may.store(false, Ordering::Relaxed);
        let all = self.all.swap(std::ptr::null_mut(), Ordering::AcqRel);
        if all.is_null() {
            return;
        }
        let before = self.before.swap(all, Ordering::AcqRel);
        if !before.is_null() && !is_guest {
            // SAFETY: a box that this thread alone knew, and by nothing but this word.
            drop(unsafe { Box::from_raw(before) });
        }
    }
}

/// The header and data of capget(2), version 3.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct CapabilityHeader {
    version: u32,
    thread: u32,
}

/// This thread's capabilities in the kernel: effective, permitted, inheritable, the lower half
/// first.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Capabilities([[u32; 3]; 2]);

impl Capabilities {
    pub fn get() -> Capabilities {
        let mut data = [[0u32; 3]; 2];
        Capabilities::call(libc::SYS_capget, data.as_mut_ptr().expose_provenance());
        Capabilities(std::hint::black_box(data))
    }

    pub fn set(&self) {
        Capabilities::call(libc::SYS_capset, self.0.as_ptr().expose_provenance());
    }

    fn call(number: i64, data: usize) {
        let mut header = CapabilityHeader {
            version: 0x2008_0522,
            thread: 0,
        };
        let at = (&raw mut header).expose_provenance() as u64;
        // SAFETY: the kernel reads the header, and reads or fills two triples of numbers.
        unsafe { kernel::call(number, [at, data as u64, 0, 0, 0, 0]) };
    }

    fn effective(&self) -> u64 {
        u64::from(self.0[0][0]) | u64::from(self.0[1][0]) << 32
    }
}

impl Credentials {
    /// Reads this thread's credentials from the kernel.
    pub fn ask() -> Credentials {
        let id = |call, nobody: u64| kernel::plain(call, &[nobody]) as u32;
        let get = |count: u64, at: u64| {
            // SAFETY: the kernel fills at most so many numbers.
            unsafe { kernel::call(libc::SYS_getgroups, [count, at, 0, 0, 0, 0]) }.max(0) as usize
        };
        let mut groups = vec![0u32; get(0, 0)];
        let count = get(
            groups.len() as u64,
            groups.as_mut_ptr().expose_provenance() as u64,
        );
        groups.truncate(count);
        Credentials {
            uid: id(libc::SYS_setfsuid, u64::from(u32::MAX)),
            gid: id(libc::SYS_setfsgid, u64::from(u32::MAX)),
            groups,
            capabilities: Capabilities::get().effective(),
        }
    }

    pub fn has(&self, capability: u32) -> bool {
        self.capabilities >> capability & 1 != 0
    }

    pub fn is_in(&self, gid: u32) -> bool {
        self.gid == gid || self.groups.contains(&gid)
    }
}

impl Subject for Credentials {
    fn user(&self) -> u32 {
        self.uid
    }

    fn is_in(&self, group: u32) -> bool {
        Credentials::is_in(self, group)
    }

    fn has(&self, capability: u32) -> bool {
        Credentials::has(self, capability)
    }
}
