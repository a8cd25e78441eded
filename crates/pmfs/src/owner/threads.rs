//! Which threads of this process live: a lane whose thread is gone is recovered by its own process, for to all others that
//! process lives (DECISIONS 8).
//!
//! A thread can go without a word of its own (exit(2) by itself, a seccomp filter), so the kernel is asked. In a forked child the
//! numbers of the parent's threads mean nothing: who attaches or settles there says which is his.

use rustix::thread::gettid;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A thread's tag, and its number at the kernel.
type Known = Vec<(u64, i32)>;

static KNOWN: Mutex<Known> = Mutex::new(Vec::new());

fn known() -> MutexGuard<'static, Known> {
    KNOWN.lock().unwrap_or_else(PoisonError::into_inner)
}

fn lives(number: i32) -> bool {
    Path::new(&format!("/proc/self/task/{number}")).exists()
}

/// This thread has this tag.
#[cold]
pub(super) fn note(tag: u64) {
    let mut known = known();
    known.retain(|entry| entry.0 != tag);
    if known.len() == known.capacity() && known.len() >= 64 {
        known.retain(|entry| lives(entry.1));
    }
    known.push((tag, gettid().as_raw_nonzero().get()));
}

/// Whether the thread that had a tag is gone.
#[cold]
pub(super) fn is_gone(tag: u64) -> bool {
    let number = known()
        .iter()
        .find(|entry| entry.0 == tag)
        .map(|entry| entry.1);
    number.is_some_and(|number| !lives(number))
}
