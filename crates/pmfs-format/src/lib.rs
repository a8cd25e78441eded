//! The on-media format of a PMFS pool, version 1: structures and constants, no logic, no I/O.
//!
//! Everything is little-endian and counted in 4 KiB blocks. Each structure's size and field offsets
//! are checked by the compiler; `docs/FORMAT.md` is generated from [`structures`], so prose and
//! bytes can't drift apart.
//!
//! A pool, from its start:
//!
//! | region | holds |
//! |---|---|
//! | block 0 | [`SuperblockRaw`], [`RunRecordRaw`], the clean flag, the claim of the first opener |
//! | runtime area | volatile state of the pool's processes; at the end once the pool has grown |
//! | journal | lanes of 64-byte [`LogEntryRaw`]s |
//! | blocks | tree nodes, file data, directory buckets, attribute blocks |
//! | last block | a copy of [`SuperblockRaw`] |
#![forbid(unsafe_code)]

#[cfg(not(all(target_endian = "little", target_pointer_width = "64")))]
compile_error!("a PMFS pool is mapped as it stands: only 64-bit little-endian machines can");

mod layout;

pub mod directory;
pub mod inode;
pub mod journal;
pub mod runtime;
pub mod superblock;
pub mod tree;

pub use directory::DentryRaw;
pub use inode::InodeRaw;
pub use journal::LogEntryRaw;
pub use layout::{At, Field, Structure};
pub use runtime::{
    FileLockBucketRaw, FileLockRaw, GroupRaw, IntentRaw, KernelCopyRaw, LaneRaw, LockRaw,
    OpenFileRaw, OpenLineRaw, RuntimeHeaderRaw, SlotRaw,
};
pub use superblock::{RunRecordRaw, SuperblockRaw};

/// Bytes a block.
pub const BLOCK_BYTES: u64 = 4096;
/// log2 of [`BLOCK_BYTES`].
pub const BLOCK_SHIFT: u32 = 12;
/// Bytes of a cache line: the unit in which the CPU writes to the medium.
pub const LINE_BYTES: u64 = 64;
/// The format that this crate describes.
pub const VERSION: u32 = 1;

/// Every structure of the format, in the order in which a reader meets them.
#[must_use]
pub fn structures() -> Vec<Structure> {
    vec![
        SuperblockRaw::structure(),
        RunRecordRaw::structure(),
        RuntimeHeaderRaw::structure(),
        SlotRaw::structure(),
        LaneRaw::structure(),
        IntentRaw::structure(),
        LockRaw::structure(),
        OpenLineRaw::structure(),
        OpenFileRaw::structure(),
        FileLockRaw::structure(),
        FileLockBucketRaw::structure(),
        KernelCopyRaw::structure(),
        GroupRaw::structure(),
        LogEntryRaw::structure(),
        InodeRaw::structure(),
        DentryRaw::structure(),
    ]
}
