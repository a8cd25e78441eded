//! Measures pmkv beside LMDB, redb, RocksDB and pmemkv: puts of new keys, gets, scans, puts over
//! old values and deletes. All engines take turns in each round, so that the machine's moods touch
//! all of them. An engine whose library is missing is told as skipped.
#![forbid(unsafe_code)]

mod report;
mod stores;
mod work;

use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Result, bail, ensure};
use clap::Parser;

use crate::report::{NORMALISED, Report, Row};
use crate::stores::{ENGINES, Engine, Missing, Place, with_store};
use crate::work::{Operation, Order, Times, Work};

/// The exit status of a run in which nothing can be measured here; the reason is on stdout.
const CANNOT: u8 = 77;
/// libpmemobj's settings, which it reads when it is loaded: all flush, as we do.
const SETTINGS: [(&str, &str); 3] = [
    ("PMEM_IS_PMEM_FORCE", "1"),
    ("PMEM_NO_FLUSH", "0"),
    ("PMEMOBJ_CONF", "sds.at_create=0"),
];

/// pmkv beside other embedded key-value engines
#[derive(Parser)]
#[command(name = "pmkv-peers")]
struct Arguments {
    /// The directory in which the databases are made and removed
    #[arg(long, default_value = "/dev/shm")]
    dir: PathBuf,
    /// The engines [default: all of them]
    #[arg(long, value_delimiter = ',', value_parser = engine)]
    engines: Vec<&'static Engine>,
    /// The operations [default: all of them]
    #[arg(long, value_delimiter = ',', value_enum)]
    operations: Vec<Operation>,
    /// Keys of a database
    #[arg(long, default_value_t = 5000, value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    keys: u32,
    /// Bytes of a key
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u16).range(16..=255))]
    key_bytes: u16,
    /// Bytes of a value
    #[arg(long, value_delimiter = ',', default_values_t = [64, 1024, 4096])]
    sizes: Vec<usize>,
    /// Gets of a round [default: one of each key]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    gets: Option<u32>,
    /// The order of keys
    #[arg(long, value_enum, default_value_t = Order::Random)]
    order: Order,
    /// Time each call by itself too, for the median and the 99th percentile
    #[arg(long)]
    each: bool,
    /// Rounds
    #[arg(long, default_value_t = 9, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

fn engine(name: &str) -> Result<&'static Engine> {
    let Some(engine) = ENGINES.iter().find(|one| one.name == name) else {
        let all = ENGINES.map(|one| one.name).join(", ");
        bail!("no engine is called {name}: there are {all}")
    };
    Ok(engine)
}

/// A database of an engine for so long, in a directory of its own.
fn in_turn<T>(
    dir: &Path,
    engine: &Engine,
    work: &Work,
    bytes: usize,
    body: impl FnOnce(&dyn stores::Store) -> Result<T>,
) -> Result<T> {
    let own = tempfile::Builder::new()
        .prefix("pmkv-peers-")
        .tempdir_in(dir)?;
    let place = Place {
        dir: own.path(),
        data_bytes: work.data_bytes(bytes),
    };
    with_store(engine, &place, body)
}

/// The engines that can be had, and for each other one the reason.
fn available(arguments: &Arguments) -> Result<(Vec<&'static Engine>, Vec<String>)> {
    let few = Work::new(1, 16, 1, Order::Random, false);
    let wanted: Vec<&Engine> = match arguments.engines.is_empty() {
        true => ENGINES.iter().collect(),
        false => arguments.engines.clone(),
    };
    let (mut there, mut skipped) = (Vec::new(), Vec::new());
    for engine in wanted {
        match in_turn(&arguments.dir, engine, &few, 1, |_| Ok(())) {
            Ok(()) => there.push(engine),
            Err(why) if why.is::<Missing>() => skipped.push(format!("{}: {why}", engine.name)),
            Err(why) => return Err(why.context(engine.name)),
        }
    }
    Ok((there, skipped))
}

fn run(arguments: &Arguments) -> Result<Report> {
    let (engines, skipped) = available(arguments)?;
    let work = Work::new(
        arguments.keys as usize,
        arguments.key_bytes.into(),
        arguments.gets.unwrap_or(arguments.keys) as usize,
        arguments.order,
        arguments.each,
    );
    let wanted =
        |one: &Operation| arguments.operations.is_empty() || arguments.operations.contains(one);
    let operations: Vec<Operation> = Operation::ALL.into_iter().filter(wanted).collect();
    // By operation, size and engine: the times of each round.
    let none = vec![vec![Vec::<Times>::new(); engines.len()]; arguments.sizes.len()];
    let mut times = vec![none; operations.len()];
    for round in 0..arguments.rounds as usize {
        for (size, &bytes) in arguments.sizes.iter().enumerate() {
            for turn in 0..engines.len() {
                let at = (round + turn) % engines.len();
                let body = |store: &dyn stores::Store| work.measure(store, &operations, bytes);
                let measured = in_turn(&arguments.dir, engines[at], &work, bytes, body)?;
                for (operation, one) in measured.into_iter().enumerate() {
                    times[operation][size][at].extend(one);
                }
            }
        }
    }
    let mut rows = Vec::new();
    for (operation, sizes) in operations.iter().zip(&times) {
        for (&bytes, rounds) in arguments.sizes.iter().zip(sizes) {
            rows.extend(Row::of_all(operation.name(), bytes, &engines, rounds));
        }
    }
    Ok(Report {
        keys: work.keys(),
        key_bytes: arguments.key_bytes,
        rounds: arguments.rounds as usize,
        medium: arguments.dir.display().to_string(),
        normalised: NORMALISED,
        rows,
        skipped,
    })
}

/// Begins anew with the settings of libpmemobj in the environment, if they are not there.
fn with_settings() -> Result<()> {
    if SETTINGS
        .iter()
        .all(|(name, _)| std::env::var_os(name).is_some())
    {
        return Ok(());
    }
    let mut again = Command::new(std::env::current_exe()?);
    again.args(std::env::args_os().skip(1)).envs(SETTINGS);
    Err(again.exec().into())
}

fn main() -> Result<ExitCode> {
    let arguments = Arguments::parse();
    with_settings()?;
    ensure!(!arguments.sizes.is_empty(), "no size is given");
    let report = run(&arguments)?;
    if report.rows.is_empty() {
        let why = match report.skipped.is_empty() {
            true => "no engine has an order".to_owned(),
            false => report.skipped.join("; "),
        };
        println!("{why}");
        return Ok(ExitCode::from(CANNOT));
    }
    if arguments.json {
        println!("{}", serde_json::to_string_pretty(&report)?);
    } else {
        print!("{}", report.text());
    }
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arguments(dir: &Path, more: &[&str]) -> Arguments {
        let dir = dir.to_str().unwrap();
        let fixed = ["pmkv-peers", "--dir", dir, "--keys", "50", "--rounds", "2"];
        Arguments::parse_from(fixed.iter().chain(more))
    }

    /// Goal: a run has a row for each engine, operation and size, and tells what it skips. Method:
    /// a small one; RocksDB and pmemkv where they are.
    #[test]
    fn a_run_has_all_rows() {
        let dir = tempfile::tempdir().unwrap();
        let report = run(&arguments(dir.path(), &["--sizes", "64,1000"])).unwrap();
        let there = ENGINES.len() - report.skipped.len();
        let of = |operation: &str| {
            let rows = report.rows.iter();
            rows.filter(|row| row.operation == operation).count()
        };
        for operation in ["put", "get", "overwrite", "delete"] {
            assert_eq!(of(operation), 2 * there);
        }
        assert!((8..2 * there).contains(&of("scan")));
        let sound = |row: &Row| row.rounds_ns.len() == 2 && row.min_ns > 0.0;
        assert!(report.rows.iter().all(sound), "{report:?}");
        let lines = 2 + report.rows.len() + report.skipped.len() + NORMALISED.len();
        assert_eq!(report.text().lines().count(), lines);
        assert!(std::fs::read_dir(dir.path()).unwrap().next().is_none());
    }

    /// Goal: what is asked for is measured, and no more. Method: one engine, one operation, by the
    /// call.
    #[test]
    fn a_part_can_be_asked_for() {
        let dir = tempfile::tempdir().unwrap();
        let more = [
            ["--engines", "pmkv-tree", "--operations", "get", "--sizes"],
            ["64", "--gets", "120", "--order", "sequential"],
        ];
        let more = [&more.concat()[..], &["--key-bytes", "20", "--each"]].concat();
        let report = run(&arguments(dir.path(), &more)).unwrap();
        let [row] = &report.rows[..] else {
            panic!("{report:?}")
        };
        assert_eq!((row.operation, row.engine), ("get", "pmkv-tree"));
        assert!(row.p50_ns.is_some_and(|p50| Some(p50) <= row.p99_ns));
        assert_eq!(row.to_tree, Some(1.0));
        assert_eq!(row.to_hash, None);
        assert!(engine("other").unwrap_err().to_string().contains("redb"));
    }
}
