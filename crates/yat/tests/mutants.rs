//! Goal: the checker sees what it must see, and the engine stores, flushes and fences no more than
//! it must. Method: one in 64 (`YAT_ONE_IN`) of the mutants, another part each day (`YAT_SEED`): a
//! place in the engine that stores, flushes or fences, got wrong by a rule. Some workload must then
//! have a crash state that is neither before nor after. Mutants that show in no workload are listed
//! in `yat::mutants` with their reasons, and left out here. `yat mutants` hunts all.

use yat::campaign::{number, seed_of_the_day};
use yat::mutants::{RULES, hunt, standing, why_unseen};

#[test]
fn every_mutant_is_caught() {
    let one_in = number("YAT_ONE_IN", 64) as usize;
    let seed = seed_of_the_day() as usize;
    println!("YAT_ONE_IN={one_in} YAT_SEED={seed}");
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let recorded = standing(61, false, cores, |_, _| {}).expect("workloads that can be done");
    // To see that nothing catches one takes all workloads.
    let chosen = |number: usize, mutant: &_| {
        number % one_in == seed % one_in && why_unseen(mutant).is_none()
    };
    let verdicts = hunt(&recorded, cores, chosen, |_, _| {});
    let mut missed = Vec::new();
    for verdict in &verdicts {
        let (site, rule) = (verdict.mutant.site, verdict.mutant.rule.words());
        let name = format!("{:?} {}, {rule}", site.what, site.place);
        match &verdict.caught {
            Some((workload, _)) => println!("{name}: {workload}"),
            None => missed.push(name),
        }
    }
    println!("{} mutants", verdicts.len());
    assert!(
        verdicts.len() >= 500 / one_in,
        "the engine has some {}",
        RULES.len() * 100
    );
    assert!(missed.is_empty(), "nothing catches these: {missed:#?}");
}
