//! Calls through a mount, beside the same on tmpfs: the round trip to the daemon rules.

use crate::ground::Ground;
use crate::measure::{Figures, Report, ratio, time};
use crate::rows::{Candidate, Row};
use crate::tmpfs::Tmpfs;
use std::path::Path;

const FILE_BYTES: u64 = 64 << 20;

/// Runs and prints.
pub fn run(report: &Report, dir: &Path) -> anyhow::Result<()> {
    let ground = Ground::new(2)?;
    let here = tempfile::Builder::new()
        .prefix("pmbench-")
        .tempdir_in(dir)?;
    let mut mounted = Tmpfs::new(here.path(), FILE_BYTES)?;
    let mut tmpfs = Tmpfs::new(ground.path(), FILE_BYTES)?;
    let rows = [
        (Row::Read4kRandom, "pread 4 KiB", Some(8.0), 5_000),
        (Row::Write4kRandom, "pwrite 4 KiB", Some(8.0), 5_000),
        (Row::Stat, "stat", Some(27.0), 5_000),
        (Row::OpenClose, "open + close", None, 2_000),
        (Row::CreateClose, "create + close", Some(50.0), 1_000),
        (Row::Rename, "rename", None, 1_000),
        (Row::Unlink, "unlink", None, 1_000),
    ];
    println!(
        "{:16} {:>24} {:>24} {:>10} {:>10}",
        "us a call", "mount", "tmpfs", "target", "ratio"
    );
    for (row, name, target, count) in rows {
        let (mut mount_us, mut tmpfs_us) = (Figures::default(), Figures::default());
        for round in 0..=report.rounds {
            let on_mount = time(count, || mounted.run(row, count))?;
            let on_tmpfs = time(count, || tmpfs.run(row, count))?;
            if round > 0 {
                mount_us.0.push(on_mount);
                tmpfs_us.0.push(on_tmpfs);
            }
        }
        println!(
            "{name:16} {:>24} {:>24} {:>10} {:>9.1}x",
            format!("{:.1}", mount_us.median() / 1e3),
            format!("{:.2}", tmpfs_us.median() / 1e3),
            target.map_or("-".into(), |us: f64| format!("<= {us}")),
            ratio(&mount_us, &tmpfs_us)
        );
    }
    Ok(())
}
