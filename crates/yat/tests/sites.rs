//! Goal: the checker sees what it must see, and the engine flushes and fences no more than it must.
//! Method: every place in the engine that flushes or fences is taken out of the traces, one at a time; some
//! workload must then have a crash state that is neither before nor after. A place whose absence shows in no
//! workload is listed in `yat::sites` with its reason, or is not needed.

use yat::sites::{recorded, verdicts, why_unseen};

#[test]
fn every_flush_and_fence_is_needed() {
    let recorded = recorded(61, false).expect("workloads that can be done");
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let verdicts = verdicts(&recorded, cores, None);
    let mut unseen = Vec::new();
    for verdict in &verdicts {
        let (what, place) = (verdict.site.what, verdict.site.place);
        if let Some((workload, _)) = &verdict.missed {
            println!("{what:?} {place}: {workload}");
            continue;
        }
        match why_unseen(&verdict.site) {
            Some(why) => println!("{what:?} {place}: not seen: {why}"),
            None => unseen.push(format!("{what:?} {place}")),
        }
    }
    println!("{} sites", verdicts.len());
    assert!(
        unseen.is_empty(),
        "without these nothing goes wrong: {unseen:#?}"
    );
}
