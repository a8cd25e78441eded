//! A mount's state for the pages that its kernel holds ([`pmfs::KernelCopy`]): the files that are
//! open for writing, and the times from which pages that other processes have just asked for may be
//! served again.
//!
//! A program that stores to a page that was taken back faults it in again at once, and would often
//! have it before the process that asked has begun its call anew. READs of these pages are
//! therefore held up for a moment, by a sleep of bounded length: a READ never waits for the taking
//! back itself, which may wait for that READ.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::thread;
use std::time::{Duration, Instant};

use pmfs::Ino;

/// The time for which processes that asked have the file to themselves.
const RESPITE: Duration = Duration::from_millis(1);

/// A READ is held up for no longer than this.
const RESPITE_MAX: Duration = Duration::from_millis(16);

/// Handles of a file.
#[derive(Clone, Copy, Debug, Default)]
struct Count {
    all: u32,
    writing: u32,
}

/// The files open below a mount.
#[derive(Debug, Default)]
pub(super) struct Opened(Mutex<HashMap<Ino, Count>>);

impl Opened {
    pub(super) fn add(&self, ino: Ino, writing: bool) {
        let mut counts = lock(&self.0);
        let count = counts.entry(ino).or_default();
        count.all += 1;
        count.writing += u32::from(writing);
    }

    /// `true` if it was the last handle.
    pub(super) fn remove(&self, ino: Ino, writing: bool) -> bool {
        let mut counts = lock(&self.0);
        let Some(count) = counts.get_mut(&ino) else {
            return false;
        };
        count.all = count.all.saturating_sub(1);
        count.writing = count.writing.saturating_sub(u32::from(writing));
        let last = count.all == 0;
        if last {
            counts.remove(&ino);
        }
        last
    }

    pub(super) fn is_open(&self, ino: Ino) -> bool {
        lock(&self.0).contains_key(&ino)
    }

    /// Returns whether programs may store to mapped pages of it.
    pub(super) fn is_writing(&self, ino: Ino) -> bool {
        lock(&self.0)
            .get(&ino)
            .is_some_and(|count| count.writing > 0)
    }
}

/// Keeps apart what fills a file's pages and what is written past them; files that meet
/// here by chance wait for no reason.
#[derive(Debug)]
pub(super) struct PastPages([RwLock<()>; 64]);

impl Default for PastPages {
    fn default() -> PastPages {
        PastPages(std::array::from_fn(|_| RwLock::new(())))
    }
}

impl PastPages {
    fn of(&self, ino: Ino) -> &RwLock<()> {
        &self.0[ino as usize % self.0.len()]
    }

    pub(super) fn filling(&self, ino: Ino) -> RwLockReadGuard<'_, ()> {
        let lock = self.of(ino).read();
        lock.unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn writing(&self, ino: Ino) -> RwLockWriteGuard<'_, ()> {
        let lock = self.of(ino).write();
        lock.unwrap_or_else(PoisonError::into_inner)
    }
}

/// Until when READs of pages are held up, by file.
#[derive(Debug, Default)]
pub(super) struct Pace {
    files: AtomicUsize,
    until: Mutex<HashMap<Ino, Instant>>,
}

impl Pace {
    /// Others come first for a moment, which grows with the `rounds` that were needed.
    pub(super) fn hold_up(&self, ino: Ino, rounds: u32) {
        let now = Instant::now();
        let respite = RESPITE * 2_u32.pow(rounds.min(4));
        let mut until = lock(&self.until);
        until.retain(|_, end| *end > now);
        until.insert(ino, now + respite.min(RESPITE_MAX));
        self.files.store(until.len(), Ordering::SeqCst);
    }

    /// Sleeps, if others come first.
    pub(super) fn wait(&self, ino: Ino) {
        if self.files.load(Ordering::SeqCst) == 0 {
            return;
        }
        let end = lock(&self.until).get(&ino).copied();
        if let Some(left) = end.and_then(|end| end.checked_duration_since(Instant::now())) {
            thread::sleep(left);
        }
    }
}

/// No code that may panic runs under these locks.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn handles_are_counted_by_what_they_may() {
        let opened = Opened::default();
        opened.add(7, false);
        opened.add(7, true);
        assert!(opened.is_open(7) && opened.is_writing(7) && !opened.is_open(8));
        assert!(!opened.remove(7, true));
        assert!(opened.is_open(7) && !opened.is_writing(7));
        assert!(opened.remove(7, false));
        assert!(!opened.is_open(7));
        assert!(!opened.remove(7, false), "not open any more");
    }

    /// Only the file that was asked for, and not for ever.
    #[test]
    fn reads_are_held_up_for_a_moment() {
        let pace = Pace::default();
        pace.hold_up(7, 9);
        let began = Instant::now();
        pace.wait(8);
        assert!(began.elapsed() < RESPITE_MAX);
        pace.wait(7);
        assert!(began.elapsed() >= RESPITE_MAX);
        let ended = Instant::now();
        pace.wait(7);
        assert!(ended.elapsed() < RESPITE_MAX, "it is over");
    }
}
