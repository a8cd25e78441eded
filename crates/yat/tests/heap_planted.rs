//! Goal: the heap's workloads find the bugs that the heap can be given on purpose, each of them.
//! Method: one is selected after the other; the workloads are explored until one sees something
//! wrong, first without crashes of recoveries, and killed at each store. The selection is the
//! process's: one test alone.

use pmlib::planted::{BUGS, select};
use yat::explore::{Options, explore};
use yat::heap::kill::{Finds, What, kill_everywhere, race_everywhere};
use yat::heap::{containers, cut, killed, mended, recovered, sets, shared};
use yat::program::Program;

/// Which workload finds something, after how many images.
fn found(workloads: &[impl Program], depth: usize) -> Option<(String, u64)> {
    let options = Options {
        depth,
        ..Options::default()
    };
    workloads.iter().find_map(|workload| {
        // A step that fails by itself is found too: it does not do what it should.
        match explore(workload, options) {
            Ok(Ok(_)) => None,
            Ok(Err(violation)) => Some((violation.workload, violation.after_images)),
            Err(text) => Some((text, 0)),
        }
    })
}

/// Which kill finds something: the workload, and what was wrong.
fn found_by_kill() -> Option<(String, u64)> {
    if let Err(text) = race_everywhere(&killed()[10]) {
        return Some((text, 0));
    }
    killed().iter().find_map(|program| {
        (0..program.steps()).find_map(|step| {
            let kills = kill_everywhere(program, What::Step(step), Finds::Looking);
            kills.err().map(|text| (text, 0))
        })
    })
}

/// First words of bugs' names that workloads of containers and named roots are to find.
const CONTAINERS: [&str; 6] = ["root", "vec", "string", "log", "segment", "queue"];

#[test]
fn each_is_found() {
    let mut missed = Vec::new();
    let only = std::env::var("YAT_BUG").unwrap_or_default();
    for bug in BUGS.iter().filter(|bug| bug.name.contains(&only)) {
        select(Some(bug.name));
        let by_power = || {
            let alone = found(&sets(), 0).or_else(|| found(&shared(), 0));
            alone.or_else(|| found(&recovered(), 1))
        };
        let name = bug.name.strip_prefix("bug-").unwrap_or(bug.name);
        let is_rescue = bug.name.contains("rescue") || bug.name.contains("the-dead");
        let seen = if is_rescue {
            found_by_kill()
        } else if CONTAINERS.iter().any(|word| name.starts_with(word)) {
            found(&containers(), 0)
        } else if name.starts_with("cut") {
            found(&cut(), 0)
        } else if name.starts_with("mended") {
            found(&mended(), 0)
        } else {
            by_power()
        };
        match seen {
            Some((workload, images)) => println!("{}: {workload}, {images} images", bug.name),
            None => missed.push(bug.name),
        }
    }
    select(None);
    assert!(missed.is_empty(), "not found: {missed:?}");
}
