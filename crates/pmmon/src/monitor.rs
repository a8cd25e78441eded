//! A monitor: it finds processes, their threads and their persistent memory, follows them with a
//! backend, and tells what happens as [`Event`]s.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, ErrorKind};
use std::ops::Range;
use std::time::{Duration, Instant};

use crate::regions::Region;
use crate::{Event, Lacking, Sampler, Thread, Tid, proc};

/// How often tasks and children are looked for.
const TASKS_EVERY: Duration = Duration::from_millis(10);
/// How often mappings, and with [`Wanted::All`] processes, are looked for.
const REGIONS_EVERY: Duration = Duration::from_millis(250);

/// For this time a process without persistent memory is looked at as often as its tasks are.
const YOUNG: Duration = Duration::from_secs(2);

/// The processes to look at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// These, and those they start.
    Pids(Vec<u32>),
    /// All that have persistent memory mapped.
    All,
}

/// Persistent memory and code of a process.
pub type Found = (Vec<Region>, Vec<Region>);

/// The monitor.
pub struct Monitor<S, F> {
    sampler: S,
    find: F,
    wanted: Wanted,
    processes: BTreeMap<u32, Process>,
    /// Processes that are not looked at again: start times, since numbers are used anew.
    refused: BTreeMap<u32, u64>,
    tasks_at: Option<Instant>,
    regions_at: Option<Instant>,
    began_ns: u64,
    now_ns: u64,
}

#[derive(Debug)]
struct Process {
    start_ns: u64,
    image: (u64, u64),
    threads: BTreeSet<Tid>,
    found: Found,
    is_told: bool,
    /// When this image was first seen: a young one maps its files soon.
    image_at: Instant,
}

impl<S: Sampler, F: FnMut(u32) -> io::Result<Found>> Monitor<S, F> {
    /// A monitor that has looked at nothing yet. `find` tells the persistent memory and the code of
    /// a process.
    pub fn new(sampler: S, wanted: Wanted, find: F) -> Self {
        Self {
            sampler,
            find,
            wanted,
            processes: BTreeMap::new(),
            refused: BTreeMap::new(),
            tasks_at: None,
            regions_at: None,
            // A process that was started later was not running before.
            began_ns: proc::stat(std::process::id()).map_or(0, |stat| stat.start_ns),
            now_ns: 0,
        }
    }

    /// The first event.
    pub fn begin(&self, trap_ns: f64, time_ns: u64) -> Event {
        let what = self.sampler.what();
        Event::Begin {
            schema: crate::event::SCHEMA,
            backend: what.backend.to_owned(),
            reads: what.reads,
            counts: what.counts,
            trap_ns,
            time_ns,
        }
    }

    /// Processes are there that are looked at.
    pub fn is_busy(&self) -> bool {
        !self.processes.is_empty()
    }

    /// Looks after processes if it is time to, and appends what has happened. Call it every few
    /// milliseconds.
    pub fn step(&mut self, time_ns: u64, to: &mut Vec<Event>) {
        self.now_ns = time_ns;
        let is_due = |at: Option<Instant>, every| at.is_none_or(|at| at.elapsed() >= every);
        let regions = is_due(self.regions_at, REGIONS_EVERY);
        if regions || is_due(self.tasks_at, TASKS_EVERY) {
            self.tasks_at = Some(Instant::now());
            if regions {
                self.regions_at = self.tasks_at;
            }
            self.look(regions, to);
        }
        self.drain(to);
    }

    /// Leaves all, and appends what they did last.
    pub fn end(&mut self, time_ns: u64, to: &mut Vec<Event>) {
        self.now_ns = time_ns;
        for (_, process) in std::mem::take(&mut self.processes) {
            self.leave(process.threads, to);
        }
        self.drain(to);
        to.push(Event::End { time_ns });
    }

    /// Leaves threads. Their last accesses are told before their numbers may come again.
    fn leave(&mut self, threads: BTreeSet<Tid>, to: &mut Vec<Event>) {
        if threads.is_empty() {
            return;
        }
        for tid in threads {
            self.sampler.leave(tid);
        }
        self.drain(to);
    }

    fn drain(&mut self, to: &mut Vec<Event>) {
        let mut samples = Vec::new();
        let drained = self.sampler.drain(&mut samples);
        if !samples.is_empty() || drained != crate::Drained::default() {
            to.push(Event::Batch {
                time_ns: self.now_ns,
                samples,
                drained,
            });
        }
    }

    /// One look: who is there, who is new, who has gone.
    fn look(&mut self, regions: bool, to: &mut Vec<Event>) {
        for pid in self.candidates(regions) {
            if !self.processes.contains_key(&pid) {
                self.meet(pid, to);
            }
        }
        let pids: Vec<u32> = self.processes.keys().copied().collect();
        for pid in pids {
            self.look_at(pid, regions, to);
        }
    }

    fn candidates(&self, regions: bool) -> Vec<u32> {
        match &self.wanted {
            Wanted::All if regions => {
                let own = std::process::id();
                let all = proc::all().unwrap_or_default();
                all.into_iter().filter(|pid| *pid != own).collect()
            }
            Wanted::All => Vec::new(),
            Wanted::Pids(pids) => {
                let known = self.processes.keys();
                let children = known.flat_map(|pid| proc::children(*pid));
                pids.iter().copied().chain(children).collect()
            }
        }
    }

    /// Begins to look at a process.
    fn meet(&mut self, pid: u32, to: &mut Vec<Event>) {
        let Ok(stat) = proc::stat(pid) else { return };
        if stat.is_zombie || self.refused.get(&pid) == Some(&stat.start_ns) {
            return;
        }
        let process = Process {
            start_ns: stat.start_ns,
            image: stat.image,
            threads: BTreeSet::new(),
            found: Found::default(),
            is_told: false,
            image_at: Instant::now(),
        };
        self.processes.insert(pid, process);
        if matches!(self.wanted, Wanted::Pids(_)) {
            self.tell(pid, to);
        }
        self.map(pid, to);
    }

    fn tell(&mut self, pid: u32, to: &mut Vec<Event>) {
        let Some(process) = self.processes.get_mut(&pid) else {
            return;
        };
        if std::mem::replace(&mut process.is_told, true) {
            return;
        }
        to.push(Event::Process {
            pid,
            start_ns: process.start_ns,
            command: proc::stat(pid).map_or_else(|_| String::new(), |stat| stat.command),
            inner_pid: proc::inner_pid(pid),
            was_running: process.start_ns < self.began_ns,
        });
    }

    /// Looks at a known process: its image, its threads, and its mappings if `regions`.
    fn look_at(&mut self, pid: u32, regions: bool, to: &mut Vec<Event>) {
        let Some(process) = self.processes.get_mut(&pid) else {
            return;
        };
        let now = proc::stat(pid).ok();
        let now = now.filter(|now| now.start_ns == process.start_ns && !now.is_zombie);
        let Some(now) = now else {
            self.forget(pid, to);
            return;
        };
        let is_new = now.image != process.image;
        let is_young = process.image_at.elapsed() < YOUNG && process.found.0.is_empty();
        if is_new {
            // Exec: the kernel has removed the words of the old image.
            process.image = now.image;
            process.image_at = Instant::now();
            process.found = Found::default();
            let threads = std::mem::take(&mut process.threads);
            self.leave(threads, to);
        }
        if regions || is_new || is_young && matches!(self.wanted, Wanted::Pids(_)) {
            self.map(pid, to);
        }
        self.follow(pid, to);
    }

    /// Finds the persistent memory of a process.
    fn map(&mut self, pid: u32, to: &mut Vec<Event>) {
        let found = match (self.find)(pid) {
            Ok(found) => found,
            Err(error) => return self.refuse(pid, &error, to),
        };
        let Some(process) = self.processes.get_mut(&pid) else {
            return;
        };
        if found == process.found {
            return;
        }
        process.found = found.clone();
        let (regions, code) = found;
        let ranges: Vec<Range<u64>> = regions.iter().map(Region::range).collect();
        if ranges.is_empty() {
            let threads = std::mem::take(&mut process.threads);
            return self.leave(threads, to);
        }
        if let Err(error) = self.sampler.regions(pid, &ranges) {
            return self.refuse(pid, &error, to);
        }
        self.tell(pid, to);
        to.push(Event::Regions { pid, regions, code });
    }

    /// Follows new threads, and leaves those that have ended.
    fn follow(&mut self, pid: u32, to: &mut Vec<Event>) {
        let Some(process) = self.processes.get_mut(&pid) else {
            return;
        };
        if process.found.0.is_empty() {
            return;
        }
        let now: BTreeSet<Tid> = proc::threads(pid).unwrap_or_default().into_iter().collect();
        let ended: BTreeSet<Tid> = process.threads.difference(&now).copied().collect();
        process.threads.retain(|tid| now.contains(tid));
        for tid in now {
            if process.threads.contains(&tid) {
                continue;
            }
            match self.sampler.follow(Thread { pid, tid }) {
                Ok(()) => {
                    process.threads.insert(tid);
                    to.push(Event::Thread { pid, tid });
                }
                Err(lacking) if lacking.gone => {}
                Err(lacking) => {
                    self.lack(pid, &lacking, to);
                    break;
                }
            }
        }
        // Last, because a backend forgets a process with its last thread.
        self.leave(ended, to);
    }

    fn forget(&mut self, pid: u32, to: &mut Vec<Event>) {
        let Some(process) = self.processes.remove(&pid) else {
            return;
        };
        self.leave(process.threads, to);
        if process.is_told {
            to.push(Event::Ended { pid });
        }
    }

    /// A process that may not be looked at is told once, unless it only ended meanwhile.
    fn refuse(&mut self, pid: u32, error: &io::Error, to: &mut Vec<Event>) {
        if error.kind() == ErrorKind::NotFound || error.raw_os_error() == Some(3) {
            return self.forget(pid, to);
        }
        let remedy = match error.kind() {
            ErrorKind::PermissionDenied => "run as the same user, or with CAP_SYS_PTRACE",
            _ => "see what /proc shows of the process",
        };
        self.give_up(pid, error.to_string(), remedy, to);
    }

    fn lack(&mut self, pid: u32, lacking: &Lacking, to: &mut Vec<Event>) {
        let cause = format!("{}: {}", lacking.backend, lacking.cause);
        self.give_up(pid, cause, lacking.remedy, to);
    }

    fn give_up(&mut self, pid: u32, cause: String, remedy: &str, to: &mut Vec<Event>) {
        if let Some(process) = self.processes.get(&pid) {
            self.refused.insert(pid, process.start_ns);
        }
        to.push(Event::NotSeen {
            pid,
            cause,
            remedy: remedy.to_owned(),
        });
        let Some(process) = self.processes.remove(&pid) else {
            return;
        };
        // A process of which nothing was seen goes on, as far as is known.
        let was_seen = process.is_told && !process.threads.is_empty();
        self.leave(process.threads, to);
        if was_seen {
            to.push(Event::Ended { pid });
        }
    }
}
