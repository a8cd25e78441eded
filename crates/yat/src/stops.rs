//! Two calls that meet: one is stopped before each of its stores, flushes and fences, and the other one comes then,
//! whole. The one that was stopped goes on, or is dead.
//!
//! What comes out must be what the two give one after the other, in one order or the other; a killed call counts or
//! does not. Unlike [`pairs`](crate::pairs), where both take turns at fences, a call is stopped between any two stores,
//! and the other one comes before anybody has cleaned up after the dead.

use crate::files::tree::{self, Exceptions, Tree};
use crate::files::{pool, usage};
use crate::kill::shared;
use crate::pairs::{Pair, without_order};
use crate::quiet::quietly;
use crate::trace::Place;
use pmem::Pmem;
use pmem::record::{Observer, StoreKind, Verdict};
use pmfs::Fs;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex};

thread_local! {
    /// Whether this thread is the one that is stopped.
    static STOPPED: Cell<bool> = const { Cell::new(false) };
}

/// What becomes of a call before its n-th step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stop {
    /// It waits until the other one has returned, or sleeps on a lock.
    Pause,
    /// Nothing of it reaches the pool from there on.
    Kill,
}

/// Steps that are left when it is not counted, and when it is dead.
const OFF: u64 = u64::MAX;
const DEAD: u64 = 0;

/// Stops one thread at a step.
struct Stopper {
    how: Stop,
    left: AtomicU64,
    /// Tells that the thread has stopped, and hears that it may go on.
    stopped: SyncSender<()>,
    go: Mutex<Receiver<()>>,
    /// Lets it go on.
    may_go: SyncSender<()>,
}

/// The panic payload of a kill.
struct Killed;

impl Stopper {
    fn new(how: Stop) -> (Arc<Stopper>, Receiver<()>) {
        let (stopped, is_stopped) = sync_channel(1);
        let (may_go, go) = sync_channel(1);
        let stopper = Stopper {
            how,
            left: AtomicU64::new(OFF),
            stopped,
            go: Mutex::new(go),
            may_go,
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
                    resume_unwind(Box::new(Killed));
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

    fn flush(&self, _mem: &Pmem, _line: u64, _at: Place) {
        self.step();
    }

    fn fence(&self, _mem: &Pmem, _at: Place) {
        self.step();
    }

    fn wait(&self, _mem: &Pmem, _off: u64) {
        if !STOPPED.get() {
            let _ = self.may_go.try_send(());
        }
    }
}

fn words(error: impl ToString) -> String {
    error.to_string()
}

/// Ends with the thread's being stopped by nobody.
struct Marked;

impl Marked {
    fn new() -> Marked {
        STOPPED.set(true);
        Marked
    }
}

impl Drop for Marked {
    fn drop(&mut self) {
        STOPPED.set(false);
    }
}

fn one_of(fs: &Fs, allowed: &[Tree]) -> Result<(), String> {
    usage::sound(fs)?;
    let got = without_order(&tree::read(fs).map_err(words)?);
    if allowed.contains(&got) {
        return Ok(());
    }
    let texts = allowed.iter().map(|tree| {
        let difference = tree::difference(&got, tree, &Exceptions::default());
        format!("\nnot this order:\n{}", difference.unwrap_or_default())
    });
    Err(texts.collect())
}

/// Pauses the first call before a step, and lets the other one run until it is done or sleeps. False: there is no
/// such step.
fn paused(pair: &Pair, step: u64, allowed: &[Tree]) -> Result<bool, String> {
    let (stopper, is_stopped) = Stopper::new(Stop::Pause);
    let attached = pair.prepared(stopper.clone())?;
    let fs = &attached.fs;
    let (reached, done) = std::thread::scope(|scope| {
        let one = scope.spawn(|| {
            pmfs::prefer_lane(0);
            let marked = Marked::new();
            stopper.left.store(step, Ordering::SeqCst);
            let done = quietly(|| pair.run(fs, 0));
            drop(marked);
            let reached = stopper.left.swap(OFF, Ordering::SeqCst) == DEAD;
            let _ = stopper.stopped.try_send(());
            (reached, done)
        });
        let _ = is_stopped.recv();
        pmfs::prefer_lane(1);
        let other = quietly(|| pair.run(fs, 1));
        let _ = stopper.may_go.try_send(());
        let (reached, one) = one.join().expect("its panics are caught");
        (reached, one.and(other))
    });
    done?;
    one_of(fs, allowed)?;
    usage::use_up(fs)?;
    Ok(reached)
}

/// Kills the first call before a step; the other one comes before anybody has cleaned up.
fn killed(pair: &Pair, step: u64, allowed: &[Tree], dir: &Path) -> Result<bool, String> {
    let path = dir.join("pair");
    let mut mkfs = pool::mkfs_options(pair.pool_bytes);
    mkfs.force = true;
    Fs::mkfs(&path, &mkfs).map_err(words)?;
    let other = Fs::open(&path, &shared(pair.mode, 5_000_000)).map_err(words)?;
    let (stopper, _is_stopped) = Stopper::new(Stop::Kill);
    let mut watched = shared(pair.mode, 1_000_000);
    watched.observer = Some(stopper.clone());
    let fs = Fs::open(&path, &watched).map_err(words)?;
    pair.set_up(&fs);
    let marked = Marked::new();
    stopper.left.store(step, Ordering::SeqCst);
    let call = catch_unwind(AssertUnwindSafe(|| pair.run(&fs, 0)));
    let reached = match call {
        Err(payload) if payload.is::<Killed>() => true,
        Err(payload) => resume_unwind(payload),
        Ok(()) => false,
    };
    // Dropped as a process drops it: its locks go, nothing is stored.
    drop(fs);
    drop(marked);
    pair.run(&other, 1);
    other.recover_dead().map_err(words)?;
    one_of(&other, allowed)?;
    usage::use_up(&other)?;
    Ok(reached)
}

/// Stops the first call of a pair before each of its stores, flushes and fences, by a kill and by a pause; the pool
/// files are made in `dir`. Adds to `stops` those that left nothing wrong.
///
/// # Errors
/// The first violation.
pub fn stop_everywhere(pair: &Pair, dir: &Path, stops: &mut u64) -> Result<(), String> {
    let name = pair.name();
    let both = pair.after(&[0, 1])?;
    let kill_allowed = [pair.after(&[1])?, both.clone()];
    let pause_allowed = [pair.after(&[1, 0])?, both];
    for how in [Stop::Kill, Stop::Pause] {
        for step in 1.. {
            let round = quietly(|| match how {
                Stop::Kill => killed(pair, step, &kill_allowed, dir),
                Stop::Pause => paused(pair, step, &pause_allowed),
            });
            match round.and_then(|round| round) {
                Ok(true) => *stops += 1,
                Ok(false) => break,
                Err(text) => return Err(format!("{name}: {how:?} at step {step}: {text}")),
            }
        }
    }
    Ok(())
}
