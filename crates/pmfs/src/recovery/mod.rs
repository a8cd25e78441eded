//! Recovery after the death of a process, and after power loss.
//!
//! [`pmshare::rescue`] finds the dead. This module undoes the lanes of a dead process, resolves its
//! intents, and then releases its locks (docs/adr/0023-barriers.md,
//! docs/adr/0024-shared-volatile-state.md). After power loss [`rebuild`] makes the runtime area
//! anew.

pub mod attach;
mod behind;
pub(crate) mod inherit;
pub mod rebuild;
pub(crate) mod rest;

use crate::inode::Inode;
use crate::inode::usage;
use crate::pool::Pool;
use crate::purpose::{Claim, Lane};
use crate::resolve;
use crate::tables::open_table::{Reference, Thing};
use pm_journal::error::{Error, Result};
use pm_journal::locks::{LockSet, line_of};
use pm_journal::medium::header;
use pm_journal::medium::store::{Share, Store};
use pm_journal::undo::undo_lane;
use pm_space::Bitmap;
use pmfs_format::LockRaw;
use pmshare::Member;
use pmshare::cleaning::{Dead, Rescue, Undone};
use pmshare::owner;

impl Member<Store> for Pool {
    #[inline(always)]
    fn share(&self) -> &Share {
        self
    }
}

impl Rescue<Error> for Pool {
    fn clean(&self, dead: &[Dead]) -> Result<Undone> {
        clean(self, dead)
    }

    fn close(&self, slot: u64) -> u64 {
        let orphans = close_for(self, slot);
        if !planted!("bug-locks-of-the-dead-stay") {
            self.drop_file_locks(slot);
        }
        orphans
    }

    fn set_aside(&self) -> u64 {
        self.pm.set_pending(0)
    }

    fn resume(&self, aside: u64) {
        self.pm.set_pending(aside);
    }
}

/// Undoes the lanes of the dead and resolves their intents, then releases all their locks, then
/// their lanes.
fn clean(pool: &Pool, dead: &[Dead]) -> Result<Undone> {
    let mut undone = Undone::default();
    let is_dead = |owner: u64| owner != 0 && dead.iter().any(|dead| dead.owns(owner));
    let lanes: Vec<u64> = (0..pool.geometry.lanes)
        .filter(|&lane| is_dead(pool.pm.load(pool.geometry.lane_line(lane))))
        .collect();
    for &index in &lanes {
        // The records tell nothing before the step that one of them waits for is done.
        if let Some(block) = pm_space::step_block(&Lane::at(pool, index)) {
            drop(Bitmap::blocks(pool).lock(block));
        }
    }
    for &index in &lanes {
        let lane = Lane::at(pool, index);
        let wrong = u64::from(planted!("bug-wrong-lane-undone"));
        let undoing = Lane::at(pool, (index + wrong) % pool.geometry.lanes);
        let done = undo_lane(pool, &undoing, true)?;
        undone.transactions += done.transactions;
        undone.entries += done.entries;
        undone.calls += 1;
        lane.strike_impossible();
        undone.intents += lane.intent_count();
        let is_locked = is_dead(pool.pm.load(line_of(pool, lane.working())));
        behind::flush_behind(pool, &lane, is_locked);
        let touched = inodes_in_question(pool, &lane);
        resolve::resolve(pool, &lane);
        lane.clear_intents();
        for ino in touched {
            if let Ok(inode) = Inode::load(pool, ino) {
                usage::recount(pool, &inode);
            }
        }
    }
    if is_dead(pool.pm.load(header::annex_word(pool))) {
        pool.reclaim_annex();
    }
    release_locks(pool, &is_dead);
    for &index in &lanes {
        owner::release(pool, pool.geometry.lane_line(index));
    }
    Ok(undone)
}

/// The inodes whose blocks the dead thread was about to change.
fn inodes_in_question(pool: &Pool, lane: &Lane<'_>) -> Vec<u64> {
    let mut inos = vec![lane.working()];
    inos.extend((0..lane.intent_count()).filter_map(|record| lane.purpose(record)?.owner()));
    inos.sort_unstable();
    inos.dedup();
    inos.retain(|&ino| Inode::load(pool, ino).is_ok_and(|inode| inode.links > 0));
    inos
}

/// Releases every lock word that a dead slot owns; readers that waited see an even sequence again.
fn release_locks(pool: &Pool, is_dead: &impl Fn(u64) -> bool) {
    let runtime = pool.pm.runtime();
    let geometry = &pool.geometry;
    for line in (0..geometry.lock_count).map(|at| geometry.locks + at * LockRaw::SIZE) {
        if is_dead(runtime.load(line)) {
            let sequence = runtime.load(LockRaw::sequence.of(line));
            if sequence & 1 == 1 {
                runtime.store(LockRaw::sequence.of(line), sequence + 1);
            }
            owner::release(pool, line);
        }
    }
    for map in [Bitmap::blocks(pool), Bitmap::inodes(pool)] {
        for (group, line) in map.owner_words().enumerate() {
            if is_dead(runtime.load(line)) {
                map.recount(group as u64);
                owner::release(pool, line);
            }
        }
    }
    pool.release_files(is_dead);
    for bucket in pool.file_lock_buckets() {
        if is_dead(runtime.load(bucket)) {
            owner::release(pool, bucket);
        }
    }
    for word in header::words(pool).into_iter().skip(1) {
        if is_dead(runtime.load(word)) {
            owner::release(pool, word);
        }
    }
}

/// Closes all that a slot holds open, frees unlinked files that no other slot holds, and returns
/// their number.
pub(crate) fn close_for(pool: &Pool, slot: u64) -> u64 {
    let mut orphans = 0;
    if !planted!("bug-pages-of-the-dead-stay") {
        pool.free_kernel_copies_of(slot);
    }
    for found in pool.references_of(slot) {
        let Reference { off, thing, .. } = found;
        let ino = match thing {
            Thing::Inode(ino) => ino,
            Thing::File(_) if planted!("bug-dead-files-skipped") => continue,
            Thing::File(index) => {
                let _locks = LockSet::take(pool, &[pool.file_ino(index)]);
                pool.end_file_unless_had_beside(index, off);
                pool.drop_reference(&found);
                continue;
            }
        };
        let locks = LockSet::take(pool, &[ino]);
        let unlinked = Inode::load(pool, ino).is_ok_and(|inode| inode.links == 0);
        if planted!("bug-dead-orphan-let-go-first") {
            pool.drop_reference(&found);
        }
        if unlinked && !planted!("bug-dead-orphans-left") {
            let lane = Claim::new(pool);
            let _ = resolve::intend_reclaim(&lane, ino);
            pool.drop_reference(&found);
            orphans += u64::from(!pool.is_open(ino));
            drop(lane);
        } else {
            pool.drop_reference(&found);
        }
        drop(locks);
    }
    orphans
}
