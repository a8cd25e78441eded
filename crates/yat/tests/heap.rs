//! Goal: whatever power loss leaves of a heap, recovery finds what committed and nothing else.
//! Method: every crash image of workloads on small heaps with two lanes; of some also crashes
//! of recoveries, to depth two. Two processes that share a heap hand lanes and chunks over.

use yat::explore::{Counts, Options, explore};
use yat::heap::{Heaps, recovered, sets, shared, shared_recovered};

fn all(workloads: &[Heaps], depth: usize) -> Counts {
    let options = Options {
        depth,
        ..Options::default()
    };
    let mut counts = Counts::default();
    for workload in workloads {
        let here = explore(workload, options)
            .unwrap()
            .unwrap_or_else(|violation| panic!("{violation}"));
        println!(
            "{} images, {} at most, {} sampled: {}",
            here.images,
            here.images_max,
            here.sampled,
            yat::program::Program::name(workload)
        );
        counts += here;
    }
    println!(
        "{} workloads, {} points, {} images, {} sampled",
        workloads.len(),
        counts.points,
        counts.images,
        counts.sampled
    );
    counts
}

#[test]
fn every_image_is_recovered() {
    let counts = all(&sets(), 0);
    assert_eq!(counts.sampled, 0);
    assert!(counts.images > 10 * counts.points);
}

#[test]
fn recoveries_may_be_crashed_twice() {
    let counts = all(&recovered(), 2);
    assert_eq!(counts.sampled, 0);
    assert!(counts.nested > 0);
}

#[test]
fn two_processes_hand_lanes_over() {
    let counts = all(&shared(), 0);
    assert_eq!(counts.sampled, 0);
    assert!(counts.images > 10 * counts.points);
}

#[test]
fn recoveries_of_two_processes_may_be_crashed_twice() {
    let counts = all(&shared_recovered(), 2);
    assert_eq!(counts.sampled, 0);
    assert!(counts.nested > 0);
}
