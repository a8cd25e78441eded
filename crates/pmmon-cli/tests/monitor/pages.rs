//! Goal: pages that a program writes by its mapping are told in the round in which it did, if it
//! asks for it, and else it is said that they are not. Method: a writer that waits, writes to all
//! pages, and is stopped, and one that does not ask.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use super::{Load, output, pmmon, works};

const MONITOR: &str = env!("CARGO_BIN_EXE_pmmon");
const PAGES: u64 = 20;
const LOAD: &[&str] = &[
    "--size", "80K", "--total", "64T", "--access", "8", "--order", "random",
];

/// Reads rounds until one has so many written pages.
fn wait_for(lines: &mut impl Iterator<Item = Value>, pages: u64) -> Value {
    let found = lines.take(60).find(|round| {
        let file = &round["processes"][0]["files"][0];
        file["written_pages"] == pages
    });
    found.unwrap_or_else(|| panic!("no round with {pages} written pages"))
}

fn send(load: &Load, signal: Signal) {
    kill_process(Pid::from_child(&load.child), signal).unwrap();
}

fn end(mut child: Child) {
    kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
    assert!(child.wait().unwrap().success());
}

#[test]
fn written_pages_are_told_by_round() {
    if !works("pages") {
        return check_refusal(&mut pmmon(&["top", "--backend", "pages", "--count", "1"]));
    }
    let mut load = Load::new(&[LOAD, &["--pages"]].concat());
    let silent = Load::new(LOAD);
    let pids = [&load, &silent].map(|load| load.child.id().to_string());
    let mut command = pmmon(&["top", "--backend", "pages", "--json", "--interval", "0.3"]);
    command.args(["--pid", &pids[0], "--pid", &pids[1]]);
    command
        .arg("--as-pm")
        .arg(load.file())
        .arg("--as-pm")
        .arg(silent.file());
    let mut top = command.stdout(Stdio::piped()).spawn().unwrap();
    let lines = BufReader::new(top.stdout.take().unwrap()).lines();
    let mut rounds = lines.map(|line| serde_json::from_str::<Value>(&line.unwrap()).unwrap());
    let first = wait_for(&mut rounds, 0);
    assert_eq!(first["backend"][0], "pages");
    assert_eq!(first["page_bytes"], 4096);
    assert_eq!(first["processes"][0]["pid"], load.child.id());
    assert_eq!(first["processes"][0]["files"][0]["tracked_pages"], PAGES);
    assert_eq!(first["not_seen"][0]["pid"], silent.child.id());
    let says = first["not_seen"][0]["remedy"].as_str().unwrap();
    assert!(says.contains("--pages"), "{says}");
    load.go();
    wait_for(&mut rounds, PAGES);
    send(&load, Signal::STOP);
    let last = wait_for(&mut rounds, 0);
    let sum = last["processes"][0]["files"][0]["sum_pages"].as_u64();
    assert!(sum.is_some_and(|sum| sum >= PAGES), "{last}");
    end(top);
}

/// The answer of kernels without the tracking, as Debian's 6.1 is.
fn check_refusal(command: &mut Command) {
    let run = command.output().unwrap();
    let said = String::from_utf8_lossy(&run.stderr).into_owned();
    assert_eq!(run.status.code(), Some(77), "{said}");
    assert!(said.contains("or take watch"), "{said}");
}

/// Goal: where the kernel does not track pages, the answer is 77 and a way out. Method: strace
/// gives the answers of older kernels and of filters.
#[test]
fn kernels_without_it_are_told() {
    let strace = Command::new("strace").arg("-V").output();
    if let Err(error) = strace {
        eprintln!("skipped: strace: {error}");
        return;
    }
    for error in ["ENOSYS", "EPERM"] {
        let mut command = Command::new("strace");
        command.args(["-qq", "-o", "/dev/null", "-e", "trace=userfaultfd", "-e"]);
        command.arg(format!("inject=userfaultfd:error={error}"));
        command.arg(MONITOR);
        command.args(["top", "--backend", "pages", "--count", "1"]);
        check_refusal(&mut command);
    }
}

/// Goal: what the backend can not tell is refused, and not left out. Method: options and commands.
#[test]
fn pages_tell_no_threads() {
    for (command, says) in [
        (
            &["top", "--backend", "pages", "--threads"][..],
            "leave --threads",
        ),
        (
            &["record", "--backend", "pages", "-o", "/dev/null"],
            "take `pmmon top --backend pages`",
        ),
        (
            &["export", "--backend", "pages", "--listen", "127.0.0.1:0"],
            "take `pmmon top --backend pages`",
        ),
    ] {
        let run = output(command);
        let said = String::from_utf8_lossy(&run.stderr).into_owned();
        assert_eq!(run.status.code(), Some(2), "{command:?}: {said}");
        assert!(said.contains(says), "{said}");
    }
}
