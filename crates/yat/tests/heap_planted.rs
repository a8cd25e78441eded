//! Goal: the heap's workloads find the bugs that the heap can be given on purpose, each of them.
//! Method: one is selected after the other; the workloads are explored until one sees something
//! wrong, first without crashes of recoveries. The selection is the process's: one test alone.

use pmlib::planted::{BUGS, select};
use yat::explore::{Options, explore};
use yat::heap::{Heaps, recovered, sets};

/// Which workload finds something, after how many images.
fn found(workloads: &[Heaps], depth: usize) -> Option<(String, u64)> {
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

#[test]
fn each_is_found() {
    let mut missed = Vec::new();
    let only = std::env::var("YAT_BUG").unwrap_or_default();
    for bug in BUGS.iter().filter(|bug| bug.name.contains(&only)) {
        select(Some(bug.name));
        match found(&sets(), 0).or_else(|| found(&recovered(), 1)) {
            Some((workload, images)) => println!("{}: {workload}, {images} images", bug.name),
            None => missed.push(bug.name),
        }
    }
    select(None);
    assert!(missed.is_empty(), "not found: {missed:?}");
}
