//! PMFS: a POSIX file system for persistent memory, as a library.
//!
//! [`Fs`] is one attachment to a pool. Calls are atomic and durable when they return, and never
//! need an fsync. See `docs/SEMANTICS.md` for what each call promises across a crash and what it
//! costs.
//!
//! ```no_run
//! use pmfs::{Fs, NewNode, OpenOptions, ROOT_INO};
//! # fn main() -> pmfs::Result<()> {
//! let fs = Fs::open("/mnt/ram/pool".as_ref(), &OpenOptions::default())?;
//! let node = NewNode { mode: 0o644, umask: 0, uid: 0, gid: 0 };
//! let file = fs.create(ROOT_INO, b"greeting", &node)?;
//! fs.write(file.ino, 0, b"hello")?; // durable
//! assert_eq!(fs.walk(b"/greeting", true)?.size, 5);
//! fs.close()
//! # }
//! ```
//!
//! - **By number or by path.** Calls take inodes; [`Fs::walk`] and [`Fs::place`] lead from a path
//!   to them.
//! - **Open files.** [`Fs::hold`] keeps an inode while it has no name; [`Fs::open_file`] gives an
//!   offset that duplicates and forked children share.
//! - **Several at once.** Any number of processes and threads may have one pool; an `Fs` is `Sync`.
//!   After the death of a process, at any instruction, the others clean up when they meet its
//!   locks, or by [`Fs::recover_dead`]. A call waits for a process that is stopped in the middle of
//!   one ([`Stalled`]).
//! - **Fork and exec.** A forked child's calls fail with [`Error::Forked`] unless
//!   [`Fs::before_fork`] has prepared it; [`Fs::before_exec`] hands open files and locks to the
//!   next program.
//! - **File locks** of all three kinds: [`Fs::lock`], [`Fs::lock_file`].
//! - **Errors** are one for each cause, with a number for it ([`Error::errno`]).
//! - **Making and checking pools,** and their processes and files: the crate `pmfs-admin`.
//!
//! Absent here: permissions (the mount enforces them), system calls on the hot path, `unsafe` (only
//! `pmem` touches the pool's memory).
#![forbid(unsafe_code)]

#[cfg(test)]
extern crate self as pmfs;

#[macro_use]
extern crate pmem;

#[allow(missing_docs, reason = "seen by `parts` alone")]
mod dir;
#[allow(missing_docs, reason = "seen by `parts` alone")]
mod file;
mod fs;
#[allow(missing_docs, reason = "seen by `parts` alone")]
mod inode;
mod mapping;
#[allow(missing_docs, reason = "seen by `parts` alone")]
mod namespace;
mod open;
mod options;
mod pages;
#[doc(hidden)]
pub mod parts;
#[allow(missing_docs, reason = "seen by `parts` alone")]
mod pool;
#[allow(missing_docs, reason = "seen by `parts` alone")]
mod purpose;
mod recovery;
mod resolve;
#[cfg(test)]
#[path = "../tests/scratch/mod.rs"]
mod scratch;
#[allow(missing_docs, reason = "seen by `parts` alone")]
mod tables;
#[cfg(test)]
mod tests;
#[allow(missing_docs, reason = "seen by `parts` alone")]
mod tree;
pub mod types;

pub use file::extents::FileExtent;
pub use file::overwrite::UNGUARDED_MAX;
pub use fs::Fs;
#[cfg(feature = "record")]
pub use fs::lane_entries_left;
pub use fs::map::{FileMap, MapMode};
pub use fs::path::Place;
pub use mapping::kernel_copy::WantedPages;
pub use mapping::pin::BlockRun;
pub use mapping::stored::Shown;
pub use open::open_file::{OpenFile, appends, wants_atime};
pub use options::{OpenOptions, Stalled};
pub use pages::records::KernelCopy;
pub use pm_journal::error::{Damage, Error, FileError, NoBase, Reason, Result};
#[cfg(feature = "record")]
pub use pm_journal::lane::prefer_lane;
pub use pm_journal::medium::freeze::{Freeze, FreezeProbe};
pub use pm_store::clock::Clock;
#[doc(hidden)]
pub use pm_store::planted;
pub use pmem::{
    Charged, Emulation, EmulationError, FlushMode, MapOptions, ProtectMode, Protection,
};
pub use pmshare::counters::Totals;
pub use pmshare::lease::SingleOpener;
#[doc(hidden)]
pub use pmshare::owner::protocol as lock_protocol;
pub use pmshare::owner::stalled::tell_of_stalled;
pub use recovery::inherit::{ForExec, ForFork};
pub use types::{
    AtimeMode, Attr, DataMode, DirEntry, FOLLOW_REQUEST, FallocateMode, FileId, FreePages,
    INODE_NAME, Ino, LargePages, LockClass, LockInfo, LockKind, LockOwner, LockRange, NewNode,
    PagesInTheWay, ROOT_INO, RecoveryKind, RecoveryReport, RenameFlags, SetAttr, SetTime, StatFs,
    XattrFlags,
};
