//! Locks that transactions take on objects, to be apart from each other.
//!
//! A table of lines, found by a hash of the object's offset; a line names the thread that holds it,
//! of whatever process, and the lane of its transaction. A transaction has them to its end. No lock
//! outlives the run, and none its process. A waiter says for which line, so that a circle is seen
//! by the last to enter it.

use std::time::{Duration, Instant};

use pmlib_format::lane::{LANE_OWNER_OFFSET, LOCK_LANE_OFFSET, LOCK_LINE_BYTES, WAITS_OFFSET};
use pmshare::holder::slot_of;
use pmshare::owner::stalled::tell_if_stopped;
use pmshare::owner::wait_times::STALLED;
use pmshare::owner::{self, OWNER_WAITERS};
use pmshare::{Shared, rescue};

use crate::engine::Core;
use crate::error::{Error, Result};
use crate::lane::Lane;

/// Looks at a lock before its waiter sleeps.
const SPINS: u32 = 100;
/// A sleeper looks again after this: a holder may have died, or a circle have closed.
const SLEEP: Duration = Duration::from_millis(2);
/// A circle is one if it is seen so often: what is read of other lanes is not of one moment.
const SEEN: u32 = 3;

/// A wait so far.
#[derive(Debug, Default)]
pub(crate) struct Patience {
    since: Option<Instant>,
    is_told: bool,
}

impl Core {
    /// The line of an object's lock.
    pub fn lock_line(&self, offset: u64) -> u64 {
        let hash = (offset ^ self.header.seed).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let line = (hash >> 32) & (u64::from(self.header.lock_lines) - 1);
        self.places.locks + line * LOCK_LINE_BYTES
    }

    /// All lines of locks.
    pub fn lock_lines(&self) -> impl Iterator<Item = u64> {
        let count = u64::from(self.header.lock_lines);
        (0..count).map(|line| self.places.locks + line * LOCK_LINE_BYTES)
    }

    /// Whether anybody holds an object's lock.
    pub fn is_locked(&self, offset: u64) -> bool {
        self.mem.load_cached(self.lock_line(offset)) != 0
    }

    /// Takes a lock if it is free.
    pub fn try_lock_line(&self, line: u64, lane: &Lane) -> bool {
        self.try_lock_beside(line, lane, 0)
    }

    /// Takes a lock like [`Core::try_lock_line`]; `sleepers`: others may sleep until it is free
    /// again.
    fn try_lock_beside(&self, line: u64, lane: &Lane, sleepers: u64) -> bool {
        if self.mem.load_cached(line) != 0 {
            return false;
        }
        let _window = self.mem.window();
        let mine = self.holder().word() | sleepers;
        let is_mine = self.mem.cas(line, 0, mine).is_ok();
        if is_mine {
            let lane = u64::from(lane.index()) + 1;
            self.mem.store(line + LOCK_LANE_OFFSET, lane);
        }
        is_mine
    }

    /// Takes a lock, or waits for it.
    pub fn take_lock_line(&self, line: u64, lane: &Lane) -> Result<()> {
        let waits = self.places.lane_line(lane.index()) + WAITS_OFFSET;
        let (mut looks, mut circles) = (0, 0);
        let mut patience = Patience::default();
        let taken = loop {
            let sleepers = if looks < SPINS { 0 } else { OWNER_WAITERS };
            if self.try_lock_beside(line, lane, sleepers) {
                break Ok(());
            }
            if let Err(error) = self.enter() {
                break Err(error);
            }
            looks += 1;
            if looks < SPINS {
                std::hint::spin_loop();
                continue;
            }
            if looks == SPINS {
                let _window = self.mem.window();
                // Seen by whoever comes after: of two that enter a circle at once, one sees it.
                self.mem.swap(waits, line);
            }
            circles = if self.is_circle(line) { circles + 1 } else { 0 };
            if circles == SEEN {
                break Err(Error::Deadlock);
            }
            self.wait_for(line, &mut patience);
        };
        if looks >= SPINS {
            let _window = self.mem.window();
            self.mem.store(waits, 0);
        }
        taken
    }

    /// Sleeps until the owner word at `line` is free, or for a while; tells of a holder that is
    /// stopped.
    pub fn wait_for(&self, line: u64, patience: &mut Patience) {
        let holder = self.sleep(line);
        let since = *patience.since.get_or_insert_with(Instant::now);
        if holder != 0 && since.elapsed() > STALLED && !patience.is_told {
            patience.is_told = true;
            self.tell_of_holder(holder);
        }
    }

    /// Sleeps until somebody opens the lock, or for a while. A holder that is dead then is cleaned
    /// up after. Answers the holder.
    fn sleep(&self, line: u64) -> u64 {
        let word = self.mem.load_cached(line);
        if word == 0 {
            return 0;
        }
        let marked = word | OWNER_WAITERS;
        let is_marked = word == marked || {
            let _window = self.mem.window();
            self.mem.cas(line, word, marked).is_ok()
        };
        if !is_marked {
            return 0;
        }
        self.mem.futex_wait(line, marked as u32, SLEEP);
        let now = self.mem.load_cached(line);
        if now & !OWNER_WAITERS != word & !OWNER_WAITERS {
            return 0;
        }
        rescue::recover_if_dead(self.into(), word);
        word
    }

    /// Says that a holder is stopped, if it is: a transaction may take its time.
    #[cold]
    fn tell_of_holder(&self, holder: u64) {
        let slot = slot_of(holder).filter(|&slot| slot < self.layout().slot_count);
        if let Some(slot) = slot {
            let what = "which holds a lock of the heap and does not run";
            tell_if_stopped(&self.share, slot, what);
        }
    }

    /// Whether the lock's holder waits, by way of others, for this thread.
    fn is_circle(&self, line: u64) -> bool {
        let table = self.lock_line_range();
        let mut line = line;
        for _ in 0..=self.header.lanes {
            let owner = self.mem.load_cached(line) & !OWNER_WAITERS;
            let index = self.mem.load_cached(line + LOCK_LANE_OFFSET);
            if owner == 0 || index == 0 || index > self.header.lanes.into() {
                return false;
            }
            // By a transaction that this thread has forgotten, perhaps.
            if owner == self.holder().word() {
                return true;
            }
            let lines = self.places.lane_line(index as u32 - 1);
            // The lane is noted after the lock is taken: it may be the last holder's.
            if self.mem.load_cached(lines + LANE_OWNER_OFFSET) & !OWNER_WAITERS != owner {
                return false;
            }
            line = self.mem.load_cached(lines + WAITS_OFFSET);
            if !table.contains(&line) || !line.is_multiple_of(LOCK_LINE_BYTES) {
                return false;
            }
        }
        false
    }

    fn lock_line_range(&self) -> std::ops::Range<u64> {
        let bytes = u64::from(self.header.lock_lines) * LOCK_LINE_BYTES;
        self.places.locks..self.places.locks + bytes
    }

    /// Opens locks, in a write window.
    pub fn unlock_lines(&self, lines: &mut Vec<u64>) {
        for line in lines.drain(..) {
            owner::release(&self.share, line);
        }
    }
}
