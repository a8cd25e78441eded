//! Times of rounds as medians, spreads and ratios.

use std::fmt::Write;

use serde::Serialize;

use crate::stores::NAMES;

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
    /// The engine's time over ours in the same round, the median of rounds.
    pub ratio: f64,
}

/// The whole of a run.
#[derive(Debug, Serialize)]
pub struct Report {
    pub keys: usize,
    pub key_bytes: usize,
    pub rounds: usize,
    pub medium: String,
    /// How the engines were made alike.
    pub normalised: [&'static str; 4],
    pub rows: Vec<Row>,
}

pub const NORMALISED: [&str; 4] = [
    "one thread; all engines on one medium, in turns within each round",
    "each put and delete is a transaction of its own, and durable by the engine's own means: pmkv \
     flushes each line and fences, lmdb and redb call the kernel to sync",
    "each get is a transaction of its own where there are any, and copies the value",
    "protect=none: no peer keeps stray stores away",
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

impl Row {
    /// A row of an engine's rounds, and ours of the same.
    pub fn of(
        operation: &'static str,
        value_bytes: usize,
        engine: &'static str,
        rounds_ns: &[f64],
        ours_ns: &[f64],
    ) -> Row {
        let ratios = rounds_ns.iter().zip(ours_ns).map(|(ns, ours)| ns / ours);
        Row {
            operation,
            value_bytes,
            engine,
            median_ns: median(rounds_ns),
            min_ns: rounds_ns.iter().copied().fold(f64::INFINITY, f64::min),
            max_ns: rounds_ns.iter().copied().fold(0.0, f64::max),
            ratio: median(&ratios.collect::<Vec<_>>()),
            rounds_ns: rounds_ns.to_vec(),
        }
    }
}

impl Report {
    pub fn text(&self) -> String {
        let mut text = format!(
            "{} keys of {} bytes, {} rounds, on {}; ns a call: median (min to max); ratio: theirs / ours\n",
            self.keys, self.key_bytes, self.rounds, self.medium
        );
        let _ = writeln!(
            text,
            "{:<10} {:>6}  {:<6} {:>9} {:>22} {:>8}",
            "operation", "bytes", "engine", "median", "min to max", "ratio"
        );
        for row in &self.rows {
            let spread = format!("{:.0} to {:.0}", row.min_ns, row.max_ns);
            let ratio = match row.engine == NAMES[0] {
                true => "1".to_owned(),
                false => format!("{:.1}", row.ratio),
            };
            let _ = writeln!(
                text,
                "{:<10} {:>6}  {:<6} {:>9.0} {spread:>22} {ratio:>8}",
                row.operation, row.value_bytes, row.engine, row.median_ns
            );
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

    #[test]
    fn ratios_are_taken_within_a_round() {
        let row = Row::of("put", 64, "lmdb", &[10.0, 40.0, 30.0], &[1.0, 2.0, 10.0]);
        assert_eq!((row.median_ns, row.min_ns, row.max_ns), (30.0, 10.0, 40.0));
        assert_eq!(row.ratio, 10.0);
        assert_eq!(median(&[4.0, 1.0]), 2.5);
        assert!(median(&[]).is_nan());
    }
}
