//! `pmfs info --open --locks` and `pmfs top`: who has a pool and what for. The test
//! itself is one who has it.

mod bench;

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;

use bench::{Bench, wait_until};
use pmfs::{Fs, LockClass, LockKind, LockOwner, LockRange, NewNode, OpenOptions, ROOT_INO};
use serde_json::Value;

const NODE: NewNode = NewNode {
    mode: 0o755,
    uid: 1,
    gid: 2,
    umask: 0,
};

const POSIX: LockOwner = LockOwner {
    class: LockClass::Posix,
    id: 0,
};

/// Two instances: one with a file open and locked, one that holds and locks a file
/// without a name. Returns their inodes.
fn two_who_hold(bench: &Bench) -> (Fs, Fs, u64, u64) {
    let open = || Fs::open(&bench.path("pool"), &OpenOptions::default()).unwrap();
    let (fs, other) = (open(), open());
    let dir = fs.mkdir(ROOT_INO, b"dir", &NODE).unwrap().ino;
    let ino = fs.create(dir, b"file", &NODE).unwrap().ino;
    fs.write(ino, 0, &[7; 100_000]).unwrap();
    let file = fs.open_file(ino, 0).unwrap();
    assert_eq!(fs.read_file(file, &mut [0; 1000]).unwrap(), 1000);
    let gone = fs.create(ROOT_INO, b"gone", &NODE).unwrap().ino;
    other.hold(gone).unwrap();
    fs.unlink(ROOT_INO, b"gone").unwrap();
    let range = LockRange { start: 5, end: 9 };
    fs.lock(ino, POSIX, LockKind::Write, range, 4321).unwrap();
    other
        .lock(gone, POSIX, LockKind::Read, LockRange::WHOLE, 0)
        .unwrap();
    (fs, other, ino, gone)
}

#[test]
fn who_has_what() {
    let bench = Bench::pool();
    let text = bench.ok(&["info", "--open", "--locks", "pool"]);
    assert!(text.contains("open        0"));
    let (fs, other, ino, gone) = two_who_hold(&bench);
    let report = bench.json(&["info", "--json", "--open", "--locks", "pool"]);
    let me = u64::from(std::process::id());
    let processes = report["processes"].as_array().unwrap();
    assert_eq!(processes.len(), 2);
    let lives = |process: &Value| process["pid"] == me && process["alive"] == true;
    assert!(processes.iter().all(lives));
    let open = report["open"].as_array().unwrap();
    assert_eq!(open.len(), 2, "{report}");
    assert_eq!(open[0]["path"], "/dir/file");
    assert_eq!(open[0]["offset"], 1000);
    assert_eq!(
        (&open[1]["path"], &open[1]["inode"]),
        (&Value::Null, &gone.into())
    );
    let locks = report["locks"].as_array().unwrap();
    let posix = locks.iter().find(|lock| lock["inode"] == ino).unwrap();
    assert_eq!(
        (&posix["pid"], &posix["class"]),
        (&4321.into(), &"posix".into())
    );
    assert_eq!((&posix["start"], &posix["end"]), (&5.into(), &9.into()));
    let shared = locks.iter().find(|lock| lock["inode"] == gone).unwrap();
    assert_eq!(
        (&shared["kind"], &shared["end"]),
        (&"read".into(), &Value::Null)
    );
    // Nobody has to be told by whom a lock is held to see it.
    assert_eq!(shared["pid"], me);
    let text = bench.ok(&["info", "--open", "--locks", "pool"]);
    assert!(text.contains("/dir/file, at byte 1000") && text.contains("bytes 5 to 9"));
    assert!(bench.json(&["info", "--json", "pool"])["processes"].is_null());

    // One that dies is shown as dead until somebody cleans up.
    drop(other);
    let look = pmfs_admin::Inspector::open(&bench.path("pool")).unwrap();
    let dead = look.processes().iter().filter(|one| !one.is_alive).count();
    assert_eq!(dead, 1);
    assert_eq!(fs.recover_dead().unwrap(), 1);
    assert_eq!(look.processes().len(), 1);
    fs.close().unwrap();
}

#[test]
fn what_they_do() {
    let bench = Bench::pool();
    let fs = Fs::open(&bench.path("pool"), &OpenOptions::default()).unwrap();
    let ino = fs.create(ROOT_INO, b"file", &NODE).unwrap().ino;
    for _ in 0..10 {
        fs.append(ino, &[7; 1000]).unwrap();
    }
    assert_eq!(fs.read(ino, 0, &mut [0; 4096]).unwrap(), 4096);
    fs.getattr(ino).unwrap();
    // Another thread of the process counts too.
    std::thread::scope(|scope| {
        scope.spawn(|| fs.getattr(ino).unwrap());
    });
    // By keys others learn of calls that read 64 at a time, and when their process asks.
    assert_eq!(fs.totals().reads, 3);
    let round = bench.json(&["top", "--json", "--count", "1", "pool"]);
    let totals = &round["processes"][0]["totals"];
    assert_eq!(
        (totals["changes"].as_u64(), totals["reads"].as_u64()),
        (Some(11), Some(3))
    );
    assert_eq!(totals["written_bytes"], 10_000);
    assert_eq!(totals["read_bytes"], 4096);
    assert!(totals["barriers"].as_u64() >= Some(23), "{totals}");
    assert!(totals["logged_bytes"].as_u64() > Some(0), "{totals}");
    assert!(round["processes"][0]["rates"]["changes"].as_f64() > Some(0.0));
    let two = bench.ok(&["top", "--json", "--count", "2", "--interval", "0.1", "pool"]);
    assert_eq!(two.lines().count(), 2);
    let text = bench.ok(&["top", "pool"]);
    assert!(
        text.contains("1 process") && text.contains(&std::process::id().to_string()),
        "{text}"
    );
    fs.close().unwrap();
    assert!(bench.ok(&["top", "pool"]).contains("0 processes"));
}

/// Goal: rounds end with their reader, and an interval that is none is refused. Method: a pipe that
/// is closed after a line.
#[test]
fn rounds_end_with_their_reader() {
    let bench = Bench::pool();
    let mut command = bench.command(&["top", "--json", "--interval", "0", "pool"]);
    let mut top = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    let mut reader = BufReader::new(top.stdout.take().unwrap());
    reader.read_line(&mut line).unwrap();
    assert!(line.starts_with('{'), "{line}");
    drop(reader);
    wait_until("it has ended", || top.try_wait().unwrap().is_some());
    let refused = bench.run(&["top", "--interval", "nan", "pool"]);
    let said = String::from_utf8_lossy(&refused.stderr);
    assert_eq!(refused.status.code(), Some(2), "{said}");
    assert!(said.contains("not a number"), "{said}");
}

/// Ends a thread, also where the test fails.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

/// Goal: with `--mapped` the stores of a process on the pool's mapping are beside its calls, in
/// text and in JSON. Method: this process writes all the time, and the monitor's clock finds that.
#[test]
fn mapped_use_is_beside_calls() {
    let bench = Bench::pool();
    let monitor = Path::new(env!("CARGO_BIN_EXE_pmfs")).with_file_name("pmmon");
    let can_look = Command::new(&monitor).args(["doctor", "--json"]).output();
    let can_look = can_look.map(|run| String::from_utf8_lossy(&run.stdout).into_owned());
    if !can_look
        .as_ref()
        .is_ok_and(|told| told.contains(r#""clock","works":true"#))
    {
        eprintln!("skipped: {}: {can_look:?}", monitor.display());
        return;
    }
    let fs = Fs::open(&bench.path("pool"), &OpenOptions::default()).unwrap();
    let ino = fs.create(ROOT_INO, b"file", &NODE).unwrap().ino;
    let (stop, me) = (AtomicBool::new(false), u64::from(std::process::id()));
    thread::scope(|scope| {
        let _stop = Stop(&stop);
        scope.spawn(|| {
            while !stop.load(Relaxed) {
                fs.write(ino, 0, &[7; 1 << 20]).unwrap();
            }
        });
        let mut arguments = vec![
            "top",
            "--json",
            "--mapped=clock",
            "--interval",
            "0.3",
            "pool",
        ];
        arguments.extend(["--count", "3"]);
        let rounds = bench.ok(&arguments);
        let text = bench.ok(&["top", "--mapped=clock", "--count", "1", "pool"]);
        let last: Value = serde_json::from_str(rounds.lines().last().unwrap()).unwrap();
        let row = &last["processes"][0];
        assert_eq!(
            (&row["pid"], &row["mapped"]["pid"]),
            (&me.into(), &me.into())
        );
        let time = &row["mapped"]["time"]["writing"];
        assert!(time["value"].as_f64() > Some(0.0), "{last}");
        assert!(
            row["mapped"]["written"].is_null(),
            "a clock tells no bytes: {last}"
        );
        assert_eq!(last["mapped_by"], serde_json::json!(["clock", "engine"]));
        let calls = &row["mapped"]["calls"];
        assert!(calls["written_bytes"].as_u64() >= Some(1 << 20), "{last}");
        assert!(text.contains("thread "), "the writer has a line: {text}");
        assert!(last["mapped_seconds"].as_f64() > Some(0.5), "{last}");
        assert_eq!(last["mapped_by_others"].as_array().unwrap().len(), 0);
        assert!(
            text.contains("MAPPED WRITTEN") && text.contains("% of a core"),
            "{text}"
        );
    });
    fs.close().unwrap();
    let without = bench.json(&["top", "--json", "--count", "1", "pool"]);
    assert!(without["mapped_by"].is_null());
}

/// Goal: without the monitor's program, `--mapped` says what to do, and calls are shown as ever.
#[test]
fn a_missing_monitor_is_told() {
    let bench = Bench::pool();
    let own = bench.path("pmfs");
    fs::copy(env!("CARGO_BIN_EXE_pmfs"), &own).unwrap();
    let top = |more: &[&str]| {
        let mut command = Command::new(&own);
        command.arg("top").arg(bench.path("pool")).args(more);
        command.env("PATH", bench.path("mnt")).output().unwrap()
    };
    let run = top(&["--mapped"]);
    assert_eq!(run.status.code(), Some(1), "{run:?}");
    let says = String::from_utf8_lossy(&run.stderr).into_owned();
    assert!(
        says.contains("pmmon") && says.contains("leave --mapped out"),
        "{says}"
    );
    assert!(top(&[]).status.success());
    assert_eq!(top(&["--mapped=never"]).status.code(), Some(2));
}
