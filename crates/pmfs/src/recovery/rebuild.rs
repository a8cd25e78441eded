//! Rebuilding the runtime area by walking the trees: after power loss, or when the pool comes from
//! another machine. The first opener has the pool to itself.

use crate::inode::usage;
use crate::inode::{Inode, PER_BLOCK, plausible};
use crate::pool::Pool;
use crate::purpose::Lane;
use crate::tables::shares::Counted;
use crate::tree::visit::{Piece, Visitor};
use crate::types::Run;
use crate::types::{RecoveryKind, RecoveryReport};
use pm_journal::error::{Error, Result};
use pm_journal::medium::superblock;
use pm_journal::undo::undo;
use pm_space::{Bitmap, Zone};
use pm_store::Restore;
use pmfs_format::inode::ROOT_INO;
use pmfs_format::runtime::{LAYOUT, LAYOUT_COMMITTED_REDO};
use pmfs_format::{BLOCK_SHIFT, InodeRaw};
use pmshare::cleaning::Undone;
use std::sync::atomic::{AtomicU64, Ordering};

/// Blocks of the inode table that one walker takes at a time.
const STRIDE: usize = 64;

/// Resets the runtime area, closes the lanes, rebuilds the bitmaps.
///
/// # Errors
/// Damage in the journal or the root directory; damage elsewhere makes the pool read-only.
/// [`Error::Medium`].
pub fn rebuild(pool: &Pool) -> Result<RecoveryReport> {
    let geometry = &pool.geometry;
    let area = geometry.runtime.clone();
    let runtime = pool.pm.runtime();
    runtime.reset(area.start, area.end - area.start);
    runtime.store(geometry.header, LAYOUT);
    let last = superblock::run_record(pool.pm.mapping());
    let waited = last.is_some_and(|last| (1..LAYOUT_COMMITTED_REDO).contains(&last.layout));
    let mut report = RecoveryReport {
        kind: RecoveryKind::Walk,
        ..RecoveryReport::default()
    };
    for index in 0..geometry.lanes {
        let lane = Lane::at(pool, index);
        let mut scan = lane.scan();
        if waited {
            scan.forget_before();
        }
        let undone = match undo(pool, &lane, &scan, false) {
            Err(Error::Corrupt(_)) if pool.mending => discard(pool, &lane, index),
            undone => undone?,
        };
        report.transactions_undone += undone.transactions;
        report.entries_undone += undone.entries;
        // Lanes start in different parts of the pool, so that they seldom meet in a group.
        let apart = (geometry.blocks - geometry.data_start) / geometry.lanes;
        lane.set_block_cursor(Zone::Data, geometry.data_start + index * apart);
        lane.set_block_cursor(Zone::Meta, geometry.data_start);
        // In groups of their own, if there are enough: else the lanes of all processes write the
        // same line.
        let apart = (geometry.inodes / geometry.lanes).max(1024);
        lane.set_inode_cursor(index * apart % geometry.inodes);
    }
    let maps = mark_reachable(pool);
    // Nodes that can't be read are in no map: others would take their blocks for free.
    pool.pm.intact()?;
    maps.store_shares(pool);
    maps.store(pool);
    report.inodes = maps.live.load(Ordering::Relaxed);
    report.blocks = maps.used.load(Ordering::Relaxed);
    report.damage = maps.damage.load(Ordering::Relaxed);
    if report.damage > 0 {
        pool.stop_at_damage();
    }
    require_root(pool)?;
    Ok(report)
}

/// Refuses a pool in which nothing can be reached, except to a repair.
///
/// # Errors
/// [`Error::Corrupt`].
pub(crate) fn require_root(pool: &Pool) -> Result<()> {
    let is_root = |root: Inode| root.links > 0 && root.is_dir();
    if pool.mending || Inode::live(pool, ROOT_INO).is_ok_and(is_root) {
        return Ok(());
    }
    let table = pool.geometry.inode_table_root * pmfs_format::BLOCK_BYTES;
    Err(Error::corrupt("no root directory", table))
}

/// Throws away a log that can't be undone: what its transaction had begun stays half done, for
/// check to find.
fn discard(pool: &Pool, lane: &Lane<'_>, index: u64) -> Undone {
    let (log, entries) = lane.log();
    let restore = Restore::new(&pool.pm);
    restore.zero(log, entries * 64);
    restore.barrier();
    lane.reset(0, 0);
    pool.discarded.lock().expect("not poisoned").push(index);
    Undone::default()
}

/// Bitmaps in the making, in this process's memory.
pub(crate) struct Maps {
    blocks: Vec<AtomicU64>,
    inodes: Vec<AtomicU64>,
    shared: Counted,
    live: AtomicU64,
    used: AtomicU64,
    damage: AtomicU64,
}

impl Maps {
    fn new(pool: &Pool) -> Maps {
        let words = |units: u64| (0..units.div_ceil(64)).map(|_| AtomicU64::new(0)).collect();
        Maps {
            blocks: words(pool.geometry.blocks),
            inodes: words(pool.geometry.inodes),
            shared: Counted::new(pool.geometry.blocks),
            live: AtomicU64::new(0),
            used: AtomicU64::new(0),
            damage: AtomicU64::new(0),
        }
    }

    /// Answers whether none of them was marked before: a block that two trees name is damage, and a
    /// node that is met again must not be entered again.
    fn mark(&self, run: Run) -> bool {
        let mut fresh = true;
        let end = run.block + run.count;
        let mut block = run.block;
        while block < end {
            let bits = (64 - block % 64).min(end - block);
            let mask = (u64::MAX >> (64 - bits)) << (block % 64);
            let word = &self.blocks[(block / 64) as usize];
            fresh &= word.fetch_or(mask, Ordering::Relaxed) & mask == 0;
            block += bits;
        }
        self.used.fetch_add(run.count, Ordering::Relaxed);
        if !fresh {
            self.damage.fetch_add(1, Ordering::Relaxed);
        }
        fresh
    }

    /// Marks the blocks of a leaf whose blocks other leaves may name, or a node that others may
    /// name, and counts it for each. Answers whether it is the first that does so.
    fn mark_shared(&self, run: Run) -> bool {
        let mut is_first = true;
        for block in run.block..run.block + run.count {
            // The first leaf alone marks it: one that is marked has a leaf that does not share.
            match self.shared.add(block) {
                0 => drop(self.mark(Run::one(block))),
                _ => is_first = false,
            }
        }
        is_first
    }

    /// Writes the counts of shares, in blocks that no tree names.
    fn store_shares(&self, pool: &Pool) {
        if planted!("bug-walk-counts-once") {
            return;
        }
        let data = &pool.data;
        let mut blocks = data.start >> BLOCK_SHIFT..data.end >> BLOCK_SHIFT;
        let free = || {
            blocks.find(|&block| {
                let mask = 1 << (block % 64);
                let word = &self.blocks[(block / 64) as usize];
                word.load(Ordering::Relaxed) & mask == 0
                    && pool.has_space(Run::one(block))
                    && word.fetch_or(mask, Ordering::Relaxed) & mask == 0
            })
        };
        if !pool.store_shares(&self.shared, free) {
            self.damage.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn mark_ino(&self, ino: u64) {
        self.inodes[(ino / 64) as usize].fetch_or(1 << (ino % 64), Ordering::Relaxed);
    }

    /// Writes the bitmaps and the groups' counts to the runtime area.
    fn store(&self, pool: &Pool) {
        let maps = [
            (&self.blocks, pool.geometry.block_map, Bitmap::blocks(pool)),
            (&self.inodes, pool.geometry.inode_map, Bitmap::inodes(pool)),
        ];
        for (words, place, map) in maps {
            for (at, word) in words.iter().enumerate() {
                let mut value = word.load(Ordering::Relaxed);
                // Units past the end can never be had.
                let past = (at as u64 + 1) * 64;
                if past > place.units {
                    value |= u64::MAX << (64 - (past - place.units));
                }
                if value != 0 {
                    pool.pm.runtime().store(place.bits + at as u64 * 8, value);
                }
            }
            for group in 0..map.group_count() {
                map.recount(group);
            }
        }
    }
}

/// Marks everything that a live inode reaches.
pub(crate) fn mark_reachable(pool: &Pool) -> Maps {
    let maps = Maps::new(pool);
    maps.mark(Run {
        block: 0,
        count: pool.geometry.data_start,
    });
    maps.mark(pool.geometry.tail());
    for ino in 0..pmfs_format::inode::FIRST_INO {
        maps.mark_ino(ino);
    }
    let mut table = TableMarker {
        maps: &maps,
        root: pool.geometry.inode_table_root,
        leaves: Vec::new(),
    };
    pool.inode_table().visit(pool, &mut table);
    let leaves = table.leaves;
    let next = AtomicU64::new(0);
    let work = || {
        loop {
            let start = next.fetch_add(STRIDE as u64, Ordering::Relaxed) as usize;
            if start >= leaves.len() {
                return;
            }
            for &leaf in &leaves[start..leaves.len().min(start + STRIDE)] {
                mark_leaf(pool, &maps, leaf);
            }
        }
    };
    if leaves.len() <= STRIDE {
        work();
    } else {
        let workers = std::thread::available_parallelism().map_or(1, usize::from);
        std::thread::scope(|scope| {
            for _ in 0..workers {
                scope.spawn(work);
            }
        });
    }
    maps
}

/// Walks the 32 inodes of one block of the table.
fn mark_leaf(pool: &Pool, maps: &Maps, index: u64) {
    for ino in index * PER_BLOCK..(index + 1) * PER_BLOCK {
        if ino < ROOT_INO || ino >= pool.geometry.inodes {
            continue;
        }
        let Ok(inode) = Inode::load(pool, ino) else {
            continue;
        };
        if inode.links == 0 {
            continue;
        }
        maps.mark_ino(ino);
        maps.live.fetch_add(1, Ordering::Relaxed);
        if plausible(&inode).is_err() {
            maps.damage.fetch_add(1, Ordering::Relaxed);
            continue;
        }
        let mut walk = FileMarker {
            maps,
            blocks: 0,
            counts_only: false,
        };
        if inode.has_tree() {
            inode.tree().visit(pool, &mut walk);
        }
        usage::correct(pool, &inode, walk.blocks + inode.xattr_run().count);
        let run = inode.xattr_run();
        if run.count > 0 && !planted!("bug-rebuild-misses-attributes") {
            if run.block >= pool.geometry.data_start
                && run.block + run.count <= pool.data.end / pmfs_format::BLOCK_BYTES
            {
                maps.mark(run);
            } else {
                maps.damage.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
}

struct TableMarker<'a> {
    maps: &'a Maps,
    root: u64,
    leaves: Vec<u64>,
}

impl Visitor for TableMarker<'_> {
    fn piece(&mut self, piece: Piece) -> bool {
        // The root's block lies before the allocator's.
        let fresh = piece.run.block == self.root || self.maps.mark(piece.run);
        if piece.level == 0 && piece.units != 1 {
            self.maps.damage.fetch_add(1, Ordering::Relaxed);
        } else if piece.level == 0 && fresh {
            self.leaves.push(piece.base);
        }
        fresh
    }

    fn damage(&mut self, _error: Error) {
        self.maps.damage.fetch_add(1, Ordering::Relaxed);
    }
}

struct FileMarker<'a> {
    maps: &'a Maps,
    blocks: u64,
    /// Another file's walk marks what the node of this one names.
    counts_only: bool,
}

impl Visitor for FileMarker<'_> {
    fn piece(&mut self, piece: Piece) -> bool {
        self.blocks += piece.run.count;
        if self.counts_only {
            return true;
        }
        if piece.shared {
            let is_first = self.maps.mark_shared(piece.run);
            self.counts_only = piece.level > 0 && !is_first && !planted!("bug-walk-enters-twice");
            return true;
        }
        self.maps.mark(piece.run)
    }

    fn damage(&mut self, _error: Error) {
        self.maps.damage.fetch_add(1, Ordering::Relaxed);
    }
}

const _: () = assert!(PER_BLOCK * InodeRaw::SIZE == pmfs_format::BLOCK_BYTES);

#[cfg(test)]
mod tests {
    use crate::scratch::{NODE, Scratch};
    use crate::{Fs, OpenOptions, ROOT_INO};
    use pm_journal::medium::superblock;
    use pm_store::Restore;
    use pmfs_format::RunRecordRaw;
    use pmfs_format::runtime::{LAYOUT, LAYOUT_COMMITTED_REDO};

    /// Returns the byte after the power went, if the last log but one made it a two and was
    /// durable, the last one is torn, and the byte has become a nine since. A build with such a
    /// layout left the pool.
    fn byte_after_the_cut(layout: u64) -> u8 {
        let scratch = Scratch::new(16 << 20);
        let fs = scratch.open();
        let [ino, other] = [b"file", b"more"].map(|name| {
            let ino = fs.create(ROOT_INO, name, &NODE).unwrap().ino;
            fs.write(ino, 0, &[1; 4096]).unwrap();
            ino
        });
        fs.write(ino, 96, &[2; 64]).unwrap();
        fs.write(other, 96, &[3; 64]).unwrap();
        let _writable = fs.mapping().writable();
        let pool = fs.pool();
        let restore = Restore::new(&pool.pm);
        let mut lanes = (0..pool.geometry.lanes).map(|lane| pm_journal::lane::Lane::at(pool, lane));
        let lane = lanes.find(|lane| lane.scan().is_committed_redo()).unwrap();
        let torn = *lane.scan().open.last().unwrap();
        let mine = |&(_, word): &(u64, u64)| word == 0x0202_0202_0202_0202;
        let words = lane.scan().redo_words(pool).unwrap();
        words
            .into_iter()
            .filter(mine)
            .for_each(|(off, _)| restore.words(off, &[0x0909_0909_0909_0909]));
        restore.words(torn + 56, &[0]);
        let last = superblock::run_record(fs.mapping()).unwrap();
        let record = RunRecordRaw {
            layout,
            boot_id: [1; 16],
            ..last
        };
        superblock::set_run_record(&restore, record);
        let cut = scratch.dir.path().join("cut");
        std::fs::copy(&scratch.path, &cut).unwrap();
        let adopt = OpenOptions {
            adopt: true,
            ..OpenOptions::default()
        };
        let mut got = [0];
        let after = Fs::open(&cut, &adopt).unwrap();
        after.read(ino, 100, &mut got).unwrap();
        got[0]
    }

    /// Goal: of a pool that a build left which waited for the words of each log before it went on,
    /// the last log but one is left alone.
    #[test]
    fn builds_from_before_have_no_committed_redo() {
        let cuts = [LAYOUT, LAYOUT_COMMITTED_REDO - 1].map(byte_after_the_cut);
        assert_eq!(cuts, [2, 9]);
    }
}
