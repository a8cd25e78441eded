//! Goal: the workloads on a key-value engine find the bugs that it can be given on purpose, each of
//! them. Method: one is selected after the other; the workloads are explored until one sees
//! something wrong, and killed at each store for those that only a living process can see. The
//! selection is the process's: one test alone.

use pmkv::planted::{BUGS, select};
use yat::explore::{Options, explore};
use yat::heap::keyed::seen_early;
use yat::heap::kill::{Finds, What, kill_everywhere};
use yat::heap::{keyed, keyed_killed, treed};
use yat::program::Program;

/// Returns the workload that finds a bug, and after how many images. Those of batches show in
/// batches.
fn found(bug: &str) -> Option<(String, u64)> {
    let is_meant = |name: String| !bug.contains("batch") || name.contains("Batch");
    // Most bugs are in what both kinds share.
    let workloads = treed().into_iter().chain(keyed());
    let mut meant = workloads.filter(|workload| is_meant(workload.name()));
    meant.find_map(|workload| {
        // A step that fails by itself is found too: it does not do what it should.
        match explore(&workload, Options::default()) {
            Ok(Ok(_)) => None,
            Ok(Err(violation)) => Some((violation.workload, violation.after_images)),
            Err(text) => Some((text, 0)),
        }
    })
}

/// Returns the kill that finds something.
fn found_by_kill() -> Option<(String, u64)> {
    keyed_killed().iter().find_map(|program| {
        (0..program.steps()).find_map(|step| {
            let kills = kill_everywhere(program, What::Step(step), Finds::Looking);
            kills.err().map(|text| (text, 0))
        })
    })
}

/// Bugs that show to those who live on.
const OF_A_KILL: [&str; 2] = [
    "bug-record-of-the-dead-only-flushed",
    "bug-batch-mark-ignored",
];
/// Bugs of two who live at once: `kv_protocol.rs` looks for them.
const OF_ORDERS: [&str; 1] = ["bug-place-read-after-its-owner"];
/// Bugs that show to readers.
const OF_READERS: [&str; 2] = [
    "bug-delete-visible-before-fence",
    "bug-put-seen-before-fence",
];

#[test]
fn each_bug_of_an_engine_is_found() {
    let mut missed = Vec::new();
    let only = std::env::var("YAT_BUG").unwrap_or_default();
    // The kill model's choices depend on what was run before: its bugs are the first.
    let mut bugs: Vec<_> = BUGS.iter().collect();
    bugs.retain(|bug| !OF_ORDERS.contains(&bug.name));
    bugs.sort_by_key(|bug| !OF_A_KILL.contains(&bug.name));
    for bug in bugs.into_iter().filter(|bug| bug.name.contains(&only)) {
        select(Some(bug.name));
        let seen = if OF_READERS.contains(&bug.name) {
            let early = seen_early(&keyed_killed()[0]);
            early.err().map(|text| (text, 0))
        } else if OF_A_KILL.contains(&bug.name) {
            found_by_kill()
        } else {
            found(bug.name)
        };
        match seen {
            Some((workload, images)) => println!("{}: {workload}, {images} images", bug.name),
            None => missed.push(bug.name),
        }
    }
    select(None);
    assert!(missed.is_empty(), "not found: {missed:?}");
}
