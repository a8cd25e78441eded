//! Closed forms: what a pattern gets on a machine, and which limit holds.
//!
//! A thread's own speed and the media's limit meet in a p-norm. The media's limit is a module's
//! bandwidth times the modules met, times the useful share of each line, times the loss by streams
//! that push each other's lines out of the buffer, times the share of modules that are busy.

mod chain;
mod event;
mod latency;
mod mix;
mod read;
mod tail;
mod write;

use serde::Serialize;

pub use chain::{Chained, chained};
pub use event::{Event, event};
pub use latency::{Idle, amplification, flushed_run, idle_latency, missed, resident};
pub use mix::{Remote, far, loaded, thread_mix, traffic_mix};
pub use tail::{Tail, tail};

use crate::device::{Device, Key, Numbers};
use crate::pattern::{Generation, Machine, Op, Order, Pattern, THREADS_FITTED};

/// Bytes of a GiB over nanoseconds of a second: GiB/s to B/ns.
pub const GIB_S: f64 = 1.073_741_824;
/// Share of a line that is written if stores leave the cache in no order: one part of four.
const UNORDERED: f64 = 0.25;
/// EWR of rows that only read: the counters see a write now and then.
const READ_EWR: f64 = 0.003;

/// The limit that holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Limit {
    /// The threads themselves.
    Threads,
    /// Reads of the media.
    MediaRead,
    /// Writes of the media.
    MediaWrite,
    /// Pages that strides enter.
    Pages,
}

/// A prediction.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Prediction {
    /// Bandwidth, GiB/s.
    pub bandwidth_gib_s: f64,
    /// Time of an access of one thread, ns: threads times bytes over bandwidth.
    pub access_ns: f64,
    /// Bytes asked for by bytes moved to or from the media.
    pub used: f64,
    /// Modules that the pattern meets.
    pub modules: u32,
    /// The limit that holds.
    pub limit: Limit,
    /// Threads beyond the fitted range.
    pub extrapolated: bool,
}

/// The p-norm of limits: below the least, and near it if the others are far.
fn meet(power: f64, limits: &[f64]) -> f64 {
    let least = limits.iter().copied().fold(f64::INFINITY, f64::min);
    let sum: f64 = (limits.iter())
        .map(|limit| (least / limit).powf(power))
        .sum();
    least * sum.powf(-1.0 / power)
}

/// The parts of a prediction that its forms share.
struct Case<'a> {
    numbers: &'a Numbers,
    pattern: &'a Pattern,
    machine: &'a Machine,
    threads: f64,
    dimms: f64,
    met: f64,
    bytes: f64,
    used: f64,
}

impl<'a> Case<'a> {
    fn new(numbers: &'a Numbers, pattern: &'a Pattern, machine: &'a Machine) -> Case<'a> {
        let met = match pattern.order {
            Order::Strided if !pattern.is_sequential() => {
                (machine.geometry).modules_met(pattern.access, pattern.stride)
            }
            _ => machine.geometry.dimms(),
        };
        Case {
            numbers,
            pattern,
            machine,
            threads: f64::from(pattern.threads),
            dimms: f64::from(machine.geometry.dimms()),
            met: f64::from(met),
            bytes: pattern.access as f64,
            used: pattern.used(),
        }
    }

    /// The media's limits at the machine's budget, by those at 15 W: on a line through the measured
    /// budgets, in logarithms.
    fn budget(&self) -> f64 {
        let log = (self.machine.budget_w / 15.0).ln();
        let (slope, low) = match self.machine.budget_w < 15.0 {
            true => (self.numbers[Key::Budget125].ln(), (12.5_f64 / 15.0).ln()),
            false => (self.numbers[Key::Budget18].ln(), (18.0_f64 / 15.0).ln()),
        };
        (slope * log / low).exp()
    }

    fn capacity(&self) -> f64 {
        match self.machine.other_capacity {
            true => self.numbers[Key::OtherCapacity],
            false => 1.0,
        }
    }

    fn is_second(&self) -> bool {
        self.machine.generation == Generation::Second
    }

    /// Speed of a thread by that of the first generation's hosts.
    fn host(&self) -> f64 {
        let sequential = self.pattern.is_sequential();
        let ahead = match self.machine.prefetcher && sequential && !self.is_second() {
            true => self.numbers[Key::Prefetch],
            false => 1.0,
        };
        match self.is_second() {
            true => ahead * self.numbers[Key::SecondThread],
            false => ahead,
        }
    }

    /// Share of the modules that are busy. Random accesses
    /// of one chunk collide most: smaller ones have more requests under way, and longer ones go
    /// around the modules in step.
    fn busy(&self) -> f64 {
        if self.pattern.order != Order::Random {
            return 1.0;
        }
        let chunk = self.machine.geometry.interleave() as f64;
        let ratio = (self.bytes / chunk).max(chunk / self.bytes);
        let under_way = self.numbers[Key::InFlight] * ratio.sqrt();
        under_way / (under_way + self.dimms - 1.0)
    }

    /// The limit by pages, if one page takes a module `ns`.
    fn by_pages(&self, ns: f64) -> f64 {
        let pages = self.pattern.pages();
        match pages > 0.0 {
            true => self.met * self.bytes / (pages * ns) / GIB_S,
            false => f64::INFINITY,
        }
    }

    fn host_pages(&self) -> f64 {
        match self.machine.second_host {
            true => self.numbers[Key::HostPage],
            false => 1.0,
        }
    }

    fn finish(&self, thread: f64, media: f64, pages: f64, used: f64, limit: Limit) -> Prediction {
        let sharp = self.numbers[Key::Sharpness];
        let bandwidth = match pages.is_finite() {
            true => {
                let both = meet(sharp, &[thread, media]);
                meet(self.numbers[Key::PageSharpness], &[both, pages])
            }
            false => meet(sharp, &[thread, media]),
        };
        let limit = match (thread < media.min(pages), pages < media) {
            (true, _) => Limit::Threads,
            (false, true) => Limit::Pages,
            (false, false) => limit,
        };
        Prediction {
            bandwidth_gib_s: bandwidth,
            access_ns: self.threads * self.bytes / bandwidth / GIB_S,
            used,
            modules: self.met as u32,
            limit,
            extrapolated: self.pattern.threads > THREADS_FITTED,
        }
    }
}

/// The bandwidth of a pattern.
#[must_use]
pub fn predict(numbers: &Numbers, pattern: &Pattern, machine: &Machine) -> Prediction {
    let case = Case::new(numbers, pattern, machine);
    match pattern.op {
        Op::Load => read::load(&case),
        Op::NtStore => write::past_cache(&case),
        Op::StoreClwb | Op::StoreClflushopt => write::flushed(&case),
        Op::Store => write::cached(&case),
    }
}

/// The bandwidth of a pattern on a device, of lines or without.
#[must_use]
pub fn on_device(device: &Device, pattern: &Pattern, machine: &Machine) -> Prediction {
    let Some(plain) = &device.plain else {
        return predict(&device.numbers, pattern, machine);
    };
    let case = Case::new(&device.numbers, pattern, machine);
    let reads = pattern.op == Op::Load;
    let start = match pattern.is_sequential() {
        true => 0.0,
        // Ten requests are under way at once in a line-fill buffer.
        false => plain.random_ns / 10.0,
    };
    let one = case.bytes / (start + case.bytes / (plain.thread_gib_s * GIB_S)) / GIB_S;
    let lines = (case.bytes / 64.0).ceil() * 64.0;
    let media = match reads {
        true => plain.read_gib_s,
        false => plain.write_gib_s,
    } * case.met
        * (case.bytes / lines);
    let limit = match reads {
        true => Limit::MediaRead,
        false => Limit::MediaWrite,
    };
    case.finish(case.threads * one, media, f64::INFINITY, 1.0, limit)
}

/// Bytes stored by bytes that the media writes.
#[must_use]
pub fn write_ratio(numbers: &Numbers, pattern: &Pattern, machine: &Machine) -> f64 {
    match pattern.op {
        Op::Load => READ_EWR,
        _ => predict(numbers, pattern, machine).used,
    }
}
