//! Making, removing and moving names.

use arrayvec::ArrayVec;
use libc::{
    AT_EACCESS, AT_FDCWD, AT_REMOVEDIR, AT_SYMLINK_FOLLOW, AT_SYMLINK_NOFOLLOW, EINVAL, EISDIR,
    ENAMETOOLONG, ENOENT, ENOTDIR, EPERM, EXDEV,
};
use pmfs::types::mode;
use pmfs::{Attr, Fs, Ino, NewNode, RenameFlags};
use pmfs_posix::flags::{self, AtCall};
use pmfs_posix::names::{self as posix, Last};
use pmfs_posix::{privileges, rights};

use crate::call::{Answer, Verdict, errno, kernel_answer};
use crate::calls::{at_path, done, peek_at_path};
use crate::descriptors;
use crate::descriptors::pool::fs;
use crate::descriptors::promote;
use crate::descriptors::spare;
use crate::names::cwd;
use crate::names::exe;
use crate::names::gone;
use crate::names::protected;
use crate::names::{self, AtEnd, Lead, Place, find, is_dir};
use crate::own::config;
use crate::own::kernel::{self, PATH};
use crate::own::mountless::{self, Refused};
use crate::program;
use crate::program::credentials::{self, EXECUTE, READ, WRITE, capability};
use crate::program::umask;
use crate::thread::descriptor::Descriptor;
use crate::thread::{Inner, PATH_MAX};

/// The attributes of an inode that this program creates.
pub(super) fn new_node(bits: u32, dir: &Attr) -> NewNode {
    let (uid, gid, bits) =
        credentials::with(|me| (me.uid, me.gid, privileges::bits_of_new(bits, dir, me)));
    NewNode {
        mode: bits & 0o7777,
        umask: umask::get(spare::text_of),
        uid,
        gid,
    }
}

/// Checks that names in a directory may be changed.
///
/// # Errors
/// EACCES.
pub(super) fn allow_change(fs: &Fs, dir: Ino) -> Result<Attr, i32> {
    let mut attr = Attr::default();
    fs.getattr_into(dir, &mut attr).map_err(errno)?;
    credentials::allow(fs, &attr, WRITE)?;
    if !credentials::searches_all() {
        credentials::allow(fs, &attr, EXECUTE)?;
    }
    Ok(attr)
}

/// Checks the place of a new name.
fn vacant(fs: &Fs, place: &Place<'_>, for_dir: bool) -> Result<Attr, i32> {
    posix::allow_making(place.end(), for_dir)?;
    allow_change(fs, place.dir)
}

pub(crate) fn mkdir(room: &mut Inner, dirfd: u64, path: u64, bits: u32) -> Verdict {
    let out = (
        libc::SYS_mkdirat,
        [AT_FDCWD as u64, PATH, bits.into(), 0, 0, 0],
    );
    at_path(room, (dirfd, path), AtEnd::Name, out, |fs, place| {
        let dir = vacant(fs, &place, true)?;
        // A new directory gets only the sticky one of the special bits.
        let node = new_node(bits & 0o1777, &dir);
        done(fs.mkdir(place.dir, place.name, &node).map(drop))
    })
}

/// `[dirfd, path, mode, device]`.
pub(crate) fn mknod(room: &mut Inner, [dirfd, path, bits, device]: [u64; 4]) -> Verdict {
    use mode::{S_IFBLK, S_IFCHR, S_IFIFO, S_IFREG, S_IFSOCK};
    let kind = bits as u32 & mode::S_IFMT;
    if ![0, S_IFREG, S_IFCHR, S_IFBLK, S_IFIFO, S_IFSOCK].contains(&kind) {
        // The kernel refuses it, wherever the path leads.
        return Verdict::Pass;
    }
    let out = (
        libc::SYS_mknodat,
        [AT_FDCWD as u64, PATH, bits, device, 0, 0],
    );
    at_path(room, (dirfd, path), AtEnd::Name, out, |fs, place| {
        let dir = vacant(fs, &place, false)?;
        let node = new_node(bits as u32, &dir);
        let made = match kind {
            S_IFIFO | S_IFSOCK => fs.mknod(place.dir, place.name, &node, kind, 0),
            S_IFCHR | S_IFBLK => {
                if !credentials::with(|me| me.has(capability::MKNOD)) {
                    return Err(EPERM);
                }
                fs.mknod(place.dir, place.name, &node, kind, device as u32)
            }
            _ => fs.create(place.dir, place.name, &node),
        };
        done(made.map(drop))
    })
}

/// The inode that loses a name, and the directory that has the name.
fn victim<'a>(fs: &Fs, place: &Place<'a>) -> Result<(Attr, &'a Attr), i32> {
    let attr = place.found()?;
    let dir = allow_change(fs, place.dir)?;
    credentials::allow_removal(&dir, attr)?;
    Ok((dir, attr))
}

pub(crate) fn unlink(room: &mut Inner, dirfd: u64, path: u64, flags: i32) -> Verdict {
    if let Err(errno) = flags::allow_at(AtCall::Unlink, flags as u64) {
        return Err(errno).into();
    }
    let out = (
        libc::SYS_unlinkat,
        [AT_FDCWD as u64, PATH, flags as u64, 0, 0, 0],
    );
    at_path(room, (dirfd, path), AtEnd::Name, out, |fs, place| {
        if flags & AT_REMOVEDIR != 0 {
            posix::allow_rmdir(place.end())?;
            let (dir, attr) = victim(fs, &place)?;
            if !is_dir(attr) {
                return Err(ENOTDIR);
            }
            fs.rmdir(place.dir, place.name).map_err(errno)?;
            gone::note(&dir, place.name, attr);
            return Ok(0);
        }
        posix::allow_unlink(place.end())?;
        let (dir, attr) = victim(fs, &place)?;
        if is_dir(attr) {
            return Err(EISDIR);
        }
        let removed = fs.unlink_seen(place.dir, place.name, attr.ino);
        removed.map_err(errno)?;
        gone::note(&dir, place.name, attr);
        Ok(0)
    })
}

/// Bytes of a name, at most.
const NAME_MAX: usize = 255;

/// A name in the pool, kept while a second path is looked for.
#[derive(Default)]
struct Name {
    dir: Ino,
    name: ArrayVec<u8, NAME_MAX>,
    attr: Option<Attr>,
    last: Last,
    wants_dir: bool,
}

impl Name {
    fn end(&self) -> posix::End<'_> {
        posix::End {
            last: self.last,
            slash: self.wants_dir,
            attr: self.attr.as_ref(),
        }
    }
}

/// One end of a call with two paths.
enum End {
    Pool(&'static Fs),
    Elsewhere,
    /// A place outside, which the kernel finds by this path.
    Out(Vec<u8>),
}

/// Finds one end of a call. `name` gets it if it is in the pool.
fn end(room: &mut Inner, at: [u64; 2], at_end: AtEnd, name: &mut Name) -> Result<End, i32> {
    Ok(match find(room, at[0], at[1], at_end)? {
        Lead::Kernel => End::Elsewhere,
        Lead::Out(path) => End::Out(path.to_vec()),
        Lead::Pool(fs, place) => {
            name.dir = place.dir;
            name.name
                .try_extend_from_slice(place.name)
                .map_err(|_| ENAMETOOLONG)?;
            name.attr = place.attr.copied();
            name.last = place.last;
            name.wants_dir = place.wants_dir;
            End::Pool(fs)
        }
    })
}

/// Finds both ends of a call in the pool, or the verdict for the call `number`, whose `flags`
/// follow the paths.
fn ends(
    room: &mut Inner,
    [from, to]: [[u64; 2]; 2],
    at_end: AtEnd,
    (number, flags): (i64, u64),
    [first, second]: [&mut Name; 2],
) -> Result<&'static Fs, Verdict> {
    let links = number == libc::SYS_linkat;
    let name = &mut *first;
    let first = end(room, from, at_end, name).map_err(|errno| Verdict::done(Err(errno)))?;
    // A link's source must exist before its name is looked up; a move's need not.
    if links && matches!(first, End::Pool(_)) && name.attr.is_none() {
        return Err(Verdict::done(Err(ENOENT)));
    }
    let second = end(room, to, AtEnd::Name, second).map_err(|errno| Verdict::done(Err(errno)))?;
    let first_is_ours = matches!(first, End::Pool(_));
    match (first, second) {
        (End::Pool(fs), End::Pool(_)) => Ok(fs),
        (End::Pool(..), other) | (other, End::Pool(..)) if mountless::is() => {
            let asked = if first_is_ours { to } else { from };
            Err(Verdict::done(Err(why_not(
                &told(&other, asked),
                first_is_ours,
            ))))
        }
        (End::Elsewhere, End::Elsewhere) if mountless::is() => Err(Verdict::Pass),
        (first, second) if mountless::is() => {
            let args = [told(&first, from), told(&second, to)].concat();
            let args = [args[0], args[1], args[2], args[3], flags, 0];
            // SAFETY: the program's own call, whose paths stay until it is over.
            Err(kernel_answer(unsafe { kernel::call(number, args) }).into())
        }
        // The kernel handles names outside the pool, unless a placeholder names a directory of
        // ours.
        _ if !descriptors::is_placeholder(from[0]) && !descriptors::is_placeholder(to[0]) => {
            Err(Verdict::Pass)
        }
        _ => {
            let asked = if first_is_ours { to } else { from };
            Err(Verdict::done(Err(why_not(&asked, first_is_ours))))
        }
    }
}

/// The error of a link or move between the pool and a path of the kernel: that path's own error,
/// else EXDEV. `is_new`: the path need not exist.
fn why_not([dirfd, path]: &[u64; 2], is_new: bool) -> i32 {
    let mut stat = [0u64; 18];
    let at = stat.as_mut_ptr().expose_provenance() as u64;
    let stay = AT_SYMLINK_NOFOLLOW as u64;
    let args = [*dirfd, *path, at, stay, 0, 0];
    // SAFETY: the program's path; the kernel fills a struct stat.
    let answer = unsafe { kernel::call(libc::SYS_newfstatat, args) };
    match -answer as i32 {
        0 => EXDEV,
        ENOENT if is_new => EXDEV,
        errno => errno,
    }
}

/// The arguments for the kernel of an end outside.
fn told(end: &End, asked: [u64; 2]) -> [u64; 2] {
    match end {
        End::Out(path) => [AT_FDCWD as u64, path.as_ptr().expose_provenance() as u64],
        _ => asked,
    }
}

pub(crate) fn rename(room: &mut Inner, from: [u64; 2], to: [u64; 2], flags: u32) -> Verdict {
    let call = (libc::SYS_renameat2, flags.into());
    // The flags are checked before the names are looked up; the kernel checks them for its own
    // names.
    let flags = match posix::rename_flags(flags) {
        Ok(flags) => flags,
        Err(errno) => return Verdict::done(Err(errno)),
    };
    let mut names = [Name::default(), Name::default()];
    let fs = match ends(room, [from, to], AtEnd::Name, call, names.each_mut()) {
        Ok(fs) => fs,
        Err(verdict) => return verdict,
    };
    let [from, to] = &names;
    let rename = || {
        posix::allow_rename(from.end(), to.end(), flags)?;
        let source = from.attr.as_ref().ok_or(ENOENT)?;
        let dir = allow_change(fs, from.dir)?;
        credentials::allow_removal(&dir, source)?;
        let new_dir = match to.dir == from.dir {
            true => dir,
            false => allow_change(fs, to.dir)?,
        };
        if let Some(there) = &to.attr
            && !flags.contains(RenameFlags::NOREPLACE)
        {
            credentials::allow_removal(&new_dir, there)?;
        }
        if is_dir(source) && from.dir != to.dir {
            credentials::allow(fs, source, WRITE)?;
        }
        let owner = credentials::with(|me| (me.uid, me.gid));
        let seen = (source.ino, to.attr.as_ref().map(|there| there.ino));
        let (old, new) = ((from.dir, &from.name[..]), (to.dir, &to.name[..]));
        let renamed = fs.rename_by(old, new, flags, owner, Some(seen));
        renamed.map_err(errno)?;
        if let Some(there) = &to.attr
            && there.ino != source.ino
            && !flags.contains(RenameFlags::EXCHANGE)
        {
            gone::note(&new_dir, new.1, there);
        }
        Ok(0)
    };
    Verdict::done(rename())
}

/// Checks that a file may get another name.
fn allow_link(fs: &Fs, source: &Attr) -> Result<(), i32> {
    if !protected::HARD_LINKS.is_on() || is_dir(source) {
        return Ok(());
    }
    let both = || credentials::allow(fs, source, READ | WRITE).is_ok();
    credentials::with(|me| rights::allow_link(source, me, both))
}

pub(crate) fn link(room: &mut Inner, from: [u64; 2], to: [u64; 2], flags: i32) -> Verdict {
    if let Err(errno) = flags::allow_at(AtCall::Link, flags as u64) {
        return Err(errno).into();
    }
    if super::attributes::names_descriptor(from[1], flags as u64)
        && let Some(file) = descriptors::inode_at(from[0])
    {
        let out = (libc::SYS_linkat, [0; 6]);
        return at_path(room, (to[0], to[1]), AtEnd::Name, out, |fs, place| {
            vacant(fs, &place, false)?;
            allow_link(fs, &fs.getattr(file.ino).map_err(errno)?)?;
            done(fs.link(file.ino, place.dir, place.name).map(drop))
        });
    }
    let at_end = AtEnd::following(flags & AT_SYMLINK_FOLLOW != 0);
    let call = (libc::SYS_linkat, flags as u64);
    let mut names = [Name::default(), Name::default()];
    let fs = match ends(room, [from, to], at_end, call, names.each_mut()) {
        Ok(fs) => fs,
        Err(verdict) => return verdict,
    };
    let [from, to] = &names;
    let link = || {
        let source = from.attr.as_ref().ok_or(ENOENT)?;
        posix::allow_making(to.end(), false)?;
        allow_change(fs, to.dir)?;
        allow_link(fs, source)?;
        if is_dir(source) {
            return Err(EPERM);
        }
        done(fs.link(source.ino, to.dir, &to.name).map(drop))
    };
    Verdict::done(link())
}

pub(crate) fn symlink(room: &mut Inner, target: u64, dirfd: u64, path: u64) -> Verdict {
    let out = (
        libc::SYS_symlinkat,
        [target, AT_FDCWD as u64, PATH, 0, 0, 0],
    );
    let mut text = Box::new([0; PATH_MAX]);
    at_path(room, (dirfd, path), AtEnd::Name, out, |fs, place| {
        let len = program::path(target, &mut text)?;
        if len == 0 {
            return Err(ENOENT);
        }
        let dir = vacant(fs, &place, false)?;
        let node = new_node(0o777, &dir);
        done(
            fs.symlink(place.dir, place.name, &text[..len], &node)
                .map(drop),
        )
    })
}

/// `[dirfd, path, buffer, size]`.
pub(crate) fn readlink(room: &mut Inner, [dirfd, path, to, size]: [u64; 4]) -> Verdict {
    let out = (
        libc::SYS_readlinkat,
        [AT_FDCWD as u64, PATH, to, size, 0, 0],
    );
    if let Some(file) = names::link_of_descriptor(path, room) {
        return Verdict::done(read_own_link(&file, to, size));
    }
    if mountless::is() {
        let own = names::link_of_process(path, room).map(<[u8]>::to_vec);
        let text = match own.as_deref() {
            Some(b"cwd") if cwd::is_apart(room) => Some(cwd::text(room)),
            Some(b"exe") => exe::own_name().map(|name| Ok(name.to_vec())),
            _ => None,
        };
        if let Some(text) = text {
            return Verdict::done(text.and_then(|text| tell_link(&text, to, size)));
        }
        if program::read::<u8>(path) == Ok(0)
            && let Some(file) = descriptors::inode_at(dirfd)
        {
            return Verdict::done(read_open_link(&file, to, size));
        }
    }
    at_path(room, (dirfd, path), AtEnd::Stay, out, |fs, place| {
        let attr = place.found()?;
        if attr.mode & mode::S_IFMT != mode::S_IFLNK || size as i32 <= 0 {
            return Err(EINVAL);
        }
        tell_link(&fs.readlink(attr.ino).map_err(errno)?, to, size)
    })
}

/// The kernel's text for a descriptor, as if the mount had opened the file.
fn read_own_link(file: &Descriptor, to: u64, size: u64) -> Answer {
    if size as i32 <= 0 {
        return Err(EINVAL);
    }
    let fs = fs()?;
    let attr = fs.getattr(file.ino).map_err(errno)?;
    if attr.links == 0 {
        // The kernel gives this text for a file that never had a name.
        let by_number = || [&config::get().at, format!("/#{}", attr.ino).as_bytes()].concat();
        let path = gone::path(fs, &attr).unwrap_or_else(by_number);
        return tell_link(&[&path[..], b" (deleted)"].concat(), to, size);
    }
    let mut path = promote::path(file)?;
    path.pop();
    tell_link(&path, to, size)
}

/// Reads a link that was itself opened.
fn read_open_link(file: &Descriptor, to: u64, size: u64) -> Answer {
    let fs = fs()?;
    let target = fs.readlink(file.ino).map_err(|_| ENOENT)?;
    tell_link(&target, to, size)
}

fn tell_link(target: &[u8], to: u64, size: u64) -> Answer {
    if size as i32 <= 0 {
        return Err(EINVAL);
    }
    let len = target.len().min(size as usize);
    program::write_bytes(to, &target[..len])?;
    Ok(len as u64)
}

/// `[dirfd, path, mode, flags]`.
pub(crate) fn access(room: &mut Inner, [dirfd, path, want, flags]: [u64; 4]) -> Verdict {
    let judged = flags::allow_access(want).and_then(|()| flags::allow_at(AtCall::Access, flags));
    if let Err(errno) = judged {
        return Err(errno).into();
    }
    let at_end = AtEnd::following(flags & AT_SYMLINK_NOFOLLOW as u64 == 0);
    let out = (
        libc::SYS_faccessat2,
        [AT_FDCWD as u64, PATH, want, flags, 0, 0],
    );
    let effective = flags & AT_EACCESS as u64 != 0 || credentials::ids_agree();
    if !effective && mountless::is() {
        return at_path(room, (dirfd, path), at_end, out, |_, _| {
            Err(mountless::refuse(Refused::Way, libc::EOPNOTSUPP))
        });
    }
    if !effective {
        // The check is for the real user, which the kernel knows how to make.
        return Verdict::Pass;
    }
    let allow = |fs: &Fs, attr: &Attr| {
        if want != 0 {
            let is_of_snapshot = || fs.is_of_snapshot(attr.ino).unwrap_or(false);
            rights::allow_kind(attr, want as u32, is_of_snapshot)?;
            credentials::allow(fs, attr, want as u32)?;
        }
        Ok(0)
    };
    if super::attributes::names_descriptor(path, flags)
        && let Some(file) = descriptors::inode_at(dirfd)
    {
        let answer = || {
            let fs = fs()?;
            allow(fs, &fs.getattr(file.ino).map_err(errno)?)
        };
        return Verdict::done(answer());
    }
    peek_at_path(room, (dirfd, path), at_end, out, |fs, place| {
        allow(fs, place.found()?)
    })
}
