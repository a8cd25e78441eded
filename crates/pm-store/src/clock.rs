//! The engine's clock: the kernel's coarse clock, or a counter for reproducible runs.

use rustix::time::{ClockId, clock_gettime};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

/// The source of times.
#[derive(Clone, Debug, Default)]
pub enum Clock {
    /// The wall clock, at the kernel's tick (a few ms).
    #[default]
    Wall,
    /// A counter that each call of [`Clock::now_ns`] raises by one: equal runs give equal times.
    Steps(Arc<AtomicI64>),
}

impl Clock {
    /// Nanoseconds since the epoch.
    #[inline(always)]
    pub fn now_ns(&self) -> i64 {
        match self {
            Clock::Wall => {
                let now = clock_gettime(ClockId::RealtimeCoarse);
                now.tv_sec * 1_000_000_000 + now.tv_nsec
            }
            Clock::Steps(step) => step.fetch_add(1, Ordering::Relaxed),
        }
    }
}

/// The time of CLOCK_MONOTONIC, ns.
#[inline(never)]
pub fn now_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}
