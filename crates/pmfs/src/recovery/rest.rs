//! A pool at rest: no lock, lane, open file or slot is held. The first opener believes the runtime
//! area of a pool that was left clean, but its bytes may be crafted: a lock left there would be
//! waited for without end, and a count would overflow.
//!
//! The tables are looked at while their checksum is made, part by part, so that they are read once.

use crate::pool::Pool;
use crate::tables::annex::told_words;
use crate::types::Run;
use pm_journal::error::Result;
use pm_journal::medium::geometry::Geometry;
use pm_journal::medium::header;
use pm_journal::medium::superblock::crc_of_parts;
use pm_space::Bitmap;
use pmfs_format::inode::FIRST_INO;
use pmfs_format::runtime::{ANNEX_ROOTS, FILE_LOCK_FREE, GROUP_UNITS, KERNEL_COPY_FREE};
use pmfs_format::{
    At, FileLockBucketRaw, FileLockRaw, GroupRaw, KernelCopyRaw, LINE_BYTES, LaneRaw, LockRaw,
    OpenFileRaw, OpenLineRaw, RuntimeHeaderRaw, SlotRaw,
};
use std::ops::Range;

/// No count in use gets so far.
const COUNT_MAX: u64 = 1 << 62;
/// The part of a record's state that says what it is; the rest says whose.
const STATE_MASK: u64 = 0xffff_ffff;

/// Returns the runtime area's checksum, if nothing in it is held.
///
/// # Errors
/// `Medium`.
pub(crate) fn crc_at_rest(pool: &Pool) -> Result<Option<u32>> {
    let (crc, rest) = inspected(pool, None)?;
    Ok(rest.then_some(crc))
}

/// Returns whether nothing of the runtime area is held, but for the slot of this process.
///
/// # Errors
/// `Medium`.
pub(crate) fn is_at_rest(pool: &Pool, own: Option<u64>) -> Result<bool> {
    Ok(inspected(pool, own)?.1)
}

fn inspected(pool: &Pool, own: Option<u64>) -> Result<(u32, bool)> {
    let tables = tables(&pool.geometry);
    let mut rest = true;
    let see = |off, part: &[u8]| rest &= tables.iter().all(|table| table.rests(off, part));
    let crc = crc_of_parts(pool.pm.mapping(), pool.geometry.runtime.clone(), see)?;
    let rest = rest && has_nobody(pool, own) && is_reserved(pool) && pool.counters_rest();
    Ok((pool.crc_of_shares(crc)?, rest))
}

/// A table of lines, each of which is to be at rest.
struct Table {
    place: Range<u64>,
    is_at_rest: fn(&[u8]) -> bool,
}

impl Table {
    /// Returns whether those of its lines are that stand in a part of the pool.
    fn rests(&self, off: u64, part: &[u8]) -> bool {
        let end = off + part.len() as u64;
        let (from, to) = (self.place.start.max(off), self.place.end.min(end));
        if from >= to {
            return true;
        }
        let lines = &part[(from - off) as usize..(to - off) as usize];
        lines.chunks_exact(LINE_BYTES as usize).all(self.is_at_rest)
    }
}

fn word<S>(line: &[u8], field: At<S, u64>) -> u64 {
    let at = field.offset() as usize;
    u64::from_le_bytes(line[at..at + 8].try_into().expect("eight bytes"))
}

/// The tables whose lines are a line each of the processor's.
fn tables(geometry: &Geometry) -> [Table; 10] {
    let table = |start: u64, count: u64, is_at_rest| Table {
        place: start..start + count * LINE_BYTES,
        is_at_rest,
    };
    let groups = |map: &pm_journal::medium::geometry::BitmapPlace| {
        table(map.groups, map.group_count(), |line| {
            word(line, GroupRaw::owner) == 0
                && word(line, GroupRaw::free) <= GROUP_UNITS
                && word(line, GroupRaw::regions) <= GROUP_UNITS
        })
    };
    [
        table(geometry.lane_lines, geometry.lanes, |line| {
            word(line, LaneRaw::owner) == 0
                && word(line, LaneRaw::intents) == 0
                && word(line, LaneRaw::last_id) < COUNT_MAX
        }),
        table(geometry.locks, geometry.lock_count, |line| {
            let sequence = word(line, LockRaw::sequence);
            word(line, LockRaw::owner) == 0 && sequence & 1 == 0 && sequence < COUNT_MAX
        }),
        table(geometry.open, geometry.open_lines, |line| {
            line[..OpenLineRaw::notes.offset() as usize]
                .iter()
                .all(|&byte| byte == 0)
        }),
        table(geometry.files, geometry.file_count(), |line| {
            word(line, OpenFileRaw::owner) == 0
                && word(line, OpenFileRaw::ino) == 0
                && word(line, OpenFileRaw::generation) < COUNT_MAX
        }),
        table(geometry.file_locks, geometry.file_lock_count(), |line| {
            word(line, FileLockRaw::state) & STATE_MASK == FILE_LOCK_FREE
        }),
        table(
            geometry.file_lock_buckets,
            geometry.file_lock_bucket_count(),
            |line| {
                word(line, FileLockBucketRaw::owner) == 0
                    && word(line, FileLockBucketRaw::first) == 0
                    && word(line, FileLockBucketRaw::changes) < COUNT_MAX
            },
        ),
        table(
            geometry.kernel_copies,
            geometry.kernel_copy_count(),
            |line| word(line, KernelCopyRaw::state) & STATE_MASK == KERNEL_COPY_FREE,
        ),
        table(geometry.annex_roots, ANNEX_ROOTS.div_ceil(8), |line| {
            line.iter().all(|&byte| byte == 0)
        }),
        groups(&geometry.block_map),
        groups(&geometry.inode_map),
    ]
}

/// No slot is marked, no lock of the whole pool is held, and what processes count on as they come
/// has not run over.
fn has_nobody(pool: &Pool, own: Option<u64>) -> bool {
    let mut slots = 0..pool.geometry.slot_count;
    pool.pm
        .load(RuntimeHeaderRaw::tokens.of(pool.geometry.header))
        < COUNT_MAX
        && header::words(pool)
            .iter()
            .all(|&off| pool.pm.load(off) == 0)
        && pool.pm.load(told_words(pool)[0]) == 0
        && slots.all(|slot| {
            let incarnation = SlotRaw::incarnation.of(pool.geometry.slot(slot));
            (Some(slot) == own || !pool.is_marked(slot)) && pool.pm.load(incarnation) < COUNT_MAX
        })
}

/// Returns whether the blocks and inodes that are never given out are marked as used: otherwise the
/// superblock, or the journal, could be given to a file.
fn is_reserved(pool: &Pool) -> bool {
    let (blocks, inodes) = (Bitmap::blocks(pool), Bitmap::inodes(pool));
    let Run { block, count } = pool.geometry.tail();
    (0..pool.geometry.data_start)
        .chain(block..block + count)
        .all(|block| blocks.is_set(block))
        && (0..FIRST_INO).all(|ino| inodes.is_set(ino))
}
