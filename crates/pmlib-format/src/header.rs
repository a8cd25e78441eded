//! The header, its copy, and the words beside them that change.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// `PMHEAP01`, as the first eight bytes of a heap.
pub const MAGIC: u64 = u64::from_le_bytes(*b"PMHEAP01");
/// Bytes of the header's page; the copy follows in the next one.
pub const HEADER_PAGE_BYTES: u64 = 4096;
/// The copy's place.
pub const COPY_OFFSET: u64 = HEADER_PAGE_BYTES;

/// The run's number in the header page, a line of its own. It grows by one with each opening, and
/// begins anew after 2^32 of them, or when it is damaged ([`ERA_OFFSET`]). The high half is a
/// CRC-32C of the low half, salted by the word's place.
pub const RUN_OFFSET: u64 = 512;
/// How often the run's number has begun anew, in the run's line and checked as the number is; 0 as
/// a whole: never. Both together are a run's name, which no two runs of a heap share.
pub const ERA_OFFSET: u64 = RUN_OFFSET + 8;
/// The state, a line of its own: [`STATE_CLEAN`] or [`STATE_ACTIVE`], with a CRC as the run's.
pub const STATE_OFFSET: u64 = 576;
/// The root pointer, a line of its own: an object's offset, in units of
/// [`crate::chunk::PLACE_BYTES`] (42 bits), below 22 bits of its CRC. 0: none.
pub const ROOT_OFFSET: u64 = 640;
/// Where the list of named roots begins, a line of its own: as the root pointer, to a
/// [`crate::NamedRaw`].
pub const NAMES_OFFSET: u64 = 704;
/// One word a span: its chunks, below a CRC-32C of them and of its place. The first word that is
/// 0 ends them. The copy's page has the same words.
pub const SPANS_OFFSET: u64 = 1024;
/// The most spans of a heap: growth by an eighth gets from 1 MiB to 64 TiB in fewer.
pub const SPANS_MAX: u64 = 256;

/// Nobody had the heap, and every lane was closed.
pub const STATE_CLEAN: u32 = 1;
/// In use, or left by a crash.
pub const STATE_ACTIVE: u32 = 2;

/// The part of a heap's header that never changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct HeaderRaw {
    /// [`MAGIC`].
    pub magic: u64,
    /// Format version; a reader refuses any other.
    pub version: u32,
    /// log2 of the bytes a chunk: 16.
    pub chunk_shift: u32,
    /// Names the heap.
    pub uuid: [u8; 16],
    /// Features that a reader may ignore.
    pub features_compat: u64,
    /// Features that a reader must know to write.
    pub features_ro: u64,
    /// Features that a reader must know to read.
    pub features_incompat: u64,
    /// Key of the records' checks: bytes of an object can't be taken for a record.
    pub seed: u64,
    /// Chunks of the first span.
    pub chunks: u64,
    /// Lanes.
    pub lanes: u32,
    /// Lines of the lock table: a power of two.
    pub lock_lines: u32,
    /// Bytes a lane.
    pub lane_bytes: u64,
    /// Zero.
    pub unused: [u64; 4],
    /// Slots for processes.
    pub slots: u32,
    /// CRC-32C of all before it.
    pub crc: u32,
}

const _: () = assert!(size_of::<HeaderRaw>() == 128);
const _: () = assert!(std::mem::offset_of!(HeaderRaw, uuid) == 16);
const _: () = assert!(std::mem::offset_of!(HeaderRaw, seed) == 56);
const _: () = assert!(std::mem::offset_of!(HeaderRaw, lane_bytes) == 80);
const _: () = assert!(std::mem::offset_of!(HeaderRaw, crc) == 124);
const _: () = assert!(SPANS_OFFSET + SPANS_MAX * 8 <= HEADER_PAGE_BYTES);
const _: () = assert!(size_of::<HeaderRaw>() as u64 <= RUN_OFFSET);
