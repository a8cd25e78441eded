//! This process's place among those that share a pool.

use crate::cleaning::Cleaning;
use crate::counting::Counting;
use crate::error::{Error, Result};
use crate::holder::{AtomicHolder, Holder};
use crate::layout::Shared;
use crate::others::OtherProcesses;
use crate::traces::Traces;
use pm_store::clock::Clock;
use pmem::slots::{ByteLock, Prober};
use std::ops::Deref;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// The treatment of another process that holds a lock for more than a second, in the
/// middle of a call that takes microseconds: it was stopped (SIGSTOP, a debugger, a frozen
/// container).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Stalled {
    /// Wait until it goes on, and say so on stderr.
    #[default]
    Wait,
    /// Kill it, say so, and undo what it was doing.
    Kill,
}

/// How a process wants its place.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Refuse changes.
    pub read_only: bool,
    /// The treatment of a process that holds a lock and does not run.
    pub stalled: Stalled,
    /// The clock that times come from.
    pub clock: Clock,
}

/// One process's place in memory that others may have, too.
pub struct Share<S> {
    store: S,
    pub(crate) held_as: AtomicHolder,
    /// The clock that times come from.
    pub clock: Clock,
    pub(crate) stalled: Stalled,
    pub(crate) read_only: AtomicBool,
    pub(crate) shut: AtomicBool,
    /// The address space that holds the slot ([`pmem::life`]).
    pub(crate) life: AtomicU64,
    /// The walk met damage: the pool is read-only, and is not marked clean.
    pub(crate) damaged: AtomicBool,
    /// Dead processes were cleaned up after by a waiter, who could not close what they held open.
    pub(crate) unclosed: AtomicBool,
    pub(crate) prober: Option<Prober>,
    pub(crate) counting: Counting,
    pub(crate) cleaning: Cleaning,
    pub(crate) others: OtherProcesses,
    /// The tables that this process may have put something into.
    pub traces: Traces,
    /// The locks whose life is ours: slot and pool.
    pub(crate) locks: Mutex<Vec<ByteLock>>,
}

impl<S> Deref for Share<S> {
    type Target = S;

    #[inline(always)]
    fn deref(&self) -> &S {
        &self.store
    }
}

/// The state of the thread when it took a lock or lane: one that was unwinding already does so from
/// a mistake of the program's, whose destructors may call the engine on the way.
#[derive(Clone, Copy, Debug)]
pub struct Began {
    unwinding: bool,
}

impl Began {
    /// The state of this thread.
    #[inline]
    pub fn now() -> Began {
        Began {
            unwinding: std::thread::panicking(),
        }
    }
}

impl<S: Shared> Share<S> {
    /// This alone attaches no process: see [`crate::attach`].
    pub fn new(store: S, prober: Option<Prober>, options: Options) -> Share<S> {
        Share {
            store,
            held_as: AtomicHolder::default(),
            clock: options.clock,
            stalled: options.stalled,
            read_only: AtomicBool::new(options.read_only),
            shut: AtomicBool::new(false),
            life: AtomicU64::new(pmem::life::number()),
            damaged: AtomicBool::new(false),
            unclosed: AtomicBool::new(false),
            prober,
            counting: Counting::default(),
            cleaning: Cleaning::default(),
            others: OtherProcesses::default(),
            traces: Traces::default(),
            locks: Mutex::new(Vec::new()),
        }
    }

    /// The number of the descriptor by which this process asks for locks of the pool's file.
    pub fn asks_by(&self) -> Option<i32> {
        self.prober.as_ref().map(Prober::descriptor)
    }

    /// The store, of one whom nobody else uses meanwhile.
    pub fn store_mut(&mut self) -> &mut S {
        &mut self.store
    }

    /// The store, of one who leaves.
    pub fn into_store(self) -> S {
        self.store
    }

    /// This process's holder in the pool.
    #[inline]
    pub fn holder(&self) -> Holder {
        self.held_as.load()
    }

    /// # Errors
    /// [`Error::ShutDown`] after detach, [`Error::Forked`] in a child that has no slot of its own.
    #[inline]
    pub fn alive(&self) -> Result<()> {
        if self.shut.load(Ordering::Relaxed) {
            return Err(Error::ShutDown);
        }
        if self.life.load(Ordering::Relaxed) != pmem::life::number() {
            return Err(Error::Forked);
        }
        Ok(())
    }

    /// Returns whether this thread unwinds from a broken invariant, in the call that began at
    /// `began`. Its locks then stay held: half a change must not be seen, and recovery will undo
    /// it. Nothing more is done through this attachment.
    #[inline]
    pub fn gives_up(&self, began: Began) -> bool {
        let gives_up = std::thread::panicking() && !began.unwinding;
        if gives_up {
            self.shut.store(true, Ordering::Relaxed);
        }
        gives_up
    }

    /// Returns whether changes are refused.
    #[inline]
    pub fn is_read_only(&self) -> bool {
        self.read_only.load(Ordering::Relaxed)
    }

    /// Refuses changes from now on, or not any more.
    pub fn set_read_only(&self, read_only: bool) {
        self.read_only.store(read_only, Ordering::Relaxed);
    }

    /// Returns whether damage was met.
    #[inline]
    pub fn is_damaged(&self) -> bool {
        self.damaged.load(Ordering::Relaxed)
    }

    /// The runtime area is about to be made anew, from what is not damaged.
    pub fn forget_damage(&self) {
        self.damaged.store(false, Ordering::Relaxed);
        self.set_read_only(false);
    }

    /// Keeps a lock for as long as the pool is attached.
    pub fn keep_lock(&self, lock: ByteLock) {
        self.locks.lock().expect("not poisoned").push(lock);
    }

    /// Gives the locks back that were kept.
    pub fn drop_locks(&self) {
        self.locks.lock().expect("not poisoned").clear();
    }

    /// No call is served any more; `false`: it was so already.
    pub fn shut_down(&self) -> bool {
        !self.shut.swap(true, Ordering::SeqCst)
    }

    /// Damage was met: nothing is changed any more, nor is the pool marked clean.
    #[cold]
    pub fn stop_at_damage(&self) {
        self.damaged.store(true, Ordering::Relaxed);
        self.read_only.store(true, Ordering::Relaxed);
    }
}
