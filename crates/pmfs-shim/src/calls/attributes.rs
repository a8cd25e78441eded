//! stat(2) and similar calls, and changes of an inode's attributes.

use libc::{AT_EMPTY_PATH, AT_FDCWD, AT_SYMLINK_NOFOLLOW, EACCES, EINVAL, EISDIR};
use pmfs::types::{SetTime, mode};
use pmfs::{Attr, Fs, Ino, SetAttr};
use pmfs_posix::flags::{self, AtCall};
use pmfs_posix::stat::{fill_stat, fill_statx};
use pmfs_posix::times::time_ns;
use pmfs_posix::{privileges, rights};

use crate::call::{Answer, Verdict, errno};
use crate::calls::{at_path, done, peek_at_path};
use crate::descriptors;
use crate::descriptors::pool::{self, fs};
use crate::descriptors::promote;
use crate::maps::mapped_size;
use crate::names::{AtEnd, is_dir};
use crate::own::config;
use crate::own::kernel::PATH;
use crate::program;
use crate::program::credentials::{self, WRITE};
use crate::program::limits;
use crate::thread::Inner;
use crate::thread::descriptor::Descriptor;

fn stat_of(attr: &Attr) -> libc::stat {
    // SAFETY: a structure of numbers.
    let mut stat: libc::stat = unsafe { std::mem::zeroed() };
    fill_stat(&mut stat, attr, config::get().device);
    stat
}

pub(crate) fn fstat(file: &Descriptor, to: u64) -> Answer {
    let mut attr = Attr::default();
    fs()?.getattr_into(file.ino, &mut attr).map_err(errno)?;
    program::write(to, &stat_of(&attr)).map(|()| 0)
}

/// Returns whether a path is empty and the flags let it stand for the descriptor itself.
pub(super) fn names_descriptor(path: u64, flags: u64) -> bool {
    flags & AT_EMPTY_PATH as u64 != 0 && (path == 0 || program::read::<u8>(path) == Ok(0))
}

/// `[dirfd, path, buffer, flags]`.
pub(crate) fn stat(room: &mut Inner, [dirfd, path, to, flags]: [u64; 4]) -> Verdict {
    if let Err(errno) = flags::allow_at(AtCall::Stat, flags) {
        return Err(errno).into();
    }
    if names_descriptor(path, flags)
        && let Some(file) = descriptors::inode_at(dirfd)
    {
        return fstat(&file, to).into();
    }
    let at_end = AtEnd::following(flags & AT_SYMLINK_NOFOLLOW as u64 == 0);
    let out = (
        libc::SYS_newfstatat,
        [AT_FDCWD as u64, PATH, to, flags, 0, 0],
    );
    peek_at_path(room, (dirfd, path), at_end, out, |_, place| {
        program::write(to, &stat_of(place.found()?)).map(|()| 0)
    })
}

fn statx_of(attr: &Attr) -> libc::statx {
    // SAFETY: a structure of numbers.
    let mut all: libc::statx = unsafe { std::mem::zeroed() };
    fill_statx(&mut all, attr, config::get().device);
    all
}

pub(crate) fn statx(room: &mut Inner, a: [u64; 6]) -> Verdict {
    let [dirfd, path, flags, mask, to, _] = a;
    if let Err(errno) = flags::allow_statx(flags, mask) {
        return Err(errno).into();
    }
    let answer = |attr: &Attr| program::write(to, &statx_of(attr)).map(|()| 0);
    if names_descriptor(path, flags)
        && let Some(file) = descriptors::inode_at(dirfd)
    {
        let attr = fs().and_then(|fs| fs.getattr(file.ino).map_err(errno));
        return attr.and_then(|attr| answer(&attr)).into();
    }
    let at_end = AtEnd::following(flags & AT_SYMLINK_NOFOLLOW as u64 == 0);
    let out = (libc::SYS_statx, [AT_FDCWD as u64, PATH, flags, mask, to, 0]);
    peek_at_path(room, (dirfd, path), at_end, out, |_, place| {
        answer(place.found()?)
    })
}

/// Changes permission bits, as an owner may.
fn change_mode(fs: &Fs, attr: &Attr, bits: u32) -> Answer {
    credentials::allow_owner(attr)?;
    let set = |now: &Attr| {
        let bits = credentials::with(|me| privileges::bits_by_chmod(bits, now.gid, me));
        SetAttr {
            mode: Some(bits),
            ..SetAttr::default()
        }
    };
    done(fs.setattr_by(attr.ino, &set).map(drop))
}

pub(crate) fn chmod(room: &mut Inner, dirfd: u64, path: u64, bits: u32) -> Verdict {
    let out = (
        libc::SYS_fchmodat,
        [AT_FDCWD as u64, PATH, bits.into(), 0, 0, 0],
    );
    at_path(room, (dirfd, path), AtEnd::Follow, out, |fs, place| {
        change_mode(fs, place.found()?, bits)
    })
}

/// `[dirfd, path, mode, flags]`.
pub(crate) fn fchmodat2(room: &mut Inner, a: [u64; 6]) -> Verdict {
    let [dirfd, path, bits, flags, ..] = a;
    if let Err(errno) = flags::allow_at(AtCall::Attribute, flags) {
        return Err(errno).into();
    }
    if names_descriptor(path, flags)
        && let Some(file) = descriptors::inode_at(dirfd)
    {
        return fchmod(&file, [dirfd, bits, 0, 0, 0, 0]).into();
    }
    let at_end = AtEnd::following(flags & AT_SYMLINK_NOFOLLOW as u64 == 0);
    let out = (
        libc::SYS_fchmodat2,
        [AT_FDCWD as u64, PATH, bits, flags, 0, 0],
    );
    at_path(room, (dirfd, path), at_end, out, |fs, place| {
        let attr = place.found()?;
        if attr.mode & mode::S_IFMT == mode::S_IFLNK {
            return Err(libc::EOPNOTSUPP);
        }
        change_mode(fs, attr, bits as u32)
    })
}

pub(crate) fn fchmod(file: &Descriptor, a: [u64; 6]) -> Answer {
    let fs = fs()?;
    change_mode(fs, &fs.getattr(file.ino).map_err(errno)?, a[1] as u32)
}

/// Changes owner and group; -1 keeps one. All but directories lose their set-id bits.
fn change_owner(fs: &Fs, attr: &Attr, uid: u32, gid: u32) -> Answer {
    let (uid, gid) = (
        (uid != u32::MAX).then_some(uid),
        (gid != u32::MAX).then_some(gid),
    );
    credentials::with(|me| rights::allow_chown(attr, uid, gid, me))?;
    let set = |now: &Attr| {
        let gone = credentials::with(|me| privileges::gone_with_owner(now, me));
        SetAttr {
            uid,
            gid,
            ..privileges::without(now, gone)
        }
    };
    if !is_dir(attr) {
        credentials::drop_capability(fs, attr.ino).map_err(errno)?;
    }
    done(fs.setattr_by(attr.ino, &set).map(drop))
}

/// `[dirfd, path, uid, gid, flags]`.
pub(crate) fn chown(room: &mut Inner, [dirfd, path, uid, gid, flags]: [u64; 5]) -> Verdict {
    if let Err(errno) = flags::allow_at(AtCall::Attribute, flags) {
        return Err(errno).into();
    }
    if names_descriptor(path, flags)
        && let Some(file) = descriptors::inode_at(dirfd)
    {
        return fchown(&file, [dirfd, uid, gid, 0, 0, 0]).into();
    }
    let at_end = AtEnd::following(flags & AT_SYMLINK_NOFOLLOW as u64 == 0);
    let out = (
        libc::SYS_fchownat,
        [AT_FDCWD as u64, PATH, uid, gid, flags, 0],
    );
    at_path(room, (dirfd, path), at_end, out, |fs, place| {
        change_owner(fs, place.found()?, uid as u32, gid as u32)
    })
}

pub(crate) fn fchown(file: &Descriptor, a: [u64; 6]) -> Answer {
    let fs = fs()?;
    change_owner(
        fs,
        &fs.getattr(file.ino).map_err(errno)?,
        a[1] as u32,
        a[2] as u32,
    )
}

pub(crate) fn truncate(room: &mut Inner, a: [u64; 6]) -> Verdict {
    let out = (libc::SYS_truncate, [PATH, a[1], 0, 0, 0, 0]);
    at_path(
        room,
        (AT_FDCWD as u64, a[0]),
        AtEnd::Follow,
        out,
        |fs, place| {
            let attr = place.found()?;
            let size = i64::try_from(a[1]).map_err(|_| EINVAL)? as u64;
            match attr.mode & mode::S_IFMT {
                mode::S_IFREG => {}
                mode::S_IFDIR => return Err(EISDIR),
                _ => return Err(EINVAL),
            }
            credentials::allow(fs, attr, WRITE)?;
            promote::allow_writing(attr)?;
            limits::allow_size(size, || Ok(attr.size))?;
            credentials::drop_privileges(fs, attr.ino)?;
            let set = SetAttr {
                size: Some(size),
                ..SetAttr::default()
            };
            let set = fs.setattr(attr.ino, &set).map(drop);
            mapped_size::changed(attr.ino);
            done(set)
        },
    )
}

/// Both times; `None` keeps one.
type Times = [Option<SetTime>; 2];

const NOW: Times = [Some(SetTime::Now), Some(SetTime::Now)];

fn change_times(fs: &Fs, attr: &Attr, [atime_ns, mtime_ns]: Times) -> Answer {
    let both_now = atime_ns == Some(SetTime::Now) && mtime_ns == Some(SetTime::Now);
    if atime_ns.is_none() && mtime_ns.is_none() {
        return Ok(0);
    }
    if both_now {
        let owner = credentials::allow_owner(attr);
        owner
            .or_else(|_| credentials::allow(fs, attr, WRITE))
            .map_err(|_| EACCES)?;
    } else {
        credentials::allow_owner(attr)?;
    }
    let set = SetAttr {
        atime_ns,
        mtime_ns,
        ..SetAttr::default()
    };
    done(fs.setattr(attr.ino, &set).map(drop))
}

/// Reads two struct timespec of the program; without any, both times are now. A wrong time is
/// reported once the file has been found.
///
/// # Errors
/// EFAULT; inner: EINVAL.
fn timespecs(at: u64) -> Result<Result<Times, i32>, i32> {
    if at == 0 {
        return Ok(Ok(NOW));
    }
    let times: [[i64; 2]; 2] = program::read(at)?;
    let mut set = [None; 2];
    for ([seconds, ns], set) in times.into_iter().zip(&mut set) {
        *set = match ns {
            libc::UTIME_NOW => Some(SetTime::Now),
            libc::UTIME_OMIT => None,
            ns => match time_ns(seconds, ns) {
                Ok(time) => Some(SetTime::At(time)),
                Err(errno) => return Ok(Err(errno)),
            },
        };
    }
    Ok(Ok(set))
}

pub(crate) fn utimensat(room: &mut Inner, a: [u64; 6]) -> Verdict {
    let [dirfd, path, times, flags, ..] = a;
    let set = match timespecs(times) {
        // The kernel then checks neither the flags nor the name.
        Ok(Ok([None, None])) => return Ok(0).into(),
        Ok(set) => set,
        Err(errno) => return Err(errno).into(),
    };
    if let Err(errno) = flags::allow_at(AtCall::Attribute, flags) {
        return Err(errno).into();
    }
    if path == 0 && flags as u32 != 0 && dirfd as i32 != AT_FDCWD {
        return Err(EINVAL).into();
    }
    let by_descriptor = path == 0 || names_descriptor(path, flags);
    if by_descriptor && let Some(file) = descriptors::inode_at(dirfd) {
        return of_inode(file.ino, set).into();
    }
    if path == 0 {
        return match descriptors::is_own(dirfd) {
            true => Err(libc::EBADF).into(),
            false => Verdict::Pass,
        };
    }
    let at_end = AtEnd::following(flags & AT_SYMLINK_NOFOLLOW as u64 == 0);
    let out = (
        libc::SYS_utimensat,
        [AT_FDCWD as u64, PATH, times, flags, 0, 0],
    );
    at_path(room, (dirfd, path), at_end, out, |fs, place| {
        change_times(fs, place.found()?, set?)
    })
}

fn of_inode(ino: Ino, times: Result<Times, i32>) -> Answer {
    let fs = fs()?;
    change_times(fs, &fs.getattr(ino).map_err(errno)?, times?)
}

pub(crate) fn utime(room: &mut Inner, a: [u64; 6]) -> Verdict {
    let out = (libc::SYS_utime, [PATH, a[1], 0, 0, 0, 0]);
    at_path(
        room,
        (AT_FDCWD as u64, a[0]),
        AtEnd::Follow,
        out,
        |fs, place| {
            let attr = place.found()?;
            let times = if a[1] == 0 {
                NOW
            } else {
                let seconds: [i64; 2] = program::read(a[1])?;
                let [atime, mtime] = seconds.map(|seconds| time_ns(seconds, 0));
                [Some(SetTime::At(atime?)), Some(SetTime::At(mtime?))]
            };
            change_times(fs, attr, times)
        },
    )
}

pub(crate) fn utimes(room: &mut Inner, dirfd: u64, path: u64, at: u64) -> Verdict {
    let out = (libc::SYS_futimesat, [AT_FDCWD as u64, PATH, at, 0, 0, 0]);
    at_path(room, (dirfd, path), AtEnd::Follow, out, |fs, place| {
        let times = if at == 0 {
            NOW
        } else {
            let parts: [[i64; 2]; 2] = program::read(at)?;
            if parts.iter().any(|part| !(0..1_000_000).contains(&part[1])) {
                return Err(EINVAL);
            }
            let [atime, mtime] = parts.map(|[seconds, us]| time_ns(seconds, us * 1000));
            [Some(SetTime::At(atime?)), Some(SetTime::At(mtime?))]
        };
        change_times(fs, place.found()?, times)
    })
}

fn put_statfs(fs: &Fs, to: u64) -> Answer {
    /// The type of mounts of user-space file systems.
    const FUSE_SUPER_MAGIC: i64 = 0x6573_5546;
    let stat = fs.statfs().map_err(errno)?;
    // SAFETY: a structure of numbers.
    let mut all: libc::statfs = unsafe { std::mem::zeroed() };
    all.f_type = FUSE_SUPER_MAGIC;
    all.f_bsize = stat.block_size.into();
    all.f_frsize = stat.block_size.into();
    all.f_blocks = stat.blocks;
    all.f_bfree = stat.blocks_free;
    all.f_bavail = stat.blocks_free;
    all.f_files = stat.inodes;
    all.f_ffree = stat.inodes_free;
    all.f_namelen = stat.name_max.into();
    program::write(to, &all).map(|()| 0)
}

pub(crate) fn fstatfs(to: u64) -> Answer {
    put_statfs(pool::get().ok_or(libc::EIO)?, to)
}

pub(crate) fn statfs(room: &mut Inner, a: [u64; 6]) -> Verdict {
    let out = (libc::SYS_statfs, [PATH, a[1], 0, 0, 0, 0]);
    at_path(
        room,
        (AT_FDCWD as u64, a[0]),
        AtEnd::Follow,
        out,
        |fs, place| {
            place.found()?;
            put_statfs(fs, a[1])
        },
    )
}
