//! The hunt for mutants: which are caught, and by what.

use super::standing::{caught_elsewhere, leaving};
use super::{Mutant, Recorded, Rule};
use std::collections::BTreeSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The result of a hunt.
#[derive(Clone, Debug)]
pub struct Verdict {
    /// The mutant.
    pub mutant: Mutant,
    /// Says whether only recoveries have its place.
    pub in_recovery: bool,
    /// The workload that caught it, and the images that it took there.
    pub caught: Option<(String, u64)>,
}

/// All mutants that leave something out in some workload.
fn mutants(recorded: &[Recorded]) -> Vec<Mutant> {
    let rule = Rule::LeftOut;
    let leaving = leaving().into_iter().map(|site| Mutant { site, rule });
    let mut all: BTreeSet<Mutant> = leaving.collect();
    all.extend(recorded.iter().flat_map(Recorded::all_mutants));
    all.into_iter().collect()
}

/// Hunts each mutant that is `chosen`, also by its number, on `threads` threads. `watch` is told
/// how many are done, and of how many.
#[must_use]
pub fn hunt(
    recorded: &[Recorded],
    threads: usize,
    chosen: impl Fn(usize, &Mutant) -> bool + Sync,
    watch: impl Fn(usize, usize) + Sync,
) -> Vec<Verdict> {
    let mutants: Vec<Mutant> = mutants(recorded)
        .into_iter()
        .enumerate()
        .filter(|(number, mutant)| chosen(*number, mutant))
        .map(|(_, mutant)| mutant)
        .collect();
    let next = AtomicUsize::new(0);
    let verdicts = Mutex::new(Vec::new());
    let work = || {
        while let Some(mutant) = mutants.get(next.fetch_add(1, Ordering::Relaxed)) {
            let verdict = hunt_one(recorded, *mutant);
            let mut verdicts = verdicts.lock().expect("not poisoned");
            verdicts.push(verdict);
            watch(verdicts.len(), mutants.len());
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(work);
        }
    });
    let mut verdicts = verdicts.into_inner().expect("not poisoned");
    verdicts.sort_by_key(|verdict| verdict.mutant);
    verdicts
}

fn hunt_one(recorded: &[Recorded], mutant: Mutant) -> Verdict {
    let caught = recorded.iter().find_map(|recorded| {
        let violation = recorded.catches(&mutant)?;
        Some((recorded.name(), violation.after_images))
    });
    let in_recovery = !recorded
        .iter()
        .any(|recorded| recorded.mutants.contains(&mutant));
    Verdict {
        // These take long, and are there for what is needed at all.
        caught: caught.or_else(|| match mutant.rule {
            Rule::LeftOut => caught_elsewhere(Some(mutant)),
            _ => None,
        }),
        mutant,
        in_recovery,
    }
}
