//! Samples, arms, and the trait of the backends that deliver them.

use std::fmt;
use std::io;
use std::ops::Range;

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// A thread's number, in the monitor's own namespace.
pub type Tid = u32;

/// A thread and the process it belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Thread {
    /// The process.
    pub pid: u32,
    /// The thread.
    pub tid: Tid,
}

/// The direction of an access.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Access {
    /// A load.
    Read,
    /// A store.
    Write,
}

/// The way by which an access reached the memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Origin {
    /// An instruction of the program on a mapping.
    Mapped,
    /// The kernel, for a call.
    Kernel,
}

/// How an access came to be seen.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Exposure {
    /// Each access is seen with this probability, independently (a PMU: 1 / period).
    Probability(f64),
    /// Every access to one 8-byte word is seen while the [`Arm`] of this number lasts.
    Word {
        /// The word's address, a multiple of 8.
        address: u64,
        /// The arm's number, unique in a sampler.
        arm: u64,
    },
    /// An access to the neighbour of a watched word, in another part of its line of the media.
    /// Only what both have in common is told by it, and no bytes.
    Beside {
        /// The neighbour's address, a multiple of 8.
        address: u64,
        /// The number of the [`Arm`] whose word it is beside.
        arm: u64,
    },
    /// An access that was in progress at a tick of a clock: where and who, not how many.
    Time {
        /// The thread's time for which a tick stands, in nanoseconds.
        period_ns: u64,
    },
}

/// An access that was seen.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// The thread that made it.
    pub tid: Tid,
    /// `CLOCK_MONOTONIC`, in nanoseconds.
    pub time_ns: u64,
    /// The instruction, or the one behind it if it could not be decoded.
    pub ip: u64,
    /// The first byte; without a decoded instruction, the watched word.
    pub address: u64,
    /// Load or store.
    pub access: Access,
    /// Bytes of the whole access; 0 if the instruction could not be decoded.
    pub bytes: u32,
    /// How it came to be seen.
    pub exposure: Exposure,
    /// By which way.
    pub origin: Origin,
}

/// A word that was watched on a thread for a time, with or without accesses.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Arm {
    /// Its number, in [`Exposure::Word`].
    pub number: u64,
    /// The thread.
    pub tid: Tid,
    /// Words among which this one was drawn uniformly.
    pub words: u64,
    /// Time that the thread ran while this arm was its turn, watched or not, in nanoseconds.
    pub ran_ns: u64,
    /// Words that were watched on the thread in that time, with this one. Each has its part of the
    /// time in the estimate, so that rounds with few words count as much as others.
    #[serde(default = "one")]
    pub beside: u32,
    /// Time that the thread ran and was watched, in nanoseconds, traps included.
    pub watched_ns: u64,
    /// Traps on this word, as the kernel counted them.
    pub hits: u64,
    /// Traps on all words of the thread while this one was watched: they slowed it.
    pub traps: u64,
    /// Traps on all words of the thread in `ran_ns`.
    pub round_traps: u64,
    /// The arm ended at its limit of traps, and not by the clock.
    pub stopped: bool,
    /// The address of a word that was watched beside it ([`Exposure::Beside`]).
    #[serde(default)]
    pub neighbour: Option<u64>,
}

/// Recordings of older versions have the same number in all rounds.
fn one() -> u32 {
    1
}

/// The abilities of a backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Coverage {
    /// The backend's name, as `--backend` takes it.
    pub backend: &'static str,
    /// Loads are seen.
    pub reads: bool,
    /// Stores are seen.
    pub writes: bool,
    /// Samples tell how many accesses there were, and not only where.
    pub counts: bool,
}

/// The result of [`Sampler::drain`] beside the samples.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Drained {
    /// Arms that have ended since the last call. Their samples have been delivered.
    pub arms: Vec<Arm>,
    /// Threads, and how long each has run since it is followed, in nanoseconds.
    pub ran: Vec<(Tid, u64)>,
    /// Samples that the kernel could not deliver. [`Arm::hits`] counts them nevertheless.
    pub lost: u64,
    /// Times at which the kernel held back samples because there were too many.
    pub throttled: u64,
    /// Samples whose instruction could not be decoded.
    pub undecoded: u64,
    /// Threads that have ended.
    pub ended: Vec<Tid>,
}

/// A backend.
pub trait Sampler {
    /// Its abilities.
    fn what(&self) -> Coverage;

    /// Says where a process has persistent memory mapped: whole pages.
    ///
    /// # Errors
    /// The process's memory may not be read, or it is gone.
    fn regions(&mut self, pid: u32, regions: &[Range<u64>]) -> io::Result<()>;

    /// Begins to watch a thread.
    ///
    /// # Errors
    /// The machine or the user lacks something. Threads that are followed already go on.
    fn follow(&mut self, thread: Thread) -> Result<(), Lacking>;

    /// Ends to watch a thread. Its samples come with the next [`drain`](Self::drain).
    fn leave(&mut self, tid: Tid);

    /// Appends what was seen since the last call.
    fn drain(&mut self, to: &mut Vec<Sample>) -> Drained;
}

impl<S: Sampler + ?Sized> Sampler for Box<S> {
    fn what(&self) -> Coverage {
        (**self).what()
    }

    fn regions(&mut self, pid: u32, regions: &[Range<u64>]) -> io::Result<()> {
        (**self).regions(pid, regions)
    }

    fn follow(&mut self, thread: Thread) -> Result<(), Lacking> {
        (**self).follow(thread)
    }

    fn leave(&mut self, tid: Tid) {
        (**self).leave(tid);
    }

    fn drain(&mut self, to: &mut Vec<Sample>) -> Drained {
        (**self).drain(to)
    }
}

/// The lack of a backend on this machine, and who can help.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{backend}: {cause}; {remedy}")]
pub struct Lacking {
    /// The backend.
    pub backend: &'static str,
    /// The kernel's words.
    pub cause: String,
    /// The way out.
    pub remedy: &'static str,
    /// The thread is gone: nothing is lacking.
    pub gone: bool,
}

impl fmt::Display for Access {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str(match self {
            Self::Read => "read",
            Self::Write => "write",
        })
    }
}
