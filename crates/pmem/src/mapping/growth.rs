//! Mappings that grow: when the file becomes longer, its new bytes are mapped into the address
//! space reserved behind the mapping. No mapped byte ever moves.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::path::{Path, PathBuf};
use std::sync::PoisonError;

use crate::mapping::room::Access;
use crate::processes::slots::open_pool;
use crate::{Error, Identity, MediumKind, Pmem};

impl Pmem {
    /// Extends the mapping to the first `len` bytes of the pool, whose file another process has
    /// lengthened. A mapping that is already as long stays as it is.
    ///
    /// # Errors
    /// `NoRoom`; `TooSmall`: the file has fewer bytes; `Unaligned`; `Open`: the file's name belongs
    /// to another file now; `Map` and `Protect`: the kernel refuses. After an error the pool is
    /// unchanged.
    pub fn extend(&self, len: u64) -> Result<(), Error> {
        if len <= self.len() {
            return Ok(());
        }
        self.may_become(len)?;
        let file = self.path().map(|path| self.longer_file(path)).transpose()?;
        self.extend_by(file.as_ref(), len)
    }

    /// Lengthens the pool to `len` bytes and extends the mapping to them. The file gets space for
    /// the new bytes unless `sparse`; they read as zeros. A pool that is already as long stays as
    /// it is. Only one process may do this at a time.
    ///
    /// # Errors
    /// Those of [`Pmem::extend`], and `NoSpace`, `Resize`. After an error the pool and its file are
    /// unchanged, or the file is longer and has the space.
    pub fn lengthen(&self, len: u64, sparse: bool) -> Result<(), Error> {
        let from = self.len();
        if len <= from {
            return Ok(());
        }
        let Some(path) = self.path() else {
            return self.extend_by(None, len);
        };
        self.may_become(len)?;
        let file = self.longer_file(path)?;
        let there = file.metadata().map_or(0, |metadata| metadata.len());
        lengthen_file(path, &file, len, sparse)?;
        if there > from && !sparse {
            // The process that lengthened the file may have died before the file had space.
            allocate(path, &file, from, there.min(len))?;
        }
        self.extend_by(Some(&file), len)?;
        if !sparse && self.medium().kind == MediumKind::Tmpfs {
            // The pages of a new part are populated now, so that no later store waits for it.
            self.populate(from & !4095, &mut |_, _| ());
        }
        Ok(())
    }

    /// Checks that the mapping may have `len` bytes: they are whole pages, and address space is
    /// reserved.
    fn may_become(&self, len: u64) -> Result<(), Error> {
        let page_size = self.medium().page_size;
        if self.medium().has_large_pages() && !len.is_multiple_of(page_size) {
            return Err(Error::Unaligned {
                path: self.name(),
                len,
                page_size,
            });
        }
        if self.medium().kind == MediumKind::DevDax {
            return Err(Error::NoSpace {
                path: self.name(),
                wanted: len,
                source: io::Error::from_raw_os_error(libc::ENOSPC),
            });
        }
        if len > self.room() {
            return Err(Error::NoRoom {
                path: self.name(),
                wanted: len,
                room: self.room(),
            });
        }
        Ok(())
    }

    /// Maps the missing part of the first `len` bytes.
    fn extend_by(&self, file: Option<&File>, len: u64) -> Result<(), Error> {
        self.may_become(len)?;
        let Some(growth) = self.growth.as_deref() else {
            return Ok(());
        };
        let Access {
            protection, flags, ..
        } = growth.access;
        let one = growth.one_at_a_time.lock();
        let _one = one.unwrap_or_else(PoisonError::into_inner);
        if let Some(file) = file {
            let metadata = file.metadata();
            let there = metadata.map_err(|source| self.unmapped(len, source))?.len();
            if there < len {
                return Err(Error::TooSmall {
                    path: self.name(),
                    len: there,
                    min: len,
                });
            }
        }
        let page_size = self.medium().page_size as usize;
        let (mapped, end) = (
            self.mapping.len(),
            (len as usize).next_multiple_of(page_size),
        );
        if mapped < end {
            let protection = self.guard.before_closing(protection);
            let file = file.map(AsFd::as_fd);
            let put = self.mapping.put(file, mapped..end, protection, flags);
            put.map_err(|source| self.unmapped(len, source))?;
            if let Some(node) = self.node {
                node.grow(end);
            }
            let closed = self.guard.close_more(&self.mapping, mapped..end);
            closed.map_err(|source| Error::Protect {
                path: self.name(),
                source,
            })?;
            self.mapping.grown(end);
            growth.access.advise(&self.mapping);
        }
        growth.admit(len);
        Ok(())
    }

    fn unmapped(&self, len: u64, source: io::Error) -> Error {
        Error::Map {
            path: self.name(),
            len,
            source,
        }
    }

    /// The pool's name in errors.
    fn name(&self) -> PathBuf {
        self.path().unwrap_or(Path::new("private memory")).into()
    }

    fn longer_file(&self, path: &Path) -> Result<File, Error> {
        let protection = self
            .growth
            .as_deref()
            .map(|growth| growth.access.protection);
        let write = protection.is_some_and(|protection| protection & libc::PROT_WRITE != 0);
        self.file_again(write).map_err(Error::open(path))
    }

    /// Opens the pool's file again. A descriptor kept since the first time may belong to another
    /// file, because programs close descriptors that they do not know.
    ///
    /// # Errors
    /// `Unsupported`: the pool is no file. `NotFound`: its name is gone, or belongs to another
    /// file.
    pub(crate) fn file_again(&self, write: bool) -> io::Result<File> {
        let path = self.path().ok_or(io::ErrorKind::Unsupported)?;
        let file = open_pool(path, write)?;
        if Identity::of(&file.metadata()?) != self.identity() {
            return Err(io::ErrorKind::NotFound.into());
        }
        Ok(file)
    }
}

/// The error of a file that can't have `wanted` bytes, or space for them.
fn refused(path: &Path, wanted: u64, source: io::Error) -> Error {
    match source.raw_os_error() {
        Some(libc::ENOSPC | libc::EDQUOT | libc::EFBIG) => Error::NoSpace {
            path: path.into(),
            wanted,
            source,
        },
        _ => Error::Resize {
            path: path.into(),
            wanted,
            source,
        },
    }
}

/// Lengthens a pool's file to `len` bytes, if it is shorter, with space for all new bytes unless
/// `sparse`. Without space the file keeps its length.
///
/// # Errors
/// `NoSpace`, `Resize`.
pub fn lengthen_file(path: &Path, file: &File, len: u64, sparse: bool) -> Result<(), Error> {
    let failed = |source| refused(path, len, source);
    let from = file.metadata().map_err(failed)?.len();
    if len <= from {
        return Ok(());
    }
    if libc::off_t::try_from(len).is_err() {
        return Err(failed(io::Error::from_raw_os_error(libc::EFBIG)));
    }
    file.set_len(len).map_err(failed)?;
    if sparse {
        return Ok(());
    }
    allocate(path, file, from, len).inspect_err(|_| {
        // The first error tells why there is no space; a failure to shorten the file again is
        // ignored.
        let _ = file.set_len(from);
    })
}

/// Allocates space for the bytes `from..end` of a file.
fn allocate(path: &Path, file: &File, from: u64, end: u64) -> Result<(), Error> {
    let failed = |errno: i32| {
        let source = io::Error::from_raw_os_error(errno);
        refused(path, end, source)
    };
    let at = |bytes: u64| libc::off_t::try_from(bytes).map_err(|_| failed(libc::EFBIG));
    let (start, more) = (at(from)?, at(end - from)?);
    loop {
        // SAFETY: no memory is involved. (Falls back to writing zeros where
        // the file system has no fallocate.)
        match unsafe { libc::posix_fallocate(file.as_raw_fd(), start, more) } {
            0 => return Ok(()),
            libc::EINTR => {}
            errno => return Err(failed(errno)),
        }
    }
}
