//! The program's identity and rights: the kernel's rules for files, which the engine does not have
//! (docs/adr/0051-credentials.md).

use std::sync::atomic::{AtomicU32, Ordering};

use libc::EACCES;
use pmfs::{Attr, Fs, Ino};
pub(crate) use pmfs_posix::capability;
pub(crate) use pmfs_posix::rights::{EXECUTE, READ, WRITE};
use pmfs_posix::{privileges, rights};

use crate::call::errno;
use crate::own::kernel;
use crate::thread;
use crate::thread::guest;
use crate::thread::identity::{Capabilities, Credentials, Known};

#[inline]
fn known() -> &'static Known {
    &thread::own_room().credentials
}

/// Forgets the credentials of this thread, which may have changed.
pub(crate) fn forget() {
    known().forget(guest::own().is_some());
}

/// Calls `body` with the credentials of this thread.
pub(crate) fn with<T>(body: impl FnOnce(&Credentials) -> T) -> T {
    let known = known();
    // SAFETY: a box, or nothing; it is given back two changes later, none of which
    // happens in `body`.
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

/// Returns whether this thread may search every directory.
#[inline]
pub(crate) fn searches_all() -> bool {
    known().all_may.load(Ordering::Relaxed)
        || with(|me| me.has(capability::DAC_OVERRIDE) || me.has(capability::DAC_READ_SEARCH))
}

/// Runs `body` as another user for file systems, if this thread may become that user, and changes
/// back.
pub(crate) fn as_user<T>(uid: u64, body: impl FnOnce() -> T) -> T {
    let capabilities = Capabilities::get();
    let before = kernel::plain(libc::SYS_setfsuid, &[uid]) as u64;
    let answer = body();
    kernel::plain(libc::SYS_setfsuid, &[before]);
    // Between root and other users the kernel adds and removes capabilities.
    if Capabilities::get() != capabilities {
        capabilities.set();
    }
    answer
}

/// Checks that the program has the access `want`.
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

/// Checks that the program may remove a name from a directory: the sticky bit protects other users'
/// files.
///
/// # Errors
/// EPERM.
pub(crate) fn allow_removal(dir: &Attr, victim: &Attr) -> Result<(), i32> {
    with(|me| rights::allow_removal(dir, victim, me))
}

/// Checks that the program owns a file, or has an owner's rights.
///
/// # Errors
/// EPERM.
pub(crate) fn allow_owner(attr: &Attr) -> Result<(), i32> {
    with(|me| rights::allow_owner(attr, me))
}

/// Removes set-id bits and file capabilities before a change of the content, as far as the change
/// must.
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

/// Removes the file's capabilities, if it has any.
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

const UNKNOWN: u32 = u32::MAX;
/// A guest has changed its ids: until it is over they are read for each use, and not kept.
const ASK: u32 = u32::MAX - 1;

static IDS_AGREE: AtomicU32 = AtomicU32::new(UNKNOWN);

/// Returns whether the real user is the effective one: access(2) then gives the answer of open.
pub(crate) fn ids_agree() -> bool {
    let known = IDS_AGREE.load(Ordering::Relaxed);
    if known != UNKNOWN && known != ASK {
        return known == 1;
    }
    let id = |call| kernel::plain(call, &[]);
    let agree = id(libc::SYS_getuid) == id(libc::SYS_geteuid)
        && id(libc::SYS_getgid) == id(libc::SYS_getegid);
    if known != ASK {
        IDS_AGREE.store(u32::from(agree), Ordering::Relaxed);
    }
    agree
}

/// Forgets the ids, because they were a guest's, or a guest is over.
pub(crate) fn forget_ids() {
    IDS_AGREE.store(UNKNOWN, Ordering::Relaxed);
}

/// Forgets the ids, which may have changed; a guest's own are not kept.
pub(crate) fn ids_may_differ(is_guest: bool) {
    let known = if is_guest { ASK } else { UNKNOWN };
    IDS_AGREE.store(known, Ordering::Relaxed);
}
