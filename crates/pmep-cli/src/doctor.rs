//! `pmep doctor`: this machine's memory beside a device's figures. Delays make memory slower, never
//! faster.

use std::hint::black_box;
use std::process::ExitCode;
use std::time::Instant;

use pmep::analytic::{Idle, idle_latency, on_device};
use pmep::{Op, Order, Pattern, Result};
use pmep_cli::Doctor;
use serde::Serialize;

use crate::{Outcome, fitting, predict};

/// Words of the memory that is asked: 64 MiB, more than most caches.
const WORDS: usize = 16 << 20;
const STEPS: usize = 1 << 20;

#[derive(Serialize)]
struct Finding {
    name: &'static str,
    here: f64,
    device: f64,
    unit: &'static str,
    can: bool,
}

/// A chain through all lines in no order: each word says which line is next.
fn chain() -> Vec<u32> {
    let lines = WORDS / 16;
    let mut words = vec![0_u32; WORDS];
    // A step that shares no factor with a power of two meets each line once.
    let step = (lines as u64 * 618 / 1000) | 1;
    for at in 0..lines {
        let next = (at as u64 * 5 + step) % lines as u64;
        words[at * 16] = next as u32 * 16;
    }
    words
}

fn latency_ns(words: &[u32]) -> f64 {
    let mut at = 0;
    let begun = Instant::now();
    for _ in 0..STEPS {
        at = words[at] as usize;
    }
    black_box(at);
    begun.elapsed().as_nanos() as f64 / STEPS as f64
}

fn bandwidth_gib_s(words: &[u32]) -> f64 {
    let begun = Instant::now();
    let sum = words
        .iter()
        .fold(0_u32, |sum, word| sum.wrapping_add(*word));
    black_box(sum);
    let ns = begun.elapsed().as_nanos().max(1) as f64;
    (words.len() * 4) as f64 / ns / pmep::analytic::GIB_S
}

fn clock_ns() -> f64 {
    let rounds = 10_000;
    let begun = Instant::now();
    for _ in 0..rounds {
        black_box(Instant::now());
    }
    begun.elapsed().as_nanos() as f64 / f64::from(rounds)
}

/// The least of three runs: others' work makes a run slower, never faster.
fn least(mut run: impl FnMut() -> f64) -> f64 {
    (0..3).map(|_| run()).fold(f64::INFINITY, f64::min)
}

/// This machine's memory.
pub struct Memory {
    /// Latency of a random read, ns.
    pub random_ns: f64,
    /// Sequential reads of one thread, GiB/s.
    pub read_gib_s: f64,
}

/// Measures this machine's memory.
pub fn memory() -> Memory {
    let words = chain();
    Memory {
        random_ns: least(|| latency_ns(&words)),
        read_gib_s: 1.0 / least(|| 1.0 / bandwidth_gib_s(&words)),
    }
}

fn findings(arguments: &Doctor) -> Result<Vec<Finding>> {
    let device = fitting::load(&arguments.machine.device)?;
    let machine = predict::machine(&arguments.machine, &device)?;
    let Memory {
        random_ns: here,
        read_gib_s: read,
    } = memory();
    let idle = Idle {
        op: Op::Load,
        order: Order::Random,
    };
    let target = match &device.plain {
        Some(plain) => plain.random_ns,
        None => idle_latency(&device.numbers, idle, 1e9, machine.geometry.dimms()),
    };
    let pattern = Pattern::new(Op::Load, Order::Sequential, 4096, None, 1)?;
    let wanted = on_device(&device, &pattern, &machine).bandwidth_gib_s;
    let clock = least(clock_ns);
    Ok(vec![
        Finding {
            name: "latency of a random read",
            here,
            device: target,
            unit: "ns",
            can: here <= target,
        },
        Finding {
            name: "sequential reads of one thread",
            here: read,
            device: wanted,
            unit: "GiB/s",
            can: read >= wanted,
        },
        Finding {
            name: "a look at the clock, by half of a read's delay",
            here: clock,
            device: (target - here).max(0.0) / 2.0,
            unit: "ns",
            can: clock <= (target - here).max(0.0) / 2.0,
        },
    ])
}

pub fn run(arguments: &Doctor) -> Outcome {
    let all = findings(arguments)?;
    match arguments.json {
        true => predict::print_json(&all)?,
        false => {
            for it in &all {
                let mark = match it.can {
                    true => "can   ",
                    false => "CANNOT",
                };
                out!(
                    "{mark} {:<52} here {:.1}, device {:.1} {}",
                    it.name,
                    it.here,
                    it.device,
                    it.unit
                );
            }
        }
    }
    Ok(match all.iter().all(|it| it.can) {
        true => ExitCode::SUCCESS,
        false => ExitCode::from(1),
    })
}
