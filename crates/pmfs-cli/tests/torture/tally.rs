//! The instants at which kills fell, and the time that what the dead held stayed held.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use pmfs_admin::OwnerWords;

use crate::face::Way;
use crate::op::NAMES;
use crate::random::Random;

/// The way in which an instant was chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Manner {
    /// The victim was killed at a random moment.
    Random,
    /// The parent saw the victim hold a lock.
    Holding,
    /// By the victim itself, so many instructions after one of its next barriers.
    Barrier { barrier: u64, instructions: u64 },
}

impl Manner {
    /// A transaction stores in place some hundred instructions after its first barrier;
    /// just after a barrier, on the other hand, it is most often still open.
    pub fn choose(random: &mut Random) -> Manner {
        match random.below(4) {
            0 => Manner::Random,
            1 => Manner::Holding,
            _ => {
                let barrier = random.below(100) + 1;
                let most = [60, 400, 1500][random.below(3) as usize];
                Manner::Barrier {
                    barrier,
                    instructions: random.below(most),
                }
            }
        }
    }

    /// Returns the manner, as far as a worker of that kind can be killed so: it has to know of
    /// barriers.
    pub fn by(self, way: Way) -> Manner {
        match way {
            Way::Library => self,
            Way::C | Way::Run(_) => self.outside(),
            Way::Mount(_) => Manner::Random,
        }
    }

    /// Returns the manner for a process that does not know of barriers.
    pub fn outside(self) -> Manner {
        match self {
            Manner::Barrier { .. } => Manner::Holding,
            manner => manner,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Manner::Random => "at random",
            Manner::Holding => "while something is held",
            Manner::Barrier { .. } => "after a barrier",
        }
    }
}

/// One kill.
pub struct Fall {
    /// The name of the victim's kind.
    pub victim: &'static str,
    pub manner: Manner,
    /// The place in [`NAMES`] of what the journal says that it was in the middle of.
    pub within: Option<u8>,
    /// The time for which it had been in that.
    pub since: Duration,
    /// The words that its slot held, if it had one.
    pub held: Option<OwnerWords>,
}

/// A share of the kills.
#[derive(Default)]
struct Places(BTreeMap<&'static str, u64>);

impl Places {
    fn add(&mut self, place: &'static str) {
        *self.0.entry(place).or_default() += 1;
    }
}

impl fmt::Display for Places {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut places: Vec<_> = self.0.iter().collect();
        places.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
        let places: Vec<String> = places
            .iter()
            .map(|(place, count)| format!("{place} {count}"))
            .collect();
        f.write_str(&places.join(", "))
    }
}

/// All kills.
#[derive(Default)]
pub struct Tally {
    pub kills: u64,
    /// Inside an operation, by the journal.
    inside: u64,
    /// The longest that a victim had been in one operation.
    pub longest: (Duration, &'static str),
    victims: Places,
    manners: Places,
    within: Places,
    /// By the pool; a kill may be in several.
    holding: Places,
}

impl Tally {
    pub fn add(&mut self, fall: &Fall) {
        self.kills += 1;
        self.victims.add(fall.victim);
        self.manners.add(fall.manner.name());
        let place = fall
            .within
            .map_or("between operations", |kind| NAMES[usize::from(kind)]);
        self.within.add(place);
        if fall.within.is_some() && fall.since > self.longest.0 {
            self.longest = (fall.since, place);
        }
        let Some(held) = fall.held else {
            self.holding.add(if fall.victim == Way::Mount(0).name() {
                "what its daemon holds"
            } else {
                "not attached"
            });
            self.inside += u64::from(fall.within.is_some_and(|kind| kind < crate::op::ATTACH));
            return;
        };
        self.inside += u64::from(fall.within.is_some() || held.total() > 0);
        let places = [
            (held.lanes, "a lane"),
            (held.open_logs, "an open transaction"),
            (held.intents, "intents"),
            (held.locks, "inode locks"),
            (held.changing, "readers kept waiting"),
            (held.groups, "a bitmap group"),
            (held.tables, "the rename lock or the table's"),
            (held.files, "a file's offset"),
            (held.recovery, "the recovery's locks"),
            (held.open, "files open"),
            (held.file_locks, "file locks"),
        ];
        for (count, place) in places {
            if count > 0 {
                self.holding.add(place);
            }
        }
        if held.total() == 0 {
            self.holding.add("no lock");
        }
    }

    pub fn a_third_inside(&self) -> bool {
        self.inside * 3 >= self.kills
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{} kills, {} inside a call: {}",
            self.kills, self.inside, self.manners
        )?;
        writeln!(f, "  of: {}", self.victims)?;
        let (longest, place) = self.longest;
        writeln!(f, "  longest in one operation: {longest:.1?} ({place})")?;
        writeln!(f, "  in the middle of: {}", self.within)?;
        write!(f, "  holding: {}", self.holding)
    }
}

/// The times that it took, over many kills.
#[derive(Default)]
pub struct Times {
    released: Vec<Duration>,
    /// Not released within this, which was waited.
    pub missed: u64,
}

impl Times {
    pub fn add(&mut self, time: Option<Duration>) {
        match time {
            Some(time) => self.released.push(time),
            None => self.missed += 1,
        }
    }

    /// Returns a percentile of those that were released.
    pub fn percentile(&self, percent: usize) -> Duration {
        let mut times = self.released.clone();
        times.sort_unstable();
        let at = (times.len() * percent).div_ceil(100).saturating_sub(1);
        times.get(at).copied().unwrap_or_default()
    }
}

impl fmt::Display for Times {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ms = |percent| self.percentile(percent).as_secs_f64() * 1e3;
        write!(
            f,
            "{} released: p50 {:.1} ms, p99 {:.1} ms, most {:.1} ms; {} not within the wait",
            self.released.len(),
            ms(50),
            ms(99),
            ms(100),
            self.missed
        )
    }
}
