//! Locks that transactions take on objects, to be apart from each other.
//!
//! A table of lines, found by a hash of the object's offset; a line names the lane that holds it.
//! A transaction has them to its end. No lock outlives the run. Who waits says for which line, so
//! that a circle is seen by the last to enter it.

use std::time::Duration;

use pmlib_format::lane::{LOCK_LINE_BYTES, WAITS_OFFSET};

use crate::engine::Core;
use crate::error::{Error, Result};
use crate::lane::Lane;

/// In a lock's word: somebody sleeps until it is free.
const SLEEPERS: u64 = 1 << 31;
/// Looks at a lock before its waiter sleeps.
const SPINS: u32 = 100;
/// A sleeper looks again after this: a holder may have died, or a circle have closed.
const SLEEP: Duration = Duration::from_millis(2);
/// A circle is one if it is seen so often: what is read of other lanes is not of one moment.
const SEEN: u32 = 3;

impl Core {
    /// The line of an object's lock.
    pub fn lock_line(&self, offset: u64) -> u64 {
        let hash = (offset ^ self.header.seed).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let line = (hash >> 32) & (u64::from(self.header.lock_lines) - 1);
        self.places.locks + line * LOCK_LINE_BYTES
    }

    /// Takes a lock if it is free.
    pub fn try_lock_line(&self, line: u64, lane: &Lane) -> bool {
        let word = self.mem.load_cached(line);
        if !self.is_free(word) {
            return false;
        }
        let _window = self.mem.window();
        self.mem
            .cas(line, word, self.held_by(lane.holder()))
            .is_ok()
    }

    /// Takes a lock, or waits for it.
    pub fn take_lock_line(&self, line: u64, lane: &Lane) -> Result<()> {
        let waits = self.places.lane_line(lane.index()) + WAITS_OFFSET;
        let (mut looks, mut circles) = (0, 0);
        let taken = loop {
            if self.try_lock_line(line, lane) {
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
            circles = if self.is_circle(line, lane) {
                circles + 1
            } else {
                0
            };
            if circles == SEEN {
                break Err(Error::Deadlock);
            }
            self.sleep(line);
        };
        if looks >= SPINS {
            let _window = self.mem.window();
            self.mem.store(waits, 0);
        }
        taken
    }

    /// Sleeps until somebody opens the lock, or for a while.
    fn sleep(&self, line: u64) {
        let word = self.mem.load_cached(line);
        if self.is_free(word) {
            return;
        }
        let marked = word | SLEEPERS;
        let is_marked = word == marked || {
            let _window = self.mem.window();
            self.mem.cas(line, word, marked).is_ok()
        };
        if is_marked {
            self.mem.futex_wait(line, marked as u32, SLEEP);
        }
    }

    /// Whether the lock's holder waits, by way of others, for this lane.
    fn is_circle(&self, line: u64, lane: &Lane) -> bool {
        let mut line = line;
        for _ in 0..=self.header.lanes {
            let word = self.mem.load_cached(line);
            let holder = (word & !SLEEPERS) as u32;
            if self.is_free(word) || holder == 0 || holder > self.header.lanes {
                return false;
            }
            if holder == lane.holder() {
                return true;
            }
            line = self
                .mem
                .load_cached(self.places.lane_line(holder - 1) + WAITS_OFFSET);
            if line == 0 {
                return false;
            }
        }
        false
    }

    /// Opens locks, in a write window.
    pub fn unlock_lines(&self, lines: &mut Vec<u64>) {
        for line in lines.drain(..) {
            if self.mem.swap(line, 0) & SLEEPERS != 0 {
                self.mem.futex_wake(line, u32::MAX);
            }
        }
    }
}
