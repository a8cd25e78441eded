//! The places of everything: byte offsets of each region, from the superblock's numbers.

use crate::error::{Error, Result};
use crate::types::Run;
use pmfs_format::{
    BLOCK_BYTES, FileLockBucketRaw, FileLockRaw, GroupRaw, IntentRaw, KernelCopyRaw, LaneRaw,
    LockRaw, OpenFileRaw, RuntimeHeaderRaw, SlotRaw, SuperblockRaw,
    runtime::{ANNEX_ROOTS, GROUP_UNITS},
    tree,
};

/// The largest pool, blocks.
const BLOCKS_MAX: u64 = 1 << 32;

/// Open files for each line of the open table, which says which process has which file open.
const FILES_PER_LINE: u64 = 2;
/// The most lines of the open table: each process that ends searches them.
const OPEN_LINES_MAX: u64 = 1 << 21;
/// The fewest lines of the open table.
const OPEN_LINES_MIN: u64 = 16;
/// File locks, of which there are as many as open lines, for each bucket of them.
const FILE_LOCKS_PER_BUCKET: u64 = 4;

/// A bitmap of the runtime area with its group lines.
#[derive(Clone, Copy, Debug)]
pub struct BitmapPlace {
    /// First group line, bytes.
    pub groups: u64,
    /// First bitmap word, bytes.
    pub bits: u64,
    /// Units it speaks of.
    pub units: u64,
}

impl BitmapPlace {
    #[inline]
    pub fn group_count(&self) -> u64 {
        self.units.div_ceil(GROUP_UNITS)
    }
}

/// Offsets in bytes from the pool's start, unless said otherwise.
#[derive(Clone, Debug)]
pub struct Geometry {
    pub blocks: u64,
    pub data_start: u64,
    pub inodes: u64,
    pub lanes: u64,
    pub lane_bytes: u64,
    pub slot_count: u64,
    pub lock_count: u64,
    pub open_lines: u64,
    pub intents_per_lane: u64,
    pub reserve_blocks: u64,
    pub inode_table_root: u64,
    pub hash_key: [u64; 2],
    pub header: u64,
    pub slots: u64,
    pub lane_lines: u64,
    pub intents: u64,
    pub locks: u64,
    pub open: u64,
    pub files: u64,
    pub file_locks: u64,
    pub file_lock_buckets: u64,
    pub kernel_copies: u64,
    pub annex_roots: u64,
    pub block_map: BitmapPlace,
    pub inode_map: BitmapPlace,
    pub lazy: u64,
    pub runtime: std::ops::Range<u64>,
    pub journal: u64,
}

/// The decisions of mkfs; everything else follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizing {
    pub blocks: u64,
    pub inodes: u64,
    pub lanes: u64,
    pub lane_bytes: u64,
    pub slots: u64,
    pub locks: u64,
    pub open_lines: u64,
    pub intents: u64,
}

impl Sizing {
    /// Sizes for a pool of `blocks` blocks: 64 lanes, 1,024 slots and 4,096 locks at 1 GiB, and in
    /// proportion below, down to what a 256 KiB test pool needs.
    pub fn for_blocks(blocks: u64, inodes: Option<u64>) -> Sizing {
        Sizing::with_open_files(blocks, inodes, None)
    }

    /// Returns what [`Sizing::for_blocks`] does, with tables for so many open files, should that be
    /// wished.
    pub fn with_open_files(blocks: u64, inodes: Option<u64>, open_files: Option<u64>) -> Sizing {
        let scale = |per: u64, least: u64, most: u64| (blocks / per).clamp(least, most);
        Sizing {
            blocks,
            inodes: inodes
                .unwrap_or(blocks * 2)
                .clamp(64, 1 << 32)
                .next_multiple_of(64),
            lanes: scale(4096, 2, 256),
            lane_bytes: 8192,
            slots: scale(256, 4, 1024),
            locks: scale(64, 32, 65536).next_power_of_two(),
            open_lines: open_files
                .map(|files| {
                    files
                        .div_ceil(FILES_PER_LINE)
                        .clamp(OPEN_LINES_MIN, OPEN_LINES_MAX)
                })
                .unwrap_or_else(|| scale(64, OPEN_LINES_MIN, 65536))
                .next_power_of_two(),
            intents: if blocks >= 8192 { 512 } else { 48 },
        }
    }

    /// Blocks kept back for calls that free or overwrite.
    fn reserve_blocks(&self) -> u64 {
        (self.lanes * 8 + 256).min(self.blocks / 16)
    }

    /// Returns whether mkfs makes such tables, or (not `in_place`) growing a smaller pool does,
    /// whose lanes stay. Tables of other sizes would have the runtime area, which is believed as a
    /// whole, laid out in another way than whoever left it had.
    fn is_makable(&self, in_place: bool) -> bool {
        let made = Sizing::for_blocks(self.blocks, Some(self.inodes));
        let least = Sizing::for_blocks(0, Some(0)).lanes;
        let lanes = if in_place { made.lanes } else { least };
        let open_lines = self.open_lines;
        (lanes..=made.lanes).contains(&self.lanes)
            && open_lines.is_power_of_two()
            && (OPEN_LINES_MIN..=OPEN_LINES_MAX).contains(&open_lines)
            && *self
                == Sizing {
                    lanes: self.lanes,
                    open_lines,
                    ..made
                }
    }

    /// Returns the blocks of the smallest larger pool like this one that has room for files.
    fn least_blocks(&self) -> u64 {
        let usual = Sizing::for_blocks(self.blocks, None).inodes;
        let inodes = (self.inodes != usual).then_some(self.inodes);
        let has_room = |blocks: &u64| {
            let larger = Sizing::for_blocks(*blocks, inodes);
            Geometry::planned(&larger, [0; 2]).has_room(&larger)
        };
        (self.blocks..).find(has_room).unwrap_or(u64::MAX)
    }
}

/// The regions of a runtime area that starts at byte `start`.
struct Regions {
    at: u64,
}

impl Regions {
    fn take(&mut self, bytes: u64) -> u64 {
        let here = self.at;
        self.at = (here + bytes).next_multiple_of(64);
        here
    }
}

impl Geometry {
    /// Plans like [`Geometry::plan`], whether or not there is room.
    fn planned(sizing: &Sizing, hash_key: [u64; 2]) -> Geometry {
        let mut geometry = Geometry::place(sizing, BLOCK_BYTES);
        let journal_end = geometry.journal + sizing.lanes * sizing.lane_bytes;
        geometry.inode_table_root = journal_end.div_ceil(BLOCK_BYTES);
        geometry.data_start = geometry.inode_table_root + 1;
        geometry.reserve_blocks = sizing.reserve_blocks();
        geometry.hash_key = hash_key;
        geometry
    }

    fn place(sizing: &Sizing, start: u64) -> Geometry {
        let mut regions = Regions { at: start };
        let header = regions.take(RuntimeHeaderRaw::SIZE);
        let slots = regions.take(sizing.slots * SlotRaw::SIZE);
        let lane_lines = regions.take(sizing.lanes * LaneRaw::SIZE);
        let intents = regions.take(sizing.lanes * sizing.intents * IntentRaw::SIZE);
        let locks = regions.take(sizing.locks * LockRaw::SIZE);
        let open = regions.take(sizing.open_lines * 64);
        let files = regions.take(sizing.open_lines * FILES_PER_LINE * OpenFileRaw::SIZE);
        let file_locks = regions.take(sizing.open_lines * FileLockRaw::SIZE);
        let buckets = sizing.open_lines / FILE_LOCKS_PER_BUCKET;
        let file_lock_buckets = regions.take(buckets * FileLockBucketRaw::SIZE);
        let kernel_copies = regions.take(sizing.open_lines * KernelCopyRaw::SIZE);
        let annex_roots = regions.take(ANNEX_ROOTS * 8);
        let mut bitmap = |units: u64| {
            let groups = regions.take(units.div_ceil(GROUP_UNITS) * GroupRaw::SIZE);
            let bits = regions.take(units.div_ceil(64) * 8);
            BitmapPlace {
                groups,
                bits,
                units,
            }
        };
        let block_map = bitmap(sizing.blocks);
        let inode_map = bitmap(sizing.inodes);
        let lazy = regions.take(inode_map.group_count() * 8);
        let end = regions.at.next_multiple_of(BLOCK_BYTES);
        Geometry {
            blocks: sizing.blocks,
            data_start: 0,
            inodes: sizing.inodes,
            lanes: sizing.lanes,
            lane_bytes: sizing.lane_bytes,
            slot_count: sizing.slots,
            lock_count: sizing.locks,
            open_lines: sizing.open_lines,
            intents_per_lane: sizing.intents,
            reserve_blocks: 0,
            inode_table_root: 0,
            hash_key: [0; 2],
            header,
            slots,
            lane_lines,
            intents,
            locks,
            open,
            files,
            file_locks,
            file_lock_buckets,
            kernel_copies,
            annex_roots,
            block_map,
            inode_map,
            lazy,
            runtime: start..end,
            journal: end,
        }
    }

    /// The geometry of a new pool.
    ///
    /// # Errors
    /// [`Error::Geometry`] if its parts leave no room for data.
    pub fn plan(sizing: &Sizing, hash_key: [u64; 2]) -> Result<Geometry> {
        let geometry = Geometry::planned(sizing, hash_key);
        if !geometry.has_room(sizing) {
            return Err(Error::geometry(format!(
                "{} KiB leave no room for files beside {} KiB of lanes and tables; it takes {} KiB at least",
                sizing.blocks * 4,
                geometry.data_start * 4,
                sizing.least_blocks() * 4
            )));
        }
        Ok(geometry)
    }

    /// Returns whether files have room beside its tables.
    fn has_room(&self, sizing: &Sizing) -> bool {
        self.data_start + 16 + self.reserve_blocks <= sizing.blocks
    }

    /// The geometry that a superblock describes, each number checked against the pool's `len` in
    /// bytes.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if they don't fit together.
    pub fn of(raw: &SuperblockRaw, len: u64) -> Result<Geometry> {
        let bad = |what| Err(Error::corrupt(what, 0));
        if raw.blocks < 16 || raw.blocks > BLOCKS_MAX || raw.blocks * BLOCK_BYTES > len {
            return bad("superblock: the pool is shorter than its superblock says");
        }
        let sizing = Sizing {
            blocks: raw.blocks,
            inodes: raw.inodes,
            lanes: raw.lanes.into(),
            lane_bytes: raw.lane_bytes.into(),
            slots: raw.slots.into(),
            locks: raw.locks.into(),
            open_lines: raw.open_lines.into(),
            intents: raw.intents.into(),
        };
        if !sizing.is_makable(raw.runtime_start == 1) {
            return bad("superblock: impossible table sizes");
        }
        if raw.runtime_start >= raw.blocks || raw.journal_start >= raw.blocks {
            return bad("superblock: regions overlap");
        }
        let mut geometry = Geometry::place(&sizing, raw.runtime_start * BLOCK_BYTES);
        let journal_blocks = sizing.lanes * sizing.lane_bytes / BLOCK_BYTES;
        let runtime_end = raw.runtime_start.saturating_add(raw.runtime_blocks);
        // The runtime area lies where mkfs has laid it out, or, in a pool that has grown, before
        // the superblock's copy.
        let in_place = if raw.runtime_start == 1 {
            raw.journal_start * BLOCK_BYTES == geometry.journal
        } else {
            raw.runtime_start > raw.data_start
                && runtime_end == raw.blocks - 1
                && raw.journal_start > 0
        };
        if !in_place
            || runtime_end.saturating_mul(BLOCK_BYTES) != geometry.runtime.end
            || raw.journal_blocks != journal_blocks
            || raw.inode_table_root != raw.journal_start + raw.journal_blocks
            || raw.data_start != raw.inode_table_root + 1
            || raw.data_start >= raw.blocks - 1
            || raw.reserve_blocks != sizing.reserve_blocks()
        {
            return bad("superblock: regions overlap");
        }
        geometry.journal = raw.journal_start * BLOCK_BYTES;
        geometry.inode_table_root = raw.inode_table_root;
        geometry.data_start = raw.data_start;
        geometry.reserve_blocks = raw.reserve_blocks;
        geometry.hash_key = raw.hash_key;
        Ok(geometry)
    }

    /// Fills the fields of a superblock that describe this geometry.
    pub fn describe(&self, raw: &mut SuperblockRaw) {
        raw.blocks = self.blocks;
        raw.runtime_start = self.runtime.start / BLOCK_BYTES;
        raw.runtime_blocks = (self.runtime.end - self.runtime.start) / BLOCK_BYTES;
        raw.journal_start = self.journal / BLOCK_BYTES;
        raw.journal_blocks = self.lanes * self.lane_bytes / BLOCK_BYTES;
        raw.data_start = self.data_start;
        raw.inodes = self.inodes;
        raw.inode_table_root = self.inode_table_root;
        raw.hash_key = self.hash_key;
        raw.lanes = self.lanes as u32;
        raw.lane_bytes = self.lane_bytes as u32;
        raw.slots = self.slot_count as u32;
        raw.locks = self.lock_count as u32;
        raw.open_lines = self.open_lines as u32;
        raw.intents = self.intents_per_lane as u32;
        raw.reserve_blocks = self.reserve_blocks;
    }

    /// The same pool with more blocks: the runtime area goes to its new end, the rest stays.
    ///
    /// # Errors
    /// [`Error::Geometry`] if that can't be.
    pub fn grown(&self, blocks: u64) -> Result<Geometry> {
        check_size(self.blocks, blocks)?;
        let inodes = u128::from(self.inodes) * u128::from(blocks) / u128::from(self.blocks);
        let wanted = Sizing::for_blocks(blocks, Some(inodes as u64));
        let sizing = Sizing {
            inodes: wanted.inodes.max(self.inodes),
            lanes: self.lanes,
            lane_bytes: self.lane_bytes,
            slots: wanted.slots.max(self.slot_count),
            locks: wanted.locks.max(self.lock_count),
            open_lines: wanted.open_lines.max(self.open_lines),
            intents: wanted.intents.max(self.intents_per_lane),
            ..wanted
        };
        let area = Geometry::place(&sizing, 0).runtime.end / BLOCK_BYTES;
        let data_end = self.data_end() / BLOCK_BYTES;
        if blocks < data_end + area + 1 {
            return Err(Error::geometry(format!(
                "the larger pool's tables take {} KiB; grow it to at least {} KiB",
                area * 4,
                (data_end + area + 1) * 4
            )));
        }
        let start = blocks - 1 - area;
        let mut geometry = Geometry::place(&sizing, start * BLOCK_BYTES);
        geometry.journal = self.journal;
        geometry.inode_table_root = self.inode_table_root;
        geometry.data_start = self.data_start;
        geometry.reserve_blocks = sizing.reserve_blocks();
        geometry.hash_key = self.hash_key;
        Ok(geometry)
    }

    /// First byte after the blocks that trees may name: the runtime area of a pool that has grown,
    /// or the superblock's copy.
    #[inline]
    pub fn data_end(&self) -> u64 {
        if self.runtime.start >= self.data_start * BLOCK_BYTES {
            self.runtime.start
        } else {
            (self.blocks - 1) * BLOCK_BYTES
        }
    }

    /// The blocks after those: never given out.
    #[inline]
    pub fn tail(&self) -> Run {
        let block = self.data_end() / BLOCK_BYTES;
        Run {
            block,
            count: self.blocks - block,
        }
    }

    /// Blocks that are never free: superblock, runtime area, journal, the table's root, the copy.
    pub fn overhead_blocks(&self) -> u64 {
        self.data_start + self.tail().count
    }

    /// Byte offset of slot `index`.
    #[inline]
    pub fn slot(&self, index: u64) -> u64 {
        self.slots + index * SlotRaw::SIZE
    }

    /// Open files that there is room for in the runtime area, of programs that have them
    /// themselves.
    #[inline]
    pub fn file_count(&self) -> u64 {
        self.open_lines * FILES_PER_LINE
    }

    /// Byte offset of open file `index`.
    #[inline]
    pub fn file(&self, index: u64) -> u64 {
        self.files + index * OpenFileRaw::SIZE
    }

    /// File locks that there is room for in the runtime area.
    #[inline]
    pub fn file_lock_count(&self) -> u64 {
        self.open_lines
    }

    /// Byte offset of file lock `index`.
    #[inline]
    pub fn file_lock(&self, index: u64) -> u64 {
        self.file_locks + index * FileLockRaw::SIZE
    }

    /// Buckets of file locks: a power of two.
    #[inline]
    pub fn file_lock_bucket_count(&self) -> u64 {
        self.open_lines / FILE_LOCKS_PER_BUCKET
    }

    /// Byte offset of the file lock bucket `index`.
    #[inline]
    pub fn file_lock_bucket(&self, index: u64) -> u64 {
        self.file_lock_buckets + index * FileLockBucketRaw::SIZE
    }

    /// Records of kernel copies: a power of two.
    #[inline]
    pub fn kernel_copy_count(&self) -> u64 {
        self.open_lines
    }

    /// Byte offset of the kernel copy record `index`.
    #[inline]
    pub fn kernel_copy(&self, index: u64) -> u64 {
        self.kernel_copies + index * KernelCopyRaw::SIZE
    }

    /// Byte offset of lane `index`'s volatile line.
    #[inline]
    pub fn lane_line(&self, index: u64) -> u64 {
        self.lane_lines + index * LaneRaw::SIZE
    }

    /// Byte offset of lane `index`'s log.
    #[inline]
    pub fn lane_log(&self, index: u64) -> u64 {
        self.journal + index * self.lane_bytes
    }

    /// Byte offset of lane `index`'s intent records.
    #[inline]
    pub fn lane_intents(&self, index: u64) -> u64 {
        self.intents + index * self.intents_per_lane * IntentRaw::SIZE
    }

    /// Entries a lane: a power of two.
    #[inline]
    pub fn lane_entries(&self) -> u64 {
        self.lane_bytes / 64
    }

    /// The lane that has line `number` of the journal. Lanes are a power of two long, and a
    /// division is slow.
    #[inline]
    pub fn lane_of_line(&self, number: u64) -> u64 {
        number >> self.lane_entries().trailing_zeros()
    }

    /// Returns where in its lane entry `number` of all that were ever written there is, bytes.
    #[inline]
    pub fn entry_in_lane(&self, number: u64) -> u64 {
        (number & (self.lane_entries() - 1)) * 64
    }

    /// The inode table's root entry.
    #[inline]
    pub fn table_root(&self) -> u64 {
        (self.inode_table_root * BLOCK_BYTES)
            | (u64::from(tree::TABLE_HEIGHT) << tree::HEIGHT_SHIFT)
            | tree::PRESENT
            | tree::NODE
    }
}

/// # Errors
/// [`Error::Geometry`] if a pool can't be that large.
fn check_size(old_blocks: u64, blocks: u64) -> Result<()> {
    if blocks < old_blocks {
        return Err(Error::geometry(format!(
            "the pool has {} MiB, and can't be made smaller",
            old_blocks >> 8
        )));
    }
    if blocks > BLOCKS_MAX {
        return Err(Error::geometry("a pool has at most 16 TiB"));
    }
    Ok(())
}
