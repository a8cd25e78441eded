//! Requests that wait for a lock: known by their numbers, so that an INTERRUPT finds them.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// More than this many waits at a time are refused: each has a thread.
const WAITS_MAX: usize = 256;

/// The flag that a signal to the waiter sets.
pub(super) type Interrupted = Arc<AtomicBool>;

#[derive(Default)]
pub(super) struct Waiters(Mutex<Waits>);

#[derive(Default)]
struct Waits {
    waiting: HashMap<u64, Interrupted>,
    /// Interrupted while a worker had them in hand: they may be about to wait.
    early: HashSet<u64>,
}

/// The request that an INTERRUPT met.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Met {
    /// The interrupt is noted for the wait.
    Noted,
    /// No worker has that request.
    Unknown,
}

impl Waiters {
    /// A request begins to wait; a worker has it in hand until this returns. `None`:
    /// there are too many.
    pub(super) fn begin(&self, unique: u64) -> Option<Interrupted> {
        let mut waits = self.waits();
        let early = waits.early.remove(&unique);
        if waits.waiting.len() >= WAITS_MAX {
            return None;
        }
        let interrupted = Arc::new(AtomicBool::new(early));
        waits.waiting.insert(unique, Arc::clone(&interrupted));
        Some(interrupted)
    }

    /// Ends the record of a wait whose answer has been sent.
    pub(super) fn end(&self, unique: u64) {
        self.waits().waiting.remove(&unique);
    }

    /// The thread that asked `unique` has got a signal. `in_hand`: whether a worker has
    /// a request in hand.
    pub(super) fn interrupt(&self, unique: u64, in_hand: impl Fn(u64) -> bool) -> Met {
        let mut waits = self.waits();
        if let Some(interrupted) = waits.waiting.get(&unique) {
            interrupted.store(true, Ordering::SeqCst);
            return Met::Noted;
        }
        waits.early.retain(|&early| in_hand(early));
        if in_hand(unique) {
            waits.early.insert(unique);
            return Met::Noted;
        }
        Met::Unknown
    }

    /// No code that may panic runs under this lock.
    fn waits(&self) -> MutexGuard<'_, Waits> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Before the wait, during it, after it.
    #[test]
    fn an_interrupt_is_never_lost() {
        let waiters = Waiters::default();
        assert_eq!(waiters.interrupt(2, |_| false), Met::Unknown);
        assert_eq!(waiters.interrupt(2, |unique| unique == 2), Met::Noted);
        let early = waiters.begin(2).unwrap();
        assert!(early.load(Ordering::SeqCst));
        let calm = waiters.begin(4).unwrap();
        assert!(!calm.load(Ordering::SeqCst));
        assert_eq!(waiters.interrupt(4, |_| false), Met::Noted);
        assert!(calm.load(Ordering::SeqCst));
        waiters.end(4);
        assert_eq!(waiters.interrupt(4, |_| false), Met::Unknown);
    }

    /// Goal: interrupts of requests that did not wait are not kept.
    #[test]
    fn interrupts_of_the_past_are_forgotten() {
        let waiters = Waiters::default();
        for unique in (2..200).step_by(2) {
            waiters.interrupt(unique, |other| other == unique);
        }
        assert_eq!(waiters.waits().early.len(), 1);
    }

    #[test]
    fn waits_are_bounded() {
        let waiters = Waiters::default();
        for unique in 0..WAITS_MAX as u64 {
            assert!(waiters.begin(unique).is_some());
        }
        assert!(waiters.begin(1 << 20).is_none());
        waiters.end(0);
        assert!(waiters.begin(1 << 20).is_some());
    }
}
