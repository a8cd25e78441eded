//! The dead, and the thread of this process that is cleaning up after some of them.

use crate::holder::{slot_of, thread_tag};
use pmfs_format::runtime::OWNER_WAITERS;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The work for the dead that the layers above do: they know the calls that may have begun.
pub trait Rescue<E>: Send + Sync {
    /// Undoes or finishes what the dead were doing, and gives back their locks. It runs under the
    /// recovery lock, takes locks of groups alone, and may be repeated.
    ///
    /// # Errors
    /// Damage in what they left: their locks stay held.
    fn clean(&self, dead: &[Dead]) -> Result<Undone, E>;

    /// Closes what a dead process held open, and lets its file locks go. The caller has the closing
    /// lock and no other. Answers how many unlinked files went with it.
    fn close(&self, slot: u64) -> u64;

    /// Sets aside what this thread has left to do for the locks that it holds: it waits for another
    /// one, and cleans up meanwhile. The word is for [`Rescue::resume`].
    fn set_aside(&self) -> u64 {
        0
    }

    /// Takes up again what was set aside.
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
    /// Returns whether an owner word is its.
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
    /// Unlinked files that went.
    pub orphans: u64,
    /// Slots freed.
    pub slots: u64,
    /// Calls that were cut short.
    pub calls: u64,
    /// Records of what they had begun.
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

/// The thread of this process that is cleaning up, under the recovery lock, and the dead that it
/// cleans up after, whose locks it may take over.
#[derive(Debug, Default)]
pub struct Cleaning {
    /// The thread's tag; 0: nobody is.
    thread: AtomicU64,
    dead: Mutex<Vec<Dead>>,
}

impl Cleaning {
    /// Returns whether this thread is cleaning up.
    pub(crate) fn is_mine(&self) -> bool {
        self.thread.load(Ordering::Relaxed) == thread_tag()
    }

    /// The caller has the recovery lock.
    pub(crate) fn add(&self, dead: &[Dead]) {
        self.list().extend(dead);
        self.thread.store(thread_tag(), Ordering::Relaxed);
    }

    /// The cleaning is done.
    pub(crate) fn clear(&self) {
        self.thread.store(0, Ordering::Relaxed);
        self.list().clear();
    }

    /// Returns whether an owner word is that of one of those who are cleaned up after.
    pub(crate) fn has(&self, owner: u64) -> bool {
        self.list().iter().any(|dead| dead.owns(owner))
    }

    fn list(&self) -> MutexGuard<'_, Vec<Dead>> {
        self.dead.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
