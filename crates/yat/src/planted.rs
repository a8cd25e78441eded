//! The hunt for planted bugs: a crash checker is judged by what it finds. One bug of
//! `pmfs::planted::BUGS` is selected, and the searches are gone through, those first that the bug's
//! `Needs` names and then the cheapest first, until one sees something wrong. With nothing selected
//! the same searches must see nothing.
//!
//! The selected bug is the process's: one hunt at a time.

mod fault;

use crate::again::Again;
use crate::explore::{Counts, Explorer, Options, record};
use crate::files::ace::{sequences, wide};
use crate::files::kinds::kinds;
use crate::files::pending::pending;
use crate::files::reopen::Reopen;
use crate::files::trees;
use crate::files::{FileSystem, pool};
use crate::kill::{Kills, kill_counting};
use crate::making::Making;
use crate::pairs::{everything, further, on_a_full_pool};
use crate::program::Program;
use crate::quiet::quietly;
use crate::stops::stop_everywhere;
use crate::tables::{play, scenes};
use pmfs::planted::{Bug, Needs};
use pmfs::{DataMode, Fs, ROOT_INO};
use std::fmt;
use std::path::Path;

const MODES: [DataMode; 2] = [DataMode::Atomic, DataMode::Ordered];

/// One in so many of the workloads of two calls is tried.
const TWO_CALLS_ONE_IN: usize = 61;

/// A way to search; the cheapest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Search {
    /// Power loss in one call of each kind.
    Power,
    /// Power loss while a pool is made.
    Making,
    /// Calls that may be made on a file that has lost its name while it is held open.
    Held,
    /// Power loss in generated workloads of one call, and in a slice of those of two.
    Sequences,
    /// Power loss in recovery, and once more after the recovered pool was used.
    Recovery,
    /// Power loss in the call after a recovery.
    Again,
    /// A process killed at each step of one call of each kind.
    Kill,
    /// Tables that processes share beside the tree, in scenes of two, one of them stopped or killed
    /// at each step.
    Tables,
    /// A call stopped or killed at each step, and another one that comes then.
    Stops,
    /// Two calls interleaved before their fences, and power loss.
    Pairs,
    /// Power loss while a pool is left and opened again, believed if it is clean.
    Reopen,
    /// Power loss while a tree is cloned, or a snapshot made or deleted.
    Trees,
}

const SEARCHES: [Search; 12] = [
    Search::Power,
    Search::Making,
    Search::Reopen,
    Search::Held,
    Search::Sequences,
    Search::Recovery,
    Search::Again,
    Search::Kill,
    Search::Tables,
    Search::Stops,
    Search::Pairs,
    Search::Trees,
];

impl Search {
    /// Returns what its states are.
    #[must_use]
    pub fn unit(self) -> &'static str {
        match self {
            Search::Held => "calls",
            Search::Kill => "kills",
            Search::Stops | Search::Tables => "stops",
            _ => "images",
        }
    }
}

impl fmt::Display for Search {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Search::Power => "power, kinds",
            Search::Making => "power, mkfs and grow",
            Search::Held => "held open",
            Search::Sequences => "power, sequences",
            Search::Recovery => "power, in recovery",
            Search::Again => "power, after recovery",
            Search::Kill => "kill",
            Search::Tables => "tables",
            Search::Stops => "stops",
            Search::Pairs => "pairs",
            Search::Reopen => "power, left and opened",
            Search::Trees => "power, trees",
        })
    }
}

/// The damage that was seen.
#[derive(Clone, Debug)]
pub struct Finding {
    /// The search that found it.
    pub search: Search,
    /// The workload in which it was found.
    pub workload: String,
    /// The fault, in words.
    pub text: String,
}

/// The course of a hunt.
#[derive(Clone, Debug, Default)]
pub struct Hunt {
    /// States that each search saw before it ended, in the order of the searches.
    pub seen: Vec<(Search, u64)>,
    /// The finding that the last one ended with.
    pub finding: Option<Finding>,
}

impl Hunt {
    /// States until the finding, that one included, of all searches.
    #[must_use]
    pub fn states(&self) -> u64 {
        let seen: u64 = self.seen.iter().map(|&(_, states)| states).sum();
        seen + u64::from(self.finding.is_some())
    }
}

/// The setting of the searches.
#[derive(Clone, Copy, Debug)]
pub struct Hunter<'a> {
    /// The directory for pool files.
    pub dir: &'a Path,
    /// One in so many of the workloads of each search is tried.
    pub one_in: usize,
}

/// One workload's part of a search: adds the states that it saw; what is wrong, in words.
type Look<'a> = &'a mut dyn FnMut(&mut u64) -> Result<(), String>;

/// A search that goes on.
struct Round<'a> {
    hunter: &'a Hunter<'a>,
    search: Search,
    workloads: usize,
    states: u64,
    finding: Option<Finding>,
}

impl Round<'_> {
    /// One workload, if nothing was found before it and it is among those that are tried.
    fn search_one(&mut self, name: &dyn Fn() -> String, look: Look<'_>) {
        self.workloads += 1;
        let is_out = !(self.workloads - 1).is_multiple_of(self.hunter.one_in);
        if self.finding.is_some() || is_out {
            return;
        }
        let mut states = 0;
        let looked = quietly(|| look(&mut states)).and_then(|looked| looked);
        self.states += states;
        if let Err(text) = looked {
            self.finding = Some(Finding {
                search: self.search,
                workload: name(),
                text,
            });
        }
    }

    fn explore<P: Program>(&mut self, program: &P, options: Options) {
        self.search_one(&|| program.name(), &mut |states| {
            let recording = record(program)?;
            match Explorer::new(program, &recording, options).run() {
                Ok(counts) => {
                    *states = counts.images;
                    Ok(())
                }
                Err(violation) => {
                    *states = violation.after_images - 1;
                    Err(violation.to_string())
                }
            }
        });
    }
}

/// Selects a bug; fresh pools are made before, while there is none yet.
pub fn plant(bug: &str) {
    drop((
        pool::fresh(pool::POOL_BYTES),
        pool::fresh(pool::LARGE_POOL_BYTES),
    ));
    fault::set(Some(bug));
}

/// Forgets what the bug has this thread do later: its process dies.
pub(crate) fn forget_late() {
    fault::forget_late();
}

impl Hunter<'_> {
    /// Hunts one bug.
    #[must_use]
    pub fn hunt(&self, bug: &Bug) -> Hunt {
        let first: &[Search] = match bug.needs {
            Needs::OneCall => &[],
            Needs::Sequence => &[Search::Sequences],
            Needs::Kill => &[Search::Kill],
            Needs::Tables => &[Search::Tables],
            Needs::TwoCalls => &[Search::Held, Search::Again, Search::Recovery],
            Needs::Recovery => &[Search::Recovery],
            Needs::Pair => &[Search::Stops, Search::Pairs],
            Needs::Mkfs => &[Search::Making],
            Needs::Reopen => &[Search::Reopen],
            Needs::Trees => &[Search::Trees],
        };
        let others = SEARCHES.iter().filter(|search| !first.contains(search));
        plant(bug.name);
        let hunt = self.search(first.iter().chain(others));
        fault::set(None);
        hunt
    }

    /// The same searches, with no bug there.
    #[must_use]
    pub fn clean(&self) -> Hunt {
        fault::set(None);
        self.search(SEARCHES.iter())
    }

    fn search<'s>(&self, searches: impl Iterator<Item = &'s Search>) -> Hunt {
        let mut hunt = Hunt::default();
        for &search in searches {
            let mut round = Round {
                hunter: self,
                search,
                workloads: 0,
                states: 0,
                finding: None,
            };
            round.run();
            hunt.seen.push((search, round.states));
            hunt.finding = round.finding;
            if hunt.finding.is_some() {
                break;
            }
        }
        hunt
    }
}

impl Round<'_> {
    fn run(&mut self) {
        match self.search {
            Search::Power => self.power(0),
            Search::Recovery => self.power(1),
            Search::Sequences => self.sequences(),
            Search::Making => {
                for making in Making::all() {
                    self.explore(&making, Options::default());
                }
            }
            Search::Reopen => {
                for mode in MODES {
                    for options in Reopen::OPTIONS {
                        self.explore(&Reopen::new(mode), options);
                    }
                }
            }
            Search::Trees => {
                for kind in trees::kinds() {
                    self.explore(
                        &FileSystem::of_kind(&kind, DataMode::Atomic),
                        Options::default(),
                    );
                }
            }
            Search::Held => self.search_one(
                &|| "a file unlinked while it is held open".into(),
                &mut held,
            ),
            Search::Again => self.again(),
            Search::Kill => self.kill(),
            Search::Tables => self.tables(),
            Search::Stops => self.stops(),
            Search::Pairs => self.pairs(),
        }
    }

    /// Every kind of call. Recoveries of large pools take long to crash, and are as those of small
    /// ones.
    fn power(&mut self, depth: usize) {
        let options = Options {
            depth,
            ..Options::default()
        };
        for mode in MODES {
            for kind in kinds() {
                if depth == 0 || kind.pool_bytes == pool::POOL_BYTES {
                    self.explore(&FileSystem::of_kind(&kind, mode), options);
                }
            }
        }
    }

    fn sequences(&mut self) {
        let set = wide();
        for mode in MODES {
            let two = sequences(&set, 2).step_by(TWO_CALLS_ONE_IN);
            for calls in pending().into_iter().chain(sequences(&set, 1)).chain(two) {
                self.explore(&FileSystem::of_calls(&calls, mode), Options::default());
            }
        }
    }

    fn again(&mut self) {
        let small = |kind: &crate::files::kinds::Kind| kind.pool_bytes == pool::POOL_BYTES;
        for kind in kinds().into_iter().filter(small) {
            if self.finding.is_some() {
                return;
            }
            let mut all = Vec::new();
            self.search_one(&|| kind.name.into(), &mut |_| {
                all = Again::after(&kind, DataMode::Atomic)?;
                Ok(())
            });
            for again in all {
                self.explore(&again, Options::default());
            }
        }
    }

    fn kill(&mut self) {
        let dir = self.hunter.dir;
        for mode in MODES {
            for kind in kinds() {
                let program = FileSystem::of_kind(&kind, mode);
                self.search_one(&|| program.name(), &mut |states| {
                    let mut kills = Kills::default();
                    let killed = kill_counting(&program, 0, dir, &mut kills);
                    *states = kills.kills;
                    killed
                });
            }
        }
    }

    fn tables(&mut self) {
        let dir = self.hunter.dir;
        for scene in scenes() {
            self.search_one(&|| scene.name.into(), &mut |states| {
                play(&scene, dir, states)
            });
        }
    }

    fn stops(&mut self) {
        let dir = self.hunter.dir;
        let mut all = further(DataMode::Atomic);
        for pair in &mut all {
            // Locks enough that the pair's inodes seldom share one.
            pair.pool_bytes = pool::LARGE_POOL_BYTES;
        }
        all.extend(on_a_full_pool(DataMode::Atomic));
        for pair in all {
            self.search_one(&|| pair.name(), &mut |states| {
                stop_everywhere(&pair, dir, states)
            });
        }
    }

    fn pairs(&mut self) {
        for mode in MODES {
            for pair in everything(mode) {
                self.search_one(&|| pair.name(), &mut |states| {
                    let mut counts = Counts::default();
                    let explored = pair.explore_counting(&mut counts);
                    *states = counts.images;
                    explored?.map_err(|violation| {
                        *states -= 1;
                        violation.to_string()
                    })
                });
            }
        }
    }
}

/// A file without a name lives as long as it is held: nobody gets its number or its blocks.
fn held(calls: &mut u64) -> Result<(), String> {
    let words = |error: pmfs::Error| error.to_string();
    let options = pool::open_options(DataMode::Atomic, 1);
    let fs = Fs::open_private(pool::fresh(pool::POOL_BYTES), &options).map_err(words)?;
    let file = fs
        .create(ROOT_INO, b"held", &pool::NODE)
        .map_err(words)?
        .ino;
    fs.hold(file).map_err(words)?;
    fs.append(file, b"held").map_err(words)?;
    fs.unlink(ROOT_INO, b"held").map_err(words)?;
    crate::files::usage::sound(&fs)?;
    for name in 0u8..32 {
        let made = fs.create(ROOT_INO, &[b'a' + name], &pool::NODE);
        let made = made.map_err(words)?.ino;
        if made == file {
            return Err("a held file's number is given out".into());
        }
        fs.append(made, &[b'n'; 5000]).map_err(words)?;
        *calls += 2;
    }
    let mut bytes = [0; 4];
    fs.read(file, 0, &mut bytes).map_err(words)?;
    if bytes == *b"held" {
        Ok(())
    } else {
        Err("a held file has lost its content".into())
    }
}
