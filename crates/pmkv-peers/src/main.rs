//! Measures pmkv beside LMDB and redb: put of new keys, get, overwrite and delete. All engines take
//! turns in each round, so that what the machine does meanwhile touches all of them.
#![forbid(unsafe_code)]

mod report;
mod stores;

use std::path::PathBuf;
use std::time::Instant;

use anyhow::{Result, ensure};
use clap::Parser;

use crate::report::{NORMALISED, Report, Row};
use crate::stores::{NAMES, Store, with_store};

const OPERATIONS: [&str; 4] = ["put", "get", "overwrite", "delete"];
const KEY_BYTES: usize = 16;

/// pmkv beside other embedded key-value engines
#[derive(Parser)]
#[command(name = "pmkv-peers")]
struct Arguments {
    /// The directory in which the databases are made and removed
    #[arg(long, default_value = "/dev/shm")]
    dir: PathBuf,
    /// Keys of a database
    #[arg(long, default_value_t = 5000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    keys: u32,
    /// Bytes of a value
    #[arg(long, value_delimiter = ',', default_values_t = [64, 1024, 4096])]
    sizes: Vec<usize>,
    /// Rounds
    #[arg(long, default_value_t = 9, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// The keys in an order that is not theirs; each has its number, mixed.
fn keys(count: usize) -> Vec<[u8; KEY_BYTES]> {
    let key = |number: u64| {
        let mixed = (number + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mut key = [0; KEY_BYTES];
        key[..8].copy_from_slice(&mixed.to_be_bytes());
        key[8..].copy_from_slice(&number.to_be_bytes());
        key
    };
    (0..count as u64).map(key).collect()
}

/// The mean time of a call of each operation, nanoseconds.
fn measure(store: &dyn Store, keys: &[[u8; KEY_BYTES]], bytes: usize) -> Result<[f64; 4]> {
    let (old, new) = (vec![7; bytes], vec![8; bytes]);
    let mut value = Vec::new();
    let time = |call: &mut dyn FnMut(&[u8]) -> Result<()>| -> Result<f64> {
        let since = Instant::now();
        keys.iter().try_for_each(|key| call(key))?;
        Ok(since.elapsed().as_nanos() as f64 / keys.len() as f64)
    };
    let put = time(&mut |key| store.put(key, &old))?;
    let get = time(&mut |key| {
        let is_there = store.get(key, &mut value)?;
        ensure!(
            is_there && value.len() == bytes,
            "a value is not as it was put"
        );
        Ok(())
    })?;
    let overwrite = time(&mut |key| store.put(key, &new))?;
    let delete = time(&mut |key| {
        ensure!(store.delete(key)?, "a key is not there");
        Ok(())
    })?;
    Ok([put, get, overwrite, delete])
}

fn run(arguments: &Arguments) -> Result<Report> {
    let keys = keys(arguments.keys as usize);
    // By operation, size and engine: a time for each round.
    let mut times = vec![vec![[const { Vec::new() }; NAMES.len()]; arguments.sizes.len()]; 4];
    for round in 0..arguments.rounds as usize {
        for (size, &bytes) in arguments.sizes.iter().enumerate() {
            for turn in 0..NAMES.len() {
                let engine = (round + turn) % NAMES.len();
                let dir = tempfile::Builder::new()
                    .prefix("pmkv-peers-")
                    .tempdir_in(&arguments.dir)?;
                let body = |store: &dyn Store| measure(store, &keys, bytes);
                let measured = with_store(NAMES[engine], dir.path(), body)?;
                for (operation, ns) in measured.into_iter().enumerate() {
                    times[operation][size][engine].push(ns);
                }
            }
        }
    }
    let mut rows = Vec::new();
    for (operation, sizes) in OPERATIONS.into_iter().zip(&times) {
        for (&bytes, engines) in arguments.sizes.iter().zip(sizes) {
            for (name, rounds) in NAMES.into_iter().zip(engines) {
                rows.push(Row::of(operation, bytes, name, rounds, &engines[0]));
            }
        }
    }
    Ok(Report {
        keys: keys.len(),
        key_bytes: KEY_BYTES,
        rounds: arguments.rounds as usize,
        medium: arguments.dir.display().to_string(),
        normalised: NORMALISED,
        rows,
    })
}

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    let report = run(&arguments)?;
    if arguments.json {
        println!("{}", serde_json::to_string_pretty(&report)?);
    } else {
        print!("{}", report.text());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a run has a row for each engine, operation and size. Method: a small one.
    #[test]
    fn a_run_has_all_rows() {
        let dir = tempfile::tempdir().unwrap();
        let arguments = Arguments {
            dir: dir.path().to_path_buf(),
            keys: 50,
            sizes: vec![64, 1000],
            rounds: 2,
            json: false,
        };
        let report = run(&arguments).unwrap();
        assert_eq!(report.rows.len(), 4 * 2 * 3);
        let sound = |row: &Row| row.rounds_ns.len() == 2 && row.min_ns > 0.0 && row.ratio > 0.0;
        assert!(report.rows.iter().all(sound), "{report:?}");
        let text = report.text();
        assert_eq!(text.lines().count(), 2 + 24 + 4, "{text}");
        assert!(std::fs::read_dir(dir.path()).unwrap().next().is_none());
    }
}
