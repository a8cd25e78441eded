//! Bytes that the media write for a thread's stores: a model, and never a measurement.
//!
//! Media write lines of 256 bytes, so that a store costs a whole line unless its neighbours come
//! while the line is in the module's buffer. Three ways tell which neighbours come:
//!
//! - a trace, in which each access is seen, goes through the model as it is;
//! - of the watched words, one has a *neighbour*: a word in another part of its line. Stores of
//!   both within the buffer's time, or traps' time, count as one line's (the module `neighbours`);
//! - of counted calls nothing but the mean size is known: each counts as one by itself.
//!
//! [`pmep::sim::MediaCount`] is the model's answer to a stream of stores. Its ratio of a sample
//! is scaled by the estimate of bytes.

mod neighbours;

use std::collections::HashMap;

use pmep::geometry::LINE;
use pmep::sim::{Access as Step, MediaCount, STREAMS_MAX, Sim};
use pmep::{Device, Machine, Op};

use crate::account::Figure;
use crate::calls::Calls;
use crate::planted::{Bug, is};
use crate::{Access, Drained, Exposure, Sample, Tid};
use neighbours::Neighbours;

/// The modelled device.
pub const DEVICE: &str = "optane-100";
/// Bytes of a request to the module: a cache line.
const REQUEST: u64 = 64;
/// Calls that the model is asked about.
const CALLS: u64 = 512;
/// The longest call that the model is asked about: longer ones are whole lines anyway.
const CALL_BYTES_MAX: u64 = 64 << 10;

/// The source of what is known of neighbours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// Each access was seen.
    Trace,
    /// Words of one line were watched together.
    Neighbours,
    /// Calls were counted.
    Calls,
}

impl Source {
    /// Its name in tables.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Trace => "trace",
            Self::Neighbours => "neighbours",
            Self::Calls => "calls",
        }
    }

    /// The assumptions of a figure that has it.
    #[must_use]
    pub fn assumes(self) -> &'static [&'static str] {
        match self {
            Self::Trace => &[
                "one module of the model optane-100, nothing else writes to it",
                "stores reach it in the trace's order, as past the caches",
            ],
            Self::Neighbours => &[
                "one module of the model optane-100, nothing else writes to it",
                "stores reach it as they are made, as past the caches",
                "stores of two parts of a line join if both come within the buffer's time or two traps'",
            ],
            Self::Calls => &[
                "one module of the model optane-100, nothing else writes to it",
                "each call has the mean size and joins no other; the lower end has all of them joined",
                "flushed lines are beside the written bytes, in order; the upper end has each apart",
            ],
        }
    }
}

/// Media bytes by the model.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Written {
    /// Bytes that the media write, with the ends that the source leaves open.
    pub bytes: Figure,
    /// The same by the bytes written; `None` if there are none.
    pub amplification: Option<Figure>,
    /// The way by which it is known.
    pub source: Source,
}

/// All that is known of the stores of threads.
#[derive(Debug, Default)]
pub struct Media {
    trace: Option<Trace>,
    neighbours: Neighbours,
}

/// The model, and the streams of threads in it.
#[derive(Debug)]
struct Trace {
    sim: Sim,
    streams: HashMap<Tid, u32>,
    /// Some accesses were not seen, or not taken.
    is_partial: bool,
}

/// The model's module. `None` only if the shipped device is not there.
fn module() -> Option<Sim> {
    let device = Device::named(DEVICE).ok()?;
    let machine = Machine::plain(1, 4096).ok()?;
    Some(Sim::new(&device.numbers, &machine))
}

impl Media {
    /// Nothing is known. `trap_ns` is what a trap costs.
    #[must_use]
    pub fn new(trap_ns: f64) -> Self {
        Self {
            trace: None,
            neighbours: Neighbours::new(trap_ns),
        }
    }

    /// Adds what a sampler has delivered.
    pub fn add(&mut self, samples: &[Sample], drained: &Drained) {
        for sample in samples {
            if let Exposure::Probability(probability) = sample.exposure {
                let trace = self.trace.take().or_else(Trace::new);
                self.trace = trace.map(|trace| trace.with(sample, probability));
            }
        }
        if let Some(trace) = &mut self.trace {
            trace.is_partial |= drained.lost > 0;
        }
        self.neighbours.add(samples, drained);
    }

    /// Forgets threads.
    pub fn forget(&mut self, tids: &[Tid]) {
        self.neighbours.forget(tids);
    }

    /// The bytes that media write for stores of threads together, of which `bytes` is the estimate.
    /// `all_a_ns` are the bytes a nanosecond of all threads, which share the buffer. `None` is not
    /// measured.
    #[must_use]
    pub fn written(&self, tids: &[Tid], bytes: &Figure, all_a_ns: f64) -> Option<Written> {
        if let Some(trace) = &self.trace {
            return trace.written(tids);
        }
        let ratio = self.neighbours.ratio(tids, all_a_ns)?;
        Some(Written {
            bytes: Figure {
                value: bytes.value * ratio.value,
                low: bytes.low * ratio.low,
                high: bytes.high * ratio.high,
                hits: ratio.hits,
            },
            amplification: Some(ratio),
            source: Source::Neighbours,
        })
    }
}

impl Trace {
    fn new() -> Option<Self> {
        Some(Self {
            sim: module()?,
            streams: HashMap::new(),
            is_partial: false,
        })
    }

    fn with(mut self, sample: &Sample, probability: f64) -> Self {
        let next = u32::try_from(self.streams.len()).unwrap_or(u32::MAX);
        let stream = *self.streams.entry(sample.tid).or_insert(next);
        if probability < 1.0 || stream >= STREAMS_MAX {
            self.is_partial = true;
            return self;
        }
        let step = Step {
            time_ns: 0.0,
            stream,
            op: match sample.access {
                Access::Read => Op::Load,
                Access::Write => Op::NtStore,
            },
            address: sample.address,
            bytes: u64::from(sample.bytes),
        };
        self.is_partial |= self.sim.access(&step).is_err();
        self
    }

    fn written(&self, tids: &[Tid]) -> Option<Written> {
        if self.is_partial {
            return None;
        }
        let streams = tids.iter().filter_map(|tid| self.streams.get(tid));
        let mut count = MediaCount::default();
        for stream in streams {
            let one = self.sim.count(*stream);
            count.written += one.written;
            count.media_written += one.media_written;
        }
        // Lines in the buffer are nobody's; they will be written too.
        let held = self.sim.dirty() as f64 * LINE as f64;
        let all = self.sim.total().written.max(1.0);
        let bytes = Figure {
            value: count.media_written + held * count.written / all,
            low: count.media_written,
            high: count.media_written + held.min(count.written * LINE as f64),
            hits: 0,
        };
        Some(Written {
            bytes,
            amplification: by(&bytes, count.written),
            source: Source::Trace,
        })
    }
}

/// A figure by bytes that are known.
fn by(figure: &Figure, bytes: f64) -> Option<Figure> {
    (bytes > 0.0).then(|| Figure {
        value: figure.value / bytes,
        low: figure.low / bytes,
        high: figure.high / bytes,
        hits: figure.hits,
    })
}

/// The bytes that media write for stores, by those asked for, once all of them are there.
fn amplification(sim: &Sim) -> Option<f64> {
    let MediaCount {
        written,
        media_written,
        ..
    } = sim.total();
    let mut line = LINE as f64;
    if is(Bug::MediaLineShort) {
        line /= 2.0;
    }
    let moved = media_written * line / LINE as f64 + sim.dirty() as f64 * line;
    (written > 0.0).then(|| moved / written)
}

/// The bytes that media write for calls, of which nothing but these counts is known.
#[must_use]
pub fn of_calls(calls: &Calls) -> Option<Written> {
    let (bytes, flushed) = (calls.written_bytes, calls.flushed_lines as f64);
    let apart = match (calls.changes, bytes) {
        (0, _) | (_, 0) => 1.0,
        (changes, _) => alone((bytes / changes).clamp(1, CALL_BYTES_MAX))?,
    };
    let (bytes, request) = (bytes as f64, REQUEST as f64);
    let written = Figure {
        value: bytes * apart + flushed * request,
        low: bytes + flushed * request,
        high: bytes * apart + flushed * LINE as f64,
        hits: calls.changes,
    };
    Some(Written {
        bytes: written,
        amplification: by(&written, bytes),
        source: Source::Calls,
    })
}

/// The amplification of stores of a size anywhere.
fn alone(bytes: u64) -> Option<f64> {
    let mut sim = module()?;
    let mut draw = Draw(bytes);
    for _ in 0..CALLS {
        let at = draw.below(1 << 26) * REQUEST;
        store(&mut sim, at, bytes)?;
    }
    amplification(&sim)
}

/// A store past the caches.
fn store(sim: &mut Sim, address: u64, bytes: u64) -> Option<()> {
    let step = Step {
        time_ns: 0.0,
        stream: 0,
        op: Op::NtStore,
        address,
        bytes,
    };
    sim.access(&step).ok().map(|_| ())
}

/// Numbers drawn by splitmix64: the same ones each time, so that a figure stays.
struct Draw(u64);

impl Draw {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, end: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(end)) >> 64) as u64
    }

    /// A number from 0 to 1.
    fn part(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }
}
