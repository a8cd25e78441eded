//! The instants at which kills fell.

use std::fmt;
use std::time::Duration;

use serde_json::Value;

/// The cause of a daemon's end.
#[derive(Clone, Copy)]
pub enum Cause {
    /// SIGKILL from outside, so long after the load began.
    Time(Duration),
    /// A kill of its own, so many instructions after this barrier.
    Barrier(u64, u64),
}

impl Cause {
    pub fn barrier(self) -> Option<(u64, u64)> {
        match self {
            Cause::Time(_) => None,
            Cause::Barrier(barrier, instructions) => Some((barrier, instructions)),
        }
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Cause::Time(after) => write!(f, "after {:5.1} ms", after.as_secs_f64() * 1e3),
            Cause::Barrier(barrier, instructions) => {
                write!(f, "at barrier {barrier:5} + {instructions:3}")
            }
        }
    }
}

/// One kill.
pub struct Fall {
    cause: Cause,
    /// Calls that returned before it.
    returned: u64,
    /// Calls that had not returned, and are there.
    applied: u64,
    /// Then the counts below are those of the second recovery alone.
    recovery_killed: bool,
    interrupted: u64,
    undone: u64,
    intents: u64,
}

impl Fall {
    pub fn new(
        cause: Cause,
        returned: u64,
        applied: u64,
        recovery_killed: bool,
        recovery: &Value,
    ) -> Fall {
        let count = |name: &str| recovery[name].as_u64().expect("a count");
        Fall {
            cause,
            returned,
            applied,
            recovery_killed,
            interrupted: count("calls_interrupted"),
            undone: count("transactions_undone"),
            intents: count("intents_resolved"),
        }
    }

    /// A transaction was open, or blocks or inodes were claimed and not yet placed.
    fn inside(&self) -> bool {
        self.undone > 0 || self.intents > 0
    }
}

impl fmt::Display for Fall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}, {:6} calls returned; {} interrupted, {} transactions undone, {} intents resolved, \
             {} in flight took effect: {}{}",
            self.cause,
            self.returned,
            self.interrupted,
            self.undone,
            self.intents,
            self.applied,
            if self.inside() { "inside" } else { "outside" },
            if self.recovery_killed {
                ", and once more in recovery"
            } else {
                ""
            }
        )
    }
}

#[derive(Default)]
struct Share {
    kills: u64,
    inside: u64,
}

impl fmt::Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {}", self.inside, self.kills)
    }
}

/// All kills.
#[derive(Default)]
pub struct Tally {
    by_time: Share,
    by_barrier: Share,
    returned: u64,
    undone: u64,
    recoveries_killed: u64,
}

impl Tally {
    pub fn add(&mut self, fall: &Fall) {
        let share = match fall.cause {
            Cause::Time(_) => &mut self.by_time,
            Cause::Barrier(..) => &mut self.by_barrier,
        };
        share.kills += 1;
        share.inside += u64::from(fall.inside());
        self.returned += fall.returned;
        self.undone += fall.undone;
        self.recoveries_killed += u64::from(fall.recovery_killed);
    }

    pub fn a_third_inside(&self) -> bool {
        (self.by_time.inside + self.by_barrier.inside) * 3
            >= self.by_time.kills + self.by_barrier.kills
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} kills, 0 calls lost of {} that returned; inside a transaction: {} at a random time, \
             {} after a random barrier; {} transactions undone, {} recoveries killed",
            self.by_time.kills + self.by_barrier.kills,
            self.returned,
            self.by_time,
            self.by_barrier,
            self.undone,
            self.recoveries_killed
        )
    }
}
