//! Cleaning up after the dead, while others go on (docs/adr/0023-barriers.md,
//! docs/adr/0024-shared-volatile-state.md).
//!
//! What they were doing is undone or finished under the recovery lock, for all of them together, by [`Rescue`]. That takes group
//! locks alone, so whoever waits for a lock may do it, whatever locks it holds. What the dead held open is closed later, under the
//! closing lock, by somebody who holds nothing: it takes the locks of inodes. Every step may be repeated: whoever finds a
//! recoverer dead takes its lock over and starts again.

use crate::error::Result;
use crate::share::cleaning::{Dead, Undone};
use crate::share::counters::Total;
use crate::share::header;
use crate::share::holder::slot_of;
use crate::share::member::{Began, Share};
use crate::share::owner::{self, Held};
use pmfs_format::runtime::OWNER_WAITERS;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Whether this thread is cleaning up, and may meet groups that a death left half changed.
pub(crate) fn cleaning(share: &Share) -> bool {
    share.cleaning.is_mine()
}

/// For waiters: if the holder of `seen` is gone, cleans up after it. What it held open is left to the next call.
#[cold]
pub(crate) fn recover_if_dead(share: &Share, seen: u64) {
    if cleaning(share) {
        return;
    }
    if share.owner_dead(seen) {
        let _ = clean_dead(share);
        share.unclosed.store(true, Ordering::Relaxed);
    } else if owner::is_gone_thread(share, seen) {
        let _lock = RecoveryLock::take(share);
        let dead = [Dead::Thread(seen & !OWNER_WAITERS)];
        let _ = clean(share, &dead);
    }
}

/// Cleans up after a thread of this process that is known to be gone: nobody may be waiting for what it holds who could
/// tell. The caller holds no lock.
#[cold]
pub(crate) fn clean_after_thread(share: &Share, tag: u64) {
    let _lock = RecoveryLock::take(share);
    let dead = [Dead::Thread(share.holder().word_of(tag))];
    let _ = clean(share, &dead);
}

/// For waiters that are themselves cleaning up: takes the lock word from a dead holder. One that died since
/// the cleaning began is cleaned up after first; the waiter then tries again.
#[cold]
pub(crate) fn take_over(share: &Share, off: u64, me: u64) -> bool {
    if !cleaning(share) {
        return false;
    }
    let seen = share.pm.load(off);
    if share.cleaning.has(seen) {
        return share
            .pm
            .runtime()
            .cas(off, seen, me | seen & OWNER_WAITERS)
            .is_ok();
    }
    let dead = match slot_of(seen) {
        Some(slot) if share.slot_dead(slot) => Dead::Slot(slot),
        Some(_) if owner::is_gone_thread(share, seen) => Dead::Thread(seen & !OWNER_WAITERS),
        _ => return false,
    };
    let _ = clean(share, &[dead]);
    false
}

struct RecoveryLock<'a> {
    share: &'a Share,
    began: Began,
    /// What a waiter owes that cleans up meanwhile: it speaks of the waiter's locks, and of a lane that it may be waiting for.
    owed: u64,
}

impl<'a> RecoveryLock<'a> {
    fn take(share: &'a Share) -> RecoveryLock<'a> {
        let off = header::recovery_word(share);
        let me = share.holder().word();
        let runtime = share.pm.runtime();
        loop {
            let seen = runtime.load(off);
            let gone = || {
                share.owner_dead(seen)
                    || owner::is_gone_thread(share, seen)
                    || owner::is_nobodys(share, off, seen)
            };
            let free = seen == 0 || gone();
            if free && runtime.cas(off, seen, me).is_ok() {
                let began = Began::now();
                let owed = share.pm.set_owed(0);
                return RecoveryLock { share, began, owed };
            }
            runtime.wait(off, seen as u32, Duration::from_millis(2));
        }
    }
}

impl Drop for RecoveryLock<'_> {
    fn drop(&mut self) {
        let share = self.share;
        share.pm.set_owed(self.owed);
        if share.gives_up(self.began) {
            return;
        }
        share.cleaning.clear();
        owner::release(share, header::recovery_word(share));
    }
}

/// Cleans up after every process that died, and closes what they held open. The others go on meanwhile. The caller
/// holds no lock.
///
/// # Errors
/// Damage in a dead lane: its locks then stay held.
pub(crate) fn recover_dead(share: &Share) -> Result<Undone> {
    let _closing = Held::new(share, header::closing_word(share));
    let mut undone = Undone::default();
    let Some(rescue) = share.rescue() else {
        return Ok(undone);
    };
    loop {
        let (dead, done) = clean_dead(share)?;
        if dead.is_empty() {
            return Ok(undone);
        }
        undone.add(&done);
        for slot in dead {
            if planted!("bug-slot-freed-first") {
                share.free_slot(slot);
            }
            undone.orphans += rescue.close(slot);
            share.drop_lease_of(slot);
            share.free_slot(slot);
            share.count(Total::Recoveries, 1);
            undone.slots += 1;
        }
    }
}

/// Undoes, settles and unlocks what the dead left; answers whose slots still hold files open.
fn clean_dead(share: &Share) -> Result<(Vec<u64>, Undone)> {
    let _lock = RecoveryLock::take(share);
    let slots = share.dead_slots();
    if slots.is_empty() {
        return Ok((slots, Undone::default()));
    }
    let dead: Vec<Dead> = slots.iter().map(|&slot| Dead::Slot(slot)).collect();
    let undone = clean(share, &dead)?;
    Ok((slots, undone))
}

/// These are cleaned up after, under the recovery lock: their locks are this thread's to take over meanwhile.
fn clean(share: &Share, dead: &[Dead]) -> Result<Undone> {
    share.cleaning.add(dead);
    match share.rescue() {
        Some(rescue) => rescue.clean(dead),
        None => Ok(Undone::default()),
    }
}
