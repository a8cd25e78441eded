//! Sessions of readers that look at an engine's records without copies
//! (`crates/pmlib/src/eras.rs`): this process's, and what keeps those of others from holding room
//! for ever.
//!
//! - The sessions of a dead process count no more: its slot tells that it is dead.
//! - A session has an end that its process has chosen. Once it is over, whoever wants room ends the
//!   session, though its process be stopped. The session learns that by its mark, after it has
//!   copied something and before that is believed.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use pm_store::clock::now_ns;
use pmlib_format::chunk::OWNER_OFFSET;
use pmlib_format::shared::{ERA_OFFSET, MARKS_OFFSET, SLOT_BYTES};

use crate::engine::Core;
use crate::eras::{self, ENDED, Era, FOR_EVER};
use crate::error::Result;
use crate::ground::Ground;

/// This process's sessions, by the parity of their eras.
#[derive(Debug, Default)]
pub(crate) struct Sessions {
    /// Until when each may be kept open.
    open: Mutex<[Vec<u64>; 2]>,
    /// Counts how often others have ended them.
    generations: [AtomicU64; 2],
}

impl Sessions {
    fn open(&self) -> MutexGuard<'_, [Vec<u64>; 2]> {
        // No panic leaves it half changed.
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A process that has sessions of readers open.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReadingProcess {
    /// Its number, as it sees it.
    pub pid: u64,
    /// The name of its program.
    pub command: String,
    /// How long they may still be kept open; `None`: for ever.
    pub left: Option<Duration>,
}

impl Core {
    fn era_at(&self) -> u64 {
        self.places.shared + ERA_OFFSET
    }

    fn marks_of(&self, slot: u64) -> u64 {
        self.places.slots + slot * SLOT_BYTES + MARKS_OFFSET
    }

    /// Whether a process has sessions of this parity that are not to be ended. Those that have
    /// lasted too long are.
    fn is_reading(&self, slot: u64, parity: usize) -> bool {
        let at = eras::mark_at(self.marks_of(slot), parity);
        loop {
            let mark = self.mem.load_cached(at);
            let is_gone = || !self.is_marked(slot) && !planted!("bug-session-of-the-dead-kept");
            if mark == 0 || mark == ENDED || is_gone() {
                return false;
            }
            let is_over = mark != FOR_EVER && mark <= now_ns();
            if is_over && !planted!("bug-session-never-ended") {
                if self.mem.cas(at, mark, ENDED).is_ok() {
                    return false;
                }
                continue;
            }
            return !self.slot_dead(slot) || planted!("bug-session-of-the-dead-kept");
        }
    }
}

impl<'h> Ground<'h> {
    /// Where the era word is.
    #[inline(always)]
    #[must_use]
    pub fn era_at(self) -> u64 {
        self.core.era_at()
    }

    /// Has the era go on, if it may, in a write window; answers it. Sessions that have lasted
    /// longer than they may are ended.
    #[cold]
    pub fn advance_era(self) -> Era {
        let core = self.core;
        eras::advance(self.mem(), core.era_at(), |parity| {
            core.slots().any(|slot| core.is_reading(slot, parity))
        })
    }

    /// Whether nobody has a run's lock, at a look.
    #[inline(always)]
    #[must_use]
    pub fn is_at_rest(self, chunk: u64) -> bool {
        eras::is_at_rest(self.mem(), self.core.line(chunk) + OWNER_OFFSET)
    }

    /// Begins a session, which others may end after so long.
    ///
    /// # Errors
    /// Those of [`Ground::enter`].
    pub fn session(self, limit: Duration) -> Result<Session<'h>> {
        self.enter()?;
        let core = self.core;
        let limit = u64::try_from(limit.as_nanos()).unwrap_or(FOR_EVER);
        let until = match limit {
            FOR_EVER.. => FOR_EVER,
            _ => now_ns().saturating_add(limit).clamp(1, FOR_EVER),
        };
        let sessions = &core.sessions;
        let open = std::cell::RefCell::new(sessions.open());
        let _window = core.mem.window();
        let parity = eras::begin(
            &core.mem,
            core.era_at(),
            core.marks_of(core.holder().slot),
            until,
            |parity| greatest(&open.borrow()[parity]),
            |parity| {
                open.borrow_mut()[parity].clear();
                sessions.generations[parity].fetch_add(1, Ordering::Release);
            },
        );
        open.borrow_mut()[parity].push(until);
        Ok(Session {
            core,
            parity,
            until,
            generation: sessions.generations[parity].load(Ordering::Relaxed),
        })
    }

    /// The processes that have sessions open, this one among them.
    #[must_use]
    pub fn reading(self) -> Vec<ReadingProcess> {
        let core = self.core;
        let mark = |slot, parity| {
            let mark = self
                .mem()
                .load_cached(eras::mark_at(core.marks_of(slot), parity));
            if mark == ENDED { 0 } else { mark }
        };
        let now = now_ns();
        let of_slot = |slot| {
            let mark = mark(slot, 0).max(mark(slot, 1));
            let is_reading = mark > 0 && core.is_marked(slot) && !core.slot_dead(slot);
            is_reading.then(|| ReadingProcess {
                pid: core.slot_pid(slot),
                command: core.slot_command(slot),
                left: (mark != FOR_EVER).then(|| Duration::from_nanos(mark.saturating_sub(now))),
            })
        };
        core.slots().filter_map(of_slot).collect()
    }
}

/// A session of a reader: what is freed while it is open is not used again, unless others have
/// ended it.
pub struct Session<'h> {
    core: &'h Core,
    parity: usize,
    until: u64,
    generation: u64,
}

/// The mark of sessions that may be kept open until then each.
fn greatest(untils: &[u64]) -> u64 {
    untils.iter().max().copied().unwrap_or(0)
}

impl Session<'_> {
    /// Whether it is open still. All that was read before is as it was while the session is, if
    /// the answer is yes.
    #[inline]
    #[must_use]
    pub fn is_open(&self) -> bool {
        let core = self.core;
        core.mem.acquire();
        let at = eras::mark_at(core.marks_of(core.holder().slot), self.parity);
        let mark = core.mem.load_cached(at);
        // The mark first: it says something else only after the generation has changed.
        mark != ENDED
            && core.sessions.generations[self.parity].load(Ordering::Acquire) == self.generation
    }

    fn end(&mut self) -> Result<()> {
        let core = self.core;
        // A copy of the process has no session, and a lock of its own that nobody may open.
        core.enter()?;
        let mut open = core.sessions.open();
        if core.sessions.generations[self.parity].load(Ordering::Relaxed) != self.generation {
            return Ok(());
        }
        let untils = &mut open[self.parity];
        if let Some(nth) = untils.iter().position(|&until| until == self.until) {
            untils.swap_remove(nth);
        }
        let _window = core.mem.window();
        let at = eras::mark_at(core.marks_of(core.holder().slot), self.parity);
        eras::lower(&core.mem, at, greatest(untils));
        Ok(())
    }
}

impl Drop for Session<'_> {
    fn drop(&mut self) {
        // A heap that can't be used has nothing that it would hold.
        let _ = self.end();
    }
}
