//! Goal: sizes, descriptors, names and full pools that bounded workloads leave out have no other
//! crash states either. Method: the power-loss model over workloads at random, in both data modes:
//! `YAT_FUZZ` of them from `YAT_FUZZ_SEED` on; and the last two calls of each at once, in two
//! lanes. `yat fuzz` does the same for as long as one likes.

mod common;

use common::sound;
use pmfs::DataMode;
use std::time::{Duration, Instant};
use yat::campaign::Campaign;
use yat::campaign::number;
use yat::explore::Options;
use yat::files::FileSystem;
use yat::files::call::parse;
use yat::fuzz::{Workload, pair, workload};
use yat::pairs::Pair;
use yat::shrink::explore;

fn campaign() -> Campaign<'static> {
    Campaign {
        threads: std::thread::available_parallelism().map_or(1, usize::from),
        // A machine that is slow does fewer of them.
        until: Some(Instant::now() + Duration::from_secs(15)),
        watch: &|_| {},
    }
}

/// Numbers of workloads, with the data modes.
fn numbers() -> Vec<(u64, DataMode)> {
    let (count, seed) = (number("YAT_FUZZ", 40), number("YAT_FUZZ_SEED", 1));
    println!("YAT_FUZZ={count} YAT_FUZZ_SEED={seed}");
    let modes = [DataMode::Atomic, DataMode::Ordered];
    let numbers = seed..seed + count;
    numbers
        .flat_map(|seed| modes.map(|mode| (seed, mode)))
        .collect()
}

#[test]
fn a_slice() {
    sound(&campaign().each(&numbers(), |&(seed, mode)| {
        let Workload { calls, from } = workload(seed);
        let options = Options {
            from,
            images_max: 512,
            ..Options::default()
        };
        explore(&FileSystem::of_calls(&calls, mode), options)
    }));
}

#[test]
fn two_at_once() {
    let pairs: Vec<Pair> = numbers()
        .into_iter()
        .filter_map(|(seed, mode)| pair(seed, mode))
        .collect();
    sound(&campaign().each(&pairs, Pair::explore));
}

/// Found by `yat fuzz`, its number 7000208: what did not fit was written in parts, and a crash left
/// some of them.
#[test]
fn a_write_that_does_not_fit() {
    const WORKLOAD: &str =
        "create full; write full 0 892929; create b; write b 0 4097; write b 0 12289";
    let calls = parse(WORKLOAD).unwrap();
    let options = Options {
        from: calls.len() - 1,
        images_max: 512,
        ..Options::default()
    };
    let modes = [DataMode::Atomic, DataMode::Ordered];
    sound(&campaign().each(&modes, |&mode| {
        explore(&FileSystem::of_calls(&calls, mode), options)
    }));
}
