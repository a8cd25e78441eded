//! A pool at rest: nobody has a lock, a lane, a file open or a slot. The first opener believes the runtime area of a pool that was left
//! clean, and whoever wrote the pool may have written anything there: a lock that it left would be waited for without end.

use crate::alloc::Bitmap;
use crate::file_lock::table;
use crate::lane::{LAST_ID, Run};
use crate::pool::Pool;
use crate::recovery::header_words;
use pmfs_format::LockRaw;
use pmfs_format::inode::FIRST_INO;

const SEQUENCE: u64 = 8;
/// Nobody has counted so far.
const COUNT_MAX: u64 = 1 << 62;
const INTENTS: u64 = 24;
/// Words of a file lock's bucket, of an open file: its first record, its inode.
const FIRST: u64 = 8;

/// Whether nothing of the runtime area is anybody's, but for the slot of this process.
pub(crate) fn is_at_rest(pool: &Pool, own: Option<u64>) -> bool {
    let word = |off: u64| pool.pm.load(off);
    let geometry = &pool.geometry;
    let free = |off: &u64| word(*off) == 0;
    let is_unlocked = |lock: u64| {
        let line = geometry.locks + lock * LockRaw::SIZE;
        let sequence = word(line + SEQUENCE);
        word(line) == 0 && sequence & 1 == 0 && sequence < COUNT_MAX
    };
    let is_idle = |lane: u64| {
        let line = geometry.lane_line(lane);
        word(line) == 0 && word(line + INTENTS) == 0 && word(line + LAST_ID) < COUNT_MAX
    };
    let is_nobodys = |index: u64| {
        let line = geometry.file(index);
        word(line) == 0 && word(line + FIRST) == 0
    };
    let mut slots = (0..geometry.slot_count).filter(|&slot| Some(slot) != own);
    let maps = [Bitmap::blocks(pool), Bitmap::inodes(pool)];
    slots.all(|slot| !pool.is_marked(slot))
        && header_words(pool).iter().all(free)
        && (0..geometry.lanes).all(is_idle)
        && (0..geometry.lock_count).all(is_unlocked)
        && maps
            .iter()
            .all(|map| map.owner_words().all(|off| word(off) == 0))
        && (0..geometry.file_count()).all(is_nobodys)
        && is_reserved(pool)
        && pool
            .file_lock_buckets()
            .all(|bucket| word(bucket) == 0 && word(bucket + FIRST) == 0)
        && pool.references().next().is_none()
        && table::records(pool).next().is_none()
        && pool.kernel_copies().next().is_none()
}

/// Whether the blocks and inodes that are never given out are marked as used: else somebody would get the superblock, or the journal, to
/// write a file to.
fn is_reserved(pool: &Pool) -> bool {
    let (blocks, inodes) = (Bitmap::blocks(pool), Bitmap::inodes(pool));
    let Run { block, count } = pool.geometry.tail();
    (0..pool.geometry.data_start)
        .chain(block..block + count)
        .all(|block| blocks.is_set(block))
        && (0..FIRST_INO).all(|ino| inodes.is_set(ino))
}
