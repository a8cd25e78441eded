//! Transactions of the heap beside those of libpmemobj, and beside the memory's own time for the
//! same: one range of 64 bytes written over, ten, the same read and changed, an object freed, an
//! object made and published.
//!
//! Method: all stand on one tmpfs, flush by the same instruction, and meet the same lines of an
//! area, and the same objects, in the same order, which no cache and no prefetcher foresees. The
//! candidates take turns. The objects made are as many as those freed, in their slots.
//!
//! A free is the same change for both libraries: the object is gone and its slot's word is 0, both
//! or neither, durable when the call returns. Both read the slot to find the object. The heap edits
//! the slot and frees the object in a transaction. libpmemobj publishes a deferred free and the
//! slot's new value by one `pmemobj_publish`, a redo log without a transaction, which is the
//! quickest of its three ways. The memory's limit reads no slot.

mod limit;
pub mod opening;
mod ours;
mod theirs;

use crate::experiments::shell::Cannot;
use crate::ground::Ground;
use crate::measure::{Figures, Report, ratio};
use anyhow::ensure;
use clap::{Args, ValueEnum};
use limit::Limit;
use ours::Ours;
use pmem::protection::ProtectMode;
use std::path::{Path, PathBuf};
use theirs::Theirs;

/// Bytes of a line.
const LINE: u64 = 64;
/// The step of the sequence of lines: odd, so that it meets each of 2^k lines once. The same in
/// `bench/heap/pmemobj.c`.
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// The operations to measure.
#[derive(Args)]
pub struct Options {
    /// MiB of the area that is changed, a power of two; there are as many objects as it has lines.
    #[arg(long, default_value_t = 64)]
    mib: u64,
    /// Measure only this candidate [default: all of them in turns].
    #[arg(long, value_enum)]
    candidate: Option<Who>,
    /// Measure only this operation, by its name in the table [default: all of them].
    #[arg(long)]
    operation: Option<String>,
    /// Operations of a round, for counts of instructions.
    #[arg(long, hide = true)]
    count: Option<u64>,
    /// The directory to work in [default: on a tmpfs of its own with pages of 2 MiB, as root].
    #[arg(long)]
    dir: Option<PathBuf>,
}

/// The candidates.
#[derive(Clone, Copy, Debug, PartialEq, ValueEnum)]
enum Who {
    /// The heap, without protection from stray stores, which libpmemobj does not have either.
    Pmlib,
    /// The heap behind a protection key, as it is by default where the CPU has keys.
    Keys,
    /// PMDK's library of Debian.
    Libpmemobj,
    /// The memory alone.
    Memory,
}

/// Does operations, and says what one of them took.
trait Candidate {
    /// Transactions that change so many ranges of 64 bytes; ns for each.
    fn change(&mut self, how: How, ranges: u64, count: u64) -> anyhow::Result<f64>;

    /// Frees `count` objects, then makes and publishes as many; returns ns for each freed one, and
    /// for each made one.
    fn churn(&mut self, count: u64) -> anyhow::Result<[f64; 2]>;
}

/// The way to change a range.
#[derive(Clone, Copy, Debug, PartialEq)]
enum How {
    /// Other bytes take the place of what is there.
    Write,
    /// Each word is one more than it was.
    Add,
}

/// A group of operations that are measured together: their names, and what libpmemobj has to take
/// more.
struct Group {
    names: &'static [&'static str],
    /// How so many ranges are changed; otherwise objects are freed and made.
    changes: Option<(How, u64)>,
    /// Operations of a round: enough that the caches which the other candidates have left don't
    /// tell.
    count: u64,
}

const GROUPS: [Group; 5] = [
    Group {
        names: &["1 range of 64 B"],
        changes: Some((How::Write, 1)),
        count: 100_000,
    },
    Group {
        names: &["10 ranges of 64 B"],
        changes: Some((How::Write, 10)),
        count: 20_000,
    },
    Group {
        names: &["1 range, read before"],
        changes: Some((How::Add, 1)),
        count: 100_000,
    },
    Group {
        names: &["10 ranges, read before"],
        changes: Some((How::Add, 10)),
        count: 20_000,
    },
    Group {
        names: &["free 64 B", "alloc and publish 64 B"],
        changes: None,
        count: 40_000,
    },
];
/// The target: libpmemobj's time as a multiple of the heap's.
const TARGET: f64 = 3.0;

/// The lines of an area of 2^k lines, in the order in which all candidates meet them.
struct Sequence {
    mask: u64,
    next: u64,
}

impl Sequence {
    fn new(lines: u64) -> Sequence {
        Sequence {
            mask: lines - 1,
            next: 0,
        }
    }

    #[inline]
    fn line(&mut self) -> u64 {
        let line = self.next.wrapping_mul(STEP) & self.mask;
        self.next += 1;
        line
    }
}

/// Some bytes that were not there before.
#[derive(Default)]
struct Content(u64);

impl Content {
    #[inline]
    fn next(&mut self) -> [u8; LINE as usize] {
        self.0 += 1;
        let mut line = [0; LINE as usize];
        // By words, as in the loop of libpmemobj: single bytes would be a part of what is measured.
        for word in line.as_chunks_mut::<8>().0 {
            *word = self.0.to_ne_bytes();
        }
        line
    }
}

/// Operations of a round: those of its group, or as many as are asked for. Each object is freed
/// before any is made again, so that there are as many of these as objects at most.
///
/// # Errors
/// More are asked for than there are objects.
fn count_of(group: &Group, options: &Options) -> anyhow::Result<u64> {
    let most = match group.changes {
        Some(_) => u64::MAX,
        None => (options.mib << 20) / LINE,
    };
    let Some(count) = options.count else {
        return Ok(group.count.min(most));
    };
    ensure!(
        count <= most,
        "--count {count} is more than the {most} objects that --mib {} makes: make --mib greater",
        options.mib
    );
    Ok(count)
}

fn measured(one: &mut dyn Candidate, group: &Group, count: u64) -> anyhow::Result<Vec<f64>> {
    Ok(match group.changes {
        None => one.churn(count)?.into(),
        Some((how, ranges)) => vec![one.change(how, ranges, count)?],
    })
}

/// Measures and prints.
pub fn run(report: &Report, options: &Options) -> anyhow::Result<()> {
    let wants = |name: &&&str| options.operation.as_deref().is_none_or(|one| one == **name);
    let names = || GROUPS.iter().flat_map(|group| group.names);
    ensure!(
        names().any(|name| wants(&name)),
        "there is no such operation; there are: {}",
        names().copied().collect::<Vec<_>>().join("; ")
    );
    ensure!(
        options.mib.is_power_of_two(),
        "--mib has to be a power of two"
    );
    let ground = match &options.dir {
        Some(_) => None,
        None => Some(Ground::new(1 + options.mib / 64)?),
    };
    let dir = match (&options.dir, &ground) {
        (Some(dir), _) => dir,
        (None, Some(ground)) => ground.path(),
        (None, None) => unreachable!("one of both is there"),
    };
    let mut all = candidates(report, options, dir)?;
    for group in &GROUPS {
        if group.names.iter().any(|name| wants(&name)) {
            measure(report, options, group, &mut all, |name| wants(&name))?;
        }
    }
    Ok(())
}

type Named = (Who, Box<dyn Candidate>);

/// Returns the candidates that are asked for and available. An unavailable one is an error if it is
/// asked for alone, and a line with the reason otherwise.
fn candidates(report: &Report, options: &Options, dir: &Path) -> anyhow::Result<Vec<Named>> {
    let mut all: Vec<Named> = Vec::new();
    let wanted = |who| options.candidate.is_none_or(|one| one == who);
    let mut flush = String::new();
    let keys = pmem::protection::keys();
    for (who, protect) in [
        (Who::Pmlib, ProtectMode::None),
        (Who::Keys, ProtectMode::Keys),
    ] {
        if !wanted(who) || who == Who::Keys && options.candidate.is_none() && keys.is_err() {
            continue;
        }
        let ours = Ours::new(dir, options.mib, protect)?;
        flush = ours.describe();
        all.push((who, Box::new(ours)));
    }
    let mut missing = None;
    if wanted(Who::Libpmemobj) {
        match Theirs::new(dir, options.mib) {
            Ok(theirs) => all.push((Who::Libpmemobj, Box::new(theirs))),
            Err(why) if why.is::<Cannot>() && options.candidate.is_none() => missing = Some(why),
            Err(why) => return Err(why),
        }
    }
    if wanted(Who::Memory) {
        all.push((Who::Memory, Box::new(Limit::new(dir, options.mib)?)));
    }
    if let Some(why) = missing {
        eprintln!("skipped: libpmemobj: {why}");
    }
    if !report.json {
        println!(
            "{} rounds, {} MiB, {flush}; ns an operation, median (least-greatest)",
            report.rounds, options.mib
        );
        println!(
            "{:24} {:>16} {:>16} {:>18} {:>16} {:>7} {:>7} {:>7}",
            "operation",
            "pmlib",
            "with keys",
            "libpmemobj",
            "memory's limit",
            "ratio",
            "keys",
            "target"
        );
    }
    Ok(all)
}

/// A group's operations by all in turns, another one first each time.
fn measure(
    report: &Report,
    options: &Options,
    group: &Group,
    all: &mut [Named],
    wants: impl Fn(&&str) -> bool,
) -> anyhow::Result<()> {
    let mut figures = vec![vec![Figures::default(); group.names.len()]; all.len()];
    let count = count_of(group, options)?;
    // The first rounds warm up: all of a pool's pages are mapped, and its chunks are known.
    let warming = 2;
    for round in 0..report.rounds + warming {
        for turn in 0..all.len() {
            let at = (round + turn) % all.len();
            let taken = measured(&mut *all[at].1, group, count)?;
            if round < warming {
                continue;
            }
            for (figures, ns) in figures[at].iter_mut().zip(taken) {
                figures.0.push(ns);
            }
        }
    }
    for (at, name) in group.names.iter().enumerate() {
        if wants(name) {
            let of = |who| all.iter().position(|one| one.0 == who);
            let of = |who| of(who).map_or(Figures::default(), |one| figures[one][at].clone());
            let row = [Who::Pmlib, Who::Keys, Who::Libpmemobj, Who::Memory].map(of);
            print(report, options, name, &row);
        }
    }
    Ok(())
}

fn print(report: &Report, options: &Options, name: &str, row: &[Figures; 4]) {
    let [ours, keys, theirs, limit] = row;
    let times = |ours| Some(ratio(theirs, ours)).filter(|times: &f64| times.is_finite());
    let shown = |ours| times(ours).map_or("-".into(), |times| format!("{times:.2}x"));
    if report.json {
        let ns = |figures: &Figures| (!figures.0.is_empty()).then(|| figures.0.clone());
        // A single candidate has a median; the others have none.
        let alone = row.iter().find(|figures| !figures.0.is_empty());
        println!(
            "{}",
            serde_json::json!({
                "operation": name, "mib": options.mib, "pmlib_ns": ns(ours), "keys_ns": ns(keys),
                "libpmemobj_ns": ns(theirs), "limit_ns": ns(limit), "ratio": times(ours),
                "ratio_with_keys": times(keys), "target": TARGET, "median_ns": alone.map(Figures::median),
            })
        );
        return;
    }
    println!(
        "{name:24} {:>16} {:>16} {:>18} {:>16} {:>7} {:>7} {:>6.1}x",
        ours.text(),
        keys.text(),
        theirs.text(),
        limit.text(),
        shown(ours),
        shown(keys),
        TARGET
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: every candidate can be had, and each operation ends with a time. Method: all of them
    /// on a small area; libpmemobj where it is installed.
    #[test]
    fn all_candidates_do_all_operations() {
        let dir = tempfile::tempdir_in("/dev/shm").unwrap();
        let mut all: Vec<Box<dyn Candidate>> = vec![
            Box::new(Ours::new(dir.path(), 1, ProtectMode::None).unwrap()),
            Box::new(Ours::new(dir.path(), 1, ProtectMode::Auto).unwrap()),
            Box::new(Limit::new(dir.path(), 1).unwrap()),
        ];
        match Theirs::new(dir.path(), 1) {
            Ok(theirs) => all.push(Box::new(theirs)),
            Err(why) if why.is::<Cannot>() => eprintln!("skipped: {why}"),
            Err(why) => panic!("{why:#}"),
        }
        for one in &mut all {
            for _ in 0..3 {
                for how in [How::Write, How::Add] {
                    assert!(one.change(how, 1, 50).unwrap() > 0.0);
                    assert!(one.change(how, 10, 50).unwrap() > 0.0);
                }
                assert!(one.churn(50).unwrap().iter().all(|&ns| ns > 0.0));
            }
        }
    }

    /// Goal: no object is freed twice in a round, in an area of any size. Method: as many
    /// operations as a round has, in the smallest area, by the heap, which knows what there is.
    #[test]
    fn a_round_frees_no_more_objects_than_there_are() {
        let dir = tempfile::tempdir_in("/dev/shm").unwrap();
        let options = |count| Options {
            mib: 1,
            candidate: None,
            operation: None,
            count,
            dir: None,
        };
        let churn = GROUPS.iter().find(|group| group.changes.is_none()).unwrap();
        let count = count_of(churn, &options(None)).unwrap();
        let mut ours = Ours::new(dir.path(), 1, ProtectMode::None).unwrap();
        for _ in 0..2 {
            measured(&mut ours, churn, count).unwrap();
        }
        let asked = count_of(churn, &options(Some(count + 1)));
        let said = asked.unwrap_err().to_string();
        assert!(said.contains("16385") && said.contains("16384"), "{said}");
        assert_eq!(count_of(churn, &options(Some(count))).unwrap(), 16384);
        assert_eq!(
            count_of(&GROUPS[0], &options(Some(1 << 20))).unwrap(),
            1 << 20
        );
    }

    #[test]
    fn the_sequence_meets_each_line_once() {
        let mut sequence = Sequence::new(1024);
        let mut seen: Vec<u64> = (0..1024).map(|_| sequence.line()).collect();
        assert!(seen.windows(2).all(|two| two[0].abs_diff(two[1]) > 1));
        seen.sort_unstable();
        assert!(seen.into_iter().eq(0..1024));
    }
}
