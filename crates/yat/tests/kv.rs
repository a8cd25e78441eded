//! Goal: whatever power loss leaves of a key-value engine, each key has the value that it had
//! before the call under way or after it, and the engine goes on. Method: every crash image of
//! workloads on small index chunks; of some also crashes of recoveries, to depth two, of a batch
//! and a split to depth one unless all is explored; two processes by turns.

use yat::campaign::{explore_part, is_in_full};
use yat::heap::{keyed, keyed_recovered, keyed_recovered_slowly};

/// One workload in so many, unless `YAT_HEAP_ONE_IN` says otherwise; another part each day.
const ONE_IN: u64 = 6;

#[test]
fn every_image_of_an_engine_is_recovered() {
    let counts = explore_part(&keyed(), 0, ONE_IN);
    assert_eq!(counts.sampled, 0);
    assert!(counts.images > 5 * counts.points);
}

#[test]
fn recoveries_of_an_engine_may_be_crashed_twice() {
    let counts = explore_part(&keyed_recovered(), 2, ONE_IN);
    assert_eq!(counts.sampled, 0);
    assert!(counts.nested > 0);
}

#[test]
fn long_recoveries_may_be_crashed() {
    let depth = if is_in_full() { 2 } else { 1 };
    let counts = explore_part(&keyed_recovered_slowly(), depth, 1);
    assert_eq!(counts.sampled, 0);
    assert!(counts.nested > 0);
}
