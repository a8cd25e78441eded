//! Goal: sizes, descriptors, names and full pools that bounded workloads leave out have no other crash states either.
//! Method: the power-loss model over workloads at random, in both data modes: `YAT_FUZZ` of them from `YAT_FUZZ_SEED`
//! on. `yat fuzz` does the same for as long as one likes.

use pmfs::DataMode;
use std::time::{Duration, Instant};
use yat::campaign::Campaign;
use yat::explore::Options;
use yat::files::FileSystem;
use yat::fuzz::{Workload, workload};
use yat::shrink::explore;

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().expect("a number"))
}

#[test]
fn a_slice() {
    let (count, seed) = (number("YAT_FUZZ", 40), number("YAT_FUZZ_SEED", 1));
    println!("YAT_FUZZ={count} YAT_FUZZ_SEED={seed}");
    let modes = [DataMode::Atomic, DataMode::Ordered];
    let workloads: Vec<(u64, DataMode)> = (seed..seed + count)
        .flat_map(|seed| modes.map(|mode| (seed, mode)))
        .collect();
    let campaign = Campaign {
        threads: std::thread::available_parallelism().map_or(1, usize::from),
        // A machine that is slow does fewer of them.
        until: Some(Instant::now() + Duration::from_secs(20)),
        watch: &|_| {},
    };
    let outcome = campaign.each(&workloads, |&(seed, mode)| {
        let Workload { calls, from } = workload(seed);
        let options = Options {
            from,
            images_max: 512,
            ..Options::default()
        };
        explore(&FileSystem::of_calls(&calls, mode), options)
    });
    let counts = outcome.counts;
    println!(
        "{} workloads ({} left), {} points, {} images",
        counts.workloads, outcome.left, counts.points, counts.images
    );
    let texts: Vec<String> = outcome.violations.iter().map(ToString::to_string).collect();
    assert!(texts.is_empty(), "{}", texts.join("\n"));
    assert!(outcome.failures.is_empty(), "{:#?}", outcome.failures);
    assert!(counts.workloads > 0, "some were explored");
}
