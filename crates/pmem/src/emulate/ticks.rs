//! The time stamp counter, the only clock finer than a memory's latency.
//!
//! It runs at one rate on all cores of every CPU that has clwb or AVX2. The rate is measured beside
//! the kernel's clock.

use std::arch::x86_64::{__rdtscp, _mm_lfence, _rdtsc};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// The time for which the two clocks are compared. Each reading has an error of some 30 ns.
const BESIDE: Duration = Duration::from_millis(2);
/// The count of readings, of which the best is taken: preemption may spoil some.
const LOOKS: usize = 5;

/// The counter.
#[inline(always)]
pub(crate) fn now() -> u64 {
    // SAFETY: reads a counter; every x86-64 CPU has it.
    unsafe { _rdtsc() }
}

/// The counter, after all earlier instructions have completed.
#[inline(always)]
pub(crate) fn now_after() -> u64 {
    let mut core = 0;
    // SAFETY: as above; the fence keeps what follows from being begun before.
    unsafe {
        let ticks = __rdtscp(&raw mut core);
        _mm_lfence();
        ticks
    }
}

/// Converts ns to ticks.
pub(crate) fn of_ns(ns: u64) -> u64 {
    (ns as f64 * per_ns()).round() as u64
}

/// Ticks in a ns.
pub(crate) fn per_ns() -> f64 {
    static RATE: OnceLock<f64> = OnceLock::new();
    *RATE.get_or_init(|| {
        let (start, first) = both();
        let mut last = both();
        while last.0.duration_since(start) < BESIDE {
            last = both();
        }
        let ticks = last.1.wrapping_sub(first) as f64;
        ticks / last.0.duration_since(start).as_nanos() as f64
    })
}

/// Both clocks at one moment.
fn both() -> (Instant, u64) {
    let look = || {
        let before = now_after();
        let clock = Instant::now();
        let after = now_after();
        (after.wrapping_sub(before), clock, before)
    };
    let best = (0..LOOKS).map(|_| look()).min_by_key(|(took, ..)| *took);
    let (took, clock, before) = best.expect("there are some");
    (clock, before + took / 2)
}
