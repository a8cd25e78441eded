//! Resolving a lane's intents: for each block in question the trees tell to which inode it belongs,
//! and a block that belongs to none is freed. The end of a failed call, of an unlink, and of a dead
//! thread's lane are one code.
//!
//! Zeros stand for words that can't be read where the medium fails, and would say that a block
//! belongs to no inode: so nothing is freed by words read then.

use crate::inode::Inode;
use crate::inode::xattr;
use crate::pool::Pool;
use crate::purpose::{CHANGED, Lane, Purpose};
use crate::tree::entry::{Entry, coverage};
use crate::tree::free::{ATTRIBUTES_DONE, Freeing};
use crate::tree::{Shape, Tree};
use crate::types::Ino;
use crate::types::Run;
use pm_journal::error::Result;
use pm_space::{Bitmap, Resolve};
use pmfs_format::BLOCK_SHIFT;
use pmfs_format::inode::TABLE_INO;

impl Resolve<Purpose> for Pool {
    fn resolve(&self, lane: &Lane<'_>) {
        resolve(self, lane);
    }
}

/// Resolves every intent of the lane. A call does so between two swings if the second replaces
/// nodes that the first has built: else they would be freed twice, by their own record and with the
/// subtree. The caller holds the locks of the inodes that the records name. Damage met on the way
/// leaves blocks allocated, which check reports; it is never a reason to free what may be in use.
pub(crate) fn resolve(pool: &Pool, lane: &Lane<'_>) {
    resolve_records(pool, lane, false);
}

/// Resolves like [`resolve`], after a call that has put all blocks that it allocated in place:
/// these need not be searched for.
pub(crate) fn resolve_old(pool: &Pool, lane: &Lane<'_>) {
    resolve_records(pool, lane, true);
}

fn resolve_records(pool: &Pool, lane: &Lane<'_>, placed: bool) {
    lane.doubt_spare();
    for record in 0..lane.intent_count() {
        let Some((word, purpose)) = lane.intent(record) else {
            continue;
        };
        match purpose {
            Purpose::Tree { .. } | Purpose::Under { .. } | Purpose::Shared { .. } if placed => {}
            Purpose::Reclaim { ino, cursor } => {
                let _ = reclaim(pool, lane, record, ino, cursor);
            }
            Purpose::Subtree {
                slot,
                level,
                cursor,
            } => {
                let _ = subtree(pool, lane, record, (Entry(word), level), slot, cursor);
            }
            Purpose::Range { .. } | Purpose::Word { .. } => {}
            Purpose::Inode { ino } => resolve_ino(pool, lane, record, ino),
            _ => resolve_run(pool, lane, record, Lane::run_of(word), purpose),
        }
    }
}

/// Frees those blocks of a run that are not what its purpose says. Some leaves of a run may be in
/// the tree and others not: a thread was killed between two pointers.
fn resolve_run(pool: &Pool, lane: &Lane<'_>, record: u64, mut run: Run, mut purpose: Purpose) {
    while run.count > 0 {
        let Ok(used) = in_use(pool, run.block, purpose) else {
            return;
        };
        let mut same = 1;
        if purpose.of_leaves().is_some() {
            let at = |by| purpose.further(by);
            while same < run.count && in_use(pool, run.block + same, at(same)).ok() == Some(used) {
                same += 1;
            }
            purpose = at(same);
        } else {
            same = run.count;
        }
        let rest = Run {
            block: run.block + same,
            count: run.count - same,
        };
        if used {
            lane.shrink(record, rest);
        } else {
            pool.free_front(lane, record, same);
        }
        run = rest;
    }
}

/// Returns whether a block is what its purpose says it was to be. A block of an inode that is
/// neither linked nor open is not: a thread was killed while it made one.
fn in_use(pool: &Pool, block: u64, purpose: Purpose) -> Result<bool> {
    let dead = |ino| -> Result<bool> {
        Ok(ino != TABLE_INO && Inode::load(pool, ino)?.links == 0 && !pool.is_open(ino))
    };
    let used = match purpose {
        Purpose::Tree { ino, level, index } => {
            !dead(ino)? && tree_of(pool, ino)?.names(pool, level, index, block)?
        }
        Purpose::Shared { ino, level, index } => {
            let tree = tree_of(pool, ino)?;
            // The leaves of a node that others name too are nobody's own: a thread was killed
            // before the root word named the node that was to have these shares.
            let is_below = level == 0
                && tree.root.is_shared_node()
                && !planted!("bug-share-below-shared-node");
            !dead(ino)? && !is_below && tree.names(pool, level, index, block)?
        }
        Purpose::Under { ino, top } => {
            let root = tree_of(pool, ino)?.root;
            !dead(ino)? && root.is_node() && root.off() >> BLOCK_SHIFT == top
        }
        Purpose::Xattr { ino } => {
            !dead(ino)? && Inode::load(pool, ino)?.xattr >> BLOCK_SHIFT == block
        }
        _ => false,
    };
    pool.pm.intact()?;
    Ok(used)
}

/// The tree of an inode, the inode table's own included.
pub(crate) fn tree_of(pool: &Pool, ino: Ino) -> Result<Tree> {
    if ino == TABLE_INO {
        return Ok(pool.inode_table());
    }
    let inode = Inode::load(pool, ino)?;
    Ok(inode.tree())
}

fn resolve_ino(pool: &Pool, lane: &Lane<'_>, record: u64, ino: Ino) {
    let live = match Inode::load(pool, ino) {
        Ok(inode) => inode.links > 0 || pool.is_open(ino),
        // No table block yet: nothing can be there.
        Err(_) => false,
    };
    if !live && pool.pm.intact().is_ok() {
        pool.free_ino(lane, record, ino);
    }
}

/// Frees all that an inode without links and holders has, and its number.
fn reclaim(pool: &Pool, lane: &Lane<'_>, record: u64, ino: Ino, cursor: u64) -> Result<()> {
    // Pairs with the CAS of an opener, which reads the links afterwards: one of the two sees the
    // other.
    std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
    let inode = Inode::load(pool, ino)?;
    // A number given back already has nothing to free: its old words name blocks that are others'
    // now.
    let open = pool.is_open(ino) && !planted!("bug-orphan-reclaimed");
    pool.pm.intact()?;
    if inode.links > 0 || open || !Bitmap::inodes(pool).is_set(ino) {
        return Ok(());
    }
    if cursor < ATTRIBUTES_DONE {
        let shape = inode.shape();
        let mut freeing = Freeing {
            pool,
            lane,
            record,
            shape,
            from: 0,
            to: coverage(7),
            kept: u64::MAX,
            unless: None,
            cursor,
            nodes: 0,
            shared: false,
        };
        let root = Entry(inode.root);
        if inode.has_tree() && !root.is_hole() {
            freeing.run(root.unrooted(), root.height(), 0)?;
        }
        if inode.xattr != 0 {
            let run = xattr::place(pool, &inode)?;
            let map = Bitmap::blocks(pool);
            let _held = map.lock(run.block);
            map.mark(run, false);
            lane.set_cursor(record, ATTRIBUTES_DONE);
        }
    }
    pool.free_ino(lane, record, ino);
    Ok(())
}

/// Frees the range of an old subtree that its slot no longer names.
fn subtree(
    pool: &Pool,
    lane: &Lane<'_>,
    record: u64,
    (old, level): (Entry, u32),
    slot: u64,
    cursor: u64,
) -> Result<()> {
    let Some((base, Purpose::Range { from, to, kept })) = lane.intent(record + 1) else {
        return Ok(());
    };
    let base = base - 1;
    if pool.pm.load(slot) == old.0 {
        return Ok(());
    }
    let new = Entry(pool.pm.load(slot));
    pool.pm.intact()?;
    let changed = kept == CHANGED && base == 0 && !planted!("bug-pages-frees-shared");
    Freeing {
        pool,
        lane,
        record,
        shape: Shape::File,
        from,
        to,
        kept,
        unless: changed.then(|| Tree::file(new.0, slot)),
        cursor,
        nodes: 0,
        shared: false,
    }
    .run(old.unrooted(), level, base)?;
    lane.strike_out(record);
    Ok(())
}

/// Writes down that the inode's blocks are to be freed once it has neither links nor holders.
///
/// # Errors
/// Those of [`Lane::intend`].
#[cfg_attr(feature = "record", track_caller)]
pub(crate) fn intend_reclaim(lane: &Lane<'_>, ino: Ino) -> Result<()> {
    lane.intend(1, Purpose::Reclaim { ino, cursor: 0 })
        .map(drop)
}

/// Writes down that `from..to` of an old subtree is to be freed once `slot` names another: its
/// nodes, and the leaves before `kept`. [`CHANGED`]: all that the other does not name.
///
/// # Errors
/// Those of [`Lane::intend`].
#[cfg_attr(feature = "record", track_caller)]
pub fn intend_subtree(
    lane: &Lane<'_>,
    swing: &crate::tree::edit::Swing,
    (from, to): (u64, u64),
    kept: u64,
) -> Result<()> {
    if swing.old.is_hole() {
        return Ok(());
    }
    lane.intend(
        swing.old.0,
        Purpose::Subtree {
            slot: swing.slot,
            level: swing.level,
            cursor: 0,
        },
    )?;
    lane.intend(swing.base + 1, Purpose::Range { from, to, kept })
        .map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ROOT_INO;
    use crate::purpose::Claim;
    use crate::scratch::{NODE, Scratch};
    use pmfs_format::BLOCK_BYTES;

    /// An inode that can't be read is zeros, and would say that nothing is its own.
    #[test]
    fn what_cannot_be_read_frees_nothing() {
        let scratch = Scratch::new(16 << 20);
        let fs = scratch.open();
        let ino = fs.create(ROOT_INO, b"file", &NODE).unwrap().ino;
        fs.write(ino, 0, &[7; BLOCK_BYTES as usize]).unwrap();
        let other = scratch.open();
        let pool = fs.pool();
        let found = tree_of(pool, ino).unwrap().find(pool, 0).unwrap();
        let run = Run::one(found.entry.off() >> BLOCK_SHIFT);
        let lane = Claim::new(pool);
        lane.intend_run(run, Purpose::leaf(ino, 0)).unwrap();
        lane.intend(1, Purpose::Inode { ino }).unwrap();
        lane.intend(1, Purpose::Reclaim { ino, cursor: 0 }).unwrap();
        if let Err(error) = fs.mapping().poison(pool.inode_off(ino).unwrap()) {
            return eprintln!("skipped: no UFFDIO_POISON here: {error}");
        }
        // Resolved by an opener that can't read it, and then by one that can.
        resolve(pool, &lane);
        assert!(pool.pm.intact().is_err());
        drop(lane);
        drop(fs);
        assert!(Bitmap::blocks(other.pool()).is_set(run.block));
        other.recover_dead().unwrap();
        let mut got = [0; BLOCK_BYTES as usize];
        other.read(ino, 0, &mut got).unwrap();
        assert_eq!(got, [7; BLOCK_BYTES as usize]);
        assert!(scratch.is_sound());
    }
}
