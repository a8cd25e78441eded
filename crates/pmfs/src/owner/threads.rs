//! Which threads of this process live: a lane whose thread is gone is recovered by its own process, for to all others that
//! process lives (DECISIONS 8).
//!
//! A thread can go without a word of its own (exit(2) by itself, a seccomp filter), so the kernel is asked. In a forked child the
//! numbers of the parent's threads mean nothing: who attaches or settles there says which is his.

//! A table of words and no lock: one that another thread had at the moment of a fork would stay locked in the child.

use rustix::fs::{Access, access, readlink};
use rustix::io::Errno;
use rustix::process::{Pid, WaitId, WaitIdOptions, test_kill_process, waitid};
use rustix::thread::gettid;
use std::sync::atomic::{AtomicU64, Ordering};

/// Threads that are known at a time. Of one whose place another has taken nothing is known, and it counts as alive.
const PLACES: usize = 4096;
const TAG_SHIFT: u32 = 32;

/// A thread's tag, and its number at the kernel.
static KNOWN: [AtomicU64; PLACES] = [const { AtomicU64::new(0) }; PLACES];

fn place(tag: u64) -> &'static AtomicU64 {
    &KNOWN[tag as usize % PLACES]
}

/// This thread has this tag.
#[cold]
pub(super) fn note(tag: u64) {
    let number = gettid().as_raw_nonzero().get() as u32;
    place(tag).store(tag << TAG_SHIFT | u64::from(number), Ordering::Relaxed);
}

/// Whether the thread that had a tag is gone. Asked by its number alone: it may be a child that shares this process's memory
/// (vfork), or this may be one.
#[cold]
pub(super) fn is_gone(tag: u64) -> bool {
    let known = place(tag).load(Ordering::Relaxed);
    known >> TAG_SHIFT == tag && !runs(known as u32)
}

/// A thread of that number is there, and has not ended. Where nobody can tell it counts as running: undoing what a living one
/// does is worse than waiting for a dead one.
fn runs(number: u32) -> bool {
    let Some(thread) = i32::try_from(number).ok().and_then(Pid::from_raw) else {
        return true;
    };
    // By any thread's number, in this process's own namespace, and without /proc.
    if test_kill_process(thread) == Err(Errno::SRCH) {
        return false;
    }
    // A child that shared this process's memory (vfork) has ended, and nobody has waited for it yet.
    let ended = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    if let Ok(Some(_)) = waitid(WaitId::Pid(thread), ended) {
        return false;
    }
    // A process's first thread stays as a zombie until the others have ended, with no directory that it works in. (Asked without
    // open and close: they are cancellation points, and whoever asks may be about to be cancelled.)
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
        // The kernel may take a moment after join has returned.
        let since = std::time::Instant::now();
        while runs(ended) && since.elapsed().as_secs() < 10 {
            std::thread::yield_now();
        }
        assert!(!runs(ended));
    }
}
