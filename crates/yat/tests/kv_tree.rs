//! Goal: whatever power loss or a kill leaves of a tree, each key has the value that it had before
//! the call under way or after it, walks are in order, and the tree goes on. Method: every crash
//! image of workloads on small chunks, among them splits of leaves and of chunks; of some also
//! crashes of recoveries, to depth two; two processes by turns; calls killed at each store.

use yat::campaign::{explore_part, is_in_full};
use yat::heap::keyed::seen_early;
use yat::heap::kill::{Finds, Kills, What, kill_everywhere};
use yat::heap::{treed, treed_killed, treed_recovered, treed_recovered_slowly};
use yat::program::Program;

/// One workload in so many, unless `YAT_HEAP_ONE_IN` says otherwise; another part each day.
const ONE_IN: u64 = 3;

#[test]
fn every_image_of_a_tree_is_recovered() {
    let counts = explore_part(&treed(), 0, ONE_IN);
    assert_eq!(counts.sampled, 0);
    assert!(counts.images > 5 * counts.points);
}

#[test]
fn recoveries_of_a_tree_may_be_crashed_twice() {
    let counts = explore_part(&treed_recovered(), 2, ONE_IN);
    assert_eq!(counts.sampled, 0);
    assert!(counts.nested > 0);
}

#[test]
fn a_long_recovery_may_be_crashed() {
    let depth = if is_in_full() { 2 } else { 1 };
    let counts = explore_part(&treed_recovered_slowly(), depth, 1);
    assert_eq!(counts.sampled, 0);
    assert!(counts.nested > 0);
}

#[test]
fn calls_of_a_tree_are_killed() {
    let only = std::env::var("YAT_ONLY").unwrap_or_default();
    let mut total = Kills::default();
    for program in treed_killed() {
        if !program.name().contains(&only) {
            continue;
        }
        for what in (0..program.steps()).map(What::Step) {
            let kills = kill_everywhere(&program, what, Finds::Looking);
            let kills = kills.unwrap_or_else(|text| panic!("{text}"));
            println!("{kills:?}: {what:?} of {}", program.name());
            total += kills;
        }
    }
    println!("{total:?}");
    assert!(total.undone > 0 && total.undone < total.kills);
}

#[test]
fn nothing_of_a_tree_is_seen_before_its_fence() {
    let looks = seen_early(&treed_killed()[0]).unwrap_or_else(|text| panic!("{text}"));
    println!("{looks} looks");
    assert!(looks > 10);
}
