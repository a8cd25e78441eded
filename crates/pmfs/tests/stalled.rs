//! Goal: a process that is stopped in the middle of a call holds the others up, and does them no
//! harm: they say whom they wait for, can be killed, and go on when it does; or kill it, if they
//! are told to. Method: processes that stop themselves at a barrier of a call; this program
//! executed again is all of them.

mod scratch;

use pmfs::{Fs, NewNode, OpenOptions, ROOT_INO, Stalled};
use pmfs_admin::Admin;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use scratch::Scratch;

const POOL: &str = "PMFS_TEST_POOL";
const ROLE: &str = "PMFS_TEST_ROLE";

const NODE: NewNode = NewNode {
    mode: 0o644,
    uid: 1,
    gid: 2,
    umask: 0,
};

fn bench() -> Scratch {
    Scratch::new(4 << 20)
}

/// A process of a test; killed when it goes.
struct Role {
    child: Child,
    said: PathBuf,
}

impl Role {
    fn start(bench: &Scratch, role: &str) -> Role {
        let said = bench.dir.path().join(format!("said-by-{role}"));
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "role", "--nocapture"])
            .env(POOL, &bench.path)
            .env(ROLE, role)
            .stdout(Stdio::null())
            .stderr(File::create(&said).unwrap())
            .spawn()
            .unwrap();
        Role { child, said }
    }

    fn said(&self) -> String {
        let mut text = String::new();
        File::open(&self.said)
            .unwrap()
            .read_to_string(&mut text)
            .unwrap();
        text
    }

    fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    fn is_stopped(&self) -> bool {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.child.id())).unwrap();
        stat.rsplit(')')
            .next()
            .unwrap()
            .trim_start()
            .starts_with('T')
    }

    /// The exit code of the process, if it ends in time.
    fn ended(&mut self, within: Duration) -> Option<Option<i32>> {
        let since = Instant::now();
        while since.elapsed() < within {
            if let Some(status) = self.child.try_wait().unwrap() {
                return Some(status.code());
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        None
    }
}

impl Drop for Role {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn until(what: &str, mut well: impl FnMut() -> bool) {
    let since = Instant::now();
    while !well() {
        assert!(since.elapsed() < Duration::from_secs(20), "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Plays the part of a process that another test has started.
#[test]
fn role() {
    let (Ok(pool), Ok(role)) = (std::env::var(POOL), std::env::var(ROLE)) else {
        return;
    };
    let options = OpenOptions {
        stalled: match role.as_str() {
            "killer" => Stalled::Kill,
            _ => Stalled::Wait,
        },
        ..OpenOptions::default()
    };
    let fs = Fs::open(Path::new(&pool), &options).unwrap();
    if role == "threads" {
        pmem::death::end_thread_at(2);
        std::thread::scope(|scope| {
            // A thread that ends so can't be joined.
            std::mem::forget(scope.spawn(|| fs.create(ROOT_INO, b"half", &NODE)));
            std::thread::sleep(Duration::from_millis(200));
            fs.create(ROOT_INO, b"whole", &NODE).unwrap();
            fs.detach().unwrap();
            std::process::exit(0);
        });
    }
    if role == "holder" {
        // Between its undo log and its commit: the directory is locked and half changed.
        pmem::death::stop_at(2);
    }
    fs.create(ROOT_INO, role.as_bytes(), &NODE).unwrap();
    fs.close().unwrap();
}

fn stopped_holder(bench: &Scratch) -> Role {
    let holder = Role::start(bench, "holder");
    until("the holder stops", || holder.is_stopped());
    holder
}

fn names(bench: &Scratch) -> Vec<String> {
    let fs = Fs::open(&bench.path, &OpenOptions::default()).unwrap();
    assert_eq!(fs.check().unwrap().findings, []);
    assert_eq!(fs.details().attached, 1);
    let mut names = Vec::new();
    fs.readdir(ROOT_INO, 0, &mut |entry| {
        names.push(String::from_utf8_lossy(entry.name).into_owned());
        true
    })
    .unwrap();
    fs.close().unwrap();
    names.retain(|name| !name.starts_with('.'));
    names.sort();
    names
}

#[test]
fn waiters_are_told_and_go_on() {
    let bench = bench();
    let mut holder = stopped_holder(&bench);
    let mut patient = Role::start(&bench, "patient");
    let mut doomed = Role::start(&bench, "doomed");
    let named = format!("waiting for process {}", holder.child.id());
    until("they say whom they wait for", || {
        patient.said().contains(&named) && doomed.said().contains(&named)
    });
    // A waiter is held up, and can be killed.
    assert_eq!(patient.ended(Duration::from_millis(200)), None);
    kill_process(doomed.pid(), Signal::KILL).unwrap();
    assert_eq!(doomed.ended(Duration::from_secs(10)), Some(None));
    kill_process(holder.pid(), Signal::CONT).unwrap();
    assert_eq!(
        holder.ended(Duration::from_secs(10)),
        Some(Some(0)),
        "{}",
        holder.said()
    );
    assert_eq!(
        patient.ended(Duration::from_secs(10)),
        Some(Some(0)),
        "{}",
        patient.said()
    );
    assert_eq!(names(&bench), ["holder", "patient"]);
}

/// One that is killed while it is stopped is cleaned up after at once.
#[test]
fn a_stopped_holder_is_killed() {
    let bench = bench();
    let mut holder = stopped_holder(&bench);
    let mut patient = Role::start(&bench, "patient");
    until("it waits", || patient.said().contains("waiting"));
    kill_process(holder.pid(), Signal::KILL).unwrap();
    assert_eq!(holder.ended(Duration::from_secs(5)), Some(None));
    assert_eq!(
        patient.ended(Duration::from_secs(5)),
        Some(Some(0)),
        "{}",
        patient.said()
    );
    assert_eq!(names(&bench), ["patient"]);
}

#[test]
fn a_waiter_that_is_told_to_kill() {
    let bench = bench();
    let mut holder = stopped_holder(&bench);
    let mut killer = Role::start(&bench, "killer");
    assert_eq!(
        killer.ended(Duration::from_secs(20)),
        Some(Some(0)),
        "{}",
        killer.said()
    );
    assert!(
        killer.said().contains("killed process"),
        "{}",
        killer.said()
    );
    assert_eq!(holder.ended(Duration::from_secs(5)), Some(None));
    assert_eq!(names(&bench), ["killer"]);
}

/// A thread that ends in the middle of a call: its process lives, and cleans up after it as soon as
/// it meets what it held.
#[test]
fn a_thread_that_dies_alone() {
    let bench = bench();
    let mut process = Role::start(&bench, "threads");
    let ended = process.ended(Duration::from_secs(20));
    assert_eq!(ended, Some(Some(0)), "{}", process.said());
    let fs = Fs::open(&bench.path, &OpenOptions::default()).unwrap();
    // The process closed the pool, and nothing was left to do.
    assert_eq!(fs.recovery().kind, pmfs::RecoveryKind::None);
    fs.close().unwrap();
    assert_eq!(names(&bench), ["whole"]);
}
