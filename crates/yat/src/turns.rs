//! Two threads of one instance, one of which runs at a time: before each fence, and where one
//! sleeps on a lock, it is chosen who goes on.

use crate::crash_image::Chooser;
use crate::trace::{Place, Recorder};
use pmem::Pmem;
use pmem::record::{Observer, StoreKind, Verdict};
use std::cell::Cell;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

thread_local! {
    static ME: Cell<Option<usize>> = const { Cell::new(None) };
}

struct Turn {
    now: Option<usize>,
    done: [bool; 2],
    /// A word of the pool and its value: whoever sleeps on it can't go on before it changes.
    waiting: [Option<(u64, u64)>; 2],
    chooser: Chooser,
}

/// The observer that says whose turn it is.
pub(crate) struct Turns {
    turn: Mutex<Turn>,
    changed: Condvar,
    recorders: [Recorder; 2],
}

fn word(mem: &Pmem, off: u64) -> u64 {
    let mut bytes = [0; 8];
    mem.peek(off, &mut bytes);
    u64::from_le_bytes(bytes)
}

impl Turns {
    /// Both threads record into `recorder`'s trace.
    pub fn new(recorder: &Recorder, chooser: Chooser) -> Turns {
        Turns {
            turn: Mutex::new(Turn {
                now: None,
                done: [false; 2],
                waiting: [None; 2],
                chooser,
            }),
            changed: Condvar::new(),
            recorders: [recorder.beside(0), recorder.beside(1)],
        }
    }

    fn lock(&self) -> MutexGuard<'_, Turn> {
        self.turn.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records from here on, and chooses who begins.
    pub fn start(&self, mem: &Pmem) {
        for recorder in &self.recorders {
            recorder.start();
        }
        let mut turn = self.lock();
        choose(&mut turn, mem);
    }

    /// The chooser back.
    pub fn take_chooser(&self) -> Chooser {
        std::mem::take(&mut self.lock().chooser)
    }

    /// Does `call` as thread `me`, when it is its turn.
    pub fn take_part<T>(&self, me: usize, mem: &Pmem, call: impl FnOnce() -> T) -> T {
        /// Its turns end, also by a panic.
        struct End<'a>(&'a Turns, usize, &'a Pmem);
        impl Drop for End<'_> {
            fn drop(&mut self) {
                let mut turn = self.0.lock();
                turn.done[self.1] = true;
                choose(&mut turn, self.2);
                self.0.changed.notify_all();
            }
        }
        ME.set(Some(me));
        self.sleep(me, self.lock());
        let end = End(self, me, mem);
        let answer = call();
        self.recorders[me].returned();
        drop(end);
        answer
    }

    fn sleep(&self, me: usize, mut turn: MutexGuard<'_, Turn>) {
        while turn.now != Some(me) {
            turn = self
                .changed
                .wait(turn)
                .unwrap_or_else(PoisonError::into_inner);
        }
        turn.waiting[me] = None;
    }

    /// Lets the choice fall on who goes on; returns when it is this thread.
    fn give_way(&self, mem: &Pmem, waiting: Option<u64>) {
        let Some(me) = ME.get() else {
            return;
        };
        let mut turn = self.lock();
        turn.waiting[me] = waiting.map(|off| (off, word(mem, off)));
        choose(&mut turn, mem);
        self.changed.notify_all();
        self.sleep(me, turn);
    }

    fn recorder(&self) -> &Recorder {
        &self.recorders[ME.get().unwrap_or(0)]
    }
}

/// Chooses among those who can go on.
///
/// # Panics
/// If both sleep on locks.
fn choose(turn: &mut Turn, mem: &Pmem) {
    let can = |me: usize| {
        let awake = turn.waiting[me].is_none_or(|(off, value)| word(mem, off) != value);
        !turn.done[me] && awake
    };
    turn.now = match (can(0), can(1)) {
        (true, true) => Some(turn.chooser.choose(2)),
        (true, false) => Some(0),
        (false, true) => Some(1),
        (false, false) => {
            assert!(turn.done[0] && turn.done[1], "both threads sleep on locks");
            None
        }
    };
}

impl Observer for Turns {
    fn store(&self, mem: &Pmem, off: u64, bytes: &[u8], kind: StoreKind, at: Place) -> Verdict {
        self.recorder().store(mem, off, bytes, kind, at)
    }

    fn flush(&self, mem: &Pmem, line: u64, asked: (u64, u64), at: Place) {
        self.recorder().flush(mem, line, asked, at);
    }

    fn fence(&self, mem: &Pmem, at: Place) {
        // Before it, not after: the other sees what this one has stored, and it may all be lost
        // yet. All that can be left when the other runs after the fence can be left then too.
        self.give_way(mem, None);
        self.recorder().fence(mem, at);
    }

    fn wait(&self, mem: &Pmem, off: u64) {
        self.give_way(mem, Some(off));
    }
}
