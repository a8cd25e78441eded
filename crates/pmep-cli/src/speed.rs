//! Speeds of the model itself, in CPU time of one core: medians of nine runs.

use pmep::device::Numbers;
use pmep::sim::{Access, Sim};
use pmep::{Machine, Op, Order, Pattern, Result};
use serde::Serialize;

const RUNS: usize = 9;
const ACCESSES: u64 = 2_000_000;

/// A speed with its goal.
#[derive(Clone, Debug, Serialize)]
pub struct Speed {
    /// The work.
    pub name: &'static str,
    /// Its speed, or time.
    pub got: f64,
    /// The unit.
    pub unit: &'static str,
    /// The least speed, or the most time.
    pub limit: f64,
    /// Returns whether it is kept.
    pub met: bool,
}

/// CPU time of this thread, ns; `None` where the kernel does not count it.
fn cpu_ns() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    text.split_ascii_whitespace().next()?.parse().ok()
}

/// The median CPU time of a run, ns.
fn median(mut run: impl FnMut() -> Result<()>) -> Result<Option<f64>> {
    let mut all = Vec::new();
    for _ in 0..RUNS {
        // The kernel counts at switches and ticks: a yield makes it count now.
        std::thread::yield_now();
        let begun = cpu_ns();
        run()?;
        std::thread::yield_now();
        if let (Some(begun), Some(end)) = (begun, cpu_ns()) {
            all.push(end.saturating_sub(begun) as f64);
        }
    }
    all.sort_by(f64::total_cmp);
    Ok(all.get(all.len() / 2).copied().filter(|ns| *ns > 0.0))
}

fn accesses(numbers: &Numbers, machine: &Machine, is_random: bool) -> Result<()> {
    let mut sim = Sim::new(numbers, machine);
    let mut random: u64 = 88_172_645_463_325_252;
    for step in 0..ACCESSES {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        sim.access(&Access {
            time_ns: 0.0,
            stream: 0,
            op: Op::Load,
            address: match is_random {
                true => random % (1 << 36) / 64 * 64,
                false => step * 64,
            },
            bytes: 64,
        })?;
    }
    std::hint::black_box(sim.total());
    Ok(())
}

/// The speeds; none where CPU time is not counted.
///
/// # Errors
/// None is known.
pub fn speeds(numbers: &Numbers) -> Result<Vec<Speed>> {
    let machine = Machine::plain(6, 4096)?;
    let mut out = Vec::new();
    let millions = |ns: f64| ACCESSES as f64 / ns * 1e3;
    for (name, is_random, limit) in [
        ("sequential accesses of the event model", false, 50.0),
        ("random accesses of the event model", true, 30.0),
    ] {
        if let Some(ns) = median(|| accesses(numbers, &machine, is_random))? {
            let got = millions(ns);
            out.push(Speed {
                name,
                got,
                unit: "M/s",
                limit,
                met: got >= limit,
            });
        }
    }
    let pattern = Pattern::new(Op::NtStore, Order::Random, 256, None, 4)?;
    let rounds = 300_000_u32;
    let predictions = median(|| {
        for _ in 0..rounds {
            let pattern = std::hint::black_box(pattern);
            std::hint::black_box(pmep::analytic::predict(numbers, &pattern, &machine));
        }
        Ok(())
    })?;
    if let Some(ns) = predictions {
        let got = ns / f64::from(rounds) / 1e3;
        out.push(Speed {
            name: "a prediction",
            got,
            unit: "us",
            limit: 10.0,
            met: got < 10.0,
        });
    }
    Ok(out)
}
