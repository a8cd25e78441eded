//! Who the program is, and what it may do: the kernel's rules for files, as the engine has none (DECISIONS 37).

use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

use libc::{EACCES, EPERM};
use pmfs::types::mode;
use pmfs::{Attr, Fs};

use crate::{kernel, thread};

/// What somebody wants to do with a file: the bits of a mode's last digit.
pub(crate) const READ: u32 = 4;
pub(crate) const WRITE: u32 = 2;
pub(crate) const EXECUTE: u32 = 1;

/// Capabilities, as capabilities(7) numbers them.
pub(crate) mod capability {
    pub const CHOWN: u32 = 0;
    pub const DAC_OVERRIDE: u32 = 1;
    pub const DAC_READ_SEARCH: u32 = 2;
    pub const FOWNER: u32 = 3;
    pub const FSETID: u32 = 4;
    pub const SYS_ADMIN: u32 = 21;
    pub const MKNOD: u32 = 27;
}

/// A process's credentials, as far as files are concerned.
#[derive(Clone, Debug, Default)]
pub(crate) struct Credentials {
    pub uid: u32,
    pub gid: u32,
    groups: Vec<u32>,
    capabilities: u64,
}

/// What is known of a thread's: the kernel has them by thread, and only libc makes them those of a process. In the thread's room.
pub(crate) struct Known {
    /// Leaked when it changes, which is rare: a child that shares this memory could be killed at any moment.
    all: AtomicPtr<Credentials>,
    /// Nothing is denied: the common case of root, kept apart so that a walk need not ask.
    all_may: AtomicBool,
}

impl Known {
    /// They may have changed.
    pub fn forget(&self) {
        self.all_may.store(false, Ordering::Relaxed);
        self.all.store(std::ptr::null_mut(), Ordering::Release);
    }
}

#[inline]
fn known() -> &'static Known {
    &thread::own_room().credentials
}

/// Those of this thread may have changed.
pub(crate) fn forget() {
    known().forget();
}

/// Does something with them.
pub(crate) fn with<T>(body: impl FnOnce(&Credentials) -> T) -> T {
    let known = known();
    // SAFETY: a leaked box, or nothing.
    if let Some(all) = unsafe { known.all.load(Ordering::Acquire).as_ref() } {
        return body(all);
    }
    let fresh = Box::leak(Box::new(Credentials::ask()));
    known
        .all_may
        .store(fresh.has(capability::DAC_OVERRIDE), Ordering::Relaxed);
    known.all.store(fresh, Ordering::Release);
    body(fresh)
}

/// Whether every directory may be searched.
#[inline]
pub(crate) fn searches_all() -> bool {
    known().all_may.load(Ordering::Relaxed)
        || with(|me| me.has(capability::DAC_OVERRIDE) || me.has(capability::DAC_READ_SEARCH))
}

/// Does something as another user is to the file systems, if this thread may be that one, and is itself again.
pub(crate) fn as_user<T>(uid: u64, body: impl FnOnce() -> T) -> T {
    let capabilities = Capabilities::get();
    let before = kernel::plain(libc::SYS_setfsuid, &[uid]) as u64;
    let answer = body();
    kernel::plain(libc::SYS_setfsuid, &[before]);
    // Between root and others the kernel takes and gives capabilities.
    if Capabilities::get() != capabilities {
        capabilities.set();
    }
    answer
}

/// The header and data of capget(2), version 3.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct CapabilityHeader {
    version: u32,
    thread: u32,
}

/// This thread's, as the kernel has them: effective, permitted, inheritable, the lower half first.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Capabilities([[u32; 3]; 2]);

impl Capabilities {
    fn get() -> Capabilities {
        let mut data = [[0u32; 3]; 2];
        Capabilities::call(libc::SYS_capget, data.as_mut_ptr().expose_provenance());
        Capabilities(std::hint::black_box(data))
    }

    fn set(&self) {
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
    fn ask() -> Credentials {
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

    pub fn owns(&self, attr: &Attr) -> bool {
        self.uid == attr.uid || self.has(capability::FOWNER)
    }

    /// Whether `want` is allowed; with an access ACL, by that.
    fn may(&self, fs: &Fs, attr: &Attr, want: u32) -> bool {
        let is_dir = attr.mode & mode::S_IFMT == mode::S_IFDIR;
        let executable = is_dir || attr.mode & 0o111 != 0;
        if self.has(capability::DAC_OVERRIDE) && (want & EXECUTE == 0 || executable) {
            return true;
        }
        let searches = want == READ || is_dir && want & WRITE == 0;
        if self.has(capability::DAC_READ_SEARCH) && searches {
            return true;
        }
        let bits = attr.mode;
        if self.uid == attr.uid {
            return bits >> 6 & want == want;
        }
        // The group's bits are an ACL's mask: without them nobody named gets anything.
        if bits & 0o070 != 0
            && let Ok(acl) = fs.getxattr(attr.ino, b"system.posix_acl_access")
        {
            return self.acl_allows(&acl, attr, want);
        }
        if self.is_in(attr.gid) {
            bits >> 3 & want == want
        } else {
            bits & want == want
        }
    }

    /// The order of acl(5): named users, groups of which one is enough, others.
    fn acl_allows(&self, acl: &[u8], attr: &Attr, want: u32) -> bool {
        const USER: u16 = 0x02;
        const GROUP_OBJ: u16 = 0x04;
        const GROUP: u16 = 0x08;
        const MASK: u16 = 0x10;
        const OTHER: u16 = 0x20;
        let entries = acl
            .get(4..)
            .unwrap_or_default()
            .chunks_exact(8)
            .map(|entry| {
                let half = |at: usize| u16::from_le_bytes([entry[at], entry[at + 1]]);
                let id = u32::from(half(4)) | u32::from(half(6)) << 16;
                (half(0), u32::from(half(2)), id)
            });
        let entries: Vec<(u16, u32, u32)> = entries.collect();
        let of = |tag| {
            entries
                .iter()
                .find(|entry| entry.0 == tag)
                .map(|entry| entry.1)
        };
        let mask = of(MASK).unwrap_or(7);
        let user = entries
            .iter()
            .find(|entry| entry.0 == USER && entry.2 == self.uid);
        if let Some(user) = user {
            return user.1 & mask & want == want;
        }
        let mut in_one = false;
        for (tag, allowed, id) in &entries {
            let mine =
                *tag == GROUP_OBJ && self.is_in(attr.gid) || *tag == GROUP && self.is_in(*id);
            if mine && allowed & mask & want == want {
                return true;
            }
            in_one |= mine;
        }
        !in_one && of(OTHER).unwrap_or(0) & want == want
    }
}

/// Whether the program may do `want`.
///
/// # Errors
/// EACCES.
#[inline]
pub(crate) fn allow(fs: &Fs, attr: &Attr, want: u32) -> Result<(), i32> {
    if known().all_may.load(Ordering::Relaxed) && want & EXECUTE == 0 {
        return Ok(());
    }
    if with(|me| me.may(fs, attr, want)) {
        Ok(())
    } else {
        Err(EACCES)
    }
}

/// Whether the program may take a name out of a directory: its sticky bit protects other users' files.
///
/// # Errors
/// EPERM.
pub(crate) fn allow_removal(dir: &Attr, victim: &Attr) -> Result<(), i32> {
    let allowed = dir.mode & mode::S_ISVTX == 0
        || with(|me| me.uid == victim.uid || me.uid == dir.uid || me.has(capability::FOWNER));
    if allowed { Ok(()) } else { Err(EPERM) }
}

/// Whether the program owns a file, or may do what owners do.
///
/// # Errors
/// EPERM.
pub(crate) fn allow_owner(attr: &Attr) -> Result<(), i32> {
    if with(|me| me.owns(attr)) {
        Ok(())
    } else {
        Err(EPERM)
    }
}
