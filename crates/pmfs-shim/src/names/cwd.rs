//! The working directory.
//!
//! With a mount, the kernel's directory is the program's, and this module caches what is known of
//! it. Without one, the kernel can't be in the pool: while the program is, the kernel's directory
//! is a removed one, where every name is ENOENT. The program's directory is then an open file of
//! the pool, which children and the next program inherit with the others.

use std::sync::atomic::{AtomicU64, Ordering};

use libc::{ENOENT, O_DIRECTORY, O_PATH};
use pmfs::{Attr, FileId, Fs, Ino, ROOT_INO};

use crate::call::{Answer, errno};
use crate::descriptors::pool;
use crate::names::reach::below;
use crate::own::config;
use crate::own::kernel::{self, PATH};
use crate::own::mountless;
use crate::thread::{Inner, PATH_MAX};
use pmfs_posix::names::is_dir;

/// The directory: unknown, elsewhere, or an inode of the pool. Elsewhere: if it lies above the
/// pool's directory, the upper half has the position in that directory's path of the names that
/// lead there.
static CWD: AtomicU64 = AtomicU64::new(UNKNOWN);
const UNKNOWN: u64 = 0;
const ELSEWHERE: u64 = 1;
const ABOVE_SHIFT: u32 = 32;

/// Without a mount, the open file that keeps the directory; 0: the kernel's directory counts.
static FILE: AtomicU64 = AtomicU64::new(0);

/// The program's working directory.
pub(crate) enum Cwd {
    Inside(Ino),
    /// A directory above the pool's: these names of the pool's path lead into the pool.
    Above(&'static [u8]),
    Elsewhere,
}

impl Cwd {
    fn of(word: u64) -> Cwd {
        match (word & u64::from(u32::MAX), word >> ABOVE_SHIFT) {
            (ELSEWHERE, 0) => Cwd::Elsewhere,
            (ELSEWHERE, from) => Cwd::Above(&config::get().at[from as usize..]),
            _ => Cwd::Inside(word),
        }
    }
}

fn put(room: &mut Inner, word: u64) {
    match &mut room.guest_cwd {
        Some(guest) => *guest = word,
        None => CWD.store(word, Ordering::Relaxed),
    }
}

/// Notes a change of the directory, to an inode of the pool or to an unknown place.
pub(crate) fn set(room: &mut Inner, ino: Option<Ino>) {
    put(room, ino.unwrap_or(UNKNOWN));
}

/// The word with the working directory.
pub(crate) fn word() -> u64 {
    CWD.load(Ordering::Relaxed)
}

fn known(room: &Inner) -> u64 {
    room.guest_cwd
        .unwrap_or_else(|| CWD.load(Ordering::Relaxed))
}

pub(crate) fn get(room: &mut Inner) -> Cwd {
    let known = known(room);
    if known != UNKNOWN {
        return Cwd::of(known);
    }
    let found = peek(room);
    put(room, found);
    Cwd::of(found)
}

/// Puts the path of the kernel's directory on the third page of the room. Returns its length.
fn kernels(room: &mut Inner) -> usize {
    let text = &mut room.paths[2];
    let at = text.as_mut_ptr().expose_provenance() as u64;
    // SAFETY: the kernel fills at most the room.
    let len = unsafe { kernel::call(libc::SYS_getcwd, [at, PATH_MAX as u64, 0, 0, 0, 0]) };
    usize::try_from(len - 1).unwrap_or(0)
}

/// Asks the kernel for the directory, by name first, which needs no request to the mount.
fn peek(room: &mut Inner) -> u64 {
    let len = kernels(room);
    if len == 0 {
        // The directory was removed, or is too deep for a name.
        return match mountless::is() {
            true => ELSEWHERE,
            false => mounted_here(),
        };
    }
    let text = &room.paths[2][..len];
    if let Some(from) = below(text) {
        if mountless::is() {
            let rest = text[from..].to_vec();
            return begin_inside(room, &rest).unwrap_or(ELSEWHERE);
        }
        return mounted_here();
    }
    let names = config::get().at.strip_prefix(text);
    let leads = |rest: &&[u8]| rest.len() > 1 && (rest[0] == b'/' || len == 1);
    let Some(rest) = names.filter(leads) else {
        return ELSEWHERE;
    };
    let from = config::get().at.len() - rest.len() + usize::from(rest[0] == b'/');
    ELSEWHERE | (from as u64) << ABOVE_SHIFT
}

fn mounted_here() -> u64 {
    // SAFETY: a structure of numbers.
    let mut stat: libc::statx = unsafe { std::mem::zeroed() };
    let to = (&raw mut stat).expose_provenance() as u64;
    // The kernel has device and inode in its own memory: no request to the mount.
    let flags = libc::AT_STATX_DONT_SYNC as u64;
    let args = [
        libc::AT_FDCWD as u64,
        kernel::PATH,
        flags,
        libc::STATX_INO.into(),
        to,
        0,
    ];
    let answer = kernel::with_path(libc::SYS_statx, args, b".\0");
    let stat = std::hint::black_box(stat);
    let device = libc::makedev(stat.stx_dev_major, stat.stx_dev_minor);
    if answer == 0 && device == config::get().device {
        // The kernel's number of the root is the engine's, because the mount translates.
        stat.stx_ino
    } else {
        ELSEWHERE
    }
}

/// The word for a program that begins in the directory that stands for the pool, or in one of the
/// kernel's below it.
fn begin_inside(room: &mut Inner, names: &[u8]) -> Option<u64> {
    let fs = pool::get()?;
    let mut dir = fs.getattr(ROOT_INO).ok()?;
    for name in names
        .split(|byte| *byte == b'/')
        .filter(|name| !name.is_empty())
    {
        dir = fs.lookup(dir.ino, name).ok()?;
    }
    if !is_dir(&dir) {
        return None;
    }
    let file = hold(fs, &dir).ok()?;
    park().ok()?;
    replace(room, fs, dir.ino, file);
    Some(dir.ino)
}

fn hold(fs: &Fs, dir: &Attr) -> Result<FileId, i32> {
    fs.open_found(dir, (O_PATH | O_DIRECTORY) as u64)
        .map_err(errno)
}

/// Makes a directory of the pool the working directory, without a mount.
///
/// # Errors
/// ENFILE; ENOENT: the directory was removed; EACCES: the kernel has no directory to wait in.
pub(crate) fn enter(room: &mut Inner, fs: &Fs, dir: &Attr) -> Answer {
    let file = hold(fs, dir)?;
    if !matches!(get(room), Cwd::Inside(_))
        && let Err(errno) = park()
    {
        let _ = fs.close_file(file);
        return Err(errno);
    }
    replace(room, fs, dir.ino, file);
    Ok(0)
}

fn replace(room: &mut Inner, fs: &Fs, ino: Ino, file: FileId) {
    put(room, ino);
    let before = exchange(room, file.number());
    close(fs, before);
}

fn exchange(room: &mut Inner, file: u64) -> u64 {
    match room.guest_cwd {
        Some(_) => std::mem::replace(&mut room.guest_cwd_file, file),
        None => FILE.swap(file, Ordering::Relaxed),
    }
}

fn close(fs: &Fs, file: u64) {
    if file != 0 {
        let _ = fs.close_file(FileId::from_number(file));
    }
}

/// Notes that the kernel has left for another directory, which counts again.
pub(crate) fn leave(room: &mut Inner) {
    put(room, UNKNOWN);
    let before = exchange(room, 0);
    if let Some(fs) = pool::attached() {
        close(fs, before);
    }
}

/// Returns whether the program is in the pool and the kernel is not.
pub(crate) fn is_apart(room: &Inner) -> bool {
    mountless::is() && matches!(Cwd::of(known(room)), Cwd::Inside(_))
}

/// The open file that keeps the directory, for a child and the next program.
pub(crate) fn file(room: &Inner) -> Option<(FileId, Ino)> {
    let Cwd::Inside(ino) = Cwd::of(known(room)) else {
        return None;
    };
    let own = match room.guest_cwd {
        Some(_) => room.guest_cwd_file,
        None => 0,
    };
    let file = if own == 0 {
        FILE.load(Ordering::Relaxed)
    } else {
        own
    };
    (file != 0).then(|| (FileId::from_number(file), ino))
}

/// Takes over the directory that the previous program has handed over.
pub(crate) fn take(file: FileId, ino: Ino) {
    FILE.store(file.number(), Ordering::Relaxed);
    CWD.store(ino, Ordering::Relaxed);
}

/// Makes a guest's directory the process's, in a child that the guest has forked.
pub(crate) fn apply_guest(room: &mut Inner) {
    let Some(word) = room.guest_cwd.take() else {
        return;
    };
    CWD.store(word, Ordering::Relaxed);
    let file = std::mem::replace(&mut room.guest_cwd_file, 0);
    let stays = file == 0 && matches!(Cwd::of(word), Cwd::Inside(_));
    if !stays {
        FILE.store(file, Ordering::Relaxed);
    }
}

/// Returns whether an open file keeps the directory, for which a child has to be prepared.
pub(crate) fn is_kept() -> bool {
    FILE.load(Ordering::Relaxed) != 0
}

/// The directory's path: the kernel's, on the room's third page, or the pool's.
///
/// # Errors
/// ENOENT: it was removed.
pub(crate) fn text(room: &mut Inner) -> Result<Vec<u8>, i32> {
    if let Cwd::Inside(ino) = get(room)
        && mountless::is()
    {
        let mut path = crate::descriptors::promote::directory(ino)?;
        path.pop();
        return Ok(path);
    }
    let len = kernels(room);
    if len == 0 {
        return Err(ENOENT);
    }
    Ok(room.paths[2][..len].to_vec())
}

/// Moves the kernel into a removed directory whose parent is removed too.
fn park() -> Result<(), i32> {
    let above = config::get().pool.iter().rposition(|byte| *byte == b'/');
    let beside = &config::get().pool[..above.unwrap_or(0)];
    for base in [&b"/dev/shm"[..], b"/tmp", b"/var/tmp", beside] {
        let outer = format!("/.pmfs-{}-{}", kernel::process(), kernel::thread());
        let outer = [base, outer.as_bytes(), b"\0"].concat();
        let inner = [&outer[..outer.len() - 1], b"/in\0"].concat();
        let call = |number, path: &[u8]| kernel::with_path(number, [PATH, 0o700, 0, 0, 0, 0], path);
        // The directory must be new, because everybody may write in these places.
        if call(libc::SYS_mkdir, &outer) != 0 {
            continue;
        }
        let there = call(libc::SYS_mkdir, &inner) == 0 && call(libc::SYS_chdir, &inner) == 0;
        call(libc::SYS_rmdir, &inner);
        call(libc::SYS_rmdir, &outer);
        if there {
            return Ok(());
        }
    }
    Err(libc::EACCES)
}
