//! A second mapping of parts of a pool, for a program's own loads and stores: pieces from several
//! places in the pool at consecutive addresses. It is separate from the engine's mapping, and no
//! write window protects it (docs/adr/0012-windows.md).

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::ptr::with_exposed_provenance_mut;

use crate::Pmem;
use crate::access::copy::Copier;
use crate::address_space::{HUGE, Mapping};

const PAGE: usize = 4096;

/// A range of a view and its place in the pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// The offset in the view, bytes; whole pages.
    pub at: u64,
    /// The offset in the pool, bytes.
    pub off: u64,
    /// Bytes; whole pages.
    pub len: u64,
}

/// The destination of stores to a view.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stores {
    /// No store is allowed.
    None,
    /// The pool, shared with all processes.
    Shared,
    /// Copies of the pages, private to this process.
    Private,
}

/// Pages of a pool at addresses of their own. Addresses without a piece can't be accessed.
#[derive(Debug)]
pub struct View {
    mapping: Mapping,
    file: File,
    stores: Stores,
}

impl Pmem {
    /// Maps pieces of the pool into a view of `len` bytes, with large pages where the longest piece
    /// has them.
    ///
    /// # Errors
    /// `Unsupported`: the pool is no file, a piece is not whole pages of its medium, or private
    /// copies of large pages are asked for. Otherwise the kernel's error.
    pub fn view(&self, len: u64, pieces: &[Piece], stores: Stores) -> io::Result<View> {
        let medium = self.medium();
        let whole = |bytes: u64| bytes.is_multiple_of(medium.page_size);
        let are_whole = pieces.iter().all(|piece| {
            let Piece { at, off, len } = *piece;
            whole(at) && whole(off) && whole(len)
        });
        if medium.has_large_pages() && (!are_whole || !whole(len) || stores == Stores::Private) {
            return Err(io::ErrorKind::Unsupported.into());
        }
        let file = self.file_again(true)?;
        let len = usize::try_from(len).map_err(io::Error::other)?;
        let longest = pieces.iter().max_by_key(|piece| piece.len);
        let align = medium.alignment();
        let first = longest.map_or(0, |piece| piece.off.wrapping_sub(piece.at) as usize % align);
        let view = View {
            mapping: Mapping::reserved(len.max(1), align, first)?,
            file,
            stores,
        };
        for piece in pieces {
            view.show(*piece)?;
        }
        Ok(view)
    }
}

impl View {
    /// Maps all of a file that is no pool, at a multiple of `align` that is at least its page size:
    /// for measurements beside a pool.
    ///
    /// # Errors
    /// The file can't be opened or mapped.
    pub fn of_file(path: &Path, align: usize) -> io::Result<View> {
        let file = File::options().read(true).write(true).open(path)?;
        let len = file.metadata()?.len();
        let view = View {
            mapping: Mapping::reserved(len.max(1) as usize, align.max(HUGE), 0)?,
            file,
            stores: Stores::Shared,
        };
        view.show(Piece { at: 0, off: 0, len })?;
        Ok(view)
    }

    /// Length of the view, bytes.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "a view is never empty")]
    pub fn len(&self) -> u64 {
        self.mapping.len() as u64
    }

    /// The first address. Other processes may change the bytes at any time, so only atomic accesses
    /// are valid from Rust.
    #[must_use]
    pub fn as_ptr(&self) -> *mut u8 {
        self.mapping.base()
    }

    /// Maps a piece of the pool over the previous mapping at its addresses.
    ///
    /// # Errors
    /// The piece lies outside of the view; or the kernel's error.
    pub fn show(&self, piece: Piece) -> io::Result<()> {
        let Piece { at, off, len } = piece;
        let (at, len) = self.range(at, len)?;
        let (protection, flags) = match self.stores {
            Stores::None => (libc::PROT_READ, libc::MAP_SHARED),
            Stores::Shared => (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED),
            Stores::Private => (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE),
        };
        let off = libc::off_t::try_from(off).map_err(io::Error::other)?;
        let fd = self.file.as_raw_fd();
        // SAFETY: addresses of this view's own, to which no reference exists.
        let mapped = unsafe {
            libc::mmap(
                self.at(at).cast(),
                len,
                protection,
                flags | libc::MAP_FIXED,
                fd,
                off,
            )
        };
        if mapped == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        // A forked child does not get the view: it may hold no pin that keeps the blocks in place.
        // SAFETY: the same addresses; no byte changes.
        unsafe { libc::madvise(self.at(at).cast(), len, libc::MADV_DONTFORK) };
        Ok(())
    }

    /// Copies bytes out of the view.
    ///
    /// # Errors
    /// `InvalidInput`: the range is outside of the view. `UnexpectedEof`: a page is missing, or the
    /// medium failed.
    pub fn read(&self, at: u64, to: &mut [u8]) -> io::Result<()> {
        let (at, len) = self.range(at, to.len() as u64)?;
        // SAFETY: addresses of the view, which may fault, and a buffer of the caller's.
        let copied = unsafe { Copier::best().copy(to.as_mut_ptr(), self.at(at), len) };
        copied.map_err(|_| io::ErrorKind::UnexpectedEof.into())
    }

    /// Copies bytes into the view. In a shared view they become durable once the pool's lines were
    /// flushed ([`Pmem::flush`]).
    ///
    /// # Errors
    /// Those of [`View::read`]; `PermissionDenied`: the view allows no stores.
    pub fn write(&self, at: u64, from: &[u8]) -> io::Result<()> {
        if self.stores == Stores::None {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        let (at, len) = self.range(at, from.len() as u64)?;
        // SAFETY: addresses of the view, which may be stored to and may fault, and a buffer of the
        // caller's.
        let copied = unsafe { Copier::best().copy(self.at(at), from.as_ptr(), len) };
        copied.map_err(|_| io::ErrorKind::UnexpectedEof.into())
    }

    /// Copies the page at `at` out of the view.
    ///
    /// # Errors
    /// Those of [`View::read`].
    pub fn page(&self, at: u64) -> io::Result<Vec<u8>> {
        let mut page = vec![0; PAGE];
        self.read(at & !(PAGE as u64 - 1), &mut page)?;
        Ok(page)
    }

    /// The offsets in a private view of the pages that were stored to.
    ///
    /// # Errors
    /// /proc can't tell.
    pub fn stored(&self) -> io::Result<Vec<u64>> {
        /// Bits of an entry of /proc/self/pagemap: the page is in memory, in swap, a file's.
        const PRESENT: u64 = 1 << 63;
        const SWAPPED: u64 = 1 << 62;
        const OF_FILE: u64 = 1 << 61;
        let pagemap = File::open("/proc/self/pagemap")?;
        let mut entries = vec![0; self.mapping.len() / PAGE * 8];
        let first = self.mapping.base().addr() / PAGE * 8;
        pagemap.read_exact_at(&mut entries, first as u64)?;
        let own = |entry: &[u8; 8]| {
            let entry = u64::from_ne_bytes(*entry);
            entry & SWAPPED != 0 || entry & (PRESENT | OF_FILE) == PRESENT
        };
        let (entries, _) = entries.as_chunks::<8>();
        let stored = entries.iter().enumerate().filter(|(_, entry)| own(entry));
        Ok(stored.map(|(page, _)| (page * PAGE) as u64).collect())
    }

    fn at(&self, at: usize) -> *mut u8 {
        with_exposed_provenance_mut(self.mapping.base().addr() + at)
    }

    fn range(&self, at: u64, len: u64) -> io::Result<(usize, usize)> {
        match at.checked_add(len) {
            Some(end) if end <= self.len() => Ok((at as usize, len as usize)),
            _ => Err(io::ErrorKind::InvalidInput.into()),
        }
    }
}
