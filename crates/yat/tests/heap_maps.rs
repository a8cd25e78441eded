//! Goal: whatever power loss leaves of a heap's maps and trees, they hold what committed and
//! nothing else, and no object is lost. Method: every crash image of workloads on a small heap with
//! two lanes; of some also crashes of recoveries, to depth two.

use yat::campaign::explore_part;
use yat::heap::{mapped, mapped_recovered};

/// One workload in so many, unless `YAT_HEAP_ONE_IN` says otherwise; another part each day.
const ONE_IN: u64 = 6;

#[test]
fn every_image_of_maps_is_recovered() {
    let counts = explore_part(&mapped(), 0, ONE_IN);
    assert_eq!(counts.sampled, 0);
    assert!(counts.images > 5 * counts.points);
}

#[test]
fn recoveries_of_maps_may_be_crashed_twice() {
    let counts = explore_part(&mapped_recovered(), 2, ONE_IN);
    assert_eq!(counts.sampled, 0);
    assert!(counts.nested > 0);
}
