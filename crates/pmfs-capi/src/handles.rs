//! Handles: what `pmfs_open` gives. A handle is this process's number for an open file
//! of the pool, whose offset it shares with duplicates and with forked children.

use crate::answer::{Answer, Failure, answer, done};
use crate::names::{node, size_of};
use crate::pointers::{bytes, offset, pool, put, room, signed, stat_of, text};
use crate::pools::Shared;
use libc::{
    O_ACCMODE, O_APPEND, O_CREAT, O_DIRECTORY, O_EXCL, O_NOFOLLOW, O_RDONLY, O_TRUNC, O_WRONLY,
};
use pmfs::types::mode;
use pmfs::{Attr, Error, FallocateMode, FileId, Ino};
use std::ffi::{c_char, c_int, c_void};
use std::io::SeekFrom;

/// Handles of one process in one pool.
const HANDLES_MAX: usize = 1 << 16;

/// A process's handles in a pool.
#[derive(Default)]
pub struct Handles {
    open: Vec<Option<Handle>>,
}

/// One of them.
#[derive(Clone, Copy)]
pub struct Handle {
    pub file: FileId,
    pub ino: Ino,
    flags: c_int,
}

impl Handle {
    pub fn is_for_writing(&self) -> bool {
        self.flags & O_ACCMODE != O_RDONLY
    }
}

impl Handles {
    /// A number for it, the lowest that is free.
    fn add(&mut self, handle: Handle) -> Answer<c_int> {
        let free = self.open.iter().position(Option::is_none);
        let number = free.unwrap_or(self.open.len());
        if number >= HANDLES_MAX {
            return Err(Failure::Wrong(
                libc::EMFILE,
                "65,536 handles are open in this process",
            ));
        }
        if number == self.open.len() {
            self.open.push(None);
        }
        self.open[number] = Some(handle);
        Ok(number as c_int)
    }

    fn get(&self, number: c_int) -> Answer<Handle> {
        let at = usize::try_from(number).ok();
        let found = at.and_then(|at| self.open.get(at).copied().flatten());
        found.ok_or(Failure::Wrong(libc::EBADF, "no such handle"))
    }

    fn take(&mut self, number: c_int) -> Answer<Handle> {
        let handle = self.get(number)?;
        self.open[number as usize] = None;
        Ok(handle)
    }
}

impl Shared {
    /// The handle of a number.
    pub fn handle(&self, number: c_int) -> Answer<Handle> {
        self.handles().get(number)
    }

    pub fn readable(&self, number: c_int) -> Answer<Handle> {
        let handle = self.handle(number)?;
        if handle.flags & O_ACCMODE == O_WRONLY {
            return Err(Failure::Wrong(libc::EBADF, "not open for reading"));
        }
        Ok(handle)
    }

    fn writable(&self, number: c_int) -> Answer<Handle> {
        let handle = self.handle(number)?;
        if !handle.is_for_writing() {
            return Err(Failure::Wrong(libc::EBADF, "not open for writing"));
        }
        Ok(handle)
    }

    fn open(&self, attr: &Attr, flags: c_int) -> Answer<c_int> {
        let is_dir = attr.mode & mode::S_IFMT == mode::S_IFDIR;
        if is_dir && (flags & O_ACCMODE != O_RDONLY || flags & O_TRUNC != 0) {
            return Err(Error::IsDirectory.into());
        }
        if !is_dir && flags & O_DIRECTORY != 0 {
            return Err(Error::NotDirectory.into());
        }
        if attr.mode & mode::S_IFMT == mode::S_IFLNK {
            return Err(Error::Loop.into());
        }
        let file = self.fs.open_found(attr, flags as u64)?;
        let handle = Handle {
            file,
            ino: attr.ino,
            flags,
        };
        let opened = match flags & O_TRUNC {
            0 => Ok(()),
            _ => self.fs.setattr(attr.ino, &size_of(0)).map(drop),
        };
        let number = opened
            .map_err(Failure::from)
            .and_then(|()| self.handles().add(handle));
        if number.is_err() {
            self.fs.close_file(file)?;
        }
        number
    }

    fn open_path(&self, path: &[u8], flags: c_int, bits: libc::mode_t) -> Answer<c_int> {
        let creates = flags & O_CREAT != 0;
        let follow = flags & O_NOFOLLOW == 0 && !(creates && flags & O_EXCL != 0);
        loop {
            let place = match creates {
                true => self.fs.place_of_name(path, follow)?,
                false => self.fs.place(path, follow)?,
            };
            if creates && place.slash {
                return Err(Error::IsDirectory.into());
            }
            let attr = match place.attr {
                Some(_) if creates && flags & O_EXCL != 0 => return Err(Error::Exists.into()),
                Some(attr) => attr,
                None if !creates => return Err(Error::NotFound.into()),
                None => match self.fs.create(place.dir.ino, &place.name, &node(bits)) {
                    Ok(attr) => attr,
                    // Somebody was faster, and it is there now.
                    Err(Error::Exists) if flags & O_EXCL == 0 => continue,
                    Err(error) => return Err(error.into()),
                },
            };
            return self.open(&attr, flags);
        }
    }
}

/// See `pmfs.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pmfs_open(
    on: *mut Shared,
    path: *const c_char,
    flags: c_int,
    mode: libc::mode_t,
) -> c_int {
    answer(-1, || {
        // SAFETY: as the header says.
        let (shared, path) = unsafe { (pool(on)?, text(path)?) };
        shared.open_path(path, flags, mode)
    })
}

/// See `pmfs.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pmfs_iopen(on: *mut Shared, inode: u64, flags: c_int) -> c_int {
    answer(-1, || {
        // SAFETY: as the header says.
        let shared = unsafe { pool(on) }?;
        let attr = shared.fs.getattr(inode)?;
        shared.open(&attr, flags)
    })
}

/// See `pmfs.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pmfs_close(on: *mut Shared, handle: c_int) -> c_int {
    done(|| {
        // SAFETY: as the header says.
        let shared = unsafe { pool(on) }?;
        let handle = shared.handles().take(handle)?;
        // POSIX: any close of a file by a process drops its locks on it.
        shared.fs.unlock_all(handle.ino, crate::locks::POSIX)?;
        Ok(shared.fs.close_file(handle.file)?)
    })
}

/// See `pmfs.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pmfs_dup(on: *mut Shared, handle: c_int) -> c_int {
    answer(-1, || {
        // SAFETY: as the header says.
        let shared = unsafe { pool(on) }?;
        let handle = shared.handle(handle)?;
        shared.fs.dup_file(handle.file)?;
        let number = shared.handles().add(handle);
        if number.is_err() {
            shared.fs.close_file(handle.file)?;
        }
        number
    })
}

/// See `pmfs.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pmfs_read(
    on: *mut Shared,
    handle: c_int,
    into: *mut c_void,
    size: usize,
) -> isize {
    answer(-1, || {
        // SAFETY: as the header says.
        let (shared, buffer) = unsafe { (pool(on)?, room(into, size)?) };
        let handle = shared.readable(handle)?;
        Ok(signed(shared.fs.read_file(handle.file, buffer)?))
    })
}

/// See `pmfs.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pmfs_write(
    on: *mut Shared,
    handle: c_int,
    from: *const c_void,
    size: usize,
) -> isize {
    answer(-1, || {
        // SAFETY: as the header says.
        let (shared, data) = unsafe { (pool(on)?, bytes(from, size)?) };
        let handle = shared.writable(handle)?;
        let append = handle.flags & O_APPEND != 0;
        Ok(signed(shared.fs.write_file(handle.file, data, |_| append)?))
    })
}

/// See `pmfs.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pmfs_pread(
    on: *mut Shared,
    handle: c_int,
    into: *mut c_void,
    size: usize,
    at: libc::off_t,
) -> isize {
    answer(-1, || {
        // SAFETY: as the header says.
        let (shared, buffer) = unsafe { (pool(on)?, room(into, size)?) };
        let handle = shared.readable(handle)?;
        Ok(signed(shared.fs.read(handle.ino, offset(at)?, buffer)?))
    })
}

/// See `pmfs.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pmfs_pwrite(
    on: *mut Shared,
    handle: c_int,
    from: *const c_void,
    size: usize,
    at: libc::off_t,
) -> isize {
    answer(-1, || {
        // SAFETY: as the header says.
        let (shared, data) = unsafe { (pool(on)?, bytes(from, size)?) };
        let handle = shared.writable(handle)?;
        let at = offset(at)?;
        if handle.flags & O_APPEND != 0 {
            // Linux appends here too.
            return Ok(signed(shared.fs.append(handle.ino, data)?.1));
        }
        Ok(signed(shared.fs.write(handle.ino, at, data)?))
    })
}

/// See `pmfs.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pmfs_lseek(
    on: *mut Shared,
    handle: c_int,
    by: libc::off_t,
    whence: c_int,
) -> libc::off_t {
    answer(-1, || {
        // SAFETY: as the header says.
        let shared = unsafe { pool(on) }?;
        let Handle { file, ino, .. } = shared.handle(handle)?;
        let to = match whence {
            libc::SEEK_SET => SeekFrom::Start(offset(by)?),
            libc::SEEK_CUR => SeekFrom::Current(by),
            libc::SEEK_END => SeekFrom::End(by),
            libc::SEEK_DATA => SeekFrom::Start(shared.fs.seek_data(ino, offset(by)?)?),
            libc::SEEK_HOLE => SeekFrom::Start(shared.fs.seek_hole(ino, offset(by)?)?),
            _ => return Err(Failure::Wrong(libc::EINVAL, "whence is none of SEEK_*")),
        };
        Ok(shared.fs.seek_file(file, to)? as libc::off_t)
    })
}

/// See `pmfs.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pmfs_fstat(
    on: *mut Shared,
    handle: c_int,
    into: *mut libc::stat,
) -> c_int {
    done(|| {
        // SAFETY: as the header says.
        let shared = unsafe { pool(on) }?;
        let attr = shared.fs.getattr(shared.handle(handle)?.ino)?;
        // SAFETY: as the header says.
        unsafe { put(into, stat_of(&attr)) }
    })
}

/// See `pmfs.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pmfs_ftruncate(
    on: *mut Shared,
    handle: c_int,
    size: libc::off_t,
) -> c_int {
    done(|| {
        // SAFETY: as the header says.
        let shared = unsafe { pool(on) }?;
        let handle = shared.writable(handle)?;
        shared.fs.setattr(handle.ino, &size_of(offset(size)?))?;
        Ok(())
    })
}

/// See `pmfs.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pmfs_fallocate(
    on: *mut Shared,
    handle: c_int,
    mode: c_int,
    at: libc::off_t,
    size: libc::off_t,
) -> c_int {
    done(|| {
        // SAFETY: as the header says.
        let shared = unsafe { pool(on) }?;
        let handle = shared.writable(handle)?;
        let (at, size) = (offset(at)?, offset(size)?);
        match mode {
            libc::FALLOC_FL_COLLAPSE_RANGE => shared.fs.collapse_range(handle.ino, at, size)?,
            libc::FALLOC_FL_INSERT_RANGE => shared.fs.insert_range(handle.ino, at, size)?,
            _ => {
                let mode = FallocateMode::from_bits(mode as u32)
                    .ok_or(Error::NotSupported(&"this mode of fallocate"))?;
                shared.fs.fallocate(handle.ino, mode, at, size)?;
            }
        }
        Ok(())
    })
}

/// See `pmfs.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pmfs_copy_file_range(
    on: *mut Shared,
    from: c_int,
    from_at: libc::off_t,
    to: c_int,
    to_at: libc::off_t,
    size: usize,
) -> isize {
    answer(-1, || {
        // SAFETY: as the header says.
        let shared = unsafe { pool(on) }?;
        let (from, to) = (shared.readable(from)?, shared.writable(to)?);
        let (from_at, to_at) = (offset(from_at)?, offset(to_at)?);
        let size = (size as u64).min(isize::MAX as u64);
        let copied = shared
            .fs
            .copy_range(from.ino, from_at, to.ino, to_at, size)?;
        Ok(copied as isize)
    })
}

/// See `pmfs.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pmfs_clone_range(
    on: *mut Shared,
    from: c_int,
    from_at: libc::off_t,
    to: c_int,
    to_at: libc::off_t,
    size: libc::off_t,
) -> c_int {
    done(|| {
        // SAFETY: as the header says.
        let shared = unsafe { pool(on) }?;
        let (from, to) = (shared.readable(from)?, shared.writable(to)?);
        let (source, target) = ((from.ino, offset(from_at)?), (to.ino, offset(to_at)?));
        shared.fs.clone_range(source, target, offset(size)?)?;
        Ok(())
    })
}
