//! The kill model: a call is stopped after its n-th store of any kind, runtime area and lock words included,
//! and another instance, attached to the same live memory at another address, cleans up after it.

use crate::explore::{judge_recovered, use_it};
use crate::tree::{self, Tree};
use crate::workload::{self, Prepared, Workload};
use pmem::Pmem;
use pmem::record::{Observer, StoreKind, Verdict};
use pmfs::{DataMode, Fs, OpenOptions};
use std::panic::{AssertUnwindSafe, Location, catch_unwind, resume_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Stops the thread at a store, and lets nothing of it reach the pool from then on.
#[derive(Debug, Default)]
struct Killer {
    /// Stores still to be done; `u64::MAX` while it is not counting.
    left: AtomicU64,
}

/// The panic payload of a kill.
struct Killed;

const OFF: u64 = u64::MAX;
const DEAD: u64 = 0;

impl Observer for Killer {
    fn store(
        &self,
        _mem: &Pmem,
        _off: u64,
        _bytes: &[u8],
        _kind: StoreKind,
        _at: &'static Location<'static>,
    ) -> Verdict {
        match self.left.load(Ordering::Relaxed) {
            OFF => Verdict::Do,
            DEAD => Verdict::Skip,
            1 => {
                self.left.store(DEAD, Ordering::Relaxed);
                resume_unwind(Box::new(Killed));
            }
            left => {
                self.left.store(left - 1, Ordering::Relaxed);
                Verdict::Do
            }
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
        let other = Fs::open(&path, &shared(mode, 5_000_000))?;
        let base = other.mapping().snapshot_image();
        Ok(Arena {
            workload,
            mode,
            path,
            other,
            base,
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
        let (fs, prepared) = self.instance(&Killer::asleep())?;
        let before = tree::read(&fs)?;
        // Reading moved the clock; a second round has the times that killed rounds will have.
        drop(fs);
        let (fs, again) = self.instance(&Killer::asleep())?;
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
    fn kill(&self, stores: u64) -> pmfs::Result<Option<()>> {
        let killer = Killer::asleep();
        let (fs, prepared) = self.instance(&killer)?;
        killer.left.store(stores, Ordering::Relaxed);
        let call = AssertUnwindSafe(|| (self.workload.call)(&fs, &prepared));
        let answer = catch_unwind(call);
        match answer {
            Ok(answer) => {
                killer.left.store(OFF, Ordering::Relaxed);
                answer?;
                Ok(None)
            }
            Err(payload) if payload.is::<Killed>() => {
                // Dropped as a process drops it: its locks go, nothing is stored.
                drop(fs);
                self.other.recover_dead()?;
                Ok(Some(()))
            }
            Err(payload) => resume_unwind(payload),
        }
    }
}

impl Killer {
    fn asleep() -> Arc<Killer> {
        Arc::new(Killer {
            left: AtomicU64::new(OFF),
        })
    }
}

/// Kills the workload's call before each of its stores; the pool file is made in `dir`.
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
        let place = format!("{name} killed at store {stores}");
        match arena.kill(stores) {
            Ok(None) => break,
            Ok(Some(())) => {}
            Err(error) => return Err(format!("{place}: {error}")),
        }
        let other = &arena.other;
        judge_recovered(other, &[&trees.before, &trees.after], leniency)
            .map_err(|text| format!("{place}: {text}"))?;
        let got = tree::read(other).map_err(|error| format!("{place}: {error}"))?;
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
