//! Latency of a slower medium, set at run time: the hook for emulation (PMFS
//! section 4, PMEP). Zero is off, and then costs one load and a branch.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

static BARRIER_NS: AtomicU64 = AtomicU64::new(0);
static READ_LINE_NS: AtomicU64 = AtomicU64::new(0);

/// Makes each fence of the process take at least `ns` more.
pub fn set_barrier_ns(ns: u64) {
    BARRIER_NS.store(ns, Ordering::Relaxed);
}

/// Added time of a fence, nanoseconds; 0 is off.
#[inline]
pub fn barrier_ns() -> u64 {
    BARRIER_NS.load(Ordering::Relaxed)
}

/// Makes each line that a copy out of the pool touches take `ns` more.
pub fn set_read_line_ns(ns: u64) {
    READ_LINE_NS.store(ns, Ordering::Relaxed);
}

/// Added time of a line read by a copy, nanoseconds; 0 is off.
#[inline]
pub fn read_line_ns() -> u64 {
    READ_LINE_NS.load(Ordering::Relaxed)
}

/// Spins, because a sleep is far longer than any memory's latency.
#[cold]
#[inline(never)]
pub(crate) fn spin(ns: u64) {
    let start = Instant::now();
    let wait = Duration::from_nanos(ns);
    while start.elapsed() < wait {
        std::hint::spin_loop();
    }
}
