//! Tables of what processes and threads have read and written, from [`Event`]s.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use crate::account::{Account, Figure, Usage};
use crate::calls::Calls;
use crate::media::{self, Media};
use crate::regions::Region;
use crate::{Access, Drained, Event, Exposure, Sample, Tid};

/// The backend whose figures are exact counts of calls.
pub const ENGINE: &str = "engine";

/// The number under which the threads of a process that have none of their own stand together; no
/// thread has it.
#[must_use]
pub fn others_of(pid: u32) -> Tid {
    OTHERS | pid
}

/// Whether a number is that of [`others_of`].
#[must_use]
pub fn are_others(tid: Tid) -> bool {
    tid & OTHERS != 0
}

/// Above all numbers of threads.
const OTHERS: Tid = 1 << 31;

/// The names under which bytes are summed up beside threads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum By {
    /// Nothing else.
    #[default]
    Thread,
    /// The instruction: file and place, and its size.
    Site,
    /// The file.
    File,
}

/// A process in the ledger.
#[derive(Clone, Debug)]
pub struct Process {
    /// Its number.
    pub pid: u32,
    /// When it was started.
    pub start_ns: u64,
    /// The command's name.
    pub command: String,
    /// Its number in its own namespace, if that is another.
    pub inner_pid: Option<u32>,
    /// It has ended.
    pub ended: bool,
    /// Lives of its threads.
    pub threads: Vec<Life>,
    refused: bool,
    regions: Vec<Region>,
    code: Vec<Region>,
}

impl Process {
    /// It may not be looked at, and nothing was seen of it. That is not 0.
    #[must_use]
    pub fn is_refused(&self) -> bool {
        self.refused && self.threads.is_empty()
    }
}

/// A thread's life: numbers of threads are used anew.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Life {
    /// The thread's number.
    pub tid: Tid,
    /// It has ended.
    pub ended: bool,
    number: u32,
}

/// The time of threads that accesses took, in seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Times {
    /// Stores.
    pub writing: Figure,
    /// Loads.
    pub reading: Figure,
}

/// Ticks of a clock that found an access, and the time of one.
#[derive(Clone, Copy, Debug, Default)]
struct Ticks {
    reads: u64,
    writes: u64,
    period_ns: u64,
}

/// The ledger.
#[derive(Debug, Default)]
pub struct Ledger {
    by: By,
    account: Account,
    media: Media,
    processes: Vec<Process>,
    /// The process in `processes` by its number, and the life by the thread's.
    pids: HashMap<u32, usize>,
    tids: HashMap<Tid, (usize, u32)>,
    lives: u32,
    names: Vec<String>,
    tags: HashMap<String, u64>,
    ticks: HashMap<u32, Ticks>,
    /// Counts of calls, by life; `Some` if the backend has them.
    calls: Option<HashMap<u32, Calls>>,
    not_seen: BTreeMap<(String, String), BTreeSet<u32>>,
    /// The backends' names; calls are counted beside the first.
    pub backends: Vec<String>,
    /// Loads are seen.
    pub reads: bool,
    /// Samples tell how many accesses there were, and not only where.
    pub counts: bool,
    /// From the beginning to the last event, in nanoseconds.
    pub time_ns: u64,
    /// `CLOCK_MONOTONIC` at the beginning.
    pub begin_ns: u64,
    /// Samples that the kernel could not deliver.
    pub lost: u64,
    /// Times at which the kernel held samples back.
    pub throttled: u64,
    /// Samples whose instruction could not be decoded.
    pub undecoded: u64,
}

impl Ledger {
    /// An empty ledger.
    #[must_use]
    pub fn new(by: By) -> Self {
        Self {
            by,
            ..Self::default()
        }
    }

    /// Takes an event.
    pub fn take(&mut self, event: &Event) {
        match event {
            Event::Begin { .. } => self.begin(event),
            Event::Process { .. } => self.meet(event),
            Event::Regions { pid, regions, code } => {
                if let Some(process) = self.pids.get(pid).map(|at| &mut self.processes[*at]) {
                    process.regions.clone_from(regions);
                    process.code.clone_from(code);
                }
            }
            Event::Thread { pid, tid } => {
                let Some(at) = self.pids.get(pid).copied() else {
                    return;
                };
                if self.backends.len() > 1 && self.is_alive(*tid, at) {
                    // The other backend has told it.
                    return;
                }
                self.lives += 1;
                self.tids.insert(*tid, (at, self.lives));
                let process = &mut self.processes[at];
                process.threads.push(Life {
                    tid: *tid,
                    ended: process.ended,
                    number: self.lives,
                });
            }
            Event::NotSeen { pid, cause, remedy } => {
                self.not_see(*pid, cause.clone(), remedy.clone());
                if let Some(process) = self.pids.get(pid).map(|at| &mut self.processes[*at]) {
                    process.refused = true;
                }
            }
            Event::Batch {
                time_ns,
                samples,
                drained,
            } => self.batch(*time_ns, samples, drained),
            Event::Calls { time_ns, calls } => {
                self.at(*time_ns);
                for (tid, calls) in calls {
                    if let (Some((_, life)), Some(all)) = (self.tids.get(tid), &mut self.calls) {
                        all.insert(*life, *calls);
                    }
                }
            }
            Event::Ended { pid } => {
                if let Some(at) = self.pids.get(pid) {
                    self.processes[*at].ended = true;
                }
                // Another backend may still tell its last calls.
                if self.backends.len() < 2 {
                    self.pids.remove(pid);
                }
            }
            Event::End { time_ns } => self.at(*time_ns),
        }
    }

    fn begin(&mut self, event: &Event) {
        let Event::Begin {
            backend,
            reads,
            counts,
            trap_ns,
            time_ns,
            ..
        } = event
        else {
            return;
        };
        if backend == ENGINE && !self.backends.is_empty() {
            // Beside the first one, whose figures stay.
            self.backends.push(backend.clone());
            self.calls = Some(HashMap::new());
            return;
        }
        self.backends = vec![backend.clone()];
        (self.reads, self.counts) = (*reads, *counts);
        self.calls = (backend == ENGINE).then(HashMap::new);
        self.account = Account::new(*trap_ns);
        self.media = Media::new(*trap_ns);
        self.begin_ns = *time_ns;
    }

    /// A thread of the process at this place has this number now.
    fn is_alive(&self, tid: Tid, at: usize) -> bool {
        let known = self.tids.get(&tid).filter(|(of, _)| *of == at);
        known.is_some_and(|(_, number)| {
            let mut lives = self.processes[at].threads.iter();
            lives.any(|life| life.number == *number && (!life.ended || self.processes[at].ended))
        })
    }

    /// Calls are all that is measured, exactly.
    #[must_use]
    pub fn is_exact(&self) -> bool {
        self.backends.iter().all(|name| name == ENGINE) && self.calls.is_some()
    }

    /// Says how late it is, by `CLOCK_MONOTONIC`: events may be far between.
    pub fn at(&mut self, time_ns: u64) {
        self.time_ns = time_ns.saturating_sub(self.begin_ns);
    }

    fn not_see(&mut self, pid: u32, cause: String, remedy: String) {
        self.not_seen
            .entry((cause, remedy))
            .or_default()
            .insert(pid);
    }

    fn meet(&mut self, event: &Event) {
        let Event::Process {
            pid,
            start_ns,
            command,
            inner_pid,
            was_running,
        } = event
        else {
            return;
        };
        let known = self.pids.get(pid).map(|at| &mut self.processes[*at]);
        if let Some(known) = known.filter(|known| known.start_ns == *start_ns) {
            // It has become another program.
            known.command.clone_from(command);
            return;
        }
        if *was_running {
            let cause = "accesses before the monitor began".to_owned();
            self.not_see(
                *pid,
                cause,
                "start the program with `pmmon record --`".to_owned(),
            );
        }
        self.pids.insert(*pid, self.processes.len());
        self.processes.push(Process {
            pid: *pid,
            start_ns: *start_ns,
            command: command.clone(),
            inner_pid: *inner_pid,
            ended: false,
            refused: false,
            threads: Vec::new(),
            regions: Vec::new(),
            code: Vec::new(),
        });
    }

    /// Accounts what a sampler has delivered, under the threads' lives.
    fn batch(&mut self, time_ns: u64, samples: &[Sample], drained: &Drained) {
        self.at(time_ns);
        self.lost = self.lost.saturating_add(drained.lost);
        self.throttled = self.throttled.saturating_add(drained.throttled);
        self.undecoded = self.undecoded.saturating_add(drained.undecoded);
        let mut of_lives = Vec::with_capacity(samples.len());
        let mut tags = Vec::with_capacity(samples.len());
        for sample in samples {
            let Some((at, life)) = self.tids.get(&sample.tid).copied() else {
                continue;
            };
            if let Exposure::Time { period_ns } = sample.exposure {
                let ticks = self.ticks.entry(life).or_default();
                ticks.period_ns = period_ns;
                match sample.access {
                    Access::Read => ticks.reads += 1,
                    Access::Write => ticks.writes += 1,
                }
            }
            tags.push(self.tag(at, sample));
            of_lives.push(Sample {
                tid: life,
                ..*sample
            });
        }
        for tid in &drained.ended {
            if let Some((at, number)) = self.tids.get(tid) {
                let mut lives = self.processes[*at].threads.iter_mut();
                if let Some(life) = lives.find(|life| life.number == *number) {
                    life.ended = true;
                }
            }
        }
        let drained = self.renamed(drained);
        let mut tags = tags.into_iter();
        let tag = |_: &Sample| tags.next().flatten();
        self.account.add_tagged(&of_lives, &drained, tag);
        self.media.add(&of_lives, &drained);
    }

    fn renamed(&self, drained: &Drained) -> Drained {
        let life = |tid: &Tid| self.tids.get(tid).map(|(_, life)| *life);
        let mut renamed = drained.clone();
        renamed.arms.retain_mut(|arm| match life(&arm.tid) {
            Some(number) => {
                arm.tid = number;
                true
            }
            None => false,
        });
        let ran = drained.ran.iter();
        renamed.ran = ran
            .filter_map(|(tid, ran)| Some((life(tid)?, *ran)))
            .collect();
        renamed
    }

    /// The number of the name that a sample is also summed up by.
    fn tag(&mut self, at: usize, sample: &Sample) -> Option<u64> {
        let process = &self.processes[at];
        let within = |regions: &[Region], address: u64| {
            let found = regions
                .iter()
                .find(|region| region.range().contains(&address));
            found.map(|region| {
                let offset = (address - region.start).saturating_add(region.offset);
                (region.path.clone(), offset)
            })
        };
        let name = match self.by {
            By::Thread => return None,
            By::File => within(&process.regions, sample.address)?.0,
            By::Site => {
                let place = match within(&process.code, sample.ip) {
                    Some((path, offset)) => format!("{path}+{offset:#x}"),
                    None => format!("{}:{:#x}", process.pid, sample.ip),
                };
                format!("{place} ({} bytes)", sample.bytes)
            }
        };
        let next = self.names.len() as u64;
        let tag = *self.tags.entry(name.clone()).or_insert(next);
        if tag == next {
            self.names.push(name);
        }
        Some(tag)
    }

    /// Forgets processes, with all that is known of their threads.
    pub fn forget(&mut self, mut is_forgotten: impl FnMut(&Process) -> bool) {
        let mut places = Vec::with_capacity(self.processes.len());
        let mut kept = Vec::new();
        for process in std::mem::take(&mut self.processes) {
            if !is_forgotten(&process) {
                places.push(Some(kept.len()));
                kept.push(process);
                continue;
            }
            places.push(None);
            self.forget_lives(&numbers(&process.threads));
        }
        self.processes = kept;
        let place = |at: &mut usize| places[*at].inspect(|new| *at = *new).is_some();
        self.pids.retain(|_, at| place(at));
        self.tids.retain(|_, (at, _)| place(at));
    }

    /// Forgets threads, with all that is known of them: the process has that much less.
    pub fn forget_threads(&mut self, mut is_forgotten: impl FnMut(&Process, &Life) -> bool) {
        let mut lives = Vec::new();
        for process in &mut self.processes {
            let all = std::mem::take(&mut process.threads);
            let (gone, kept) = all
                .into_iter()
                .partition(|life| is_forgotten(process, life));
            process.threads = kept;
            lives.extend(numbers(&gone));
        }
        self.forget_lives(&lives);
        self.tids.retain(|_, (_, life)| !lives.contains(life));
    }

    fn forget_lives(&mut self, lives: &[u32]) {
        self.account.forget(lives);
        self.media.forget(lives);
        for life in lives {
            self.ticks.remove(life);
            if let Some(calls) = &mut self.calls {
                calls.remove(life);
            }
        }
    }

    /// The processes, in the order in which they were met.
    #[must_use]
    pub fn processes(&self) -> &[Process] {
        &self.processes
    }

    /// The parts that are not seen: the cause, the way out, and of which processes.
    pub fn not_seen(&self) -> impl Iterator<Item = (&str, &str, &BTreeSet<u32>)> {
        let of = self.not_seen.iter();
        of.map(|((cause, remedy), pids)| (cause.as_str(), remedy.as_str(), pids))
    }

    /// The usage of threads together. `None` is "not measured".
    #[must_use]
    pub fn usage(&self, threads: &[Life], access: Access) -> Option<Usage> {
        if let Some(calls) = self.calls(threads).filter(|_| self.is_exact()) {
            return Some(calls.usage(access));
        }
        let measured = self.counts && (self.reads || access == Access::Write);
        measured.then(|| self.account.usage(&numbers(threads), access))
    }

    /// The calls of threads together, exactly. `None` is "not measured".
    #[must_use]
    pub fn calls(&self, threads: &[Life]) -> Option<Calls> {
        let calls = self.calls.as_ref()?;
        let of = threads.iter().filter_map(|life| calls.get(&life.number));
        Some(of.fold(Calls::default(), |sum, calls| sum.plus(*calls)))
    }

    /// The bytes that media write for threads together, by a model. `None` is "not measured".
    #[must_use]
    pub fn media(&self, threads: &[Life]) -> Option<media::Written> {
        if let Some(calls) = self.calls(threads).filter(|_| self.is_exact()) {
            return media::of_calls(&calls);
        }
        let bytes = self.usage(threads, Access::Write)?.bytes;
        let all: Vec<u32> = self.account.threads().collect();
        let all = self.account.usage(&all, Access::Write).bytes.value;
        let all_a_ns = all / self.time_ns.max(1) as f64;
        self.media.written(&numbers(threads), &bytes, all_a_ns)
    }

    /// The bytes of threads together by name, the largest first.
    #[must_use]
    pub fn named(&self, threads: &[Life], access: Access) -> Vec<(&str, Figure)> {
        let by_tag = self.account.tagged(&numbers(threads), access);
        let named = by_tag.into_iter().filter_map(|(tag, figure)| {
            let name = self.names.get(usize::try_from(tag).ok()?)?;
            Some((name.as_str(), figure))
        });
        let mut named: Vec<_> = named.collect();
        named.sort_by(|one, other| other.1.value.total_cmp(&one.1.value));
        named
    }

    /// The time of threads together that accesses took, by ticks of a clock.
    #[must_use]
    pub fn times(&self, threads: &[Life]) -> Times {
        let (mut reads, mut writes, mut period_ns) = (0, 0, 0);
        for ticks in threads
            .iter()
            .filter_map(|life| self.ticks.get(&life.number))
        {
            reads += ticks.reads;
            writes += ticks.writes;
            period_ns = period_ns.max(ticks.period_ns);
        }
        let each = period_ns as f64 / 1e9;
        Times {
            writing: Figure::counted(writes, each),
            reading: Figure::counted(reads, each),
        }
    }
}

fn numbers(threads: &[Life]) -> Vec<u32> {
    threads.iter().map(|life| life.number).collect()
}
