//! Who the program is, and what it may do: the kernel's rules for files, as the engine has none (DECISIONS 37).

use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

use libc::{EACCES, EPERM};
use pmfs::types::mode;
use pmfs::{Attr, Fs};

use crate::kernel;

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

/// Leaked when it changes, which is rare: no lock, which a child that shares this memory could leave locked when it is killed.
static KNOWN: AtomicPtr<Credentials> = AtomicPtr::new(std::ptr::null_mut());
/// Nothing is denied: the common case of root, kept apart so that a walk need not ask.
static ALL_MAY: AtomicBool = AtomicBool::new(false);

/// They may have changed.
pub(crate) fn forget() {
    ALL_MAY.store(false, Ordering::Relaxed);
    KNOWN.store(std::ptr::null_mut(), Ordering::Release);
}

/// Does something with them.
pub(crate) fn with<T>(body: impl FnOnce(&Credentials) -> T) -> T {
    // SAFETY: a leaked box, or nothing.
    if let Some(known) = unsafe { KNOWN.load(Ordering::Acquire).as_ref() } {
        return body(known);
    }
    let fresh = Box::leak(Box::new(Credentials::ask()));
    ALL_MAY.store(fresh.has(capability::DAC_OVERRIDE), Ordering::Relaxed);
    KNOWN.store(fresh, Ordering::Release);
    body(fresh)
}

/// Whether every directory may be searched.
#[inline]
pub(crate) fn searches_all() -> bool {
    ALL_MAY.load(Ordering::Relaxed)
        || with(|me| me.has(capability::DAC_OVERRIDE) || me.has(capability::DAC_READ_SEARCH))
}

/// The header and data of capget(2), version 3.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct CapabilityHeader {
    version: u32,
    thread: u32,
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
            capabilities: effective(),
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

fn effective() -> u64 {
    let mut header = CapabilityHeader {
        version: 0x2008_0522,
        thread: 0,
    };
    let mut data = [[0u32; 3]; 2];
    let at = (&raw mut header).expose_provenance() as u64;
    let to = data.as_mut_ptr().expose_provenance() as u64;
    // SAFETY: the kernel reads the header and fills two triples of numbers.
    unsafe { kernel::call(libc::SYS_capget, [at, to, 0, 0, 0, 0]) };
    let data = std::hint::black_box(data);
    u64::from(data[0][0]) | u64::from(data[1][0]) << 32
}

/// Whether the program may do `want`.
///
/// # Errors
/// EACCES.
#[inline]
pub(crate) fn allow(fs: &Fs, attr: &Attr, want: u32) -> Result<(), i32> {
    if ALL_MAY.load(Ordering::Relaxed) && want & EXECUTE == 0 {
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
