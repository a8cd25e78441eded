//! Two calls that meet: one is paused, or killed, before each of its steps, and the other one comes then.
//!
//! What comes out must be what the two give one after the other, in one order or the other; a killed call counts
//! or does not. Times, and numbers of new inodes, are left out: they tell the order of the clock's readings.

use crate::Search;
use crate::planted::{Pair, pairs};
use crate::sequences::sound;
use crate::tree::{self, Leniency, Tree};
use crate::workload::{self, Prepared};
use pmem::Pmem;
use pmem::record::{Observer, StoreKind, Verdict};
use pmfs::{DataMode, Fs, OpenOptions};
use std::panic::{AssertUnwindSafe, Location, catch_unwind, resume_unwind};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex};
use std::thread::ThreadId;
use std::time::Duration;

/// Bytes of the pools: enough locks that the pairs' inodes seldom share one.
const POOL_BYTES: u64 = 8 << 20;
/// How long a call may take that waits for no other.
const PATIENCE: Duration = Duration::from_millis(20);

/// What becomes of a call before its n-th step.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stop {
    /// It waits.
    Pause,
    /// Nothing of it reaches the pool from there on.
    Kill,
}

/// Stops one thread at a step.
struct Stopper {
    how: Stop,
    thread: Mutex<Option<ThreadId>>,
    left: AtomicU64,
    dead: AtomicBool,
    /// Tells that the thread has stopped, and hears that it may go on.
    stopped: SyncSender<()>,
    go: Mutex<Receiver<()>>,
}

/// The panic payload of a kill.
struct Killed;

impl Stopper {
    fn step(&self) -> bool {
        let me = Some(std::thread::current().id());
        if *self.thread.lock().expect("no panic while it is held") != me {
            return true;
        }
        if self.dead.load(Ordering::Relaxed) {
            return false;
        }
        if self.left.fetch_sub(1, Ordering::Relaxed) != 1 {
            return true;
        }
        match self.how {
            Stop::Pause => {
                let _ = self.stopped.send(());
                let _ = self.go.lock().expect("no panic while it is held").recv();
                true
            }
            Stop::Kill => {
                self.dead.store(true, Ordering::Relaxed);
                resume_unwind(Box::new(Killed));
            }
        }
    }
}

impl Observer for Stopper {
    fn store(
        &self,
        _mem: &Pmem,
        _off: u64,
        _bytes: &[u8],
        _kind: StoreKind,
        _at: &'static Location<'static>,
    ) -> Verdict {
        if self.step() {
            Verdict::Do
        } else {
            Verdict::Skip
        }
    }

    fn flush(&self, _mem: &Pmem, _line: u64, _at: &'static Location<'static>) {
        self.step();
    }

    fn fence(&self, _mem: &Pmem, _at: &'static Location<'static>) {
        self.step();
    }
}

/// A stopper, with the ends that its controller holds.
fn stopper(how: Stop) -> (Arc<Stopper>, Receiver<()>, SyncSender<()>) {
    let (stopped, is_stopped) = sync_channel(1);
    let (may_go, go) = sync_channel(1);
    let stopper = Stopper {
        how,
        thread: Mutex::new(None),
        left: AtomicU64::new(u64::MAX),
        dead: AtomicBool::new(false),
        stopped,
        go: Mutex::new(go),
    };
    (Arc::new(stopper), is_stopped, may_go)
}

fn options(start: i64) -> OpenOptions {
    OpenOptions {
        shared: true,
        ..workload::open_options(DataMode::Atomic, start)
    }
}

/// A pool in memory, prepared for a pair.
fn prepared(pair: &Pair, observer: Option<Arc<Stopper>>) -> pmfs::Result<(Fs, Prepared)> {
    let mem = Fs::format_private(
        Pmem::private(POOL_BYTES),
        &workload::mkfs_options(POOL_BYTES),
    )?;
    let mut options = options(1_000_000);
    options.observer = observer.map(|stopper| stopper as Arc<dyn Observer>);
    let fs = Fs::open_private(mem, &options)?;
    let prepared = workload::prepare(&fs)?;
    (pair.first)(&fs, &prepared)?;
    Ok((fs, prepared))
}

/// The tree without what tells when and by whom it was made.
fn bare(fs: &Fs) -> Result<Tree, String> {
    let mut tree = tree::read(fs).map_err(|error| error.to_string())?;
    for node in tree.values_mut() {
        node.times = (0, 0);
        node.ino = 0;
    }
    Ok(tree)
}

/// What the pair gives, one call after the other. A call that fails is one that came too late.
fn serial(pair: &Pair, calls: &[crate::planted::Call]) -> Result<Tree, String> {
    let (fs, prepared) = prepared(pair, None).map_err(|error| error.to_string())?;
    for call in calls {
        let _ = call(&fs, &prepared);
    }
    bare(&fs)
}

fn one_of(fs: &Fs, allowed: &[Tree]) -> Result<(), String> {
    sound(fs)?;
    let got = bare(fs)?;
    let differences = allowed
        .iter()
        .map(|tree| tree::difference(&got, tree, Leniency::default()));
    differences
        .min_by_key(Option::is_some)
        .flatten()
        .map_or(Ok(()), Err)
}

/// Pauses one call before a step, and lets the other one run until it is done or waits. `Ok(0)`: the call has no
/// such step.
fn paused(pair: &Pair, step: u64, allowed: &[Tree]) -> Result<u64, String> {
    let (stopper, is_stopped, may_go) = stopper(Stop::Pause);
    let (fs, prepared) =
        prepared(pair, Some(stopper.clone())).map_err(|error| error.to_string())?;
    let reached = std::thread::scope(|scope| {
        let one = scope.spawn(|| {
            *stopper.thread.lock().expect("not poisoned") = Some(std::thread::current().id());
            stopper.left.store(step, Ordering::Relaxed);
            let _ = (pair.one)(&fs, &prepared);
            stopper.left.store(u64::MAX, Ordering::Relaxed);
            let _ = stopper.stopped.try_send(());
        });
        let _ = is_stopped.recv();
        let reached = stopper.left.load(Ordering::Relaxed) != u64::MAX;
        let (tell, done) = sync_channel(1);
        let (fs, prepared) = (&fs, &prepared);
        let other = scope.spawn(move || {
            let _ = (pair.other)(fs, prepared);
            let _ = tell.send(());
        });
        let _ = done.recv_timeout(PATIENCE);
        let _ = may_go.try_send(());
        one.join().expect("the call does not panic");
        other.join().expect("the call does not panic");
        reached
    });
    one_of(&fs, allowed)?;
    Ok(u64::from(reached))
}

/// Kills one call before a step; the other one comes before anybody has cleaned up.
fn killed(pair: &Pair, step: u64, allowed: &[Tree], dir: &Path) -> Result<u64, String> {
    let told = |error: pmfs::Error| error.to_string();
    let path = dir.join("pair");
    let mut mkfs = workload::mkfs_options(POOL_BYTES);
    mkfs.force = true;
    Fs::mkfs(&path, &mkfs).map_err(told)?;
    let other = Fs::open(&path, &options(5_000_000)).map_err(told)?;
    let (stopper, _is_stopped, _may_go) = stopper(Stop::Kill);
    let mut watched = options(1_000_000);
    watched.observer = Some(stopper.clone());
    let fs = Fs::open(&path, &watched).map_err(told)?;
    let prepared = workload::prepare(&fs).map_err(told)?;
    (pair.first)(&fs, &prepared).map_err(told)?;
    other.hold(prepared.blank).map_err(told)?;
    *stopper.thread.lock().expect("not poisoned") = Some(std::thread::current().id());
    stopper.left.store(step, Ordering::Relaxed);
    let call = catch_unwind(AssertUnwindSafe(|| (pair.one)(&fs, &prepared)));
    let reached = match call {
        Err(payload) if payload.is::<Killed>() => 1,
        Err(payload) => resume_unwind(payload),
        Ok(_) => 0,
    };
    // As a process ends: its locks go, nothing more is stored.
    drop(fs);
    *stopper.thread.lock().expect("not poisoned") = None;
    // That it fails may be right: it came too late.
    let _ = (pair.other)(&other, &prepared);
    other.recover_dead().map_err(told)?;
    one_of(&other, allowed)?;
    Ok(reached)
}

/// Tries every step, until a call has no more.
fn every_step(
    search: &mut Search,
    what: &str,
    mut round: impl FnMut(u64) -> Result<u64, String>,
) -> bool {
    for step in 1.. {
        let before = search.tried;
        if search.step(&format!("{what} at step {step}"), || round(step)) {
            return true;
        }
        if search.tried == before {
            break;
        }
    }
    false
}

/// All pairs, killed and paused.
pub(crate) fn search(dir: &Path) -> Search {
    let mut search = Search::default();
    for pair in pairs() {
        let serial = |calls: &[crate::planted::Call]| serial(&pair, calls).expect("no crash");
        let after_kill = [serial(&[pair.other]), serial(&[pair.one, pair.other])];
        let either = [
            serial(&[pair.other, pair.one]),
            serial(&[pair.one, pair.other]),
        ];
        let what = format!("{}, one killed", pair.name);
        if every_step(&mut search, &what, |step| {
            killed(&pair, step, &after_kill, dir)
        }) {
            return search;
        }
        let what = format!("{}, one paused", pair.name);
        if every_step(&mut search, &what, |step| paused(&pair, step, &either)) {
            return search;
        }
    }
    search
}
