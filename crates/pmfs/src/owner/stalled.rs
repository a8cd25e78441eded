//! A process that holds a lock of the pool and does not run: it was stopped. Killed it would be cleaned up after; stopped it
//! holds up whoever needs what it holds, until it goes on (DECISIONS 9).

use super::slot_of;
use crate::options::Stalled;
use crate::pool::Pool;
use rustix::process::{Pid, Signal, kill_process};

/// Says who is waited for, once a wait; kills him, if that is wanted and he is who he says he is.
#[cold]
pub(super) fn tell(pool: &Pool, owner: u64) {
    let Some(slot) = slot_of(owner).filter(|&slot| slot < pool.geometry.slot_count) else {
        return;
    };
    let (pid, command) = (pool.slot_pid(slot), pool.slot_command(slot));
    let who = format!("process {pid} ({command}), which holds a lock of the pool and does not run");
    if pool.stalled == Stalled::Wait || slot == pool.holder().slot {
        eprintln!("pmfs: waiting for {who}");
        return;
    }
    let named = std::fs::read_to_string(format!("/proc/{pid}/comm"));
    let is_he = named.is_ok_and(|named| named.trim_end() == command);
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
    // Another container has other numbers: one of those must not be hit.
    match pid
        .filter(|_| is_he)
        .map(|pid| kill_process(pid, Signal::KILL))
    {
        Some(Ok(())) => eprintln!("pmfs: killed {who}"),
        _ => eprintln!("pmfs: waiting for {who}; it can't be killed from here"),
    }
}
