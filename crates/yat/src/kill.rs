//! The kill model: a call is stopped before its n-th store of any kind, flush or fence, runtime area and lock words included,
//! and another instance, attached to the same live memory at another address, cleans up after it.

use crate::explore::{judge_recovered, runtime_range, use_it};
use crate::image::Pending;
use crate::trace::Recorder;
use crate::tree::{self, Leniency, Tree};
use crate::workload::{self, Prepared, Workload};
use pmem::Pmem;
use pmem::record::{Observer, StoreKind, Verdict};
use pmfs::{DataMode, Fs, OpenOptions};
use std::panic::{AssertUnwindSafe, Location, catch_unwind, resume_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Stops the thread at a step, and lets nothing of it reach the pool from then on.
#[derive(Debug)]
struct Killer {
    /// Stores, flushes and fences still to be done; `u64::MAX` while it is not counting.
    left: AtomicU64,
    /// What both instances do, for power loss after the recovery.
    recorder: Arc<Recorder>,
}

/// The panic payload of a kill.
struct Killed;

const OFF: u64 = u64::MAX;
const DEAD: u64 = 0;

impl Killer {
    /// One more step; whether it is to be done. The last one is not: the thread dies there.
    fn step(&self) -> bool {
        match self.left.load(Ordering::Relaxed) {
            OFF => true,
            DEAD => false,
            1 => {
                self.left.store(DEAD, Ordering::Relaxed);
                self.recorder.death();
                resume_unwind(Box::new(Killed));
            }
            left => {
                self.left.store(left - 1, Ordering::Relaxed);
                true
            }
        }
    }
}

impl Observer for Killer {
    fn store(
        &self,
        mem: &Pmem,
        off: u64,
        bytes: &[u8],
        kind: StoreKind,
        at: &'static Location<'static>,
    ) -> Verdict {
        if self.step() {
            self.recorder.store(mem, off, bytes, kind, at)
        } else {
            Verdict::Skip
        }
    }

    fn flush(&self, mem: &Pmem, line: u64, at: &'static Location<'static>) {
        if self.step() {
            self.recorder.flush(mem, line, at);
        }
    }

    fn fence(&self, mem: &Pmem, at: &'static Location<'static>) {
        if self.step() {
            self.recorder.fence(mem, at);
        }
    }
}

/// What was looked at.
#[derive(Clone, Copy, Debug, Default)]
pub struct Kills {
    /// Kills, each recovered and judged.
    pub kills: u64,
    /// Those that left the tree as it was before the call.
    pub undone: u64,
}

/// A pool file with the instance that survives, and its memory as it is before each round.
struct Arena<'a> {
    workload: &'a Workload,
    mode: DataMode,
    path: PathBuf,
    other: Fs,
    base: Vec<u8>,
    recorder: Arc<Recorder>,
}

/// The trees before and after the call.
struct Trees {
    before: Tree,
    after: Tree,
}

fn shared(mode: DataMode, start: i64) -> OpenOptions {
    OpenOptions {
        shared: true,
        ..workload::open_options(mode, start)
    }
}

impl<'a> Arena<'a> {
    fn new(workload: &'a Workload, mode: DataMode, dir: &Path) -> pmfs::Result<Arena<'a>> {
        let path = dir.join("pool");
        let mut mkfs = workload::mkfs_options(workload.pool_bytes);
        mkfs.force = true;
        Fs::mkfs(&path, &mkfs)?;
        let range = {
            let fs = Fs::open(&path, &shared(mode, 4_000_000))?;
            let range = runtime_range(fs.mapping());
            fs.close()?;
            range
        };
        let recorder = Arc::new(Recorder::new(range));
        let mut options = shared(mode, 5_000_000);
        options.observer = Some(recorder.clone());
        let other = Fs::open(&path, &options)?;
        let base = other.mapping().snapshot_image();
        Ok(Arena {
            workload,
            mode,
            path,
            other,
            base,
            recorder,
        })
    }

    /// An instance on the prepared pool, whose observer is asleep.
    fn instance(&self, killer: &Arc<Killer>) -> pmfs::Result<(Fs, Prepared)> {
        self.other.mapping().poke(0, &self.base);
        let mut options = shared(self.mode, 1_000_000);
        options.observer = Some(killer.clone());
        let fs = Fs::open(&self.path, &options)?;
        let prepared = workload::prepare(&fs)?;
        (self.workload.first)(&fs, &prepared)?;
        Ok((fs, prepared))
    }

    /// The call done whole.
    fn whole(&self) -> pmfs::Result<Trees> {
        let (fs, prepared) = self.instance(&self.asleep())?;
        let before = tree::read(&fs)?;
        // Reading moved the clock; a second round has the times that killed rounds will have.
        drop(fs);
        let (fs, again) = self.instance(&self.asleep())?;
        assert_eq!(
            format!("{prepared:?}"),
            format!("{again:?}"),
            "rounds are alike"
        );
        (self.workload.call)(&fs, &again)?;
        let after = tree::read(&fs)?;
        Ok(Trees { before, after })
    }

    /// Kills at one store; `None` if the call came to its end before.
    fn kill(&self, stores: u64) -> pmfs::Result<Option<Pending>> {
        let killer = self.asleep();
        let (fs, prepared) = self.instance(&killer)?;
        let mut pending = Pending::new(self.other.mapping().snapshot_image(), false);
        self.recorder.start();
        killer.left.store(stores, Ordering::Relaxed);
        let call = AssertUnwindSafe(|| (self.workload.call)(&fs, &prepared));
        let answer = catch_unwind(call);
        match answer {
            Ok(answer) => {
                killer.left.store(OFF, Ordering::Relaxed);
                self.recorder.stop();
                answer?;
                Ok(None)
            }
            Err(payload) if payload.is::<Killed>() => {
                // Dropped as a process drops it: its locks go, nothing is stored.
                drop(fs);
                self.other.recover_dead()?;
                for event in self.recorder.stop() {
                    pending.apply(&event);
                }
                Ok(Some(pending))
            }
            Err(payload) => resume_unwind(payload),
        }
    }
}

impl Arena<'_> {
    fn asleep(&self) -> Arc<Killer> {
        Arc::new(Killer {
            left: AtomicU64::new(OFF),
            recorder: self.recorder.clone(),
        })
    }
}

/// Power fails just after the recovery, and every line that is not durable is lost: what the survivor saw
/// must still be there, but for the times of an overwrite.
fn survives_power(live: &Tree, pending: &Pending, torn: bool) -> Result<(), String> {
    let mem = Pmem::private(pending.durable.len() as u64);
    mem.poke(0, &pending.durable);
    let leniency = Leniency {
        file_times: true,
        content: torn,
    };
    let fs = Fs::open_private(mem, &workload::open_options(DataMode::Atomic, 9_000_000))
        .map_err(|error| format!("recovery: {error}"))?;
    judge_recovered(&fs, &[live], leniency)
}

/// Kills the workload's call before each of its steps; the pool file is made in `dir`.
///
/// # Errors
/// The first violation.
pub fn kill_everywhere(workload: &Workload, mode: DataMode, dir: &Path) -> Result<Kills, String> {
    let name = workload.name;
    let arena = Arena::new(workload, mode, dir).map_err(|error| format!("{name}: {error}"))?;
    let trees = arena.whole().map_err(|error| format!("{name}: {error}"))?;
    let leniency = (workload.lenient)(mode);
    let mut kills = Kills::default();
    for stores in 1.. {
        let place = format!("{name} killed at step {stores}");
        let pending = match arena.kill(stores) {
            Ok(None) => break,
            Ok(Some(pending)) => pending,
            Err(error) => return Err(format!("{place}: {error}")),
        };
        let other = &arena.other;
        judge_recovered(other, &[&trees.before, &trees.after], leniency)
            .map_err(|text| format!("{place}: {text}"))?;
        let got = tree::read(other).map_err(|error| format!("{place}: {error}"))?;
        survives_power(&got, &pending, leniency.content)
            .map_err(|text| format!("{place}, then power loss: {text}"))?;
        kills.undone += u64::from(tree::difference(&got, &trees.before, leniency).is_none());
        use_it(other).map_err(|error| format!("{place}: using it: {error}"))?;
        let report = other.check().map_err(|error| format!("{place}: {error}"))?;
        if !report.is_clean() {
            return Err(format!("{place}: after use: {:#?}", report.findings));
        }
        kills.kills += 1;
    }
    Ok(kills)
}
