//! A file's own blocks at addresses of a program that uses the library: its loads and stores reach
//! the medium without a copy (PMFS 3.1). The mapping pins the file (`mapping/pin.rs`); `pmfs run`
//! does the same for programs that call mmap(2).

use super::Fs;
use crate::mapping::pin::BlockRun;
use crate::mapping::stored::Shown;
use crate::types::Ino;
use pm_journal::error::{Error, Result};
use pmem::view::{Piece, Stores, View};
use pmfs_format::BLOCK_BYTES;
use std::collections::BTreeMap;
use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The visibility of stores to a mapped file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MapMode {
    /// No store is allowed.
    Read,
    /// Others see a store at once. It is durable once [`FileMap::sync`] has returned.
    Shared,
    /// Others see no store until [`FileMap::sync`], which is all or nothing: after a crash the file
    /// is as of one sync. No other process maps the file meanwhile, and this process maps each part
    /// of it once.
    Atomic,
}

/// A mapped part of a file, and the visibility of its stores.
type Part = (Shown, MapMode);

/// The mapped parts of each file in this process. The file's pin ends with the last part.
#[derive(Debug, Default)]
pub(super) struct Maps(Mutex<BTreeMap<Ino, Vec<Part>>>);

impl Maps {
    fn all(&self) -> MutexGuard<'_, BTreeMap<Ino, Vec<Part>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A mapped part of a file. The mapping holds the file, even without a name. If the file is
/// truncated, the bytes cut off read as zeros.
pub struct FileMap<'a> {
    fs: &'a Fs,
    ino: Ino,
    at: u64,
    mode: MapMode,
    /// The view; `None` only while this is dropped.
    view: Option<View>,
}

impl Fs {
    /// Maps the bytes `at..at + len` of a file. `at` is a multiple of the block size, and the end
    /// is not past the end of the file. Holes get memory.
    ///
    /// # Errors
    /// [`Error::Mapped`]: a mount's kernel has pages of the file, or another process has it mapped
    /// and one of the two needs it alone. [`Error::NoSpace`]. [`Error::Invalid`]: the range is not
    /// as described. [`Error::Media`]: the pool is private memory; or its medium has large pages
    /// (hugetlbfs, most DAX devices), and the range is not whole pages or the mode is
    /// [`MapMode::Atomic`].
    pub fn map(&self, ino: Ino, at: u64, len: u64, mode: MapMode) -> Result<FileMap<'_>> {
        let size = self.getattr(ino)?.size;
        let inside = at.checked_add(len).is_some_and(|end| end <= size);
        if !at.is_multiple_of(BLOCK_BYTES) || len == 0 || !inside {
            return Err(Error::Invalid(
                &"a range inside the file, from a block's start on, is needed",
            ));
        }
        self.hold(ino)?;
        let mut maps = self.maps.all();
        let meets = |(other, _): &Part| other.at < at + len && at < other.at + other.len;
        let others = maps.get(&ino).map_or(&[][..], Vec::as_slice);
        let mapped = if mode == MapMode::Atomic && others.iter().any(meets) {
            Err(Error::Mapped)
        } else {
            self.view(ino, at, len, mode)
        };
        match mapped {
            Ok(view) => {
                let address = view.as_ptr().addr();
                let shown = Shown { address, at, len };
                maps.entry(ino).or_default().push((shown, mode));
                Ok(FileMap {
                    fs: self,
                    ino,
                    at,
                    mode,
                    view: Some(view),
                })
            }
            Err(error) => {
                if others.is_empty() {
                    self.unpin(ino)?;
                }
                drop(maps);
                self.release(ino)?;
                Err(error)
            }
        }
    }

    fn view(&self, ino: Ino, at: u64, len: u64, mode: MapMode) -> Result<View> {
        let stores = match mode {
            MapMode::Read => Stores::None,
            MapMode::Shared => Stores::Shared,
            MapMode::Atomic => Stores::Private,
        };
        match mode {
            MapMode::Atomic => self.pin_apart(ino)?,
            _ => self.pin(ino, mode == MapMode::Shared)?,
        }
        let runs = self.blocks(ino, at, len, u64::MAX)?;
        let pieces: Vec<Piece> = runs.iter().map(|run| piece(run, at)).collect();
        let failed = |source: io::Error| {
            let path = self.mapping().path();
            let path = path.unwrap_or("a pool without a file".as_ref()).to_owned();
            let page_size = self.mapping().medium().page_size;
            Error::from(match source.kind() {
                io::ErrorKind::Unsupported if page_size > BLOCK_BYTES => {
                    pmem::Error::LargePages { path, page_size }
                }
                _ => pmem::Error::Map { path, len, source },
            })
        };
        self.mapping().view(len, &pieces, stores).map_err(failed)
    }
}

fn piece(run: &BlockRun, at: u64) -> Piece {
    Piece {
        at: run.at - at,
        off: run.off,
        len: run.len,
    }
}

impl FileMap<'_> {
    fn there(&self) -> &View {
        self.view.as_ref().expect("there until it is dropped")
    }

    /// Length in bytes, a multiple of the page size.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "a mapping is never empty")]
    pub fn len(&self) -> u64 {
        self.there().len()
    }

    /// The first address. Others may store to the bytes at any time, so only atomic accesses are
    /// valid, unless the caller knows that nobody does. No thread may store while [`FileMap::sync`]
    /// of an atomic mapping runs.
    #[must_use]
    pub fn as_ptr(&self) -> *mut u8 {
        self.there().as_ptr()
    }

    /// Copies bytes out of the mapping, from `at` (bytes from its start) on.
    ///
    /// # Errors
    /// `InvalidInput`: the range is outside of the mapping. `UnexpectedEof`: the medium failed.
    pub fn read(&self, at: u64, to: &mut [u8]) -> io::Result<()> {
        self.there().read(at, to)
    }

    /// Copies bytes into the mapping, from `at` (bytes from its start) on.
    ///
    /// # Errors
    /// Those of [`FileMap::read`]; `PermissionDenied`: the mode is [`MapMode::Read`].
    pub fn write(&self, at: u64, from: &[u8]) -> io::Result<()> {
        self.there().write(at, from)
    }

    /// Makes the stores durable and updates the file's times. An atomic mapping gives all its
    /// stores to the file at once.
    ///
    /// # Errors
    /// [`Error::NoSpace`] for an atomic mapping: the file is unchanged, and the stores are still in
    /// the mapping.
    pub fn sync(&self) -> Result<()> {
        match self.mode {
            MapMode::Read => Ok(()),
            MapMode::Shared => self.flush(),
            MapMode::Atomic => self.hand_over(),
        }
    }

    fn flush(&self) -> Result<()> {
        // The lock keeps others from mapping or unmapping meanwhile.
        let maps = self.fs.maps.all();
        let parts = maps.get(&self.ino).map_or(&[][..], Vec::as_slice);
        let stored_to = parts.iter().filter(|(_, mode)| *mode == MapMode::Shared);
        let all: Vec<Shown> = stored_to.map(|(shown, _)| *shown).collect();
        let own = Shown {
            address: self.as_ptr().addr(),
            at: self.at,
            len: self.len(),
        };
        self.fs.flush_stored(self.ino, &own, &all)
    }

    fn hand_over(&self) -> Result<()> {
        let lost = |_| Error::Medium { offset: self.at };
        let view = self.there();
        let stored = view.stored().map_err(lost)?;
        let pages: Vec<Vec<u8>> = stored
            .iter()
            .map(|&page| view.page(page).map_err(lost))
            .collect::<Result<_>>()?;
        let parts: Vec<(u64, &[u8])> = stored
            .iter()
            .zip(&pages)
            .map(|(page, bytes)| (self.at + page, bytes.as_slice()))
            .collect();
        self.fs.write_pages(self.ino, &parts)?;
        for run in stored.chunk_by(|one, next| one + BLOCK_BYTES == *next) {
            let len = run.len() as u64 * BLOCK_BYTES;
            for run in self.fs.blocks(self.ino, self.at + run[0], len, 0)? {
                // After a failure the copy stays mapped. It has the same bytes, and is handed over
                // again.
                let _ = view.show(piece(&run, self.at));
            }
        }
        Ok(())
    }
}

impl Drop for FileMap<'_> {
    fn drop(&mut self) {
        // Dropping behaves as munmap(2), which can't report this error; a caller that needs it
        // calls `sync` first.
        let _ = self.sync();
        let address = self.as_ptr().addr();
        let mut maps = self.fs.maps.all();
        // The view ends before the pin, after which its blocks may belong to others.
        self.view = None;
        if let Some(parts) = maps.get_mut(&self.ino) {
            let part = parts.iter().position(|(shown, _)| shown.address == address);
            if let Some(part) = part {
                parts.swap_remove(part);
            }
            if parts.is_empty() {
                maps.remove(&self.ino);
                let _ = self.fs.unpin(self.ino);
            }
        }
        drop(maps);
        let _ = self.fs.release(self.ino);
    }
}
