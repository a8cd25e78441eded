//! Where a path of the program's leads: to a place in the pool, or to somewhere that the kernel has to look for.
//!
//! Only names that surely lead into the pool are walked here: absolute ones below the directory
//! that stands for it, and those relative to a directory in it. What leaves again (`..` at the
//! root, a link to elsewhere) and what enters on other ways is the kernel's, whose walk ends at the
//! mount (docs/adr/0052-other-names.md).

pub(crate) mod cwd;
pub(crate) mod empty_name;
pub(crate) mod numbered;
pub(crate) mod outside;
pub(crate) mod protected;

use std::sync::atomic::{AtomicBool, Ordering};

use libc::{EISDIR, ELOOP, ENAMETOOLONG, ENOENT, ENOTDIR, ENXIO};
use pmfs::types::mode;
use pmfs::{Attr, Error, Fs, INODE_NAME, Ino, ROOT_INO};
pub(crate) use pmfs_posix::names::is_dir;
use pmfs_posix::names::{self as posix, Last};
use pmfs_posix::rights;

use crate::call::errno;
use crate::descriptors;
use crate::descriptors::pool;
use crate::entry::parked;
use crate::names::cwd::Cwd;
use crate::own::config;
use crate::own::mountless;
use crate::own::thread::{Inner, PATH_MAX};
use crate::process::guest;
use crate::program;
use crate::program::credentials::{self, EXECUTE};

/// As many links as the kernel follows.
pub(crate) const LINKS_MAX: u32 = 40;

/// A name in a directory of the pool, and what stands there.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place<'a> {
    /// The directory.
    pub dir: Ino,
    /// The last name; empty: the path ends in the directory itself ("." and "..", or nothing).
    pub name: &'a [u8],
    /// What it ends in.
    pub last: Last,
    /// What is there: in the thread's room, until the next path is followed.
    pub attr: Option<&'a Attr>,
    /// The path ends with a slash: only a directory will do.
    pub wants_dir: bool,
    /// It was found by the name of a descriptor, by which the kernel would find a placeholder.
    pub by_number: bool,
}

/// What a call means by the end of its path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AtEnd {
    /// What a link there leads to.
    Follow,
    /// A link itself, unless a slash stands behind it.
    Stay,
    /// The name: it is made, removed or moved, and a link is not followed, whatever stands behind it.
    Name,
    /// A file, made if it is not there (O_CREAT): no slash may stand behind. A link is followed.
    Make,
    /// The same, and a link is not followed.
    MakeNoLink,
}

impl AtEnd {
    /// Of a call that has a flag for it.
    pub fn following(follow: bool) -> AtEnd {
        if follow { AtEnd::Follow } else { AtEnd::Stay }
    }

    /// Whether a link at the end is followed; `slash`: one stands behind it.
    pub fn follows(self, slash: bool) -> bool {
        match self {
            AtEnd::Follow | AtEnd::Make => true,
            AtEnd::Stay => slash,
            AtEnd::Name | AtEnd::MakeNoLink => false,
        }
    }

    /// As [`AtEnd::follows`], by what stands behind the last name: nothing, or slashes. False also where there is more of a path.
    pub fn stays_at(self, rest: &[u8]) -> bool {
        rest.iter().all(|byte| *byte == b'/') && !self.follows(!rest.is_empty())
    }
}

/// Where a path leads.
pub(crate) enum Lead<'a> {
    /// Into the pool.
    Pool(&'static Fs, Place<'a>),
    /// Not into it: the call goes to the kernel as it is.
    Kernel,
    /// Out of it again, or left to the mount: the call goes to the kernel with this path, ended by a NUL.
    Out(&'a [u8]),
}

impl<'a> Place<'a> {
    /// What is there.
    ///
    /// # Errors
    /// ENOENT; ENOTDIR.
    pub fn found(&self) -> Result<&'a Attr, i32> {
        self.attr.ok_or(ENOENT)
    }

    /// For the rules of what may be made, removed or moved.
    pub fn end(&self) -> posix::End<'a> {
        posix::End {
            last: self.last,
            slash: self.wants_dir,
            attr: self.attr,
        }
    }
}

/// Names mean something else from now on (another root, other mounts).
static ELSEWHERE_ALL: AtomicBool = AtomicBool::new(false);
/// They do for some guest, or did.
static ELSEWHERE_FOR_GUESTS: AtomicBool = AtomicBool::new(false);

/// Absolute names and those relative to the working directory are the kernel's from now on.
pub(crate) fn leave_to_kernel() {
    ELSEWHERE_ALL.store(true, Ordering::Relaxed);
}

/// The same for the guest that asks.
pub(crate) fn leave_to_kernel_for_guest(own: &mut guest::Own) {
    own.is_elsewhere = true;
    ELSEWHERE_FOR_GUESTS.store(true, Ordering::Relaxed);
}

#[inline]
pub(crate) fn are_the_kernels() -> bool {
    ELSEWHERE_ALL.load(Ordering::Relaxed)
        || ELSEWHERE_FOR_GUESTS.load(Ordering::Relaxed)
            && guest::own().is_some_and(|own| own.is_elsewhere)
}

/// What of a path lies behind these names, with which it has to begin.
fn behind(path: &[u8], names: &[u8]) -> Option<usize> {
    let mut from = 0;
    while let Some(rest) = path[from..].strip_prefix(b"./") {
        from = path.len() - rest.len();
        while path.get(from) == Some(&b'/') {
            from += 1;
        }
    }
    let rest = path[from..].strip_prefix(names)?;
    (rest.is_empty() || rest[0] == b'/').then_some(path.len() - rest.len())
}

/// What of an absolute path lies below the pool's directory.
pub(crate) fn below(path: &[u8]) -> Option<usize> {
    let at = &config::get().at;
    let rest = path.strip_prefix(at.as_slice())?;
    (rest.is_empty() || rest[0] == b'/').then_some(at.len())
}

/// As many bytes of a path tell.
const HEAD: usize = 64;

/// Whether a path leads elsewhere, by its first bytes: it is absolute and not below the pool's directory, and names no descriptor.
fn is_plainly_elsewhere(path: u64) -> bool {
    let at = &config::get().at[..];
    let len = HEAD.min(at.len());
    let mut room = [0; HEAD];
    let head = &mut room[..len];
    // What lies on the page behind may not be there, if the path ends before.
    let fits = program::to_page_end(path) >= len;
    fits && len > 1
        && program::read_bytes(path, head).is_ok()
        && head[0] == b'/'
        && !numbered::BEGINS.contains(&head[1])
        && head[..] != at[..len]
}

/// How the mount's names of inodes begin: `/` and [`INODE_NAME`].
pub(crate) const BY_INODE: [u8; INODE_NAME.len() + 1] = {
    let mut name = [b'/'; INODE_NAME.len() + 1];
    let (_, rest) = name.split_at_mut(1);
    rest.copy_from_slice(INODE_NAME);
    name
};

/// Finds where a path of the program's leads.
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

/// As [`find`], for a call that merely looks at what is there: the kernel's walk through the mount may do.
///
/// # Errors
/// As there.
pub(crate) fn find_to_look(
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

/// Where a walk has ended: positions in the room's pages instead of references into them.
pub(crate) enum Walked {
    Kernel,
    /// The path of this length, on this page.
    Out(usize, usize),
    /// On this page.
    End(&'static Fs, usize, End),
    /// At an inode itself, without a name; its attributes are in the room.
    Whole(&'static Fs, Ino),
}

impl Walked {
    fn lead(self, room: &Inner) -> Lead<'_> {
        match self {
            Walked::Kernel => Lead::Kernel,
            Walked::Out(page, len) => Lead::Out(&room.paths[page][..=len]),
            Walked::Whole(fs, ino) => {
                let place = Place {
                    dir: ino,
                    name: &[],
                    last: Last::Root,
                    attr: Some(&room.attr),
                    wants_dir: false,
                    by_number: true,
                };
                Lead::Pool(fs, place)
            }
            Walked::End(fs, page, end) => {
                let place = Place {
                    dir: end.dir,
                    name: &room.paths[page][end.name],
                    last: end.last,
                    attr: end.found.then_some(&room.attr),
                    wants_dir: end.wants_dir,
                    by_number: false,
                };
                Lead::Pool(fs, place)
            }
        }
    }
}

/// Where there is a mount.
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
            // The mount alone knows these.
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
    // A descriptor of the pool's means nothing to the kernel.
    if looks && !by_descriptor && pool::is_spared() {
        return Ok(Walked::Out(0, len));
    }
    let Some(fs) = pool::get() else {
        return Ok(Walked::Kernel);
    };
    walk(fs, room, start, 0, from..len, at_end)
}

/// A path that begins in the list of this process's descriptors.
pub(crate) fn in_list(room: &mut Inner, len: usize, at_end: AtEnd) -> Result<Walked, i32> {
    let (first, second) = room.paths.split_at_mut(1);
    let whole = numbered::LIST.len() + len;
    if whole >= PATH_MAX {
        return Err(ENAMETOOLONG);
    }
    let (head, rest) = second[0].split_at_mut(numbered::LIST.len());
    head.copy_from_slice(numbered::LIST);
    rest[..=len].copy_from_slice(&first[0][..=len]);
    by_number(room, 1, whole, at_end)
}

/// An absolute path that does not lead into the pool, unless by way of a descriptor of ours.
pub(crate) fn by_number(
    room: &mut Inner,
    page: usize,
    len: usize,
    at_end: AtEnd,
) -> Result<Walked, i32> {
    let path = &room.paths[page][..len];
    let Some(named) = numbered::descriptor(path) else {
        if numbered::is_placeholder_of_another(path, at_end) {
            // What it stands for is that process's affair: as the kernel answers for a socket.
            return Err(ENXIO);
        }
        return Ok(Walked::Kernel);
    };
    parked::is_named(named.number);
    let (Some(file), Some(fs)) = (descriptors::inode_at(named.number), pool::get()) else {
        return Ok(Walked::Kernel);
    };
    let rest = named.rest;
    let tail = &path[rest..];
    if tail.iter().any(|byte| *byte != b'/') {
        if !file.is_dir {
            return Err(ENOTDIR);
        }
        return walk(fs, room, file.ino, page, rest..len, at_end);
    }
    if at_end.stays_at(tail) {
        // The link itself is the kernel's.
        return Ok(Walked::Kernel);
    }
    if !tail.is_empty() && !file.is_dir {
        return Err(ENOTDIR);
    }
    whole(room, fs, file.ino)
}

/// An inode itself, without a name.
pub(crate) fn whole(room: &mut Inner, fs: &'static Fs, ino: Ino) -> Result<Walked, i32> {
    fs.getattr_into(ino, &mut room.attr).map_err(errno)?;
    Ok(Walked::Whole(fs, ino))
}

/// The descriptor of ours whose link in a list of descriptors a path names.
pub(crate) fn link_of_descriptor(path: u64, room: &mut Inner) -> Option<descriptors::Descriptor> {
    let len = program::path(path, &mut room.paths[0]).ok()?;
    let path = &room.paths[0][..len];
    let named = numbered::descriptor(path)?;
    parked::is_named(named.number);
    descriptors::inode_at(named.number).filter(|_| named.is_entry && named.rest == len)
}

/// The name of a link below `/proc/self` that a path names.
pub(crate) fn link_of_process(path: u64, room: &mut Inner) -> Option<&[u8]> {
    let len = program::path(path, &mut room.paths[0]).ok()?;
    let (link, rest) = numbered::own_link(&room.paths[0][..len])?;
    rest.is_empty().then_some(link)
}

/// One step of a walk.
enum Step {
    /// A link is to be followed: its target, from where in the path what follows begins.
    Link(Vec<u8>, usize),
    /// `..` at the root: what follows begins there.
    Up(usize),
    End(End),
}

/// The end of a walk: positions in the path instead of references into it.
pub(crate) struct End {
    dir: Ino,
    name: std::ops::Range<usize>,
    last: Last,
    /// Whether something is there; its attributes are in the room.
    found: bool,
    wants_dir: bool,
}

pub(crate) fn walk(
    fs: &'static Fs,
    room: &mut Inner,
    start: Ino,
    page: usize,
    range: std::ops::Range<usize>,
    at_end: AtEnd,
) -> Result<Walked, i32> {
    let (mut start, mut range, mut page, mut links) = (start, range, page, 0);
    loop {
        match steps(
            fs,
            &mut start,
            &room.paths[page][..range.end],
            range.start,
            at_end,
            &mut room.attr,
        )? {
            Step::End(end) => return Ok(Walked::End(fs, page, end)),
            Step::Up(rest) => {
                let at = &config::get().at;
                let out = if mountless::is() {
                    let above = at.iter().rposition(|byte| *byte == b'/').unwrap_or(0);
                    put(room, page, &[&at[..above], b"/"], rest..range.end)?
                } else {
                    put(room, page, &[at, b"/.."], rest..range.end)?
                };
                return Ok(Walked::Out(1 - page, out));
            }
            Step::Link(target, rest) => {
                links += 1;
                if links > LINKS_MAX {
                    return Err(ELOOP);
                }
                let len = put(room, page, &[&target], rest..range.end)?;
                page = 1 - page;
                if target.first() == Some(&b'/') {
                    let Some(from) = below(&room.paths[page][..len]) else {
                        let numbered = numbered::descriptor(&room.paths[page][..len]);
                        return match numbered.and_then(|named| descriptors::inode_at(named.number))
                        {
                            // Links of links were followed as far as they lead: what is left is followed too.
                            Some(_) => by_number(room, page, len, AtEnd::Follow),
                            None => Ok(Walked::Out(page, len)),
                        };
                    };
                    start = ROOT_INO;
                    range = from..len;
                } else {
                    range = 0..len;
                }
            }
        }
    }
}

/// Puts a path together on the other page: the head, and what is left of the one on this page. Answers its length without NUL.
fn put(
    room: &mut Inner,
    page: usize,
    head: &[&[u8]],
    rest: std::ops::Range<usize>,
) -> Result<usize, i32> {
    let (first, second) = room.paths.split_at_mut(1);
    let (from, to) = if page == 0 {
        (&first[0], &mut second[0])
    } else {
        (&second[0], &mut first[0])
    };
    let mut len = 0;
    for part in head.iter().copied().chain([&from[rest]]) {
        let end = len + part.len();
        if end >= PATH_MAX {
            return Err(ENAMETOOLONG);
        }
        to[len..end].copy_from_slice(part);
        len = end;
    }
    to[len] = 0;
    Ok(len)
}

/// Where what follows slashes begins.
fn behind_slashes(path: &[u8], at: usize) -> usize {
    at + path[at..].iter().take_while(|byte| **byte == b'/').count()
}

/// Goes along a path until a link has to be followed, or to its end; `attr` is what it has come to.
fn steps(
    fs: &Fs,
    dir: &mut Ino,
    path: &[u8],
    from: usize,
    at_end: AtEnd,
    attr: &mut Attr,
) -> Result<Step, i32> {
    let mut here = false;
    let mut at = behind_slashes(path, from);
    if at == path.len() {
        fs.getattr_into(*dir, attr).map_err(errno)?;
        let ended = End {
            dir: *dir,
            name: 0..0,
            last: Last::Root,
            found: true,
            wants_dir: false,
        };
        return Ok(Step::End(ended));
    }
    loop {
        let end = at + path[at..].iter().take_while(|byte| **byte != b'/').count();
        let name = at..end;
        let next = behind_slashes(path, end);
        let last = next == path.len();
        let wants_dir = last && next > end;
        if !credentials::searches_all() {
            if !here {
                fs.getattr_into(*dir, attr).map_err(errno)?;
            }
            allow_search(fs, attr)?;
        }
        let ended = Last::of(&path[name.clone()]);
        if ended == Last::DotDot && *dir == ROOT_INO {
            return Ok(Step::Up(end));
        }
        if wants_dir && ended == Last::Name && matches!(at_end, AtEnd::Make | AtEnd::MakeNoLink) {
            return Err(EISDIR);
        }
        let found = match fs.lookup_into(*dir, &path[name.clone()], attr) {
            Ok(()) => true,
            Err(Error::NotFound) if last => false,
            Err(error) => return Err(errno(error)),
        };
        if found && is_link(attr) && (!last || at_end.follows(wants_dir)) {
            if last {
                allow_following(fs, *dir, attr)?;
            }
            return Ok(Step::Link(fs.readlink(attr.ino).map_err(errno)?, end));
        }
        if last {
            if wants_dir && found && at_end != AtEnd::Name && !is_dir(attr) {
                return Err(ENOTDIR);
            }
            let name = if ended == Last::Name { name } else { 0..0 };
            return Ok(Step::End(End {
                dir: *dir,
                name,
                last: ended,
                found,
                wants_dir,
            }));
        }
        here = true;
        *dir = attr.ino;
        at = next;
    }
}

/// Whether a link at the end of a path may be followed, where the machine protects them.
fn allow_following(fs: &Fs, dir: Ino, link: &Attr) -> Result<(), i32> {
    if !protected::SYMBOLIC_LINKS.is_on() {
        return Ok(());
    }
    let dir = fs.getattr(dir).map_err(errno)?;
    credentials::with(|me| rights::allow_following(&dir, link, me))
}

fn is_link(attr: &Attr) -> bool {
    attr.mode & mode::S_IFMT == mode::S_IFLNK
}

/// Whether this process may look names up in it.
fn allow_search(fs: &Fs, attr: &Attr) -> Result<(), i32> {
    if !is_dir(attr) {
        return Err(ENOTDIR);
    }
    credentials::allow(fs, attr, EXECUTE)
}

#[cfg(test)]
mod tests {
    use super::behind;

    #[test]
    fn names_that_lead_down() {
        let names = b"mnt/pool";
        assert_eq!(behind(b"mnt/pool", names), Some(8));
        assert_eq!(behind(b"mnt/pool/file", names), Some(8));
        assert_eq!(behind(b".///./mnt/pool/file", names), Some(14));
        for other in [
            &b"mnt/pools"[..],
            b"mnt",
            b"mnt//pool/file",
            b"../mnt/pool",
            b"",
            b".",
        ] {
            assert_eq!(behind(other, names), None);
        }
    }
}
