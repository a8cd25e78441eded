//! The backend `engine`: calls on pools by thread, as the processes count them themselves, exactly
//! (docs/adr/0086-counts-by-thread.md).
//!
//! It is no sampler, and a monitor of its own: a program that reaches a pool through a mount has
//! nothing of it mapped, and is known by what the mount counts for its callers.

mod pool;
mod source;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io::{self, ErrorKind};
use std::path::Path;
use std::time::{Duration, Instant};

use pmmon::calls::{Calls, Owner};
use pmmon::ledger::{ENGINE, are_others, others_of};
use pmmon::{Drained, Event, Tid, Wanted, proc};

use crate::Finder;
use pool::{Pool, Seat};
use source::Source;

/// How often slots, tasks and children are looked at.
const LOOK_EVERY: Duration = Duration::from_millis(10);
/// How often mappings of all processes are looked at, for new pools.
const POOLS_EVERY: Duration = Duration::from_millis(250);
/// How often a process that publishes is looked at for another file: it may have run another
/// program.
const FILES_EVERY: Duration = Duration::from_millis(50);

const NOT_WRITABLE: &str = "its pool may not be written, so that it cannot be asked";
const ASK_ELSE: &str = "run as who may write to the pool, or start the program with PMFS_MONITOR=1";

/// The backend.
pub struct Engine {
    wanted: Wanted,
    /// Wanted processes and those they have started, with their numbers in their own namespaces.
    family: BTreeMap<u32, u32>,
    /// Pools to look at; none: all.
    only: Vec<(u64, u64)>,
    finder: Finder,
    pools: Vec<((u64, u64), Pool)>,
    users: BTreeMap<u32, User>,
    sources: Vec<Source>,
    told: BTreeMap<u32, Told>,
    /// Threads of processes in other namespaces, by the process and their numbers there.
    inner: HashMap<(u32, u32), Tid>,
    not_seen: BTreeSet<(u32, &'static str)>,
    looked_at: Option<Instant>,
    is_first_look: bool,
    pools_at: Option<Instant>,
    began_ns: u64,
}

/// A process that has a pool mapped.
struct User {
    start_ns: u64,
    /// Its number in its own namespace.
    inner_pid: u32,
    files_at: Option<Instant>,
}

/// A process that was told.
struct Told {
    start_ns: u64,
    threads: BTreeMap<Tid, Counted>,
    command: String,
}

/// A thread that has made calls.
#[derive(Clone, Copy, Default)]
struct Counted {
    /// When it was started, in ticks; 0: unknown.
    start: u64,
    total: Calls,
    /// That it has ended was told.
    ended: bool,
}

impl Engine {
    /// A monitor that has looked at nothing yet.
    ///
    /// # Errors
    /// A pool that was named is not there.
    pub fn new(wanted: Wanted, pools: &[impl AsRef<Path>]) -> io::Result<Self> {
        let mut finder = Finder::default();
        for pool in pools {
            finder.only(pool.as_ref())?;
        }
        let only = finder.named().to_vec();
        Ok(Self {
            wanted,
            family: BTreeMap::new(),
            only,
            finder,
            pools: Vec::new(),
            users: BTreeMap::new(),
            sources: Vec::new(),
            told: BTreeMap::new(),
            inner: HashMap::new(),
            not_seen: BTreeSet::new(),
            looked_at: None,
            is_first_look: true,
            pools_at: None,
            began_ns: proc::stat(std::process::id()).map_or(0, |stat| stat.start_ns),
        })
    }

    /// The first event.
    #[must_use]
    pub fn begin(&self, time_ns: u64) -> Event {
        Event::Begin {
            schema: pmmon::event::SCHEMA,
            backend: ENGINE.to_owned(),
            reads: true,
            counts: true,
            trap_ns: 0.0,
            time_ns,
        }
    }

    /// Processes are there that are looked at.
    #[must_use]
    pub fn is_busy(&self) -> bool {
        match self.wanted {
            Wanted::All => !self.told.is_empty(),
            Wanted::Pids(_) => !self.family.is_empty(),
        }
    }

    /// Looks after processes if it is time to, and appends what was counted. Call it every
    /// [`STEP`](Engine::STEP).
    pub fn step(&mut self, time_ns: u64, to: &mut Vec<Event>) {
        if is_due(self.looked_at, LOOK_EVERY) {
            self.looked_at = Some(Instant::now());
            self.look(time_ns, to);
        }
        let unseen = self.ask(time_ns, to);
        if unseen.is_empty() {
            return;
        }
        let begins = |pid| unseen.iter().any(|(_, seat)| seat.pid == pid);
        let looked_at = self.find_sources(begins, to);
        for (identity, seat) in unseen {
            let pool = self.pools.iter().find(|(other, _)| *other == identity);
            if let Some((_, pool)) = pool
                && looked_at.contains(&seat.pid)
            {
                // Otherwise it waits in vain, and not for long.
                let _ = pool.has_seen(seat.slot);
            }
        }
    }

    /// The time between steps: a process that begins to publish waits for one.
    pub const STEP: Duration = Duration::from_millis(2);

    /// Appends what was counted last.
    pub fn end(&mut self, time_ns: u64, to: &mut Vec<Event>) {
        self.read(time_ns, to);
        to.push(Event::End { time_ns });
    }

    fn look(&mut self, time_ns: u64, to: &mut Vec<Event>) {
        self.grow_family(to);
        if is_due(self.pools_at, POOLS_EVERY) {
            self.pools_at = Some(Instant::now());
            for pid in proc::all().unwrap_or_default() {
                self.look_for_pools(pid, to);
            }
        }
        let young: Vec<u32> = self.family.keys().copied().collect();
        for pid in young {
            if !self.users.contains_key(&pid) {
                self.look_for_pools(pid, to);
            }
        }
        self.find_sources(|_| false, to);
        self.is_first_look = false;
        self.read(time_ns, to);
        self.rename(to);
        self.leave_ended(time_ns, to);
    }

    /// Adds the children of those that are wanted.
    fn grow_family(&mut self, to: &mut Vec<Event>) {
        let Wanted::Pids(pids) = &self.wanted else {
            return;
        };
        let mut next: Vec<u32> = pids.clone();
        next.extend(self.family.keys().flat_map(|pid| proc::children(*pid)));
        while let Some(pid) = next.pop() {
            let is_told = self.told.contains_key(&pid) || self.family.contains_key(&pid);
            let Ok(stat) = proc::stat(pid) else { continue };
            if is_told || stat.is_zombie {
                continue;
            }
            self.family.insert(pid, proc::inner_pid(pid).unwrap_or(pid));
            self.tell(pid, to);
            next.extend(proc::children(pid));
        }
    }

    fn is_wanted(&self, pid: u32) -> bool {
        matches!(self.wanted, Wanted::All) || self.family.contains_key(&pid)
    }

    /// Opens the pools that a process has mapped.
    fn look_for_pools(&mut self, pid: u32, to: &mut Vec<Event>) {
        if pid == std::process::id() {
            return;
        }
        let found = match self.finder.pools(pid) {
            Ok(found) => found,
            Err(error) => return self.refuse(pid, &error, to),
        };
        if found.is_empty() {
            return;
        }
        for (inode, paths) in found {
            // Most are known already.
            if self.pools.iter().any(|((_, known), _)| *known == inode) {
                continue;
            }
            let opened = Pool::open(inode, &paths);
            if let Ok(pool) = opened
                && let Ok(identity) = pool.identity()
            {
                self.pools.push((identity, pool));
            }
        }
        if let Ok(stat) = proc::stat(pid) {
            let user = User {
                start_ns: stat.start_ns,
                inner_pid: proc::inner_pid(pid).unwrap_or(pid),
                files_at: None,
            };
            self.users.entry(pid).or_insert(user);
        }
    }

    /// Opens the files of users that publish, of those at once that `begin` to, by their numbers in
    /// their own namespaces. Those whose numbers are returned need not wait: their files are open,
    /// or are not for this monitor.
    ///
    /// Counts of before the first look are not told.
    fn find_sources(&mut self, begin: impl Fn(u32) -> bool, to: &mut Vec<Event>) -> BTreeSet<u32> {
        let (mut looked_at, mut failed) = (BTreeSet::new(), Vec::new());
        for (pid, user) in &mut self.users {
            if !begin(user.inner_pid) && !is_due(user.files_at, FILES_EVERY) {
                continue;
            }
            user.files_at = Some(Instant::now());
            let known = |inode| {
                let mut sources = self.sources.iter();
                sources.any(|source| (source.pid, source.inode) == (*pid, inode))
            };
            match source::find(*pid, known) {
                Ok(mut found) => {
                    if self.is_first_look {
                        found.iter_mut().for_each(Source::skip);
                    }
                    self.sources.append(&mut found);
                    looked_at.insert(user.inner_pid);
                }
                Err(error) => {
                    // It would wait for one who may not look at it.
                    if error.kind() == ErrorKind::PermissionDenied {
                        looked_at.insert(user.inner_pid);
                    }
                    failed.push((*pid, error));
                }
            }
        }
        for (pid, error) in failed {
            self.refuse(pid, &error, to);
        }
        let only = &self.only;
        self.sources
            .retain(|source| only.is_empty() || only.contains(&source.pool));
        looked_at
    }

    /// Asks those who are wanted, and all mounts. Those whose counts nobody has opened, and the
    /// pool of each.
    fn ask(&mut self, time_ns: u64, to: &mut Vec<Event>) -> Vec<((u64, u64), Seat)> {
        let all = matches!(self.wanted, Wanted::All);
        let inner: BTreeSet<u32> = self.family.values().copied().collect();
        let known: BTreeSet<u32> = self.users.values().map(|user| user.inner_pid).collect();
        let (mut unseen, mut silent, mut strangers) = (Vec::new(), Vec::new(), Vec::new());
        self.pools.retain(|(identity, pool)| {
            let Ok(seats) = pool.ask(time_ns, |pid| all || inner.contains(&pid)) else {
                return false;
            };
            for seat in seats {
                if !known.contains(&seat.pid) {
                    strangers.push(seat.pid);
                }
                if !seat.is_asked {
                    silent.push(seat.pid);
                }
                if seat.is_unseen && seat.is_of_interest {
                    unseen.push((*identity, seat));
                }
            }
            true
        });
        for pid in strangers {
            // Its number here may be another: the next look at all processes finds it.
            self.look_for_pools(pid, to);
        }
        let users = self.users.iter();
        let users = users.filter(|(_, user)| silent.contains(&user.inner_pid));
        let pids: Vec<u32> = users.map(|(pid, _)| *pid).collect();
        for pid in pids {
            if !self.sources.iter().any(|source| source.pid == pid) {
                self.lack(pid, NOT_WRITABLE, ASK_ELSE, to);
            }
        }
        unseen
    }

    /// Appends what was counted since the last time.
    fn read(&mut self, time_ns: u64, to: &mut Vec<Event>) {
        let mut changed: BTreeMap<Tid, Calls> = BTreeMap::new();
        for at in 0..self.sources.len() {
            let pid = self.sources[at].pid;
            // A line that is being emptied is read at the next step.
            for (owner, more) in self.sources[at].take().unwrap_or_default() {
                let (pid, tid) = self.whose(pid, owner);
                if self.is_wanted(pid) || self.told.contains_key(&pid) {
                    // Others were started at several times, and are one all the same.
                    let start = if are_others(tid) { 0 } else { owner.start };
                    changed.insert(tid, self.credit((pid, tid), start, more, to));
                }
            }
        }
        if !changed.is_empty() {
            let calls = changed.into_iter().collect();
            to.push(Event::Calls { time_ns, calls });
        }
    }

    /// Adds to a thread's totals, which are returned.
    fn credit(
        &mut self,
        (pid, tid): (u32, Tid),
        start: u64,
        more: Calls,
        to: &mut Vec<Event>,
    ) -> Calls {
        self.tell(pid, to);
        let Some(told) = self.told.get_mut(&pid) else {
            return more;
        };
        let known = told.threads.get(&tid).copied();
        let is_same = |known: &Counted| start == 0 || known.start == 0 || known.start == start;
        let known = known.filter(is_same);
        if known.is_none() {
            to.push(Event::Thread { pid, tid });
        }
        let mut thread = known.unwrap_or_default();
        thread.start = thread.start.max(start);
        thread.total = thread.total.plus(more);
        told.threads.insert(tid, thread);
        thread.total
    }

    /// The process and the thread, as seen from here, of a line in the file of a process. Callers
    /// of a mount in another namespace of processes are its own others: they are known by its
    /// numbers alone.
    fn whose(&mut self, pid: u32, owner: Owner) -> (u32, Tid) {
        let others = (pid, others_of(pid));
        let number = owner.number;
        let is_inside = self
            .users
            .get(&pid)
            .is_some_and(|user| user.inner_pid != pid);
        match (number, owner.is_caller, is_inside) {
            (0, ..) | (_, true, true) => others,
            (_, true, false) if owner.process == 0 => others,
            (_, true, false) => (owner.process, number),
            (_, false, false) => (pid, number),
            (_, false, true) => match self.inner(pid, number) {
                Some(tid) => (pid, tid),
                None => others,
            },
        }
    }

    /// The number here of a thread by that in its own namespace.
    fn inner(&mut self, pid: u32, number: u32) -> Option<Tid> {
        if let Some(tid) = self.inner.get(&(pid, number)) {
            return Some(*tid);
        }
        for (inner, tid) in proc::inner_threads(pid) {
            self.inner.insert((pid, inner), tid);
        }
        self.inner.get(&(pid, number)).copied()
    }

    fn tell(&mut self, pid: u32, to: &mut Vec<Event>) {
        if self.told.contains_key(&pid) {
            return;
        }
        let stat = proc::stat(pid).ok();
        let told = Told {
            start_ns: stat.as_ref().map_or(0, |stat| stat.start_ns),
            threads: BTreeMap::new(),
            command: stat.map_or_else(String::new, |stat| stat.command),
        };
        to.push(self.process(pid, &told));
        self.told.insert(pid, told);
    }

    fn process(&self, pid: u32, told: &Told) -> Event {
        Event::Process {
            pid,
            start_ns: told.start_ns,
            command: told.command.clone(),
            inner_pid: proc::inner_pid(pid),
            was_running: told.start_ns < self.began_ns,
        }
    }

    /// Tells processes that have become other programs.
    fn rename(&mut self, to: &mut Vec<Event>) {
        let mut told = std::mem::take(&mut self.told);
        for (pid, told) in &mut told {
            let now = proc::stat(*pid).ok();
            let now = now.filter(|now| now.start_ns == told.start_ns && !now.is_zombie);
            if let Some(now) = now.filter(|now| now.command != told.command) {
                told.command = now.command;
                to.push(self.process(*pid, told));
            }
        }
        self.told = told;
    }

    /// Forgets processes that have ended, once their last counts were read.
    fn leave_ended(&mut self, time_ns: u64, to: &mut Vec<Event>) {
        let has_ended = |pid: u32, start_ns: u64| {
            let stat = proc::stat(pid);
            !stat.is_ok_and(|stat| !stat.is_zombie && stat.start_ns == start_ns)
        };
        let told = self.told.iter().map(|(pid, told)| (*pid, told.start_ns));
        let users = self.users.iter().map(|(pid, user)| (*pid, user.start_ns));
        let all: BTreeMap<u32, u64> = told.chain(users).collect();
        let ended = all.into_iter();
        let ended: Vec<u32> = ended
            .filter(|(pid, start_ns)| has_ended(*pid, *start_ns))
            .map(|(pid, _)| pid)
            .collect();
        self.leave_threads(time_ns, to);
        if ended.is_empty() {
            return;
        }
        self.read(time_ns, to);
        for pid in ended {
            self.sources.retain(|source| source.pid != pid);
            self.users.remove(&pid);
            self.inner.retain(|(process, _), _| *process != pid);
            self.family.remove(&pid);
            if self.told.remove(&pid).is_some() {
                to.push(Event::Ended { pid });
            }
        }
    }

    /// Tells which threads have ended, of those that have made calls.
    fn leave_threads(&mut self, time_ns: u64, to: &mut Vec<Event>) {
        let mut ended = Vec::new();
        for (pid, told) in &mut self.told {
            // Their last counts were read at the look before.
            told.threads.retain(|_, thread| !thread.ended);
            if told.threads.keys().all(|tid| are_others(*tid)) {
                continue;
            }
            let now = proc::threads(*pid).unwrap_or_default();
            for (tid, thread) in &mut told.threads {
                let is_there = are_others(*tid) || now.contains(tid);
                if !is_there && !std::mem::replace(&mut thread.ended, true) {
                    ended.push(*tid);
                }
            }
        }
        if !ended.is_empty() {
            self.read(time_ns, to);
            let drained = Drained {
                ended,
                ..Drained::default()
            };
            to.push(Event::Batch {
                time_ns,
                samples: Vec::new(),
                drained,
            });
        }
    }

    /// A wanted process that may not be looked at is told once, unless it only ended meanwhile.
    fn refuse(&mut self, pid: u32, error: &io::Error, to: &mut Vec<Event>) {
        if error.kind() == ErrorKind::PermissionDenied {
            let remedy = "run as the same user, or with CAP_SYS_PTRACE";
            self.lack(pid, "permission denied", remedy, to);
        }
    }

    fn lack(&mut self, pid: u32, cause: &'static str, remedy: &str, to: &mut Vec<Event>) {
        let is_of_interest = self.family.contains_key(&pid) || self.users.contains_key(&pid);
        if is_of_interest && self.not_seen.insert((pid, cause)) {
            to.push(Event::NotSeen {
                pid,
                cause: cause.to_owned(),
                remedy: remedy.to_owned(),
            });
        }
    }
}

fn is_due(at: Option<Instant>, every: Duration) -> bool {
    at.is_none_or(|at| at.elapsed() >= every)
}
