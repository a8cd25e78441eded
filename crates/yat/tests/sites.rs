//! Goal: the checker sees what it must see, and the engine flushes and fences no more than it must.
//! Method: one in eight (`YAT_ONE_IN`) of the places in the engine that flush or fence is taken out of the traces, one
//! at a time; some workload must then have a crash state that is neither before nor after. Places whose absence shows
//! in no workload are listed in `yat::sites` with their reasons, and left out here. `yat sites` takes out all.

use yat::campaign::{number, seed_of_the_day};
use yat::sites::{recorded, verdicts, why_unseen};

#[test]
fn every_flush_and_fence_is_needed() {
    let one_in = number("YAT_ONE_IN", 8) as usize;
    let seed = seed_of_the_day() as usize;
    println!("YAT_ONE_IN={one_in} YAT_SEED={seed}");
    let recorded = recorded(61, false).expect("workloads that can be done");
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    // To see that nobody misses a place takes all workloads.
    let verdicts = verdicts(&recorded, cores, |number, site| {
        number % one_in == seed % one_in && why_unseen(site).is_none()
    });
    let mut unseen = Vec::new();
    for verdict in &verdicts {
        let (what, place) = (verdict.site.what, verdict.site.place);
        match &verdict.missed {
            Some((workload, _)) => println!("{what:?} {place}: {workload}"),
            None => unseen.push(format!("{what:?} {place}")),
        }
    }
    println!("{} sites", verdicts.len());
    assert!(verdicts.len() >= 60 / one_in, "the engine has some hundred");
    assert!(
        unseen.is_empty(),
        "without these nothing goes wrong: {unseen:#?}"
    );
}
