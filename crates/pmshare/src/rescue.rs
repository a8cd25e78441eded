//! Cleaning up after the dead, while others go on (docs/adr/0023-barriers.md,
//! docs/adr/0024-shared-volatile-state.md).
//!
//! [`Rescue`](crate::cleaning::Rescue) undoes or finishes what they were doing, under the recovery
//! lock, for all of them together. It takes group locks alone, so a waiter may do it, whatever
//! locks it holds. Files that the dead held open are closed later, under the closing lock, by a
//! caller that holds nothing, because this takes the locks of inodes. Every step may be repeated: a
//! recoverer that finds another one dead takes its lock over and starts again.

use crate::cleaning::{Dead, Undone};
use crate::counters::Total;
use crate::holder::slot_of;
use crate::layout::Shared;
use crate::member::{Began, Share};
use crate::owner::{self, Held};
use crate::waits::Waits;
use pmfs_format::runtime::OWNER_WAITERS;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Returns whether this thread is cleaning up, and may meet groups that a death left half changed.
pub fn cleaning<S: Shared>(share: &Share<S>) -> bool {
    share.cleaning.is_mine()
}

/// Cleans up, for a waiter, after the holder of `seen` if it is dead. Its open files are left to
/// the next call.
#[cold]
pub fn recover_if_dead<S: Shared>(waits: Waits<'_, S>, seen: u64) {
    let share = waits.share;
    if cleaning(share) {
        return;
    }
    if share.owner_dead(seen) {
        let _ = clean_dead(waits);
        share.unclosed.store(true, Ordering::Relaxed);
    } else if owner::is_gone_thread(share, seen) {
        let _lock = RecoveryLock::take(waits);
        let dead = [Dead::Thread(seen & !OWNER_WAITERS)];
        let _ = clean(waits, &dead);
    }
}

/// Cleans up after a thread of this process that is known to be gone, even if no thread waits for
/// its locks. The caller holds no lock.
#[cold]
pub fn clean_after_thread<'a, S: Shared>(waits: impl Into<Waits<'a, S>>, tag: u64) {
    let waits = waits.into();
    let share = waits.share;
    let _lock = RecoveryLock::take(waits);
    let dead = [Dead::Thread(share.holder().word_of(tag))];
    let _ = clean(waits, &dead);
}

/// Takes the lock word from a dead holder, for a waiter that is itself cleaning up. A holder that
/// died after the cleaning began is cleaned up after first; the waiter then tries again.
#[cold]
pub fn take_over<S: Shared>(waits: Waits<'_, S>, off: u64, me: u64) -> bool {
    let share = waits.share;
    if !cleaning(share) {
        return false;
    }
    let seen = share.mem().load(off);
    if share.cleaning.has(seen) {
        return share
            .runtime()
            .cas(off, seen, me | seen & OWNER_WAITERS)
            .is_ok();
    }
    let dead = match slot_of(seen) {
        Some(slot) if share.slot_dead(slot) => Dead::Slot(slot),
        Some(_) if owner::is_gone_thread(share, seen) => Dead::Thread(seen & !OWNER_WAITERS),
        _ => return false,
    };
    let _ = clean(waits, &[dead]);
    false
}

struct RecoveryLock<'a, S: Shared> {
    waits: Waits<'a, S>,
    began: Began,
    /// The pending commit of a waiter that cleans up meanwhile: it belongs to the waiter's locks,
    /// and to a lane that the waiter may be waiting for.
    aside: u64,
}

impl<'a, S: Shared> RecoveryLock<'a, S> {
    fn take(waits: Waits<'a, S>) -> RecoveryLock<'a, S> {
        let share = waits.share;
        let off = share.layout().recovery;
        let me = share.holder().word();
        let runtime = share.runtime();
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
                let aside = waits.rescue.set_aside();
                return RecoveryLock {
                    waits,
                    began,
                    aside,
                };
            }
            runtime.wait(off, seen as u32, Duration::from_millis(2));
        }
    }
}

impl<S: Shared> Drop for RecoveryLock<'_, S> {
    fn drop(&mut self) {
        let share = self.waits.share;
        self.waits.rescue.resume(self.aside);
        if share.gives_up(self.began) {
            return;
        }
        share.cleaning.clear();
        owner::release(share, share.layout().recovery);
    }
}

/// Cleans up after every dead process and closes its files, while the others continue. The caller
/// holds no lock.
///
/// # Errors
/// Damage in a dead lane: its locks then stay held.
pub fn recover_dead<'a, S: Shared>(waits: impl Into<Waits<'a, S>>) -> Result<Undone, S::Error> {
    let waits = waits.into();
    let share = waits.share;
    if share.has_all_locks() {
        // The closing lock comes before those: whoever has it may be waiting for one of them.
        return Ok(Undone::default());
    }
    let _closing = Held::new(waits, share.layout().closing);
    let mut undone = Undone::default();
    loop {
        let (dead, done) = clean_dead(waits)?;
        if dead.is_empty() {
            return Ok(undone);
        }
        undone.add(&done);
        for slot in dead {
            if planted!("bug-slot-freed-first") {
                share.free_slot(slot);
            }
            undone.orphans += waits.rescue.close(slot);
            share.drop_lease_of(slot);
            share.free_slot(slot);
            share.count(Total::Recoveries, 1);
            undone.slots += 1;
        }
    }
}

/// Undoes the transactions of the dead, resolves their intents and releases their locks. Returns
/// the slots that still hold files open.
fn clean_dead<S: Shared>(waits: Waits<'_, S>) -> Result<(Vec<u64>, Undone), S::Error> {
    let share = waits.share;
    let _lock = RecoveryLock::take(waits);
    let slots = share.dead_slots();
    if slots.is_empty() {
        return Ok((slots, Undone::default()));
    }
    let dead: Vec<Dead> = slots.iter().map(|&slot| Dead::Slot(slot)).collect();
    let undone = clean(waits, &dead)?;
    Ok((slots, undone))
}

/// Cleans up after these dead, under the recovery lock. Meanwhile this thread may take their locks
/// over.
fn clean<S: Shared>(waits: Waits<'_, S>, dead: &[Dead]) -> Result<Undone, S::Error> {
    waits.cleaning.add(dead);
    waits.rescue.clean(dead)
}
