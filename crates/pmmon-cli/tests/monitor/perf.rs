//! Goal: `pmmon report` reads files of perf as `perf script` does, sample by sample. Method: files
//! that the kernel makes of events which need no PMU, by perf with different options, and the same
//! fields of each sample by both.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;
use tempfile::TempDir;

use super::output;

/// Options of `perf record`, one row a file.
const RECORDED: &[&[&str]] = &[
    &["-e", "page-faults", "-d", "-c", "1"],
    &["-e", "page-faults", "-d", "-c", "3"],
    &["-e", "page-faults", "-d", "-F", "500"],
    &["-e", "page-faults", "-c", "1", "-g"],
    &["-e", "cpu-clock", "-F", "2000"],
    &["-e", "cpu-clock:u", "-c", "500000"],
    &["-e", "task-clock:u", "-c", "500000", "-d"],
    &["-e", "cpu-clock,page-faults", "-d", "-F", "1000"],
    &["-e", "minor-faults,context-switches,cpu-clock", "-c", "10"],
    &["-e", "cpu-clock", "-a", "-F", "500"],
    &["-e", "page-faults", "-d", "-c", "1", "-a"],
    &["-e", "page-faults", "-d", "-c", "1", "-s", "-T"],
    &["-e", "page-faults", "-c", "1", "--intr-regs=ax,bx"],
];

/// Work that faults, switches and computes.
const PROGRAM: &str = "i=0; while [ $i -lt 3000 ]; do i=$((i+1)); done; ls / >/dev/null";

/// A sample's fields as both tell them.
type Fields = (u64, u64, u64, Option<u64>, u64);

fn perf(arguments: &[&str]) -> Option<std::process::Output> {
    let mut command = Command::new("perf");
    command.args(arguments).stdin(Stdio::null());
    command.output().ok()
}

fn recorded(dir: &Path, number: usize, options: &[&str]) -> Option<PathBuf> {
    let file = dir.join(number.to_string());
    let mut arguments = vec!["record", "-q", "-o", file.to_str().unwrap()];
    arguments.extend(options);
    arguments.extend(["--", "sh", "-c", PROGRAM]);
    let run = perf(&arguments)?;
    if !run.status.success() {
        eprintln!("skipped: perf record {options:?}: {run:?}");
        return None;
    }
    Some(file)
}

/// The samples of `perf script`: thread, time, period, address, instruction.
fn by_perf(file: &Path, has_address: bool) -> Vec<Fields> {
    let fields = match has_address {
        true => "tid,time,period,addr,ip",
        false => "tid,time,period,ip",
    };
    let file = file.to_str().unwrap();
    // Without the chain of calls, each sample is a line.
    let run = perf(&["script", "-i", file, "-F", fields, "--ns", "-G"]).unwrap();
    assert!(run.status.success(), "{run:?}");
    let text = String::from_utf8(run.stdout).unwrap();
    let lines = text.lines().filter(|line| !line.trim().is_empty());
    lines.map(|line| fields_of(line, has_address)).collect()
}

fn fields_of(line: &str, has_address: bool) -> Fields {
    let words: Vec<&str> = line.split_whitespace().collect();
    let hexadecimal = |at: usize| u64::from_str_radix(words[at], 16).unwrap();
    let (seconds, nanoseconds) = words[1].trim_end_matches(':').split_once('.').unwrap();
    let number = |text: &str| text.parse::<u64>().unwrap();
    let time_ns = number(seconds) * 1_000_000_000 + number(nanoseconds);
    let address = has_address.then(|| hexadecimal(3));
    let ip = hexadecimal(words.len() - 1);
    (number(words[0]), time_ns, number(words[2]), address, ip)
}

fn by_pmmon(file: &Path, has_address: bool) -> Vec<Fields> {
    let run = output(&["report", file.to_str().unwrap(), "--by", "sample", "--json"]);
    assert!(run.status.success(), "{run:?}");
    let text = String::from_utf8(run.stdout).unwrap();
    let line = |line: &str| {
        let one: Value = serde_json::from_str(line).unwrap();
        let field = |name: &str| one[name].as_u64();
        (
            field("tid").unwrap(),
            field("time_ns").unwrap(),
            field("period").unwrap(),
            field("address").filter(|_| has_address),
            field("ip").unwrap(),
        )
    };
    text.lines().map(line).collect()
}

#[test]
fn samples_are_those_of_perf_script() {
    if perf(&["--version"]).is_none() {
        eprintln!("skipped: perf is not installed (linux-perf)");
        return;
    }
    let dir = TempDir::new().unwrap();
    let (mut files, mut samples) = (0, 0);
    for (number, options) in RECORDED.iter().enumerate() {
        let Some(file) = recorded(dir.path(), number, options) else {
            continue;
        };
        let has_address = options.contains(&"-d");
        let (mut ours, mut theirs) = (by_pmmon(&file, has_address), by_perf(&file, has_address));
        assert!(!ours.is_empty(), "{options:?}");
        // Two processors may have samples of one time, whose order is nobody's.
        ours.sort_by_key(|one| (one.1, one.0, one.4));
        theirs.sort_by_key(|one| (one.1, one.0, one.4));
        assert_eq!(ours, theirs, "{options:?}");
        files += 1;
        samples += ours.len();
        let table = output(&["report", file.to_str().unwrap(), "--by", "thread", "--json"]);
        let table: Value = serde_json::from_slice(&table.stdout).unwrap();
        let rows = table["rows"].as_array().unwrap();
        let counted: u64 = rows
            .iter()
            .map(|row| row["samples"].as_u64().unwrap())
            .sum();
        assert_eq!(counted, ours.len() as u64, "{options:?}");
    }
    println!("{samples} samples of {files} files are equal");
    assert!(files >= 12, "{files} files alone were made");
}
