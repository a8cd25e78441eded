//! Latency of a slower medium, set at run time: the hook for emulation (PMFS
//! section 4, PMEP). Zero is off, and then costs one load and a branch, which
//! [`crate::death`] shares.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::death;

/// What a fence has to do besides: added nanoseconds, and [`COUNTING`].
static BARRIER: AtomicU64 = AtomicU64::new(0);
/// [`death`] wants to see each barrier.
const COUNTING: u64 = 1 << 63;
static READ_LINE_NS: AtomicU64 = AtomicU64::new(0);

/// Makes each fence of the process take at least `ns` more.
pub fn set_barrier_ns(ns: u64) {
    let counting = BARRIER.load(Ordering::Relaxed) & COUNTING;
    BARRIER.store(ns & !COUNTING | counting, Ordering::Relaxed);
}

/// Added time of a fence, nanoseconds; 0 is off.
#[inline]
pub fn barrier_ns() -> u64 {
    barrier() & !COUNTING
}

/// Shows every barrier from now on to [`death`].
pub(crate) fn count_barriers() {
    BARRIER.store(barrier_ns() | COUNTING, Ordering::Relaxed);
}

/// Not 0 if [`at_barrier`] has something to do.
#[inline]
pub(crate) fn barrier() -> u64 {
    BARRIER.load(Ordering::Relaxed)
}

/// The slow path of a fence.
#[cold]
#[inline(never)]
pub(crate) fn at_barrier(barrier: u64) {
    if barrier & COUNTING != 0 {
        death::at_barrier();
    }
    spin(barrier & !COUNTING);
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
