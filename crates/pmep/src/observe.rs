//! The observations of Izraelevitz et al. 2019 as assertions on a device: figures that the text
//! tells, and shapes that the model must have whatever its numbers. A few anchors of Yang et al.
//! 2020 stand beside them, so that a mixed-up column or unit is found without the measured points.

use std::collections::HashMap;

use serde::Serialize;

use crate::analytic::{GIB_S, Idle, Remote, amplification, idle_latency, predict, traffic_mix};
use crate::cache::{self, Cache, Outcome};
use crate::device::{Device, Numbers};
use crate::error::Result;
use crate::geometry::REQUEST;
use crate::pattern::{Machine, Op, Order, Pattern};

/// An assertion with its figure.
#[derive(Clone, Debug, Serialize)]
pub struct Observation {
    /// The claim.
    pub name: &'static str,
    /// The figure.
    pub got: f64,
    /// The least that keeps the claim.
    pub low: f64,
    /// The most.
    pub high: f64,
    /// Returns whether the claim holds.
    pub met: bool,
}

fn observation(name: &'static str, got: f64, low: f64, high: f64) -> Observation {
    Observation {
        name,
        got,
        low,
        high,
        met: (low..=high).contains(&got),
    }
}

/// The anchors of a thread that stores on six modules (Yang et al. 2020, figure 4): past the cache,
/// and flushed, GiB/s.
const PAST_CACHE: f64 = 4.2;
const FLUSHED: f64 = 1.1;
/// Bytes of the buffer: a region of these has no amplification but the usual (Yang et al. 2020,
/// figure 10).
const BUFFER: f64 = 16_384.0;

/// Assumptions behind the assertions, which a check of the check gets wrong on purpose.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Assumptions {
    /// Bytes of a chunk of interleaved modules.
    pub interleave: u64,
    /// Bandwidths by those of the model: 1 for GiB/s.
    pub scale: f64,
    /// The two columns of stores are taken for each other.
    pub swapped: bool,
}

impl Default for Assumptions {
    fn default() -> Assumptions {
        Assumptions {
            interleave: 4096,
            scale: 1.0,
            swapped: false,
        }
    }
}

/// A device on six interleaved modules, asked for bandwidths.
struct Asked<'a> {
    numbers: &'a Numbers,
    machine: Machine,
    assumed: Assumptions,
}

impl Asked<'_> {
    fn get(&self, op: Op, order: Order, access: u64, threads: u32) -> f64 {
        let pattern = Pattern {
            op,
            order,
            access,
            stride: access,
            threads,
        };
        predict(self.numbers, &pattern, &self.machine).bandwidth_gib_s * self.assumed.scale
    }

    fn best(&self, op: Op) -> f64 {
        let of = |threads| self.get(op, Order::Sequential, 256, threads);
        (1..=24).map(of).fold(0.0, f64::max)
    }

    fn best_threads(&self, op: Op) -> f64 {
        let best = self.best(op);
        let of = |threads: &u32| self.get(op, Order::Sequential, 256, *threads) >= 0.97 * best;
        f64::from((1..=24).find(of).unwrap_or(24))
    }

    /// The access at which random ones get least, from 1 KiB on.
    fn dip(&self, op: Op, threads: u32) -> f64 {
        let mut least = (f64::INFINITY, 0);
        for access in [1024, 2048, 4096, 8192, 12_288, 16_384, 32_768, 65_536] {
            let got = self.get(op, Order::Random, access, threads);
            if got < least.0 {
                least = (got, access);
            }
        }
        least.1 as f64
    }
}

/// The observations of six modules, under these assumptions.
///
/// # Errors
/// An interleaving that no machine has.
pub fn observations(numbers: &Numbers, assumed: Assumptions) -> Result<Vec<Observation>> {
    let asked = Asked {
        numbers,
        machine: Machine::plain(6, assumed.interleave)?,
        assumed,
    };
    let mut all = figures(&asked);
    all.extend(anchors(&asked));
    all.extend(shapes(&asked));
    all.extend(memory_mode(&asked)?);
    Ok(all)
}

/// Observations 1 to 4: figures of the text.
fn figures(asked: &Asked) -> Vec<Observation> {
    let idle = |order| {
        let load = Idle {
            op: Op::Load,
            order,
        };
        idle_latency(asked.numbers, load, 67_108_864.0, 6)
    };
    let random = idle(Order::Random);
    let twice = random / idle(Order::Sequential);
    let read = asked.best(Op::Load) * GIB_S;
    let written = asked.best(Op::NtStore) * GIB_S;
    let fall = asked.get(Op::NtStore, Order::Sequential, 256, 24) / asked.best(Op::NtStore);
    let (reads, writes) = (
        asked.best_threads(Op::Load),
        asked.best_threads(Op::NtStore),
    );
    vec![
        observation("1 random reads take 305 ns", random, 290.0, 320.0),
        observation("2 and sequential ones half of it", twice, 1.6, 2.4),
        observation("3 six modules read 39.4 GB/s", read, 35.5, 43.3),
        observation("3 six modules write 13.9 GB/s", written, 12.5, 15.3),
        observation("4 reads scale beyond 12 threads", reads, 12.0, 24.0),
        observation("4 writes stop at about 4 threads", writes, 3.0, 6.0),
        observation("4 and fall from there", fall, 0.4, 0.8),
    ]
}

/// The anchors of Yang et al. 2020.
fn anchors(asked: &Asked) -> Vec<Observation> {
    let (past, flushed) = match asked.assumed.swapped {
        true => (Op::StoreClwb, Op::NtStore),
        false => (Op::NtStore, Op::StoreClwb),
    };
    let one = |op| asked.get(op, Order::Sequential, 256, 1);
    let (past, flushed) = (one(past) / PAST_CACHE, one(flushed) / FLUSHED);
    let within = amplification(asked.numbers, BUFFER);
    let beyond = amplification(asked.numbers, 8.0 * BUFFER);
    vec![
        observation("a thread stores 4.2 GiB/s past the cache", past, 0.9, 1.1),
        observation("and 1.1 GiB/s flushed", flushed, 0.9, 1.1),
        observation("16 KiB fit into the buffer", within, 1.0, 1.1),
        observation("and 128 KiB do not", beyond, 1.9, 2.2),
    ]
}

/// Accesses of Memory Mode that differ from those of a reference cache, a map of each place's line:
/// of 10^6 random ones.
fn cache_errors() -> Result<f64> {
    let bytes = 1 << 16;
    let mut cache = Cache::new(bytes)?;
    let mut held: HashMap<u64, (u64, bool)> = HashMap::new();
    let (mut random, mut errors): (u64, u32) = (88_172_645_463_325_252, 0);
    for _ in 0..1_000_000 {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        let (address, is_write) = (random % (bytes * 4), random & (1 << 40) != 0);
        let line = address / REQUEST;
        let before = held.get(&(line % (bytes / REQUEST))).copied();
        let (expected, was_dirty) = match before {
            Some((known, dirty)) if known == line => (Outcome::Hit, dirty),
            Some((_, true)) => (Outcome::MissDirty, false),
            _ => (Outcome::Miss, false),
        };
        held.insert(line % (bytes / REQUEST), (line, was_dirty || is_write));
        errors += u32::from(cache.access(address, is_write) != expected);
    }
    Ok(f64::from(errors))
}

/// Memory Mode: the tags, and the shape of its reads by working set, by those of DRAM.
fn memory_mode(asked: &Asked) -> Result<Vec<Observation>> {
    let dram = Device::named("dram")?
        .plain
        .map_or(0.0, |plain| plain.read_gib_s)
        * 6.0;
    let module = asked.get(Op::Load, Order::Random, REQUEST, 16);
    let share = |working: f64| cache::bandwidth(dram, module, working, 1.0) / dram;
    let rises = (1..60_u32).filter(|step| share(f64::from(*step + 1)) > share(f64::from(*step)));
    let (least, errors) = (module / dram, cache_errors()?);
    Ok(vec![
        observation(
            "Memory Mode: tags differ from a reference",
            errors,
            0.0,
            0.0,
        ),
        observation("9 and what fits is as fast as DRAM", share(1.0), 0.97, 1.03),
        observation(
            "9 and twice as much is between both",
            share(2.0),
            least,
            1.0,
        ),
        observation("9 and more is never faster", rises.count() as f64, 0.0, 0.0),
    ])
}

/// Observations 5 to 8, and the interleaving: shapes.
fn shapes(asked: &Asked) -> Vec<Observation> {
    let mix = |share| traffic_mix(asked.numbers, &asked.machine, 4, share, Remote::Local);
    let mixed = mix(0.5) / mix(1.0).min(mix(0.0));
    let random = |access| asked.get(Op::Load, Order::Random, access, 16);
    let small = random(64) / random(256);
    let large = random(1024) / random(256);
    let ordered = asked.get(Op::Load, Order::Sequential, 64, 16) / random(64);
    let (reads, writes) = (asked.dip(Op::Load, 16), asked.dip(Op::NtStore, 6));
    let met = f64::from(asked.machine.geometry.modules_met(64, 24_576));
    vec![
        observation("5 64 B get a quarter of 256 B", small, 0.2, 0.35),
        observation("5 and 1 KiB no more than 256 B", large, 0.7, 1.15),
        observation("6 a mix gets less than either alone", mixed, 0.2, 0.95),
        observation(
            "7 sequential reads of 64 B get four times random ones",
            ordered,
            3.0,
            5.0,
        ),
        observation("8 random reads dip at 4 KiB", reads, 4096.0, 4096.0),
        observation("8 random writes dip at 4 KiB", writes, 4096.0, 4096.0),
        observation("8 a stride of 24 KiB meets one module", met, 1.0, 1.0),
    ]
}
