//! The dead, and the thread of this process that is cleaning up after some of them.

use crate::holder::{slot_of, thread_tag};
use pmfs_format::runtime::OWNER_WAITERS;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The part of cleaning up that the layers above do, because they know the unfinished calls.
pub trait Rescue<E>: Send + Sync {
    /// Undoes or finishes the calls of the dead and releases their locks. It runs under the
    /// recovery lock, takes group locks alone, and may be repeated.
    ///
    /// # Errors
    /// Damage in the state that they left: their locks stay held.
    fn clean(&self, dead: &[Dead]) -> Result<Undone, E>;

    /// Closes the files that a dead process held open and releases its file locks. The caller has
    /// the closing lock and no other. Returns the count of unlinked files that were freed.
    fn close(&self, slot: u64) -> u64;

    /// Sets aside the state that belongs to this thread's locks while it waits for another lock and
    /// cleans up meanwhile. The result is for [`Rescue::resume`].
    fn set_aside(&self) -> u64 {
        0
    }

    /// Restores the state that was set aside.
    fn resume(&self, _aside: u64) {}
}

/// A dead process or thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dead {
    /// The process that had a slot.
    Slot(u64),
    /// A thread of this process, by its owner word.
    Thread(u64),
}

impl Dead {
    /// Returns whether an owner word belongs to it.
    pub fn owns(self, owner: u64) -> bool {
        match self {
            Dead::Slot(slot) => slot_of(owner) == Some(slot),
            Dead::Thread(word) => owner & !OWNER_WAITERS == word,
        }
    }
}

/// The work that a recovery did.
#[derive(Clone, Copy, Debug, Default)]
pub struct Undone {
    /// Transactions undone.
    pub transactions: u64,
    /// Entries of their logs.
    pub entries: u64,
    /// Unlinked files that were freed.
    pub orphans: u64,
    /// Slots freed.
    pub slots: u64,
    /// Unfinished calls.
    pub calls: u64,
    /// Intent records of unfinished calls.
    pub intents: u64,
}

impl Undone {
    /// Adds the work of another recovery.
    pub fn add(&mut self, more: &Undone) {
        self.transactions += more.transactions;
        self.entries += more.entries;
        self.orphans += more.orphans;
        self.slots += more.slots;
        self.calls += more.calls;
        self.intents += more.intents;
    }
}

/// The thread of this process that is cleaning up, under the recovery lock, and the dead whose
/// locks it may take over.
#[derive(Debug, Default)]
pub struct Cleaning {
    /// The thread's tag; 0 if no thread is cleaning up.
    thread: AtomicU64,
    dead: Mutex<Vec<Dead>>,
}

impl Cleaning {
    /// Returns whether this thread is cleaning up.
    pub(crate) fn is_mine(&self) -> bool {
        self.thread.load(Ordering::Relaxed) == thread_tag()
    }

    /// Adds the dead; the caller has the recovery lock.
    pub(crate) fn add(&self, dead: &[Dead]) {
        self.list().extend(dead);
        self.thread.store(thread_tag(), Ordering::Relaxed);
    }

    /// Ends the cleaning.
    pub(crate) fn clear(&self) {
        self.thread.store(0, Ordering::Relaxed);
        self.list().clear();
    }

    /// Returns whether an owner word belongs to one of these dead.
    pub(crate) fn has(&self, owner: u64) -> bool {
        self.list().iter().any(|dead| dead.owns(owner))
    }

    fn list(&self) -> MutexGuard<'_, Vec<Dead>> {
        self.dead.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
