//! Histories of three processes that use one heap at once, over kills and power loss: some order of
//! their calls explains all that each of them saw ([`crate::linear`]).
//!
//! A round has eras. In each, three attachments to one file, a thread each, do calls by a schedule
//! of chance ([`super::schedule`]); it ends by itself, or by a crash. Then all is read. A call that
//! had answered before a crash has happened; one that was cut off has or has not. One seed makes a
//! round again.

use super::schedule::{Crash, Random, Schedule, THREADS};
use super::{HEAP_BYTES, file_for, text};
use crate::crash_image::{Chooser, CrashImage};
use crate::linear::{Event, explain};
use crate::memory::Pending;
use crate::quiet::quietly;
use crate::stopper::Killed;
use crate::trace::Recorder;
use pmem::record::Observer;
use pmem::{MapOptions, Pmem};
use pmlib::{Heap, Options};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

mod calls;

pub use calls::{Answer, Call, Kept, On};
use calls::{Places, act, any_call};

/// Eras of a round, and calls of a thread in each.
const ERAS: usize = 3;
const CALLS: usize = 6;
/// Steps of an era, about.
const STEPS: u64 = 1800;
/// A history so far.
type History = Vec<Event<Call, Answer>>;

/// A heap in a file, and the history of its users.
struct World {
    path: PathBuf,
    places: Places,
    volatile: std::ops::Range<u64>,
    random: Random,
    history: History,
    clock: u64,
    values: u64,
    seen: Histories,
}

impl Drop for World {
    fn drop(&mut self) {
        if let Some(dir) = self.path.parent() {
            let _ = std::fs::remove_dir_all(dir);
        }
    }
}

fn options() -> Options {
    Options {
        lanes: THREADS as u32 + 1,
        lane_bytes: 4096,
        seed: 7,
        max: HEAP_BYTES,
        ..Options::default()
    }
}

fn open(path: &Path, schedule: &Arc<Schedule>) -> Result<Heap, String> {
    let observer = schedule.clone() as Arc<dyn Observer>;
    Heap::open_observed(path, &options(), observer).map_err(text)
}

/// Counts of histories.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Histories {
    /// Rounds.
    pub rounds: u64,
    /// Calls that answered.
    pub calls: u64,
    /// Calls that were cut off.
    pub cut_off: u64,
    /// Kills of one process, kills of all, and losses of power.
    pub crashes: [u64; 3],
    /// Steps at which another process could go on.
    pub steps: u64,
    /// States that the search for an order saw.
    pub states: u64,
}

impl std::ops::AddAssign for Histories {
    fn add_assign(&mut self, other: Histories) {
        self.rounds += other.rounds;
        self.calls += other.calls;
        self.cut_off += other.cut_off;
        for (sum, more) in self.crashes.iter_mut().zip(other.crashes) {
            *sum += more;
        }
        self.steps += other.steps;
        self.states += other.states;
    }
}

impl World {
    fn new(seed: u64) -> Result<World, String> {
        let mem = file_for(HEAP_BYTES)?;
        Heap::format(&mem, HEAP_BYTES, &options()).map_err(text)?;
        let path = mem.path().expect("a file").to_path_buf();
        let volatile = Heap::volatile(&mem);
        drop(mem);
        let heap = Heap::open(&path, &options()).map_err(text)?;
        let places = Places::make(&heap).map_err(text)?;
        heap.close().map_err(text)?;
        Ok(World {
            path,
            places,
            volatile,
            random: Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1),
            history: History::new(),
            clock: 0,
            values: 0,
            seen: Histories::default(),
        })
    }

    fn crash(&mut self) -> Crash {
        let random = &mut self.random;
        match random.below(5) {
            0 => Crash::None,
            1 => Crash::Kill(
                random.below(THREADS as u64) as usize,
                1 + random.below(STEPS / 2),
            ),
            2 => Crash::KillAll(1 + random.below(STEPS)),
            _ => Crash::Power(1 + random.below(STEPS)),
        }
    }

    /// Three processes do calls until their end, or a crash.
    fn era(&mut self) -> Result<(), String> {
        let crash = self.crash();
        let recorder = Recorder::new(self.volatile.clone());
        let random = Random(self.random.below(u64::MAX) | 1);
        let schedule = Arc::new(Schedule::new(recorder, crash, self.clock, random));
        let mut calls = [[Call::Everything; CALLS]; THREADS];
        for call in calls.iter_mut().flatten() {
            self.values += 1;
            *call = any_call(&mut self.random, self.values);
        }
        // Lanes go from one user to another.
        let first_lane = self.random.below(4) as usize;
        let opened: Result<Vec<Heap>, String> =
            (0..THREADS).map(|_| open(&self.path, &schedule)).collect();
        let before = image(&self.path);
        let user = |me: usize| User {
            me,
            lane: (first_lane + me) % (THREADS + 1),
            path: &self.path,
            places: &self.places,
            schedule: &schedule,
            events: Mutex::default(),
        };
        let users = [user(0), user(1), user(2)];
        schedule.start();
        let left: Vec<Result<Option<Heap>, String>> = std::thread::scope(|scope| {
            let each = opened?.into_iter().zip(&users).zip(&calls);
            let threads: Vec<_> = each
                .map(|((heap, user), calls)| {
                    scope.spawn(|| quietly(|| user.run(heap, calls)).and_then(|done| done))
                })
                .collect();
            let ended = threads.into_iter().map(|thread| thread.join());
            Ok::<_, String>(ended.map(|done| done.expect("it is quiet")).collect())
        })?;
        let left: Result<Vec<Option<Heap>>, String> = left.into_iter().collect();
        let (left, is_over) = (left?, schedule.is_over());
        for user in users {
            let events = user.events.into_inner().expect("nobody panics with it");
            self.history.extend(events);
        }
        self.seen.steps += schedule.steps();
        let nth = match crash {
            Crash::None => None,
            Crash::Kill(..) => Some(0),
            Crash::KillAll(_) => is_over.then_some(1),
            Crash::Power(_) => is_over.then_some(2),
        };
        if let Some(nth) = nth {
            self.seen.crashes[nth] += 1;
        }
        for heap in left.into_iter().flatten() {
            match is_over {
                true => drop(heap.into_memory()),
                false => drop(heap.close().map_err(text)?),
            }
        }
        if let (Crash::Power(_), true) = (crash, is_over) {
            let trace = schedule.stop();
            let mut pending = Pending::new(before);
            pending.apply_all(&trace);
            self.lose(&mut pending)?;
        }
        self.clock = schedule.time();
        self.read_all()
    }

    /// The heap's file becomes what power loss has left.
    fn lose(&mut self, pending: &mut Pending) -> Result<(), String> {
        let kind = self.random.below(3);
        if kind == 1 {
            pending.drain();
        }
        let mut image = pending.durable.clone();
        if kind == 2 {
            let seed = self.random.below(u64::MAX);
            let mut mem = Pmem::private(HEAP_BYTES);
            mem.poke(0, &image);
            let crash = Arc::new(CrashImage::new(HEAP_BYTES, 0..0, false));
            crash.arm(pending, Chooser::random(seed), false);
            mem.observe(Some(crash));
            mem.copy_out(0, &mut image)
                .map_err(|fault| format!("{fault:?}"))?;
        }
        let mem = Pmem::open(&self.path, &MapOptions::default()).map_err(text)?;
        mem.poke(0, &image);
        Ok(())
    }

    /// Reads everything, by nobody beside, and looks whether all of the heap is accounted for.
    fn read_all(&mut self) -> Result<(), String> {
        let heap = Heap::open(&self.path, &options()).map_err(text)?;
        // A call that was cut off has happened by now, or never.
        let ended = self.clock + 1;
        for event in self.history.iter_mut().filter(|event| event.ended == 0) {
            event.ended = ended;
        }
        let answer = act(&heap, 0, &self.places, &Call::Everything).map_err(text)?;
        self.history.push(Event {
            by: THREADS,
            call: Call::Everything,
            begun: self.clock + 2,
            ended: self.clock + 3,
            answer: Some(answer),
        });
        self.clock += 4;
        let census = heap.check().map_err(text)?;
        let all = census.own_bytes + census.free_bytes + census.object_bytes + census.spare_bytes;
        if all != heap.size() {
            return Err(format!("{} bytes are nothing", heap.size() - all));
        }
        heap.close().map(drop).map_err(text)
    }

    /// Whether an order of the calls explains the history.
    fn judge(&mut self) -> Result<(), String> {
        let was_circle = |event: &Event<Call, Answer>| event.answer == Some(Answer::Circle);
        self.history.retain(|event| !was_circle(event));
        self.history.sort_by_key(|event| event.begun);
        let found = explain(&Kept::begun(), &self.history);
        let lines: Vec<String> = self
            .history
            .iter()
            .map(|event| {
                let Event {
                    by,
                    call,
                    begun,
                    ended,
                    answer,
                } = event;
                format!("{by}: {begun}..{ended} {call:?} -> {answer:?}")
            })
            .collect();
        let states = found.map_err(|most| {
            let history = lines.join("\n");
            format!("no order explains more than {most} of:\n{history}")
        })?;
        self.seen.states += states as u64;
        let cut_off = self.history.iter().filter(|event| event.answer.is_none());
        self.seen.cut_off += cut_off.count() as u64;
        self.seen.calls += self.history.len() as u64;
        self.seen.calls -= self.seen.cut_off;
        Ok(())
    }
}

fn image(path: &Path) -> Vec<u8> {
    std::fs::read(path).unwrap_or_default()
}

/// One process of an era.
struct User<'a> {
    me: usize,
    lane: usize,
    path: &'a Path,
    places: &'a Places,
    schedule: &'a Arc<Schedule>,
    events: Mutex<History>,
}

impl User<'_> {
    /// Does the calls; answers the attachment that it has in the end.
    fn run(&self, heap: Heap, calls: &[Call]) -> Result<Option<Heap>, String> {
        let mut heap = Some(heap);
        self.schedule.take_part(self.me, || {
            for call in calls {
                let Some(attached) = &heap else {
                    break;
                };
                if !self.call(attached, call)? {
                    // A dead process has no destructors, which would leave.
                    drop(heap.take().map(Heap::into_memory));
                    if self.schedule.is_over() {
                        break;
                    }
                    self.schedule.lives_again();
                    heap = self.come_again()?;
                }
            }
            Ok(heap)
        })
    }

    /// Does a call; `false`: its process was killed in it.
    fn call(&self, heap: &Heap, call: &Call) -> Result<bool, String> {
        let begun = self.schedule.time();
        let done = || act(heap, self.lane, self.places, call);
        let answer = match catch_unwind(AssertUnwindSafe(done)) {
            Ok(answer) => Some(answer.map_err(|error| format!("{call:?}: {error}"))?),
            Err(payload) if payload.is::<Killed>() => None,
            Err(payload) => resume_unwind(payload),
        };
        let is_alive = answer.is_some();
        let ended = match is_alive {
            true => self.schedule.time(),
            // Until it is cleaned up after.
            false => 0,
        };
        let event = Event {
            by: self.me,
            call: *call,
            begun,
            ended,
            answer,
        };
        self.events
            .lock()
            .expect("nobody panics with it")
            .push(event);
        Ok(is_alive)
    }

    /// Attaches as another process, which cleans up after the dead one; `None`: all are killed
    /// meanwhile.
    fn come_again(&self) -> Result<Option<Heap>, String> {
        let opened = || {
            let heap = open(self.path, self.schedule)?;
            heap.recover_dead().map_err(text)?;
            Ok::<_, String>(heap)
        };
        let heap = match catch_unwind(AssertUnwindSafe(opened)) {
            Ok(heap) => heap?,
            Err(payload) if payload.is::<Killed>() => return Ok(None),
            Err(payload) => resume_unwind(payload),
        };
        let now = self.schedule.time();
        let mut events = self.events.lock().expect("nobody panics with it");
        for event in events.iter_mut().filter(|event| event.ended == 0) {
            event.ended = now;
        }
        Ok(Some(heap))
    }
}

/// A round of a seed: its history.
fn history(seed: u64) -> Result<World, String> {
    let mut world = World::new(seed)?;
    for _ in 0..ERAS {
        world.era()?;
    }
    Ok(world)
}

/// One round: three processes on a heap, over [`ERAS`] eras.
///
/// # Errors
/// A history that no order explains, or a heap that is not sound.
pub fn round(seed: u64) -> Result<Histories, String> {
    let judged = quietly(|| {
        let mut world = history(seed)?;
        world.judge()?;
        Ok(Histories {
            rounds: 1,
            ..world.seen
        })
    });
    judged
        .and_then(|judged| judged)
        .map_err(|text: String| format!("YAT_HISTORY_SEED={seed} YAT_HISTORIES=1: {text}"))
}

/// Whether a seed makes the same history again.
///
/// # Errors
/// A heap that is not sound.
pub fn is_made_again(seed: u64) -> Result<bool, String> {
    Ok(history(seed)?.history == history(seed)?.history)
}
