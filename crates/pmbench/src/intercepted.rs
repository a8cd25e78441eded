//! A program below `pmfs run`: the rows of docs/design/targets.md by system calls that are served
//! in the process, beside the same calls on tmpfs in the same process; what calls on other files
//! cost more; what starting costs.

use crate::ground::Ground;
use crate::limit::Wait;
use crate::measure::{Figures, Report, ratio, time};
use crate::rows::{Candidate, Row, SPECS};
use crate::tmpfs::Tmpfs;
use anyhow::{Context, bail};
use rustix::fs::{AtFlags, CWD, fstat, open, statat};
use rustix::fs::{Mode, OFlags};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

/// Processes a round: a script of so many, whose own `pmfs run` (some 30 ms, with a mount) is then
/// a small part of each.
const STARTS: u64 = 1000;
/// Calls of a kind a round.
const CALLS: u64 = 200_000;

/// The places of everything.
struct Place<'a> {
    pmfs: &'a Path,
    pool: std::path::PathBuf,
    dir: std::path::PathBuf,
}

impl Place<'_> {
    /// A command below `pmfs run`.
    fn run(&self, program: &Path) -> Command {
        let mut command = Command::new(self.pmfs);
        command.args(["run", "-o", "flush=always", "--pool"]);
        command
            .arg(&self.pool)
            .arg("--at")
            .arg(&self.dir)
            .arg("--")
            .arg(program);
        command
    }

    fn pmfs(&self, words: &[&str]) -> anyhow::Result<()> {
        let ended = Command::new(self.pmfs)
            .args(words)
            .stdout(Stdio::null())
            .status()?;
        if !ended.success() {
            bail!("pmfs {}: {ended}", words.join(" "));
        }
        Ok(())
    }
}

/// Makes a pool beside a plain directory, both on one tmpfs, and runs the rest below `pmfs run`.
pub fn run(report: &Report, pmfs: &Path, file_mib: u64) -> anyhow::Result<()> {
    let ground = Ground::new(4 + 3 * file_mib / 1024)?;
    let place = Place {
        pmfs,
        pool: ground.path().join("pool"),
        dir: ground.path().join("mnt"),
    };
    let tmpfs = ground.path().join("tmpfs");
    for dir in [&place.dir, &tmpfs] {
        std::fs::create_dir(dir)?;
    }
    let (pool, dir) = (place.pool.to_string_lossy(), place.dir.to_string_lossy());
    let size = format!("{}M", 1024 + 2 * file_mib);
    place.pmfs(&["mkfs", "--size", &size, &pool])?;
    place.pmfs(&["mount", "-o", "flush=always", &pool, &dir])?;
    let done = measure(report, &place, &tmpfs, file_mib);
    place.pmfs(&["umount", &dir])?;
    done
}

fn measure(report: &Report, place: &Place<'_>, tmpfs: &Path, file_mib: u64) -> anyhow::Result<()> {
    let program = std::env::current_exe()?;
    let mut inside = place.run(&program);
    inside.args(["--rounds", &report.rounds.to_string()]);
    if report.json {
        inside.arg("--json");
    }
    inside.arg("inside").arg(&place.dir).arg(tmpfs);
    let ended = inside
        .args(["--file-mib", &file_mib.to_string()])
        .status()?;
    if !ended.success() {
        bail!("the program below pmfs run: {ended}");
    }
    other_calls(report, place, tmpfs, &program)?;
    starts(report, place, tmpfs)
}

/// In the program: each row on the pool and on tmpfs in turn.
pub fn inside(report: &Report, pool: &Path, tmpfs: &Path, file_mib: u64) -> anyhow::Result<()> {
    let bytes = file_mib << 20;
    let mut ours = Tmpfs::new(pool, bytes)?;
    let mut theirs = Tmpfs::new(tmpfs, bytes)?;
    let mut wait = Wait::new(&tmpfs.join("file"))?;
    if !report.json {
        println!(
            "below pmfs run: {} rounds, {file_mib} MiB file; ns a call, median (least-greatest)",
            report.rounds
        );
        println!(
            "{:30} {:>22} {:>22} {:>7} {:>7}",
            "operation", "tmpfs", "PMFS", "ratio", "target"
        );
    }
    for spec in &SPECS {
        let mut figures = [const { Figures(Vec::new()) }; 3];
        for round in 0..=report.rounds {
            let candidates: [&mut dyn Candidate; 3] = [&mut theirs, &mut ours, &mut wait];
            for (candidate, figures) in candidates.into_iter().zip(&mut figures) {
                let ns = time(spec.count, || candidate.run(spec.row, spec.count))?;
                if round > 0 {
                    figures.0.push(ns);
                }
            }
        }
        let [tmpfs, ours, wait] = &figures;
        // A read waits for this, unless it was asked for while the one before was waited for. Other
        // calls wait for several, and partly at once.
        let waits = spec.row == Row::Read64Random;
        if report.json {
            let row = serde_json::json!({
                "operation": spec.name, "tmpfs_ns": tmpfs.0, "pmfs_ns": ours.0,
                "wait_ns": waits.then_some(&wait.0),
                "ratio": ratio(tmpfs, ours), "target": spec.target,
            });
            println!("{row}");
        } else {
            let (there, here) = (tmpfs.text(), ours.text());
            println!(
                "{:30} {there:>22} {here:>22} {:>6.2}x {:>6.1}x",
                spec.name,
                ratio(tmpfs, ours),
                spec.target
            );
            if waits {
                println!(
                    "  a load that begins when the one before it is done waits {} for memory: {:.2}x",
                    wait.text(),
                    ratio(tmpfs, wait)
                );
            }
        }
    }
    Ok(())
}

/// Calls on files that are not the pool's: ns of an fstat and of a stat.
pub fn others(dir: &Path) -> anyhow::Result<()> {
    let path = dir.join("other");
    let file = open(
        &path,
        OFlags::CREATE | OFlags::RDWR,
        Mode::from_raw_mode(0o600),
    )?;
    let by_descriptor = time(CALLS, || {
        for _ in 0..CALLS {
            fstat(&file)?;
        }
        Ok(())
    })?;
    let by_path = time(CALLS, || {
        for _ in 0..CALLS {
            statat(CWD, &path, AtFlags::empty())?;
        }
        Ok(())
    })?;
    println!("{by_descriptor} {by_path}");
    Ok(())
}

fn other_calls(
    report: &Report,
    place: &Place<'_>,
    tmpfs: &Path,
    program: &Path,
) -> anyhow::Result<()> {
    let mut more = [const { Figures(Vec::new()) }; 2];
    for _ in 0..report.rounds {
        let mut pairs = Vec::new();
        for mut command in [Command::new(program), place.run(program)] {
            command
                .args(["inside", "--others", "--file-mib", "0", "/"])
                .arg(tmpfs);
            let printed = String::from_utf8(command.output()?.stdout)?;
            let ns: Vec<f64> = printed
                .split_whitespace()
                .filter_map(|ns| ns.parse().ok())
                .collect();
            pairs.push(ns);
        }
        let ([plain, below], [by_descriptor, by_path]) =
            (<[Vec<f64>; 2]>::try_from(pairs).expect("two"), &mut more);
        let (&[a, b], &[c, d]) = (plain.as_slice(), below.as_slice()) else {
            bail!("a program printed no figures");
        };
        by_descriptor.0.push(c - a);
        by_path.0.push(d - b);
    }
    for (name, more, bound) in [("fstat", &more[0], 20), ("stat", &more[1], 60)] {
        println!(
            "{name} of another file: {} ns more (bound {bound})",
            more.text()
        );
    }
    Ok(())
}

/// Starting `true`, and a program that looks at one file, in turns with and without.
fn starts(report: &Report, place: &Place<'_>, tmpfs: &Path) -> anyhow::Result<()> {
    let here = place.dir.join("looked-at");
    let there = tmpfs.join("looked-at");
    for path in [&here, &there] {
        std::fs::write(path, b"")?;
    }
    let script = |path: &Path| {
        format!(
            "i=0; while [ $i -lt {STARTS} ]; do stat {} >/dev/null; i=$((i+1)); done",
            path.display()
        )
    };
    let trues = format!("i=0; while [ $i -lt {STARTS} ]; do /bin/true; i=$((i+1)); done");
    let mut figures = [const { Figures(Vec::new()) }; 4];
    for _ in 0..report.rounds {
        let texts = [trues.clone(), trues.clone(), script(&there), script(&here)];
        for (index, text) in texts.iter().enumerate() {
            let mut command = if index % 2 == 0 {
                Command::new("/bin/sh")
            } else {
                place.run(Path::new("/bin/sh"))
            };
            let start = Instant::now();
            let ended = command.arg("-c").arg(text).status().context("sh")?;
            if !ended.success() {
                bail!("sh: {ended}");
            }
            figures[index]
                .0
                .push(start.elapsed().as_nanos() as f64 / STARTS as f64 / 1000.0);
        }
    }
    let [plain, below, stat_there, stat_here] = &figures;
    let added = Figures(
        plain
            .0
            .iter()
            .zip(&below.0)
            .map(|(plain, below)| below - plain)
            .collect(),
    );
    println!(
        "true: {} us, below pmfs run {} us: {} us more (bound 400)",
        plain.text(),
        below.text(),
        added.text()
    );
    let times = 1.0 / ratio(stat_there, stat_here);
    println!(
        "stat in a process of its own: tmpfs {} us, PMFS {} us: {times:.2}x (bound 1.3x)",
        stat_there.text(),
        stat_here.text()
    );
    weight(report, place)
}

/// Measures what a program's start costs: page faults of `true`, and the private memory of a
/// program that reads its own account.
fn weight(report: &Report, place: &Place<'_>) -> anyhow::Result<()> {
    let (sh, python) = (Path::new("/bin/sh"), Path::new("python3"));
    let (mut faults, mut private) = (Figures(Vec::new()), Figures(Vec::new()));
    for _ in 0..report.rounds {
        faults
            .0
            .push(faults_of_true(place.run(python))? - faults_of_true(Command::new(python))?);
        private
            .0
            .push(private_memory(place.run(sh))? - private_memory(Command::new(sh))?);
    }
    println!(
        "a program's start: {} page faults more (bound 25), {} KiB private more (bound 64)",
        faults.text(),
        private.text()
    );
    Ok(())
}

/// Page faults of `true` (getrusage(2), of a child), the median of some.
fn faults_of_true(mut python: Command) -> anyhow::Result<f64> {
    let script = "import os
def faults():
    child = os.posix_spawn('/bin/true', ['true'], os.environ)
    return os.wait4(child, 0)[2].ru_minflt
print(sorted(faults() for _ in range(9))[4])";
    let told = python.args(["-c", script]).output()?;
    let text = String::from_utf8(told.stdout)?;
    text.trim().parse().context("no page faults were told")
}

/// KiB that are the process's own (proc(5)), of a program that a shell starts.
fn private_memory(mut sh: Command) -> anyhow::Result<f64> {
    let told = sh.args(["-c", "cat /proc/self/smaps_rollup; :"]);
    let text = String::from_utf8(told.output()?.stdout)?;
    text.lines()
        .find_map(|line| line.strip_prefix("Private_Dirty:"))
        .and_then(|line| line.split_whitespace().next())
        .context("no private memory in /proc/self/smaps_rollup")?
        .parse()
        .context("private memory")
}
