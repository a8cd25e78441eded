//! Locks with the life of an address space.
//!
//! A process shows that it lives by a locked byte far behind the end of any pool. The lock belongs
//! to an open file description that only a mapping keeps: it outlives every close(2), is not
//! inherited by a forked child (MADV_DONTFORK), and ends when the kernel removes the address space,
//! at exit, exec or SIGKILL, in any PID namespace.
//!
//! Where a mapping does not keep its description (overlayfs maps the file below), the descriptor
//! stays open instead, close-on-exec. A forked child then holds the lock too, until its exec or
//! exit. The same holds for a child that another thread forks during the call that takes the lock.

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

/// One or two locked bytes, unlocked on drop.
#[derive(Debug)]
pub struct ByteLock {
    keeper: Keeper,
}

/// The owner of the description that has the lock.
#[derive(Debug)]
enum Keeper {
    Mapping(#[expect(dead_code, reason = "held for its drop")] Kept),
    Descriptor(File),
}

/// A mapping that a forked child does not get.
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
        // In a child, another mapping may be at this address.
        if self.life == life::number() {
            // SAFETY: dropped once, here.
            unsafe { ManuallyDrop::drop(&mut self.mapping) };
        }
    }
}

/// The holder of a byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Probe {
    /// No holder: the byte could be locked exclusively.
    Free,
    /// A process, with its pid where the kernel tells it (0 for a [`ByteLock`]).
    HeldBy(u32),
}

impl ByteLock {
    /// Locks byte number `byte` for this address space alone. `None` if there is any other lock on
    /// it, even one of this process.
    ///
    /// # Errors
    /// The file can't be opened for writing, mapped or locked.
    pub fn try_exclusive(path: &Path, byte: u64) -> Result<Option<ByteLock>, Error> {
        lock(path, byte, libc::F_WRLCK, None)
    }

    /// Locks byte number `byte` beside other sharers. `None` if there is an exclusive lock on it.
    /// Read access to the file is enough.
    ///
    /// # Errors
    /// The file can't be opened, mapped or locked.
    pub fn try_shared(path: &Path, byte: u64) -> Result<Option<ByteLock>, Error> {
        lock(path, byte, libc::F_RDLCK, None)
    }

    /// Locks as [`ByteLock::try_exclusive`] does, before a fork or an exec. A descriptor keeps the
    /// lock, and the child or the new program inherits it. The process that keeps the lock calls
    /// [`ByteLock::adopt`]; the others drop theirs.
    ///
    /// # Errors
    /// Those of [`ByteLock::try_exclusive`].
    pub fn try_exclusive_inherited(path: &Path, byte: u64) -> Result<Option<ByteLock>, Error> {
        let file = open(path, true)?;
        let locked = try_lock(&file, byte, libc::F_WRLCK).map_err(Error::lock(path))?;
        Ok(locked.then_some(ByteLock::by_file(file)))
    }

    /// Adds another byte, shared, to an inherited lock, so that it needs no second descriptor.
    /// `None` if there is an exclusive lock on that byte, or this lock is not inherited.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn and_shared(self, path: &Path, byte: u64) -> Result<Option<ByteLock>, Error> {
        let Keeper::Descriptor(file) = &self.keeper else {
            return Ok(None);
        };
        let locked = try_lock(file, byte, libc::F_RDLCK).map_err(Error::lock(path))?;
        Ok(locked.then_some(self))
    }

    /// Gives an inherited lock the life of this address space.
    ///
    /// # Errors
    /// The file's properties can't be read.
    pub fn adopt(self, path: &Path) -> Result<ByteLock, Error> {
        let Keeper::Descriptor(file) = self.keeper else {
            return Ok(self);
        };
        let kind = Kind::of(path, &file)?;
        let mapping = match kind.stacked {
            true => None,
            false => map_page(&file, kind.page_size),
        };
        Ok(mapping.map_or_else(|| ByteLock::by_file(file), ByteLock::by_mapping))
    }

    fn by_file(file: File) -> ByteLock {
        ByteLock {
            keeper: Keeper::Descriptor(file),
        }
    }

    fn by_mapping(mapping: Mapping) -> ByteLock {
        ByteLock {
            keeper: Keeper::Mapping(Kept::new(mapping)),
        }
    }

    /// The number of the descriptor that keeps the lock, if one does.
    #[must_use]
    pub fn descriptor(&self) -> Option<i32> {
        match &self.keeper {
            Keeper::Descriptor(file) => Some(file.as_raw_fd()),
            Keeper::Mapping(_) => None,
        }
    }

    /// Keeps the descriptor of an inherited lock open over exec.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn keep_over_exec(&self) -> io::Result<()> {
        self.descriptor()
            .map_or(Ok(()), |descriptor| set_cloexec(descriptor, false))
    }

    /// Takes over an inherited lock by the number of its descriptor, after exec. `None` if the
    /// number is no descriptor of the file.
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
        Some(ByteLock::by_file(file))
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

/// Maps a page of the file that keeps its description and is absent in a forked child.
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

/// File systems that may map a file other than the opened one: overlayfs, FUSE (passthrough),
/// ecryptfs. They are known by name, because a probe can't tell the own shared lock from others.
const STACKED: [u64; 3] = [0x794c_7630, 0x6573_5546, 0xf15f];

/// The properties of a file's mappings.
#[derive(Debug, Clone, Copy)]
struct Kind {
    page_size: usize,
    /// Set if the file system maps another file.
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

/// A description of its own, for probes: no byte is ever locked through it.
#[derive(Debug)]
pub struct Prober {
    file: File,
    path: PathBuf,
    kind: Kind,
}

impl Prober {
    /// Opens the pool's file again.
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

    /// Locks as [`ByteLock::try_exclusive`] does, in the prober's file.
    ///
    /// # Errors
    /// Those of [`ByteLock::try_exclusive`].
    pub fn try_exclusive(&self, byte: u64) -> Result<Option<ByteLock>, Error> {
        lock(&self.path, byte, libc::F_WRLCK, Some(self))
    }

    /// Locks as [`ByteLock::try_shared`] does, in the prober's file.
    ///
    /// # Errors
    /// Those of [`ByteLock::try_shared`].
    pub fn try_shared(&self, byte: u64) -> Result<Option<ByteLock>, Error> {
        lock(&self.path, byte, libc::F_RDLCK, Some(self))
    }

    /// The number of the descriptor.
    #[must_use]
    pub fn descriptor(&self) -> i32 {
        self.file.as_raw_fd()
    }

    /// The path by which the file was opened.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Finds the holder of byte number `byte`.
    ///
    /// # Errors
    /// The file system has no open file description locks.
    pub fn probe(&self, byte: u64) -> Result<Probe, Error> {
        probe(&self.file, byte).map_err(Error::lock(&self.path))
    }
}

/// The least number of a kept descriptor; smaller numbers belong to the program.
static LOWEST: AtomicI32 = AtomicI32::new(0);

/// Moves the descriptors that this crate keeps to numbers from `lowest` on, where the limit allows
/// so many. A preloaded library needs this: the program does not know of its descriptors, and may
/// close or reuse small numbers.
pub fn keep_descriptors_from(lowest: i32) {
    LOWEST.store(lowest, Ordering::Relaxed);
}

fn open(path: &Path, write: bool) -> Result<File, Error> {
    let file = open_pool(path, write).map_err(Error::open(path))?;
    Ok(keep(file.into()).into())
}

/// Moves a descriptor to the numbers that this crate keeps.
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

/// Opens a pool's file: never a terminal of this process's own, nor waiting for a FIFO's other end.
pub(crate) fn open_pool(path: &Path, write: bool) -> io::Result<File> {
    pool_options().read(true).write(write).open(path)
}

/// The flags by which pools are opened and made.
pub(crate) fn pool_options() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.custom_flags(libc::O_CLOEXEC | libc::O_NOCTTY | libc::O_NONBLOCK);
    options
}

/// Locks a byte. `beside` is another description of the same file, through which the lock can be
/// probed.
fn lock(
    path: &Path,
    byte: u64,
    kind: libc::c_int,
    beside: Option<&Prober>,
) -> Result<Option<ByteLock>, Error> {
    let failed = Error::lock(path);
    let write = kind == libc::F_WRLCK;
    let file = open(path, write)?;
    let of_file = match beside {
        Some(beside) => beside.kind,
        None => Kind::of(path, &file)?,
    };
    if !try_lock(&file, byte, kind).map_err(&failed)? {
        return Ok(None);
    }
    let mapping = match kind == libc::F_RDLCK && of_file.stacked {
        true => None,
        false => map_page(&file, of_file.page_size),
    };
    let Some(mapping) = mapping else {
        return Ok(Some(ByteLock::by_file(file)));
    };
    drop(file);
    // A second description shows whether the mapping keeps the lock.
    let is_kept = |file| Ok(probe(file, byte).map_err(&failed)? != Probe::Free);
    if let Some(beside) = beside
        && is_kept(&beside.file)?
    {
        return Ok(Some(ByteLock::by_mapping(mapping)));
    }
    let second = open(path, write)?;
    if is_kept(&second)? {
        return Ok(Some(ByteLock::by_mapping(mapping)));
    }
    // The mapping does not keep it: the byte is locked again, unless another process was faster.
    let locked = try_lock(&second, byte, kind).map_err(&failed)?;
    Ok(locked.then_some(ByteLock::by_file(second)))
}

/// A `struct flock` for one byte. `l_pid` must be 0 for these commands.
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

/// Tries F_OFD_SETLK. Returns `false` if another lock conflicts.
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

/// Finds a lock that conflicts with an exclusive one, by F_OFD_GETLK.
fn probe(file: &File, byte: u64) -> io::Result<Probe> {
    let mut flock = flock(byte, libc::F_WRLCK)?;
    // SAFETY: the kernel reads and writes a valid struct flock.
    if unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_GETLK, &mut flock) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(if flock.l_type == libc::F_UNLCK as libc::c_short {
        Probe::Free
    } else {
        // A pid of -1 stands for the lock of a description, which has no process.
        Probe::HeldBy(u32::try_from(flock.l_pid).unwrap_or(0))
    })
}
