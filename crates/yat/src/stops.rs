//! Two calls that meet: one is stopped before each of its stores, flushes and fences, and the other
//! one comes then, whole. The one that was stopped goes on, or is dead.
//!
//! The outcome must be what the two give one after the other, in one order or the other; a killed
//! call counts or does not. Unlike [`pairs`](crate::pairs), where both take turns at fences, a call
//! is stopped between any two stores, and the other one comes before anybody has cleaned up after
//! the dead.

use crate::files::tree::{self, Exceptions, Tree};
use crate::files::{pool, usage};
use crate::kill::shared;
use crate::pairs::{Pair, without_order};
use crate::quiet::quietly;
use crate::stopper::{DEAD, Killed, Marked, OFF, Stop, Stopper};
use pmfs::Fs;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::Path;
use std::sync::atomic::Ordering;

fn words(error: impl ToString) -> String {
    error.to_string()
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

/// Pauses the first call before a step, and lets the other one run until it is done or sleeps.
/// False: there is no such step.
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
    pmfs_admin::mkfs(&path, &mkfs).map_err(words)?;
    let other = Fs::open(&path, &shared(pair.mode, 5_000_000)).map_err(words)?;
    let (stopper, _is_stopped) = Stopper::new(Stop::Kill);
    let mut watched = shared(pair.mode, 1_000_000);
    watched.observer = Some(stopper.clone());
    let fs = Fs::open(&path, &watched).map_err(words)?;
    // Each round takes the same steps: a lane of the rounds' choice would have others.
    pmfs::prefer_lane(0);
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
    pmfs::prefer_lane(1);
    pair.run(&other, 1);
    other.recover_dead().map_err(words)?;
    one_of(&other, allowed)?;
    usage::use_up(&other)?;
    Ok(reached)
}

/// Stops the first call of a pair before each of its stores, flushes and fences, by a kill and by a
/// pause; the pool files are made in `dir`. Adds to `stops` those that left nothing wrong.
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
