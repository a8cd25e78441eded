//! Goal: an owner word has one owner at a time, nobody sleeps on while it is free, and a dead
//! owner's word is taken from it once. Method: the engine's own protocol on loom's memory, in every
//! order of its steps (up to a number of preemptions); sleeps have no end of their own here, so a
//! wake that is lost is a deadlock, which loom reports. A release by a store may lose one: there
//! sleeps end by themselves, and without that loom has to find the deadlock. The same with a word
//! that does not do what it should, which loom has to find.

use loom::sync::atomic::{AtomicU64, Ordering};
use loom::sync::{Arc, Condvar, Mutex};
use loom::thread;
use pmfs::lock_protocol::{Wait, Word, acquire_slowly, release, release_by_store, try_acquire};
use pmfs_format::runtime::OWNER_WAITERS;
use std::process::Command;

const DEAD: u64 = 99;

/// Something that an owner word does wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    None,
    /// A release wakes nobody.
    NoWake,
    /// A waiter goes to sleep whatever the word is by then.
    SleepsUnseen,
    /// A waiter's mark is lost, and it sleeps all the same.
    NoMark,
    /// The word is read, and then stored.
    CasInTwo,
    /// A release by a store, and sleeps without an end.
    SleepsOn,
}

/// A word with the kernel's futex beside it.
struct Place {
    word: AtomicU64,
    futex: Mutex<()>,
    sleepers: Condvar,
    fault: Fault,
    /// It is released by a store, and sleeps end by themselves some time after that.
    is_by_store: bool,
}

impl Place {
    fn new(owner: u64, fault: Fault) -> Place {
        Place {
            word: AtomicU64::new(owner),
            futex: Mutex::new(()),
            sleepers: Condvar::new(),
            fault,
            is_by_store: false,
        }
    }

    /// FUTEX_WAIT: looks and goes to sleep in one.
    fn sleep(&self, expect: u64) {
        let guard = self.futex.lock().unwrap();
        let seen = match self.fault {
            Fault::SleepsUnseen => expect,
            Fault::NoMark => self.word.load(Ordering::SeqCst) | OWNER_WAITERS,
            _ => self.word.load(Ordering::SeqCst),
        };
        if seen == expect {
            drop(self.sleepers.wait(guard).unwrap());
        }
    }
}

impl Place {
    /// The sleeps that have begun come to their end.
    fn time_passes(&self) {
        let _guard = self.futex.lock().unwrap();
        if self.fault != Fault::SleepsOn {
            self.sleepers.notify_all();
        }
    }
}

impl Word for Place {
    fn load(&self) -> u64 {
        self.word.load(Ordering::Acquire)
    }

    fn cas(&self, old: u64, new: u64) -> Result<u64, u64> {
        match self.fault {
            Fault::NoMark if new == old | OWNER_WAITERS => return Ok(old),
            Fault::CasInTwo => {
                let found = self.word.load(Ordering::SeqCst);
                if found != old {
                    return Err(found);
                }
                self.word.store(new, Ordering::SeqCst);
                return Ok(old);
            }
            _ => {}
        }
        self.word
            .compare_exchange(old, new, Ordering::SeqCst, Ordering::SeqCst)
    }

    fn store(&self, value: u64) {
        // A swap: loom lets a waiter's mark, which follows the holder's word at once, come after a
        // store that has not seen it.
        self.word.swap(value, Ordering::Release);
    }

    fn swap(&self, value: u64) -> u64 {
        self.word.swap(value, Ordering::SeqCst)
    }

    fn wake(&self) {
        let _guard = self.futex.lock().unwrap();
        if self.fault != Fault::NoWake {
            self.sleepers.notify_one();
        }
    }
}

/// Some words, and a thing that only the owner of the first may touch.
struct World {
    lock: Place,
    recovery: Place,
    inside: AtomicU64,
}

impl World {
    fn new(owner: u64, fault: Fault, is_by_store: bool) -> Arc<World> {
        Arc::new(World {
            lock: Place {
                is_by_store,
                ..Place::new(owner, fault)
            },
            recovery: Place::new(0, Fault::None),
            inside: AtomicU64::new(0),
        })
    }

    fn critical(&self, me: u64) {
        assert_eq!(self.inside.swap(me, Ordering::Relaxed), 0, "two are inside");
        assert_eq!(self.inside.swap(0, Ordering::Relaxed), me, "two are inside");
    }
}

fn acquire(world: &World, place: &Place, me: u64) {
    if !try_acquire(place, me) {
        acquire_slowly(place, me, &mut Waiting { world, place });
    }
}

struct Waiting<'a> {
    world: &'a World,
    place: &'a Place,
}

impl Wait for Waiting<'_> {
    const SPINS: u32 = 0;

    fn pause(&mut self) {}

    fn take_over(&mut self) -> bool {
        false
    }

    fn sleep(&mut self, marked: u64) {
        // A dead owner wakes nobody: the sleep's time is up.
        if marked & 0xff == DEAD {
            return;
        }
        self.place.sleep(marked);
    }

    /// Cleaning up as the engine does it: under the recovery lock, whatever still is the dead
    /// one's.
    fn unchanged(&mut self, owner: u64) {
        if owner & 0xff != DEAD {
            return;
        }
        acquire(self.world, &self.world.recovery, 7);
        if self.place.load() & 0xff == DEAD {
            release(self.place);
        }
        release(&self.world.recovery);
    }
}

fn check(owner: u64, threads: u64, rounds: u64) {
    check_with(owner, threads, rounds, Fault::None, false);
}

fn check_with(owner: u64, threads: u64, rounds: u64, fault: Fault, is_by_store: bool) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(move || {
        let world = World::new(owner, fault, is_by_store);
        let others: Vec<_> = (1..threads)
            .map(|at| {
                let world = Arc::clone(&world);
                thread::spawn(move || work(&world, at + 1, rounds))
            })
            .collect();
        work(&world, 1, rounds);
        for other in others {
            other.join().unwrap();
        }
        assert_eq!(world.lock.word.load(Ordering::SeqCst), 0);
        assert_eq!(world.recovery.word.load(Ordering::SeqCst), 0);
    });
}

fn work(world: &World, me: u64, rounds: u64) {
    for _ in 0..rounds {
        acquire(world, &world.lock, me);
        world.critical(me);
        match world.lock.is_by_store {
            true => {
                if !release_by_store(&world.lock) {
                    release(&world.lock);
                }
                world.lock.time_passes();
            }
            false => release(&world.lock),
        }
    }
}

#[test]
fn two_threads_twice() {
    check(0, 2, 2);
}

#[test]
fn three_threads() {
    check(0, 3, 1);
}

#[test]
fn a_dead_owner() {
    check(DEAD, 2, 1);
}

/// The dead one had been waited for.
#[test]
fn a_dead_owner_with_sleepers() {
    check(DEAD | 1 << 31, 2, 1);
}

#[test]
fn two_threads_twice_by_store() {
    check_with(0, 2, 2, Fault::None, true);
}

#[test]
fn three_threads_by_store() {
    check_with(0, 3, 1, Fault::None, true);
}

#[test]
fn a_dead_owner_by_store() {
    check_with(DEAD, 2, 1, Fault::None, true);
}

/// The fault that a child of the test below is to look for, by its number.
const FAULT: &str = "YAT_LOCK_FAULT";

/// Each fault has a process of its own: loom can't unwind threads that sleep for good.
#[test]
fn a_word_that_does_wrong_is_found() {
    let faults = [
        Fault::NoWake,
        Fault::SleepsUnseen,
        Fault::NoMark,
        Fault::CasInTwo,
        Fault::SleepsOn,
    ];
    if let Ok(nth) = std::env::var(FAULT) {
        let nth: usize = nth.parse().expect("a number");
        let fault = faults[nth];
        check_with(0, 2, 2, fault, fault == Fault::SleepsOn);
        return;
    }
    for (nth, fault) in faults.into_iter().enumerate() {
        let child = Command::new(std::env::current_exe().expect("this program"))
            .args(["--exact", "--nocapture", "a_word_that_does_wrong_is_found"])
            .env(FAULT, nth.to_string())
            .output()
            .expect("it runs");
        let text = String::from_utf8_lossy(&child.stderr);
        assert!(!child.status.success(), "{fault:?}");
        assert!(text.contains("deadlock"), "{fault:?}: {text}");
    }
}
