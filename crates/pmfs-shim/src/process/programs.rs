//! Programs to be run without a mount. The kernel can't find one in the pool, nor a script's
//! interpreter there. Scripts are resolved here, and the final program is a file of the kernel, or
//! a copy of the pool's.

use libc::{
    AT_EMPTY_PATH, AT_FDCWD, AT_SYMLINK_NOFOLLOW, EACCES, ELOOP, ENOENT, ENOEXEC, EOPNOTSUPP,
};
use pmfs::types::mode;
use pmfs::{Attr, Fs};

use crate::call::{errno, kernel_answer};
use crate::descriptors;
use crate::descriptors::pool;
use crate::descriptors::promote;
use crate::descriptors::spare;
use crate::loading;
use crate::loading::Loading;
use crate::names::cwd;
use crate::names::{AtEnd, Lead, find};
use crate::own::kernel::{self, PATH};
use crate::own::log;
use crate::own::mountless::{self, Refused};
use crate::process::target::{self, SCRIPTS_MAX, Target};
use crate::program;
use crate::program::copies::{self, Copy};
use crate::program::credentials::{self, EXECUTE};
use crate::thread::{Inner, PATH_MAX};

/// The program for the kernel to run.
pub(crate) struct Program {
    pub dirfd: u64,
    /// Ends with NUL.
    pub path: Vec<u8>,
    pub flags: u64,
    /// The arguments of a script's interpreter that replace the first argument.
    pub told: Option<Vec<Vec<u8>>>,
    /// The path in the pool, without NUL.
    pub own_name: Option<Vec<u8>>,
    pub target: Target,
    _copy: Option<Copy>,
}

/// The place of a program.
enum Stands {
    Kernel(u64, Vec<u8>, u64),
    /// A file of the pool, with its path.
    Pool(&'static Fs, Attr, Vec<u8>),
}

/// Finds the program to be run.
///
/// # Errors
/// ENOENT, EACCES, ELOOP: those of execve(2). EOPNOTSUPP: open files, or a script, with a program
/// that can't load the library.
pub(crate) fn resolve(
    room: &mut Inner,
    dirfd: u64,
    path: u64,
    flags: u64,
    inherits: bool,
) -> Result<Program, i32> {
    let name = told_name(dirfd, path)?;
    let mut now = stands(room, dirfd, path, flags)?;
    let mut told = vec![name];
    if matches!(now, Stands::Pool(..)) || leads_in(room, &now)? {
        for scripts in 0.. {
            let Some((interpreter, argument)) = script(&now)? else {
                break;
            };
            if scripts == SCRIPTS_MAX {
                return Err(ELOOP);
            }
            now = named(room, &interpreter)?;
            told.splice(0..0, [Some(interpreter), argument].into_iter().flatten());
        }
    }
    let told = (told.len() > 1).then_some(told);
    let program = match now {
        Stands::Kernel(dirfd, path, flags) => Program {
            target: Target::of(dirfd, Some(&path), flags),
            own_name: None,
            _copy: None,
            dirfd,
            path,
            flags,
            told,
        },
        Stands::Pool(fs, attr, own_name) => copied(fs, &attr, own_name, told)?,
    };
    if !program.target.has_library {
        if inherits || program.told.is_some() {
            return Err(mountless::refuse(Refused::Stranger, EOPNOTSUPP));
        }
        if cwd::is_apart(room) {
            log::line(format_args!(
                "a program that can't load the library finds nothing in the directory that it is started in"
            ));
        }
    }
    Ok(program)
}

fn copied(
    fs: &Fs,
    attr: &Attr,
    own_name: Vec<u8>,
    told: Option<Vec<Vec<u8>>>,
) -> Result<Program, i32> {
    let from = own_name.iter().rposition(|byte| *byte == b'/');
    let short = &own_name[from.map_or(0, |at| at + 1)..];
    let name = [&short[..short.len().min(200)], b"\0"].concat();
    let copy = spare::retry(|| copies::of(fs, attr.ino, (0, attr.size), &name))?;
    Ok(Program {
        target: Target::of(copy.0, Some(b"\0"), AT_EMPTY_PATH as u64),
        dirfd: copy.0,
        path: vec![0],
        flags: AT_EMPTY_PATH as u64,
        told,
        own_name: Some(own_name),
        _copy: Some(copy),
    })
}

/// The name that an interpreter gets, as from the kernel.
fn told_name(dirfd: u64, path: u64) -> Result<Vec<u8>, i32> {
    let mut text = Box::new([0; PATH_MAX]);
    let len = program::path(path, &mut text)?;
    let name = &text[..len];
    if dirfd as i32 == AT_FDCWD || name.first() == Some(&b'/') {
        return Ok(name.to_vec());
    }
    let slash: &[u8] = if name.is_empty() { b"" } else { b"/" };
    let number = format!("/dev/fd/{}", dirfd as i32);
    Ok([number.as_bytes(), slash, name].concat())
}

fn named(room: &mut Inner, path: &[u8]) -> Result<Stands, i32> {
    let text = [path, b"\0"].concat();
    let at = text.as_ptr().expose_provenance() as u64;
    stands(room, AT_FDCWD as u64, at, 0)
}

fn stands(room: &mut Inner, dirfd: u64, path: u64, flags: u64) -> Result<Stands, i32> {
    if flags & AT_EMPTY_PATH as u64 != 0
        && program::read::<u8>(path) == Ok(0)
        && let Some(file) = descriptors::inode_at(dirfd)
    {
        let fs = pool::fs()?;
        let mut name = promote::by_number(file.ino);
        name.pop();
        return Ok(Stands::Pool(fs, fs.getattr(file.ino).map_err(errno)?, name));
    }
    let at_end = AtEnd::following(flags & AT_SYMLINK_NOFOLLOW as u64 == 0);
    match find(room, dirfd, path, at_end)? {
        Lead::Out(path) => Ok(Stands::Kernel(AT_FDCWD as u64, path.to_vec(), flags)),
        Lead::Pool(fs, place) => {
            let attr = place.found()?;
            let mut name = if place.by_number {
                promote::by_number(attr.ino)
            } else {
                promote::directory(place.dir)?
            };
            name.pop();
            if !place.by_number {
                name.push(b'/');
                name.extend_from_slice(place.name);
            }
            Ok(Stands::Pool(fs, *attr, name))
        }
        Lead::Kernel => {
            let mut text = Box::new([0; PATH_MAX]);
            let len = program::path(path, &mut text)?;
            Ok(Stands::Kernel(dirfd, text[..=len].to_vec(), flags))
        }
    }
}

/// Returns whether a script outside has an interpreter in the pool.
fn leads_in(room: &mut Inner, first: &Stands) -> Result<bool, i32> {
    let mut next = interpreter(first)?;
    for _ in 0..SCRIPTS_MAX {
        let Some((path, _)) = next.take() else {
            return Ok(false);
        };
        let Ok(now @ Stands::Kernel(..)) = named(room, &path) else {
            return Ok(true);
        };
        next = interpreter(&now)?;
    }
    Ok(false)
}

/// A script's interpreter and the argument for it.
type Line = (Vec<u8>, Option<Vec<u8>>);

/// Reads the first line of a script that may be run.
///
/// # Errors
/// EACCES; ELOOP: a link that must not be followed.
fn script(now: &Stands) -> Result<Option<Line>, i32> {
    match now {
        Stands::Pool(fs, attr, _) => {
            match attr.mode & mode::S_IFMT {
                mode::S_IFREG => {}
                mode::S_IFLNK => return Err(ELOOP),
                _ => return Err(EACCES),
            }
            credentials::allow(fs, attr, EXECUTE)?;
        }
        Stands::Kernel(dirfd, path, flags) => {
            const X_OK: u64 = 1;
            let flags = flags & (AT_EMPTY_PATH | AT_SYMLINK_NOFOLLOW) as u64;
            let flags = flags | libc::AT_EACCESS as u64;
            let args = [*dirfd, PATH, X_OK, flags, 0, 0];
            kernel_answer(kernel::with_path(libc::SYS_faccessat2, args, path))?;
        }
    }
    interpreter(now)
}

fn interpreter(now: &Stands) -> Result<Option<Line>, i32> {
    let loading = match now {
        Stands::Pool(fs, attr, _) => {
            loading::of(|at, bytes| fs.read(attr.ino, at, bytes).unwrap_or(0))
        }
        Stands::Kernel(dirfd, path, flags) => match target::open(*dirfd, Some(path), *flags) {
            Some(file) => file.loading(),
            // The kernel gives the error.
            None => return Ok(None),
        },
    };
    match loading {
        Loading::Script(path, _) if path.is_empty() => Err(ENOEXEC),
        Loading::Script(path, argument) => Ok(Some((path, argument))),
        _ => Ok(None),
    }
}

/// The program's argument vector with another beginning; each text ends with NUL.
///
/// # Errors
/// EFAULT; ENOENT: it has no end.
pub(crate) fn arguments(at: u64, told: &[Vec<u8>]) -> Result<Vec<u64>, i32> {
    const ARGUMENTS_MAX: u64 = 1 << 20;
    let mut all: Vec<u64> = told
        .iter()
        .map(|text| text.as_ptr().expose_provenance() as u64)
        .collect();
    for index in 1..ARGUMENTS_MAX {
        let first: u64 = if at == 0 { 0 } else { program::read(at)? };
        let pointer: u64 = if first == 0 {
            0
        } else {
            program::read(at + index * 8)?
        };
        all.push(pointer);
        if pointer == 0 {
            return Ok(all);
        }
    }
    Err(ENOENT)
}
