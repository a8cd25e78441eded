//! A death on demand, for crash tests: most of a daemon's time goes into talking to the kernel, so a
//! kill at a random time seldom falls inside a transaction, and one at a random barrier mostly does.

use std::env;

/// The process that mounts kills itself at this many barriers from when it opens the pool.
const AFTER_BARRIERS: &str = "PMFS_CRASH_AFTER_BARRIERS";

/// Does nothing unless the variable is set to a number.
pub fn arm() {
    let count = env::var(AFTER_BARRIERS)
        .ok()
        .and_then(|text| text.parse().ok());
    if let Some(count) = count {
        pmem::emulate::die_at_barrier(count);
    }
}
