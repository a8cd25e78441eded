//! Goal: processes that share a pool may be killed at any instant: no operation that
//! returned is lost, none that did not is half done, and nothing stays held. Method:
//! sixteen processes work on one pool, five of them by the library, three by system calls
//! below `pmfs run`, four by the library for C, four below two mounts, each on files of
//! its own, against a model, and all on some together (see `shared.rs`). Every 100 ms one
//! of them or of the daemons is killed, now and then all at once. The acts of a process stand in a
//! journal outside the pool; its successor compares the pool with that before it goes on. In the
//! end the pool must be sound, say what the journals say, and be empty when all is deleted. The
//! workers are this program again, told so by the environment.
//!
//! `PMFS_TORTURE_SECONDS` is how long it runs (30), `PMFS_TORTURE_SEED` repeats the
//! choice of operations and victims (the instants are the machine's).

mod calls;
mod condemnation;
mod control;
mod face;
mod guards;
mod journal;
mod judge;
mod model;
mod mounts;
mod op;
mod parent;
mod process;
#[path = "../kills/random.rs"]
mod random;
mod shared;
mod stale;
mod tally;
mod worker;

use std::env;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use face::Way;
use worker::Orders;

const WORKER: &str = "PMFS_TORTURE_WORKER";
const DIR: &str = "PMFS_TORTURE_DIR";
const SEED: &str = "PMFS_TORTURE_SEED";
/// In a worker's orders: from here on they are started by `pmfs run`.
const RUN: usize = 100;
const SECONDS: &str = "PMFS_TORTURE_SECONDS";
/// From here on times are asserted too.
const LONG_SECONDS: u64 = 300;
/// The bound on the 99th percentile.
const RELEASE_MAX: Duration = Duration::from_millis(20);
/// No operation lasts so long, with eight processes ready for each processor.
const OPERATION_MAX: Duration = Duration::from_secs(10);

#[test]
fn a_killed_process_loses_nothing_and_holds_nothing() {
    if let Ok(me) = env::var(WORKER) {
        return worker::work(&orders(&me));
    }
    let seconds = number(SECONDS).unwrap_or(30);
    let seed = number(SEED).unwrap_or_else(clock_seed);
    let pool_bytes = pool_bytes(seed);
    println!(
        "torture: {seconds} s, {} MiB, {SEED}={seed}",
        pool_bytes >> 20
    );
    let outcome = parent::torture(seed, Duration::from_secs(seconds), pool_bytes);
    println!("{outcome}");
    assert!(outcome.tally.a_third_inside(), "too few kills inside calls");
    if seconds >= LONG_SECONDS {
        let times = &outcome.times.paced;
        let (longest, place) = outcome.tally.longest;
        assert!(longest < OPERATION_MAX, "{longest:?} in {place}");
        assert_eq!(
            times.missed, 0,
            "what a dead process held stayed held: {times}"
        );
        assert!(times.percentile(99) <= RELEASE_MAX, "{times}");
    }
}

/// Many lanes and locks, or so few that workers wait for them.
fn pool_bytes(seed: u64) -> u64 {
    if seed.is_multiple_of(2) {
        64 << 20
    } else {
        512 << 20
    }
}

/// `worker incarnation finish log_bytes_max epoch paced way`
fn orders(text: &str) -> Orders {
    let words: Vec<u64> = text
        .split(' ')
        .map(|word| word.parse().expect("a number"))
        .collect();
    let [
        worker,
        incarnation,
        finish,
        log_bytes_max,
        epoch,
        paced,
        way,
    ] = words[..]
    else {
        panic!("{WORKER}={text}");
    };
    Orders {
        dir: PathBuf::from(env::var_os(DIR).expect("the directory")),
        worker: worker as usize,
        incarnation: incarnation as u32,
        seed: number(SEED).expect("the seed"),
        log_bytes_max,
        epoch,
        paced: paced != 0,
        way: match way {
            0 => Way::Library,
            1 => Way::C,
            way if way as usize >= RUN => Way::Run(way as usize - RUN),
            way => Way::Mount(way as usize - 2),
        },
        finish: finish != 0,
    }
}

fn number(name: &str) -> Option<u64> {
    let text = env::var(name).ok()?;
    Some(
        text.parse()
            .unwrap_or_else(|_| panic!("{name}={text} is not a number")),
    )
}

fn clock_seed() -> u64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    now.map_or(1, |now| now.as_nanos() as u64 % 1_000_000_007)
}
