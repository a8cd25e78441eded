//! Goal: whatever power loss leaves of a heap, recovery finds what committed and nothing else.
//! Method: every crash image of workloads on small heaps with two lanes; of some also crashes
//! of recoveries, to depth two. Two processes that share a heap hand lanes and chunks over.

use yat::campaign::explore_part;
use yat::heap::{recovered, sets, shared, shared_recovered};

#[test]
fn every_image_is_recovered() {
    let counts = explore_part(&sets(), 0, 1);
    assert_eq!(counts.sampled, 0);
    assert!(counts.images > 10 * counts.points);
}

#[test]
fn recoveries_may_be_crashed_twice() {
    let counts = explore_part(&recovered(), 2, 1);
    assert_eq!(counts.sampled, 0);
    assert!(counts.nested > 0);
}

#[test]
fn two_processes_hand_lanes_over() {
    let counts = explore_part(&shared(), 0, 1);
    assert_eq!(counts.sampled, 0);
    assert!(counts.images > 10 * counts.points);
}

#[test]
fn recoveries_of_two_processes_may_be_crashed_twice() {
    let counts = explore_part(&shared_recovered(), 2, 1);
    assert_eq!(counts.sampled, 0);
    assert!(counts.nested > 0);
}
