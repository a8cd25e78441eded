//! Who the program is, and what it may do: the kernel's rules for files, as the engine has none
//! (docs/adr/0051-credentials.md).

use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

use libc::EACCES;
use pmfs::{Attr, Fs, Ino};
pub(crate) use pmfs_posix::capability;
pub(crate) use pmfs_posix::rights::{EXECUTE, READ, WRITE};
use pmfs_posix::{Subject, privileges, rights};

use crate::call::errno;
use crate::own::kernel;
use crate::own::thread;
use crate::process::guest;

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
    /// A box. A guest (`guest.rs`) leaks those that it asked for: it could be killed in the middle of giving one back.
    all: AtomicPtr<Credentials>,
    /// What was known last, which is given back when something else is.
    before: AtomicPtr<Credentials>,
    /// Nothing is denied: the common case of root, kept apart so that a walk need not ask.
    all_may: AtomicBool,
}

impl Known {
    /// They may have changed.
    pub fn forget(&self) {
        self.all_may.store(false, Ordering::Relaxed);
        let all = self.all.swap(std::ptr::null_mut(), Ordering::AcqRel);
        if all.is_null() {
            return;
        }
        let before = self.before.swap(all, Ordering::AcqRel);
        if !before.is_null() && guest::own().is_none() {
            // SAFETY: a box that this thread alone knew, and by nothing but this word.
            drop(unsafe { Box::from_raw(before) });
        }
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
    // SAFETY: a box, or nothing; it is given back two changes later, none of which happens in `body`.
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
    let acl = || fs.getxattr(attr.ino, rights::ACCESS_ACL).ok();
    if with(|me| rights::may(attr, want, me, acl)) {
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
    with(|me| rights::allow_removal(dir, victim, me))
}

/// Whether the program owns a file, or may do what owners do.
///
/// # Errors
/// EPERM.
pub(crate) fn allow_owner(attr: &Attr) -> Result<(), i32> {
    with(|me| rights::allow_owner(attr, me))
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

/// Before a change of a file's content: what that takes away of set-id bits and file capabilities.
///
/// # Errors
/// Those of the engine.
#[inline]
pub(crate) fn drop_privileges(fs: &Fs, ino: Ino) -> Result<(), i32> {
    if fs.may_have_privileges(ino) {
        drop_some(fs, ino).map_err(errno)?;
    }
    Ok(())
}

/// What the file's program may do beyond who runs it, if it has that.
///
/// # Errors
/// Those of the engine.
pub(crate) fn drop_capability(fs: &Fs, ino: Ino) -> pmfs::Result<()> {
    if !fs.may_have_privileges(ino) {
        return Ok(());
    }
    match fs.removexattr(ino, privileges::CAPABILITY) {
        Err(pmfs::Error::NoAttribute) => Ok(()),
        answer => answer,
    }
}

#[cold]
fn drop_some(fs: &Fs, ino: Ino) -> pmfs::Result<()> {
    drop_capability(fs, ino)?;
    let gone = |attr: &Attr| with(|me| privileges::gone_with_content(attr, me));
    if gone(&fs.getattr(ino)?) == 0 {
        return Ok(());
    }
    fs.setattr_by(ino, &|now| privileges::without(now, gone(now)))
        .map(drop)
}
