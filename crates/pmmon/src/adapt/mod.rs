//! How many cores writers get, by the device model: the fewest with which it writes about as much
//! as with any number.
//!
//! A rule is a pure function of numbers and times: [`wanted`] of predicted bandwidths, [`next`] of
//! the number, the wish and the time. [`Adaptive`] asks them about the load that a monitor sees.
//!
//! Each writer that runs is taken to write all the time, so that as many write at once as there are
//! cores, or writers if these are fewer.

mod load;

use pmep::analytic::on_device;
use pmep::pattern::{ACCESS_MAX, THREADS_MAX};
use pmep::{BadInput, Device, Machine, Op, Pattern, Result};

pub use load::{Load, Seen};

use crate::{Sample, Tid};

/// Bytes that one module takes in turn.
const INTERLEAVE: u64 = 4096;
/// A number is as good as the best if the model writes at most this share less with it.
const NEAR: f64 = 0.02;
/// Above this loss the number is too small or too large. Between the two nothing changes.
const LOSS: f64 = 0.03;
/// A wish has to last for so long, in nanoseconds: no two changes are nearer to each other.
pub const HOLD_NS: u64 = 1_000_000_000;
/// The time between two looks at the load.
pub const EVERY_NS: u64 = 100_000_000;

/// The device and how it is written.
#[derive(Clone, Debug, PartialEq)]
pub struct Model {
    device: Device,
    machine: Machine,
    store: Op,
}

impl Model {
    /// A device of `modules`, written by `store`.
    ///
    /// # Errors
    /// Too few or too many modules, or an operation that does not store.
    pub fn new(device: Device, modules: u32, store: Op) -> Result<Self> {
        if store == Op::Load {
            return Err(BadInput::new(
                "store",
                "loads write nothing",
                "give ntstore, store+clwb, store+clflushopt or store",
            ));
        }
        let machine = Machine {
            generation: device.generation,
            ..Machine::plain(modules, INTERLEAVE)?
        };
        Ok(Self {
            device,
            machine,
            store,
        })
    }

    /// The device's name.
    #[must_use]
    pub fn device(&self) -> &str {
        &self.device.name
    }

    /// The number of its modules.
    #[must_use]
    pub fn modules(&self) -> u32 {
        self.machine.geometry.dimms()
    }

    /// Predicted bandwidths with 1 to `most` cores, GiB/s.
    #[must_use]
    pub fn bandwidths(&self, load: &Load, most: u32) -> Vec<f64> {
        let of = |cores: u32| {
            let writers = cores.min(load.writers).clamp(1, THREADS_MAX);
            let access = load.access.clamp(1, ACCESS_MAX);
            let pattern = Pattern::new(self.store, load.order, access, None, writers);
            pattern.map_or(0.0, |pattern| {
                on_device(&self.device, &pattern, &self.machine).bandwidth_gib_s
            })
        };
        (1..=most).map(of).collect()
    }
}

/// The numbers of cores that may be given: at least one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// The least.
    pub min: u32,
    /// The most, and no less than `min`.
    pub max: u32,
}

/// The number of cores that is wanted where there are `now`, by bandwidths with 1, 2 and more.
#[must_use]
pub fn wanted(bandwidths: &[f64], bounds: Bounds, now: u32) -> u32 {
    let with = |cores: u32| {
        let last = bandwidths.len().saturating_sub(1);
        let at = (cores as usize).saturating_sub(1).min(last);
        bandwidths.get(at).copied().unwrap_or(0.0)
    };
    let numbers = bounds.min..=bounds.max;
    let most = numbers.clone().map(with).fold(0.0, f64::max);
    let mut good = numbers.filter(|cores| with(*cores) >= most * (1.0 - NEAR));
    let fewest = good.next().unwrap_or(bounds.min);
    let is_poor = with(now) < most * (1.0 - LOSS);
    match fewest < now || is_poor {
        true => fewest,
        false => now,
    }
}

/// The number that is given, and the wish for another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Number {
    /// Cores.
    pub cores: u32,
    /// The wish nearest to them since it began, and when that was.
    pub wish: Option<(u32, u64)>,
}

/// The number after a look at `now_ns` at which `wanted` cores were wanted; `None` is no load.
#[must_use]
pub fn next(number: Number, wanted: Option<u32>, now_ns: u64) -> Number {
    let stays = Number {
        wish: None,
        ..number
    };
    let Some(wanted) = wanted.filter(|wanted| *wanted != number.cores) else {
        return stays;
    };
    let is_more = wanted > number.cores;
    let before = number
        .wish
        .filter(|wish| is_more == (wish.0 > number.cores));
    let (nearest, since_ns) = match before {
        Some((wish, since_ns)) if is_more => (wish.min(wanted), since_ns),
        Some((wish, since_ns)) => (wish.max(wanted), since_ns),
        None => (wanted, now_ns),
    };
    match now_ns.saturating_sub(since_ns) >= HOLD_NS {
        true => Number {
            cores: nearest,
            wish: None,
        },
        false => Number {
            wish: Some((nearest, since_ns)),
            ..number
        },
    }
}

/// A change of the number, and why.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Change {
    /// The number before.
    pub before: u32,
    /// The number from now on.
    pub cores: u32,
    /// The load.
    pub load: Load,
    /// Predicted bandwidth with the number before, GiB/s.
    pub before_gib_s: f64,
    /// Predicted bandwidth from now on, GiB/s.
    pub gib_s: f64,
}

/// The number of cores for the load that is seen.
#[derive(Clone, Debug)]
pub struct Adaptive {
    model: Model,
    bounds: Bounds,
    number: Number,
    seen: Seen,
    look_at_ns: u64,
}

impl Adaptive {
    /// Begins with the least number.
    #[must_use]
    pub fn new(model: Model, bounds: Bounds) -> Self {
        Self {
            model,
            bounds,
            number: Number {
                cores: bounds.min,
                wish: None,
            },
            seen: Seen::default(),
            look_at_ns: 0,
        }
    }

    /// The number that is given.
    #[must_use]
    pub fn cores(&self) -> u32 {
        self.number.cores
    }

    /// The model that is asked.
    #[must_use]
    pub fn model(&self) -> &Model {
        &self.model
    }

    /// Adds what a sampler has delivered.
    pub fn add(&mut self, samples: &[Sample]) {
        self.seen.add(samples);
    }

    /// A thread has ended.
    pub fn forget(&mut self, tid: Tid) {
        self.seen.forget(tid);
    }

    /// A look, if it is time for one. The answer is a change of the number.
    pub fn look(&mut self, now_ns: u64) -> Option<Change> {
        if now_ns < self.look_at_ns {
            return None;
        }
        self.look_at_ns = now_ns.saturating_add(EVERY_NS);
        let before = self.number.cores;
        let load = self.seen.load(now_ns);
        let bandwidths = load.map(|load| self.model.bandwidths(&load, self.bounds.max));
        let bandwidths = bandwidths.unwrap_or_default();
        let wish = load.map(|_| wanted(&bandwidths, self.bounds, before));
        self.number = next(self.number, wish, now_ns);
        let cores = self.number.cores;
        let with = |cores: u32| bandwidths.get(cores as usize - 1).copied().unwrap_or(0.0);
        load.filter(|_| cores != before).map(|load| Change {
            before,
            cores,
            load,
            before_gib_s: with(before),
            gib_s: with(cores),
        })
    }
}
