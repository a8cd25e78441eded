//! Bytes and accesses of threads, from samples.
//!
//! A watched word is a draw from all words of a process's persistent memory, and its value is the
//! bytes that fall into it: an access of 64 bytes that covers eight words gives each of them eight.
//! Each hit stands for `words` times its bytes on the word, however accesses overlap words. A store
//! that hits two watched words at once needs no special case. The sum over draws
//! is unbiased (D. Horvitz and D. Thompson 1952; the units are words, not accesses).
//!
//! A trap stops the program for microseconds. Rates are therefore by the time that the thread ran
//! less the time of its traps, and the total is the rate times that time of the whole run: a word
//! that slows its program must not count for less. The arms' weights are the time that the thread
//! ran during their turn, which does not depend on the word.

mod interval;
mod series;

use std::collections::{BTreeMap, HashMap};

use crate::planted::{Bug, is};
use crate::{Access, Arm, Drained, Exposure, Sample, Tid};
pub use interval::Figure;
use interval::Moments;
use series::{Frame, Series};

/// Bytes of a watched word.
pub const WORD_BYTES: u64 = 8;
/// The part of a trap's cost that calibration may be wrong by.
const COST_UNCERTAIN: f64 = 0.2;
/// The least part of a thread's watched time that counts as undisturbed: where traps take more,
/// the rate is not known, and the interval says so.
const UNDISTURBED_MIN: f64 = 0.1;

/// The usage of a thread or a process in one direction.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Usage {
    /// Bytes.
    pub bytes: Figure,
    /// Accesses, of any size.
    pub accesses: Figure,
    /// Accesses by their size in bytes.
    pub sizes: BTreeMap<u32, Figure>,
}

/// Totals of threads since they were followed.
#[derive(Clone, Debug, Default)]
pub struct Account {
    trap_ns: f64,
    threads: HashMap<Tid, Totals>,
    open: HashMap<u64, OpenArm>,
}

/// The series of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Key {
    Bytes(Access),
    Accesses(Access),
    Sized(Access, u32),
    Tagged(Access, u64),
}

/// Hits on an arm's word, by series: their sum, the largest, and how many.
type Seen = HashMap<Key, (f64, f64, u64)>;

#[derive(Clone, Debug, Default)]
struct OpenArm {
    seen: Seen,
    traps: u64,
    last: Option<(u64, u64)>,
}

#[derive(Clone, Debug, Default)]
struct Totals {
    frame: Frame,
    ran_ns: f64,
    words: HashMap<Key, Series>,
    independent: HashMap<Key, Moments>,
}

impl Account {
    /// An account of nothing. `trap_ns` is what a trap costs a thread on this machine.
    #[must_use]
    pub fn new(trap_ns: f64) -> Self {
        Self {
            trap_ns,
            ..Self::default()
        }
    }

    /// Adds what a sampler has delivered. Samples of arms that have not ended wait for the end.
    pub fn add(&mut self, samples: &[Sample], drained: &Drained) {
        self.add_tagged(samples, drained, |_| None);
    }

    /// Adds as [`add`](Self::add) does, and counts each sample's bytes under the tag that `tag`
    /// gives it.
    pub fn add_tagged(
        &mut self,
        samples: &[Sample],
        drained: &Drained,
        mut tag: impl FnMut(&Sample) -> Option<u64>,
    ) {
        let seen = samples.len() as u64;
        let made_up = if seen == 0 {
            1.0
        } else {
            (seen + drained.lost) as f64 / seen as f64
        };
        for sample in samples {
            match sample.exposure {
                Exposure::Word { address, arm } => {
                    let open = self.open.entry(arm).or_default();
                    open.add(sample, address, tag(sample));
                }
                Exposure::Probability(probability) if probability > 0.0 => {
                    let thread = self.threads.entry(sample.tid).or_default();
                    thread.add_independent(sample, probability, made_up, tag(sample));
                }
                Exposure::Probability(_) | Exposure::Time { .. } | Exposure::Beside { .. } => {}
            }
        }
        for &(tid, ran_ns) in &drained.ran {
            self.threads.entry(tid).or_default().ran_ns = ran_ns as f64;
        }
        for arm in &drained.arms {
            let open = self.open.remove(&arm.number).unwrap_or_default();
            let thread = self.threads.entry(arm.tid).or_default();
            thread.end(arm, &open, self.trap_ns);
        }
    }

    /// Forgets threads.
    pub fn forget(&mut self, tids: &[Tid]) {
        for tid in tids {
            self.threads.remove(tid);
        }
    }

    /// The threads of which there is anything.
    pub fn threads(&self) -> impl Iterator<Item = Tid> {
        self.threads.keys().copied()
    }

    fn sum(&self, tids: &[Tid], key: Key) -> Figure {
        let mut total = Moments::default();
        for tid in tids {
            if let Some(thread) = self.threads.get(tid) {
                total.add(&thread.moments(key));
            }
        }
        total.figure()
    }

    /// The bytes of threads together in one direction, by tag.
    #[must_use]
    pub fn tagged(&self, tids: &[Tid], access: Access) -> BTreeMap<u64, Figure> {
        let mut found = BTreeMap::new();
        for thread in tids.iter().filter_map(|tid| self.threads.get(tid)) {
            for key in thread.words.keys().chain(thread.independent.keys()) {
                if let Key::Tagged(direction, tag) = *key
                    && direction == access
                {
                    found.entry(tag).or_insert_with(|| self.sum(tids, *key));
                }
            }
        }
        found
    }

    /// The usage of threads together in one direction. Their words were drawn independently.
    #[must_use]
    pub fn usage(&self, tids: &[Tid], access: Access) -> Usage {
        let sum = |key: Key| self.sum(tids, key);
        let mut sizes = BTreeMap::new();
        for thread in tids.iter().filter_map(|tid| self.threads.get(tid)) {
            for key in thread.words.keys().chain(thread.independent.keys()) {
                if let Key::Sized(direction, bytes) = *key
                    && direction == access
                {
                    sizes.entry(bytes).or_insert_with(|| sum(*key));
                }
            }
        }
        Usage {
            bytes: sum(Key::Bytes(access)),
            accesses: sum(Key::Accesses(access)),
            sizes,
        }
    }
}

/// The bytes of an access that fall into a word, and the words that it overlaps.
fn overlap(sample: &Sample, word: u64) -> (f64, f64) {
    let bytes = u64::from(sample.bytes);
    let end = sample.address.saturating_add(bytes);
    let from = sample.address.max(word);
    let to = end.min(word.saturating_add(WORD_BYTES));
    let first = sample.address / WORD_BYTES;
    let last = end.saturating_sub(1) / WORD_BYTES;
    let words = last.saturating_sub(first) + 1;
    (to.saturating_sub(from) as f64, words as f64)
}

impl OpenArm {
    fn add(&mut self, sample: &Sample, word: u64, tag: Option<u64>) {
        let (bytes, words) = overlap(sample, word);
        if bytes == 0.0 {
            // Not decoded, or at an address that is not the word's: the arm's others stand for it.
            return;
        }
        // A load and store of one instruction are two samples of one trap.
        let trap = (sample.time_ns, sample.ip);
        if self.last != Some(trap) {
            self.last = Some(trap);
            self.traps += 1;
        }
        let one = 1.0 / words;
        let tagged = tag.map(|tag| (Key::Tagged(sample.access, tag), bytes));
        for (key, part) in [
            (Key::Bytes(sample.access), bytes),
            (Key::Accesses(sample.access), one),
            (Key::Sized(sample.access, sample.bytes), one),
        ]
        .into_iter()
        .chain(tagged)
        {
            let (sum, largest, hits) = self.seen.entry(key).or_default();
            *sum += part;
            *largest = largest.max(part);
            *hits += 1;
        }
    }
}

impl Totals {
    /// Closes an arm's sums.
    fn end(&mut self, arm: &Arm, open: &OpenArm, trap_ns: f64) {
        let (ran, watched) = (arm.ran_ns as f64, arm.watched_ns as f64);
        if ran <= 0.0 || watched <= 0.0 {
            return;
        }
        let cost = arm.traps as f64 * trap_ns;
        let exposed = (watched - cost).max(watched * UNDISTURBED_MIN);
        let uncertain = if watched - cost < exposed {
            1.0 / UNDISTURBED_MIN
        } else {
            cost * COST_UNCERTAIN / exposed
        };
        let all = arm.round_traps as f64 * trap_ns;
        let beside = f64::from(arm.beside.max(1));
        self.frame.arms += 1;
        self.frame.turns += ran;
        self.frame.undisturbed += (ran - all).max(ran * UNDISTURBED_MIN) / beside;
        let ran = ran / beside;
        self.frame.weigh(ran);
        self.frame.words = self.frame.words.max(arm.words as f64);
        // Lost and undecoded hits were like those that were seen.
        let mut hits = arm.hits.max(open.traps) as f64 / open.traps.max(1) as f64;
        if is(Bug::LostMissed) {
            hits = 1.0;
        }
        // An arm that ended with its n-th hit has waited for n - 1 intervals.
        let ended = if arm.stopped && arm.hits > 1 {
            (arm.hits - 1) as f64 / arm.hits as f64
        } else {
            1.0
        };
        let mut weight = arm.words as f64 * hits * ended / exposed;
        if is(Bug::WrongWeight) {
            weight *= 1.025;
        }
        for (key, (sum, largest, hits)) in &open.seen {
            let series = self.words.entry(*key).or_default();
            series.add(sum * weight, ran, uncertain, *largest, *hits);
        }
        for (key, series) in &mut self.words {
            let sum = open.seen.get(key).map_or(0.0, |(sum, ..)| *sum);
            series.compare(&self.frame, sum * weight * ran);
        }
        if open.traps == 0 && arm.hits > 0 {
            // Nothing of the hits could be read: half a word each, and the interval has both ends.
            let bytes = self.words.entry(Key::Bytes(Access::Write)).or_default();
            let half = WORD_BYTES as f64 / 2.0;
            bytes.add(
                half * arm.hits as f64 * weight,
                ran,
                1.0,
                half * 2.0,
                arm.hits,
            );
        }
    }

    fn add_independent(
        &mut self,
        sample: &Sample,
        probability: f64,
        made_up: f64,
        tag: Option<u64>,
    ) {
        let bytes = f64::from(sample.bytes);
        let tagged = tag.map(|tag| (Key::Tagged(sample.access, tag), bytes));
        for (key, part) in [
            (Key::Bytes(sample.access), bytes),
            (Key::Accesses(sample.access), 1.0),
            (Key::Sized(sample.access, sample.bytes), 1.0),
        ]
        .into_iter()
        .chain(tagged)
        {
            let value = part / probability * made_up;
            self.independent.entry(key).or_default().add(&Moments {
                value,
                variance: value * value * (1.0 - probability),
                // Where each access is seen, none can have been missed.
                weight: value * (1.0 - probability),
                hits: 1,
                ..Moments::default()
            });
        }
    }

    fn moments(&self, key: Key) -> Moments {
        let most = match key {
            Key::Bytes(_) | Key::Tagged(..) => WORD_BYTES as f64,
            Key::Accesses(_) | Key::Sized(..) => 1.0,
        };
        let nothing = Series::default();
        let words = self.words.get(&key).unwrap_or(&nothing);
        let mut moments = words.moments(&self.frame, self.ran_ns, most);
        if let Some(independent) = self.independent.get(&key) {
            moments.add(independent);
        }
        moments
    }
}
