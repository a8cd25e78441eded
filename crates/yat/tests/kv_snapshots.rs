//! Goal: a snapshot is of one instant, and a process that is killed while it takes or has one harms
//! nobody. Method: snapshots of two engines beside a thread that writes; calls killed at each store
//! with a snapshot open, and while it is taken. Every crash image and every kill of the other
//! workloads is looked at by a snapshot too (`kv.rs`, `kv_tree.rs`, `kv_kill.rs`).

use std::time::Duration;
use yat::heap::keyed_in_sight;
use yat::heap::kill::{Finds, Kills, What, kill_everywhere};
use yat::heap::snapshots::seen_at_once;

#[test]
fn a_snapshot_is_of_one_instant() {
    let count = seen_at_once(Duration::from_secs(2)).unwrap_or_else(|text| panic!("{text}"));
    println!("{count} snapshots");
    assert!(count > 20);
}

#[test]
fn processes_with_snapshots_are_killed() {
    let mut total = Kills::default();
    for program in keyed_in_sight() {
        let kills = kill_everywhere(&program, What::Step(0), Finds::Looking);
        total += kills.unwrap_or_else(|text| panic!("{text}"));
    }
    println!("{total:?}");
    assert!(total.undone > 0 && total.undone < total.kills);
}
