//! `yat fuzz`.

use super::Mode;
use super::replay::command;
use super::show::{self, Bar, say};
use clap::Args;
use pmfs::DataMode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use yat::campaign::{Campaign, Explored};
use yat::explore::{Counts, Options, Violation};
use yat::files::FileSystem;
use yat::fuzz::{IMAGES_MAX, Workload, pair, succeeding, workload};
use yat::shrink::explore;

#[derive(Debug, Args)]
pub struct Fuzz {
    /// Workloads
    #[arg(long, default_value_t = 1000)]
    workloads: u64,
    /// Run as many as there are in so many minutes instead
    #[arg(long, conflicts_with = "workloads")]
    minutes: Option<u64>,
    /// Number of the first workload; that of the second is one more
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Data mode of the pool
    #[arg(long, value_enum, default_value_t = Mode::Both)]
    mode: Mode,
    /// The last two calls of each workload at once, in two lanes, instead of all one after the
    /// other
    #[arg(long, conflicts_with = "depth")]
    pairs: bool,
    /// Crash recoveries too, that many deep
    #[arg(long, default_value_t = 0)]
    depth: usize,
    /// Threads; 0: one a core
    #[arg(long, default_value_t = 0)]
    threads: usize,
}

/// Calls made, and those that succeeded.
#[derive(Default)]
struct Calls {
    all: AtomicU64,
    succeeded: AtomicU64,
}

/// Workloads that no time suffices for.
const ENDLESS: u64 = 1 << 20;

pub fn run(fuzz: &Fuzz, json: bool) -> Result<bool, String> {
    let count = fuzz.minutes.map_or(fuzz.workloads, |_| ENDLESS);
    let modes = fuzz.mode.modes();
    let numbers = (0..count).map(|at| fuzz.seed.wrapping_add(at));
    let workloads: Vec<(u64, DataMode)> = numbers
        .flat_map(|seed| modes.iter().map(move |&mode| (seed, mode)))
        .collect();
    let bar = Bar::new(json, workloads.len() as u64);
    let campaign = Campaign {
        threads: match fuzz.threads {
            0 => std::thread::available_parallelism().map_or(1, usize::from),
            threads => threads,
        },
        until: fuzz
            .minutes
            .map(|minutes| Instant::now() + Duration::from_secs(60 * minutes)),
        watch: &|counts| bar.at(counts),
    };
    let calls = Calls::default();
    let mut outcome = campaign.each(&workloads, |&(seed, mode)| {
        let explored = if fuzz.pairs {
            pair(seed, mode).map_or(Ok(Ok(Counts::default())), |pair| pair.explore())
        } else {
            one(fuzz, seed, mode, &calls)
        };
        match &explored {
            Ok(Ok(_)) => {}
            Ok(Err(violation)) if fuzz.pairs => bar.say(&format!("number {seed}: {violation}")),
            Ok(Err(violation)) => bar.say(&format!("number {seed}: {}", command(violation))),
            Err(text) => bar.say(&format!("number {seed}: {text}")),
        }
        explored
    });
    if fuzz.minutes.is_some() {
        outcome.left = 0;
    }
    bar.finish();
    if !json && !fuzz.pairs {
        let (all, succeeded) = (calls.all.into_inner(), calls.succeeded.into_inner());
        say!("{succeeded} of {all} calls succeeded");
    }
    let again = |violation: &Violation| match fuzz.pairs {
        true => "yat fuzz --pairs --workloads 1 --seed with the number above".into(),
        false => command(violation),
    };
    show::outcome(&outcome, fuzz.seed, json, &again);
    Ok(outcome.violations.is_empty() && outcome.failures.is_empty())
}

fn one(fuzz: &Fuzz, seed: u64, mode: DataMode, counts: &Calls) -> Explored {
    let Workload { calls, from } = workload(seed);
    let succeeded = yat::quiet::quietly(|| succeeding(&calls, mode)).unwrap_or(0);
    counts.all.fetch_add(calls.len() as u64, Ordering::Relaxed);
    counts.succeeded.fetch_add(succeeded, Ordering::Relaxed);
    let options = Options {
        from,
        images_max: IMAGES_MAX,
        depth: fuzz.depth,
        ..Options::default()
    };
    explore(&FileSystem::of_calls(&calls, mode), options)
}
