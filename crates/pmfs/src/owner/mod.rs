//! Owner words: who holds a lock, a lane or a group, as one word that a CAS sets (DECISIONS 6, 8, 10).

pub mod protocol;
pub(crate) mod stalled;
mod threads;

use crate::pool::{Began, Pool};
use crate::recovery;
use pmfs_format::runtime::{OWNER_INCARNATION_SHIFT, OWNER_SLOT_SHIFT, OWNER_THREAD_MASK};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Pauses before a waiter sleeps (DECISIONS 41).
const SPINS: u32 = 100;

/// How long a waiter sleeps.
pub(crate) mod wait_times {
    use std::time::Duration;

    /// First sleep; it doubles, and each end of one probes the holder.
    pub(crate) const FIRST: Duration = Duration::from_millis(2);
    /// Longest sleep.
    pub(crate) const MAX: Duration = Duration::from_millis(10);
    /// When a waiter tells of a holder that lives but does not move.
    pub(crate) const STALLED: Duration = Duration::from_secs(1);
}

/// More than any pool has (4,094).
const NO_SLOT: u64 = 0xffd;

static NEXT_THREAD: AtomicU64 = AtomicU64::new(1);

/// This thread's tag: 1 to 2^20 - 1, unique in the process until it wraps.
#[inline]
pub(crate) fn thread_tag() -> u64 {
    let tag = pmem::thread::with(|thread| thread.tag.get());
    match tag {
        0 => new_thread(),
        tag => tag,
    }
}

/// The first look of a thread.
#[cold]
fn new_thread() -> u64 {
    let tag = NEXT_THREAD.fetch_add(1, Ordering::Relaxed) % OWNER_THREAD_MASK + 1;
    pmem::thread::with(|thread| thread.tag.set(tag));
    threads::note(tag);
    tag
}

/// Says that this thread lives: in a process that may be a copy of another.
pub(crate) fn this_thread_lives() {
    threads::note(thread_tag());
}

/// Whether an owner word is that of a thread of this process which is gone.
#[cold]
pub(crate) fn is_gone_thread(pool: &Pool, owner: u64) -> bool {
    slot_of(owner) == Some(pool.holder().slot) && threads::is_gone(owner & OWNER_THREAD_MASK)
}

/// The holder of a slot: the half of an owner word that is the process's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Holder {
    pub slot: u64,
    pub incarnation: u64,
}

impl Holder {
    /// This thread's owner word.
    #[inline]
    pub fn word(self) -> u64 {
        self.word_of(thread_tag())
    }

    /// The owner word of another thread of this process.
    #[inline]
    pub fn word_of(self, tag: u64) -> u64 {
        tag | (self.slot + 1) << OWNER_SLOT_SHIFT | self.incarnation << OWNER_INCARNATION_SHIFT
    }
}

/// The holder that this process is: set when it attaches, and again after fork.
#[derive(Debug)]
pub(crate) struct AtomicHolder(AtomicU64);

impl Default for AtomicHolder {
    /// Who is not attached has the slot of nobody.
    fn default() -> AtomicHolder {
        AtomicHolder(AtomicU64::new(NO_SLOT << 32))
    }
}

impl AtomicHolder {
    #[inline]
    pub fn load(&self) -> Holder {
        let word = self.0.load(Ordering::Relaxed);
        Holder {
            slot: word >> 32,
            incarnation: word & 0xffff_ffff,
        }
    }

    pub fn store(&self, holder: Holder) {
        let word = holder.slot << 32 | holder.incarnation;
        self.0.store(word, Ordering::Relaxed);
    }
}

/// The slot in an owner word.
pub(crate) fn slot_of(owner: u64) -> Option<u64> {
    ((owner >> OWNER_SLOT_SHIFT) & 0xfff).checked_sub(1)
}

/// An owner word in the pool.
#[derive(Clone, Copy)]
struct Place<'a> {
    pool: &'a Pool,
    off: u64,
}

impl protocol::Word for Place<'_> {
    #[inline]
    fn load(&self) -> u64 {
        self.pool.pm.load(self.off)
    }

    #[inline]
    #[cfg_attr(feature = "record", track_caller)]
    fn cas(&self, old: u64, new: u64) -> Result<u64, u64> {
        self.pool.pm.runtime().cas(self.off, old, new)
    }

    #[inline]
    #[cfg_attr(feature = "record", track_caller)]
    fn swap(&self, value: u64) -> u64 {
        self.pool.pm.runtime().swap(self.off, value)
    }

    fn wake(&self) {
        self.pool.pm.runtime().wake(self.off);
    }
}

/// A wait for an owner word: timed, and with an eye on its owner.
struct Waiting<'a> {
    place: Place<'a>,
    me: u64,
    sleep: Duration,
    since: Instant,
    told: bool,
}

impl protocol::Wait for Waiting<'_> {
    const SPINS: u32 = SPINS;

    fn pause(&mut self) {
        std::hint::spin_loop();
    }

    fn take_over(&mut self) -> bool {
        recovery::take_over(self.place.pool, self.place.off, self.me)
    }

    fn sleep(&mut self, marked: u64) {
        let runtime = self.place.pool.pm.runtime();
        runtime.wait(self.place.off, marked as u32, self.sleep);
        self.sleep = (self.sleep * 2).min(wait_times::MAX);
    }

    fn unchanged(&mut self, owner: u64) {
        let pool = self.place.pool;
        recovery::recover_if_dead(pool, owner);
        if !self.told && self.since.elapsed() > wait_times::STALLED {
            self.told = true;
            stalled::tell(pool, owner);
        }
    }
}

/// Takes the lock word at `off` if nobody has it.
#[inline]
#[cfg_attr(feature = "record", track_caller)]
pub(crate) fn try_acquire(pool: &Pool, off: u64) -> bool {
    let place = Place { pool, off };
    protocol::try_acquire(&place, pool.holder().word())
}

/// Takes the lock word at `off`. Whoever held it and died is cleaned up after.
#[inline]
#[cfg_attr(feature = "record", track_caller)]
pub(crate) fn acquire(pool: &Pool, off: u64) {
    let me = pool.holder().word();
    let place = Place { pool, off };
    if !protocol::try_acquire(&place, me) {
        wait(place, me);
    }
}

#[cold]
#[cfg_attr(feature = "record", track_caller)]
fn wait(place: Place<'_>, me: u64) {
    let mut waiting = Waiting {
        place,
        me,
        sleep: wait_times::FIRST,
        since: Instant::now(),
        told: false,
    };
    protocol::acquire_slowly(&place, me, &mut waiting);
    place.pool.count_wait(waiting.since.elapsed());
}

/// Gives a lock word back.
#[inline]
#[cfg_attr(feature = "record", track_caller)]
pub(crate) fn release(pool: &Pool, off: u64) {
    protocol::release(&Place { pool, off });
}

/// A lock word held, released on drop.
pub(crate) struct Held<'a> {
    pool: &'a Pool,
    off: u64,
    began: Began,
}

impl<'a> Held<'a> {
    /// Waits for the word at `off`.
    #[cfg_attr(feature = "record", track_caller)]
    pub fn new(pool: &'a Pool, off: u64) -> Held<'a> {
        acquire(pool, off);
        let began = Began::now();
        Held { pool, off, began }
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        if self.pool.gives_up(self.began) {
            return;
        }
        release(self.pool, self.off);
    }
}
