//! Paths of the program: each leads to a place in the pool, or to one that the kernel must find.
//!
//! Only names that certainly lead into the pool are walked here: absolute ones below the directory
//! that stands for it, and those relative to a directory in it. Paths that leave again (`..` at the
//! root, a link to elsewhere) and paths that enter by other ways go to the kernel, whose walk ends
//! at the mount (docs/adr/0052-other-names.md).

pub(crate) mod cwd;
pub(crate) mod exe;
pub(crate) mod gone;
pub(crate) mod numbered;
mod outside;
mod place;
pub(crate) mod protected;
mod reach;
mod walk;

use libc::{ENOENT, ENOTDIR};
use pmfs::ROOT_INO;
pub(crate) use pmfs_posix::names::is_dir;

pub(crate) use place::{AtEnd, Lead, Place};
pub(crate) use reach::{are_the_kernels, leave_to_kernel, leave_to_kernel_for_guest};
pub(crate) use walk::{link_of_descriptor, link_of_process};

use crate::descriptors;
use crate::descriptors::pool;
use crate::names::cwd::Cwd;
use crate::names::place::Walked;
use crate::names::reach::{BY_INODE, behind, below, is_plainly_elsewhere};
use crate::names::walk::{by_number, in_list, walk};
use crate::own::mountless;
use crate::program;
use crate::thread::Inner;

/// Finds the place that a path of the program leads to.
///
/// # Errors
/// EFAULT, ENAMETOOLONG, ENOENT, ENOTDIR, ELOOP, EACCES; those of the engine.
pub(crate) fn find(
    room: &mut Inner,
    dirfd: u64,
    path: u64,
    at_end: AtEnd,
) -> Result<Lead<'_>, i32> {
    find_for(room, dirfd, path, at_end, false)
}

/// Finds as [`find`] does, for a lookup that the kernel may do through the mount.
///
/// # Errors
/// Those of [`find`].
pub(crate) fn find_to_peek(
    room: &mut Inner,
    dirfd: u64,
    path: u64,
    at_end: AtEnd,
) -> Result<Lead<'_>, i32> {
    find_for(room, dirfd, path, at_end, true)
}

#[inline]
fn find_for<'a>(
    room: &'a mut Inner,
    dirfd: u64,
    path: u64,
    at_end: AtEnd,
    looks: bool,
) -> Result<Lead<'a>, i32> {
    if !mountless::is() && is_plainly_elsewhere(path) {
        return Ok(Lead::Kernel);
    }
    let len = program::path(path, &mut room.paths[0])?;
    let walked = if mountless::is() {
        outside::find(room, dirfd, len, at_end)?
    } else {
        begin(room, dirfd, len, at_end, looks)?
    };
    Ok(walked.lead(room))
}

/// The start of a walk, with a mount.
fn begin(
    room: &mut Inner,
    dirfd: u64,
    len: usize,
    at_end: AtEnd,
    looks: bool,
) -> Result<Walked, i32> {
    let by_descriptor = room.paths[0][0] != b'/' && dirfd as i32 != libc::AT_FDCWD;
    if !by_descriptor && are_the_kernels() {
        return Ok(Walked::Kernel);
    }
    let (start, from) = if room.paths[0][0] == b'/' {
        match below(&room.paths[0][..len]) {
            // Only the mount knows these names.
            Some(from) if room.paths[0][from..len].starts_with(&BY_INODE) => {
                return Ok(Walked::Kernel);
            }
            Some(from) => (ROOT_INO, from),
            None => return by_number(room, 0, len, at_end),
        }
    } else if dirfd as i32 == libc::AT_FDCWD {
        match cwd::get(room) {
            Cwd::Inside(ino) => (ino, 0),
            Cwd::Elsewhere => return Ok(Walked::Kernel),
            Cwd::Above(names) => match behind(&room.paths[0][..len], names) {
                Some(from) if !room.paths[0][from..len].starts_with(&BY_INODE) => (ROOT_INO, from),
                _ => return Ok(Walked::Kernel),
            },
        }
    } else {
        match descriptors::get(dirfd) {
            Some(dir) if dir.is_list() => return in_list(room, len, at_end),
            Some(dir) if dir.is_dir => (dir.ino, 0),
            Some(_) if len == 0 => return Err(ENOENT),
            Some(_) => return Err(ENOTDIR),
            None if descriptors::is_own(dirfd) => return Err(libc::EBADF),
            None => return Ok(Walked::Kernel),
        }
    };
    if len == 0 {
        return Err(ENOENT);
    }
    // The kernel does not know a descriptor of the pool.
    if looks && !by_descriptor && pool::is_spared() {
        return Ok(Walked::Out(0, len));
    }
    let Some(fs) = pool::get() else {
        return Ok(Walked::Kernel);
    };
    walk(fs, room, start, 0, from..len, at_end)
}
