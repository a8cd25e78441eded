//! The observers of this process's accesses to pools: one word, which costs a load and a branch
//! where there is none.

use std::sync::atomic::{AtomicU64, Ordering};

/// [`COUNTING`], and how many pools are emulated.
static ACTIVE: AtomicU64 = AtomicU64::new(0);
/// Each barrier is counted, by [`crate::processes::death`].
pub(crate) const COUNTING: u64 = 1 << 63;

/// The observers that are on; 0: none.
#[inline(always)]
pub(crate) fn active() -> u64 {
    ACTIVE.load(Ordering::Relaxed)
}

/// Every barrier is counted from now on.
pub(crate) fn count_barriers() {
    ACTIVE.fetch_or(COUNTING, Ordering::Relaxed);
}

/// One emulated pool more.
pub(crate) fn emulation_begins() {
    ACTIVE.fetch_add(1, Ordering::Relaxed);
}

/// One less.
pub(crate) fn emulation_ends() {
    ACTIVE.fetch_sub(1, Ordering::Relaxed);
}
