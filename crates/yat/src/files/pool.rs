//! The pools of all workloads: small, nothing random in them, and a clock that counts.

use pmem::Pmem;
use pmfs::{AtimeMode, Clock, DataMode, NewNode, OpenOptions};
use pmfs_admin::MkfsOptions;
use pmfs_format::{BLOCK_BYTES, SuperblockRaw};
use std::ops::Range;
use std::sync::atomic::AtomicI64;
use std::sync::{Arc, LazyLock};

/// Bytes of a pool: small, so that thousands of images are cheap.
pub const POOL_BYTES: u64 = 1 << 20;
/// Bytes of a pool that has room for 2 MiB leaves.
pub const LARGE_POOL_BYTES: u64 = 8 << 20;

/// The key of their hashes.
pub const HASH_KEY: [u64; 2] = [0x0123_4567_89ab_cdef, 0xfeed];

/// The owner and mode of the files.
pub const NODE: NewNode = NewNode {
    umask: 0,
    mode: 0o644,
    uid: 10,
    gid: 20,
};

/// Returns how the pools are made.
#[must_use]
pub fn mkfs_options(pool_bytes: u64) -> MkfsOptions {
    MkfsOptions {
        size: Some(pool_bytes),
        uuid: Some([7; 16]),
        hash_key: Some(HASH_KEY),
        root: Some((0, 0, 0o755)),
        clock: clock(1000),
        ..MkfsOptions::default()
    }
}

/// Options for an instance that counts its clock from `start`. Reading stores nothing.
#[must_use]
pub fn open_options(mode: DataMode, start: i64) -> OpenOptions {
    OpenOptions {
        data: mode,
        atime: AtimeMode::Noatime,
        clock: clock(start),
        ..OpenOptions::default()
    }
}

fn clock(start: i64) -> Clock {
    Clock::Steps(Arc::new(AtomicI64::new(start)))
}

fn format(pool_bytes: u64) -> Vec<u8> {
    let mem = Pmem::private(pool_bytes);
    // Free blocks are not zeros: what a call forgets to write there shows.
    mem.poke(0, &vec![0xdb; pool_bytes as usize]);
    let mem = pmfs_admin::format_private(mem, &mkfs_options(pool_bytes)).expect("mkfs");
    mem.snapshot_image()
}

/// A fresh pool.
///
/// # Panics
/// If it is of another size than the two.
#[must_use]
pub fn fresh(pool_bytes: u64) -> Pmem {
    static SMALL: LazyLock<Vec<u8>> = LazyLock::new(|| format(POOL_BYTES));
    static LARGE: LazyLock<Vec<u8>> = LazyLock::new(|| format(LARGE_POOL_BYTES));
    let image = match pool_bytes {
        POOL_BYTES => &SMALL,
        LARGE_POOL_BYTES => &LARGE,
        _ => panic!("pools have 1 or 8 MiB"),
    };
    let mem = Pmem::private(pool_bytes);
    mem.poke(0, image);
    mem
}

/// Returns where a superblock says the runtime area is.
pub(crate) fn runtime_range(mem: &Pmem) -> Range<u64> {
    let word = |off: usize| {
        let mut bytes = [0; 8];
        mem.peek(off as u64, &mut bytes);
        u64::from_le_bytes(bytes)
    };
    let start = word(SuperblockRaw::runtime_start.offset() as usize);
    let blocks = word(SuperblockRaw::runtime_blocks.offset() as usize);
    start * BLOCK_BYTES..(start + blocks) * BLOCK_BYTES
}

/// Bytes that tell their place.
#[must_use]
pub fn pattern(len: usize, salt: u8) -> Vec<u8> {
    (0..len)
        .map(|at| (at / 8) as u8 ^ salt.wrapping_mul(37))
        .collect()
}
