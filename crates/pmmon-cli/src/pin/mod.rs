//! `pmmon pin`: threads that write to persistent memory run on cores of their own.

mod config;
mod journal;
mod number;
mod way;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::Duration;

use journal::Journal;
use number::Plan;
use pm_cli::Failure;
use pmmon::group::{Cores, Place, Specialiser, cores, listed};
use pmmon::{Access, Event, Tid, proc};
use pmmon_cli::commands::{Backend, By, Pin};
use serde::Serialize;
use way::Way;

use crate::session::{Session, now_ns};

/// The time that is meant by "until it ends".
const FOREVER: Duration = Duration::from_secs(1 << 40);
/// How often children of members are looked for.
const CHILDREN_EVERY_NS: u64 = 250_000_000;

/// A thread that came to a group or left all.
#[derive(Serialize)]
struct Moved {
    time_ns: u64,
    pid: u32,
    tid: Tid,
    /// `null` is the thread's own mask.
    group: Option<&'static str>,
    cpus: Option<String>,
}

pub(crate) fn run(arguments: &Pin) -> Result<ExitCode, Failure> {
    if let Some(dir) = &arguments.guard {
        let guarded = journal::guard(dir);
        guarded.map_err(|error| failed(arguments, &error))?;
        return Ok(ExitCode::SUCCESS);
    }
    let Some(config) = &arguments.config else {
        let cause = "pin: no groups are given";
        return Err(Failure::new(cause, "name their file by --config").with_code(2));
    };
    let (mut groups, model) = config::read(config, &online()?)?;
    let plan = Plan::new(arguments, &groups, model)?;
    groups.pm.cores = plan.now();
    let mut look = arguments.look.clone();
    if look.backend == Backend::Auto {
        // A clock finds a writer within milliseconds; a word of many is hit seldom.
        look.backend = Backend::Clock;
    }
    let mut session = Session::open(&look)?;
    let all: Vec<Cores> = plan.all().chain([groups.general.cores.clone()]).collect();
    let journal = journal(arguments, &all).map_err(|error| failed(arguments, &error))?;
    if let Some(error) = look.pid.iter().find_map(|pid| journal.check(*pid).err()) {
        // Nothing is changed yet.
        let _ = journal.end();
        return Err(failed(arguments, &error));
    }
    let guard = guard(&journal).map_err(|error| failed(arguments, &error))?;
    let mut cores = CoresOf {
        specialiser: Specialiser::new(groups, journal),
        plan,
        threads: BTreeMap::new(),
        children_at: 0,
    };
    let time = arguments.seconds.map_or(FOREVER, Duration::from_secs_f64);
    let json = arguments.json;
    let outcome = session.run(time, &mut |events| cores.take(&events, json));
    // Masks are given back whatever has happened.
    let left: Vec<Tid> = cores.specialiser.let_go().collect();
    let (journal, failed_tids) = cores.specialiser.end();
    let ended = journal.end();
    wait(guard);
    ended.map_err(|error| failed(arguments, &error))?;
    for (what, tids) in [
        (
            "left alone, since their program or their cpuset wants other cores",
            left,
        ),
        (
            "could not get their own mask back; see taskset(1)",
            failed_tids,
        ),
    ] {
        if !tids.is_empty() {
            eprintln!("pmmon: threads {tids:?} were {what}");
        }
    }
    outcome.map(|_| ExitCode::SUCCESS)
}

fn failed(arguments: &Pin, error: &io::Error) -> Failure {
    let way_out = match arguments.by {
        By::Affinity => "name a --run-dir that may be written",
        By::Cpuset => "take --by affinity, or run as root where cpusets are mounted",
    };
    Failure::new(format!("pin: {error}"), way_out)
}

/// The cores that are there.
fn online() -> Result<pmmon::group::Cores, Failure> {
    let path = "/sys/devices/system/cpu/online";
    let text = std::fs::read_to_string(path).unwrap_or_default();
    cores(&text).ok_or_else(|| Failure::new(format!("{path}: no list of cores"), "mount sysfs"))
}

fn run_dir(arguments: &Pin) -> PathBuf {
    if let Some(dir) = &arguments.run_dir {
        return dir.clone();
    }
    let user = rustix::process::geteuid();
    match std::env::var_os("XDG_RUNTIME_DIR").filter(|_| !user.is_root()) {
        Some(dir) => PathBuf::from(dir).join("pmmon"),
        None if user.is_root() => PathBuf::from("/run/pmmon"),
        None => PathBuf::from(format!("/tmp/pmmon-{}", user.as_raw())),
    }
}

/// `all` are the sets of cores that may be given.
fn journal(arguments: &Pin, all: &[Cores]) -> io::Result<Journal> {
    Journal::begin(&run_dir(arguments), |name| {
        if arguments.dry_run {
            return Ok(Way::Dry(BTreeMap::new()));
        }
        match arguments.by {
            By::Affinity => Ok(Way::Masks),
            By::Cpuset => Way::cpusets(name, &all.iter().collect::<Vec<_>>()),
        }
    })
}

/// Starts the process that gives masks back if this one is killed.
fn guard(journal: &Journal) -> io::Result<Child> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["pin", "--guard"]).arg(journal.dir());
    // A signal to the foreground of a terminal is not for it.
    command.process_group(0).stdin(Stdio::null());
    command.stdout(Stdio::null()).spawn()
}

/// The guardian ends with the journal.
fn wait(mut guard: Child) {
    let _ = guard.wait();
}

struct CoresOf {
    specialiser: Specialiser<Journal>,
    plan: Plan,
    /// The process of each thread that is followed.
    threads: BTreeMap<Tid, u32>,
    children_at: u64,
}

impl CoresOf {
    /// One look.
    fn take(&mut self, events: &[Event], json: bool) -> Result<(), Failure> {
        let mut seen = BTreeSet::new();
        for event in events {
            match event {
                Event::Thread { pid, tid } => {
                    self.threads.insert(*tid, *pid);
                    self.born(*pid, *tid);
                }
                Event::Batch {
                    samples, drained, ..
                } => {
                    if let Some(adaptive) = &mut self.plan.adaptive {
                        adaptive.add(samples);
                    }
                    let writes = samples.iter();
                    let writes = writes.filter(|sample| sample.access == Access::Write);
                    seen.extend(writes.map(|sample| sample.tid));
                    for tid in &drained.ended {
                        seen.remove(tid);
                        self.threads.remove(tid);
                        if let Some(adaptive) = &mut self.plan.adaptive {
                            adaptive.forget(*tid);
                        }
                        if proc::stat(*tid).is_err() {
                            self.specialiser.forget(*tid);
                        }
                    }
                }
                _ => {}
            }
        }
        let time_ns = now_ns();
        if time_ns >= self.children_at {
            self.children_at = time_ns + CHILDREN_EVERY_NS;
            self.look_for_children();
        }
        let change = self.plan.adaptive.as_mut();
        if let Some(change) = change.and_then(|adaptive| adaptive.look(time_ns)) {
            self.specialiser.set_pm_cores(self.plan.now());
            self.plan.tell(time_ns, &change, json)?;
        }
        for (tid, place) in self.specialiser.look(&seen, time_ns) {
            self.tell(time_ns, tid, place, json)?;
        }
        Ok(())
    }

    /// A thread may have a group's mask from the one that has started it.
    fn born(&mut self, pid: u32, tid: Tid) {
        let parent = proc::stat(pid).map_or(0, |stat| stat.parent);
        let kin = self.threads.iter();
        let kin = kin.filter(|(one, of)| **one != tid && (**of == pid || **of == parent));
        let kin: BTreeSet<Tid> = kin.map(|(one, _)| *one).collect();
        self.specialiser.born(tid, &kin);
    }

    /// Processes that members have started have their masks, even if they map nothing.
    fn look_for_children(&mut self) {
        let pids: BTreeSet<u32> = self.threads.values().copied().collect();
        for child in pids.iter().flat_map(|pid| proc::children(*pid)) {
            for tid in proc::threads(child).unwrap_or_default() {
                self.born(child, tid);
            }
        }
    }

    fn tell(&self, time_ns: u64, tid: Tid, place: Place, json: bool) -> Result<(), Failure> {
        let groups = self.specialiser.groups();
        let (group, cores) = match place {
            Place::Own => (None, None),
            Place::General(_) => (Some("general"), Some(&groups.general.cores)),
            Place::Pm(_) => (Some("pm"), Some(&groups.pm.cores)),
        };
        let moved = Moved {
            time_ns,
            pid: self.threads.get(&tid).copied().unwrap_or(0),
            tid,
            group,
            cpus: cores.map(listed),
        };
        pm_cli::print(json, &moved, |moved| {
            let to = match (&moved.group, &moved.cpus) {
                (Some(group), Some(cpus)) => format!("{group}, cores {cpus}"),
                _ => "its own mask".to_owned(),
            };
            format!("process {}, thread {}: {to}", moved.pid, moved.tid)
        })?;
        Ok(())
    }
}
