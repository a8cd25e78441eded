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

/// The treatment of another process that holds a lock for more than a second, in a call that takes
/// microseconds: it was stopped (SIGSTOP, a debugger, a frozen container).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Stalled {
    /// Wait until it continues, with a message on stderr.
    #[default]
    Wait,
    /// Kill it, with a message, and undo its call.
    Kill,
}

/// The options of attaching.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Refuse changes.
    pub read_only: bool,
    /// The treatment of a process that holds a lock and does not run.
    pub stalled: Stalled,
    /// The clock that times come from.
    pub clock: Clock,
}

/// A process's place in shared memory.
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
    /// The thread that has every lock of the table, as an owner word; 0: none.
    all_locks: AtomicU64,
    /// Recovery has met damage: the pool is read-only and is never marked clean.
    pub(crate) damaged: AtomicBool,
    /// A waiter has cleaned up after dead processes and could not close their files.
    pub(crate) unclosed: AtomicBool,
    pub(crate) prober: Option<Prober>,
    pub(crate) counting: Counting,
    pub(crate) cleaning: Cleaning,
    pub(crate) others: OtherProcesses,
    /// The tables that this process may have used.
    pub traces: Traces,
    /// The locks with the life of this address space: slot and pool.
    pub(crate) locks: Mutex<Vec<ByteLock>>,
}

impl<S> Deref for Share<S> {
    type Target = S;

    #[inline(always)]
    fn deref(&self) -> &S {
        &self.store
    }
}

/// The state of the thread when it took a lock or lane. A thread that was unwinding already does so
/// because of the program's own error, whose destructors may call the engine.
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
    /// Creates the place. This alone attaches no process: see [`crate::attach`].
    pub fn new(store: S, prober: Option<Prober>, options: Options) -> Share<S> {
        Share {
            store,
            held_as: AtomicHolder::default(),
            clock: options.clock,
            stalled: options.stalled,
            read_only: AtomicBool::new(options.read_only),
            shut: AtomicBool::new(false),
            life: AtomicU64::new(pmem::life::number()),
            all_locks: AtomicU64::new(0),
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

    /// The number of the descriptor by which this process probes locks of the pool's file.
    pub fn asks_by(&self) -> Option<i32> {
        self.prober.as_ref().map(Prober::descriptor)
    }

    /// The store, writable; no other thread uses it meanwhile.
    pub fn store_mut(&mut self) -> &mut S {
        &mut self.store
    }

    /// Unwraps the store when leaving.
    pub fn into_store(self) -> S {
        self.store
    }

    /// This process's holder.
    #[inline]
    pub fn holder(&self) -> Holder {
        self.held_as.load()
    }

    /// Checks that this process is attached.
    ///
    /// # Errors
    /// [`Error::ShutDown`] after detach, [`Error::Forked`] in a child without a slot of its own.
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
    /// `began`. Its locks then stay held, because half a change must not be seen, and recovery will
    /// undo it. This attachment serves no further call.
    #[inline]
    pub fn gives_up(&self, began: Began) -> bool {
        let gives_up = std::thread::panicking() && !began.unwinding;
        if gives_up {
            self.shut.store(true, Ordering::Relaxed);
        }
        gives_up
    }

    /// Notes that this thread has every lock of the table, or no longer.
    pub fn note_all_locks(&self, has: bool) {
        let thread = if has { self.holder().word() } else { 0 };
        self.all_locks.store(thread, Ordering::Relaxed);
    }

    /// Returns whether this thread has every lock of the table. It then takes none of them again,
    /// and does nothing that waits for a lock of a higher order.
    #[cold]
    pub fn has_all_locks(&self) -> bool {
        let thread = self.all_locks.load(Ordering::Relaxed);
        thread != 0 && thread == self.holder().word()
    }

    /// Returns whether changes are refused.
    #[inline]
    pub fn is_read_only(&self) -> bool {
        self.read_only.load(Ordering::Relaxed)
    }

    /// Sets whether changes are refused.
    pub fn set_read_only(&self, read_only: bool) {
        self.read_only.store(read_only, Ordering::Relaxed);
    }

    /// Returns whether damage was met.
    #[inline]
    pub fn is_damaged(&self) -> bool {
        self.damaged.load(Ordering::Relaxed)
    }

    /// Forgets the damage before the runtime area is rebuilt from undamaged data.
    pub fn forget_damage(&self) {
        self.damaged.store(false, Ordering::Relaxed);
        self.set_read_only(false);
    }

    /// Keeps a lock while the pool is attached.
    pub fn keep_lock(&self, lock: ByteLock) {
        self.locks.lock().expect("not poisoned").push(lock);
    }

    /// Releases the kept locks.
    pub fn drop_locks(&self) {
        self.locks.lock().expect("not poisoned").clear();
    }

    /// Ends the service of calls; `false`: it had ended already.
    pub fn shut_down(&self) -> bool {
        !self.shut.swap(true, Ordering::SeqCst)
    }

    /// Makes the pool read-only after damage, and keeps it from being marked clean.
    #[cold]
    pub fn stop_at_damage(&self) {
        self.damaged.store(true, Ordering::Relaxed);
        self.read_only.store(true, Ordering::Relaxed);
    }
}
