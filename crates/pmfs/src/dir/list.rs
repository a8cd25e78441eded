//! readdir: buckets in hash order, records sorted within each; the cookie of an entry is its hash.

use super::bucket::{Bucket, Record};
use super::is_name;
use crate::inode::{Inode, is_kind};
use crate::pool::Pool;
use crate::tree::corrupt;
use crate::tree::entry::coverage;
use crate::types::{DirEntry, Ino};
use pm_journal::error::{Error, Result};
use pm_journal::locks;
use pmfs_format::directory::{HASH_BITS, HASH_FIRST};
use pmfs_format::inode::FIRST_INO;
use pmfs_format::tree::{DIRECTORY_HEIGHT, FANOUT, FANOUT_SHIFT};
use std::ops::Range;
use std::sync::atomic::Ordering;

struct Listed {
    hash: u64,
    ino: Ino,
    kind: u32,
    name: Vec<u8>,
}

/// Shows `emit` every entry after `cookie` until it declines one.
///
/// # Errors
/// `NotDirectory`, `Stale`, `NotFound` for a directory that was removed, damage.
pub(crate) fn readdir(
    pool: &Pool,
    dir: Ino,
    cookie: u64,
    wants_atime: bool,
    emit: &mut dyn FnMut(DirEntry<'_>) -> bool,
) -> Result<()> {
    let inode = locks::read(pool, dir, || {
        let inode = Inode::live(pool, dir)?;
        inode.require_dir()?;
        Ok(inode)
    })?;
    if inode.links == 0 {
        return Err(Error::NotFound);
    }
    if wants_atime && !pool.nodiratime.load(Ordering::Relaxed) {
        pool.accessed(&inode);
    }
    let parent = inode.parent;
    let dot = |ino, cookie, name| DirEntry {
        ino,
        kind: crate::types::mode::S_IFDIR,
        cookie,
        name,
    };
    if cookie < 1 && !emit(dot(dir, 1, b".")) || cookie < 2 && !emit(dot(parent, 2, b"..")) {
        return Ok(());
    }
    let mut from = cookie.saturating_add(1).max(HASH_FIRST);
    // Nodes that name each other are a directory without end.
    let mut left = pool.geometry.blocks;
    while from < 1 << HASH_BITS {
        left = left
            .checked_sub(1)
            .ok_or_else(|| corrupt("directory without end", inode.root_slot()))?;
        let (listed, next) = locks::read(pool, dir, || bucket_from(pool, dir, from))?;
        for (at, entry) in listed.iter().enumerate() {
            // Entries with equal hashes can't be told apart by a cookie: until the last of them is
            // taken, resuming starts at the first again.
            let more = listed
                .get(at + 1)
                .is_some_and(|next| next.hash == entry.hash);
            let taken = emit(DirEntry {
                ino: entry.ino,
                kind: entry.kind,
                cookie: entry.hash - u64::from(more),
                name: &entry.name,
            });
            if !taken {
                return Ok(());
            }
        }
        from = next;
    }
    Ok(())
}

/// The records from hash `from` on in the bucket that covers it, and the first hash after that
/// bucket.
fn bucket_from(pool: &Pool, dir: Ino, from: u64) -> Result<(Vec<Listed>, u64)> {
    let inode = Inode::live(pool, dir)?;
    let found = inode.tree().find(pool, from)?;
    if found.entry.is_hole() {
        // A directory without buckets; within a tree every entry is one.
        return Ok((Vec::new(), 1 << HASH_BITS));
    }
    let bucket = Bucket::at(found.entry.off());
    let header = bucket.header(pool);
    let depth = u32::from(header.depth());
    let covered = if found.level == 0 {
        0..coverage(DIRECTORY_HEIGHT)
    } else {
        let slots = FANOUT >> depth.min(FANOUT_SHIFT);
        let place = (found.slot % 4096 / 8) & !(slots - 1);
        let node_base = found.base - found.slot % 4096 / 8 * found.units;
        node_base + place * found.units..node_base + (place + slots) * found.units
    };
    let depth_max = if found.level == 0 { 0 } else { FANOUT_SHIFT };
    if depth > depth_max {
        return Err(corrupt("directory bucket", bucket.off));
    }
    let mut listed = Vec::new();
    for line in header.starts() {
        let record = bucket.record(pool, line)?;
        if record.hash < from && covered.contains(&record.hash) {
            continue;
        }
        let name = record.name(pool)?;
        if !is_shown(pool, &record, &name, &covered) {
            return Err(corrupt("directory record", record.off));
        }
        listed.push(Listed {
            hash: record.hash,
            ino: Ino::from(record.ino),
            kind: u32::from(record.kind) << 12,
            name,
        });
    }
    listed.sort_by(|a, b| a.hash.cmp(&b.hash).then_with(|| a.name.cmp(&b.name)));
    let same = |two: &[Listed]| two[0].hash == two[1].hash && two[0].name == two[1].name;
    if listed.windows(2).any(same) {
        return Err(corrupt("name that is there twice", bucket.off));
    }
    Ok((listed, covered.end))
}

/// The gate for names that are listed: a name that no call could have made is no answer, though the
/// pool holds it. Names that are looked up are the caller's own.
#[inline(always)]
fn is_shown(pool: &Pool, record: &Record, name: &[u8], covered: &Range<u64>) -> bool {
    is_name(name)
        && (FIRST_INO..pool.geometry.inodes).contains(&Ino::from(record.ino))
        && is_kind(u32::from(record.kind) << 12)
        && covered.contains(&record.hash)
}
