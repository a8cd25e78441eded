//! Extended attributes.

use libc::{AT_SYMLINK_NOFOLLOW, EINVAL, ERANGE};
use pmfs::{Attr, Fs, XattrFlags};
use pmfs_posix::flags::{self, AtCall};
use pmfs_posix::{privileges, rights};

use crate::call::class::numbers;
use crate::call::{Answer, Call, Verdict, errno};
use crate::calls::attributes::names_descriptor;
use crate::calls::{at_path, done};
use crate::descriptors;
use crate::descriptors::pool::fs;
use crate::names::AtEnd;
use crate::own::kernel::PATH;
use crate::program;
use crate::program::credentials::{self, READ, WRITE, capability};
use crate::thread::Inner;
use crate::thread::descriptor::Descriptor;

/// The greatest length of the structure.
const PAGE_BYTES: u64 = 4096;

/// The greatest length of a value.
const VALUE_MAX: u64 = 65_536;

fn here(path: u64) -> (u64, u64) {
    (libc::AT_FDCWD as u64, path)
}

/// Checks that the program may read or write the attribute.
fn allow(fs: &Fs, attr: &Attr, name: &[u8], want: u32) -> Result<(), i32> {
    match credentials::with(|me| rights::allow_attribute(attr, name, want, me))? {
        Some(want) => credentials::allow(fs, attr, want),
        None => Ok(()),
    }
}

fn put(fs: &Fs, attr: &Attr, [name, value, size, flags]: [u64; 4]) -> Answer {
    let name = program::name(name)?;
    if flags & !3 != 0 {
        return Err(EINVAL);
    }
    if size > VALUE_MAX {
        return Err(libc::E2BIG);
    }
    allow(fs, attr, &name, WRITE)?;
    let mut bytes = vec![0; size as usize];
    program::read_bytes(value, &mut bytes)?;
    let mut flags = XattrFlags::from_bits_retain(flags as u32);
    let goes = credentials::with(|me| privileges::acl_takes_set_gid(attr, me));
    if name == b"system.posix_acl_access" && goes {
        flags |= XattrFlags::KILL_SGID;
    }
    done(fs.setxattr(attr.ino, &name, &bytes, flags))
}

fn take(fs: &Fs, attr: &Attr, [name, value, size]: [u64; 3]) -> Answer {
    let name = program::name(name)?;
    allow(fs, attr, &name, READ)?;
    let bytes = fs.getxattr(attr.ino, &name).map_err(errno)?;
    give(&bytes, value, size)
}

/// Copies bytes to a buffer. A size of 0 asks for their number alone.
fn give(bytes: &[u8], to: u64, size: u64) -> Answer {
    if size != 0 {
        if (bytes.len() as u64) > size {
            return Err(ERANGE);
        }
        program::write_bytes(to, bytes)?;
    }
    Ok(bytes.len() as u64)
}

fn names(fs: &Fs, attr: &Attr, [to, size]: [u64; 2]) -> Answer {
    let all = credentials::with(|me| me.has(capability::SYS_ADMIN));
    let mut list = Vec::new();
    for name in fs.listxattr(attr.ino).map_err(errno)? {
        if all || !name.starts_with(b"trusted.") {
            list.extend_from_slice(&name);
            list.push(0);
        }
    }
    give(&list, to, size)
}

fn drop_one(fs: &Fs, attr: &Attr, name: u64) -> Answer {
    let name = program::name(name)?;
    allow(fs, attr, &name, WRITE)?;
    done(fs.removexattr(attr.ino, &name))
}

/// Applies `body` to an open file's attributes.
fn of(file: &Descriptor, body: impl FnOnce(&Fs, &Attr) -> Answer) -> Answer {
    let fs = fs()?;
    body(fs, &fs.getattr(file.ino).map_err(errno)?)
}

pub(crate) fn fset(file: &Descriptor, a: [u64; 6]) -> Answer {
    of(file, |fs, attr| put(fs, attr, [a[1], a[2], a[3], a[4]]))
}

pub(crate) fn fget(file: &Descriptor, a: [u64; 6]) -> Answer {
    of(file, |fs, attr| take(fs, attr, [a[1], a[2], a[3]]))
}

pub(crate) fn flist(file: &Descriptor, a: [u64; 6]) -> Answer {
    of(file, |fs, attr| names(fs, attr, [a[1], a[2]]))
}

pub(crate) fn fremove(file: &Descriptor, a: [u64; 6]) -> Answer {
    of(file, |fs, attr| drop_one(fs, attr, a[1]))
}

/// The inode of a call of the `at` kind: that of a descriptor of the pool, or the one at the path.
fn at(
    room: &mut Inner,
    [dirfd, path, flags]: [u64; 3],
    out: (i64, [u64; 6]),
    body: impl FnOnce(&Fs, &Attr) -> Answer,
) -> Verdict {
    if let Err(errno) = flags::allow_at(AtCall::Attribute, flags) {
        return Err(errno).into();
    }
    if names_descriptor(path, flags)
        && let Some(file) = descriptors::inode_at(dirfd)
    {
        return of(&file, body).into();
    }
    let at_end = AtEnd::following(flags & AT_SYMLINK_NOFOLLOW as u64 == 0);
    at_path(room, (dirfd, path), at_end, out, |fs, place| {
        body(fs, place.found()?)
    })
}

/// setxattrat(2) and getxattrat(2): `[dirfd, path, flags, name, structure, its bytes]`.
pub(crate) fn by_structure(room: &mut Inner, call: &Call) -> Verdict {
    /// struct xattr_args: value, u32 size, u32 flags.
    const BYTES: u64 = 16;
    let [dirfd, path, flags, name, structure, bytes] = call.args;
    let read = || {
        if bytes < BYTES {
            return Err(EINVAL);
        }
        if bytes > PAGE_BYTES {
            return Err(libc::E2BIG);
        }
        let mut more = vec![0; (bytes - BYTES) as usize];
        program::read_bytes(structure.wrapping_add(BYTES), &mut more)?;
        if more.iter().any(|byte| *byte != 0) {
            return Err(libc::E2BIG);
        }
        program::read::<[u64; 2]>(structure)
    };
    let [value, rest] = match read() {
        Ok(words) => words,
        Err(errno) => return Err(errno).into(),
    };
    let (size, how) = (rest & u64::from(u32::MAX), rest >> 32);
    let number = call.rax as i64;
    let here = libc::AT_FDCWD as u64;
    let out = (number, [here, PATH, flags, name, structure, bytes]);
    at(room, [dirfd, path, flags], out, |fs, attr| {
        if number == numbers::SYS_setxattrat {
            return put(fs, attr, [name, value, size, how]);
        }
        match how {
            0 => take(fs, attr, [name, value, size]),
            _ => Err(EINVAL),
        }
    })
}

/// `[dirfd, path, flags, list, size]`.
pub(crate) fn list_at(room: &mut Inner, [dirfd, path, flags, to, size, _]: [u64; 6]) -> Verdict {
    let here = libc::AT_FDCWD as u64;
    let out = (numbers::SYS_listxattrat, [here, PATH, flags, to, size, 0]);
    at(room, [dirfd, path, flags], out, |fs, attr| {
        names(fs, attr, [to, size])
    })
}

/// `[dirfd, path, flags, name]`.
pub(crate) fn remove_at(room: &mut Inner, [dirfd, path, flags, name, ..]: [u64; 6]) -> Verdict {
    let here = libc::AT_FDCWD as u64;
    let out = (numbers::SYS_removexattrat, [here, PATH, flags, name, 0, 0]);
    at(room, [dirfd, path, flags], out, |fs, attr| {
        drop_one(fs, attr, name)
    })
}

/// The form of a call that follows a link at the end, or the form that does not.
fn form(follow: bool, follows: i64, stays: i64) -> i64 {
    if follow { follows } else { stays }
}

pub(crate) fn set(room: &mut Inner, a: [u64; 6], follow: bool) -> Verdict {
    let number = form(follow, libc::SYS_setxattr, libc::SYS_lsetxattr);
    let out = (number, [PATH, a[1], a[2], a[3], a[4], 0]);
    at_path(
        room,
        here(a[0]),
        AtEnd::following(follow),
        out,
        |fs, place| put(fs, place.found()?, [a[1], a[2], a[3], a[4]]),
    )
}

pub(crate) fn get(room: &mut Inner, a: [u64; 6], follow: bool) -> Verdict {
    let number = form(follow, libc::SYS_getxattr, libc::SYS_lgetxattr);
    let out = (number, [PATH, a[1], a[2], a[3], 0, 0]);
    at_path(
        room,
        here(a[0]),
        AtEnd::following(follow),
        out,
        |fs, place| take(fs, place.found()?, [a[1], a[2], a[3]]),
    )
}

pub(crate) fn list(room: &mut Inner, a: [u64; 6], follow: bool) -> Verdict {
    let number = form(follow, libc::SYS_listxattr, libc::SYS_llistxattr);
    let out = (number, [PATH, a[1], a[2], 0, 0, 0]);
    at_path(
        room,
        here(a[0]),
        AtEnd::following(follow),
        out,
        |fs, place| names(fs, place.found()?, [a[1], a[2]]),
    )
}

pub(crate) fn remove(room: &mut Inner, a: [u64; 6], follow: bool) -> Verdict {
    let number = form(follow, libc::SYS_removexattr, libc::SYS_lremovexattr);
    let out = (number, [PATH, a[1], 0, 0, 0, 0]);
    at_path(
        room,
        here(a[0]),
        AtEnd::following(follow),
        out,
        |fs, place| drop_one(fs, place.found()?, a[1]),
    )
}
