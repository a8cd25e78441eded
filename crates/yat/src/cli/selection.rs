//! The selection of workloads.

use super::Mode;
use clap::{Args, ValueEnum};
use std::time::{Duration, Instant};
use yat::files::FileSystem;
use yat::files::ace::{self, sequences, shared_prefixes};
use yat::files::call::{self, Call};
use yat::files::clones;
use yat::files::kinds::kinds;
use yat::files::pending::pending;
use yat::files::trees;
use yat::program::Program;

#[derive(Debug, Args)]
pub struct Selection {
    /// Workloads
    #[arg(long, value_enum, default_value_t = Set::Ace2)]
    set: Set,
    /// Calls of a workload of your own instead: "mkdir A; create A/foo"
    #[arg(long, conflicts_with = "set")]
    calls: Option<String>,
    /// Data mode of the pool
    #[arg(long, value_enum, default_value_t = Mode::Both)]
    mode: Mode,
    /// Take only workloads with this in their name
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,
    /// Take only one workload in N, chosen by the seed
    #[arg(long, value_name = "N", default_value_t = 1)]
    one_in: u64,
    /// Crash only calls that no workload of this set comes to in the same way
    #[arg(long, value_name = "SET", conflicts_with = "calls")]
    beyond: Option<Set>,
    /// Seed of what is chosen at random
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Threads; 0: one a core
    #[arg(long, default_value_t = 0)]
    threads: usize,
    /// Stop after so many minutes
    #[arg(long)]
    minutes: Option<u64>,
}

/// Xorshift.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 >> 20
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Set {
    /// Every kind of call, on a pool with one of everything
    Kinds,
    /// Clones of whole trees, and snapshots
    Trees,
    /// ACE's 56 workloads of one call
    Ace1,
    /// ACE's 3,136 workloads of two calls
    Ace2,
    /// ACE's 175,616 workloads of three calls
    Ace3,
    /// Those of three calls that change names and sizes
    Meta3,
    /// Calls one after the other on the same words, in two lanes
    #[value(alias = "debts")]
    Pending,
    /// Two calls, on files of which some share blocks
    Clones,
    /// Those of ace1, with the calls that ACE leaves out
    Wide1,
    /// Those of ace2, with the calls that ACE leaves out
    Wide2,
}

impl Set {
    /// All its sequences of calls; `kinds` and `trees` have none.
    fn sequences(self) -> Vec<Vec<Call>> {
        let (set, len) = match self {
            Set::Kinds | Set::Trees => return Vec::new(),
            Set::Pending => return pending(),
            Set::Clones => return clones::sequences(),
            Set::Ace1 => (ace::ace(), 1),
            Set::Ace2 => (ace::ace(), 2),
            Set::Ace3 => (ace::ace(), 3),
            Set::Meta3 => (ace::metadata(), 3),
            Set::Wide1 => (ace::wide(), 1),
            Set::Wide2 => (ace::wide(), 2),
        };
        sequences(&set, len).collect()
    }
}

impl Selection {
    fn sequences(&self) -> Result<Vec<Vec<Call>>, String> {
        if let Some(text) = &self.calls {
            return Ok(vec![call::parse(text)?]);
        }
        if self.one_in == 0 {
            return Err("--one-in takes numbers from 1 on".into());
        }
        let mut random = Random(self.seed | 1);
        let all = self.set.sequences().into_iter();
        let mut chosen: Vec<Vec<Call>> = all
            .filter(|_| random.next().is_multiple_of(self.one_in))
            .collect();
        if self.minutes.is_some() {
            // The part that the time suffices for is to be a sample of all.
            for at in (1..chosen.len()).rev() {
                chosen.swap(at, random.next() as usize % (at + 1));
            }
        }
        Ok(chosen)
    }

    /// The workloads, each with the number of its first calls that another one has too: one before
    /// it, or one of the set beyond which to go.
    pub fn workloads(&self) -> Result<Vec<(FileSystem, usize)>, String> {
        let mut sequences = self.beyond.map_or_else(Vec::new, Set::sequences);
        let known = sequences.len();
        sequences.extend(self.sequences()?);
        let shared = shared_prefixes(&sequences);
        let mut workloads = Vec::new();
        let kinds = match self.set {
            Set::Kinds => kinds(),
            Set::Trees => trees::kinds(),
            _ => Vec::new(),
        };
        if self.calls.is_none() {
            for kind in kinds {
                let modes = self.mode.modes().iter();
                workloads.extend(modes.map(|&mode| (FileSystem::of_kind(&kind, mode), 0)));
            }
        }
        for (calls, &from) in sequences.iter().zip(&shared).skip(known) {
            let modes = self.mode.modes().iter();
            workloads.extend(modes.map(|&mode| (FileSystem::of_calls(calls, mode), from)));
        }
        if let Some(text) = &self.only {
            workloads.retain(|(program, _)| program.name().contains(text));
            if workloads.is_empty() {
                return Err(format!("no workload has {text:?} in its name"));
            }
        }
        Ok(workloads)
    }

    /// Returns the number of threads.
    pub fn threads(&self) -> usize {
        match self.threads {
            0 => std::thread::available_parallelism().map_or(1, usize::from),
            threads => threads,
        }
    }

    /// Returns the time to stop.
    pub fn until(&self) -> Option<Instant> {
        let minutes = self
            .minutes
            .map(|minutes| Duration::from_secs(60 * minutes));
        minutes.map(|time| Instant::now() + time)
    }
}
