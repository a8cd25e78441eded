//! Idle latencies by the levels that answer, and write amplification by region.

use super::GIB_S;
use crate::device::{Key, Numbers};
use crate::geometry::{LINE, REQUEST};
use crate::pattern::{Op, Order};

/// A kind of idle access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Idle {
    /// The operation; stores include flush and fence.
    pub op: Op,
    /// The order.
    pub order: Order,
}

/// Share of a region that a buffer of `capacity` bytes holds.
#[must_use]
pub fn resident(region: f64, capacity: f64) -> f64 {
    (capacity / region.max(1.0)).min(1.0)
}

/// Latency of one access at a time in a region, ns: the levels' latencies, weighted by shares.
#[must_use]
pub fn idle_latency(numbers: &Numbers, idle: Idle, region: f64, dimms: u32) -> f64 {
    match (idle.op, idle.order) {
        (Op::Load, Order::Sequential) => numbers[Key::SequentialLatency],
        (Op::Load, _) => {
            let modules = f64::from(dimms);
            let buffers = numbers[Key::BufferLines] * LINE as f64 * modules;
            let tables = numbers[Key::AitBytes] * modules;
            let (near, mid) = (numbers[Key::BufferLatency], numbers[Key::AitLatency]);
            let far = numbers[Key::MediaLatency];
            near + (1.0 - resident(region, buffers)) * (mid - near)
                + (1.0 - resident(region, tables)) * (far - mid)
        }
        _ => numbers[Key::StoreLatency],
    }
}

/// Time of one thread for stores of `bytes` bytes in order, their flushes and a fence, ns. The
/// bytes are on their way to the controllers at the rate of a stream, and the fence waits for the
/// last one. A long run is bound by its flushes.
#[must_use]
pub fn flushed_run(numbers: &Numbers, bytes: f64) -> f64 {
    let way = bytes / (numbers[Key::ReadStream] * GIB_S);
    let flushes = bytes / (numbers[Key::ClwbStream] * GIB_S);
    (numbers[Key::StoreLatency] + way).max(flushes)
}

/// Share of accesses that miss a buffer with random replacement, if `lines` lines are visited in
/// turn: a line stays if none of the misses since its last visit took its place.
#[must_use]
pub fn missed(lines: f64, capacity: f64) -> f64 {
    let load = lines / capacity;
    if load <= 1.0 {
        return 0.0;
    }
    // The upper solution of 1 - m = exp(-m load), by Newton's method from above.
    let mut miss = 1.0_f64;
    for _ in 0..60 {
        let kept = (-miss * load).exp();
        let step = (1.0 - miss - kept) / (load * kept - 1.0);
        if !step.is_finite() || step.abs() < 1e-14 {
            break;
        }
        miss -= step;
    }
    miss.clamp(0.0, 1.0)
}

/// Write amplification of two passes over a region by halves of lines. The last part of it stands
/// in the buffer still when the counters are read.
#[must_use]
pub fn amplification(numbers: &Numbers, region: f64) -> f64 {
    let lines = region / LINE as f64;
    let miss = missed(lines, numbers[Key::BufferLines]);
    let rest = REQUEST as f64 / region.max(LINE as f64);
    numbers[Key::Amplification] * (1.0 + miss) - rest
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a run of flushed stores waits for its fence if it is short, and for its flushes if it
    /// is long; a longer one never takes less. Method: both ends, and all lengths between them.
    #[test]
    fn flushed_runs_wait_for_fences_and_flushes() {
        let numbers = crate::Device::named("optane-100").unwrap().numbers;
        let short = flushed_run(&numbers, 64.0);
        let fence = numbers[Key::StoreLatency];
        assert!((fence..fence * 1.5).contains(&short), "{short}");
        let long = 1e9;
        let rate = long / flushed_run(&numbers, long) / GIB_S;
        assert!((rate / numbers[Key::ClwbStream] - 1.0).abs() < 1e-9);
        let times = (1..1000).map(|lines| flushed_run(&numbers, 64.0 * f64::from(lines)));
        assert!(times.is_sorted_by(|one, next| one < next));
    }

    /// Goal: the share that misses. Method: the equation is put in again.
    #[test]
    fn misses_solve_their_equation() {
        for load in [1.01, 1.1, 1.25, 1.7, 2.0, 4.0, 20.0, 1e6] {
            let miss = missed(64.0 * load, 64.0);
            assert!(
                (1.0 - miss - (-miss * load).exp()).abs() < 1e-6,
                "{load}: {miss}"
            );
            assert!(miss > 0.0);
        }
        assert_eq!(missed(64.0, 64.0), 0.0);
        assert!(missed(128.0, 64.0) > 0.79 && missed(128.0, 64.0) < 0.80);
    }
}
