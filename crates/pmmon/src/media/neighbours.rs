//! The share of stores whose line's other parts are stored to as well while the line is in the
//! module's buffer, from pairs of words that are watched together.

use std::collections::{BTreeMap, HashMap};

use pmep::Device;
use pmep::device::Key;
use pmep::geometry::LINE;

use super::{DEVICE, Draw, REQUEST, amplification, module, store};
use crate::account::{Figure, WORD_BYTES};
use crate::{Access, Drained, Exposure, Sample, Tid};

/// Samples below which nothing is told.
const SAMPLES_MIN: u64 = 1000;
/// Lines that the model is asked about: many buffers full.
const LINES: usize = 2048;
/// Parts of a line, beside one of them.
const OTHERS: f64 = 3.0;
/// Classes of gaps in which a time doubles.
const CLASSES: f64 = 8.0;
/// The normal distribution's quantile at 97.5 %.
const NORMAL: f64 = 1.96;

/// An instruction and the bytes that it stores.
type Site = (u64, u32);

#[derive(Clone, Debug, Default)]
struct Stores {
    /// Stores to words that had a neighbour.
    hits: u64,
    /// Gaps to the neighbour's nearest store, by class. Stores without one are in none.
    gaps: BTreeMap<u16, u64>,
}

impl Stores {
    /// The share whose neighbour was stored to within a time, less those that are so by chance.
    fn joined(&self, window_ns: f64) -> f64 {
        let count = |from: u16, to: u16| self.gaps.range(from..to).map(|(_, it)| *it).sum::<u64>();
        let (end, twice) = (class(window_ns) + 1, class(2.0 * window_ns) + 1);
        let near = count(0, end);
        let left = self.hits.saturating_sub(near);
        // Stores that know nothing of each other are as frequent in the next such time. Less than
        // all of the first one is theirs: the thread stands still in its trap.
        let by_chance = match left {
            0 => 0.0,
            _ => count(end, twice) as f64 / left as f64 / 2.0,
        };
        let near = near as f64 / self.hits.max(1) as f64;
        ((near - by_chance) / (1.0 - by_chance)).clamp(0.0, 1.0)
    }
}

/// Stores to a word and to its neighbour, in the order of time.
#[derive(Debug, Default)]
struct Open {
    tid: Tid,
    word: Vec<(u64, Site)>,
    neighbour: Vec<u64>,
}

#[derive(Debug, Default)]
pub(super) struct Neighbours {
    trap_ns: f64,
    open: HashMap<u64, Open>,
    sites: HashMap<Tid, HashMap<Site, Stores>>,
}

/// The share of a site's stores that joined others in their line.
struct Joined {
    bytes: u32,
    hits: f64,
    share: f64,
}

impl Joined {
    /// The bytes of a store in one part of a line.
    fn part_bytes(&self) -> f64 {
        u64::from(self.bytes).min(REQUEST) as f64
    }

    /// The lines that the stores go to, in proportion to those of other sites.
    fn lines(&self, share: f64, spread: Spread) -> f64 {
        // A store meets as many watched words as it covers.
        let stores = self.hits / (f64::from(self.bytes) / WORD_BYTES as f64).max(1.0);
        let in_a_part = REQUEST as f64 / self.part_bytes();
        match spread {
            Spread::Runs => {
                let each = (1.0 + OTHERS * share) * (1.0 + share * (in_a_part - 1.0));
                stores / each
            }
            Spread::Mixed => stores * (share * self.part_bytes() / LINE as f64 + 1.0 - share),
        }
    }

    /// The ends of the share's interval of 95 % (Wilson 1927).
    fn ends(&self) -> (f64, f64) {
        let square = NORMAL * NORMAL;
        let middle = self.share + square / (2.0 * self.hits);
        let half = NORMAL
            * (self.share * (1.0 - self.share) / self.hits
                + square / (4.0 * self.hits * self.hits))
                .sqrt();
        let all = 1.0 + square / self.hits;
        (
            ((middle - half) / all).max(0.0),
            ((middle + half) / all).min(1.0),
        )
    }
}

/// The way in which stores with a share of neighbours are spread over lines.
#[derive(Clone, Copy, PartialEq)]
enum Spread {
    /// Runs of a length, as of a loop that stores as many bytes each time.
    Runs,
    /// Whole lines, and single stores between them: no other spread costs more.
    Mixed,
}

impl Neighbours {
    pub fn new(trap_ns: f64) -> Self {
        Self {
            trap_ns,
            ..Self::default()
        }
    }

    pub fn add(&mut self, samples: &[Sample], drained: &Drained) {
        for sample in samples {
            let (Access::Write, 1..) = (sample.access, sample.bytes) else {
                continue;
            };
            let (arm, is_neighbour) = match sample.exposure {
                Exposure::Word { arm, .. } => (arm, false),
                Exposure::Beside { arm, .. } => (arm, true),
                _ => continue,
            };
            let open = self.open.entry(arm).or_default();
            open.tid = sample.tid;
            let site = (sample.ip, sample.bytes);
            match is_neighbour {
                true => open.neighbour.push(sample.time_ns),
                false => open.word.push((sample.time_ns, site)),
            }
        }
        for arm in &drained.arms {
            if let Some(open) = self.open.remove(&arm.number)
                && arm.neighbour.is_some()
            {
                self.close(&open);
            }
        }
    }

    fn close(&mut self, open: &Open) {
        let sites = self.sites.entry(open.tid).or_default();
        for (time, site) in &open.word {
            let stores = sites.entry(*site).or_default();
            stores.hits += 1;
            let next = open.neighbour.partition_point(|other| other < time);
            let after = open.neighbour.get(next).map(|other| other - time);
            let before = next.checked_sub(1).map(|at| time - open.neighbour[at]);
            if let Some(gap) = after.into_iter().chain(before).min() {
                *stores.gaps.entry(class(gap as f64)).or_default() += 1;
            }
        }
    }

    pub fn forget(&mut self, tids: &[Tid]) {
        for tid in tids {
            self.sites.remove(tid);
        }
        self.open.retain(|_, open| !tids.contains(&open.tid));
    }

    /// The time within which two stores of a line join: as long as the buffer needs for requests to
    /// as many lines as it holds, and the traps between both, whose cost is not that well known.
    fn window_ns(&self, all_a_ns: f64) -> f64 {
        let lines = Device::named(DEVICE).map_or(0.0, |device| device.numbers[Key::BufferLines]);
        let held = lines * REQUEST as f64 / all_a_ns.max(1e-6);
        2.0 * self.trap_ns + held
    }

    /// The bytes that media write by those that are stored, with the ends that pairs leave open.
    pub fn ratio(&self, tids: &[Tid], all_a_ns: f64) -> Option<Figure> {
        let window_ns = self.window_ns(all_a_ns);
        // By site, in an order that does not change: a figure must not, either.
        let mut sum: BTreeMap<Site, Stores> = BTreeMap::new();
        let of = tids.iter().filter_map(|tid| self.sites.get(tid)).flatten();
        for (site, stores) in of {
            let all = sum.entry(*site).or_default();
            all.hits += stores.hits;
            for (class, count) in &stores.gaps {
                *all.gaps.entry(*class).or_default() += count;
            }
        }
        let hits: u64 = sum.values().map(|stores| stores.hits).sum();
        if hits < SAMPLES_MIN {
            return None;
        }
        let joined = |(site, stores): (&Site, &Stores)| Joined {
            bytes: site.1,
            hits: stores.hits.max(1) as f64,
            share: stores.joined(window_ns),
        };
        let sites: Vec<Joined> = sum.iter().map(joined).collect();
        let share = |site: &Joined| site.share;
        Some(Figure {
            value: modelled(&sites, share, Spread::Runs)?,
            low: modelled(&sites, |site| site.ends().1, Spread::Runs)?,
            high: modelled(&sites, |site| site.ends().0, Spread::Mixed)?,
            hits,
        })
    }
}

/// The class of a time. Classes grow by a twelfth, so that a limit is met well enough.
fn class(time_ns: f64) -> u16 {
    (time_ns.max(1.0).log2() * CLASSES) as u16
}

/// The model's answer to stores of these sites.
fn modelled(sites: &[Joined], share: impl Fn(&Joined) -> f64, spread: Spread) -> Option<f64> {
    let mut sim = module()?;
    let mut draw = Draw(1);
    let lines_of = |site: &Joined| site.lines(share(site), spread);
    let all: f64 = sites.iter().map(lines_of).sum();
    for _ in 0..LINES {
        let mut at = draw.part() * all;
        let found = sites.iter().find(|site| {
            at -= lines_of(site);
            at <= 0.0
        });
        let site = found.or(sites.last())?;
        let share = share(site);
        let parts = match spread {
            Spread::Runs => (1.0 + OTHERS * share + draw.part()) as u64,
            Spread::Mixed => {
                let whole = share * site.part_bytes() / LINE as f64;
                match draw.part() * (whole + 1.0 - share) < whole {
                    true => 4,
                    false => 1,
                }
            }
        };
        let line = draw.below(1 << 24) * LINE;
        let bytes = match parts {
            1 => site.part_bytes() as u64,
            _ => REQUEST,
        };
        for part in 0..parts.min(4) {
            store(&mut sim, line + part * REQUEST, bytes)?;
        }
    }
    amplification(&sim)
}
