//! Times of rounds as medians, spreads and ratios.

use std::fmt::Write;

use serde::Serialize;

use crate::stores::Engine;
use crate::work::Times;

/// An operation's times with one engine and one size of values.
#[derive(Debug, Serialize)]
pub struct Row {
    pub operation: &'static str,
    pub value_bytes: usize,
    pub engine: &'static str,
    /// A call's mean time in each round, nanoseconds.
    pub rounds_ns: Vec<f64>,
    pub median_ns: f64,
    pub min_ns: f64,
    pub max_ns: f64,
    /// Bytes of values, by the median.
    pub mb_per_s: f64,
    /// Median and 99th percentile of a round's calls, the median of rounds, if these were timed one
    /// by one.
    pub p50_ns: Option<f64>,
    pub p99_ns: Option<f64>,
    /// The engine's time over that of our hash in the same round, the median of rounds; a volatile
    /// engine's over that of our volatile hash. `None`: ours was not measured.
    pub to_hash: Option<f64>,
    /// The same of our trees.
    pub to_tree: Option<f64>,
}

/// The whole of a run.
#[derive(Debug, Serialize)]
pub struct Report {
    pub keys: usize,
    pub key_bytes: u16,
    pub rounds: usize,
    pub medium: String,
    /// How the engines were made comparable.
    pub normalised: &'static [&'static str],
    pub rows: Vec<Row>,
    /// Engines that were not measured, with the reason.
    pub skipped: Vec<String>,
}

pub const NORMALISED: &[&str] = &[
    "the same keys in the same order, a fresh database each round, on one medium, in turns within \
     each round",
    "each put and delete is a transaction of its own, and durable by the engine's own means: pmkv \
     and pmemkv flush each line and fence, lmdb, redb and rocksdb call the kernel to sync, which \
     does nothing where the medium is a tmpfs",
    "each get is a transaction of its own where there are any, and copies the value; a scan copies \
     100 values",
    "protect=none: no peer keeps stray stores away; rocksdb does not compress; pmemkv's pool has all \
     its room when it is made, ours grows",
    "volatile engines (pmkv-vhash, pmkv-vtree, pmemkv-vcmap, pmemkv-vsmap) are compared among \
     themselves",
];

pub fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    match sorted.len() {
        0 => f64::NAN,
        len if len % 2 == 1 => sorted[len / 2],
        len => f64::midpoint(sorted[len / 2 - 1], sorted[len / 2]),
    }
}

/// The median of the rounds' ratios to an engine of ours.
fn ratio(rounds: &[Times], ours: Option<&Vec<Times>>) -> Option<f64> {
    let ours = ours.filter(|ours| !ours.is_empty())?;
    let ratios = rounds.iter().zip(ours);
    let ratios: Vec<f64> = ratios.map(|(one, ours)| one.mean / ours.mean).collect();
    Some(median(&ratios))
}

impl Row {
    /// Rows of engines' rounds; an engine that has no times has none.
    pub fn of_all(
        operation: &'static str,
        value_bytes: usize,
        engines: &[&'static Engine],
        times: &[Vec<Times>],
    ) -> Vec<Row> {
        let ours = |name: &str| {
            let at = engines.iter().position(|engine| engine.name == name)?;
            times.get(at)
        };
        let measured = engines.iter().zip(times);
        let measured = measured.filter(|(_, rounds)| !rounds.is_empty());
        measured
            .map(|(engine, rounds)| {
                let [hash, tree] = engine.ours();
                let rounds_ns: Vec<f64> = rounds.iter().map(|one| one.mean).collect();
                let each: Option<Vec<(f64, f64)>> = rounds.iter().map(|one| one.p50_p99).collect();
                let of = |pick: fn(&(f64, f64)) -> f64| {
                    let each = each.as_ref()?;
                    Some(median(&each.iter().map(pick).collect::<Vec<_>>()))
                };
                let median_ns = median(&rounds_ns);
                Row {
                    operation,
                    value_bytes,
                    engine: engine.name,
                    median_ns,
                    mb_per_s: value_bytes as f64 / median_ns * 1000.0,
                    min_ns: rounds_ns.iter().copied().fold(f64::INFINITY, f64::min),
                    max_ns: rounds_ns.iter().copied().fold(0.0, f64::max),
                    p50_ns: of(|two| two.0),
                    p99_ns: of(|two| two.1),
                    to_hash: ratio(rounds, ours(hash)),
                    to_tree: ratio(rounds, ours(tree)),
                    rounds_ns,
                }
            })
            .collect()
    }
}

impl Report {
    pub fn text(&self) -> String {
        let mut text = format!(
            "{} keys of {} bytes, {} rounds, on {}; ns a call: median (min to max); theirs / ours\n",
            self.keys, self.key_bytes, self.rounds, self.medium
        );
        let _ = writeln!(
            text,
            "{:<10} {:>6}  {:<13} {:>9} {:>22} {:>8} {:>8}",
            "operation", "bytes", "engine", "median", "min to max", "/ hash", "/ tree"
        );
        let times = |ratio: Option<f64>| match ratio {
            None => "-".to_owned(),
            Some(ratio) => format!("{ratio:.2}"),
        };
        for row in &self.rows {
            let spread = format!("{:.0} to {:.0}", row.min_ns, row.max_ns);
            let _ = writeln!(
                text,
                "{:<10} {:>6}  {:<13} {:>9.0} {spread:>22} {:>8} {:>8}",
                row.operation,
                row.value_bytes,
                row.engine,
                row.median_ns,
                times(row.to_hash),
                times(row.to_tree)
            );
        }
        for why in &self.skipped {
            let _ = writeln!(text, "skipped: {why}");
        }
        for line in self.normalised {
            let _ = writeln!(text, "- {line}");
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stores::ENGINES;

    #[test]
    fn ratios_are_taken_within_a_round() {
        let named = |name: &str| ENGINES.iter().find(|one| one.name == name).unwrap();
        let engines = ["pmkv-hash", "pmkv-tree", "lmdb", "redb"].map(named);
        let rounds = |means: &[f64]| {
            let times = |&mean| Times {
                mean,
                p50_p99: None,
            };
            means.iter().map(times).collect::<Vec<_>>()
        };
        let times = [
            rounds(&[1.0, 2.0, 10.0]),
            rounds(&[10.0, 10.0, 10.0]),
            rounds(&[10.0, 40.0, 30.0]),
            rounds(&[]),
        ];
        let rows = Row::of_all("put", 64, &engines, &times);
        let [hash, _, lmdb] = &rows[..] else {
            panic!("an engine without times has a row: {rows:?}")
        };
        assert_eq!(hash.to_hash, Some(1.0));
        assert_eq!(
            (lmdb.median_ns, lmdb.min_ns, lmdb.max_ns),
            (30.0, 10.0, 40.0)
        );
        assert_eq!((lmdb.to_hash, lmdb.to_tree), (Some(10.0), Some(3.0)));
        assert_eq!(median(&[4.0, 1.0]), 2.5);
        assert!(median(&[]).is_nan());
    }
}
