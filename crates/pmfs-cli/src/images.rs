//! The patched images that programs of a run map: of libc, and of other libraries that
//! make system calls of their own.
//!
//! They are in the cache, or, where that can't be had, in memory files that all
//! programs of the run inherit.

use std::env;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::Write;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use pmfs_patch::{PatchError, PatchedText, PatchedTexts};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};
use rustix::io::{FdFlags, fcntl_dupfd_cloexec, fcntl_setfd};
use rustix::process::{Resource, getrlimit};

use crate::failure::Failure;
use crate::keeper::OWN_END;

const LIBC: &str = "libc.so.6";
const LOADER: &str = "ld-linux-x86-64.so.2";
/// io_uring_setup must be ENOSYS there too.
const LIBURING: &str = "liburing.so.2";

/// Names further libraries, with colons between.
const MORE: &str = "PMFS_PATCH";

/// The number of memory files, counted from the end of the library's own numbers: below the
/// keeper's pipe.
const FROM_TOP: u64 = 8;
const FILES_MAX: usize = 6;

/// Images, each as the library is told of it.
pub struct Patched {
    pub libc: OsString,
    /// The images of other libraries, by the libraries' names.
    pub others: Vec<(OsString, OsString)>,
    /// Held open for the programs.
    files: Vec<OwnedFd>,
    /// The libraries that could not be patched, with the reasons.
    pub failed: Vec<String>,
}

impl Patched {
    /// `mountless`: also the loader, which has to find libraries in the pool.
    pub fn make(mountless: bool) -> Result<Patched, Failure> {
        let mut patched = Patched {
            libc: OsString::new(),
            others: Vec::new(),
            files: Vec::new(),
            failed: Vec::new(),
        };
        let libc = loaded(LIBC).ok_or_else(|| {
            Failure::new(
                "this program has no libc.so.6".to_owned(),
                "use the mount: pmfs mount",
            )
        })?;
        let failed = |error: PatchError| Failure::new(error, "use the mount: pmfs mount");
        patched.libc = patched.image(&libc).map_err(failed)?;
        let more = env::var_os(MORE).unwrap_or_default();
        let named: Vec<&OsStr> = more
            .as_bytes()
            .split(|byte| *byte == b':')
            .filter(|name| !name.is_empty())
            .map(OsStr::from_bytes)
            .collect();
        let mut all: Vec<(&OsStr, Option<PathBuf>)> = Vec::new();
        if mountless || !named.is_empty() {
            // A patched loader also reports libraries that are loaded later.
            all.push((OsStr::new(LOADER), loaded(LOADER)));
        }
        all.extend(installed(LIBURING).map(|path| (OsStr::new(LIBURING), Some(path))));
        for name in named {
            let there = env::var_os("LD_LIBRARY_PATH").and_then(|dirs| found(name, &dirs));
            all.push((name, there.or_else(|| installed(name))));
        }
        for (name, path) in all {
            let made = match &path {
                None => Err("it is not where libraries are".to_owned()),
                Some(path) => patched.image(path).map_err(|error| error.to_string()),
            };
            match made {
                Ok(image) => patched.others.push((name.to_owned(), image)),
                Err(why) => patched.failed.push(format!("{}: {why}", name.display())),
            }
        }
        Ok(patched)
    }

    /// In the cache, or else in memory.
    fn image(&mut self, library: &Path) -> Result<OsString, PatchError> {
        let cached = PatchedTexts::of_user().and_then(|images| images.find_or_make(library));
        let error = match cached {
            Ok(path) => return Ok(path.into_os_string()),
            Err(
                error @ (PatchError::NoCacheDirectory
                | PatchError::ForeignCache { .. }
                | PatchError::OpenCache { .. }
                | PatchError::Cache { .. }),
            ) if self.files.len() < FILES_MAX => error,
            Err(error) => return Err(error),
        };
        let bytes = fs::read(library).map_err(|source| PatchError::Read {
            path: library.to_owned(),
            source,
        })?;
        let image = PatchedText::make(&bytes)?;
        let Some(file) = inherited(&image.bytes) else {
            return Err(error);
        };
        let told = format!("fd:{}", file.as_raw_fd()).into();
        self.files.push(file);
        Ok(told)
    }
}

/// A sealed memory file with these bytes, which programs inherit.
fn inherited(bytes: &[u8]) -> Option<OwnedFd> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let made = memfd_create("pmfs-image", flags | MemfdFlags::EXEC);
    let mut file = File::from(made.or_else(|_| memfd_create("pmfs-image", flags)).ok()?);
    file.write_all(bytes).ok()?;
    let all = SealFlags::SEAL | SealFlags::SHRINK | SealFlags::GROW | SealFlags::WRITE;
    fcntl_add_seals(&file, all).ok()?;
    let limit = getrlimit(Resource::Nofile).current.unwrap_or(OWN_END);
    let from = limit.min(OWN_END).saturating_sub(FROM_TOP);
    let high = fcntl_dupfd_cloexec(&file, i32::try_from(from).ok()?).ok()?;
    fcntl_setfd(&high, FdFlags::empty()).ok()?;
    Some(high)
}

/// The file of a library that this program has, and so programs here.
fn loaded(name: &str) -> Option<PathBuf> {
    let maps = fs::read_to_string("/proc/self/maps").ok()?;
    maps.lines().find_map(|line| {
        let path = &line[line.find('/')?..];
        let short = path.rsplit('/').next()?;
        (short == name).then(|| PathBuf::from(path))
    })
}

/// A library in one of these directories, with colons between.
fn found(name: &OsStr, dirs: &OsStr) -> Option<PathBuf> {
    let mut paths = env::split_paths(dirs).map(|dir| dir.join(name));
    paths.find(|path| path.is_file())
}

/// A library where the loader looks.
fn installed(name: impl AsRef<OsStr>) -> Option<PathBuf> {
    const DIRS: &str = "/lib/x86_64-linux-gnu:/usr/lib/x86_64-linux-gnu:/lib64:/usr/lib64:/usr/local/lib:/lib:/usr/lib";
    found(name.as_ref(), OsStr::new(DIRS))
}
