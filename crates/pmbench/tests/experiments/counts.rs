//! Goal: the mixes of `fileset` make the calls that they count. Method: strace counts a run's
//! system calls; each mix deletes, opens and syncs so often in each turn, as its personality says.

use crate::{pmbench, text};
use std::collections::HashMap;
use std::path::Path;
use std::process::Command;

/// Calls that starting and finding the tree again make.
const AROUND: u64 = 30;

/// Names of calls and how often they were made.
type Calls = HashMap<String, u64>;

/// A mix, operations in each of its turns, and calls.
type Mix = (&'static str, u64, &'static [(&'static str, u64)]);

fn fileset(mix: &str, dir: &Path) -> Vec<String> {
    let dir = dir.join(mix).display().to_string();
    let words = ["fileset", "--mix", mix, "--dir", &dir, "--files", "400"];
    let more = ["--threads", "2", "--mean-kib", "8", "--seconds"];
    words.iter().chain(&more).map(|&word| word.into()).collect()
}

/// Operations that it tells, and the calls that strace saw. Nothing without strace.
fn traced(mix: &str, dir: &Path) -> Option<(u64, Calls)> {
    let mut words = fileset(mix, dir);
    words.push("0.3".into());
    let counted = dir.join("counted");
    let mut strace = Command::new("strace");
    // cargo's own, in whose directories the libraries would be looked for one after the other.
    strace.env_remove("LD_LIBRARY_PATH");
    strace.args(["-f", "-c", "-U", "calls,name", "-o"]);
    strace.arg(&counted).arg(env!("CARGO_BIN_EXE_pmbench"));
    let output = strace.args(words).output().ok()?;
    assert!(output.status.success(), "{}", text(&output.stderr));
    let told: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let table = std::fs::read_to_string(counted).expect("strace's table");
    let call = |line: &str| {
        let (count, name) = line.trim().split_once(' ')?;
        Some((name.trim().to_owned(), count.parse().ok()?))
    };
    let operations = told["operations"].as_u64().expect("a count");
    Some((operations, table.lines().filter_map(call).collect()))
}

#[test]
fn operations_are_the_calls_that_the_kernel_saw() {
    let mixes: [Mix; 4] = [
        ("varmail", 13, &[("unlink", 1), ("openat", 3), ("fsync", 2)]),
        ("fileserver", 11, &[("unlink", 1), ("openat", 3)]),
        (
            "webproxy",
            20,
            &[("unlink", 1), ("openat", 6), ("write", 2)],
        ),
        ("webserver", 31, &[("openat", 10), ("write", 1)]),
    ];
    let place = tempfile::tempdir().expect("a directory");
    for (mix, operations_a_turn, calls_a_turn) in mixes {
        let mut words = fileset(mix, place.path());
        words.push("0".into());
        let made = pmbench(&[]).args(&words).output().expect("it runs");
        assert!(made.status.success(), "{}", text(&made.stderr));
        let Some((operations, calls)) = traced(mix, place.path()) else {
            println!("skipped: strace is missing");
            return;
        };
        assert_eq!(operations % operations_a_turn, 0, "{mix}");
        let turns = operations / operations_a_turn;
        assert!(turns > 20, "{mix} made {turns} turns");
        for (name, each) in calls_a_turn {
            let (seen, wanted) = (calls.get(*name).copied().unwrap_or(0), each * turns);
            assert!(
                (wanted..=wanted + AROUND).contains(&seen),
                "{mix}: {seen} of {name}, {wanted} were counted"
            );
        }
    }
}
