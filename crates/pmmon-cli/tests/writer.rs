//! Goal: `pmm-writer` does what it says, counts it, and refuses what it can not do. Method: the
//! program on files of a temporary folder; its counts beside the file's bytes and calls.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use serde_json::Value;
use tempfile::TempDir;

fn writer(file: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_pmm-writer"));
    command.arg(file).args(arguments).stdin(Stdio::null());
    command
}

fn output(arguments: &[&str]) -> (TempDir, Output) {
    let dir = TempDir::new().unwrap();
    let run = writer(&dir.path().join("load"), arguments).output();
    (dir, run.expect("pmm-writer runs"))
}

fn last(output: &Output) -> Value {
    let text = String::from_utf8_lossy(&output.stdout);
    let line = text.lines().last().unwrap_or_else(|| panic!("{output:?}"));
    serde_json::from_str(line).expect("JSON")
}

fn sum(done: &Value, name: &str) -> u64 {
    let threads = done["threads"].as_array().unwrap();
    threads
        .iter()
        .map(|thread| thread[name].as_u64().unwrap())
        .sum()
}

#[test]
fn totals_are_those_asked_for() {
    for (op, written, read) in [("write", 12288, 0), ("read", 0, 12288), ("mix", 6144, 6144)] {
        for way in [&[][..], &["--jit"][..]] {
            let mut arguments = vec!["--size", "48K", "--total", "96K", "--access", "8"];
            arguments.extend(["--threads", "3", "--op", op, "--order", "random", "--json"]);
            arguments.extend(way);
            let (_dir, run) = output(&arguments);
            assert!(run.status.success(), "{run:?}");
            let done = last(&run);
            assert_eq!(sum(&done, "written_accesses"), written, "{op} {way:?}");
            assert_eq!(sum(&done, "read_accesses"), read, "{op} {way:?}");
            assert_eq!(sum(&done, "written_bytes"), written * 8);
            assert_eq!(done["threads"].as_array().unwrap().len(), 3);
            let map = format!("/tmp/perf-{}.map", done["pid"]);
            assert_eq!(fs::remove_file(map).is_ok(), !way.is_empty());
        }
    }
}

/// The one way in which the file shows the stores: the bytes that pwrite leaves, and the length.
#[test]
fn calls_write_the_file() {
    let (dir, run) = output(&[
        "--size", "64K", "--total", "32K", "--access", "256", "--calls", "pwrite", "--json",
    ]);
    assert_eq!(last(&run)["way"], "call");
    let bytes = fs::read(dir.path().join("load")).unwrap();
    assert_eq!(bytes.len(), 64 << 10);
    assert!(bytes[..32 << 10].iter().all(|byte| *byte == 0x5a));
    assert!(bytes[32 << 10..].iter().all(|byte| *byte == 0));
}

#[test]
fn what_cannot_be_is_refused() {
    for (arguments, says) in [
        (&["--access", "3"][..], "no such size"),
        (&["--access", "64", "--total", "100"][..], "not a multiple"),
        (&["--size", "0"][..], "not a multiple"),
        (&["--size", "8G"][..], "more than 4G"),
        (&["--rate", "0"][..], "--rate 0"),
        (
            &["--store", "nt", "--access", "1"][..],
            "no such instruction",
        ),
        (
            &["--store", "nt", "--flush", "clwb"][..],
            "leave --flush out",
        ),
        (&["--jit", "--access", "64"][..], "--jit"),
        (&["--order", "zipf:x"][..], "zipf:EXPONENT"),
        (&["--calls", "pwrite", "--op", "read"][..], "only writes"),
        (&["--threads", "0"][..], "0 is not in"),
    ] {
        let (_dir, run) = output(arguments);
        let text = String::from_utf8_lossy(&run.stderr).into_owned();
        assert_eq!(run.status.code(), Some(2), "{arguments:?}: {text}");
        assert!(text.contains(says), "{arguments:?}: {text}");
    }
    let dir = TempDir::new().unwrap();
    let pool = dir.path().join("pool");
    fs::write(&pool, b"PMFSPOOL and more").unwrap();
    let run = writer(&pool, &[]).output().unwrap();
    assert_eq!(run.status.code(), Some(1));
    assert_eq!(fs::read(&pool).unwrap(), b"PMFSPOOL and more");
}

fn started(dir: &Path, counts: &Path) -> Child {
    let mut command = writer(&dir.join("load"), &["--size", "1M", "--total", "256G"]);
    command.args(["--access", "8", "--threads", "2", "--wait", "--json"]);
    command.arg("--counts").arg(counts);
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().expect("pmm-writer starts");
    let mut line = String::new();
    let mut reader = BufReader::new(child.stdout.as_mut().unwrap());
    reader.read_line(&mut line).unwrap();
    let ready: Value = serde_json::from_str(&line).expect("JSON");
    assert_eq!(ready["pid"], child.id());
    child.stdin.take().unwrap().write_all(b"\n").unwrap();
    child
}

/// The counts file: a line a thread.
fn published(counts: &Path) -> Vec<Vec<u64>> {
    let text = fs::read_to_string(counts).unwrap();
    let numbers = |line: &str| {
        line.split_whitespace()
            .map(|word| word.parse().unwrap())
            .collect()
    };
    text.lines().map(numbers).collect()
}

fn kill(child: &Child, signal: rustix::process::Signal) {
    let pid = rustix::process::Pid::from_child(child);
    rustix::process::kill_process(pid, signal).unwrap();
}

/// Goal: a signal ends it with exact counts, which the file has too.
#[test]
fn a_signal_ends_it_with_its_counts() {
    let dir = TempDir::new().unwrap();
    let counts = dir.path().join("counts");
    let child = started(dir.path(), &counts);
    std::thread::sleep(Duration::from_millis(100));
    kill(&child, rustix::process::Signal::TERM);
    let run = child.wait_with_output().unwrap();
    assert!(run.status.success());
    let done = last(&run);
    assert_eq!(done["stopped"], true);
    let lines = published(&counts);
    assert_eq!(lines.len(), 2);
    let in_file: u64 = lines.iter().map(|line| line[2]).sum();
    assert!(in_file > 0);
    assert_eq!(in_file, sum(&done, "written_accesses"));
    assert!(lines.iter().all(|line| line[1] == line[2] * 8));
}

/// Goal: a killed writer leaves whole lines, of batches that are done.
#[test]
fn a_killed_writer_leaves_its_batches() {
    let dir = TempDir::new().unwrap();
    let counts = dir.path().join("counts");
    let mut child = started(dir.path(), &counts);
    std::thread::sleep(Duration::from_millis(100));
    child.kill().unwrap();
    child.wait().unwrap();
    let lines = published(&counts);
    assert_eq!(lines.len(), 2);
    for line in lines {
        assert!(line[2] > 0 && line[2].is_multiple_of(4096), "{line:?}");
    }
}
