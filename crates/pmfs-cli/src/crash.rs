//! A death on demand, for crash tests: most of a daemon's time goes into talking to the
//! kernel, so a kill at a random time seldom falls inside a transaction, and one
//! shortly after a random barrier mostly does.

use std::env;

/// `N` or `N+K`: the process that mounts, or grows a pool, kills itself at its N-th
/// barrier from when it opens the pool, or K instructions after it.
const AFTER_BARRIERS: &str = "PMFS_CRASH_AFTER_BARRIERS";

/// Does nothing unless the variable is set.
pub fn arm() {
    let Ok(text) = env::var(AFTER_BARRIERS) else {
        return;
    };
    let (barrier, instructions) = text.split_once('+').unwrap_or((&text, "0"));
    if let (Ok(barrier), Ok(instructions)) = (barrier.parse(), instructions.parse()) {
        pmem::death::arm(barrier, instructions);
    }
}
