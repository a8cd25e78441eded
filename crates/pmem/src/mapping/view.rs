//! A part of a pool, mapped once more for a program to load from and store to: pieces from here and
//! there in the pool, in one row of addresses. It is apart from the engine's own mapping, and no
//! write window closes it (docs/adr/0012-windows.md).

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

/// A run of a view's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// The offset in the view, bytes; whole pages.
    pub at: u64,
    /// The offset in the pool, bytes.
    pub off: u64,
    /// Bytes; whole pages.
    pub len: u64,
}

/// The receiver of stores to a view.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stores {
    /// No store is allowed.
    None,
    /// The pool, and so all processes.
    Shared,
    /// Copies of the pages, which are this process's alone.
    Private,
}

/// Some pages of a pool at addresses of their own. Addresses that no piece covers can't be touched.
#[derive(Debug)]
pub struct View {
    mapping: Mapping,
    file: File,
    stores: Stores,
}

impl Pmem {
    /// Maps pieces of the pool side by side, `len` bytes in all, with large pages where the longest
    /// piece has them.
    ///
    /// # Errors
    /// The pool is no file, or what is asked for is no whole pages of its medium, or copies of such
    /// as are large (`Unsupported`); what the kernel says.
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
    /// All of a file that is no pool, at a multiple of `align`, as large as its pages at least: to
    /// be measured beside one.
    ///
    /// # Errors
    /// It can't be opened or mapped.
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

    /// Bytes.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "a view is never empty")]
    pub fn len(&self) -> u64 {
        self.mapping.len() as u64
    }

    /// Its first address. The bytes there change at any time: it is for atomic accesses, or for
    /// programs that know better.
    #[must_use]
    pub fn as_ptr(&self) -> *mut u8 {
        self.mapping.base()
    }

    /// Shows a piece of the pool in place of what was at its addresses.
    ///
    /// # Errors
    /// It lies outside the view; what the kernel says.
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
        // A child that does not know of it has nothing that keeps the blocks where they are.
        // SAFETY: the same addresses; no byte changes.
        unsafe { libc::madvise(self.at(at).cast(), len, libc::MADV_DONTFORK) };
        Ok(())
    }

    /// Copies out of it.
    ///
    /// # Errors
    /// `InvalidInput`: outside it; `UnexpectedEof`: no page is there, or the medium failed.
    pub fn read(&self, at: u64, to: &mut [u8]) -> io::Result<()> {
        let (at, len) = self.range(at, to.len() as u64)?;
        // SAFETY: addresses of the view, which may fault, and a buffer of the caller's.
        let copied = unsafe { Copier::best().copy(to.as_mut_ptr(), self.at(at), len) };
        copied.map_err(|_| io::ErrorKind::UnexpectedEof.into())
    }

    /// Copies into it. Durable, where it is shared, once the pool's lines were flushed
    /// ([`Pmem::flush`]).
    ///
    /// # Errors
    /// Those of [`View::read`]; `PermissionDenied`: nobody may store to it.
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

    /// The page at `at`, copied.
    ///
    /// # Errors
    /// Those of [`View::read`].
    pub fn page(&self, at: u64) -> io::Result<Vec<u8>> {
        let mut page = vec![0; PAGE];
        self.read(at & !(PAGE as u64 - 1), &mut page)?;
        Ok(page)
    }

    /// The pages of a private view that were stored to, by their places in it.
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
