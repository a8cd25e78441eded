//! Calls by path.

use crate::answer::{Answer, Failure, answer, done};
use crate::pointers::{bytes, offset, pool, put, room, signed, stat_of, text};
use crate::pools::Shared;
use pmfs::types::mode;
use pmfs::{Attr, NewNode, Place, SetAttr, SetTime, XattrFlags};
use pmfs_posix::names::{self as posix, End, Last};
use pmfs_posix::times::time_ns;
use std::ffi::{c_char, c_int, c_uint, c_void};

/// A new inode of the caller's.
pub fn node(bits: libc::mode_t) -> NewNode {
    // SAFETY: these only read the process's credentials.
    let (uid, gid) = unsafe { (libc::geteuid(), libc::getegid()) };
    NewNode {
        mode: bits & 0o7777,
        umask: 0,
        uid,
        gid,
    }
}

/// A change of the size alone.
pub fn size_of(size: u64) -> SetAttr {
    SetAttr {
        size: Some(size),
        ..SetAttr::default()
    }
}

/// The cause for which a path can't be made, removed or moved, by its last name and a slash behind
/// it.
fn refused(errno: c_int) -> Failure {
    let words = match errno {
        libc::EEXIST => "it is there already",
        libc::ENOENT => "nothing is there",
        libc::ENOTDIR => "a slash behind what is no directory",
        libc::EISDIR => "it is a directory",
        _ => "the path has no name at its end",
    };
    Failure::Wrong(errno, words)
}

/// The end of a path to such a place.
fn end_of<'a>(path: &[u8], place: &'a Place) -> End<'a> {
    let last = path
        .rsplit(|byte| *byte == b'/')
        .find(|name| !name.is_empty());
    End {
        last: last.map_or(Last::Root, Last::of),
        slash: place.slash,
        attr: place.attr.as_ref(),
    }
}

/// The place where a directory (`dir`) or something else is to be made.
fn made(shared: &Shared, path: &[u8], dir: bool) -> Answer<Place> {
    let place = shared.fs.place_of_name(path, false)?;
    posix::allow_making(end_of(path, &place), dir).map_err(refused)?;
    Ok(place)
}

/// See `pmfs.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pmfs_stat(
    on: *mut Shared,
    path: *const c_char,
    into: *mut libc::stat,
) -> c_int {
    // SAFETY: as the header says.
    done(|| unsafe { put(into, stat_of(&find(on, path, true)?)) })
}

/// See `pmfs.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pmfs_lstat(
    on: *mut Shared,
    path: *const c_char,
    into: *mut libc::stat,
) -> c_int {
    // SAFETY: as the header says.
    done(|| unsafe { put(into, stat_of(&find(on, path, false)?)) })
}

/// # Safety
/// The rules of the header.
unsafe fn find(on: *mut Shared, path: *const c_char, follow: bool) -> Answer<Attr> {
    // SAFETY: the caller's promise.
    let (shared, path) = unsafe { (pool(on)?, text(path)?) };
    Ok(shared.fs.walk(path, follow)?)
}

/// See `pmfs.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pmfs_lookup(on: *mut Shared, dir: u64, name: *const c_char) -> u64 {
    answer(0, || {
        // SAFETY: as the header says.
        let (shared, name) = unsafe { (pool(on)?, text(name)?) };
        Ok(shared.fs.lookup(dir, name)?.ino)
    })
}

/// See `pmfs.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pmfs_istat(on: *mut Shared, inode: u64, into: *mut libc::stat) -> c_int {
    done(|| {
        // SAFETY: as the header says.
        let attr = unsafe { pool(on) }?.fs.getattr(inode)?;
        // SAFETY: as the header says.
        unsafe { put(into, stat_of(&attr)) }
    })
}

/// See `pmfs.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pmfs_mkdir(
    on: *mut Shared,
    path: *const c_char,
    bits: libc::mode_t,
) -> c_int {
    done(|| {
        // SAFETY: as the header says.
        let (shared, path) = unsafe { (pool(on)?, text(path)?) };
        let place = made(shared, path, true)?;
        shared.fs.mkdir(place.dir.ino, &place.name, &node(bits))?;
        Ok(())
    })
}

/// See `pmfs.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pmfs_mknod(
    on: *mut Shared,
    path: *const c_char,
    bits: libc::mode_t,
    device: libc::dev_t,
) -> c_int {
    done(|| {
        // SAFETY: as the header says.
        let (shared, path) = unsafe { (pool(on)?, text(path)?) };
        let kind = match bits & mode::S_IFMT {
            0 => mode::S_IFREG,
            kind => kind,
        };
        let (major, minor) = (libc::major(device), libc::minor(device));
        let packed = minor & 0xff | major << 8 | (minor & !0xff) << 12;
        let place = made(shared, path, false)?;
        shared
            .fs
            .mknod(place.dir.ino, &place.name, &node(bits), kind, packed)?;
        Ok(())
    })
}

/// See `pmfs.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pmfs_rmdir(on: *mut Shared, path: *const c_char) -> c_int {
    done(|| {
        // SAFETY: as the header says.
        let (shared, path) = unsafe { (pool(on)?, text(path)?) };
        let place = shared.fs.place_of_name(path, false)?;
        posix::allow_rmdir(end_of(path, &place)).map_err(refused)?;
        Ok(shared.fs.rmdir(place.dir.ino, &place.name)?)
    })
}

/// See `pmfs.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pmfs_unlink(on: *mut Shared, path: *const c_char) -> c_int {
    done(|| {
        // SAFETY: as the header says.
        let (shared, path) = unsafe { (pool(on)?, text(path)?) };
        let place = shared.fs.place_of_name(path, false)?;
        posix::allow_unlink(end_of(path, &place)).map_err(refused)?;
        Ok(shared.fs.unlink(place.dir.ino, &place.name)?)
    })
}

/// See `pmfs.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pmfs_rename(
    on: *mut Shared,
    from: *const c_char,
    to: *const c_char,
    flags: c_uint,
) -> c_int {
    done(|| {
        // SAFETY: as the header says.
        let (shared, from, to) = unsafe { (pool(on)?, text(from)?, text(to)?) };
        let flags = posix::rename_flags(flags)
            .map_err(|errno| Failure::Wrong(errno, "flags of renameat2(2)"))?;
        let place = |path| shared.fs.place_of_name(path, false);
        let (source, target) = (place(from)?, place(to)?);
        posix::allow_rename(end_of(from, &source), end_of(to, &target), flags).map_err(refused)?;
        let (old, new) = (source.dir.ino, target.dir.ino);
        Ok(shared
            .fs
            .rename(old, &source.name, new, &target.name, flags)?)
    })
}

/// See `pmfs.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pmfs_link(
    on: *mut Shared,
    from: *const c_char,
    to: *const c_char,
) -> c_int {
    done(|| {
        // SAFETY: as the header says.
        let (shared, from, to) = unsafe { (pool(on)?, text(from)?, text(to)?) };
        let file = shared.fs.walk(from, false)?;
        let place = made(shared, to, false)?;
        shared.fs.link(file.ino, place.dir.ino, &place.name)?;
        Ok(())
    })
}

/// See `pmfs.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pmfs_symlink(
    on: *mut Shared,
    target: *const c_char,
    path: *const c_char,
) -> c_int {
    done(|| {
        // SAFETY: as the header says.
        let (shared, target, path) = unsafe { (pool(on)?, text(target)?, text(path)?) };
        let place = made(shared, path, false)?;
        shared
            .fs
            .symlink(place.dir.ino, &place.name, target, &node(0o777))?;
        Ok(())
    })
}

/// See `pmfs.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pmfs_readlink(
    on: *mut Shared,
    path: *const c_char,
    into: *mut c_char,
    size: usize,
) -> isize {
    answer(-1, || {
        // SAFETY: as the header says.
        let attr = unsafe { find(on, path, false) }?;
        // SAFETY: as the header says.
        let (shared, buffer) = unsafe { (pool(on)?, room(into.cast(), size)?) };
        let target = shared.fs.readlink(attr.ino)?;
        let len = target.len().min(buffer.len());
        buffer[..len].copy_from_slice(&target[..len]);
        Ok(signed(len))
    })
}

/// # Safety
/// The rules of the header.
unsafe fn set(on: *mut Shared, path: *const c_char, set: &SetAttr) -> Answer<()> {
    // SAFETY: the caller's promise.
    let attr = unsafe { find(on, path, true) }?;
    // SAFETY: the caller's promise.
    unsafe { pool(on) }?.fs.setattr(attr.ino, set)?;
    Ok(())
}

/// See `pmfs.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pmfs_truncate(
    on: *mut Shared,
    path: *const c_char,
    size: libc::off_t,
) -> c_int {
    // SAFETY: as the header says.
    done(|| unsafe { set(on, path, &size_of(offset(size)?)) })
}

/// See `pmfs.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pmfs_chmod(
    on: *mut Shared,
    path: *const c_char,
    bits: libc::mode_t,
) -> c_int {
    let change = SetAttr {
        mode: Some(bits & 0o7777),
        ..SetAttr::default()
    };
    // SAFETY: as the header says.
    done(|| unsafe { set(on, path, &change) })
}

/// See `pmfs.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pmfs_chown(
    on: *mut Shared,
    path: *const c_char,
    owner: libc::uid_t,
    group: libc::gid_t,
) -> c_int {
    let change = SetAttr {
        uid: Some(owner).filter(|&owner| owner != libc::uid_t::MAX),
        gid: Some(group).filter(|&group| group != libc::gid_t::MAX),
        ..SetAttr::default()
    };
    // SAFETY: as the header says.
    done(|| unsafe { set(on, path, &change) })
}

/// The value to set a time to, also UTIME_NOW and UTIME_OMIT of `utimensat(2)`.
fn time(time: &libc::timespec) -> Answer<Option<SetTime>> {
    match time.tv_nsec {
        libc::UTIME_NOW => Ok(Some(SetTime::Now)),
        libc::UTIME_OMIT => Ok(None),
        ns => match time_ns(time.tv_sec, ns) {
            Ok(at) => Ok(Some(SetTime::At(at))),
            Err(errno) => Err(Failure::Wrong(
                errno,
                "no nanoseconds of a second, or a time beyond the year 2262",
            )),
        },
    }
}

/// See `pmfs.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pmfs_utimens(
    on: *mut Shared,
    path: *const c_char,
    times: *const libc::timespec,
) -> c_int {
    done(|| {
        let (atime_ns, mtime_ns) = if times.is_null() {
            (Some(SetTime::Now), Some(SetTime::Now))
        } else {
            // SAFETY: two of them, as the header says.
            let times = unsafe { &*times.cast::<[libc::timespec; 2]>() };
            (time(&times[0])?, time(&times[1])?)
        };
        let change = SetAttr {
            atime_ns,
            mtime_ns,
            ..SetAttr::default()
        };
        // SAFETY: as the header says.
        unsafe { set(on, path, &change) }
    })
}

/// Copies an attribute out; with no room only its length is asked for.
fn fill(value: &[u8], buffer: &mut [u8]) -> Answer<isize> {
    if !buffer.is_empty() {
        let into = buffer.get_mut(..value.len());
        let into = into.ok_or(Failure::Wrong(libc::ERANGE, "the buffer is too small"))?;
        into.copy_from_slice(value);
    }
    Ok(signed(value.len()))
}

/// See `pmfs.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pmfs_getxattr(
    on: *mut Shared,
    path: *const c_char,
    name: *const c_char,
    into: *mut c_void,
    size: usize,
) -> isize {
    answer(-1, || {
        // SAFETY: as the header says.
        let attr = unsafe { find(on, path, true) }?;
        // SAFETY: as the header says.
        let (shared, name, buffer) = unsafe { (pool(on)?, text(name)?, room(into, size)?) };
        fill(&shared.fs.getxattr(attr.ino, name)?, buffer)
    })
}

/// See `pmfs.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pmfs_setxattr(
    on: *mut Shared,
    path: *const c_char,
    name: *const c_char,
    value: *const c_void,
    size: usize,
    flags: c_int,
) -> c_int {
    done(|| {
        // SAFETY: as the header says.
        let attr = unsafe { find(on, path, true) }?;
        // SAFETY: as the header says.
        let (shared, name, value) = unsafe { (pool(on)?, text(name)?, bytes(value, size)?) };
        let both = XattrFlags::CREATE | XattrFlags::REPLACE;
        let flags = XattrFlags::from_bits(flags as u32).filter(|&flags| both.contains(flags));
        let flags = flags.ok_or(Failure::Wrong(libc::EINVAL, "flags of setxattr(2)"))?;
        Ok(shared.fs.setxattr(attr.ino, name, value, flags)?)
    })
}

/// See `pmfs.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pmfs_listxattr(
    on: *mut Shared,
    path: *const c_char,
    into: *mut c_char,
    size: usize,
) -> isize {
    answer(-1, || {
        // SAFETY: as the header says.
        let attr = unsafe { find(on, path, true) }?;
        // SAFETY: as the header says.
        let (shared, buffer) = unsafe { (pool(on)?, room(into.cast(), size)?) };
        let mut list = Vec::new();
        for name in shared.fs.listxattr(attr.ino)? {
            list.extend_from_slice(&name);
            list.push(0);
        }
        fill(&list, buffer)
    })
}

/// See `pmfs.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pmfs_removexattr(
    on: *mut Shared,
    path: *const c_char,
    name: *const c_char,
) -> c_int {
    done(|| {
        // SAFETY: as the header says.
        let attr = unsafe { find(on, path, true) }?;
        // SAFETY: as the header says.
        let (shared, name) = unsafe { (pool(on)?, text(name)?) };
        Ok(shared.fs.removexattr(attr.ino, name)?)
    })
}

/// See `pmfs.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pmfs_statvfs(on: *mut Shared, into: *mut libc::statvfs) -> c_int {
    done(|| {
        // SAFETY: as the header says.
        let space = unsafe { pool(on) }?.fs.statfs()?;
        // SAFETY: all-zero is a valid struct statvfs.
        let mut found: libc::statvfs = unsafe { std::mem::zeroed() };
        found.f_bsize = space.block_size.into();
        found.f_frsize = space.block_size.into();
        found.f_blocks = space.blocks;
        found.f_bfree = space.blocks_free;
        found.f_bavail = space.blocks_free;
        found.f_files = space.inodes;
        found.f_ffree = space.inodes_free;
        found.f_favail = space.inodes_free;
        found.f_fsid = space.fsid;
        found.f_namemax = space.name_max.into();
        // SAFETY: as the header says.
        unsafe { put(into, found) }
    })
}
