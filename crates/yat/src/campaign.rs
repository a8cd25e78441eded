//! Many workloads, on all cores.

use crate::explore::{Counts, Explorer, IMAGES_MAX, Options, Violation, record};
use crate::program::Program;
use crate::quiet::quietly;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Violations after which a campaign gives up.
const VIOLATIONS_MAX: usize = 8;

/// The outcome of a campaign.
#[derive(Debug, Default)]
pub struct Outcome {
    /// The amounts that were looked at.
    pub counts: Counts,
    /// The violations found.
    pub violations: Vec<Violation>,
    /// Workloads that make no sense, in words.
    pub failures: Vec<String>,
    /// Workloads that the time did not suffice for.
    pub left: usize,
    /// The time that it took.
    pub elapsed: Duration,
}

/// The images that one workload may have where a part of all is explored: the longest has a
/// million, and would decide by the day how long a test takes.
pub const IMAGES_OF_PART: u64 = 20_000;

/// The way to run a campaign.
#[derive(Clone, Copy)]
pub struct Campaign<'a> {
    /// Threads.
    pub threads: usize,
    /// The time to stop, though workloads are left.
    pub until: Option<Instant>,
    /// Is told what has been looked at, after each workload.
    pub watch: &'a (dyn Fn(&Counts) + Sync),
}

/// The outcome of one workload: what was looked at, or a violation; or why it makes no sense, in
/// words.
pub type Explored = Result<Result<Counts, Box<Violation>>, String>;

/// Records and explores one workload; a panic without a crash is a failure too.
pub(crate) fn explore<P: Program>(program: &P, options: Options) -> Explored {
    let recording = quietly(|| record(program))
        .and_then(|recording| recording)
        .map_err(|text| format!("{}: {text}", program.name()))?;
    Ok(Explorer::new(program, &recording, options).run())
}

impl Campaign<'_> {
    /// Explores each workload.
    pub fn run<P: Program>(&self, workloads: &[(P, Options)]) -> Outcome {
        self.each(workloads, |(program, options)| explore(program, *options))
    }

    /// Does `explore` for each workload.
    pub fn each<W: Sync>(
        &self,
        workloads: &[W],
        explore: impl Fn(&W) -> Explored + Sync,
    ) -> Outcome {
        let since = Instant::now();
        let next = AtomicUsize::new(0);
        let stop = AtomicBool::new(false);
        let outcome = Mutex::new(Outcome::default());
        let work = || {
            while !stop.load(Ordering::Relaxed) {
                if self.until.is_some_and(|until| Instant::now() > until) {
                    return;
                }
                let Some(workload) = workloads.get(next.fetch_add(1, Ordering::Relaxed)) else {
                    return;
                };
                let explored = explore(workload);
                let mut outcome = outcome.lock().expect("no panic while it is held");
                match explored {
                    Ok(Ok(counts)) => outcome.counts += counts,
                    Ok(Err(violation)) => outcome.violations.push(*violation),
                    Err(text) => outcome.failures.push(text),
                }
                if outcome.violations.len() + outcome.failures.len() >= VIOLATIONS_MAX {
                    stop.store(true, Ordering::Relaxed);
                }
                (self.watch)(&outcome.counts);
            }
        };
        std::thread::scope(|scope| {
            for _ in 0..self.threads {
                scope.spawn(work);
            }
        });
        let begun = next.into_inner().min(workloads.len());
        let mut outcome = outcome.into_inner().expect("no panic while it is held");
        outcome.left = workloads.len() - begun;
        outcome.elapsed = since.elapsed();
        outcome
    }
}

/// A number from the environment: of which sample a test takes.
///
/// # Panics
/// It is no number.
#[must_use]
pub fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().expect("a number"))
}

/// `YAT_SEED`; without it another one each day, so that samples go round.
///
/// # Panics
/// It is no number.
#[must_use]
pub fn seed_of_the_day() -> u64 {
    const DAY_SECONDS: u64 = 24 * 3600;
    let now = std::time::UNIX_EPOCH.elapsed().expect("after 1970");
    number("YAT_SEED", now.as_secs() / DAY_SECONDS)
}

/// Returns whether everything is to be explored: `YAT_HEAP_ONE_IN` is 1.
///
/// # Panics
/// It is no number.
#[must_use]
pub fn is_in_full() -> bool {
    number("YAT_HEAP_ONE_IN", 0) == 1
}

/// Explores workloads with crashes of recoveries to a depth, on all cores, and says what was looked
/// at. One workload in `one_in` (`YAT_HEAP_ONE_IN`), another part each day (`YAT_SEED`); `YAT_ONLY`
/// has those alone whose names have it. A point may have four times as many images as elsewhere: a
/// directory that is doubled is a new object of several lines, beside those of the record. Unless
/// all is explored, a workload has [`IMAGES_OF_PART`] images.
///
/// # Panics
/// At a violation, and at a workload that makes no sense.
#[must_use]
pub fn explore_part<P: Program>(workloads: &[P], depth: usize, one_in: u64) -> Counts {
    let one_in = number("YAT_HEAP_ONE_IN", one_in).clamp(1, workloads.len() as u64);
    let only = std::env::var("YAT_ONLY").unwrap_or_default();
    let seed = seed_of_the_day();
    let part: Vec<&P> = (seed..)
        .zip(workloads)
        .filter(|(nth, workload)| nth.is_multiple_of(one_in) && workload.name().contains(&only))
        .map(|(_, workload)| workload)
        .collect();
    let campaign = Campaign {
        threads: std::thread::available_parallelism().map_or(1, usize::from),
        until: None,
        watch: &|_| (),
    };
    let options = Options {
        depth,
        images_max: 4 * IMAGES_MAX,
        images_all: if is_in_full() {
            u64::MAX
        } else {
            IMAGES_OF_PART
        },
        ..Options::default()
    };
    let outcome = campaign.each(&part, |&workload| {
        let explored = explore(workload, options);
        if let Ok(Ok(counts)) = &explored {
            let name = workload.name();
            println!(
                "{} images, {} sampled, {} points cut: {name}",
                counts.images, counts.sampled, counts.cut
            );
        }
        explored
    });
    let counts = outcome.counts;
    println!(
        "{} workloads of {}, {} points, {} images, {} sampled",
        counts.workloads,
        workloads.len(),
        counts.points,
        counts.images,
        counts.sampled
    );
    let texts: Vec<String> = outcome.violations.iter().map(ToString::to_string).collect();
    assert!(texts.is_empty(), "{}", texts.join("\n"));
    assert!(outcome.failures.is_empty(), "{:#?}", outcome.failures);
    assert!(counts.workloads > 0, "some were explored");
    counts
}
