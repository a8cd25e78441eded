//! Goal: the heap's workloads find the bugs that the heap can be given on purpose, each of them.
//! Method: the workloads are explored until one sees something wrong, first without crashes of
//! recoveries, and killed at each store; or histories of three processes do. One bug in four
//! (`YAT_BUGS_ONE_IN`) is hunted, others each day (`YAT_SEED`).

#[path = "common/hunts.rs"]
mod hunts;
#[path = "common/part.rs"]
mod part;

use hunts::{hunt_each, hunted};
use part::of_the_day;
use pmlib::planted::{BUGS, select};
use yat::explore::{Options, explore};
use yat::heap::histories::round;
use yat::heap::kill::{Finds, OnHeap, What, kill_everywhere, race_everywhere};
use yat::heap::{
    containers, containers_killed, cut, killed, mapped, mended, recovered, sets, shared,
};
use yat::program::Program;

/// Returns the workload that finds something, and after how many images.
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

/// Returns the kill of transactions that finds something.
fn found_by_kill() -> Option<(String, u64)> {
    if let Err(text) = race_everywhere(&killed()[10]) {
        return Some((text, 0));
    }
    found_by_kills_of(&killed())
}

/// Returns the workload whose kill finds something, and what was wrong.
fn found_by_kills_of(programs: &[impl OnHeap]) -> Option<(String, u64)> {
    programs.iter().find_map(|program| {
        (0..program.steps()).find_map(|step| {
            let kills = kill_everywhere(program, What::Step(step), Finds::Looking);
            kills.err().map(|text| (text, 0))
        })
    })
}

/// A bug that only kills of containers' calls are to find.
const OF_A_KILL: &str = "bug-end-settled-unflushed";

/// Rounds of histories that are enough for a bug that they are to find.
const ROUNDS: u64 = 2000;

/// A bug that a single process does not see, and others that histories are to find too.
const ALONE: &str = "bug-view-of-two-moments";
const TOO: [&str; 7] = [
    "bug-log-unfenced",
    "bug-map-count-before-record",
    "bug-map-split-drops-entries",
    "bug-tree-root-before-record",
    "bug-queue-front-before-record",
    "bug-redo-log-unfenced",
    "bug-vec-length-before-record",
];

/// First words of bugs that `kv_sessions.rs` is to find.
const OF_SESSIONS: &str = "bug-session";

/// Returns the round of three processes that finds something.
fn found_by_histories() -> Option<(String, u64)> {
    (0..ROUNDS).find_map(|seed| round(seed).err().map(|text| (text, seed)))
}

/// First words of bugs' names that workloads of containers and named roots are to find.
const CONTAINERS: [&str; 6] = ["root", "vec", "string", "log", "segment", "queue"];
/// The same of maps and trees.
const MAPS: [&str; 2] = ["map", "tree"];

#[test]
fn each_is_found() {
    let names = BUGS.iter().map(|bug| bug.name);
    hunt_each(of_the_day(
        names.filter(|name| !name.starts_with(OF_SESSIONS)),
        4,
    ));
}

#[test]
#[ignore = "run as a child"]
fn one_hunt() {
    let bug = hunted();
    assert!(BUGS.iter().any(|known| known.name == bug), "no such bug");
    select(Some(&bug));
    if TOO.contains(&bug.as_str()) {
        let (_, round) = found_by_histories().expect("histories find it");
        println!("\nhunted {bug}: in round {round} of histories");
    }
    let (workload, images) = seen(&bug).expect("it is found");
    println!("\nhunted {bug}: {workload}, {images} images");
}

/// Returns the workload that finds the selected bug, and after how many images.
fn seen(bug: &str) -> Option<(String, u64)> {
    let name = bug.strip_prefix("bug-").unwrap_or(bug);
    let is_rescue = bug.contains("rescue") || bug.contains("the-dead");
    if bug == ALONE {
        found_by_histories()
    } else if bug == OF_A_KILL {
        found_by_kills_of(&containers_killed())
    } else if is_rescue {
        found_by_kill()
    } else if CONTAINERS.iter().any(|word| name.starts_with(word)) {
        found(&containers(), 0)
    } else if name.starts_with("cut") {
        found(&cut(), 0)
    } else if name.starts_with("hole") || name.starts_with("entries") {
        found(&shared(), 0)
    } else if name.starts_with("mended") {
        found(&mended(), 0)
    } else if MAPS.iter().any(|word| name.starts_with(word)) {
        found(&mapped(), 0)
    } else {
        let alone = found(&sets(), 0).or_else(|| found(&shared(), 0));
        alone.or_else(|| found(&recovered(), 1))
    }
}
