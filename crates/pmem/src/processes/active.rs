//! The observers of this process's accesses to pools: one word, which costs a load and a branch if
//! there are none.

use std::sync::atomic::{AtomicU64, Ordering};

/// [`COUNTING`], and the count of emulated pools.
static ACTIVE: AtomicU64 = AtomicU64::new(0);
/// Set once [`crate::processes::death`] counts each barrier.
pub(crate) const COUNTING: u64 = 1 << 63;

/// The active observers; 0 if there are none.
#[inline(always)]
pub(crate) fn active() -> u64 {
    ACTIVE.load(Ordering::Relaxed)
}

/// Counts every barrier from now on.
pub(crate) fn count_barriers() {
    ACTIVE.fetch_or(COUNTING, Ordering::Relaxed);
}

/// Adds an emulated pool.
pub(crate) fn emulation_begins() {
    ACTIVE.fetch_add(1, Ordering::Relaxed);
}

/// Removes an emulated pool.
pub(crate) fn emulation_ends() {
    ACTIVE.fetch_sub(1, Ordering::Relaxed);
}
