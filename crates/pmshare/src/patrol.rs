//! The search for dead processes that nobody waits for: their lanes, open files and slots would
//! stay taken.
//!
//! One of the living processes searches every few milliseconds, at the start of a call, when it
//! holds nothing. Recorded runs of yat do without it, as they must be the same at any time.

use crate::error::{Error, Result};
use crate::layout::Shared;
use crate::member::Share;
use crate::rescue;
use crate::waits::Waits;
use pm_store::clock::now_ns;
use std::sync::atomic::Ordering;

/// In so many calls a thread asks when somebody last looked.
#[cfg(not(feature = "record"))]
const CALLS: u64 = 64;
/// From one look to the next.
const INTERVAL_NS: u64 = 4_000_000;
/// Slots that one look asks the kernel about, some microseconds each.
const SLOTS: u64 = 32;

#[cfg(feature = "record")]
fn patrol<S: Shared>(_waits: Waits<'_, S>) {}

/// Counts a call, and looks now and then. The caller holds nothing.
#[cfg(not(feature = "record"))]
#[inline]
fn patrol<S: Shared>(waits: Waits<'_, S>) {
    let calls = pmem::thread::with(|thread| {
        let calls = thread.begun.get() + 1;
        thread.begun.set(calls);
        calls
    });
    if calls.is_multiple_of(CALLS) {
        patrol_if_due(waits);
    }
}

#[cfg(not(feature = "record"))]
#[cold]
fn patrol_if_due<S: Shared>(waits: Waits<'_, S>) {
    if waits.prober.is_none() {
        return;
    }
    let now = now_ns();
    let runtime = waits.runtime();
    let word = waits.layout().patrolled;
    let last = runtime.load(word);
    // After a reboot it may lie in the future.
    if now.abs_diff(last) < INTERVAL_NS || runtime.cas(word, last, now).is_err() {
        return;
    }
    if waits.meets_dead() {
        let _ = rescue::recover_dead(waits);
    }
}

impl<S: Shared> Share<S> {
    /// Returns whether a dead process has one of some of the slots in use, others each time.
    pub fn meets_dead(&self) -> bool {
        let marked = self.marked_slots();
        let count = marked.len() as u64;
        let start = now_ns() / INTERVAL_NS * SLOTS;
        let mut part = (0..count.min(SLOTS)).map(|at| marked[((start + at) % count) as usize]);
        part.any(|slot| self.slot_dead(slot))
    }
}

/// Before a call that changes something, whose thread holds nothing.
///
/// # Errors
/// [`Error::ReadOnly`], [`Error::ShutDown`], [`Error::Forked`].
#[inline]
pub fn writable<'a, S: Shared>(waits: impl Into<Waits<'a, S>>) -> Result<()> {
    let waits = waits.into();
    waits.alive()?;
    if waits.unclosed.load(Ordering::Relaxed) {
        close_for_the_dead(waits);
    }
    patrol(waits);
    if waits.is_read_only() {
        return Err(Error::ReadOnly);
    }
    Ok(())
}

/// Closes the files that dead processes held open. The thread that cleaned up after them could not:
/// it was waiting for a lock, with others held.
#[cold]
fn close_for_the_dead<S: Shared>(waits: Waits<'_, S>) {
    waits.unclosed.store(false, Ordering::Relaxed);
    // Damage in a dead one's log is not this call's: a call that needs the locks that stay held
    // meets it.
    let _ = rescue::recover_dead(waits);
}
