//! Which threads of this process live: a lane whose thread is gone is recovered by its own process, for to all others that
//! process lives (DECISIONS 8).
//!
//! A thread can go without a word of its own (exit(2) by itself, a seccomp filter), so the kernel is asked. In a forked child the
//! numbers of the parent's threads mean nothing: who attaches or settles there says which is his.

//! A table of words and no lock: one that another thread had at the moment of a fork would stay locked in the child.

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

/// A thread of that number is there, and has not ended.
fn runs(number: u32) -> bool {
    let Ok(stat) = std::fs::read(format!("/proc/{number}/stat")) else {
        return false;
    };
    // Its name may have anything in it: the state stands behind the last parenthesis.
    let state = stat.rsplit(|byte| *byte == b')').next();
    !matches!(state, Some([b' ', b'Z' | b'X', ..]))
}
