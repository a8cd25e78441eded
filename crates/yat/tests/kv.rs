//! Goal: whatever power loss leaves of a key-value engine, each key has the value that it had
//! before the call under way or after it, and the engine goes on. Method: every crash image of
//! workloads on small index chunks; of some also crashes of recoveries, to depth two; two processes
//! by turns.

use yat::explore::{Counts, Options, explore};
use yat::heap::keyed::Keyed;
use yat::heap::{keyed, keyed_recovered};
use yat::program::Program;

fn all(workloads: &[Keyed], depth: usize) -> Counts {
    let options = Options {
        depth,
        ..Options::default()
    };
    let only = std::env::var("YAT_ONLY").unwrap_or_default();
    let mut counts = Counts::default();
    for workload in workloads {
        let name = workload.name();
        if !name.contains(&only) {
            continue;
        }
        let here = explore(workload, options)
            .unwrap_or_else(|text| panic!("{name}: {text}"))
            .unwrap_or_else(|violation| panic!("{violation}"));
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
fn every_image_of_an_engine_is_recovered() {
    let counts = all(&keyed(), 0);
    assert_eq!(counts.sampled, 0);
    assert!(counts.images > 5 * counts.points);
}

#[test]
fn recoveries_of_an_engine_may_be_crashed_twice() {
    let counts = all(&keyed_recovered(), 2);
    assert_eq!(counts.sampled, 0);
    assert!(counts.nested > 0);
}
