//! Goal: every crash state of every kind of call is the state before or after it.
//! Method: the power-loss model, exhaustive, over one call on a prepared pool, in `ordered` mode of
//! those that it changes. The campaign has all in both (`yat power --set kinds`).

use pmfs::DataMode;
use yat::explore::{Counts, Options, explore};
use yat::files::FileSystem;
use yat::files::kinds::kinds;

fn run(mode: DataMode) {
    let mut total = Counts::default();
    let mut failures = Vec::new();
    let only = std::env::var("YAT_ONLY").ok();
    for kind in kinds() {
        if only
            .as_ref()
            .is_some_and(|only| !kind.name.contains(only.as_str()))
        {
            continue;
        }
        if only.is_none() && mode == DataMode::Ordered && !kind.overwrites {
            continue;
        }
        let explored = explore(&FileSystem::of_kind(&kind, mode), Options::default());
        match explored.unwrap_or_else(|text| panic!("{}: {text}", kind.name)) {
            Ok(counts) => {
                println!(
                    "{mode:?} {:34} {:3} points {:6} images, at most {:5} a point",
                    kind.name, counts.points, counts.images, counts.images_max
                );
                total += counts;
            }
            Err(violation) => failures.push(format!("{violation:#?}")),
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
