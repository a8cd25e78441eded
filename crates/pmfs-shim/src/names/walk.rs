//! Walks along paths, in the pool and through its descriptors.

use libc::{EISDIR, ELOOP, ENAMETOOLONG, ENOTDIR, ENXIO};
use pmfs::types::mode;
use pmfs::{Attr, Error, Fs, Ino, ROOT_INO};
use pmfs_posix::names::{Last, is_dir};
use pmfs_posix::rights;

use crate::call::errno;
use crate::descriptors;
use crate::descriptors::parked;
use crate::descriptors::pool;
use crate::names::numbered;
use crate::names::place::{AtEnd, End, Walked};
use crate::names::protected;
use crate::names::reach::below;
use crate::own::config;
use crate::own::mountless;
use crate::program;
use crate::program::credentials::{self, EXECUTE};
use crate::thread::descriptor::Descriptor;
use crate::thread::{Inner, PATH_MAX};

/// The most links that the kernel follows.
pub(crate) const LINKS_MAX: u32 = 40;

/// Walks along a path that begins in the list of this process's descriptors.
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

/// Walks along an absolute path that does not lead into the pool, except through a descriptor of
/// the pool.
pub(crate) fn by_number(
    room: &mut Inner,
    page: usize,
    len: usize,
    at_end: AtEnd,
) -> Result<Walked, i32> {
    let path = &room.paths[page][..len];
    let Some(named) = numbered::descriptor(path) else {
        if numbered::is_placeholder_of_another(path, at_end) {
            // Only that process knows the file; the kernel gives this error for a socket.
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
        // The link itself belongs to the kernel.
        return Ok(Walked::Kernel);
    }
    if !tail.is_empty() && !file.is_dir {
        return Err(ENOTDIR);
    }
    whole(room, fs, file.ino)
}

/// Ends a walk at an inode itself, without a name.
pub(crate) fn whole(room: &mut Inner, fs: &'static Fs, ino: Ino) -> Result<Walked, i32> {
    fs.getattr_into(ino, &mut room.attr).map_err(errno)?;
    Ok(Walked::Whole(fs, ino))
}

/// The descriptor of the pool whose link in a list of descriptors a path names.
pub(crate) fn link_of_descriptor(path: u64, room: &mut Inner) -> Option<Descriptor> {
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
    /// A link must be followed: its target, and the position in the path where the rest begins.
    Link(Vec<u8>, usize),
    /// `..` at the root: the position where the rest begins.
    Up(usize),
    End(End),
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
                            // The links of links were followed as far as they lead; the rest is
                            // followed too.
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

/// Builds a path on the other page: the head, and the rest of the one on this page. Returns its
/// length without NUL.
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

/// The position behind slashes.
fn behind_slashes(path: &[u8], at: usize) -> usize {
    at + path[at..].iter().take_while(|byte| **byte == b'/').count()
}

/// Walks along a path to a link that must be followed, or to its end; `attr` gets the inode's
/// attributes.
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

/// Checks that a link at the end of a path may be followed, under the machine's protections.
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

/// Checks that this process may search a directory.
fn allow_search(fs: &Fs, attr: &Attr) -> Result<(), i32> {
    if !is_dir(attr) {
        return Err(ENOTDIR);
    }
    credentials::allow(fs, attr, EXECUTE)
}
