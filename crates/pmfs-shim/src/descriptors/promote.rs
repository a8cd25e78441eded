//! Descriptors of the mount, for uses that the process can't serve: mappings, programs without this
//! library, FIFOs and devices, the kernel's own working directory.
//!
//! A directory is found again by its names, up to the root. Any other file may have lost its name:
//! the mount also knows it by a name made of its inode number ([`pmfs::INODE_NAME`]), for users who
//! may read the pool anyway.

use std::sync::atomic::{AtomicI32, Ordering};

use libc::{AT_FDCWD, O_CLOEXEC, O_CREAT, O_EXCL, O_NOFOLLOW, O_TRUNC};
use pmfs::types::mode;
use pmfs::{Attr, FOLLOW_REQUEST, Fs, INODE_NAME, Ino, ROOT_INO};
use pmfs_posix::names::is_dir;

use crate::call::{Answer, errno, kernel_answer};
use crate::descriptors::pool;
use crate::descriptors::spare;
use crate::descriptors::table;
use crate::own::config;
use crate::own::kernel::{self, PATH};
use crate::own::mountless;
use crate::own::stats;
use crate::program::credentials;
use crate::thread::PATH_MAX;
use crate::thread::descriptor::Descriptor;
use crate::thread::guest;

/// An inode of the pool that the kernel is to open.
pub(crate) struct Way {
    ino: Ino,
    is_dir: bool,
}

impl Way {
    pub fn of_inode(attr: &pmfs::Attr) -> Way {
        Way {
            ino: attr.ino,
            is_dir: is_dir(attr),
        }
    }

    /// The way to the end of a path; without an inode there, to the directory itself.
    pub fn of(dir: Ino, attr: Option<&Attr>) -> Way {
        Way {
            ino: attr.map_or(dir, |attr| attr.ino),
            is_dir: attr.is_none_or(is_dir),
        }
    }
}

/// Opens the inode at the mount.
pub(crate) fn open_way(way: &Way, flags: i32, bits: u32) -> Answer {
    if mountless::is() {
        return Err(libc::EOPNOTSUPP);
    }
    let path = if way.is_dir {
        directory(way.ino)?
    } else {
        by_number(way.ino)
    };
    // The link itself is meant: it was followed before, where that was asked.
    let flags = flags & !(O_CREAT | O_EXCL) | O_NOFOLLOW;
    let open = || opened(&path, flags, bits);
    match open() {
        Err(libc::ENOENT | libc::EACCES | libc::ENAMETOOLONG) => as_who_may(open),
        answer => answer,
    }
}

/// Opens a path by the kernel, even one that is too long for it.
pub(crate) fn opened(path: &[u8], flags: i32, bits: u32) -> Answer {
    let root = root();
    if root >= 0 {
        // If the process has another root or other mounts, the mount is reached from this directory
        // alone.
        let below = [b".", &path[config::get().at.len()..]].concat();
        let answer = opened_from(root as u64, &below, flags, bits);
        if answer != Err(libc::EBADF) {
            return answer;
        }
    }
    opened_from(AT_FDCWD as u64, path, flags, bits)
}

fn opened_from(dir: u64, path: &[u8], flags: i32, bits: u32) -> Answer {
    let open = |dir: u64, path: &[u8], flags: i32, bits: u32| {
        let args = [dir, PATH, flags as u64, bits.into(), 0, 0];
        kernel_answer(kernel::with_path(libc::SYS_openat, args, path))
    };
    let (mut dir, mut rest, mut on_the_way) = (dir, path, None);
    let answer = loop {
        if rest.len() <= PATH_MAX {
            break open(dir, rest, flags, bits);
        }
        let Some(len) = rest[..PATH_MAX].iter().rposition(|byte| *byte == b'/') else {
            break Err(libc::ENAMETOOLONG);
        };
        let part = [&rest[..len], b"\0"].concat();
        let way = libc::O_PATH | libc::O_DIRECTORY | O_CLOEXEC;
        let next = open(dir, &part, way, 0);
        if let Some(before) = on_the_way.take() {
            kernel::plain(libc::SYS_close, &[before]);
        }
        match next {
            Ok(next) => (dir, on_the_way) = (next, Some(next)),
            Err(errno) => break Err(errno),
        }
        rest = &rest[len + 1..];
    };
    if let Some(last) = on_the_way {
        kernel::plain(libc::SYS_close, &[last]);
    }
    answer
}

/// Tries again as the saved user, to whom the program may return and whom the mount lets open
/// anything.
fn as_who_may<T>(open: impl Fn() -> T) -> T {
    credentials::as_user(0, open)
}

/// The mount's root directory, opened before the program's root or mounts changed; -1: they have
/// not changed.
static ROOT: AtomicI32 = AtomicI32::new(-1);

/// The kept root directory, which may be a guest's.
fn root() -> i32 {
    let guests = guest::own().map_or(-1, |own| own.root);
    if guests >= 0 {
        guests
    } else {
        ROOT.load(Ordering::Relaxed)
    }
}

/// Takes over the directory that a guest has kept before it forked.
pub(crate) fn take_root(root: i32) {
    if root >= 0 {
        ROOT.store(root, Ordering::Relaxed);
    }
}

pub(crate) fn is_root(number: u32) -> bool {
    root() == number as i32
}

/// Keeps the mount's root directory, before the program's root or mounts change.
pub(crate) fn keep_root() {
    if root() >= 0 || mountless::is() {
        return;
    }
    let path = [config::get().at.as_slice(), b"\0"].concat();
    let flags = (libc::O_PATH | libc::O_DIRECTORY | O_CLOEXEC) as u64;
    let here = AT_FDCWD as u64;
    let args = [here, PATH, flags, 0, 0, 0];
    let open = || kernel_answer(kernel::with_path(libc::SYS_openat, args, &path));
    let _lent = spare::lend();
    let Ok(made) = spare::retry(open) else {
        return;
    };
    let floor = table::choose_floor() as u64;
    let high = [made, libc::F_DUPFD_CLOEXEC as u64, floor];
    let kept = kernel::plain(libc::SYS_fcntl, &high);
    kernel::plain(libc::SYS_close, &[made]);
    match guest::own() {
        Some(own) => own.root = kept as i32,
        None => ROOT.store(kept as i32, Ordering::Relaxed),
    }
}

/// Opens the mount's descriptor of an open file, closed on exec, with an offset of its own. The
/// caller lends the spare numbers.
pub(crate) fn open(file: &Descriptor) -> Result<i32, i32> {
    let way = Way {
        ino: file.ino,
        is_dir: file.is_dir,
    };
    let flags = file.access & !O_TRUNC | O_CLOEXEC;
    spare::retry(|| open_way(&way, flags, 0)).map(|number| number as i32)
}

/// Opens ([`open`]) a descriptor that replaces ours for other programs. It stands for the open
/// file, and shares its offset and flags from then on.
pub(crate) fn stand_in(fs: &Fs, file: &Descriptor) -> Result<i32, i32> {
    let through = open(file)?;
    let Ok(now) = fs.file(file.file) else {
        return Ok(through);
    };
    let number = through as u64;
    let append = now.flags & libc::O_APPEND as u64;
    kernel::plain(libc::SYS_fcntl, &[number, libc::F_SETFL as u64, append]);
    if file.is_dir {
        return Ok(through);
    }
    kernel::plain(
        libc::SYS_lseek,
        &[number, now.offset, libc::SEEK_SET as u64],
    );
    let asked = [file.file.number(), now.offset];
    let at = asked.as_ptr().expose_provenance() as u64;
    let args = [number, FOLLOW_REQUEST.into(), at, 0, 0, 0];
    // SAFETY: the kernel reads two words.
    let follow = || unsafe { kernel::call(libc::SYS_ioctl, args) };
    let mut answer = follow();
    if answer == -i64::from(libc::EPERM) {
        answer = as_who_may(follow);
    }
    if answer < 0 {
        crate::own::log::line(format_args!(
            "an offset is not shared with the mount: errno {}",
            -answer
        ));
    }
    Ok(through)
}

/// The mount's path of an open file, with NUL: a directory's own path, or a file's path by its
/// number, because it may have lost its name.
///
/// # Errors
/// ENOENT: the directory was removed.
pub(crate) fn path(file: &Descriptor) -> Result<Vec<u8>, i32> {
    if file.is_dir {
        return directory(file.ino);
    }
    Ok(by_number(file.ino))
}

/// Checks that the kernel lets a file be opened for writing, which it refuses for a running
/// program. Only executable files are checked.
///
/// # Errors
/// ETXTBSY.
pub(crate) fn allow_writing(attr: &Attr) -> Result<(), i32> {
    // Without a mount the kernel runs copies.
    if attr.mode & 0o111 == 0 || is_dir(attr) || mountless::is() {
        return Ok(());
    }
    let way = Way {
        ino: attr.ino,
        is_dir: false,
    };
    let open = || {
        let opened = open_way(&way, libc::O_WRONLY | O_CLOEXEC, 0)?;
        kernel::plain(libc::SYS_close, &[opened]);
        Ok(())
    };
    match spare::within(open) {
        Ok(()) => Ok(()),
        Err(libc::ETXTBSY) => Err(libc::ETXTBSY),
        // Other errors of the mount do not matter here.
        Err(_) => Ok(()),
    }
}

/// The mount's path of an inode by its number, with NUL.
pub(crate) fn by_number(ino: Ino) -> Vec<u8> {
    let at = &config::get().at;
    [
        at.as_slice(),
        b"/",
        INODE_NAME,
        ino.to_string().as_bytes(),
        b"\0",
    ]
    .concat()
}

/// The mount's path of a directory, with NUL.
///
/// # Errors
/// ENOENT: the directory was removed.
pub(crate) fn directory(ino: Ino) -> Result<Vec<u8>, i32> {
    let fs = pool::get().ok_or(libc::EIO)?;
    let mut names: Vec<Vec<u8>> = Vec::new();
    let mut at = ino;
    while at != ROOT_INO {
        let parent = fs.lookup(at, b"..").map_err(errno)?;
        names.push(name_in(fs, parent.ino, at)?);
        at = parent.ino;
    }
    let mut path = config::get().at.clone();
    for name in names.iter().rev() {
        path.push(b'/');
        path.extend_from_slice(name);
    }
    path.push(0);
    Ok(path)
}

fn name_in(fs: &Fs, dir: Ino, child: Ino) -> Result<Vec<u8>, i32> {
    let mut found = None;
    let listed = fs.readdir(dir, 0, &mut |entry| {
        let dots = entry.name == b"." || entry.name == b"..";
        if entry.ino == child && entry.kind == mode::S_IFDIR && !dots {
            found = Some(entry.name.to_vec());
        }
        found.is_none()
    });
    listed.map_err(errno)?;
    found.ok_or(libc::ENOENT)
}

/// Replaces all of these descriptors by the mount's.
pub(crate) fn all(open: &[(i32, Descriptor)]) {
    let Some(fs) = pool::attached() else {
        return;
    };
    for (number, file) in open.iter().filter(|(_, file)| !file.is_path_only()) {
        let Ok(through) = stand_in(fs, file) else {
            continue;
        };
        let on_exec = kernel::plain(libc::SYS_fcntl, &[*number as u64, libc::F_GETFD as u64]);
        let flags = if on_exec == 0 { 0 } else { libc::O_CLOEXEC };
        kernel::plain(
            libc::SYS_dup3,
            &[through as u64, *number as u64, flags as u64],
        );
        kernel::plain(libc::SYS_close, &[through as u64]);
        table::remove(*number as u64);
        if !file.borrowed {
            let _ = fs.close_file(file.file);
        }
        stats::promoted();
    }
}
