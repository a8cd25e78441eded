//! Reading directories.

use crate::answer::{Answer, answer, done};
use crate::pointers::{place, pool, put, text};
use crate::pools::Shared;
use pmfs::types::mode;
use pmfs::{Error, FileId, Ino};
use std::collections::VecDeque;
use std::ffi::{c_char, c_int};
use std::ptr::null_mut;

/// Entries that are read at a time.
const BATCH: usize = 64;

/// The content of a `pmfs_dir_t`: a directory held open, and entries read ahead.
pub struct Dir {
    shared: *const Shared,
    file: FileId,
    ino: Ino,
    cookie: u64,
    ahead: VecDeque<Dirent>,
}

/// `struct pmfs_dirent` of the header.
#[repr(C)]
pub struct Dirent {
    inode: u64,
    cookie: u64,
    kind: u8,
    name: [u8; 256],
}

impl Dir {
    fn next(&mut self) -> Answer<Option<Dirent>> {
        if self.ahead.is_empty() {
            // SAFETY: the pool outlives what is open in it, as the header says.
            let shared = unsafe { pool(self.shared) }?;
            let ahead = &mut self.ahead;
            shared.fs.readdir(self.ino, self.cookie, &mut |entry| {
                // Between entries with equal hashes the reading can't begin; their
                // cookies are the same, but for the last.
                let last = ahead.back();
                let more = last.is_some_and(|last: &Dirent| entry.cookie <= last.cookie + 1);
                if ahead.len() >= BATCH && !more {
                    return false;
                }
                let mut name = [0; 256];
                name[..entry.name.len()].copy_from_slice(entry.name);
                ahead.push_back(Dirent {
                    inode: entry.ino,
                    cookie: entry.cookie,
                    kind: (entry.kind >> 12) as u8,
                    name,
                });
                true
            })?;
        }
        let next = self.ahead.pop_front();
        if let Some(next) = &next {
            self.cookie = next.cookie;
        }
        Ok(next)
    }
}

/// See `pmfs.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pmfs_opendir(on: *mut Shared, path: *const c_char) -> *mut Dir {
    answer(null_mut(), || {
        // SAFETY: as the header says.
        let (shared, path) = unsafe { (pool(on)?, text(path)?) };
        let attr = shared.fs.walk(path, true)?;
        if attr.mode & mode::S_IFMT != mode::S_IFDIR {
            return Err(Error::NotDirectory.into());
        }
        let dir = Dir {
            shared: on,
            file: shared.fs.open_found(&attr, 0)?,
            ino: attr.ino,
            cookie: 0,
            ahead: VecDeque::new(),
        };
        Ok(Box::into_raw(Box::new(dir)))
    })
}

/// See `pmfs.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pmfs_readdir(dir: *mut Dir, into: *mut Dirent) -> c_int {
    answer(-1, || {
        // SAFETY: as the header says.
        let Some(entry) = unsafe { place(dir) }?.next()? else {
            return Ok(0);
        };
        // SAFETY: as the header says.
        unsafe { put(into, entry) }?;
        Ok(1)
    })
}

/// See `pmfs.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pmfs_seekdir(dir: *mut Dir, cookie: u64) {
    // SAFETY: as the header says.
    if let Some(dir) = unsafe { dir.as_mut() } {
        dir.cookie = cookie;
        dir.ahead.clear();
    }
}

/// See `pmfs.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pmfs_closedir(dir: *mut Dir) -> c_int {
    done(|| {
        // SAFETY: as the header says.
        unsafe { place(dir) }?;
        // SAFETY: it came from `Box::into_raw`, and the caller gives it up.
        let dir = unsafe { Box::from_raw(dir) };
        // SAFETY: as in `next`.
        let shared = unsafe { pool(dir.shared) }?;
        Ok(shared.fs.close_file(dir.file)?)
    })
}
