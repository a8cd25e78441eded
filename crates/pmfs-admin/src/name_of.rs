//! The names of a pool's offsets, in words: for tools that show which lines are written.

use pmfs::parts::inode::PER_BLOCK;
use pmfs::parts::pool::Pool;
use pmfs_format::runtime::GROUP_UNITS;
use pmfs_format::{
    BLOCK_BYTES, FileLockBucketRaw, FileLockRaw, GroupRaw, IntentRaw, KernelCopyRaw, LaneRaw,
    LockRaw, OpenFileRaw, SlotRaw,
};

/// "lane 3", "lock 17", "inodes 128 to 159", "data".
pub(crate) fn name_of(pool: &Pool, off: u64) -> String {
    if off < BLOCK_BYTES {
        return "superblock".into();
    }
    if off / BLOCK_BYTES == pool.superblock.blocks - 1 {
        return "the superblock's copy".into();
    }
    if pool.pm.annexes().contain(pool.pm.mapping(), off, 1) {
        return "annex of a table".into();
    }
    name_in_runtime(pool, off)
        .or_else(|| name_in_journal(pool, off))
        .or_else(|| name_in_inode_table(pool, off))
        .unwrap_or_else(|| "data, nodes, buckets".into())
}

fn name_in_runtime(pool: &Pool, off: u64) -> Option<String> {
    let g = &pool.geometry;
    if !g.runtime.contains(&off) {
        return None;
    }
    if off < g.slots {
        return Some("runtime header".into());
    }
    // In address order; the last one that begins before it is it.
    let lane_intents = g.intents_per_lane * IntentRaw::SIZE;
    let (blocks, inodes) = (&g.block_map, &g.inode_map);
    let tables = [
        ("slot", g.slots, SlotRaw::SIZE),
        ("lane", g.lane_lines, LaneRaw::SIZE),
        ("intents of lane", g.intents, lane_intents),
        ("lock", g.locks, LockRaw::SIZE),
        ("open line", g.open, 64),
        ("open file", g.files, OpenFileRaw::SIZE),
        ("file lock", g.file_locks, FileLockRaw::SIZE),
        (
            "file lock bucket",
            g.file_lock_buckets,
            FileLockBucketRaw::SIZE,
        ),
        ("kernel copy", g.kernel_copies, KernelCopyRaw::SIZE),
        ("annexes of node", g.annex_roots, 8),
        ("group of blocks", blocks.groups, GroupRaw::SIZE),
        ("bits of group of blocks", blocks.bits, GROUP_UNITS / 8),
        ("group of inodes", inodes.groups, GroupRaw::SIZE),
        ("bits of group of inodes", inodes.bits, GROUP_UNITS / 8),
        ("lazy bits", g.lazy, 64),
    ];
    let (name, start, each) = tables.into_iter().rfind(|table| table.1 <= off)?;
    Some(format!("{name} {}", (off - start) / each))
}

fn name_in_journal(pool: &Pool, off: u64) -> Option<String> {
    let g = &pool.geometry;
    let at = off.checked_sub(g.journal)?;
    (at < g.lanes * g.lane_bytes).then(|| format!("log of lane {}", at / g.lane_bytes))
}

fn name_in_inode_table(pool: &Pool, off: u64) -> Option<String> {
    let block = off & !(BLOCK_BYTES - 1);
    let mut first = 0;
    while first < pool.geometry.inodes {
        if pool
            .inode_off(first.max(2))
            .is_ok_and(|at| at & !(BLOCK_BYTES - 1) == block)
        {
            return Some(format!("inode {}", first + (off - block) / 128));
        }
        first += PER_BLOCK;
    }
    None
}
