//! The backend `watch`: breakpoints on words of mapped persistent memory, drawn anew in each round.
//!
//! Each thread has words of its own, so that estimates of threads are independent and may be added.
//! In a round, samples are read before a breakpoint moves: a sample's breakpoint tells its word.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, ErrorKind};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

use perf_event::Sampler as Ring;
use perf_event::data::Record;
use pmmon::decode::{Hit, Registers, Sites};
use pmmon::{Arm, Coverage, Drained, Exposure, Lacking, Origin, Sample, Sampler, Thread, Tid};

use crate::breakpoint::{POINTS_MAX, Point, Reading, open_ring, read};

/// Bytes of a word.
const WORD_BYTES: u64 = 8;
/// Parts of a line of the media, each a request of the processor's.
const PARTS: u64 = 4;
const PART_BYTES: u64 = 64;
const NAME: &str = "watch";
/// The golden ratio's fraction, of 2^64.
const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;
/// Nanoseconds of a thread's time between two traps below which fewer words are watched: traps
/// take a twentieth of it then, and the error of their cost would be seen in the estimate.
const TRAP_EVERY_NS: u64 = 400_000;
/// Rounds after which the number of words is looked at.
const ROUNDS: u32 = 8;

/// How to watch.
#[derive(Clone, Copy, Debug)]
pub struct WatchOptions {
    /// How long a word is watched.
    pub arm: Duration,
    /// Hits after which a word is not watched any more in its round.
    pub hits_max: u64,
    /// Loads are watched too.
    pub reads: bool,
    /// One of the words has another beside it, in the same line of the media.
    pub neighbours: bool,
    /// Where the draw of words begins.
    pub seed: u64,
}

impl Default for WatchOptions {
    fn default() -> Self {
        Self {
            arm: Duration::from_millis(50),
            hits_max: 200,
            reads: false,
            neighbours: false,
            seed: 1,
        }
    }
}

/// The backend. Rounds that have begun go on with the words they have when regions change.
#[derive(Debug)]
pub struct Watch {
    options: WatchOptions,
    threads: HashMap<Tid, Followed>,
    processes: HashMap<u32, Process>,
    draw: Draw,
    arms: u64,
    /// Samples and arms of threads that were left.
    left: (Vec<Sample>, Drained),
}

#[derive(Debug)]
struct Process {
    sites: Sites,
    memory: File,
    regions: Vec<Range<u64>>,
    words: u64,
}

#[derive(Debug)]
struct Followed {
    pid: u32,
    ring: RingOf,
    slots: Vec<Slot>,
    sequence: Sequence,
    words: u64,
    /// Slots that watch in this round, the first ones, and the fewest.
    active: usize,
    least: usize,
    /// Rounds since the number of words was looked at, their traps, and the thread's time.
    lately: (u32, u64, u64),
    began: Instant,
    ran_ns: u64,
}

struct RingOf(Ring);

impl std::fmt::Debug for RingOf {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        to.write_str("Ring")
    }
}

/// A breakpoint and its arm.
#[derive(Debug)]
struct Slot {
    point: Point,
    word: u64,
    arm: u64,
    begin: Reading,
    seen: u64,
    /// The arm whose word it is beside.
    beside: Option<u64>,
    /// Watched time and the thread's traps when the arm was closed before its time.
    closed: Option<(Reading, u64)>,
}

#[derive(Debug)]
struct Draw(u64);

impl Draw {
    /// A place from which a thread's sequence begins.
    fn start(&mut self) -> Sequence {
        self.0 = self.0.wrapping_add(GOLDEN);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        Sequence(mixed ^ (mixed >> 31))
    }
}

/// A sequence of places that fills a range evenly from any start, by the golden ratio. Each place
/// is uniform, as the start is; that a thread which keeps to a part of the regions is met by just
/// its part of the draws makes estimates closer.
#[derive(Debug)]
struct Sequence(u64);

impl Sequence {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(GOLDEN);
        ((u128::from(self.0) * u128::from(end)) >> 64) as u64
    }
}

/// A word in another part of a word's line.
fn beside(word: u64, number: u64) -> u64 {
    let drawn = number.wrapping_mul(GOLDEN) >> 32;
    let part = (word / PART_BYTES + 1 + drawn % (PARTS - 1)) % PARTS;
    let at = drawn / 8 % (PART_BYTES / WORD_BYTES) * WORD_BYTES;
    word / (PART_BYTES * PARTS) * (PART_BYTES * PARTS) + part * PART_BYTES + at
}

impl Slot {
    /// The arm of the word, or of that which it is beside.
    fn pair(&self) -> u64 {
        self.beside.unwrap_or(self.arm)
    }

    fn exposure(&self) -> Exposure {
        let address = self.word;
        match self.beside {
            Some(arm) => Exposure::Beside { address, arm },
            None => Exposure::Word {
                address,
                arm: self.arm,
            },
        }
    }
}

impl Process {
    fn word(&self, draw: &mut Sequence) -> Option<u64> {
        if self.words == 0 {
            return None;
        }
        let mut at = draw.below(self.words);
        for region in &self.regions {
            let words = (region.end - region.start) / WORD_BYTES;
            if at < words {
                return Some(region.start + at * WORD_BYTES);
            }
            at -= words;
        }
        None
    }
}

impl Watch {
    /// A backend that follows nobody yet.
    #[must_use]
    pub fn new(options: WatchOptions) -> Self {
        Self {
            options,
            threads: HashMap::new(),
            processes: HashMap::new(),
            draw: Draw(options.seed),
            arms: 0,
            left: (Vec::new(), Drained::default()),
        }
    }

    /// The threads that are followed.
    pub fn followed(&self) -> impl Iterator<Item = Thread> {
        let of = |(tid, followed): (&Tid, &Followed)| Thread {
            pid: followed.pid,
            tid: *tid,
        };
        self.threads.iter().map(of)
    }

    fn open(&mut self, thread: Thread) -> io::Result<Followed> {
        let process = self.processes.get(&thread.pid);
        let process = process.ok_or_else(|| io::Error::from(ErrorKind::NotFound))?;
        let ring = open_ring(thread.tid)?;
        let mut slots = Vec::new();
        let mut sequence = self.draw.start();
        while slots.len() < POINTS_MAX
            && let Some(word) = process.word(&mut sequence)
        {
            let mut point = match Point::open(thread.tid, word, self.options.reads, &ring) {
                Ok(point) => point,
                // Another debugger has the rest.
                Err(_) if !slots.is_empty() => break,
                Err(error) => return Err(error),
            };
            point.enable()?;
            self.arms += 1;
            slots.push(Slot {
                point,
                word,
                arm: self.arms,
                begin: Reading::default(),
                seen: 0,
                beside: None,
                closed: None,
            });
        }
        Ok(Followed {
            pid: thread.pid,
            ring: RingOf(ring),
            active: slots.len(),
            least: if self.options.neighbours { 2 } else { 1 },
            lately: (0, 0, 0),
            slots,
            sequence,
            words: process.words,
            began: Instant::now(),
            ran_ns: 0,
        })
    }
}

impl Followed {
    /// Takes what is in the ring.
    fn take(
        &mut self,
        process: &mut Process,
        reads: bool,
        to: &mut Vec<Sample>,
        drained: &mut Drained,
    ) {
        while let Some(record) = self.ring.0.next_record() {
            let Ok(record) = record.parse_record() else {
                drained.lost += 1;
                continue;
            };
            match record {
                Record::Sample(sample) => {
                    let (Some(id), Some(ip), Some(tid), Some(time_ns)) =
                        (sample.id(), sample.ip(), sample.tid(), sample.time())
                    else {
                        continue;
                    };
                    let Some(slot) = self.slots.iter_mut().find(|slot| slot.point.id() == id)
                    else {
                        continue;
                    };
                    slot.seen += 1;
                    let registers = sample.regs_user().map(|user| user.regs.as_ref());
                    let registers = registers.and_then(Registers::from_perf);
                    let exposure = slot.exposure();
                    let before = to.len();
                    if let Some(registers) = registers {
                        let hit = Hit {
                            ip,
                            word: slot.word,
                            registers: &registers,
                            reads_trap: reads,
                        };
                        process.append(&hit, tid, time_ns, exposure, to);
                    }
                    drained.undecoded += u64::from(to.len() == before);
                }
                Record::Lost(lost) => drained.lost += lost.lost,
                Record::Throttle(_) => drained.throttled += 1,
                _ => {}
            }
        }
    }

    /// Ends to watch words that slow the thread too much.
    fn close_hot(&mut self, hits_max: u64) {
        let traps = self.slots.iter().map(|slot| slot.seen).sum();
        let hot = self.slots.iter().filter(|slot| slot.seen >= hits_max);
        // A word and its neighbour end together: hits of one alone would look as if apart.
        let hot: Vec<u64> = hot.map(Slot::pair).collect();
        for slot in &mut self.slots {
            if slot.closed.is_none()
                && hot.contains(&slot.pair())
                && slot.point.disable().is_ok()
                && let Ok(now) = slot.point.read()
            {
                slot.closed = Some((now, traps));
            }
        }
    }

    /// Ends the round: no breakpoint watches, all samples are read, and the arms are told.
    fn end(
        &mut self,
        tid: Tid,
        process: &mut Process,
        reads: bool,
        to: &mut Vec<Sample>,
        drained: &mut Drained,
    ) {
        for slot in &mut self.slots {
            let _ = slot.point.disable();
        }
        self.take(process, reads, to, drained);
        let ran = read(self.ring.0.as_counter_mut()).map_or(self.ran_ns, |now| now.running_ns);
        let readings: Vec<Option<Reading>> = self
            .slots
            .iter_mut()
            .map(|slot| slot.point.read().ok())
            .collect();
        let hits = |slot: &Slot, now: &Option<Reading>| {
            now.map_or(slot.seen, |now| now.count - slot.begin.count)
        };
        let all = self
            .slots
            .iter()
            .zip(&readings)
            .map(|(slot, now)| hits(slot, now));
        let round_traps: u64 = all.sum();
        let active = self.active.min(self.slots.len());
        let watching = &self.slots[..active];
        let words = watching.iter().filter(|slot| slot.beside.is_none()).count();
        for (slot, now) in watching.iter().zip(&readings) {
            let (Some(now), None) = (now, slot.beside) else {
                continue;
            };
            let neighbour = watching.iter().find(|it| it.beside == Some(slot.arm));
            let (end, traps) = slot.closed.unwrap_or((*now, round_traps));
            drained.arms.push(Arm {
                number: slot.arm,
                tid,
                words: self.words,
                ran_ns: ran - self.ran_ns,
                beside: words as u32,
                watched_ns: end.running_ns - slot.begin.running_ns,
                hits: now.count - slot.begin.count,
                traps,
                round_traps,
                stopped: false,
                neighbour: neighbour.map(|slot| slot.word),
            });
        }
        self.adapt(round_traps, ran - self.ran_ns);
        self.ran_ns = ran;
        drained.ran.push((tid, ran));
        for (slot, now) in self.slots.iter_mut().zip(readings) {
            slot.begin = now.unwrap_or(slot.begin);
            slot.seen = 0;
            slot.closed = None;
        }
    }

    /// The words of the next rounds, by the traps of the last [`ROUNDS`]: half of them where there
    /// were many, twice as many where there were few. A round alone must not decide: its traps
    /// depend on its places, and those of the next follow from them.
    fn adapt(&mut self, traps: u64, ran_ns: u64) {
        self.lately.0 += 1;
        self.lately.1 += traps;
        self.lately.2 += ran_ns;
        if self.lately.0 < ROUNDS {
            return;
        }
        let (_, traps, ran_ns) = std::mem::take(&mut self.lately);
        let time_of_traps = traps.saturating_mul(TRAP_EVERY_NS);
        if time_of_traps > ran_ns {
            self.active = (self.active / 2).max(self.least.min(self.slots.len()));
        } else if time_of_traps < ran_ns / 4 {
            self.active = (self.active * 2).min(self.slots.len());
        }
    }

    /// Begins a round with other words. A breakpoint that can not move is given up.
    fn begin(&mut self, process: &Process, neighbours: bool, arms: &mut u64) {
        self.words = process.words;
        self.began = Instant::now();
        let mut left = self.active;
        let mut last = None;
        self.slots.retain_mut(|slot| {
            slot.beside = None;
            if left == 0 {
                return true;
            }
            left -= 1;
            *arms += 1;
            let word = match last.filter(|_| neighbours && left == 0) {
                Some((word, arm)) => {
                    slot.beside = Some(arm);
                    Some(beside(word, *arms))
                }
                None => process.word(&mut self.sequence),
            };
            let Some(word) = word else {
                return true;
            };
            (slot.word, slot.arm) = (word, *arms);
            last = Some((word, *arms));
            slot.point.move_to(word).is_ok() && slot.point.enable().is_ok()
        });
    }
}

impl Process {
    /// Appends the accesses of a hit.
    fn append(
        &mut self,
        hit: &Hit<'_>,
        tid: Tid,
        time_ns: u64,
        exposure: Exposure,
        to: &mut Vec<Sample>,
    ) {
        let memory = &self.memory;
        let found = self.sites.resolve(hit, time_ns, |from, buffer| {
            memory.read_exact_at(buffer, from).is_ok()
        });
        let Some(found) = found else { return };
        for access in found.accesses {
            to.push(Sample {
                tid,
                time_ns,
                ip: found.ip,
                address: access.address.unwrap_or(hit.word),
                access: access.access,
                bytes: access.bytes.max().unwrap_or(0),
                exposure,
                origin: Origin::Mapped,
            });
        }
    }
}

impl Sampler for Watch {
    fn what(&self) -> Coverage {
        Coverage {
            backend: NAME,
            reads: self.options.reads,
            writes: true,
            counts: true,
        }
    }

    fn regions(&mut self, pid: u32, regions: &[Range<u64>]) -> io::Result<()> {
        let words = regions
            .iter()
            .map(|region| region.end.saturating_sub(region.start) / WORD_BYTES)
            .sum();
        if let Some(process) = self.processes.get_mut(&pid) {
            process.regions = regions.to_vec();
            process.words = words;
            return Ok(());
        }
        let memory = File::open(format!("/proc/{pid}/mem"))?;
        let process = Process {
            sites: Sites::default(),
            memory,
            regions: regions.to_vec(),
            words,
        };
        self.processes.insert(pid, process);
        Ok(())
    }

    fn follow(&mut self, thread: Thread) -> Result<(), Lacking> {
        if self.threads.contains_key(&thread.tid) {
            return Ok(());
        }
        let followed = self.open(thread).map_err(|error| lacking(NAME, &error))?;
        self.threads.insert(thread.tid, followed);
        Ok(())
    }

    fn leave(&mut self, tid: Tid) {
        let Some(mut followed) = self.threads.remove(&tid) else {
            return;
        };
        let (samples, drained) = &mut self.left;
        if let Some(process) = self.processes.get_mut(&followed.pid) {
            followed.end(tid, process, self.options.reads, samples, drained);
        }
        drained.ended.push(tid);
        let is_last = !self.threads.values().any(|other| other.pid == followed.pid);
        if is_last {
            self.processes.remove(&followed.pid);
        }
    }

    fn drain(&mut self, to: &mut Vec<Sample>) -> Drained {
        let (mut samples, mut drained) = std::mem::take(&mut self.left);
        to.append(&mut samples);
        for (tid, followed) in &mut self.threads {
            let Some(process) = self.processes.get_mut(&followed.pid) else {
                continue;
            };
            followed.take(process, self.options.reads, to, &mut drained);
            followed.close_hot(self.options.hits_max);
            if followed.began.elapsed() >= self.options.arm {
                followed.end(*tid, process, self.options.reads, to, &mut drained);
                followed.begin(process, self.options.neighbours, &mut self.arms);
            }
        }
        drained
    }
}

/// The lack of a backend, by the kernel's error.
pub(crate) fn lacking(backend: &'static str, error: &io::Error) -> Lacking {
    let (remedy, gone) = match error.raw_os_error() {
        Some(libc::ESRCH) => ("the thread has ended", true),
        Some(libc::EACCES | libc::EPERM) => (
            "run as the same user, with CAP_PERFMON, or lower /proc/sys/kernel/perf_event_paranoid",
            false,
        ),
        Some(libc::ENOSPC) => ("end the debugger that holds the debug registers", false),
        Some(libc::EMFILE) => ("raise the limit of open files (ulimit -n)", false),
        _ => (
            "the kernel or a seccomp filter has no such event; see `pmmon doctor`",
            false,
        ),
    };
    Lacking {
        backend,
        cause: error.to_string(),
        remedy,
        gone,
    }
}
