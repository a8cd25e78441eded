//! The standing workloads that mutants are hunted with.

use super::{Mutant, Rule, Site, site_of};
use crate::explore::{Explorer, IMAGES_MAX, Options, Recording, Violation, explore, record};
use crate::files::FileSystem;
use crate::files::ace::{sequences, wide};
use crate::files::call::parse;
use crate::files::kinds::kinds;
use crate::files::pending::pending;
use crate::files::pool::POOL_BYTES;
use crate::files::reopen::Reopen;
use crate::files::tree::Tree;
use crate::pairs::building_on;
use crate::program::Program;
use crate::trace::Event;
use pmfs::DataMode;
use std::collections::{BTreeSet, HashSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

const MODES: [DataMode; 2] = [DataMode::Atomic, DataMode::Ordered];

/// Calls after which a later one shows what an earlier one left undone: a deep tree, whose pointers
/// share no line with the inode; a full pool, in which what was freed is had again. With the number
/// of the first one that is crashed.
const REVISITS: [(&str, usize); 3] = [
    ("create foo; write foo 4194304 10; write foo 8388608 10", 1),
    (
        "create foo; write foo 4194304 10; fallocate foo 1 8388608 8192; write foo 8388608 100",
        2,
    ),
    (
        "create foo; fallocate foo 0 0 800000; truncate foo 4096; create bar; fallocate bar 0 0 700000",
        2,
    ),
];
/// Images of a point of these.
const REVISIT_IMAGES: u64 = 4096;

/// Records the workloads that hunt mutants: every kind of call, also where its lane's log wraps;
/// one in `one_in` of the workloads of two calls; calls that meet the pending commit of one before,
/// and some that come back to the words of an earlier call. With `recoveries`, places of recoveries
/// are tried too. Records on `threads` threads; `watch` is told how many are done, and of how many.
///
/// # Errors
/// A workload that can't be done, in words.
pub fn standing(
    one_in: usize,
    recoveries: bool,
    threads: usize,
    watch: impl Fn(usize, usize) + Sync,
) -> Result<Vec<Recorded>, String> {
    if let Some((name, _)) = caught_elsewhere(None) {
        return Err(format!("{name}: a violation though nothing is left out"));
    }
    let planned = planned(one_in, recoveries)?.into_iter();
    let slots: Vec<(Planned, OnceLock<_>)> = planned.map(|plan| (plan, OnceLock::new())).collect();
    let (next, done) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let work = || {
        while let Some((plan, slot)) = slots.get(next.fetch_add(1, Ordering::Relaxed)) {
            let _ = slot.set(plan.record());
            watch(done.fetch_add(1, Ordering::Relaxed) + 1, slots.len());
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..threads.max(1) {
            scope.spawn(work);
        }
    });
    let mut bases: Vec<Arc<[u8]>> = Vec::new();
    let recorded = slots.into_iter().map(|(_, slot)| {
        let mut one = slot.into_inner().expect("every one was taken")?;
        share(&mut one.recording.base, &mut bases);
        Ok(one)
    });
    recorded.collect()
}

/// A workload to record.
struct Planned {
    program: FileSystem,
    options: Options,
    recoveries: bool,
}

impl Planned {
    fn record(&self) -> Result<Recorded, String> {
        Recorded::of(self.program.clone(), self.options, self.recoveries)
    }
}

fn planned(one_in: usize, recoveries: bool) -> Result<Vec<Planned>, String> {
    let mut all = Vec::new();
    let mut push = |program, options, recoveries| {
        all.push(Planned {
            program,
            options,
            recoveries,
        });
    };
    for mode in MODES {
        for kind in kinds() {
            // Recoveries of large pools take long to crash, and are as those of small ones.
            let recoveries = recoveries && kind.pool_bytes == POOL_BYTES;
            let program = FileSystem::of_kind(&kind, mode);
            push(program, Options::default(), recoveries);
        }
        let set = wide();
        let two = sequences(&set, 2).step_by(one_in.max(1));
        for calls in two.chain(pending()) {
            push(
                FileSystem::of_calls(&calls, mode),
                Options::default(),
                false,
            );
        }
        for (calls, from) in REVISITS {
            let program = FileSystem::of_calls(&parse(calls)?, mode);
            let options = Options {
                from,
                images_max: REVISIT_IMAGES,
                ..Options::default()
            };
            push(program, options, false);
        }
        for kind in kinds() {
            let program = FileSystem::of_kind_at_wrap(&kind, mode);
            push(program, Options::default(), false);
        }
    }
    Ok(all)
}

/// Puts in place of `base` the equal one of `bases`: workloads that begin with the same pool share
/// it.
fn share(base: &mut Arc<[u8]>, bases: &mut Vec<Arc<[u8]>>) {
    match bases.iter().find(|known| *known == base) {
        Some(known) => *base = known.clone(),
        None => bases.push(base.clone()),
    }
}

/// A recorded workload, and the places in it.
pub struct Recorded {
    program: FileSystem,
    recording: Recording<Tree>,
    options: Options,
    /// The mutants that leave something out of its steps.
    pub(super) mutants: HashSet<Mutant>,
    /// The places in the recoveries of its crash images. Mutants that leave
    /// something out each time are hunted there.
    recoveries: BTreeSet<Site>,
}

impl Recorded {
    /// Runs a workload; with `recoveries`, also recovers its crash images, for the places in there.
    ///
    /// # Errors
    /// A step that failed, or a violation.
    fn of(program: FileSystem, options: Options, recoveries: bool) -> Result<Recorded, String> {
        let recording = record(&program).map_err(|text| format!("{}: {text}", program.name()))?;
        let mut mutants = Mutant::all_of(&recording.trace);
        // A program whose lane wraps is asked only for what is left out there.
        let wraps = program.entries_left.is_some();
        mutants.retain(|mutant| (mutant.rule == Rule::AtWrap) == wraps);
        let mut recorded = Recorded {
            mutants,
            options,
            recoveries: BTreeSet::new(),
            program,
            recording,
        };
        if recoveries {
            let mut explorer = Explorer::new(&recorded.program, &recorded.recording, NESTED);
            let explored = explorer.explore();
            explored.map_err(|violation| violation.to_string())?;
            recorded.recoveries = explorer.take_sites();
        }
        Ok(recorded)
    }

    /// All that leave something out here, of recoveries too.
    pub(super) fn all_mutants(&self) -> impl Iterator<Item = Mutant> {
        let rule = Rule::LeftOut;
        let recoveries = self.recoveries.iter();
        let recoveries = recoveries.map(move |&site| Mutant { site, rule });
        self.mutants.iter().copied().chain(recoveries)
    }

    /// Explores it as a mutant does it; none if the mutant leaves nothing out here, or is not
    /// caught.
    #[must_use]
    pub fn catches(&self, mutant: &Mutant) -> Option<Box<Violation>> {
        let options = if self.mutants.contains(mutant) {
            self.options
        } else if mutant.rule == Rule::LeftOut && self.recoveries.contains(&mutant.site) {
            NESTED
        } else {
            return None;
        };
        let options = Options {
            mutant: Some(*mutant),
            ..options
        };
        let mut explorer = Explorer::new(&self.program, &self.recording, options);
        explorer.explore().err()
    }

    /// The workload's name.
    #[must_use]
    pub fn name(&self) -> String {
        self.program.name()
    }
}

/// Returns what catches a mutant that no workload catches by itself: its name, and the images that
/// it took. Without a mutant, nothing must.
pub(super) fn caught_elsewhere(mutant: Option<Mutant>) -> Option<(String, u64)> {
    let tries = MODES
        .into_iter()
        .flat_map(|mode| Reopen::OPTIONS.map(|options| (Reopen::new(mode), options)));
    let mut tries = tries.map(|(reopen, options)| (reopen, Options { mutant, ..options }));
    let left = tries.find_map(|(reopen, options)| {
        let violation = explore(&reopen, options).ok()?.err()?;
        Some((reopen.name(), violation.after_images))
    });
    left.or_else(|| {
        building_on(DataMode::Atomic)
            .into_iter()
            .find_map(|mut pair| {
                pair.mutant = mutant;
                let violation = pair.explore().ok()?.err()?;
                Some((pair.name(), violation.after_images))
            })
    })
}

/// The flushes and fences that a pool is left and opened by.
pub(super) fn leaving() -> BTreeSet<Site> {
    let recording = record(&Reopen::new(DataMode::Atomic)).expect("steps that can be done");
    let mut sites = sites_of(&recording);
    sites.retain(|site| site.what != super::What::Store);
    sites
}

/// The places of what comes after preparation, which is not crashed.
fn sites_of(recording: &Recording<Tree>) -> BTreeSet<Site> {
    let events = recording.trace.events.iter();
    let events = events.skip_while(|event| !matches!(event, Event::Return { .. }));
    events.filter_map(site_of).collect()
}

/// Recoveries are crashed too.
const NESTED: Options = Options {
    from: 0,
    depth: 1,
    mutant: None,
    seed: 1,
    images_max: IMAGES_MAX,
    images_all: u64::MAX,
    durable_first: false,
};
