//! Goal: whatever power loss leaves of a heap's maps and trees, they hold what committed and
//! nothing else, and no object is lost. Method: every crash image of workloads on a small heap with
//! two lanes; of some also crashes of recoveries, to depth two.

use yat::explore::{Counts, Options, explore};
use yat::heap::maps::Mapped;
use yat::heap::{mapped, mapped_recovered};
use yat::program::Program;

fn all(workloads: &[Mapped], depth: usize) -> Counts {
    let options = Options {
        depth,
        ..Options::default()
    };
    let mut counts = Counts::default();
    for workload in workloads {
        let here = explore(workload, options)
            .unwrap()
            .unwrap_or_else(|violation| panic!("{violation}"));
        let name = workload.name();
        println!("{} images, {} sampled: {name}", here.images, here.sampled);
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
fn every_image_of_maps_is_recovered() {
    let counts = all(&mapped(), 0);
    assert_eq!(counts.sampled, 0);
    assert!(counts.images > 5 * counts.points);
}

#[test]
fn recoveries_of_maps_may_be_crashed_twice() {
    let counts = all(&mapped_recovered(), 2);
    assert_eq!(counts.sampled, 0);
    assert!(counts.nested > 0);
}
