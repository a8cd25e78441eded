//! The bytes of a pool's file, behind the end of any pool, whose locks say which processes have the
//! pool (docs/adr/0025-life-of-a-process.md).

use pmem::slots::{Probe, Prober};
use std::path::Path;

/// First of the byte numbers that are locks, beyond any pool's bytes.
const LOCK_BYTES: u64 = 1 << 62;
/// Held while a process attaches or detaches.
pub const BYTE_ATTACH: u64 = LOCK_BYTES;
/// Held exclusively by a process that has the pool to itself.
pub const BYTE_POOL: u64 = LOCK_BYTES + 1;
/// Held exclusively by a process that copies the pool, which must not change meanwhile.
pub const BYTE_FREEZE: u64 = LOCK_BYTES + 2;
const BYTE_SLOTS: u64 = LOCK_BYTES + 16;

/// The byte that the holder of a slot has locked.
pub(crate) fn slot_byte(slot: u64) -> u64 {
    BYTE_SLOTS + slot
}

/// The process that holds the pool's byte, for a message.
pub fn holder_pid(path: &Path) -> u32 {
    let probe = Prober::open(path).and_then(|prober| prober.probe(BYTE_POOL));
    match probe {
        Ok(Probe::HeldBy(pid)) => pid,
        _ => 0,
    }
}
