//! The rows of docs/design/targets.md.

use crate::ground::Ground;
use crate::limit::Limit;
use crate::measure::{Figures, Report, ratio, time};
use crate::pool::Pool;
use crate::tmpfs::Tmpfs;
use serde_json::json;

/// An operation to measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Row {
    Read4kRandom,
    Read64Random,
    Read4kHot,
    Write4kRandom,
    Write64Random,
    Append64,
    Append4k,
    Fstat,
    Stat,
    OpenClose,
    CreateClose,
    Rename,
    Unlink,
}

/// A candidate does the operations.
pub trait Candidate {
    /// Does `count` of them.
    fn run(&mut self, row: Row, count: u64) -> anyhow::Result<()>;
}

pub struct Spec {
    pub row: Row,
    pub name: &'static str,
    pub target: f64,
    pub count: u64,
}

const fn spec(row: Row, name: &'static str, target: f64, count: u64) -> Spec {
    Spec {
        row,
        name,
        target,
        count,
    }
}

pub const SPECS: [Spec; 13] = [
    spec(Row::Read4kRandom, "pread 4 KiB, random", 1.7, 100_000),
    spec(Row::Read64Random, "pread 64 B, random", 3.0, 200_000),
    spec(Row::Read4kHot, "pread 4 KiB, hot", 2.5, 200_000),
    spec(
        Row::Write4kRandom,
        "pwrite 4 KiB, random, atomic",
        1.2,
        100_000,
    ),
    spec(
        Row::Write64Random,
        "pwrite 64 B, random, atomic",
        1.5,
        100_000,
    ),
    spec(Row::Append64, "append 64 B", 0.9, 200_000),
    spec(Row::Append4k, "append 4 KiB", 1.4, 50_000),
    spec(Row::Fstat, "fstat", 5.0, 500_000),
    spec(Row::Stat, "stat", 2.5, 200_000),
    spec(Row::OpenClose, "open + close", 1.5, 200_000),
    spec(Row::CreateClose, "create + close", 2.0, 20_000),
    spec(Row::Rename, "rename", 2.0, 20_000),
    spec(Row::Unlink, "unlink", 2.0, 20_000),
];

/// Runs them all and prints the table.
pub fn run(report: &Report, file_mib: u64, only: Option<&str>) -> anyhow::Result<()> {
    let bytes = file_mib << 20;
    let ground = Ground::new(8 + 3 * file_mib / 1024)?;
    let mut pool = Pool::new(ground.path(), bytes)?;
    let mut tmpfs = Tmpfs::new(ground.path(), bytes)?;
    let mut limit = Limit::new(ground.path(), bytes)?;
    if !report.json {
        println!(
            "{} rounds, {file_mib} MiB file, {}",
            report.rounds,
            pool.describe()
        );
        println!("ns an operation, median (least-greatest); ratios are medians of each round's");
        println!(
            "{:30} {:>20} {:>20} {:>20} {:>7} {:>7}",
            "operation", "tmpfs", "PMFS", "memory's limit", "ratio", "target"
        );
    }
    let wanted = |spec: &&Spec| only.is_none_or(|only| spec.name.contains(only));
    for spec in SPECS.iter().filter(wanted) {
        let mut figures = [const { Figures(Vec::new()) }; 3];
        for round in 0..=report.rounds {
            let candidates: [&mut dyn Candidate; 3] = [&mut tmpfs, &mut pool, &mut limit];
            for (candidate, figures) in candidates.into_iter().zip(&mut figures) {
                let ns = time(spec.count, || candidate.run(spec.row, spec.count))?;
                // The first round warms up.
                if round > 0 {
                    figures.0.push(ns);
                }
            }
        }
        print(report, spec, &figures);
    }
    Ok(())
}

fn print(report: &Report, spec: &Spec, [tmpfs, pmfs, limit]: &[Figures; 3]) {
    let ratio = ratio(tmpfs, pmfs);
    let limited = limit.median() > 1.0;
    if report.json {
        let row = json!({
            "operation": spec.name, "tmpfs_ns": tmpfs.0, "pmfs_ns": pmfs.0,
            "limit_ns": if limited { Some(&limit.0) } else { None },
            "ratio": ratio, "target": spec.target,
        });
        println!("{row}");
        return;
    }
    println!(
        "{:30} {:>20} {:>20} {:>20} {:>6.2}x {:>6.1}x",
        spec.name,
        tmpfs.text(),
        pmfs.text(),
        if limited { limit.text() } else { "-".into() },
        ratio,
        spec.target
    );
}
