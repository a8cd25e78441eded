//! Extended attributes.

use libc::{EINVAL, ENODATA, EOPNOTSUPP, EPERM, ERANGE};
use pmfs::types::mode;
use pmfs::{Attr, Fs, XattrFlags};

use super::files::fs;
use super::{at_path, done};
use crate::credentials::{self, READ, WRITE, capability};
use crate::descriptors::Descriptor;
use crate::dispatch::Verdict;
use crate::kernel::PATH;
use crate::names::{AtEnd, errno};
use crate::program::{self, Answer};
use crate::thread::Inner;

/// Longest value.
const VALUE_MAX: u64 = 65_536;

fn here(path: u64) -> (u64, u64) {
    (libc::AT_FDCWD as u64, path)
}

/// Whether the program may read or write the attribute: by its namespace, as in xattr(7).
fn allow(fs: &Fs, attr: &Attr, name: &[u8], want: u32) -> Result<(), i32> {
    let kind = attr.mode & mode::S_IFMT;
    if name.starts_with(b"user.") {
        let refused = if want == READ { ENODATA } else { EPERM };
        if kind != mode::S_IFREG && kind != mode::S_IFDIR {
            return Err(refused);
        }
        if kind == mode::S_IFDIR && attr.mode & mode::S_ISVTX != 0 && want == WRITE {
            credentials::allow_owner(attr)?;
        }
        return credentials::allow(fs, attr, want);
    }
    let admin = || credentials::with(|me| me.has(capability::SYS_ADMIN));
    if name.starts_with(b"trusted.") {
        let refused = if want == READ { ENODATA } else { EPERM };
        return if admin() { Ok(()) } else { Err(refused) };
    }
    if name.starts_with(b"system.posix_acl_") {
        return if want == READ {
            Ok(())
        } else {
            credentials::allow_owner(attr)
        };
    }
    if name.starts_with(b"security.") {
        return if want == READ || admin() {
            Ok(())
        } else {
            Err(EPERM)
        };
    }
    Err(EOPNOTSUPP)
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
    let keeps = credentials::with(|me| me.has(capability::FSETID) || me.is_in(attr.gid));
    if name == b"system.posix_acl_access" && !keeps {
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

/// Bytes for a buffer whose size may be 0: then only their number is wanted.
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

/// Does something with an open file's attributes.
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

/// The two forms of a call: following a link at the end, or not.
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
