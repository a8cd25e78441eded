//! chdir, fchdir and getcwd; and chroot, without a mount.

use libc::{AT_FDCWD, ENOTDIR, EOPNOTSUPP, ERANGE};
use pmfs::{Attr, Fs, Ino};

use crate::call::{Answer, Verdict, errno, kernel_answer};
use crate::calls::outside;
use crate::descriptors::pool::fs;
use crate::descriptors::promote;
use crate::descriptors::spare;
use crate::names::cwd;
use crate::names::{AtEnd, Lead, find, is_dir};
use crate::own::kernel::{self, PATH};
use crate::own::mountless::{self, Refused};
use crate::program;
use crate::program::credentials::{self, EXECUTE};
use crate::thread::descriptor::Descriptor;
use crate::thread::{Inner, PATH_MAX};

/// Changes to a directory of the pool. The kernel changes too, unless there is no mount.
fn go(room: &mut Inner, fs: &Fs, dir: &Attr) -> Answer {
    if mountless::is() {
        return cwd::enter(room, fs, dir);
    }
    let path = promote::directory(dir.ino)?;
    let answer = match path.len() > PATH_MAX {
        false => outside(libc::SYS_chdir, [PATH, 0, 0, 0, 0, 0], &path),
        true => spare::within(|| {
            let dir = promote::opened(&path, libc::O_PATH | libc::O_DIRECTORY, 0)?;
            let answer = kernel_answer(kernel::plain(libc::SYS_fchdir, &[dir]));
            kernel::plain(libc::SYS_close, &[dir]);
            answer
        }),
    };
    if answer.is_ok() {
        cwd::set(room, Some(dir.ino));
    }
    answer
}

/// Changes to a directory outside of the pool, by the kernel.
fn away(room: &mut Inner, go: impl FnOnce() -> i64) -> Verdict {
    let answer = kernel_answer(go());
    if answer.is_ok() {
        cwd::leave(room);
    }
    answer.into()
}

pub(crate) fn chdir(room: &mut Inner, path: u64) -> Verdict {
    let found = match find(room, AT_FDCWD as u64, path, AtEnd::Follow) {
        Err(errno) => return Err(errno).into(),
        Ok(Lead::Pool(fs, place)) => {
            let allowed = |attr: &Attr| {
                if !is_dir(attr) {
                    return Err(ENOTDIR);
                }
                credentials::allow(fs, attr, EXECUTE).map(|()| (fs, *attr))
            };
            place.found().and_then(allowed)
        }
        Ok(Lead::Kernel) if mountless::is() => {
            // SAFETY: the program's own call; its path was read before.
            return away(room, || unsafe {
                kernel::call(libc::SYS_chdir, [path, 0, 0, 0, 0, 0])
            });
        }
        Ok(Lead::Kernel) => {
            cwd::set(room, None);
            return Verdict::Pass;
        }
        Ok(Lead::Out(path)) => {
            let path = path.to_vec();
            return away(room, || {
                kernel::with_path(libc::SYS_chdir, [PATH, 0, 0, 0, 0, 0], &path)
            });
        }
    };
    found.and_then(|(fs, dir)| go(room, fs, &dir)).into()
}

pub(crate) fn fchdir(number: u64, dir: Option<Descriptor>, room: &mut Inner) -> Verdict {
    let Some(dir) = dir.filter(|dir| !dir.is_list()) else {
        if mountless::is() {
            return away(room, || kernel::plain(libc::SYS_fchdir, &[number]));
        }
        cwd::set(room, None);
        return Verdict::Pass;
    };
    if !dir.is_dir {
        return Err(ENOTDIR).into();
    }
    if dir.is_path_only() {
        cwd::set(room, Some(dir.ino));
        return Verdict::Pass;
    }
    let attr = |ino: Ino| -> Result<(&'static Fs, Attr), i32> {
        let fs = fs()?;
        let attr = fs.getattr(ino).map_err(errno)?;
        credentials::allow(fs, &attr, EXECUTE)?;
        Ok((fs, attr))
    };
    attr(dir.ino)
        .and_then(|(fs, dir)| go(room, fs, &dir))
        .into()
}

/// Serves getcwd, `[buffer, size]`. With a mount the kernel's directory is the program's.
pub(crate) fn getcwd(room: &mut Inner, args: [u64; 6]) -> Verdict {
    if !cwd::is_apart(room) {
        return Verdict::Pass;
    }
    let tell = |mut text: Vec<u8>| {
        text.push(0);
        // libc builds a path that is too long for the kernel by itself.
        if text.len() > PATH_MAX {
            return Err(libc::ENAMETOOLONG);
        }
        if text.len() as u64 > args[1] {
            return Err(ERANGE);
        }
        program::write_bytes(args[0], &text)?;
        Ok(text.len() as u64)
    };
    cwd::text(room).and_then(tell).into()
}

/// Serves chroot; `None` leaves the call to the kernel.
pub(crate) fn chroot(room: &mut Inner, path: u64) -> Option<Verdict> {
    match find(room, AT_FDCWD as u64, path, AtEnd::Follow) {
        Err(errno) => Some(Err(errno).into()),
        Ok(Lead::Kernel) => None,
        Ok(Lead::Pool(..)) => Some(Err(mountless::refuse(Refused::Root, EOPNOTSUPP)).into()),
        Ok(Lead::Out(path)) => Some(outside(libc::SYS_chroot, [PATH, 0, 0, 0, 0, 0], path).into()),
    }
}
