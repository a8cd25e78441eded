//! PMFS: a POSIX file system for persistent memory, as a library.
//!
//! [`Fs`] is one attachment to a pool. Its calls are atomic and durable when they return, and never need an
//! fsync. See `docs/SEMANTICS.md` for what each call promises across a crash and what it costs.
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
//! - **By number or by path.** Calls take inodes; [`Fs::walk`] and [`Fs::place`] lead from a path to them.
//! - **Open files.** [`Fs::hold`] keeps an inode while it has no name; [`Fs::open_file`] gives an offset that duplicates and
//!   forked children share.
//! - **Several at once.** Any number of processes and threads may have one pool; an `Fs` is `Sync`. Whoever dies, at any
//!   instruction, is cleaned up after by those who meet what it held, or by [`Fs::recover_dead`]. A call waits for a process that
//!   is stopped in the middle of one ([`Stalled`]).
//! - **Fork and exec.** A forked child's calls fail with [`Error::Forked`] unless [`Fs::before_fork`] has prepared it;
//!   [`Fs::before_exec`] hands open files and locks to the next program.
//! - **File locks** of all three kinds: [`Fs::lock`], [`Fs::lock_file`].
//! - **Errors** are one for each cause, with a number for it ([`Error::errno`]).
//! - **Who is there:** [`Fs::processes`], [`Fs::holdings`], [`Fs::locked`]; the same of a pool that one does not open: [`Look`].
//!
//! What is absent here: permissions (the mount enforces them), system calls on the hot path, `unsafe` (only `pmem` touches the
//! pool's memory).
#![forbid(unsafe_code)]

#[cfg(test)]
extern crate self as pmfs;

#[macro_use]
#[doc(hidden)]
pub mod planted;

mod acl;
mod alloc;
mod annex;
mod attach;
pub mod check;
mod clock;
mod counters;
mod debt;
mod defrag;
mod dir;
pub mod dump;
mod entrance;
mod error;
mod file;
mod file_lock;
mod freeze;
mod fs;
mod geometry;
mod grow;
mod holders;
mod image;
mod info;
mod inherit;
mod inode;
mod kernel_copy;
mod lane;
mod lease;
mod locks;
mod log_entry;
mod look;
mod map;
mod mkfs;
mod name_of;
mod namespace;
mod new_file;
mod open_file;
mod open_table;
mod options;
mod owner;
mod owner_words;
mod path;
mod patrol;
#[doc(hidden)]
pub mod persist;
mod pin;
mod pool;
mod promise;
mod recovery;
mod repair;
mod rest;
#[cfg(test)]
#[path = "../tests/scratch/mod.rs"]
mod scratch;
mod settle;
mod slot;
mod sparse;
mod statfs;
mod stored;
mod strays;
mod superblock;
mod table_blocks;
mod traces;
mod tree;
pub mod types;
mod walk;
mod xattr;

pub use check::{CheckReport, Finding};
pub use clock::Clock;
pub use counters::Totals;
pub use defrag::{DefragReport, Merged};
pub use error::{Damage, Error, FileError, Reason, Result};
pub use file::overwrite::UNGUARDED_MAX;
pub use freeze::{Freeze, FreezeProbe};
pub use fs::Fs;
pub use grow::{GrowReport, grow};
pub use holders::{Holding, Locked, Process};
pub use image::{LoadOptions, LoadReport, SaveReport, load};
pub use info::{FilePages, FreePages, PoolDetails, PoolInfo, RecoveryKind, RecoveryReport};
pub use inherit::{ForExec, ForFork};
pub use kernel_copy::{KernelCopy, PagesInTheWay, WantedPages};
#[cfg(feature = "record")]
pub use lane::{lane_entries_left, prefer_lane};
pub use lease::Alone;
pub use look::{Look, PoolState, is_pool, remove};
pub use map::{FileMap, MapMode};
pub use new_file::NewFile;
pub use open_file::{OpenFile, wants_atime};
pub use options::{MkfsOptions, OpenOptions, Stalled};
#[doc(hidden)]
pub use owner::protocol as lock_protocol;
pub use owner::stalled::tell_of_stalled;
pub use owner_words::OwnerWords;
pub use path::Place;
pub use pin::BlockRun;
pub use pmem::{
    Charged, Emulation, EmulationError, FlushMode, MapOptions, ProtectMode, Protection,
};
pub use repair::RepairReport;
pub use repair::medium::{Mended, mend, renew};
pub use stored::Shown;
pub use types::{
    AtimeMode, Attr, DataMode, DirEntry, FOLLOW_REQUEST, FallocateMode, FileId, INODE_NAME, Ino,
    LargePages, LockClass, LockInfo, LockKind, LockOwner, LockRange, NewNode, ROOT_INO,
    RenameFlags, SetAttr, SetTime, StatFs, XattrFlags,
};
