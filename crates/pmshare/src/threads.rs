//! The living threads of this process. A process recovers the lanes of its own dead threads,
//! because for all others that process lives (docs/adr/0026-fork-exec-threads.md).
//!
//! A thread can end unnoticed (exit(2) by itself, a seccomp filter), so the kernel is asked. In a
//! forked child the numbers of the parent's threads mean nothing: each thread that attaches or
//! moves in there notes its own number.

//! The table has words and no lock: a lock that another thread held during a fork would stay locked
//! in the child.

use pmfs_format::runtime::OWNER_THREAD_MASK;
use rustix::fs::{Access, access, readlink};
use rustix::io::Errno;
use rustix::process::{Pid, WaitId, WaitIdOptions, test_kill_process, waitid};
use rustix::thread::gettid;
use std::sync::atomic::{AtomicU64, Ordering};

/// Threads that are known at a time, by their numbers. A thread whose place another has taken
/// counts as alive while the kernel has any thread of its number.
const PLACES: usize = 4096;

/// The tags of threads, each the last one with its number.
static KNOWN: [AtomicU64; PLACES] = [const { AtomicU64::new(0) }; PLACES];

fn place(number: u64) -> &'static AtomicU64 {
    &KNOWN[number as usize % PLACES]
}

/// This thread's number; 0 if it is unreliable. A child that shares this process's memory (vfork)
/// may be the first process of a PID namespace; and no kernel has larger numbers.
#[cold]
pub(crate) fn own_number() -> u64 {
    let number = gettid().as_raw_nonzero().get() as u64;
    match number {
        2..=OWNER_THREAD_MASK => number,
        _ => 0,
    }
}

/// Notes the tag of this thread.
#[cold]
pub(crate) fn note(tag: u64) {
    place(tag & OWNER_THREAD_MASK).store(tag, Ordering::Relaxed);
}

/// Returns whether the thread with a tag is gone. The kernel is asked by its number alone: the
/// thread may be in a child that shares this process's memory (vfork), and so may this one.
#[cold]
pub(crate) fn is_gone(tag: u64) -> bool {
    let number = tag & OWNER_THREAD_MASK;
    if number == 0 {
        return false;
    }
    let known = place(number).load(Ordering::Relaxed);
    let has_another = known & OWNER_THREAD_MASK == number && known != tag;
    has_another || !runs(number as u32)
}

/// Returns whether a thread of that number exists and has not ended. If this is unknown it counts
/// as running: undoing the work of a living thread is worse than waiting for a dead one.
fn runs(number: u32) -> bool {
    let Some(thread) = i32::try_from(number).ok().and_then(Pid::from_raw) else {
        return true;
    };
    // The probe works for any thread's number in this process's namespace, and without /proc.
    if test_kill_process(thread) == Err(Errno::SRCH) {
        return false;
    }
    // A child that shared this process's memory (vfork) has ended, and was not waited for yet.
    let ended = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    if let Ok(Some(_)) = waitid(WaitId::Pid(thread), ended) {
        return false;
    }
    // A process's first thread stays as a zombie, without a working directory, until the others
    // have ended. (The probe has no open and close, which are cancellation points: this thread may
    // be about to be cancelled.)
    let task = format!("/proc/self/task/{number}");
    let there = access(&task, Access::EXISTS).is_ok();
    !there || readlink(format!("{task}/cwd"), Vec::new()) != Err(Errno::NOENT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_runs_until_it_has_ended() {
        let number = || gettid().as_raw_nonzero().get() as u32;
        assert!(runs(number()));
        let ended = std::thread::spawn(number).join().expect("the thread");
        // The thread may exist for a moment after join has returned.
        let since = std::time::Instant::now();
        while runs(ended) && since.elapsed().as_secs() < 10 {
            std::thread::yield_now();
        }
        assert!(!runs(ended));
    }
}
