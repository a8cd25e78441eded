//! Making room: a full bucket becomes two, beside the old one, and one pointer is swung.

use super::bucket::{Bucket, encode, fingerprint, lines_for};
use crate::inode::Inode;
use crate::pool::Pool;
use crate::purpose::{Lane, Purpose};
use crate::resolve;
use crate::tree::entry::{Entry, place, span};
use crate::tree::{Tree, corrupt};
use crate::types::Ino;
use crate::types::Run;
use pm_journal::error::{Error, Result};
use pm_journal::locks::LockSet;
use pm_space::{Class, Zone};
use pm_store::FreshSet;
use pmfs_format::directory::BUCKET_LINES;
use pmfs_format::tree::{DIRECTORY_HEIGHT, FANOUT, FANOUT_SHIFT};
use pmfs_format::{BLOCK_BYTES, BLOCK_SHIFT};

/// The lowest level at which a directory has nodes: 54 bits of hash tell names apart.
const LEVEL_MIN: u32 = 2;

/// The way to a bucket.
struct Path {
    /// The word that names the bucket's node, and the node's level; for a bucket at the root, the
    /// root word and the level above all.
    node_slot: u64,
    node: Entry,
    level: u32,
    /// First hash of the node.
    base: u64,
    bucket: Entry,
}

/// Makes sure that a record of `name_len` bytes has room in its bucket; answers the directory as it
/// is then, if it had to change for that. Earlier intents of the lane must have been resolved.
///
/// # Errors
/// `NoSpace`, damage.
pub fn make_room(
    pool: &Pool,
    lane: &Lane<'_>,
    locks: &LockSet<'_>,
    mut dir: Inode,
    hash: u64,
    name_len: usize,
) -> Result<Option<Inode>> {
    let lines = lines_for(name_len);
    let mut changed = false;
    for _ in 0..=u64::BITS {
        let found = dir.tree().find(pool, hash)?;
        let room = found.entry.is_leaf().then(|| {
            let bucket = Bucket::at(found.entry.off());
            Some(bucket.line_off(bucket.header(pool).room(lines)?))
        });
        if let Some(line) = room.flatten() {
            // The record's line is seldom in the cache; there is an inode to be found meanwhile.
            pool.pm.prefetch(line);
            if changed {
                lane.work_done();
            }
            return Ok(changed.then_some(dir));
        }
        if !changed {
            dir.account_in(lane);
        }
        changed = true;
        if found.entry.is_hole() {
            first_bucket(pool, lane, locks, &dir, hash)?;
        } else {
            split(pool, lane, locks, &dir, hash)?;
        }
        resolve::resolve(pool, lane);
        lane.store_block_count();
        lane.clear_intents();
        dir = Inode::load(pool, dir.ino)?;
    }
    Err(Error::NoSpace)
}

fn first_bucket(
    pool: &Pool,
    lane: &Lane<'_>,
    locks: &LockSet<'_>,
    dir: &Inode,
    hash: u64,
) -> Result<()> {
    let mut fresh = pool.pm.fresh();
    let bucket = new_block(pool, lane, dir.ino, 0, hash)?;
    fresh.range(bucket, BLOCK_BYTES).zero(0, BLOCK_BYTES);
    let durable = fresh.barrier();
    locks.change();
    // The transaction of the call that needs the bucket flushes the inode's line again, and fences;
    // if the call does not get that far, nothing is in the bucket.
    let root = Entry::leaf(bucket).rooted(0);
    pool.pm.publish_early(dir.root_slot(), root.0, &durable);
    Ok(())
}

fn new_block(pool: &Pool, lane: &Lane<'_>, ino: Ino, level: u32, index: u64) -> Result<u64> {
    let purpose = Purpose::Tree { ino, level, index };
    let run = pool.alloc(lane, 1, Class::Ordinary, Zone::Meta, purpose)?;
    Ok(run.block << BLOCK_SHIFT)
}

/// Writes down that a block is to go, once the tree no longer names it; answers the record.
fn old_block(lane: &Lane<'_>, off: u64, ino: Ino, level: u32, index: u64) -> Result<u64> {
    let run = Run::one(off >> BLOCK_SHIFT);
    lane.intend_run(run, Purpose::Tree { ino, level, index })
}

fn path_to(pool: &Pool, tree: &Tree, hash: u64) -> Result<Path> {
    let mut path = Path {
        node_slot: tree.slot,
        node: tree.root,
        level: DIRECTORY_HEIGHT + 1,
        base: 0,
        bucket: tree.root.unrooted(),
    };
    let mut slot = tree.slot;
    let mut level = tree.root.height().min(DIRECTORY_HEIGHT);
    while path.bucket.is_node() && level > 0 {
        let node = path.bucket.checked(&pool.data, BLOCK_BYTES, slot)?;
        path.node_slot = slot;
        path.node = node;
        path.level = level;
        path.base = hash >> (FANOUT_SHIFT * level) << (FANOUT_SHIFT * level);
        slot = node.off() + place(level, hash) * 8;
        path.bucket = Entry(pool.pm.load(slot));
        level -= 1;
    }
    Ok(path)
}

fn split(pool: &Pool, lane: &Lane<'_>, locks: &LockSet<'_>, dir: &Inode, hash: u64) -> Result<()> {
    let tree = dir.tree();
    let path = path_to(pool, &tree, hash)?;
    let old = Bucket::at(path.bucket.off());
    let depth = u32::from(old.header(pool).depth());
    let deepen = path.level > DIRECTORY_HEIGHT || depth >= FANOUT_SHIFT;
    // The node in which the two halves will stand, and the depth they have there.
    let (level, depth) = if deepen {
        (path.level - 1, 1)
    } else {
        (path.level, depth + 1)
    };
    if level < LEVEL_MIN {
        return Err(Error::NoSpace);
    }
    let slots = FANOUT >> (depth - 1);
    let first = place(level, hash) & !(slots - 1);
    let node_base = hash >> (FANOUT_SHIFT * level) << (FANOUT_SHIFT * level);
    let half = |at: u64| node_base + (first + at * slots / 2) * span(level);
    let ino = dir.ino;

    let mut fresh = pool.pm.fresh();
    let left = new_block(pool, lane, ino, 0, half(0))?;
    let right = new_block(pool, lane, ino, 0, half(1))?;
    let node = new_block(pool, lane, ino, level, node_base)?;
    let old_record = old_block(lane, old.off, ino, 0, hash)?;
    if !deepen {
        old_block(lane, path.node.off(), ino, level, node_base)?;
    }
    distribute(pool, &mut fresh, old, (left, right), half(1), depth as u8)?;
    let mut entries = if deepen {
        [Entry::HOLE; FANOUT as usize]
    } else {
        entries_of(pool, path.node)
    };
    for at in 0..slots {
        let bucket = if at < slots / 2 { left } else { right };
        entries[(first + at) as usize] = Entry::leaf(bucket);
    }
    fresh
        .range(node, BLOCK_BYTES)
        .bytes(0, &node_bytes(&entries))?;
    let halves = fresh.barrier();
    let slot = if deepen && path.level <= DIRECTORY_HEIGHT {
        path.node.off() + place(path.level, hash) * 8
    } else {
        path.node_slot
    };
    let at_root = slot == tree.slot;
    let word = if at_root {
        Entry::node(node).rooted(DIRECTORY_HEIGHT)
    } else {
        Entry::node(node)
    };
    locks.change();
    if planted!("bug-split-frees-first") {
        pool.free_front(lane, old_record, 1);
    }
    pool.pm.publish(slot, word.0, halves);
    Ok(())
}

fn entries_of(pool: &Pool, node: Entry) -> [Entry; FANOUT as usize] {
    std::array::from_fn(|at| Entry(pool.pm.load(node.off() + at as u64 * 8)))
}

fn node_bytes(entries: &[Entry; FANOUT as usize]) -> [u8; BLOCK_BYTES as usize] {
    let mut bytes = [0u8; BLOCK_BYTES as usize];
    for (word, entry) in bytes.chunks_exact_mut(8).zip(entries) {
        word.copy_from_slice(&entry.0.to_le_bytes());
    }
    bytes
}

/// Writes two fresh buckets: records whose hash lies below `middle` go left.
fn distribute(
    pool: &Pool,
    fresh: &mut FreshSet<'_>,
    old: Bucket,
    (left, right): (u64, u64),
    middle: u64,
    depth: u8,
) -> Result<()> {
    let mut halves = [[0u8; BLOCK_BYTES as usize]; 2];
    let mut next = [1usize; 2];
    for half in &mut halves {
        half[0] = depth;
    }
    let header = old.header(pool);
    for line in header.starts() {
        let record = old.record(pool, line)?;
        let side = usize::from(record.hash >= middle);
        let name = record.name(pool)?;
        let encoded = encode(Ino::from(record.ino), record.kind, record.hash, &name);
        let at = next[side];
        if at + record.lines > BUCKET_LINES {
            return Err(corrupt("records that overlap", record.off));
        }
        for (bytes, word) in halves[side][at * 64..]
            .chunks_exact_mut(8)
            .zip(encoded.words())
        {
            bytes.copy_from_slice(&word.to_le_bytes());
        }
        halves[side][at] = fingerprint(record.hash);
        halves[side][at + 1..at + record.lines].fill(pmfs_format::directory::FINGERPRINT_MORE);
        next[side] = at + record.lines;
    }
    fresh.range(left, BLOCK_BYTES).bytes(0, &halves[0])?;
    Ok(fresh.range(right, BLOCK_BYTES).bytes(0, &halves[1])?)
}
