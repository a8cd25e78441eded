//! Goal: what `pmmon` tells of a running program is what the program has counted, by thread, live
//! and from a recording; and whoever can not be measured gets a clear answer. Method: the program
//! `pmm-writer` on a file, and `pmmon` beside it.

mod export;
mod matrix;
mod media;
mod pages;
mod perf;
mod pin;
mod screen;
mod spaces;
mod threaded;
mod tutorial;

use std::fs::{self, Permissions};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::OnceLock;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

/// Looks at the backends.
const LOOKS: usize = 8;

/// A writer that waits for the word to begin.
struct Load {
    dir: TempDir,
    child: Child,
}

impl Load {
    fn new(arguments: &[&str]) -> Self {
        Self::maybe(arguments).expect("the CPU has this access")
    }

    /// `None` where the CPU has no such access.
    fn maybe(arguments: &[&str]) -> Option<Self> {
        let dir = TempDir::new().unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_pmm-writer"));
        command.arg(dir.path().join("load")).args(arguments);
        command.args(["--wait", "--json"]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        command.stderr(Stdio::piped());
        let mut child = command.spawn().expect("pmm-writer starts");
        let mut line = String::new();
        let mut reader = BufReader::new(child.stdout.as_mut().unwrap());
        reader.read_line(&mut line).unwrap();
        if line.is_empty() {
            let ended = child.wait_with_output().unwrap();
            let says = String::from_utf8_lossy(&ended.stderr).into_owned();
            assert!(says.contains("no such instruction"), "{says}");
            return None;
        }
        assert!(line.contains("ready"), "{line}");
        Some(Self { dir, child })
    }

    fn file(&self) -> PathBuf {
        self.dir.path().join("load")
    }

    /// Begins, and waits for the end, or asks for it after a time: its counts.
    fn run(mut self, time: Option<Duration>) -> Value {
        self.go();
        if let Some(time) = time {
            std::thread::sleep(time);
            let pid = Pid::from_child(&self.child);
            kill_process(pid, Signal::TERM).unwrap();
        }
        let mut text = String::new();
        let mut stdout = self.child.stdout.take().unwrap();
        stdout.read_to_string(&mut text).unwrap();
        let status = self.child.wait().unwrap();
        let line = text.lines().last();
        let line = line.unwrap_or_else(|| panic!("pmm-writer told nothing: {status}"));
        serde_json::from_str(line).unwrap()
    }

    fn go(&mut self) {
        let mut stdin = self.child.stdin.take().unwrap();
        stdin.write_all(b"\n").unwrap();
    }
}

impl Drop for Load {
    /// A test that fails leaves no load behind.
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn pmmon(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_pmmon"));
    let (name, more) = arguments.split_at(1);
    command.args(name).stdin(Stdio::null());
    if ["record", "top", "export"].contains(&name[0]) {
        // These programs are the test's own.
        command.args(["--backend", "watch"]);
    }
    command.args(more);
    command
}

fn output(arguments: &[&str]) -> Output {
    pmmon(arguments).output().expect("pmmon runs")
}

fn json(output: &Output) -> Value {
    let text = String::from_utf8_lossy(&output.stdout);
    let line = text.lines().last().unwrap_or_else(|| panic!("{output:?}"));
    serde_json::from_str(line).expect("JSON")
}

/// Hardware breakpoints may be missing, as under some hypervisors.
fn works(backend: &str) -> bool {
    // One look may miss stray traps, and a test in which the next one finds them would fail.
    static FOUND: OnceLock<Value> = OnceLock::new();
    let found = FOUND.get_or_init(|| {
        let looks = (0..LOOKS).map(|_| json(&output(&["doctor", "--json"])));
        let mut looks: Vec<Value> = looks.collect();
        let lacking = looks.iter().position(|found| found[0]["works"] == false);
        looks.swap_remove(lacking.unwrap_or(0))
    });
    let all = found.as_array().unwrap();
    let works = all
        .iter()
        .any(|one| one["backend"] == backend && one["works"] == true);
    if !works {
        eprintln!("skipped: {backend}: {found}");
    }
    works
}

/// A load that was recorded from its beginning: its counts, and the recording.
fn recorded(load: Load, more: &[&str]) -> (Value, TempDir, PathBuf) {
    recorded_for(load, more, None)
}

fn recorded_for(load: Load, more: &[&str], time: Option<Duration>) -> (Value, TempDir, PathBuf) {
    let dir = TempDir::new().unwrap();
    let to = dir.path().join("recording");
    let pid = load.child.id().to_string();
    let file = load.file();
    let mut monitor = pmmon(&["record", "--pid", &pid, "--as-pm"]);
    monitor.arg(&file).arg("-o").arg(&to).args(more);
    let monitor = monitor.stderr(Stdio::piped()).spawn().unwrap();
    wait_for(&to, "\"event\":\"thread\"");
    let truth = load.run(time);
    let ended = monitor.wait_with_output().unwrap();
    assert!(ended.status.success(), "{ended:?}");
    (truth, dir, to)
}

/// Waits until a recording has an event.
fn wait_for(file: &Path, event: &str) {
    for _ in 0..1000 {
        if fs::read_to_string(file).is_ok_and(|text| text.contains(event)) {
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("no {event} in 10 s");
}

fn report(recording: &Path, by: &str) -> Value {
    let path = recording.to_str().unwrap();
    json(&output(&["report", path, "--by", by, "--json"]))
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("{value}"))
}

/// Five half intervals are no matter of luck.
fn holds(row: &Value, truth: f64) {
    let (low, high) = (number(&row["low"]), number(&row["high"]));
    let slack = 2.0 * (high - low);
    assert!(
        low - slack <= truth && truth <= high + slack && low > 0.0,
        "{row} for {truth}"
    );
}

#[test]
fn a_recording_tells_the_bytes_of_threads() {
    if !works("watch") {
        return;
    }
    let load = Load::new(&[
        "--size",
        "2M",
        "--total",
        "1G",
        "--access",
        "8",
        "--order",
        "random",
        "--threads",
        "2",
        "--rate",
        "512M",
    ]);
    let file = load.file();
    let (truth, _dir, to) = recorded(load, &[]);
    let round = report(&to, "thread");
    assert_eq!(round["backend"][0], "watch");
    let process = &round["processes"][0];
    assert_eq!(process["pid"], truth["pid"]);
    assert_eq!(process["command"], "pmm-writer");
    assert_eq!(process["ended"], true);
    assert!(process["read"].is_null(), "loads are not measured");
    let threads = process["threads"].as_array().unwrap();
    let mut sum = 0.0;
    for counted in truth["threads"].as_array().unwrap() {
        let row = threads
            .iter()
            .find(|row| row["tid"] == counted["tid"])
            .unwrap();
        let bytes = number(&counted["written_bytes"]);
        holds(&row["written"], bytes);
        let sizes = row["written"]["sizes"].as_object().unwrap();
        assert_eq!(sizes.keys().collect::<Vec<_>>(), ["8"]);
        sum += bytes;
    }
    holds(&process["written"], sum);
    let files = report(&to, "file");
    assert_eq!(files["written"].as_array().unwrap().len(), 1);
    assert_eq!(files["written"][0]["name"], file.to_str().unwrap());
    holds(&files["written"][0], sum);
    let sites = report(&to, "site");
    let first = sites["written"][0]["name"].as_str().unwrap();
    assert!(
        first.contains("pmm-writer+0x") && first.ends_with("(8 bytes)"),
        "{first}"
    );
    assert_eq!(report(&to, "size")["written"][0]["name"], "8");
    let text = output(&["report", to.to_str().unwrap()]);
    assert!(
        String::from_utf8_lossy(&text.stdout).contains("+-"),
        "{text:?}"
    );
}

#[test]
fn loads_and_compiled_code_are_seen() {
    if !works("watch") {
        return;
    }
    let load = Load::new(&[
        "--size", "2M", "--total", "512M", "--access", "8", "--order", "random", "--op", "mix",
        "--jit", "--rate", "256M",
    ]);
    let (truth, _dir, to) = recorded(load, &["--reads"]);
    let process = &report(&to, "process")["processes"][0];
    let counted = &truth["threads"][0];
    holds(&process["written"], number(&counted["written_bytes"]));
    holds(&process["read"], number(&counted["read_bytes"]));
    fs::remove_file(format!("/tmp/perf-{}.map", truth["pid"])).unwrap();
}

#[test]
fn the_clock_tells_times_and_no_bytes() {
    if !works("clock") {
        return;
    }
    let load = Load::new(&[
        "--size", "64M", "--total", "1G", "--access", "8", "--order", "random",
    ]);
    let (_truth, _dir, to) = recorded(load, &["--backend", "clock"]);
    let round = report(&to, "thread");
    assert_eq!(round["backend"][0], "clock");
    let process = &round["processes"][0];
    assert!(process["written"].is_null() && process["read"].is_null());
    let writing = &process["time"]["writing"];
    assert!(number(&writing["value"]) > 0.0, "{round}");
    assert!(number(&writing["low"]) < number(&writing["high"]));
    assert_eq!(number(&process["time"]["reading"]["value"]), 0.0);
}

#[test]
fn top_shows_a_round() {
    if !works("watch") {
        return;
    }
    let mut load = Load::new(&[
        "--size", "2M", "--total", "64G", "--access", "8", "--rate", "64M",
    ]);
    load.go();
    // The kernel tells the start of a process in steps of 10 ms; the load's is to be the earlier.
    std::thread::sleep(Duration::from_millis(30));
    let pid = load.child.id().to_string();
    let file = load.file();
    let file = file.to_str().unwrap();
    // Breakpoints may kill a program, and all processes are also those of others.
    for who in [["--pid", &pid], ["--backend", "clock"]] {
        let mut arguments = vec!["top", "--as-pm", file, "--interval", "0.5", "--json"];
        arguments.extend(["--count", "2"]);
        arguments.extend(who);
        let run = output(&arguments);
        let text = String::from_utf8_lossy(&run.stdout).into_owned();
        assert_eq!(text.lines().count(), 2, "{run:?}");
        let round = json(&run);
        let rows = round["processes"].as_array().unwrap();
        let row = rows
            .iter()
            .find(|row| row["pid"] == load.child.id())
            .unwrap();
        let is_measured = who[0] != "--pid" || number(&row["written"]["bytes"]) > 0.0;
        assert!(is_measured, "{row}");
        // The round in which the program was found tells it.
        assert!(text.contains("before the monitor began"), "{text}");
    }
    load.child.kill().unwrap();
    load.child.wait().unwrap();
}

/// Goal: a monitor whose reader was killed ends by itself.
#[test]
fn top_ends_with_its_reader() {
    if !works("clock") {
        return;
    }
    let load = Load::new(&["--size", "2M", "--total", "1G", "--access", "8"]);
    let pid = load.child.id().to_string();
    let mut command = pmmon(&["top", "--backend", "clock", "--json", "--pid", &pid]);
    command.args(["--count", "1000000", "--interval", "0.1"]);
    let mut top = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    let mut reader = BufReader::new(top.stdout.take().unwrap());
    reader.read_line(&mut line).unwrap();
    assert!(line.starts_with('{'), "{line}");
    assert!(top.try_wait().unwrap().is_none());
    drop(reader);
    for _ in 0..2000 {
        if top.try_wait().unwrap().is_some() {
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    top.kill().unwrap();
    panic!("it still runs after 20 s");
}

#[test]
fn a_started_program_gives_its_exit_code() {
    if !works("watch") {
        return;
    }
    let dir = TempDir::new().unwrap();
    let to = dir.path().join("recording");
    let to = to.to_str().unwrap();
    for (program, code) in [("exit 3", 3), ("kill -TERM $$", 143), ("exec true", 0)] {
        let run = output(&["record", "-o", to, "--", "sh", "-c", program]);
        assert_eq!(run.status.code(), Some(code), "{program}: {run:?}");
    }
    let run = output(&["record", "-o", to, "--", "/no/such/program"]);
    assert_eq!(run.status.code(), Some(1), "{run:?}");
}

/// Goal: a process that may not be looked at is told with the way out, and has no figures; 0 is
/// one. Method: the monitor as a user who is nobody, on a process of root's, and on all.
#[test]
fn a_process_of_another_user_has_no_figures() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: who is not root can be nobody else");
        return;
    }
    let load = Load::new(&["--size", "2M", "--total", "64T", "--access", "8"]);
    let pid = load.child.id().to_string();
    // A copy that nobody may run.
    let dir = TempDir::new().unwrap();
    fs::set_permissions(dir.path(), Permissions::from_mode(0o755)).unwrap();
    let program = dir.path().join("pmmon");
    fs::copy(env!("CARGO_BIN_EXE_pmmon"), &program).unwrap();
    for who in [&["--pid", &pid][..], &[]] {
        let mut command = Command::new(&program);
        command.args([
            "top",
            "--json",
            "--backend",
            "clock",
            "--interval",
            "0.3",
            "--count",
            "1",
        ]);
        command.args(who).arg("--as-pm").arg(load.file());
        let run = command.uid(65_534).gid(65_534).output().unwrap();
        assert!(run.status.success(), "{run:?}");
        let round = json(&run);
        let told = round["not_seen"].as_array().unwrap();
        let told = told.iter().find(|one| {
            let pids = one["pids"].as_array().unwrap();
            pids.iter().any(|other| *other == load.child.id())
                && one["cause"].as_str().unwrap().contains("Permission denied")
        });
        let told = told.unwrap_or_else(|| panic!("{round}"));
        assert!(
            told["remedy"].as_str().unwrap().contains("same user"),
            "{told}"
        );
        let rows = round["processes"].as_array().unwrap();
        let row = rows.iter().find(|row| row["pid"] == load.child.id());
        assert_eq!(row.is_some(), !who.is_empty(), "{round}");
        if let Some(row) = row {
            assert!(row["time"].is_null() && row["written"].is_null(), "{row}");
            assert_eq!(row["ended"], false);
        }
    }
}

#[test]
fn what_cannot_be_measured_is_answered() {
    let run = output(&["top", "--backend", "pebs"]);
    assert_eq!(run.status.code(), Some(77), "{run:?}");
    assert!(String::from_utf8_lossy(&run.stderr).contains("pmmon doctor"));
    let run = output(&["top", "--pid", "1073741823"]);
    assert_eq!(run.status.code(), Some(1));
    assert!(
        String::from_utf8_lossy(&run.stderr).contains("name a process"),
        "{run:?}"
    );
    let run = output(&["top", "--interval", "0"]);
    assert_eq!(run.status.code(), Some(2));
    let dir = TempDir::new().unwrap();
    let bad = dir.path().join("bad");
    fs::write(&bad, b"PERFILE2\0\0\0").unwrap();
    let run = output(&["report", bad.to_str().unwrap()]);
    assert_eq!(run.status.code(), Some(1));
    let says = String::from_utf8_lossy(&run.stderr).into_owned();
    assert!(
        says.contains("offset 0") && says.contains("record it again"),
        "{says}"
    );
    let doctor = output(&["doctor"]);
    let text = String::from_utf8_lossy(&doctor.stdout).into_owned();
    assert!(
        ["watch", "clock", "pebs"]
            .iter()
            .all(|name| text.contains(name)),
        "{text}"
    );
}
