//! Goal: a call's crash states are as they must be whatever was called before it. Method: the
//! power-loss model over ACE's workloads of two calls, every call and every fence; here one
//! workload in `YAT_ONE_IN`, chosen by `YAT_SEED` (`make yat` does them all); recoveries crashed
//! too, over a few of one; and pairs of calls in two lanes, interleaved before their fences in
//! every order; and a call that is stopped or killed at each of its steps, with another one that
//! comes then.

mod common;

use common::sound;
use pmfs::DataMode;
use yat::campaign::Campaign;
use yat::campaign::number;
use yat::explore::Options;
use yat::files::FileSystem;
use yat::files::ace::{ace, sequences, wide};
use yat::files::pending::pending;
use yat::pairs::{Pair, building_on, everything, further};
use yat::stops::stop_everywhere;

fn campaign() -> Campaign<'static> {
    Campaign {
        threads: std::thread::available_parallelism().map_or(1, usize::from),
        until: None,
        watch: &|_| {},
    }
}

#[test]
fn of_a_slice() {
    let (one_in, seed) = (number("YAT_ONE_IN", 400), number("YAT_SEED", 1));
    println!("YAT_ONE_IN={one_in} YAT_SEED={seed}");
    let set = ace();
    let modes = [DataMode::Atomic, DataMode::Ordered];
    let workloads: Vec<_> = modes
        .into_iter()
        .flat_map(|mode| {
            let chosen = sequences(&set, 2).skip((seed % one_in) as usize);
            let chosen = chosen.step_by(one_in as usize);
            chosen.map(move |calls| (FileSystem::of_calls(&calls, mode), Options::default()))
        })
        .collect();
    assert!(!workloads.is_empty());
    sound(&campaign().run(&workloads));
}

/// Goal: the next call on the same words meets the pending commit of a transaction, in the same
/// lane and in the other one.
#[test]
fn on_the_same_words() {
    let modes = [DataMode::Atomic, DataMode::Ordered];
    let all = modes.into_iter().flat_map(|mode| {
        let programs = pending().into_iter();
        programs.map(move |calls| (FileSystem::of_calls(&calls, mode), Options::default()))
    });
    sound(&campaign().run(&all.collect::<Vec<_>>()));
}

#[test]
fn recoveries_are_crashed_too() {
    let set = wide();
    let workloads: Vec<_> = sequences(&set, 1)
        .step_by(9)
        .map(|calls| {
            let options = Options {
                depth: 1,
                ..Options::default()
            };
            (FileSystem::of_calls(&calls, DataMode::Atomic), options)
        })
        .collect();
    let outcome = campaign().run(&workloads);
    sound(&outcome);
    assert!(outcome.counts.nested > 0, "recoveries have fences");
}

#[test]
fn at_once() {
    let modes = [DataMode::Atomic, DataMode::Ordered];
    let chosen: Vec<Pair> = modes
        .into_iter()
        .flat_map(|mode| everything(mode).into_iter().step_by(11))
        // yat found this: an inode in a block of the table whose pointer was not durable.
        .chain(building_on(DataMode::Atomic))
        .collect();
    let outcome = campaign().each(&chosen, Pair::explore);
    sound(&outcome);
    assert!(outcome.counts.steps > 100, "calls are interleaved");
}

#[test]
fn stopped_at_each_step() {
    let dir = tempfile::tempdir_in("/dev/shm").expect("a temporary directory");
    let mut stops = 0;
    for pair in further(DataMode::Atomic).into_iter().step_by(3) {
        let stopped = stop_everywhere(&pair, dir.path(), &mut stops);
        stopped.unwrap_or_else(|text| panic!("{text}"));
    }
    println!("{stops} stops");
    assert!(stops > 100, "calls have steps");
}
