//! Threads of which one runs at a time. Before each load, store, flush and fence, and where one
//! sleeps on a lock, it is chosen by chance who goes on; so a seed makes a run again. Threads and
//! power end at a step that was chosen before.

use crate::stopper::die;
use crate::trace::{Place, Recorder, Trace, on_cpu};
use pmem::Pmem;
use pmem::record::{Observer, StoreKind, Verdict};
use std::cell::Cell;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

thread_local! {
    static ME: Cell<Option<usize>> = const { Cell::new(None) };
}

/// Threads of a run.
pub(super) const THREADS: usize = 3;
/// One load in so many, and one other step, may be where another thread goes on.
const LOADS: u64 = 12;
const OTHERS: u64 = 4;

/// Chance that a seed makes again.
#[derive(Clone, Debug)]
pub(super) struct Random(pub u64);

impl Random {
    pub fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % bound
    }
}

/// The end of a run, if it does not come to its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Crash {
    None,
    /// One thread is killed before its n-th step.
    Kill(usize, u64),
    /// All are, when they have done so many steps together.
    KillAll(u64),
    /// Power fails then.
    Power(u64),
}

#[derive(Clone, Copy, Debug, Default)]
struct Thread {
    is_done: bool,
    is_dead: bool,
    steps: u64,
    /// A word of the heap and its value: who sleeps on it goes on when it has changed.
    waits: Option<(u64, u64)>,
}

struct State {
    now: Option<usize>,
    threads: [Thread; THREADS],
    steps: u64,
    crash: Crash,
    is_over: bool,
    clock: u64,
    random: Random,
}

/// The observer that says whose turn it is.
pub(super) struct Schedule {
    state: Mutex<State>,
    changed: Condvar,
    recorder: Recorder,
}

fn word(mem: &Pmem, off: u64) -> u64 {
    let mut bytes = [0; 8];
    mem.peek(off, &mut bytes);
    u64::from_le_bytes(bytes)
}

impl Schedule {
    pub fn new(recorder: Recorder, crash: Crash, clock: u64, random: Random) -> Schedule {
        Schedule {
            state: Mutex::new(State {
                now: None,
                threads: [Thread::default(); THREADS],
                steps: 0,
                crash,
                is_over: false,
                clock,
                random,
            }),
            changed: Condvar::new(),
            recorder,
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records from here on, and chooses who begins.
    pub fn start(&self) {
        self.recorder.start();
        let mut state = self.lock();
        let first = state.random.below(THREADS as u64) as usize;
        state.now = Some(first);
    }

    /// The next time of the run: no two are the same.
    pub fn time(&self) -> u64 {
        let mut state = self.lock();
        state.clock += 1;
        state.clock
    }

    /// Whether all are killed, or power has failed.
    pub fn is_over(&self) -> bool {
        self.lock().is_over
    }

    /// The steps that all have done.
    pub fn steps(&self) -> u64 {
        self.lock().steps
    }

    /// The trace of what reached the heap.
    pub fn stop(&self) -> Trace {
        self.recorder.stop()
    }

    /// A thread that was killed goes on as another process.
    pub fn lives_again(&self) {
        if let Some(me) = ME.get() {
            self.lock().threads[me].is_dead = false;
        }
    }

    /// Does `work` as thread `me`, when it is its turn.
    pub fn take_part<T>(&self, me: usize, work: impl FnOnce() -> T) -> T {
        /// Its turns end, also by a panic.
        struct End<'a>(&'a Schedule, usize);
        impl Drop for End<'_> {
            fn drop(&mut self) {
                let mut state = self.0.lock();
                state.threads[self.1].is_done = true;
                self.0.choose(&mut state, None);
                ME.set(None);
            }
        }
        ME.set(Some(me));
        on_cpu(me as u8);
        self.sleep(me, self.lock());
        let _end = End(self, me);
        work()
    }

    fn sleep(&self, me: usize, mut state: MutexGuard<'_, State>) {
        while state.now != Some(me) {
            let slept = self.changed.wait(state);
            state = slept.unwrap_or_else(PoisonError::into_inner);
        }
        state.threads[me].waits = None;
    }

    /// Chooses among those who can go on; a sleeper's time is up if nobody else can.
    fn choose(&self, state: &mut State, mem: Option<&Pmem>) {
        let can = |thread: &Thread| {
            let changed = |(off, value)| mem.is_none_or(|mem| word(mem, off) != value);
            !thread.is_done && thread.waits.is_none_or(changed)
        };
        let of = |filter: &dyn Fn(&Thread) -> bool| -> Vec<usize> {
            let all = state.threads.iter().enumerate();
            all.filter_map(|(at, thread)| filter(thread).then_some(at))
                .collect()
        };
        let mut ready = of(&can);
        if ready.is_empty() {
            ready = of(&|thread| !thread.is_done);
        }
        state.now = match ready.len() {
            0 => None,
            several => Some(ready[state.random.below(several as u64) as usize]),
        };
        self.changed.notify_all();
    }

    /// One more step of this thread. Before it another one may go on, or its process may die;
    /// whether the step is to be done.
    fn step(&self, mem: &Pmem, one_in: u64, waits: Option<u64>) -> bool {
        let Some(me) = ME.get() else {
            return true;
        };
        let mut state = self.lock();
        state.steps += 1;
        state.threads[me].steps += 1;
        if waits.is_some() || state.random.below(one_in) == 0 {
            state.threads[me].waits = waits.map(|off| (off, word(mem, off)));
            self.choose(&mut state, Some(mem));
            self.sleep(me, state);
            state = self.lock();
        }
        let (steps, mine) = (state.steps, state.threads[me].steps);
        match state.crash {
            Crash::KillAll(at) | Crash::Power(at) if steps >= at && !state.is_over => {
                state.is_over = true;
                // Nobody does what is done from here on.
                self.recorder.pause();
            }
            _ => {}
        }
        let is_killed = matches!(state.crash, Crash::Kill(who, at) if who == me && mine >= at);
        if state.threads[me].is_dead {
            return false;
        }
        if is_killed || state.is_over {
            if is_killed {
                state.crash = Crash::None;
            }
            state.threads[me].is_dead = true;
            drop(state);
            die();
        }
        true
    }
}

impl Observer for Schedule {
    fn load(&self, mem: &Pmem, _off: u64, _len: u64) {
        self.step(mem, LOADS, None);
    }

    fn store(&self, mem: &Pmem, off: u64, bytes: &[u8], kind: StoreKind, at: Place) -> Verdict {
        // The word was looked at right before an atomic one, which is one step with that.
        let one_in = if kind == StoreKind::Atomic {
            u64::MAX
        } else {
            OTHERS
        };
        if self.step(mem, one_in, None) {
            self.recorder.store(mem, off, bytes, kind, at)
        } else {
            Verdict::Skip
        }
    }

    fn flush(&self, mem: &Pmem, line: u64, asked: (u64, u64), at: Place) {
        if self.step(mem, OTHERS, None) {
            self.recorder.flush(mem, line, asked, at);
        }
    }

    fn fence(&self, mem: &Pmem, at: Place) {
        if self.step(mem, OTHERS, None) {
            self.recorder.fence(mem, at);
        }
    }

    fn wait(&self, mem: &Pmem, off: u64) {
        self.step(mem, OTHERS, Some(off));
    }
}
