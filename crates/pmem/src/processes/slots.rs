//! Locks whose life is that of an address space.
//!
//! A process shows that it lives by a locked byte far beyond any pool's end.
//! The lock belongs to an open file description that only a mapping keeps: it
//! outlives every close(2), is not inherited by a forked child (MADV_DONTFORK),
//! and falls when the kernel tears the address space down, at exit, exec or
//! SIGKILL, whatever the PID namespace.
//!
//! Where a mapping does not keep its description (overlayfs maps the file
//! below), the descriptor stays open instead, close-on-exec; a forked child
//! then holds the lock too, until it execs or exits. The same goes for a child
//! that another thread forks during the call that takes the lock.

use std::fs::{File, OpenOptions};
use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicI32, Ordering};

use crate::Error;
use crate::address_space::Mapping;
use crate::medium::examine;
use crate::processes::life;

/// One locked byte, or two; dropping it unlocks.
#[derive(Debug)]
pub struct ByteLock {
    keeper: Keeper,
}

/// The keeper of the description that has the lock.
#[derive(Debug)]
enum Keeper {
    Mapping(#[expect(dead_code, reason = "held for its drop")] Kept),
    Descriptor(File),
}

/// A mapping that a forked child does not have.
#[derive(Debug)]
struct Kept {
    mapping: ManuallyDrop<Mapping>,
    life: u64,
}

impl Kept {
    fn new(mapping: Mapping) -> Kept {
        Kept {
            mapping: ManuallyDrop::new(mapping),
            life: life::number(),
        }
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        // In a child something else may stand there.
        if self.life == life::number() {
            // SAFETY: dropped once, here.
            unsafe { ManuallyDrop::drop(&mut self.mapping) };
        }
    }
}

/// The holder of a byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Probe {
    /// No holder: it could be locked exclusively.
    Free,
    /// A process; its pid where the kernel tells (not for a [`ByteLock`]: 0).
    HeldBy(u32),
}

impl ByteLock {
    /// Locks byte number `byte` for this address space alone. `None` if
    /// anybody has it, another lock of this process included.
    ///
    /// # Errors
    /// A file that can't be opened for writing, mapped or locked.
    pub fn try_exclusive(path: &Path, byte: u64) -> Result<Option<ByteLock>, Error> {
        lock(path, byte, libc::F_WRLCK, None)
    }

    /// Locks byte number `byte` beside others who share it. `None` if somebody
    /// has it exclusively. Reading rights to the file are enough.
    ///
    /// # Errors
    /// A file that can't be opened, mapped or locked.
    pub fn try_shared(path: &Path, byte: u64) -> Result<Option<ByteLock>, Error> {
        lock(path, byte, libc::F_RDLCK, None)
    }

    /// Locks as [`ByteLock::try_exclusive`] does, for the child that is about to be forked, or the
    /// program that this process is about to become: a descriptor keeps the lock, which they
    /// inherit. The one that keeps it calls [`ByteLock::adopt`]; the others drop theirs.
    ///
    /// # Errors
    /// Those of [`ByteLock::try_exclusive`].
    pub fn try_exclusive_inherited(path: &Path, byte: u64) -> Result<Option<ByteLock>, Error> {
        let file = open(path, true)?;
        let locked = try_lock(&file, byte, libc::F_WRLCK).map_err(|source| Error::Lock {
            path: path.into(),
            source,
        })?;
        Ok(locked.then_some(ByteLock {
            keeper: Keeper::Descriptor(file),
        }))
    }

    /// Has an inherited lock keep another byte too, shared: no second descriptor is needed for it.
    /// `None` if somebody has that one exclusively, or this is not an inherited lock.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn and_shared(self, path: &Path, byte: u64) -> Result<Option<ByteLock>, Error> {
        let Keeper::Descriptor(file) = &self.keeper else {
            return Ok(None);
        };
        let locked = try_lock(file, byte, libc::F_RDLCK).map_err(|source| Error::Lock {
            path: path.into(),
            source,
        })?;
        Ok(locked.then_some(self))
    }

    /// Gives an inherited lock the life of this address space.
    ///
    /// # Errors
    /// The file can't be looked at.
    pub fn adopt(self, path: &Path) -> Result<ByteLock, Error> {
        let Keeper::Descriptor(file) = self.keeper else {
            return Ok(self);
        };
        let kind = Kind::of(path, &file)?;
        if kind.stacked {
            return Ok(ByteLock {
                keeper: Keeper::Descriptor(file),
            });
        }
        Ok(match map_page(&file, kind.page_size) {
            Some(mapping) => ByteLock {
                keeper: Keeper::Mapping(Kept::new(mapping)),
            },
            None => ByteLock {
                keeper: Keeper::Descriptor(file),
            },
        })
    }

    /// The descriptor that keeps the lock, if one does.
    #[must_use]
    pub fn descriptor(&self) -> Option<i32> {
        match &self.keeper {
            Keeper::Descriptor(file) => Some(file.as_raw_fd()),
            Keeper::Mapping(_) => None,
        }
    }

    /// Has an inherited lock's descriptor stay open over exec.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn keep_over_exec(&self) -> io::Result<()> {
        self.descriptor()
            .map_or(Ok(()), |descriptor| set_cloexec(descriptor, false))
    }

    /// An inherited lock, from the number of its descriptor: in the program that this process
    /// became. `None` if that is no descriptor of the file.
    #[must_use]
    pub fn from_exec(path: &Path, descriptor: i32) -> Option<ByteLock> {
        use std::os::unix::fs::MetadataExt;
        let link = format!("/proc/self/fd/{descriptor}");
        let (there, file) = (std::fs::metadata(link).ok()?, std::fs::metadata(path).ok()?);
        if (there.dev(), there.ino()) != (file.dev(), file.ino()) {
            return None;
        }
        // SAFETY: the descriptor is open, on the pool's file, and was handed over to be owned here.
        let file = unsafe { File::from_raw_fd(descriptor) };
        set_cloexec(file.as_raw_fd(), true).ok()?;
        Some(ByteLock {
            keeper: Keeper::Descriptor(file),
        })
    }
}

fn set_cloexec(descriptor: i32, on: bool) -> io::Result<()> {
    let flags = if on { libc::FD_CLOEXEC } else { 0 };
    // SAFETY: sets a flag of a descriptor.
    match unsafe { libc::fcntl(descriptor, libc::F_SETFD, flags) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

/// A page of the file that keeps its description, and that no child gets.
fn map_page(file: &File, page_size: usize) -> Option<Mapping> {
    let mapping = Mapping::new(
        Some(file.as_fd()),
        page_size,
        page_size,
        libc::PROT_READ,
        libc::MAP_SHARED | libc::MAP_NORESERVE,
    );
    mapping
        .ok()
        .filter(|mapping| mapping.advise(libc::MADV_DONTFORK))
}

/// File systems that may map a file other than the one opened: overlayfs, FUSE
/// (passthrough), ecryptfs. Whether our own shared lock stands can't be seen
/// beside the others', so these are known by name.
const STACKED: [u64; 3] = [0x794c_7630, 0x6573_5546, 0xf15f];

/// The properties of a file's mappings.
#[derive(Debug, Clone, Copy)]
struct Kind {
    page_size: usize,
    /// Its file system maps another file.
    stacked: bool,
}

impl Kind {
    fn of(path: &Path, file: &File) -> Result<Kind, Error> {
        let (_, page_size, magic) = examine(path, file)?;
        Ok(Kind {
            page_size: page_size as usize,
            stacked: STACKED.contains(&magic),
        })
    }
}

/// A description of its own, through which no byte is ever locked.
#[derive(Debug)]
pub struct Prober {
    file: File,
    path: PathBuf,
    kind: Kind,
}

impl Prober {
    /// Opens the pool's file once more.
    ///
    /// # Errors
    /// A file that can't be opened for reading.
    pub fn open(path: &Path) -> Result<Prober, Error> {
        let file = open(path, false)?;
        Ok(Prober {
            kind: Kind::of(path, &file)?,
            file,
            path: path.into(),
        })
    }

    /// Locks as [`ByteLock::try_exclusive`] does, in the file that this is open on.
    ///
    /// # Errors
    /// Those of [`ByteLock::try_exclusive`].
    pub fn try_exclusive(&self, byte: u64) -> Result<Option<ByteLock>, Error> {
        lock(&self.path, byte, libc::F_WRLCK, Some(self))
    }

    /// Locks as [`ByteLock::try_shared`] does, in the file that this is open on.
    ///
    /// # Errors
    /// Those of [`ByteLock::try_shared`].
    pub fn try_shared(&self, byte: u64) -> Result<Option<ByteLock>, Error> {
        lock(&self.path, byte, libc::F_RDLCK, Some(self))
    }

    /// The number of its descriptor.
    #[must_use]
    pub fn descriptor(&self) -> i32 {
        self.file.as_raw_fd()
    }

    /// The path that it was opened by.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Finds the holder of byte number `byte`.
    ///
    /// # Errors
    /// A file system without open file description locks.
    pub fn probe(&self, byte: u64) -> Result<Probe, Error> {
        probe(&self.file, byte).map_err(|source| Error::Lock {
            path: self.path.clone(),
            source,
        })
    }
}

/// Numbers below this are the program's.
static LOWEST: AtomicI32 = AtomicI32::new(0);

/// Has descriptors that this crate keeps numbered from `lowest` on, where that many may be open: in
/// a program that does not know of them, and may close or reuse any number.
pub fn keep_descriptors_from(lowest: i32) {
    LOWEST.store(lowest, Ordering::Relaxed);
}

fn open(path: &Path, write: bool) -> Result<File, Error> {
    let file = open_anywhere(path, write)?;
    Ok(keep(file.into()).into())
}

/// Moves a descriptor to where this crate keeps its own.
pub(crate) fn keep(descriptor: OwnedFd) -> OwnedFd {
    let lowest = LOWEST.load(Ordering::Relaxed);
    if lowest == 0 {
        return descriptor;
    }
    // SAFETY: duplicates a descriptor that is open.
    let high = unsafe { libc::fcntl(descriptor.as_raw_fd(), libc::F_DUPFD_CLOEXEC, lowest) };
    if high < 0 {
        return descriptor;
    }
    // SAFETY: the duplicate just made, which nobody else knows.
    unsafe { OwnedFd::from_raw_fd(high) }
}

fn open_anywhere(path: &Path, write: bool) -> Result<File, Error> {
    OpenOptions::new()
        .read(true)
        .write(write)
        .custom_flags(libc::O_CLOEXEC | libc::O_NOCTTY | libc::O_NONBLOCK)
        .open(path)
        .map_err(|source| Error::Open {
            path: path.into(),
            source,
        })
}

/// `beside`: another description of the same file, through which the lock can be seen.
fn lock(
    path: &Path,
    byte: u64,
    kind: libc::c_int,
    beside: Option<&Prober>,
) -> Result<Option<ByteLock>, Error> {
    let failed = |source| Error::Lock {
        path: path.into(),
        source,
    };
    let write = kind == libc::F_WRLCK;
    let file = open(path, write)?;
    let of_file = match beside {
        Some(beside) => beside.kind,
        None => Kind::of(path, &file)?,
    };
    if !try_lock(&file, byte, kind).map_err(failed)? {
        return Ok(None);
    }
    let Some(mapping) = map_page(&file, of_file.page_size) else {
        return Ok(Some(ByteLock {
            keeper: Keeper::Descriptor(file),
        }));
    };
    if kind == libc::F_RDLCK && of_file.stacked {
        return Ok(Some(ByteLock {
            keeper: Keeper::Descriptor(file),
        }));
    }
    drop(file);
    // Does the mapping keep the lock? Seen through a second description.
    if let Some(beside) = beside
        && probe_for(&beside.file, byte, libc::F_WRLCK).map_err(failed)? != Probe::Free
    {
        return Ok(Some(ByteLock {
            keeper: Keeper::Mapping(Kept::new(mapping)),
        }));
    }
    let second = open(path, write)?;
    if probe_for(&second, byte, libc::F_WRLCK).map_err(failed)? != Probe::Free {
        return Ok(Some(ByteLock {
            keeper: Keeper::Mapping(Kept::new(mapping)),
        }));
    }
    // It does not: lock again, unless somebody was faster.
    Ok(try_lock(&second, byte, kind)
        .map_err(failed)?
        .then_some(ByteLock {
            keeper: Keeper::Descriptor(second),
        }))
}

/// struct flock for one byte. `l_pid` has to be 0 for these commands.
fn flock(byte: u64, kind: libc::c_int) -> io::Result<libc::flock> {
    let start =
        libc::off_t::try_from(byte).map_err(|_| io::Error::from_raw_os_error(libc::EOVERFLOW))?;
    // SAFETY: all-zero is a valid struct flock.
    let mut flock: libc::flock = unsafe { std::mem::zeroed() };
    flock.l_type = kind as libc::c_short;
    flock.l_whence = libc::SEEK_SET as libc::c_short;
    flock.l_start = start;
    flock.l_len = 1;
    Ok(flock)
}

/// F_OFD_SETLK; `false` if somebody else is in the way.
fn try_lock(file: &File, byte: u64, kind: libc::c_int) -> io::Result<bool> {
    let flock = flock(byte, kind)?;
    // SAFETY: the kernel reads a valid struct flock.
    if unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, &flock) } == 0 {
        return Ok(true);
    }
    let error = io::Error::last_os_error();
    match error.raw_os_error() {
        Some(libc::EAGAIN | libc::EACCES) => Ok(false),
        _ => Err(error),
    }
}

fn probe(file: &File, byte: u64) -> io::Result<Probe> {
    probe_for(file, byte, libc::F_WRLCK)
}

/// F_OFD_GETLK: who is in the way of a lock of that kind.
fn probe_for(file: &File, byte: u64, kind: libc::c_int) -> io::Result<Probe> {
    let mut flock = flock(byte, kind)?;
    // SAFETY: the kernel reads and writes a valid struct flock.
    if unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_GETLK, &mut flock) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(if flock.l_type == libc::F_UNLCK as libc::c_short {
        Probe::Free
    } else {
        // -1 = a description's lock, which has no process.
        Probe::HeldBy(u32::try_from(flock.l_pid).unwrap_or(0))
    })
}
