//! The patrol for dead processes that no other process waits for, whose lanes, open files and slots
//! would stay taken.
//!
//! A living process patrols every few milliseconds at the start of a call, when it holds nothing.
//! Recorded runs of yat omit the patrol, because they must not depend on time.

use crate::error::{Error, Result};
use crate::layout::Shared;
use crate::member::Share;
use crate::rescue;
use crate::waits::Waits;
use pm_store::clock::now_ns;
use std::sync::atomic::Ordering;

/// The calls of a thread between two checks of the time.
#[cfg(not(feature = "record"))]
const CALLS: u64 = 64;
/// The interval between patrols.
const INTERVAL_NS: u64 = 4_000_000;
/// The slots that a patrol probes, some microseconds each.
const SLOTS: u64 = 32;

#[cfg(feature = "record")]
fn patrol<S: Shared>(_waits: Waits<'_, S>) {}

/// Counts a call, and patrols if it is due. The caller holds nothing.
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
    // After a reboot the time may lie in the future.
    if now.abs_diff(last) < INTERVAL_NS || runtime.cas(word, last, now).is_err() {
        return;
    }
    if waits.meets_dead() {
        let _ = rescue::recover_dead(waits);
    }
}

impl<S: Shared> Share<S> {
    /// Returns whether a dead process has one of some slots in use, other ones each time.
    pub fn meets_dead(&self) -> bool {
        let marked = self.marked_slots();
        let count = marked.len() as u64;
        let start = now_ns() / INTERVAL_NS * SLOTS;
        let mut part = (0..count.min(SLOTS)).map(|at| marked[((start + at) % count) as usize]);
        part.any(|slot| self.slot_dead(slot))
    }
}

/// Checks that changes are allowed, before a call whose thread holds nothing.
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

/// Closes the files of dead processes. The thread that cleaned up after them could not, because it
/// was waiting for a lock, with others held.
#[cold]
fn close_for_the_dead<S: Shared>(waits: Waits<'_, S>) {
    waits.unclosed.store(false, Ordering::Relaxed);
    // Damage in a dead process's log does not concern this call: a call that needs the locks that
    // stay held meets it.
    let _ = rescue::recover_dead(waits);
}
