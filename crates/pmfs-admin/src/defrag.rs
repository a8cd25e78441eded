//! Defragmenting, while others use the pool: small leaves of a file become one large leaf, and
//! regions of which little is used are emptied, so that they are whole again
//! (docs/adr/0013-defrag.md).
//!
//! Each step is one call on one file, under its lock, of at most one 2 MiB region: others wait no
//! longer than for a copy of that. The contents of a file and its times stay as they are. Steps
//! change the medium as overwrites do: a copy in blocks that nothing names, a barrier, one pointer;
//! then the old blocks go.
//!
//! Blocks that several files share stay where they are: one file's step can't move the others'
//! leaves. A file whose blocks programs have mapped, or of which a mount's kernel has pages, is
//! left alone.

use pm_journal::locks::LockSet;
use pm_space::{Bitmap, Class, REGION};
use pm_store::FreshSet;
use pmfs::Fs;
use pmfs::parts::file::{Work, is_direct};
use pmfs::parts::inode::Inode;
use pmfs::parts::pool::Pool;
use pmfs::parts::purpose::{Lane, Purpose};
use pmfs::parts::resolve::intend_subtree;
use pmfs::parts::tree::edit::{Edit, Leaves};
use pmfs::parts::tree::entry::{Entry, coverage, place};
use pmfs::parts::tree::{Found, Tree};
use pmfs::types::Ino;
use pmfs::types::Run;
use pmfs::{Error, Result};
use pmfs_format::inode::ROOT_INO;
use pmfs_format::tree::{FANOUT, UNWRITTEN};
use pmfs_format::{BLOCK_BYTES, BLOCK_SHIFT};
use std::cell::Cell;

/// The result of [`Admin::merge`](crate::Admin::merge) on 2 MiB of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Merged {
    /// The small leaves are one large leaf now.
    Merged,
    /// Nothing was to be done: a large leaf, a hole, or too little in small ones.
    Nothing,
    /// The blocks are mapped, or in pages of a kernel.
    Busy,
    /// No region is free as a whole.
    NoRegion,
}

/// The work that defragmenting has done, or would do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DefragReport {
    /// Large leaves made of small ones.
    pub merged: u64,
    /// Regions of 2 MiB whose small leaves were to go elsewhere.
    pub regions: u64,
    /// Blocks moved for that.
    pub moved: u64,
    /// Steps not taken because a file was mapped, or in pages of a mount's kernel.
    pub busy: u64,
    /// Merges not made for want of a whole region.
    pub no_region: u64,
}

/// The regions to empty, and those that take what is in them.
struct Plan {
    /// A bit for each region.
    victims: Vec<u64>,
    /// First blocks, the fullest first.
    targets: Vec<u64>,
    /// The target that is being filled.
    at: Cell<usize>,
}

impl Plan {
    fn is_victim(&self, off: u64) -> bool {
        let region = off / (REGION * BLOCK_BYTES);
        let word = self.victims.get(region as usize / 64);
        word.is_some_and(|word| word >> (region % 64) & 1 == 1)
    }

    /// A block in a target.
    fn alloc(&self, pool: &Pool, lane: &Lane<'_>, purpose: Purpose) -> Result<Run> {
        while let Some(&region) = self.targets.get(self.at.get()) {
            if let Ok(run) = pool.alloc_in(lane, region, purpose) {
                return Ok(run);
            }
            self.at.set(self.at.get() + 1);
        }
        Err(Error::NoSpace)
    }
}

/// A large leaf in place of 512 small ones.
struct Whole(Entry);

impl Leaves for Whole {
    fn whole(&mut self, _level: u32, _index: u64) -> Result<Option<Entry>> {
        Ok(Some(self.0))
    }

    fn one(&mut self, _fresh: &mut FreshSet<'_>, _index: u64, old: Entry) -> Result<Entry> {
        Ok(old)
    }
}

/// The slot that names the node of level 1 over `index`, and what it says.
fn node_over(work: &Work<'_>, index: u64) -> Result<Option<(u64, Entry)>> {
    let tree = work.tree();
    let mut level = tree.root.height();
    let (mut slot, mut entry) = (tree.slot, tree.root);
    // A node that other files name too stays where it is.
    if level == 0 || index >= coverage(level) || entry.is_shared_node() {
        return Ok(None);
    }
    while entry.is_node() && level > 1 {
        let node = entry.checked(&work.pool.data, BLOCK_BYTES, slot)?.off();
        slot = node + place(level, index) * 8;
        entry = Entry(work.pool.pm.load(slot));
        level -= 1;
    }
    if !entry.is_node() {
        return Ok(None);
    }
    entry.checked(&work.pool.data, BLOCK_BYTES, slot)?;
    Ok(Some((slot, entry)))
}

/// The 512 leaves from `index` on, if they are all there, and small.
fn small_leaves(work: &Work<'_>, index: u64) -> Result<Option<Vec<Entry>>> {
    let Some((_, node)) = node_over(work, index)? else {
        return Ok(None);
    };
    let word = |at: u64| Entry(work.pool.pm.load(node.off() + at * 8));
    let leaves: Vec<Entry> = (0..FANOUT).map(word).collect();
    for leaf in &leaves {
        if !leaf.is_leaf() {
            return Ok(None);
        }
        leaf.checked(&work.pool.data, BLOCK_BYTES, node.off())?;
    }
    Ok(Some(leaves))
}

/// Makes one large leaf of the 512 small ones at `index`.
fn merge(work: &mut Work<'_>, index: u64) -> Result<Merged> {
    let Some(leaves) = small_leaves(work, index)? else {
        return Ok(Merged::Nothing);
    };
    if leaves.iter().any(|leaf| leaf.is_shared()) {
        // A copy would take space that the files share.
        return Ok(Merged::Nothing);
    }
    let first = leaves[0];
    let unwritten = leaves.iter().all(|leaf| leaf.is_unwritten());
    let alike = unwritten || !leaves.iter().any(|leaf| leaf.is_unwritten());
    let in_row = first.off().is_multiple_of(REGION * BLOCK_BYTES)
        && (0..)
            .zip(&leaves)
            .all(|(at, leaf)| leaf.off() == first.off() + at * BLOCK_BYTES);
    let stays = alike && in_row;
    let mut fresh = work.pool.pm.fresh();
    let off = if stays {
        first.off()
    } else {
        let purpose = Purpose::leaf(work.ino(), index);
        match work.pool.alloc_region(work.lane, Class::Ordinary, purpose) {
            Err(Error::NoSpace) => return Ok(Merged::NoRegion),
            run => run?.block << BLOCK_SHIFT,
        }
    };
    if !stays && !unwritten {
        gather(&mut fresh, &leaves, off)?;
    }
    let bits = if unwritten { UNWRITTEN } else { 0 };
    swing_whole(work, fresh, index, Entry(Entry::grown(off).0 | bits), stays)?;
    Ok(Merged::Merged)
}

/// Copies what the leaves hold to fresh blocks in a row.
fn gather(fresh: &mut FreshSet<'_>, leaves: &[Entry], off: u64) -> Result<()> {
    for (at, leaf) in (0..).zip(leaves) {
        let block = fresh.range(off + at * BLOCK_BYTES, BLOCK_BYTES);
        if leaf.is_unwritten() {
            block.zero(0, BLOCK_BYTES);
        } else {
            block.copy(0, leaf.off(), BLOCK_BYTES)?;
        }
    }
    Ok(())
}

/// Puts a large leaf in the place of a node. The old leaves go, unless it `stays` in their
/// blocks; the node does.
fn swing_whole(
    work: &mut Work<'_>,
    mut fresh: FreshSet<'_>,
    index: u64,
    leaf: Entry,
    stays: bool,
) -> Result<()> {
    let edit = Edit {
        pool: work.pool,
        lane: work.lane,
        ino: work.ino(),
        class: Class::Ordinary,
        from: index,
        to: index + FANOUT,
    };
    let swing = edit.build(&mut fresh, &work.tree(), &mut Whole(leaf))?;
    let (to, kept) = match stays {
        true => (swing.end(), index),
        false => (index + FANOUT, index + FANOUT),
    };
    intend_subtree(work.lane, &swing, (index, to), kept)?;
    let durable = fresh.barrier();
    work.locks.change();
    work.pool.pm.publish(swing.slot, swing.new.0, durable);
    work.reload()?;
    work.lane_done();
    Ok(())
}

/// Moves the small leaves of the 2 MiB at `index` that are in regions to be emptied, and their
/// node; answers how many blocks.
fn move_away(work: &mut Work<'_>, index: u64, plan: &Plan) -> Result<u64> {
    let mut moved = 0;
    for at in index..index + FANOUT {
        let tree = work.tree();
        let found = tree.find(work.pool, at)?;
        if found.units > 1 {
            break;
        }
        let is_small = found.entry.is_leaf() && is_direct(&tree, &found, at);
        if is_small && !found.entry.is_shared() && plan.is_victim(found.entry.off()) {
            let purpose = Purpose::leaf(work.ino(), at);
            move_block(work, (found.slot, found.entry), plan, purpose)?;
            moved += 1;
        }
    }
    if let Some((slot, node)) = node_over(work, index)?
        && plan.is_victim(node.off())
    {
        let ino = work.ino();
        let purpose = Purpose::Tree {
            ino,
            level: 1,
            index,
        };
        move_block(work, (slot, node), plan, purpose)?;
        moved += 1;
    }
    Ok(moved)
}

/// Moves what one word names, a small leaf or a node: a copy, a barrier, the word.
fn move_block(
    work: &mut Work<'_>,
    (slot, old): (u64, Entry),
    plan: &Plan,
    purpose: Purpose,
) -> Result<()> {
    let run = plan.alloc(work.pool, work.lane, purpose)?;
    let off = run.block << BLOCK_SHIFT;
    let mut fresh = work.pool.pm.fresh();
    if !old.is_unwritten() {
        fresh
            .range(off, BLOCK_BYTES)
            .copy(0, old.off(), BLOCK_BYTES)?;
    }
    let gone = Run::one(old.off() >> BLOCK_SHIFT);
    let record = work.lane.intend_run(gone, purpose)?;
    let durable = fresh.barrier();
    work.locks.change();
    let new = old.0 - old.off() + off;
    work.pool.pm.publish(slot, new, durable);
    work.pool.free_front(work.lane, record, 1);
    work.lane.store_block_count();
    work.lane.clear_intents();
    work.reload()
}

/// A step on one file: `busy` if it is to be left alone.
fn step<T>(
    pool: &Pool,
    ino: Ino,
    busy: T,
    step: impl FnOnce(&mut Work<'_>) -> Result<T>,
) -> Result<T> {
    pool.writable()?;
    let _writable = pool.pm.mapping().writable();
    let mut step = Some(step);
    let answer = pool.on_blocks(ino, |work| match step.take() {
        Some(step) if !work.pinned => step(work).map(Some),
        _ => Ok(None),
    });
    match answer {
        Err(Error::PagesElsewhere(_)) | Ok(None) => Ok(busy),
        Ok(Some(done)) => Ok(done),
        Err(error) => Err(error),
    }
}

/// Returns where the next 2 MiB of a file begin of which something is in small leaves, from the
/// block `index` on.
fn next_small(pool: &Pool, ino: Ino, mut index: u64) -> Result<Option<u64>> {
    let _locks = LockSet::take(pool, &[ino]);
    let inode = Inode::live(pool, ino)?;
    inode.require_file()?;
    let tree: Tree = inode.tree();
    let end = coverage(tree.root.height());
    // Others wait for the lock: what is large is not gone through at a stretch.
    let stretch = index.saturating_add(FANOUT * FANOUT);
    while index < end && !tree.root.is_hole() {
        if index >= stretch {
            return Ok(Some(index));
        }
        let found: Found = tree.find(pool, index)?;
        if found.level == 1 || found.level == 0 && found.units == 1 {
            return Ok(Some(index / FANOUT * FANOUT));
        }
        index = found.base + found.units;
    }
    Ok(None)
}

/// Does something for each 2 MiB of a file of which something is in small leaves.
fn each_small(pool: &Pool, ino: Ino, mut each: impl FnMut(u64) -> Result<()>) -> Result<()> {
    let mut at = 0;
    loop {
        match next_small(pool, ino, at) {
            Ok(Some(index)) => {
                match each(index) {
                    Err(Error::Stale) => return Ok(()),
                    done => done?,
                }
                at = index + FANOUT;
            }
            // No file, or none any more.
            Ok(None) | Err(Error::Stale | Error::IsDirectory | Error::Invalid(_)) => {
                return Ok(());
            }
            Err(error) => return Err(error),
        }
    }
}

pub(crate) fn merge_file(
    pool: &Pool,
    ino: Ino,
    report: &mut DefragReport,
    dry: bool,
) -> Result<()> {
    each_small(pool, ino, |index| {
        let merged = step(pool, ino, Merged::Busy, |work| match dry {
            true => Ok(match small_leaves(work, index)? {
                Some(_) => Merged::Merged,
                None => Merged::Nothing,
            }),
            false => merge(work, index),
        })?;
        match merged {
            Merged::Merged => report.merged += 1,
            Merged::Busy => report.busy += 1,
            Merged::NoRegion => report.no_region += 1,
            Merged::Nothing => {}
        }
        Ok(())
    })
}

/// Every inode that may be a file's.
fn files(pool: &Pool) -> impl Iterator<Item = Ino> {
    let map = Bitmap::inodes(pool);
    (ROOT_INO..pool.geometry.inodes).filter(move |&ino| map.is_set(ino))
}

/// Returns how many blocks of each region could be moved.
fn survey(pool: &Pool, watch: &mut dyn FnMut(u64)) -> Result<Vec<u16>> {
    let mut movable = vec![0u16; pool.geometry.blocks.div_ceil(REGION) as usize];
    for ino in files(pool) {
        watch(ino);
        each_small(pool, ino, |index| {
            let mut count = |off: u64| movable[(off / (REGION * BLOCK_BYTES)) as usize] += 1;
            step(pool, ino, (), |work| {
                match node_over(work, index)? {
                    None => count(work.tree().find(pool, index)?.entry.off()),
                    Some((_, node)) => {
                        count(node.off());
                        let word = |at: u64| Entry(pool.pm.load(node.off() + at * 8));
                        let leaves = (0..FANOUT).map(word).filter(|entry| entry.is_leaf());
                        for leaf in leaves {
                            leaf.checked(&pool.data, BLOCK_BYTES, node.off())?;
                            count(leaf.off());
                        }
                    }
                }
                Ok(())
            })
        })?;
    }
    Ok(movable)
}

/// Chooses the regions to empty: those with the least in them, as many as the others have room
/// for.
fn plan(pool: &Pool, movable: &[u16]) -> Plan {
    let map = Bitmap::blocks(pool);
    let mut broken: Vec<(u64, u64)> = (0..map.group_count())
        .flat_map(|group| map.regions(group))
        .filter(|&(region, to)| to - region == REGION)
        .map(|(region, _)| (map.used_in(region), region))
        .filter(|&(used, _)| used > 0 && used < REGION)
        .collect();
    broken.sort_unstable();
    let mut room: u64 = broken.iter().map(|(used, _)| REGION - used).sum();
    let mut victims = vec![0; movable.len().div_ceil(64)];
    let mut targets = Vec::new();
    let mut need = 0;
    for (used, region) in broken {
        let at = (region / REGION) as usize;
        if u64::from(movable[at]) == used && need + used + (REGION - used) <= room {
            need += used;
            room -= REGION - used;
            victims[at / 64] |= 1 << (at % 64);
        } else {
            targets.push(region);
        }
    }
    targets.reverse();
    Plan {
        victims,
        targets,
        at: Cell::new(0),
    }
}

/// Empties regions of which little is used.
fn compact(
    pool: &Pool,
    report: &mut DefragReport,
    dry: bool,
    watch: &mut dyn FnMut(u64),
) -> Result<()> {
    let plan = plan(pool, &survey(pool, watch)?);
    let victims: u32 = plan.victims.iter().map(|word| word.count_ones()).sum();
    report.regions += u64::from(victims);
    if dry || victims == 0 {
        return Ok(());
    }
    for ino in files(pool) {
        watch(pool.geometry.inodes + ino);
        let moved = each_small(pool, ino, |index| {
            match step(pool, ino, None, |work| {
                move_away(work, index, &plan).map(Some)
            })? {
                Some(moved) => report.moved += moved,
                None => report.busy += 1,
            }
            Ok(())
        });
        match moved {
            // Others have taken what there was room for.
            Err(Error::NoSpace) => break,
            moved => moved?,
        }
    }
    Ok(())
}

/// See [`Admin::merge`](crate::Admin::merge).
pub(crate) fn merge_at(pool: &Pool, ino: Ino, offset: u64) -> Result<Merged> {
    let index = offset / BLOCK_BYTES / FANOUT * FANOUT;
    step(pool, ino, Merged::Busy, |work| merge(work, index))
}

/// See [`Admin::defrag`](crate::Admin::defrag).
pub(crate) fn defrag(fs: &Fs, dry: bool, watch: &mut dyn FnMut(u64, u64)) -> Result<DefragReport> {
    let pool = fs.pool();
    let inodes = pool.geometry.inodes;
    let mut report = DefragReport::default();
    if !dry {
        // A region with one of these could not be emptied.
        fs.change(|pool| {
            pool.free_spares(pool.into());
            Ok(())
        })?;
    }
    compact(pool, &mut report, dry, &mut |done| watch(done, inodes * 5))?;
    for ino in files(pool) {
        watch(inodes * 2 + ino, inodes * 5);
        merge_file(pool, ino, &mut report, dry)?;
    }
    if report.merged > 0 && !dry {
        compact(pool, &mut report, dry, &mut |done| {
            watch(inodes * 3 + done, inodes * 5)
        })?;
    }
    Ok(report)
}
