//! Errors of an image that could not be made or kept. Each message names the cause and a way out.

use std::io;
use std::path::PathBuf;

use thiserror::Error;

/// Causes for which an image could not be made or kept.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum PatchError {
    /// The library could not be read.
    #[error("can't read {}: {source}; check the path and its permissions", path.display())]
    Read {
        /// The library.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// No ELF file, or a damaged one.
    #[error("no readable ELF file ({reason}); name a shared library")]
    Malformed {
        /// The fault found in it.
        reason: &'static str,
    },
    /// 32-bit, or of another processor.
    #[error("built for another machine than x86-64; such a program runs through the mount")]
    Machine,
    /// A program or an object file.
    #[error(
        "no shared library (its ELF type is {found}, not ET_DYN); name a library, such as libc.so.6"
    )]
    NotShared {
        /// `e_type`.
        found: u16,
    },
    /// The linker left no build-id.
    #[error(
        "the library has no build-id, under which its image would be kept; \
         link it with -Wl,--build-id, or run the program through the mount"
    )]
    NoBuildId,
    /// A build-id that the header can't hold.
    #[error(
        "the library's build-id has {len} bytes, at most {max} are known; link it with --build-id=sha1"
    )]
    BuildIdLength {
        /// The build-id's length, bytes.
        len: usize,
        /// The header's room, bytes.
        max: usize,
    },
    /// None, or several executable segments.
    #[error(
        "the library has {count} executable segments, one is needed; run the program through the mount"
    )]
    Segments {
        /// The number found.
        count: usize,
    },
    /// The text can't be mapped from a file.
    #[error(
        "the library's text can't be replaced page by page ({reason}); run the program through the mount"
    )]
    Alignment {
        /// The reason, in words.
        reason: &'static str,
    },
    /// The dynamic linker writes into the text, and an image would take that back.
    #[error(
        "the library's text is relocated (at {place:#x}); build it with -fPIC, or run the program through the mount"
    )]
    TextRelocation {
        /// The place that it is written to, relative to the base.
        place: u64,
    },
    /// Section headers were stripped: where code ends and data begins is not known.
    #[error(
        "the library has no section headers, which tell code from data; use one that isn't stripped of them"
    )]
    NoSections,
    /// The unwind tables, from which functions are known, are of a kind that isn't.
    #[error(
        "the library's unwind tables can't be read ({reason}); run the program through the mount"
    )]
    Unwind {
        /// The fault found in them.
        reason: &'static str,
    },
    /// More than 32-bit jumps can reach.
    #[error(
        "the library's text ends at {end:#x}, out of reach of its stubs; run the program through the mount"
    )]
    TooLarge {
        /// The end of the text, relative to the base.
        end: u64,
    },
    /// Neither a home nor a cache directory is known.
    #[error("no directory to keep images in; set HOME or XDG_CACHE_HOME")]
    NoCacheDirectory,
    /// The cache's directory belongs to another user.
    #[error(
        "{} belongs to uid {owner}, and images are code; remove it, or set XDG_CACHE_HOME to a directory of your own",
        path.display()
    )]
    ForeignCache {
        /// The directory.
        path: PathBuf,
        /// The owner's user id.
        owner: u32,
    },
    /// Others may write into the cache's directory.
    #[error("{path} may be written by others, and images are code; run `chmod go-w {path}`", path = path.display())]
    OpenCache {
        /// The directory.
        path: PathBuf,
    },
    /// The cache could not be written.
    #[error("can't {what} {}: {source}; make its directory writable, or set XDG_CACHE_HOME to one that is", path.display())]
    Cache {
        /// The step that failed.
        what: &'static str,
        /// The file that it failed on.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
}
