//! Stopped processes that hold a lock of the pool. A killed one would be cleaned up after; a
//! stopped one delays every waiter until it continues (docs/adr/0027-stopped-holders.md).

use crate::holder::slot_of;
use crate::layout::Shared;
use crate::member::{Share, Stalled};
use rustix::process::{Pid, Signal, kill_process};
use std::fmt;
use std::sync::OnceLock;

/// Reports the holder of an owner word as [`tell_of`] does.
#[cold]
pub(crate) fn tell<S: Shared>(share: &Share<S>, owner: u64) {
    let slot = slot_of(owner).filter(|&slot| slot < share.layout().slot_count);
    if let Some(slot) = slot {
        tell_of(
            share,
            slot,
            &format!("which holds a lock of the {} and does not run", S::KIND),
        );
    }
}

/// Reports a stopped process that others wait for, as [`tell_of`] does. A running process may take
/// its time.
#[cold]
pub fn tell_if_stopped<S: Shared>(share: &Share<S>, slot: u64, what: &str) {
    if share.stalled == Stalled::Wait || is_stopped(share.slot_pid(slot)) {
        tell_of(share, slot, what);
    }
}

/// Returns whether a process is stopped, by a signal or by a debugger (proc_pid_stat(5)).
pub(crate) fn is_stopped(pid: u64) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat.rsplit_once(") ").map(|(_, rest)| rest.chars().next());
    matches!(state, Some(Some('T' | 't')))
}

/// The receiver of messages about processes that delay others.
type Say = fn(fmt::Arguments<'_>);

static SAY: OnceLock<Say> = OnceLock::new();

/// Sends the messages about stopped processes to `say` instead of stderr. The first call decides.
pub fn tell_of_stalled(say: Say) {
    let _ = SAY.set(say);
}

fn say(program: &str, what: fmt::Arguments<'_>) {
    match SAY.get() {
        Some(say) => say(what),
        None => eprintln!("{program}: {what}"),
    }
}

/// Reports that a process is waited for which attaches or leaves; 0: it could not be told.
#[cold]
pub(crate) fn tell_of_attaching(program: &str, pid: u32) {
    let command = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    match (pid, command.trim_end()) {
        (0, _) => say(
            program,
            format_args!("waiting for a process that attaches or leaves"),
        ),
        (_, command) => say(
            program,
            format_args!("waiting for process {pid} ({command}), which attaches or leaves"),
        ),
    }
}

/// Reports once in a wait that the process in a slot is waited for; or kills it, if that is wanted
/// and it is the process that the slot names.
#[cold]
fn tell_of<S: Shared>(share: &Share<S>, slot: u64, what: &str) {
    let (pid, command) = (share.slot_pid(slot), share.slot_command(slot));
    let who = format!("process {pid} ({command}), {what}");
    if share.stalled == Stalled::Wait || slot == share.holder().slot {
        say(S::PROGRAM, format_args!("waiting for {who}"));
        return;
    }
    let named = std::fs::read_to_string(format!("/proc/{pid}/comm"));
    let is_he = named.is_ok_and(|named| named.trim_end() == command);
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
    // A container may have other numbers, so the number alone must not decide.
    match pid
        .filter(|_| is_he)
        .map(|pid| kill_process(pid, Signal::KILL))
    {
        Some(Ok(())) => say(S::PROGRAM, format_args!("killed {who}")),
        _ => say(
            S::PROGRAM,
            format_args!("waiting for {who}; it can't be killed from here"),
        ),
    }
}
