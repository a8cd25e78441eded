//! Stops one thread before its n-th store, flush or fence: for good, or until another one has done
//! its call.

use crate::trace::Place;
use pmem::Pmem;
use pmem::record::{Observer, StoreKind, Verdict};
use std::cell::Cell;
use std::panic::resume_unwind;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex};

thread_local! {
    /// Says whether this thread is the one that is stopped.
    static STOPPED: Cell<bool> = const { Cell::new(false) };
}

/// The fate of a call before its n-th step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stop {
    /// It waits until the other one has returned, or sleeps on a lock.
    Pause,
    /// Nothing of it reaches the pool from there on.
    Kill,
}

/// Sleeps on a lock, of 2 to 10 ms, that are too many.
const SLEEPS_MAX: u64 = 500;

/// Steps that are left when it is not counted, and when it is dead.
pub(crate) const OFF: u64 = u64::MAX;
pub(crate) const DEAD: u64 = 0;

/// Stops one thread at a step.
pub(crate) struct Stopper {
    how: Stop,
    pub left: AtomicU64,
    /// Tells that the thread has stopped, and hears that it may go on.
    pub stopped: SyncSender<()>,
    go: Mutex<Receiver<()>>,
    /// Lets it go on.
    pub may_go: SyncSender<()>,
    /// Sleeps of those who are not stopped that are left until they count as hung.
    sleeps: AtomicU64,
}

/// The panic payload of a kill.
pub(crate) struct Killed;

/// Ends this thread's call as a kill of its process does.
pub(crate) fn die() -> ! {
    #[cfg(feature = "planted-bugs")]
    crate::planted::forget_late();
    resume_unwind(Box::new(Killed))
}

impl Stopper {
    pub fn new(how: Stop) -> (Arc<Stopper>, Receiver<()>) {
        let (stopped, is_stopped) = sync_channel(1);
        let (may_go, go) = sync_channel(1);
        let stopper = Stopper {
            how,
            left: AtomicU64::new(OFF),
            stopped,
            go: Mutex::new(go),
            may_go,
            sleeps: AtomicU64::new(SLEEPS_MAX),
        };
        (Arc::new(stopper), is_stopped)
    }

    /// One more step of whoever does it; whether it is to be done.
    fn step(&self) -> bool {
        if !STOPPED.get() {
            return true;
        }
        match (self.left.load(Ordering::SeqCst), self.how) {
            (OFF, _) => true,
            (DEAD, Stop::Kill) => false,
            // It has been stopped.
            (DEAD, Stop::Pause) => true,
            (1, how) => {
                self.left.store(DEAD, Ordering::SeqCst);
                if how == Stop::Kill {
                    die();
                }
                let _ = self.stopped.send(());
                let _ = self.go.lock().expect("one thread").recv();
                true
            }
            (left, _) => {
                self.left.store(left - 1, Ordering::SeqCst);
                true
            }
        }
    }
}

impl Observer for Stopper {
    fn store(&self, _mem: &Pmem, _off: u64, _: &[u8], _: StoreKind, _at: Place) -> Verdict {
        if self.step() {
            Verdict::Do
        } else {
            Verdict::Skip
        }
    }

    fn flush(&self, _mem: &Pmem, _line: u64, _asked: (u64, u64), _at: Place) {
        self.step();
    }

    fn fence(&self, _mem: &Pmem, _at: Place) {
        self.step();
    }

    fn wait(&self, _mem: &Pmem, _off: u64) {
        if STOPPED.get() {
            return;
        }
        let _ = self.may_go.try_send(());
        let left = self.sleeps.fetch_sub(1, Ordering::Relaxed);
        assert!(left > 0, "somebody waits for ever");
    }
}

/// Ends with the thread's being stopped by nobody.
pub(crate) struct Marked;

impl Marked {
    pub fn new() -> Marked {
        STOPPED.set(true);
        Marked
    }
}

impl Drop for Marked {
    fn drop(&mut self) {
        STOPPED.set(false);
    }
}
