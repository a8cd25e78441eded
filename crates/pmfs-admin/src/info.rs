//! The facts of a pool: geometry, medium, and the work of attaching.

use pm_journal::locks::LockSet;
use pm_journal::medium::superblock;
use pm_space::Bitmap;
use pmfs::Result;
use pmfs::parts::inode::Inode;
use pmfs::parts::pool::Pool;
use pmfs::parts::tables::annex::Table;
use pmfs::parts::tree::entry::coverage;
use pmfs::types::FreePages;
use pmfs::types::Ino;
use pmfs_format::BLOCK_BYTES;
use pmfs_format::tree::FANOUT;
use std::ops::Range;

/// A pool's geometry and medium.
#[derive(Clone, Debug)]
pub struct PoolInfo {
    /// Names the pool.
    pub uuid: [u8; 16],
    /// Format version.
    pub version: u32,
    /// Bytes.
    pub size: u64,
    /// Blocks of 4 KiB.
    pub blocks: u64,
    /// Free ones, the reserve included.
    pub blocks_free: u64,
    /// Blocks that the tables of open files and file locks have until the last process leaves.
    pub blocks_lent: u64,
    /// Inode numbers.
    pub inodes: u64,
    /// Free ones.
    pub inodes_free: u64,
    /// Journal lanes.
    pub lanes: u32,
    /// Bytes a lane.
    pub lane_bytes: u64,
    /// Processes that there is room for.
    pub processes: u64,
    /// Open files that there can be, if the pool has blocks for them.
    pub open_files: u64,
    /// File locks, likewise.
    pub file_locks: u64,
    /// Bytes that files can never have: superblocks, runtime area, journal.
    pub overhead_bytes: u64,
    /// The medium, and the size of its pages.
    pub medium: String,
    /// The kind of medium.
    pub medium_kind: pmem::MediumKind,
    /// The events that data survives.
    pub durability: String,
    /// The way that lines are flushed.
    pub flush: String,
}

/// Further facts of a pool beside [`PoolInfo`].
#[derive(Clone, Debug)]
pub struct PoolDetails {
    /// The time when it was made, ns since the epoch.
    pub crtime_ns: i64,
    /// The number of first openings.
    pub runs: u64,
    /// The number of rebuilds by a first opener.
    pub recoveries: u64,
    /// Slots of processes marked as attached.
    pub attached: u64,
    /// Open files.
    pub open_files: u64,
    /// File locks held and waited for.
    pub file_locks: u64,
    /// Blocks kept back for calls that free or overwrite.
    pub reserve_blocks: u64,
    /// Free pages.
    pub free: FreePages,
    /// The regions, in address order: name, first byte, bytes.
    pub regions: Vec<(&'static str, u64, u64)>,
}

/// The pages that hold a file, each counted once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FilePages {
    /// Pages of 4 KiB.
    pub small: u64,
    /// Pages of 2 MiB.
    pub large: u64,
    /// Pages of 1 GiB.
    pub huge: u64,
}

/// The pages that hold a file; found bit by bit, each under the file's lock.
///
/// # Errors
/// [`Error::Stale`](pmfs::Error::Stale), or that it is no file.
pub(crate) fn pages(pool: &Pool, ino: Ino) -> Result<FilePages> {
    /// Entries looked at while others wait.
    const STRETCH: u64 = 1 << 12;
    let mut pages = FilePages::default();
    let mut index = 0;
    loop {
        let _locks = LockSet::take(pool, &[ino]);
        let inode = Inode::live(pool, ino)?;
        inode.require_file()?;
        let tree = inode.tree();
        for _ in 0..STRETCH {
            let found = tree.find(pool, index)?;
            if found.entry.is_leaf() {
                match found.units {
                    1 => pages.small += 1,
                    FANOUT => pages.large += 1,
                    _ => pages.huge += 1,
                }
            } else if index >= coverage(tree.root.height()) {
                return Ok(pages);
            }
            index = found.base + found.units;
        }
    }
}

pub(crate) fn details(pool: &Pool) -> PoolDetails {
    let record = superblock::run_record(pool.pm.mapping());
    let live = |slot: &u64| pool.is_marked(*slot);
    let geometry = &pool.geometry;
    let block = |block: u64| block * BLOCK_BYTES..(block + 1) * BLOCK_BYTES;
    let journal = geometry.journal..geometry.journal + geometry.lanes * geometry.lane_bytes;
    let data = geometry.data_start * BLOCK_BYTES..pool.data.end;
    let mut regions = vec![
        ("superblock", block(0)),
        ("runtime area", geometry.runtime.clone()),
        ("journal", journal),
        ("inode table root", block(geometry.inode_table_root)),
        ("data", data),
        ("superblock copy", block(geometry.blocks - 1)),
    ];
    if geometry.runtime.start > geometry.journal {
        regions.push(("given up by growing", BLOCK_BYTES..geometry.journal));
    }
    regions.sort_by_key(|(_, range)| range.start);
    let sized = |(name, range): (_, Range<u64>)| (name, range.start, range.end - range.start);
    PoolDetails {
        crtime_ns: pool.superblock.crtime_ns,
        runs: record.map_or(0, |record| record.runs),
        recoveries: record.map_or(0, |record| record.recoveries),
        attached: pool.slots().filter(live).count() as u64,
        open_files: pool
            .file_lines()
            .filter(|&(index, _)| pool.file_ino(index) != 0)
            .count() as u64,
        file_locks: pmfs::parts::open::file_lock::table::records(pool).count() as u64,
        reserve_blocks: geometry.reserve_blocks,
        free: Bitmap::blocks(pool).free_pages(),
        regions: regions.into_iter().map(sized).collect(),
    }
}

pub(crate) fn info(pool: &Pool) -> PoolInfo {
    let medium = pool.pm.mapping().medium();
    PoolInfo {
        uuid: pool.superblock.uuid,
        version: pool.superblock.version,
        size: pool.geometry.blocks * BLOCK_BYTES,
        blocks: pool.geometry.blocks,
        blocks_free: pool.blocks_free(),
        blocks_lent: pool.lent_blocks().len() as u64,
        inodes: pool.geometry.inodes,
        inodes_free: Bitmap::inodes(pool).free(),
        lanes: pool.geometry.lanes as u32,
        lane_bytes: pool.geometry.lane_bytes,
        // The last slot is kept for cleaning up.
        processes: pool.geometry.slot_count - 1,
        open_files: pool.geometry.file_count() + Table::Files.lines(),
        file_locks: pool.geometry.file_lock_count() + Table::FileLocks.lines(),
        overhead_bytes: pool.geometry.overhead_blocks() * BLOCK_BYTES,
        medium: format!(
            "{}, {} pages",
            medium.kind,
            match medium.page_size >> 20 {
                1024.. => "1 GiB",
                0 if !pool.pm.mapping().has_huge_pages() => "4 KiB",
                _ => "2 MiB",
            }
        ),
        medium_kind: medium.kind,
        durability: medium.durability.to_string(),
        flush: medium.flush.to_string(),
    }
}
