//! A run that was killed or interrupted goes on where it was.

use crate::{Bench, text};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

/// The fifth measurement hangs, the first time.
const STEPS: &str = r#"
[steps]
run = """
echo run {what} $(basename {place}) >>$LOG
if [ $(grep -c run $LOG) = 5 ]; then touch $LOG.hangs; sleep 15; fi
echo value 3
"""
"#;

fn until_it_hangs(bench: &Bench) -> Child {
    let mut command = bench.command(&["--rounds", "2"]);
    command.stderr(Stdio::piped()).stdout(Stdio::null());
    let child = command.spawn().expect("it runs");
    let start = Instant::now();
    while !bench.path("log.hangs").exists() {
        assert!(
            start.elapsed() < Duration::from_secs(60),
            "it did not get there"
        );
        std::thread::sleep(Duration::from_millis(10));
    }
    child
}

/// Each measurement has one row, and none is made twice but the one that hung.
fn goes_on(bench: &Bench, before: usize) {
    bench.run(&["--rounds", "2"]);
    let rows = bench.rows();
    assert_eq!(rows.len(), 12, "two points, three targets, two rounds");
    let key =
        |row: &serde_json::Value| format!("{} {} {}", row["point"], row["target"], row["round"]);
    let mut keys: Vec<String> = rows.iter().map(key).collect();
    keys.sort();
    keys.dedup();
    assert_eq!(keys.len(), 12);
    // Control loops of a busy machine are outliers at times: then there are more.
    let ran = bench
        .log()
        .iter()
        .filter(|line| line.starts_with("run"))
        .count();
    assert!(ran > 12, "{ran}");
    assert!(before >= 1, "something had been measured");
}

#[test]
fn killed_it_goes_on() {
    let bench = Bench::new(STEPS);
    let mut child = until_it_hangs(&bench);
    child.kill().unwrap();
    child.wait().unwrap();
    let before = bench.rows();
    goes_on(&bench, before.len());
    assert_eq!(
        bench.rows()[..before.len()],
        before[..],
        "old rows stay as they were"
    );
}

#[test]
fn interrupted_it_takes_down_what_it_made_and_says_how_to_go_on() {
    let bench = Bench::new(STEPS);
    let child = until_it_hangs(&bench);
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(!output.status.success());
    let said = text(&output.stderr);
    assert!(said.contains("--out"), "{said}");
    let down = bench
        .log()
        .iter()
        .filter(|line| line.starts_with("unmount"))
        .count();
    assert_eq!(down, 3);
    let before = bench.rows().len();
    goes_on(&bench, before);
}

#[test]
fn a_quick_run_does_not_go_on_as_a_full_one() {
    let bench = Bench::new("[steps]\nrun = 'echo value 3'");
    bench.run(&["--rounds", "1", "--targets", "a", "--quick"]);
    let output = bench
        .command(&["--rounds", "1", "--targets", "a"])
        .output()
        .unwrap();
    assert!(!output.status.success());
    assert!(text(&output.stderr).contains("take another --out"));
}
