//! File locks by handle: flock(2) and fcntl(2). A wait ends with EINTR when the thread
//! handles a signal.

use crate::answer::{Answer, Failure, done};
use crate::pointers::{place, pool};
use crate::pools::Shared;
use pmfs::{LockClass, LockKind, LockOwner, LockRange};
use std::ffi::c_int;

/// This process, as an owner of POSIX locks.
pub const POSIX: LockOwner = LockOwner {
    class: LockClass::Posix,
    id: 0,
};

const WRONG: Failure = Failure::Wrong(libc::EINVAL, "a command or kind of lock that is not known");

fn never() -> bool {
    false
}

/// See `pmfs.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pmfs_flock(on: *mut Shared, handle: c_int, operation: c_int) -> c_int {
    done(|| {
        // SAFETY: as the header says.
        let shared = unsafe { pool(on) }?;
        let file = shared.handle(handle)?.file;
        let (class, whole) = (LockClass::Flock, LockRange::WHOLE);
        let kind = match operation & !libc::LOCK_NB {
            libc::LOCK_SH => LockKind::Read,
            libc::LOCK_EX => LockKind::Write,
            libc::LOCK_UN => return Ok(shared.fs.unlock_file(file, class, whole)?),
            _ => return Err(WRONG),
        };
        if operation & libc::LOCK_NB != 0 {
            return Ok(shared.fs.lock_file(file, class, kind, whole)?);
        }
        Ok(shared.fs.lock_file_wait(file, class, kind, whole, &never)?)
    })
}

/// The range of a `struct flock`.
fn range_of(lock: &libc::flock) -> Answer<LockRange> {
    if c_int::from(lock.l_whence) != libc::SEEK_SET {
        return Err(Failure::Wrong(libc::EINVAL, "l_whence has to be SEEK_SET"));
    }
    let (mut start, mut len) = (i128::from(lock.l_start), i128::from(lock.l_len));
    if len < 0 {
        start += len;
        len = -len;
    }
    let end = if len == 0 {
        i128::from(u64::MAX)
    } else {
        start + len - 1
    };
    match (u64::try_from(start), u64::try_from(end)) {
        (Ok(start), Ok(end)) => Ok(LockRange { start, end }),
        _ => Err(Failure::Wrong(
            libc::EINVAL,
            "a lock before the start of the file",
        )),
    }
}

/// See `pmfs.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pmfs_fcntl_lock(
    on: *mut Shared,
    handle: c_int,
    command: c_int,
    lock: *mut libc::flock,
) -> c_int {
    done(|| {
        // SAFETY: as the header says.
        let (shared, lock) = unsafe { (pool(on)?, place(lock)?) };
        let (handle, range) = (shared.handle(handle)?, range_of(lock)?);
        let (file, ino) = (handle.file, handle.ino);
        let kind = match c_int::from(lock.l_type) {
            libc::F_RDLCK => Some(LockKind::Read),
            libc::F_WRLCK => Some(LockKind::Write),
            libc::F_UNLCK => None,
            _ => return Err(WRONG),
        };
        let pid = std::process::id();
        let fs = &shared.fs;
        match (command, kind) {
            (libc::F_GETLK | libc::F_OFD_GETLK, Some(kind)) => {
                let conflict = if command == libc::F_GETLK {
                    fs.lock_conflict(ino, POSIX, kind, range)?
                } else {
                    fs.file_lock_conflict(file, LockClass::File, kind, range)?
                };
                tell(lock, conflict);
            }
            (libc::F_SETLK, Some(kind)) => fs.lock(ino, POSIX, kind, range, pid)?,
            (libc::F_SETLKW, Some(kind)) => fs.lock_wait(ino, POSIX, kind, range, pid, &never)?,
            (libc::F_SETLK | libc::F_SETLKW, None) => fs.unlock(ino, POSIX, range)?,
            (libc::F_OFD_SETLK, Some(kind)) => fs.lock_file(file, LockClass::File, kind, range)?,
            (libc::F_OFD_SETLKW, Some(kind)) => {
                fs.lock_file_wait(file, LockClass::File, kind, range, &never)?;
            }
            (libc::F_OFD_SETLK | libc::F_OFD_SETLKW, None) => {
                fs.unlock_file(file, LockClass::File, range)?;
            }
            _ => return Err(WRONG),
        }
        Ok(())
    })
}

/// F_GETLK's answer about the lock in the way.
fn tell(lock: &mut libc::flock, conflict: Option<pmfs::LockInfo>) {
    let Some(found) = conflict else {
        lock.l_type = libc::F_UNLCK as libc::c_short;
        return;
    };
    let kind = match found.kind {
        LockKind::Read => libc::F_RDLCK,
        LockKind::Write => libc::F_WRLCK,
    };
    lock.l_type = kind as libc::c_short;
    lock.l_start = found.range.start as libc::off_t;
    lock.l_len = match found.range.end {
        u64::MAX => 0,
        end => (end - found.range.start + 1) as libc::off_t,
    };
    lock.l_pid = match found.class {
        LockClass::Posix => found.pid as libc::pid_t,
        _ => -1,
    };
}
