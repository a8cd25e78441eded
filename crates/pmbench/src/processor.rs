//! Threads on processors of their own, so that two of them are there at the same time.

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// Returns the processors that this process may run on.
pub fn all() -> anyhow::Result<Vec<usize>> {
    let may = sched_getaffinity(None)?;
    let all = (0..CpuSet::MAX_CPU).filter(|at| may.is_set(*at));
    Ok(all.collect())
}

/// Keeps this thread on one of them. With one alone two threads are never there together.
pub fn keep_to(number: usize) -> anyhow::Result<()> {
    let all = all()?;
    let mut one = CpuSet::new();
    one.set(all[number % all.len()]);
    sched_setaffinity(None, &one)?;
    Ok(())
}
