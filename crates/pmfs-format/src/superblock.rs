//! Block 0 and its copy.

use crate::layout::on_media;

/// `PMFSPOOL`, as the first eight bytes of a pool.
pub const MAGIC: u64 = u64::from_le_bytes(*b"PMFSPOOL");
/// The run record's offset in block 0: a line of its own.
pub const RUN_RECORD_OFFSET: u64 = 512;
/// The clean flag's offset in block 0: a line of its own, stored as one word. Its low half is the
/// state; of a clean pool the high half is the CRC-32C of the runtime area, which is trusted only
/// if it is still right.
pub const STATE_OFFSET: u64 = 576;
/// The claim's offset in block 0, beside the clean flag: 0, or the process that opened the pool
/// first and since when. Its high half is the CRC-32C of the boot id, its low half that of `st_dev`
/// and `st_ino`, as the run record has them. Two processes may reach the pool by names through
/// which their locks don't meet: one of them gets the claim.
pub const CLAIM_OFFSET: u64 = 584;
/// State: no process held the pool, and the runtime area stands as it was saved.
pub const STATE_CLEAN: u64 = 1;
/// State: in use, or left by a crash.
pub const STATE_ACTIVE: u64 = 2;
/// A feature that a reader must know: leaves of files may share blocks
/// ([`crate::tree::SHARED`]). Every pool has it from the start; one that an older build made has
/// not, and its files are copied.
pub const FEATURE_SHARED: u64 = 1;
/// A feature that a reader must know: root words of files may share a node
/// ([`crate::tree::SHARED`]). Every pool has it from the start; in one that an older build made
/// leaves alone are shared.
pub const FEATURE_SHARED_NODES: u64 = 2;

on_media! {
    /// The superblock. All of it is immutable between mkfs and grow and covered by its CRC. State
    /// that changes lives in lines of its own behind it. An identical copy stands in the pool's
    /// last block.
    pub struct SuperblockRaw[256] {
        /// [`MAGIC`].
        @ 0 magic: u64,
        /// Format version; a reader refuses a greater one.
        @ 8 version: u32,
        /// log2 of the block size: 12.
        @ 12 block_shift: u32,
        /// Names the pool.
        @ 16 uuid: [u8; 16],
        /// Features that a reader may ignore.
        @ 32 features_compat: u64,
        /// Features that a reader must know to write.
        @ 40 features_ro: u64,
        /// Features that a reader must know to read.
        @ 48 features_incompat: u64,
        /// Blocks in the pool, superblock and copy included.
        @ 56 blocks: u64,
        /// First block of the runtime area: 1, or, of a pool that has grown, where it ends before
        /// the copy.
        @ 64 runtime_start: u64,
        /// Blocks of the runtime area.
        @ 72 runtime_blocks: u64,
        /// First block of the journal.
        @ 80 journal_start: u64,
        /// Blocks of the journal.
        @ 88 journal_blocks: u64,
        /// First block that the allocator may give out.
        @ 96 data_start: u64,
        /// Inode numbers 0 to this minus one.
        @ 104 inodes: u64,
        /// Block of the inode table's root node: level 3, never moved.
        @ 112 inode_table_root: u64,
        /// Key of the directory and lock hashes (SipHash-1-3).
        @ 120 hash_key: [u64; 2],
        /// When the pool was made, ns since the epoch.
        @ 136 crtime_ns: i64,
        /// Lanes in the journal.
        @ 144 lanes: u32,
        /// Bytes a lane: a power of two.
        @ 148 lane_bytes: u32,
        /// Process slots in the runtime area.
        @ 152 slots: u32,
        /// Lines in the lock table: a power of two.
        @ 156 locks: u32,
        /// Lines of eight words in the open-file table: a power of two.
        @ 160 open_lines: u32,
        /// Intent records a lane.
        @ 164 intents: u32,
        /// Blocks kept back for calls that free or overwrite.
        @ 168 reserve_blocks: u64,
        /// Zero.
        @ 176 unused: [u64; 9],
        /// Zero.
        @ 248 unused_tail: u32,
        /// CRC-32C of the 252 bytes before it.
        @ 252 crc: u32,
    }
}

on_media! {
    /// The last run of the pool: rewritten by the first opener. It tells whether the runtime area
    /// can still be trusted (same boot, same file) or must be rebuilt.
    pub struct RunRecordRaw[64] {
        /// The kernel's boot id.
        @ 0 boot_id: [u8; 16],
        /// `st_dev` of the pool file.
        @ 16 dev: u64,
        /// `st_ino` of the pool file.
        @ 24 ino: u64,
        /// Version of the runtime area's layout ([`crate::runtime::LAYOUT`]).
        @ 32 layout: u64,
        /// Counts the pool's first openings.
        @ 40 runs: u64,
        /// Counts its recoveries.
        @ 48 recoveries: u64,
        /// CRC-32C of the bytes before it; a torn record counts as another boot.
        @ 56 crc: u64,
    }
}
