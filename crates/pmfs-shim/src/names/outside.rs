//! Names without a mount. No walk of the kernel ends in the pool, so this library follows each name
//! that may lead there, through `..` or links from outside.
//!
//! The kernel is asked once whether a path outside has links (openat2(2), which opens nothing), and
//! only then is it followed link by link. A path that does not lead into the pool goes to the
//! kernel unchanged.

use libc::{AT_FDCWD, ELOOP, ENAMETOOLONG, ENOENT, ENOTDIR, O_CLOEXEC, O_NOFOLLOW, O_PATH};
use pmfs::ROOT_INO;

use crate::call::kernel_answer;
use crate::descriptors;
use crate::descriptors::pool;
use crate::descriptors::spare;
use crate::names::cwd::{self, Cwd};
use crate::names::exe;
use crate::names::numbered;
use crate::names::place::{AtEnd, Walked};
use crate::names::reach::{self, BY_INODE, below};
use crate::names::walk::{self, LINKS_MAX};
use crate::own::config;
use crate::own::kernel::{self, PATH};
use crate::thread::{Inner, PATH_MAX};

/// Finds the place that the path on the room's first page leads to.
///
/// # Errors
/// ENOENT, ENOTDIR, ELOOP, ENAMETOOLONG, EACCES; the engine's; why the pool can't be attached.
pub(crate) fn find(room: &mut Inner, dirfd: u64, len: usize, at_end: AtEnd) -> Result<Walked, i32> {
    let path = room.paths[0][..len].to_vec();
    if path.first() == Some(&b'/') {
        return enter(room, path, at_end, false);
    }
    let base = if dirfd as i32 == AT_FDCWD {
        if let Cwd::Inside(ino) = cwd::get(room) {
            return below_directory(room, ino, len, at_end);
        }
        match cwd::text(room) {
            Ok(text) => text,
            // The kernel's directory has no name.
            Err(_) => return Ok(Walked::Kernel),
        }
    } else {
        match descriptors::get(dirfd) {
            Some(dir) if dir.is_list() => return walk::in_list(room, len, at_end),
            Some(dir) if dir.is_dir => return below_directory(room, dir.ino, len, at_end),
            Some(_) if len == 0 => return Err(ENOENT),
            Some(_) => return Err(ENOTDIR),
            None if descriptors::is_own(dirfd) => return Err(libc::EBADF),
            None => match link(format!("/proc/self/fd/{}\0", dirfd as i32).as_bytes()) {
                Some(text) => text,
                None => return Ok(Walked::Kernel),
            },
        }
    };
    if len == 0 || base.first() != Some(&b'/') {
        return Ok(Walked::Kernel);
    }
    let whole = [&base[..], b"/", &path].concat();
    if whole.len() >= PATH_MAX {
        // A path with more links outside is left to the kernel.
        return Ok(Walked::Kernel);
    }
    enter(room, whole, at_end, false)
}

fn below_directory(
    room: &mut Inner,
    ino: pmfs::Ino,
    len: usize,
    at_end: AtEnd,
) -> Result<Walked, i32> {
    if len == 0 {
        return Err(ENOENT);
    }
    let fs = pool::get().ok_or_else(pool::refusal)?;
    match walk::walk(fs, room, ino, 0, 0..len, at_end)? {
        Walked::Out(page, len) => {
            let path = room.paths[page][..len].to_vec();
            enter(room, path, at_end, true)
        }
        walked => Ok(walked),
    }
}

/// Walks along an absolute path; `is_new` says that it is not the program's own text.
fn enter(
    room: &mut Inner,
    mut path: Vec<u8>,
    at_end: AtEnd,
    mut is_new: bool,
) -> Result<Walked, i32> {
    if reach::are_the_kernels() {
        return Ok(Walked::Kernel);
    }
    for _ in 0..LINKS_MAX {
        if let Some(led) = of_this_process(room, &path, at_end) {
            path = led;
            is_new = true;
        }
        if numbered::may_be(&path) {
            let len = put(room, &path)?;
            match walk::by_number(room, 0, len, at_end)? {
                Walked::Kernel => {}
                Walked::Out(page, len) => {
                    path = room.paths[page][..len].to_vec();
                    is_new = true;
                    continue;
                }
                walked => return Ok(walked),
            }
        }
        let Some(rest) = entering(&path, at_end)? else {
            if !is_new {
                return Ok(Walked::Kernel);
            }
            let len = put(room, &path)?;
            return Ok(Walked::Out(0, len));
        };
        let fs = pool::get().ok_or_else(pool::refusal)?;
        if let Some(number) = rest.strip_prefix(&BY_INODE) {
            let ino = numbered::decimal(number).ok_or(ENOENT)?;
            return walk::whole(room, fs, ino);
        }
        let len = put(room, &rest)?;
        match walk::walk(fs, room, ROOT_INO, 0, 0..len, at_end)? {
            Walked::Out(page, len) => {
                path = room.paths[page][..len].to_vec();
                is_new = true;
            }
            walked => return Ok(walked),
        }
    }
    Err(ELOOP)
}

/// Puts a path on the room's first page.
fn put(room: &mut Inner, path: &[u8]) -> Result<usize, i32> {
    if path.len() >= PATH_MAX {
        return Err(ENAMETOOLONG);
    }
    room.paths[0][..path.len()].copy_from_slice(path);
    room.paths[0][path.len()] = 0;
    Ok(path.len())
}

/// The path that `/proc/self/cwd` or `/proc/self/exe` stands for, where the kernel's is not the
/// program's.
fn of_this_process(room: &mut Inner, path: &[u8], at_end: AtEnd) -> Option<Vec<u8>> {
    let (link, rest) = numbered::own_link(path)?;
    if at_end.stays_at(rest) {
        return None;
    }
    let to = match link {
        b"cwd" if cwd::is_apart(room) => cwd::text(room).ok()?,
        b"exe" => exe::own_name()?.to_vec(),
        _ => return None,
    };
    Some([&to[..], rest].concat())
}

/// The rest of an absolute path behind the point where it enters the pool.
fn entering(path: &[u8], at_end: AtEnd) -> Result<Option<Vec<u8>>, i32> {
    if let Some(from) = below(path) {
        return Ok(Some(path[from..].to_vec()));
    }
    let goes_up = path.split(|byte| *byte == b'/').any(|part| part == b"..");
    match links(path, at_end) {
        Links::None => {}
        Links::Unknown if !goes_up => {}
        _ => return followed(path, at_end),
    }
    Ok(behind(path).map(<[u8]>::to_vec))
}

/// The links in a path, as far as known.
enum Links {
    None,
    Some,
    /// The path leads nowhere, or the kernel does not say.
    Unknown,
}

fn links(path: &[u8], at_end: AtEnd) -> Links {
    const RESOLVE_NO_SYMLINKS: u64 = 4;
    let stay = if at_end == AtEnd::Follow {
        0
    } else {
        O_NOFOLLOW
    };
    let how = [(O_PATH | O_CLOEXEC | stay) as u64, 0, RESOLVE_NO_SYMLINKS];
    let at = how.as_ptr().expose_provenance() as u64;
    let text = [path, b"\0"].concat();
    let args = [AT_FDCWD as u64, PATH, at, size_of_val(&how) as u64, 0, 0];
    let look = || {
        let opened = kernel_answer(kernel::with_path(libc::SYS_openat2, args, &text))?;
        kernel::plain(libc::SYS_close, &[opened]);
        Ok(())
    };
    match spare::within(look) {
        Ok(()) => Links::None,
        // Without a free descriptor the path is followed, which takes longer.
        Err(libc::ENOSYS | libc::EMFILE | ELOOP) => Links::Some,
        Err(_) => Links::Unknown,
    }
}

/// The rest of a path that enters the pool's directory before any link, unchanged.
fn behind(path: &[u8]) -> Option<&[u8]> {
    let mut here = Vec::with_capacity(path.len());
    let mut rest = path;
    loop {
        let start = rest.iter().position(|byte| *byte != b'/')?;
        let len = rest[start..]
            .iter()
            .take_while(|byte| **byte != b'/')
            .count();
        let part = &rest[start..start + len];
        rest = &rest[start + len..];
        match part {
            b"." => {}
            b".." => up(&mut here),
            part => {
                here.push(b'/');
                here.extend_from_slice(part);
            }
        }
        if here == config::get().at {
            return Some(rest);
        }
    }
}

fn up(path: &mut Vec<u8>) {
    let end = path.iter().rposition(|byte| *byte == b'/').unwrap_or(0);
    path.truncate(end);
}

/// Follows a path link by link.
fn followed(path: &[u8], at_end: AtEnd) -> Result<Option<Vec<u8>>, i32> {
    let mut rest = path.to_vec();
    let mut here: Vec<u8> = Vec::new();
    let mut turns = 0;
    loop {
        let start = rest.iter().position(|byte| *byte != b'/');
        let Some(start) = start else {
            return Ok(None);
        };
        let len = rest[start..]
            .iter()
            .take_while(|byte| **byte != b'/')
            .count();
        let part = rest[start..start + len].to_vec();
        rest.drain(..start + len);
        match &part[..] {
            b"." => continue,
            b".." => {
                up(&mut here);
                continue;
            }
            _ => {}
        }
        let before = here.len();
        here.push(b'/');
        here.extend_from_slice(&part);
        if here == config::get().at {
            return Ok(Some(rest));
        }
        if at_end.stays_at(&rest) {
            return Ok(None);
        }
        if let Some(target) = link(&[&here[..], b"\0"].concat()) {
            turns += 1;
            if turns > LINKS_MAX {
                return Err(ELOOP);
            }
            // The text of such links may be no path.
            if here.starts_with(b"/proc/") && target.first() != Some(&b'/') {
                return Ok(None);
            }
            here.truncate(if target.first() == Some(&b'/') {
                0
            } else {
                before
            });
            rest = [&target[..], &rest].concat();
        }
    }
}

/// A link's target; the name ends with NUL.
fn link(name: &[u8]) -> Option<Vec<u8>> {
    let mut target = vec![0u8; PATH_MAX];
    let to = target.as_mut_ptr().expose_provenance() as u64;
    let args = [AT_FDCWD as u64, PATH, to, PATH_MAX as u64, 0, 0];
    let len = kernel::with_path(libc::SYS_readlinkat, args, name);
    target.truncate(usize::try_from(len).ok()?);
    Some(target)
}
