//! Opening and making pools.

use std::fs::{self, File};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::Path;

use crate::address_space::{HUGE, Mapping};
use crate::cpu::cpu;
use crate::mapping::growth::lengthen_file;
use crate::mapping::pool::Parts;
use crate::mapping::room::{self, Access, Growth};
use crate::medium::{self, DaxDevice, FlushMode};
use crate::processes::slots::{open_pool, pool_options};
use crate::protection::Guard;
use crate::{Durability, Emulation, Error, Identity, Medium, MediumKind, Pmem, ProtectMode};

/// The shortest pool that can be mapped, bytes.
const LEN_MIN: u64 = 4096;

/// The options of a mapping.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct MapOptions {
    /// Maps without write access: a store ends the process, as on any read-only page.
    pub read_only: bool,
    /// The choice to flush where the medium does not survive power loss.
    pub flush: FlushMode,
    /// Calls msync at each fence for the flushed pages of a plain file.
    pub durable: bool,
    /// The medium to emulate.
    pub emulate: Emulation,
    /// Address space to reserve, bytes from the pool's start, into which the mapping can grow
    /// ([`Pmem::extend`]). The limits of the process may leave less ([`Pmem::room`]). 0: it never
    /// grows.
    pub reserve: u64,
    /// The protection against stray stores. A mapping without write access needs none.
    pub protect: ProtectMode,
}

impl Pmem {
    /// Maps an existing pool.
    ///
    /// # Errors
    /// The file can't be opened, has an unsuitable type or length, or can't be mapped.
    pub fn open(path: &Path, options: &MapOptions) -> Result<Pmem, Error> {
        let file = open_pool(path, !options.read_only).map_err(Error::open(path))?;
        map_file(path, &file, options)
    }

    /// Creates a pool of `len` bytes, mode 0600, and maps it. All of it is allocated unless
    /// `sparse`. An existing file is refused if `exclusive`, otherwise emptied. A DAX device is
    /// neither created nor resized: it must have at least `len` bytes, and its first page must be
    /// zero if `exclusive`.
    ///
    /// # Errors
    /// Those of [`Pmem::open`]; `NoSpace` (the file is removed again), `Exists`, `Unaligned`,
    /// `Resize`.
    pub fn create(
        path: &Path,
        len: u64,
        sparse: bool,
        exclusive: bool,
        options: &MapOptions,
    ) -> Result<Pmem, Error> {
        Pmem::create_watched(path, len, sparse, exclusive, options, &mut |_, _| ())
    }

    /// Creates a pool as [`Pmem::create`] does. `progress` is passed to [`Pmem::populate`], the
    /// longest part.
    ///
    /// # Errors
    /// Those of [`Pmem::create`].
    pub fn create_watched(
        path: &Path,
        len: u64,
        sparse: bool,
        exclusive: bool,
        options: &MapOptions,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<Pmem, Error> {
        long_enough(path, len)?;
        if fs::metadata(path).is_ok_and(|m| m.file_type().is_char_device()) {
            return claim_device(path, len, exclusive, options);
        }
        let file = pool_options()
            .read(true)
            .write(true)
            .create(true)
            .create_new(exclusive)
            .truncate(false)
            .mode(0o600)
            .open(path)
            .map_err(|source| match source.kind() {
                io::ErrorKind::AlreadyExists => Error::Exists { path: path.into() },
                _ => Error::open(path)(source),
            })?;
        let made =
            give_length(path, &file, len, sparse).and_then(|()| map_file(path, &file, options));
        if let Ok(pool) = &made
            && !sparse
            && pool.medium().kind == crate::MediumKind::Tmpfs
        {
            // tmpfs zeroes a 2 MiB page at its first access, in 100 us, or ten times that where a
            // hypervisor must find the memory first. This is done here, so that no later write
            // waits for it.
            pool.populate(0, progress);
        }
        if made.is_err() && file.metadata().is_ok_and(|m| m.is_file()) {
            // The first error says more than that of a failed removal.
            let _ = fs::remove_file(path);
        }
        made
    }
}

/// Checks a DAX device, which can't be created or resized.
fn claim_device(
    path: &Path,
    len: u64,
    exclusive: bool,
    options: &MapOptions,
) -> Result<Pmem, Error> {
    let mem = Pmem::open(path, options)?;
    if len > mem.len() {
        return Err(Error::NoSpace {
            path: path.into(),
            wanted: len,
            source: io::Error::from_raw_os_error(libc::ENOSPC),
        });
    }
    let mut first = [0; LEN_MIN as usize];
    let empty = mem.copy_out(0, &mut first).is_ok() && first.iter().all(|&b| b == 0);
    if exclusive && !empty {
        return Err(Error::Exists { path: path.into() });
    }
    Ok(mem)
}

/// Empties the file and gives it `len` bytes of zeros.
fn long_enough(path: &Path, len: u64) -> Result<(), Error> {
    if len < LEN_MIN {
        return Err(Error::TooSmall {
            path: path.into(),
            len,
            min: LEN_MIN,
        });
    }
    Ok(())
}

fn give_length(path: &Path, file: &File, len: u64, sparse: bool) -> Result<(), Error> {
    let (_, page_size, _) = medium::examine(path, file)?;
    if !len.is_multiple_of(page_size) && page_size > LEN_MIN {
        return Err(Error::Unaligned {
            path: path.into(),
            len,
            page_size,
        });
    }
    file.set_len(0).map_err(|source| Error::Resize {
        path: path.into(),
        wanted: len,
        source,
    })?;
    lengthen_file(path, file, len, sparse)
}

/// Maps an open file or device, after finding out its kind of medium.
fn map_file(path: &Path, file: &File, options: &MapOptions) -> Result<Pmem, Error> {
    check_cpu(options)?;
    let probe = |source| Error::Probe {
        path: path.into(),
        what: "fstat".into(),
        source,
    };
    let metadata = file.metadata().map_err(probe)?;
    let (kind, page_size, fs_magic) = medium::examine(path, file)?;
    let len = match kind {
        MediumKind::DevDax => {
            DaxDevice::find(Path::new("/sys/dev/char"), path, metadata.rdev())?.size
        }
        _ => metadata.len(),
    };
    long_enough(path, len)?;
    let mut medium = Medium {
        kind,
        durability: Durability::Process,
        flush: crate::FlushInstr::None,
        fs_magic,
        page_size,
    };
    // A tmpfs that gives large pages without advice reports a large block size.
    let advice: &[_] = if metadata.blksize() < HUGE as u64 {
        &[libc::MADV_HUGEPAGE, libc::MADV_DONTDUMP]
    } else {
        &[libc::MADV_DONTDUMP]
    };
    let mapped = map_shared(file, len, &mut medium, options, advice);
    let (mapping, growth) = mapped.map_err(|source| Error::Map {
        path: path.into(),
        len,
        source,
    })?;
    (medium.flush, medium.durability) =
        medium::persistence(medium.kind, options.flush, options.durable);
    let guard = close(&mapping, options).map_err(|source| Error::Protect {
        path: path.into(),
        source,
    })?;
    let mem = Pmem::assemble(Parts {
        mapping,
        len,
        medium,
        fence_always: medium.flush != crate::FlushInstr::None
            || medium.durability == Durability::PowerFail,
        guard,
        path: Some(path.into()),
        identity: Identity::of(&metadata),
        sparse: matches!(
            medium.kind,
            MediumKind::Tmpfs | MediumKind::File | MediumKind::FsDax
        ) && metadata.blocks().saturating_mul(512) < len,
        growth,
    });
    Ok(mem.emulating(options.emulate))
}

/// Protects a mapping from stray stores.
fn close(mapping: &Mapping, options: &MapOptions) -> io::Result<Guard> {
    if options.read_only {
        return Ok(Guard::None);
    }
    Guard::close(mapping, options.protect)
}

/// Maps the file, with MAP_SYNC where the file system supports it.
fn map_shared(
    file: &File,
    len: u64,
    medium: &mut Medium,
    options: &MapOptions,
    advice: &'static [libc::c_int],
) -> io::Result<(Mapping, Option<Box<Growth>>)> {
    let protection = if options.read_only {
        libc::PROT_READ
    } else {
        libc::PROT_READ | libc::PROT_WRITE
    };
    let align = medium.alignment();
    let room = match medium.kind {
        // A device is mapped with its whole length.
        MediumKind::DevDax => 0,
        _ => options.reserve,
    };
    let map = |flags| {
        let access = Access {
            protection,
            flags,
            advice,
        };
        room::map(Some(file.as_fd()), len, room, align, access)
    };
    if matches!(medium.kind, MediumKind::File) {
        // All file systems but DAX ones refuse this (EOPNOTSUPP, EINVAL).
        if let Ok(mapping) = map(libc::MAP_SHARED_VALIDATE | libc::MAP_SYNC) {
            medium.kind = MediumKind::FsDax;
            return Ok(mapping);
        }
    }
    map(libc::MAP_SHARED)
}

/// Checks for 16-byte atomics, which the pair {size, mtime} needs.
fn check_cpu(options: &MapOptions) -> Result<(), Error> {
    if !cpu().cmpxchg16b {
        return Err(Error::Unsupported { what: "cmpxchg16b" });
    }
    let pages = options.protect == ProtectMode::Pages;
    if (options.read_only || pages) && !cpu().avx {
        // cmpxchg16b can't load from a page without write access.
        return Err(Error::Unsupported {
            what: "AVX (for pools mapped read-only)",
        });
    }
    Ok(())
}
