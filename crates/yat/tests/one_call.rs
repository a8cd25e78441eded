//! Goal: every crash state of every kind of call is the state before or after it.
//! Method: the power-loss model, exhaustive, over one call on a prepared 1 MiB pool, in both data modes.

use pmfs::DataMode;
use yat::explore::{Counts, explore};
use yat::workload::one_call;

fn run(mode: DataMode) {
    let mut total = Counts::default();
    let mut failures = Vec::new();
    let only = std::env::var("YAT_ONLY").ok();
    for workload in one_call() {
        if only
            .as_ref()
            .is_some_and(|only| !workload.name.contains(only.as_str()))
        {
            continue;
        }
        match explore(&workload, mode) {
            Ok(counts) => {
                println!(
                    "{mode:?} {:34} {:3} points {:6} images, at most {:5} a point",
                    workload.name, counts.points, counts.images, counts.images_max
                );
                total += counts;
            }
            Err(text) => failures.push(text),
        }
    }
    println!("{mode:?}: {} points, {} images", total.points, total.images);
    assert!(
        failures.is_empty(),
        "{} violations:\n{}",
        failures.len(),
        failures.join("\n")
    );
}

#[test]
fn atomic() {
    run(DataMode::Atomic);
}

#[test]
fn ordered() {
    run(DataMode::Ordered);
}
