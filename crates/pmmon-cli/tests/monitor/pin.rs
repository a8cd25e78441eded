//! Goal: threads that write are on the cores of writers while they do, and have their own masks
//! after, however `pmmon pin` ends. Method: the program `pmm-writer`, stopped and continued, with a
//! thread whose own mask is one core; masks as the kernel shows them, by each way of giving cores.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use pmmon::group::{Affinity, Cores, cores, listed};
use pmmon::proc;
use pmmon_sys::Masks;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

use super::{Load, output, pmmon, works};

/// The backend is another one by this variable. Emulated machines (`tests/guest.sh`) tick where no
/// access is, so that their clock sees none; `watch` works there.
const BACKEND: &str = "PMMON_PIN_BACKEND";

/// Stores that a clock sees well.
const LOAD: &[&str] = &[
    "--size", "2M", "--total", "64T", "--access", "8", "--order", "random",
];

/// How `pmmon pin` ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    Terminated,
    Killed,
    /// The guardian too: the next start gives masks back.
    BothKilled,
}

/// A writer and a folder with the groups: writers on the last core, others anywhere.
pub(super) struct World {
    pub load: Load,
    dir: TempDir,
    tid: u32,
    own: Cores,
    pm: Cores,
}

impl World {
    /// `None` where nothing can be measured, or nothing can be seen: there is one core.
    pub fn new() -> Option<Self> {
        let mut online = Masks.get(std::process::id()).unwrap();
        let (last, first) = (online.pop_last()?, online.pop_first());
        let Some(first) = first.filter(|_| works("clock")) else {
            eprintln!("skipped: two cores and a clock are needed");
            return None;
        };
        let dir = TempDir::new().unwrap();
        let config = format!(
            "[group.general]\ncpus = \"{first},{last}\"\nexpiry = \"100ms\"\n\
             [group.pm]\ncpus = \"{last}\"\nexpiry = \"200ms\"\nsticky = true\n"
        );
        fs::write(dir.path().join("groups"), config).unwrap();
        let mut load = Load::new(LOAD);
        let pid = load.child.id();
        let tid = proc::threads(pid).unwrap().into_iter().max().unwrap();
        let own = Cores::from([first]);
        Masks.set(tid, &own).unwrap();
        load.go();
        Some(Self {
            load,
            dir,
            tid,
            own,
            pm: Cores::from([last]),
        })
    }

    /// The thread's own mask again, which a cgroup may have taken.
    pub fn set_own(&self) {
        Masks.set(self.tid, &self.own).unwrap();
    }

    fn start(&self, more: &[&str]) -> Child {
        self.command(more).stdout(Stdio::piped()).spawn().unwrap()
    }

    pub fn command(&self, more: &[&str]) -> Command {
        let pid = self.load.child.id().to_string();
        let mut command = pmmon(&["pin", "--pid", &pid, "--json", "--as-pm"]);
        command.arg(self.load.file()).args(more);
        if let Some(backend) = std::env::var_os(BACKEND) {
            command.arg("--backend").arg(backend);
        }
        command.arg("--config").arg(self.dir.path().join("groups"));
        command.arg("--run-dir").arg(self.run_dir());
        command
    }

    pub fn run_dir(&self) -> std::path::PathBuf {
        self.dir.path().join("run")
    }

    fn send(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.load.child), signal).unwrap();
    }

    /// Waits until the thread has a mask.
    fn wait_for(&self, wanted: &Cores, when: &str) {
        wait(when, || Masks.get(self.tid).unwrap() == *wanted);
    }
}

fn wait(what: &str, mut is_so: impl FnMut() -> bool) {
    for _ in 0..2000 {
        if is_so() {
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("not in 20 s: {what}");
}

fn entries(dir: &Path) -> usize {
    fs::read_dir(dir).map_or(0, Iterator::count)
}

/// Cpusets of version 1 can be made by root where they are mounted.
fn cpusets() -> Vec<String> {
    let dirs = fs::read_dir("/sys/fs/cgroup/cpuset").into_iter().flatten();
    let names = dirs.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names
        .filter(|name| name.starts_with("pmmon-pin-"))
        .collect()
}

fn check(by: &str, end: End) {
    let Some(world) = World::new() else { return };
    check_in(&world, by, end, |name| {
        cpusets().iter().any(|one| one.starts_with(name))
    });
}

/// A whole session in which cpusets are made or not, by the beginning of their names.
pub(super) fn check_in(world: &World, by: &str, end: End, is_made: impl Fn(&str) -> bool) {
    let pin = world.start(&["--by", by]);
    let name = format!("pmmon-pin-{}", pin.id());
    let is_made = || is_made(&name);
    world.wait_for(&world.pm, "a writer is on its cores");
    assert_eq!(is_made(), by == "cpuset");
    world.send(Signal::STOP);
    world.wait_for(&world.own, "who does not write has its own mask");
    world.send(Signal::CONT);
    world.wait_for(&world.pm, "it writes again");
    finish(world, pin, end);
    world.wait_for(&world.own, "all is as it was");
    wait("no journal is left", || entries(&world.run_dir()) == 0);
    wait("no cpuset is left", || !is_made());
}

fn finish(world: &World, mut pin: Child, end: End) {
    let guardian = proc::children(pin.id());
    assert_eq!(guardian.len(), 1, "one guardian");
    let guardian_pid = Pid::from_raw(guardian[0].cast_signed()).unwrap();
    if end == End::BothKilled {
        kill_process(guardian_pid, Signal::KILL).unwrap();
    }
    let signal = match end {
        End::Terminated => Signal::TERM,
        End::Killed | End::BothKilled => Signal::KILL,
    };
    kill_process(Pid::from_child(&pin), signal).unwrap();
    let status = pin.wait().unwrap();
    assert_eq!(status.success(), end == End::Terminated, "{status}");
    if end == End::BothKilled {
        assert_eq!(Masks.get(world.tid).unwrap(), world.pm, "nobody is there");
        let next = world.start(&["--dry-run", "--seconds", "0.1"]);
        assert!(next.wait_with_output().unwrap().status.success());
    }
}

#[test]
fn masks_come_back_after_each_end() {
    for end in [End::Terminated, End::Killed, End::BothKilled] {
        check("affinity", end);
    }
}

#[test]
fn cpusets_are_left_after_each_end() {
    let probe = format!("/sys/fs/cgroup/cpuset/pmmon-test-{}", std::process::id());
    if let Err(error) = fs::create_dir(&probe) {
        eprintln!("skipped: cpusets of version 1: {error}");
        return;
    }
    fs::remove_dir(&probe).unwrap();
    for end in [End::Terminated, End::Killed, End::BothKilled] {
        check("cpuset", end);
    }
}

/// Goal: `--dry-run` changes nothing and tells what would be.
#[test]
fn a_dry_run_only_tells() {
    let Some(world) = World::new() else { return };
    let mut pin = world.start(&["--dry-run"]);
    let mut lines = BufReader::new(pin.stdout.take().unwrap()).lines();
    let first: Value = serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();
    assert_eq!(first["tid"], world.tid);
    assert_eq!(first["group"], "pm");
    assert_eq!(
        cores(first["cpus"].as_str().unwrap()),
        Some(world.pm.clone())
    );
    assert_eq!(Masks.get(world.tid).unwrap(), world.own);
    kill_process(Pid::from_child(&pin), Signal::TERM).unwrap();
    assert!(pin.wait().unwrap().success());
    assert_eq!(entries(&world.run_dir()), 0);
}

/// Goal: writers get as many cores as the model says, and lose them when there are fewer writers;
/// all have their own masks in the end. Method: six channels of DRAM take what
/// two threads can store, a second process begins to, and stops.
#[test]
fn the_number_of_cores_follows_the_writers() {
    let Some(world) = World::new() else { return };
    let both: Cores = world.own.union(&world.pm).copied().collect();
    let file = world.dir.path().join("auto");
    let config = format!(
        "[group.general]\ncpus = \"{both}\"\nexpiry = \"100ms\"\n[group.pm]\ncpus = \"{both}\"\n\
         expiry = \"1s\"\nsticky = true\n[model]\nmodules = 6\ndevice = \"dram\"\n",
        both = listed(&both)
    );
    fs::write(&file, config).unwrap();
    // On the other core, so that it shows when it is moved.
    Masks.set(world.tid, &world.pm).unwrap();
    let mut other = Load::new(LOAD);
    let other_tid = proc::threads(other.child.id()).unwrap();
    let other_tid = other_tid.into_iter().max().unwrap();
    Masks.set(other_tid, &world.pm).unwrap();
    let pids = [world.load.child.id(), other.child.id()].map(|pid| pid.to_string());
    let mut command = pmmon(&["pin", "--json", "--cores", "auto", "--pid", &pids[0]]);
    command
        .args(["--pid", &pids[1], "--as-pm"])
        .arg(world.load.file());
    command
        .arg("--as-pm")
        .arg(other.file())
        .arg("--config")
        .arg(&file);
    command.arg("--run-dir").arg(world.run_dir());
    if let Some(backend) = std::env::var_os(BACKEND) {
        command.arg("--backend").arg(backend);
    }
    let pin = command.stdout(Stdio::piped()).spawn().unwrap();
    world.wait_for(&world.own, "one writer has the first core");
    other.go();
    let has = |tid: u32, cores: &Cores| Masks.get(tid).unwrap() == *cores;
    wait("two writers have both", || {
        has(world.tid, &both) && has(other_tid, &both)
    });
    kill_process(Pid::from_child(&other.child), Signal::STOP).unwrap();
    world.wait_for(&world.own, "one writer has one core again");
    kill_process(Pid::from_child(&pin), Signal::TERM).unwrap();
    let said = pin.wait_with_output().unwrap();
    assert!(said.status.success(), "{said:?}");
    assert!(has(world.tid, &world.pm) && has(other_tid, &world.pm));
    assert_eq!(entries(&world.run_dir()), 0);
    check_changes(&String::from_utf8(said.stdout).unwrap());
}

/// The number goes up and down by turns, and says why.
fn check_changes(said: &str) {
    let lines = said.lines().map(|line| serde_json::from_str(line).unwrap());
    let changes: Vec<Value> = lines
        .filter(|line: &Value| line["cores"] != Value::Null)
        .collect();
    assert!(changes.len() >= 2, "{said}");
    for (number, change) in changes.iter().enumerate() {
        let (before, cores) = if number % 2 == 0 { (1, 2) } else { (2, 1) };
        assert_eq!(
            (&change["before"], &change["cores"]),
            (&before.into(), &cores.into())
        );
        assert_eq!(change["device"], "dram");
        assert_eq!(change["access"], 8);
        if number % 2 == 0 {
            assert_eq!(change["writers"], 2, "{change}");
            let ratio = change["predicted_gib_s"].as_f64().unwrap()
                / change["predicted_before_gib_s"].as_f64().unwrap();
            assert!((1.5..2.1).contains(&ratio), "{change}");
        }
    }
}

/// Goal: a number of cores that cannot be is answered, and one that can be is kept to. Method: the
/// options, and a dry run.
#[test]
fn numbers_of_cores_are_read() {
    let Some(world) = World::new() else { return };
    for (more, code, says) in [
        (&["--cores", "0"][..], 2, "give auto, or a number from 1 on"),
        (&["--cores", "2"], 2, "give 1 to 1"),
        (&["--cores-min", "1"], 2, "--cores"),
        (&["--cores", "1", "--cores-max", "1"], 2, "or take auto"),
        (&["--cores", "auto"], 1, "the file has no [model]"),
        (&["--cores", "auto", "--cores-max", "9"], 2, "give 1 to 1"),
    ] {
        let run = world.command(more).arg("--dry-run").output().unwrap();
        let said = String::from_utf8_lossy(&run.stderr).into_owned();
        assert_eq!(run.status.code(), Some(code), "{more:?}: {said}");
        assert!(said.contains(says), "{said}");
    }
    let run = world.command(&["--dry-run", "--seconds", "1", "--cores", "1"]);
    let run = { run }.output().unwrap();
    assert!(run.status.success(), "{run:?}");
}

/// Goal: wrong groups get the cause and the way out, and nothing is begun.
#[test]
fn wrong_groups_are_answered() {
    let dir = TempDir::new().unwrap();
    let file = dir.path().join("groups");
    let file = file.to_str().unwrap();
    let run = output(&["pin", "--config", file]);
    assert_eq!(run.status.code(), Some(1), "{run:?}");
    fs::write(file, "[group.general]\ncpus = \"0\"\n").unwrap();
    let run = output(&["pin", "--config", file]);
    let says = String::from_utf8_lossy(&run.stderr).into_owned();
    assert!(
        says.contains("line 1") && says.contains("pin --help"),
        "{says}"
    );
    assert_eq!(output(&["pin"]).status.code(), Some(2));
    assert_eq!(listed(&cores("0-2,5").unwrap()), "0-2,5");
}
