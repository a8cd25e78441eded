//! open(2).

use libc::{
    AT_FDCWD, EACCES, EEXIST, EINVAL, EISDIR, ELOOP, ENOENT, ENOTDIR, EPERM, O_ACCMODE, O_CLOEXEC,
    O_CREAT, O_DIRECT, O_DIRECTORY, O_EXCL, O_NOATIME, O_NOFOLLOW, O_PATH, O_RDONLY, O_TMPFILE,
    O_TRUNC,
};
use pmfs::types::mode;
use pmfs::{Attr, Error, FileId, Fs, Ino, SetAttr};
use pmfs_posix::flags::{allow_openat2, open_flags};
use pmfs_posix::names::Last;
use pmfs_posix::rights;

use crate::call::{Answer, Verdict, errno, kernel_answer};
use crate::calls::names::{allow_change, new_node};
use crate::calls::outside;
use crate::descriptors;
use crate::descriptors::parked;
use crate::descriptors::promote;
use crate::descriptors::spare;
use crate::names::gone;
use crate::names::numbered;
use crate::names::protected;
use crate::names::{AtEnd, Lead, Place, find, is_dir};
use crate::own::kernel::{self, PATH};
use crate::own::mountless::{self, Refused};
use crate::own::stats;
use crate::program;
use crate::program::credentials::{self, READ, WRITE};
use crate::thread::Inner;
use crate::thread::descriptor::{Descriptor, PATH_ONLY};

/// Flags that an open file keeps, for F_GETFL and for writes.
const KEPT: i32 = !(O_CREAT | O_EXCL | O_TRUNC | O_CLOEXEC | libc::O_NOCTTY);
/// O_LARGEFILE as the kernel shows it.
const LARGE: i32 = 0o100_000;
/// A flag of an open file above those of open(2): this open has created the file.
pub(crate) const CREATED: u64 = 1 << 32;

/// The result of an attempt.
enum Tried {
    Opened(Answer),
    /// The engine can't open it (a FIFO, a device, O_PATH): the mount must.
    Through(promote::Way),
    /// The pool's table of open files is full; the mount has none.
    Full(promote::Way),
    /// Another process removed or created the name meanwhile.
    Again,
}

/// The meaning of the path's end for an open with these flags.
#[inline(always)]
fn at_end(flags: i32) -> AtEnd {
    // Most opens have none of these flags.
    if flags & (O_CREAT | O_NOFOLLOW) == 0 {
        return AtEnd::Follow;
    }
    match flags & (O_CREAT | O_EXCL | O_NOFOLLOW) {
        O_CREAT => AtEnd::Make,
        _ if flags & O_CREAT != 0 => AtEnd::MakeNoLink,
        _ => AtEnd::Stay,
    }
}

pub(crate) fn open(room: &mut Inner, dirfd: u64, path: u64, asked: i32, bits: u32) -> Verdict {
    let flags = match open_flags(asked) {
        Ok(flags) => flags,
        Err(errno) => return Err(errno).into(),
    };
    let at_end = at_end(flags);
    loop {
        let lead = find(room, dirfd, path, at_end);
        if !matches!(lead, Ok(Lead::Pool(..))) {
            // The kernel must choose the number.
            parked::flush_parked();
        }
        let (fs, place) = match lead {
            Err(errno) => return Err(errno).into(),
            Ok(Lead::Kernel) if flags & O_DIRECTORY != 0 => {
                return list(room, [dirfd, path, flags as u64, bits.into(), 0, 0]);
            }
            Ok(Lead::Kernel) => return Verdict::Pass,
            Ok(Lead::Out(path)) => {
                let args = [AT_FDCWD as u64, PATH, flags as u64, bits.into(), 0, 0];
                return outside(libc::SYS_openat, args, path).into();
            }
            Ok(Lead::Pool(fs, place)) => (fs, place),
        };
        let by_number = place.by_number;
        let kernel_knows = !descriptors::is_placeholder(dirfd);
        let dir = place
            .attr
            .filter(|attr| flags & O_PATH != 0 && is_dir(attr));
        if let Some(dir) = dir
            && !mountless::is()
            && kernel_knows
            && !by_number
        {
            let asked = [dirfd, path, flags as u64, bits.into(), 0, 0];
            parked::flush_parked();
            return path_only(dir.ino, asked).into();
        }
        match attempt(fs, &place, flags, bits) {
            Tried::Opened(answer) => return answer.into(),
            Tried::Again => {}
            Tried::Full(_) if mountless::is() => return Err(libc::ENFILE).into(),
            Tried::Through(_) if mountless::is() => return Err(refused(place.attr)).into(),
            Tried::Full(way) => {
                stats::promoted();
                parked::flush_parked();
                return promote::open_way(&way, flags, bits).into();
            }
            Tried::Through(way) => {
                parked::flush_parked();
                if kernel_knows && !by_number {
                    // The kernel finds it by the same path, at the mount.
                    return Verdict::Pass;
                }
                return promote::open_way(&way, flags, bits).into();
            }
        }
    }
}

/// Opens a directory of the kernel. It may be the list of this process's descriptors, some of which
/// are not the program's.
fn list(room: &mut Inner, asked: [u64; 6]) -> Verdict {
    let len = room.paths[0].iter().position(|byte| *byte == 0);
    if !len.is_some_and(|len| numbered::is_list_itself(&room.paths[0][..len])) {
        return Verdict::Pass;
    }
    let opened = || {
        // SAFETY: the program's own call.
        let opened = kernel_answer(unsafe { kernel::call(libc::SYS_openat, asked) })?;
        if opened < descriptors::COUNT as u64 {
            descriptors::set(opened as i32, Descriptor::list());
        }
        Ok(opened)
    };
    Verdict::done(opened())
}

/// Opens a directory as a start for names: a descriptor of the kernel whose place is known here.
fn path_only(ino: Ino, asked: [u64; 6]) -> Answer {
    // SAFETY: the program's own call.
    let opened = kernel_answer(unsafe { kernel::call(libc::SYS_openat, asked) })?;
    if opened < descriptors::COUNT as u64 {
        descriptors::set(opened as i32, Descriptor::path_only(ino));
    }
    Ok(opened)
}

/// Opens with O_PATH, without a mount: a descriptor with fewer uses.
fn place(fs: &'static Fs, attr: &Attr, flags: i32) -> Tried {
    if flags & O_DIRECTORY != 0 && !is_dir(attr) {
        return Tried::Opened(Err(ENOTDIR));
    }
    // O_PATH drops all other flags.
    let flags = flags & (O_PATH | O_CLOEXEC | O_DIRECTORY | O_NOFOLLOW);
    match finish(fs, attr, flags) {
        Err(libc::ESTALE) => Tried::Again,
        answer => Tried::Opened(answer),
    }
}

/// The error for opening a special file where there is no mount.
fn refused(attr: Option<&Attr>) -> i32 {
    let kind = attr.map_or(0, |attr| attr.mode & mode::S_IFMT);
    match kind {
        // The kernel gives this error for all of them.
        mode::S_IFSOCK => libc::ENXIO,
        mode::S_IFIFO => mountless::refuse(Refused::Special, libc::EOPNOTSUPP),
        _ => mountless::refuse(Refused::Special, libc::ENXIO),
    }
}

fn attempt(fs: &'static Fs, place: &Place<'_>, flags: i32, bits: u32) -> Tried {
    if flags & O_PATH != 0 {
        return match place.attr {
            Some(attr) if mountless::is() => self::place(fs, attr, flags),
            Some(_) => Tried::Through(place.way()),
            None => Tried::Opened(Err(ENOENT)),
        };
    }
    if flags & O_TMPFILE == O_TMPFILE {
        return Tried::Opened(unnamed(fs, place, flags, bits));
    }
    let Some(attr) = place.attr else {
        return create(fs, place, flags, bits);
    };
    if flags & O_CREAT != 0 && flags & O_EXCL != 0 {
        return Tried::Opened(Err(EEXIST));
    }
    if flags & O_CREAT != 0
        && let Err(errno) = allow_to_make(fs, place, attr)
    {
        return Tried::Opened(Err(errno));
    }
    match attr.mode & mode::S_IFMT {
        mode::S_IFREG | mode::S_IFDIR => {}
        _ if flags & O_DIRECTORY != 0 => return Tried::Opened(Err(ENOTDIR)),
        mode::S_IFLNK => return Tried::Opened(Err(ELOOP)),
        _ => return Tried::Through(place.way()),
    }
    if let Err(errno) = allow(fs, attr, flags) {
        return Tried::Opened(Err(errno));
    }
    // With this access mode Linux allows neither reads nor writes, only requests to a device.
    if flags & O_ACCMODE == O_ACCMODE {
        return match mountless::is() {
            true => Tried::Opened(Err(EINVAL)),
            false => Tried::Through(place.way()),
        };
    }
    match finish(fs, attr, flags) {
        Err(libc::ESTALE) => Tried::Again,
        Err(libc::ENFILE) => Tried::Full(place.way()),
        answer => Tried::Opened(answer),
    }
}

/// Checks that an existing file may be opened with O_CREAT, under the machine's protections.
#[cold]
fn allow_to_make(fs: &Fs, place: &Place<'_>, attr: &Attr) -> Result<(), i32> {
    // A descriptor's name is in no protected directory.
    if is_dir(attr) || place.by_number || credentials::with(|me| me.uid == attr.uid) {
        return Ok(());
    }
    let dir = fs.getattr(place.dir).map_err(errno)?;
    let level = |kind| match kind {
        mode::S_IFIFO => protected::FIFOS.level(),
        _ => protected::FILES.level(),
    };
    credentials::with(|me| rights::allow_opening_to_make(&dir, attr, me, level))
}

/// Checks that an existing file may be opened with these flags.
fn allow(fs: &Fs, attr: &Attr, flags: i32) -> Result<(), i32> {
    let access = flags & O_ACCMODE;
    if is_dir(attr) && (access != O_RDONLY || flags & (O_CREAT | O_TRUNC) != 0) {
        return Err(EISDIR);
    }
    if !is_dir(attr) && flags & O_DIRECTORY != 0 {
        return Err(ENOTDIR);
    }
    let mut want = if access == libc::O_WRONLY { 0 } else { READ };
    if access != O_RDONLY || flags & O_TRUNC != 0 {
        want |= WRITE;
    }
    credentials::allow(fs, attr, want)?;
    if want & WRITE != 0 {
        promote::allow_writing(attr)?;
    }
    if is_dir(attr) && flags & O_DIRECT != 0 {
        return Err(EINVAL);
    }
    if flags & O_NOATIME != 0 {
        credentials::allow_owner(attr).map_err(|_| EPERM)?;
    }
    Ok(())
}

fn create(fs: &'static Fs, place: &Place<'_>, flags: i32, bits: u32) -> Tried {
    if flags & O_CREAT == 0 {
        return Tried::Opened(Err(ENOENT));
    }
    if place.last != Last::Name {
        return Tried::Opened(Err(EISDIR));
    }
    let dir = match allow_change(fs, place.dir) {
        Ok(dir) => dir,
        Err(errno) => return Tried::Opened(Err(errno)),
    };
    let number = match number(flags) {
        Ok(number) => number,
        Err(errno) => return Tried::Opened(Err(errno)),
    };
    match fs.create(place.dir, place.name, &new_node(bits, &dir)) {
        Ok(attr) => match finish_as(fs, &attr, flags & !O_TRUNC, CREATED, number) {
            Err(libc::ESTALE) => Tried::Again,
            Err(libc::ENFILE) => Tried::Full(promote::Way::of_inode(&attr)),
            answer => Tried::Opened(answer),
        },
        Err(error) => {
            give_back(number, flags);
            match error {
                Error::Exists if flags & O_EXCL == 0 => Tried::Again,
                error => Tried::Opened(Err(errno(error))),
            }
        }
    }
}

/// Creates a file without a name.
fn unnamed(fs: &'static Fs, place: &Place<'_>, flags: i32, bits: u32) -> Answer {
    let dir = place.found()?;
    if !is_dir(dir) {
        return Err(ENOTDIR);
    }
    allow_change(fs, dir.ino).map_err(|_| EACCES)?;
    let number = number(flags)?;
    let attr = fs.tmpfile(dir.ino, &new_node(bits, dir)).map_err(|error| {
        give_back(number, flags);
        errno(error)
    })?;
    let opened = finish_as(fs, &attr, flags & !(O_TMPFILE | O_TRUNC), 0, number);
    if opened.is_ok() {
        gone::note_unnamed(dir, &attr);
    }
    // From now on the open file holds the inode.
    let _ = fs.release(attr.ino);
    opened
}

/// Takes the number for the open file, before anything is created or truncated.
///
/// # Errors
/// EMFILE.
fn number(flags: i32) -> Result<i32, i32> {
    descriptors::placeholder(0, flags & O_CLOEXEC == 0)
}

/// Gives back a number that has no meaning yet.
fn give_back(number: i32, flags: i32) {
    parked::close(number as u64, Some(flags & O_CLOEXEC == 0));
}

/// Makes a descriptor for an inode that may be opened.
fn finish(fs: &'static Fs, attr: &Attr, flags: i32) -> Answer {
    finish_as(fs, attr, flags, 0, number(flags)?)
}

/// Makes a descriptor as [`finish`] does, at a given number and with more state of the open file.
fn finish_as(fs: &'static Fs, attr: &Attr, flags: i32, more: u64, number: i32) -> Answer {
    let opened = open_found(fs, attr, flags, more);
    match opened {
        Ok(file) => {
            let descriptor = Descriptor {
                file,
                ino: attr.ino,
                access: if flags & O_PATH != 0 {
                    PATH_ONLY
                } else {
                    flags & O_ACCMODE
                },
                is_dir: is_dir(attr),
                borrowed: false,
            };
            descriptors::set(number, descriptor);
            descriptors::set_on_exec(number as u64, flags & O_CLOEXEC == 0);
            Ok(number as u64)
        }
        Err(errno) => {
            give_back(number, flags);
            Err(errno)
        }
    }
}

/// Opens the file, and truncates it if asked.
fn open_found(fs: &'static Fs, attr: &Attr, flags: i32, more: u64) -> Result<FileId, i32> {
    let kept = (flags & KEPT | LARGE) as u32;
    let file = fs.open_found(attr, u64::from(kept) | more).map_err(errno)?;
    let empty = || {
        if flags & O_TRUNC != 0 && !is_dir(attr) {
            credentials::drop_privileges(fs, attr.ino)?;
        }
        if flags & O_TRUNC != 0 && !is_dir(attr) && attr.size > 0 {
            let set = SetAttr {
                size: Some(0),
                ..SetAttr::default()
            };
            fs.setattr(attr.ino, &set).map_err(errno)?;
        }
        Ok(file)
    };
    empty().inspect_err(|_| {
        let _ = fs.close_file(file);
    })
}

/// Reads the program's struct open_how. Later kernels may have a longer one: its new fields must be
/// 0.
fn how(at: u64, bytes: u64) -> Result<[u64; 3], i32> {
    const BYTES: u64 = 24;
    const PAGE_BYTES: u64 = 4096;
    if bytes < BYTES {
        return Err(EINVAL);
    }
    if bytes > PAGE_BYTES {
        return Err(libc::E2BIG);
    }
    let how = program::read(at)?;
    let mut more = vec![0; (bytes - BYTES) as usize];
    program::read_bytes(at.wrapping_add(BYTES), &mut more)?;
    if more.iter().any(|byte| *byte != 0) {
        return Err(libc::E2BIG);
    }
    allow_openat2(how)?;
    Ok(how)
}

/// Serves openat2(2). Without ways to resolve it is openat; with them the kernel executes it, at
/// the mount.
pub(crate) fn openat2(room: &mut Inner, a: [u64; 6]) -> Verdict {
    match how(a[2], a[3]) {
        Err(errno) => Err(errno).into(),
        Ok([flags, bits, 0]) => open(room, a[0], a[1], flags as i32, bits as u32),
        Ok(_) if mountless::is() => match find(room, a[0], a[1], AtEnd::Follow) {
            Err(errno) => Err(errno).into(),
            Ok(Lead::Kernel) => Verdict::Pass,
            // A kernel without the call gives this error.
            Ok(_) => Err(mountless::refuse(Refused::Way, libc::ENOSYS)).into(),
        },
        Ok(_) => match descriptors::get(a[0]).filter(|dir| !dir.is_path_only()) {
            None => Verdict::Pass,
            Some(dir) => {
                let _lent = spare::lend();
                let through = match promote::open(&dir) {
                    Ok(through) => through as u64,
                    Err(errno) => return Err(errno).into(),
                };
                // SAFETY: the program's own call, with another descriptor.
                let answer =
                    unsafe { kernel::call(libc::SYS_openat2, [through, a[1], a[2], a[3], 0, 0]) };
                kernel::plain(libc::SYS_close, &[through]);
                kernel_answer(answer).into()
            }
        },
    }
}
