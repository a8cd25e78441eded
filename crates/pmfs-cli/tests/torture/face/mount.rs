//! System calls below a mount point. When the daemon dies, what is in flight fails: the
//! worker then dies too, so that its successor judges what became of it.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use nix::fcntl::{FcntlArg, fcntl};
use nix::libc;
use pmfs::{LockClass, LockKind, RenameFlags};
use rustix::fs::{self as calls, AtFlags, CWD, FallocateFlags, FlockOperation, Mode, XattrFlags};
use rustix::io::Errno;
use rustix::process::{Signal, getpid, kill_process, umask};

use super::{Done, Face, Handle, Range, Stat};
use crate::model::Kind;
use crate::stale;

const XATTR_MAX: usize = 64 << 10;

/// The number of times that a call is made again that gave ESTALE. Linux does so once, and two
/// things make it fail all the same:
/// - A directory that another mount has moved is to be renamed across directories: Linux does not
///   move its own entry of it (`__d_unalias`) while that rename holds the lock that this takes. A
///   process that looks it up before gets on.
/// - A name that others replace again and again: the inode is gone between its lookup and its use.
const STALE_MAX: u32 = 1000;

pub struct Mount {
    /// The root of the test, where calls that are made again are counted.
    root: PathBuf,
    dir: PathBuf,
    /// The files that are open, by number.
    open: RefCell<BTreeMap<Handle, File>>,
    next: Cell<Handle>,
}

/// The process ends as if it had been killed.
pub fn die() -> ! {
    let _ = kill_process(getpid(), Signal::KILL);
    loop {
        std::thread::park();
    }
}

fn number(errno: Errno) -> Errno {
    if matches!(errno, Errno::NOTCONN | Errno::CONNABORTED) {
        die();
    }
    errno
}

fn code(error: io::Error) -> Errno {
    number(Errno::from_io_error(&error).unwrap_or(Errno::IO))
}

fn nix_code(errno: nix::errno::Errno) -> Errno {
    number(Errno::from_raw_os_error(errno as i32))
}

fn flock_of(kind: i32, (start, len): Range) -> libc::flock {
    libc::flock {
        l_type: kind as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: start as libc::off_t,
        l_len: len as libc::off_t,
        l_pid: 0,
    }
}

impl Mount {
    pub fn attach(root: &Path, mount: usize) -> Mount {
        umask(Mode::empty());
        Mount {
            root: root.to_owned(),
            dir: super::mount_dir(root, mount),
            open: RefCell::default(),
            next: Cell::new(0),
        }
    }

    fn path(&self, path: &str) -> PathBuf {
        self.dir.join(path)
    }

    /// Makes a call again that gave ESTALE, and counts that.
    fn again<T>(&self, call: impl Fn() -> Done<T>) -> Done<T> {
        self.again_counted(false, call)
    }

    fn again_counted<T>(&self, is_rename: bool, call: impl Fn() -> Done<T>) -> Done<T> {
        for _ in 0..STALE_MAX {
            let done = call();
            if !matches!(done, Err(Errno::STALE)) {
                return done;
            }
            stale::count(&self.root, is_rename);
        }
        Err(Errno::STALE)
    }

    fn file(&self, path: &str, options: &OpenOptions) -> Done<File> {
        let path = self.path(path);
        self.again(|| options.open(&path).map_err(code))
    }

    fn writing(&self, path: &str) -> Done<File> {
        self.file(path, OpenOptions::new().write(true))
    }

    fn add(&self, file: File) -> Handle {
        self.next.set(self.next.get() + 1);
        self.open.borrow_mut().insert(self.next.get(), file);
        self.next.get()
    }

    fn set_lock(
        &self,
        handle: Handle,
        lock: LockClass,
        flock: &libc::flock,
        waits: bool,
    ) -> Done<()> {
        let command = match (lock, waits) {
            (LockClass::Posix, false) => FcntlArg::F_SETLK(flock),
            (LockClass::Posix, true) => FcntlArg::F_SETLKW(flock),
            (_, false) => FcntlArg::F_OFD_SETLK(flock),
            (_, true) => FcntlArg::F_OFD_SETLKW(flock),
        };
        let locked = fcntl(&self.open.borrow()[&handle], command);
        locked.map(drop).map_err(nix_code)
    }

    fn flock(&self, handle: Handle, operation: FlockOperation) -> Done<()> {
        calls::flock(&self.open.borrow()[&handle], operation).map_err(number)
    }
}

/// One call, as long as nothing ends it early.
fn read_at(file: &File, at: u64, len: usize) -> Done<Vec<u8>> {
    let mut bytes = vec![0; len];
    let mut got = 0;
    while got < len {
        match file.read_at(&mut bytes[got..], at + got as u64) {
            Ok(0) => break,
            Ok(more) => got += more,
            Err(error) => return Err(code(error)),
        }
    }
    bytes.truncate(got);
    Ok(bytes)
}

/// Checks that one call has written all bytes.
fn all(written: io::Result<usize>, asked: usize) -> Done<()> {
    match written {
        Ok(done) if done == asked => Ok(()),
        Ok(done) => {
            eprintln!("{done} of {asked} bytes written");
            Err(Errno::NOSPC)
        }
        Err(error) => Err(code(error)),
    }
}

impl Face for Mount {
    fn create(&self, path: &str, mode: u32) -> Done<()> {
        let mut options = OpenOptions::new();
        options.write(true).create_new(true).mode(mode);
        self.file(path, &options).map(drop)
    }

    fn mkdir(&self, path: &str, mode: u32) -> Done<()> {
        self.again(|| calls::mkdir(self.path(path), Mode::from_raw_mode(mode)).map_err(number))
    }

    fn symlink(&self, target: &str, path: &str) -> Done<()> {
        self.again(|| calls::symlink(target, self.path(path)).map_err(number))
    }

    fn link(&self, from: &str, to: &str) -> Done<()> {
        self.again(|| calls::link(self.path(from), self.path(to)).map_err(number))
    }

    fn unlink(&self, path: &str) -> Done<()> {
        self.again(|| calls::unlink(self.path(path)).map_err(number))
    }

    fn rmdir(&self, path: &str) -> Done<()> {
        self.again(|| calls::rmdir(self.path(path)).map_err(number))
    }

    fn rename(&self, from: &str, to: &str, flags: RenameFlags) -> Done<()> {
        let flags = calls::RenameFlags::from_bits_retain(flags.bits());
        let (old, new) = (self.path(from), self.path(to));
        let renamed = self.again_counted(true, || {
            let renamed = calls::renameat_with(CWD, &old, CWD, &new, flags);
            if renamed == Err(Errno::STALE) {
                for path in [&old, &new] {
                    let _ = calls::statat(CWD, path, AtFlags::SYMLINK_NOFOLLOW);
                }
            }
            renamed
        });
        renamed.map_err(number)
    }

    /// Linux looks up source and target, one after the other, and compares their kinds:
    /// the source may have been moved since.
    fn moved_before(&self) -> &'static [Errno] {
        &[Errno::NOENT, Errno::NOTDIR, Errno::ISDIR]
    }

    fn truncate(&self, path: &str, len: u64) -> Done<()> {
        self.writing(path)?.set_len(len).map_err(code)
    }

    fn chmod(&self, path: &str, mode: u32) -> Done<()> {
        self.again(|| calls::chmod(self.path(path), Mode::from_raw_mode(mode)).map_err(number))
    }

    fn punch(&self, path: &str, at: u64, len: u64) -> Done<()> {
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        calls::fallocate(self.writing(path)?, flags, at, len).map_err(number)
    }

    fn setxattr(&self, path: &str, name: &str, value: &[u8]) -> Done<()> {
        self.again(|| {
            calls::lsetxattr(self.path(path), name, value, XattrFlags::empty()).map_err(number)
        })
    }

    fn removexattr(&self, path: &str, name: &str) -> Done<()> {
        self.again(|| calls::lremovexattr(self.path(path), name).map_err(number))
    }

    fn xattrs(&self, path: &str) -> Done<BTreeMap<String, Vec<u8>>> {
        let path = self.path(path);
        let mut names = vec![0; XATTR_MAX];
        let got = calls::llistxattr(&path, &mut names[..]).map_err(number)?;
        let names = names[..got].split(|byte| *byte == 0);
        let values = names.filter(|name| !name.is_empty()).map(|name| {
            let mut value = vec![0; XATTR_MAX];
            let got = calls::lgetxattr(&path, OsStr::from_bytes(name), &mut value[..]);
            value.truncate(got.map_err(number)?);
            Ok((String::from_utf8_lossy(name).into_owned(), value))
        });
        values.collect()
    }

    fn stat(&self, path: &str) -> Done<Stat> {
        let path = self.path(path);
        let stat = || calls::statat(CWD, &path, AtFlags::SYMLINK_NOFOLLOW).map_err(number);
        let stat = self.again(stat)?;
        Ok(Stat {
            ino: stat.st_ino,
            mode: stat.st_mode,
            links: stat.st_nlink,
            size: stat.st_size as u64,
        })
    }

    fn kind(&self, path: &str, stat: &Stat) -> Done<Kind> {
        Ok(match calls::FileType::from_raw_mode(stat.mode) {
            calls::FileType::Directory => Kind::Dir,
            calls::FileType::Symlink => {
                let target = fs::read_link(self.path(path)).map_err(code)?;
                Kind::Symlink(target.to_string_lossy().into_owned())
            }
            _ => Kind::File,
        })
    }

    fn list(&self, path: &str) -> Done<Vec<String>> {
        let entries = fs::read_dir(self.path(path)).map_err(code)?;
        let names = entries.map(|entry| {
            let name = entry.map_err(code)?.file_name();
            Ok(name.to_string_lossy().into_owned())
        });
        names.collect()
    }

    fn write(&self, path: &str, at: u64, bytes: &[u8]) -> Done<()> {
        let file = self.writing(path)?;
        all(file.write_at(bytes, at), bytes.len())
    }

    fn append(&self, path: &str, bytes: &[u8]) -> Done<Option<u64>> {
        let mut file = self.file(path, OpenOptions::new().append(true))?;
        all(file.write(bytes), bytes.len())?;
        // The kernel counts the offset from the size that it knows, which may be old.
        Ok(None)
    }

    fn read(&self, path: &str, at: u64, len: usize) -> Done<Vec<u8>> {
        let file = self.file(path, OpenOptions::new().read(true))?;
        read_at(&file, at, len)
    }

    fn open(&self, path: &str) -> Done<Handle> {
        let file = self.file(path, OpenOptions::new().read(true).write(true))?;
        Ok(self.add(file))
    }

    fn close(&self, handle: Handle) -> Done<()> {
        drop(self.open.borrow_mut().remove(&handle));
        Ok(())
    }

    fn write_open(&self, handle: Handle, at: u64, bytes: &[u8]) -> Done<()> {
        all(self.open.borrow()[&handle].write_at(bytes, at), bytes.len())
    }

    fn read_open(&self, handle: Handle, at: u64, len: usize) -> Done<Vec<u8>> {
        read_at(&self.open.borrow()[&handle], at, len)
    }

    fn dup(&self, handle: Handle) -> Done<Handle> {
        let twin = self.open.borrow()[&handle].try_clone();
        Ok(self.add(twin.map_err(code)?))
    }

    fn seek(&self, handle: Handle, to: u64) -> Done<()> {
        let sought = (&self.open.borrow()[&handle]).seek(SeekFrom::Start(to));
        sought.map(drop).map_err(code)
    }

    fn write_next(&self, handle: Handle, bytes: &[u8]) -> Done<()> {
        all((&self.open.borrow()[&handle]).write(bytes), bytes.len())
    }

    fn read_next(&self, handle: Handle, len: usize) -> Done<Vec<u8>> {
        let mut bytes = vec![0; len];
        let got = (&self.open.borrow()[&handle]).read(&mut bytes);
        bytes.truncate(got.map_err(code)?);
        Ok(bytes)
    }

    fn lock(
        &self,
        handle: Handle,
        lock: LockClass,
        kind: LockKind,
        range: Range,
        waits: bool,
    ) -> Done<()> {
        if lock == LockClass::Flock {
            return self.flock(
                handle,
                match (kind, waits) {
                    (LockKind::Read, true) => FlockOperation::LockShared,
                    (LockKind::Read, false) => FlockOperation::NonBlockingLockShared,
                    (LockKind::Write, true) => FlockOperation::LockExclusive,
                    (LockKind::Write, false) => FlockOperation::NonBlockingLockExclusive,
                },
            );
        }
        let kind = match kind {
            LockKind::Read => libc::F_RDLCK,
            LockKind::Write => libc::F_WRLCK,
        };
        self.set_lock(handle, lock, &flock_of(kind, range), waits)
    }

    fn unlock(&self, handle: Handle, lock: LockClass, range: Range) -> Done<()> {
        if lock == LockClass::Flock {
            return self.flock(handle, FlockOperation::Unlock);
        }
        self.set_lock(handle, lock, &flock_of(libc::F_UNLCK, range), false)
    }

    fn leave(&self) -> Done<()> {
        self.open.borrow_mut().clear();
        Ok(())
    }
}
