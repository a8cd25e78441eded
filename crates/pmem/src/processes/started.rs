//! The state in which this process was started, as far as the standard library changes it before
//! `main`: it ignores SIGPIPE, and opens /dev/null at each closed number from 0 to 2. A command
//! that starts a program for its caller passes on the caller's state.
//!
//! This is a feature for commands alone. The preloaded library starts with every program, where the
//! check would cost time.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

/// Runs before the standard library's start.
#[used]
#[unsafe(link_section = ".init_array")]
static LOOK: extern "C" fn() = peek;

static IGNORES_BROKEN_PIPES: AtomicBool = AtomicBool::new(false);
/// One bit for each number that was closed.
static CLOSED: AtomicU32 = AtomicU32::new(0);

/// Standard input, output and errors.
const STANDARD: std::ops::Range<i32> = 0..3;

extern "C" fn peek() {
    // SAFETY: a structure of numbers and a pointer that may be null.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    // SAFETY: nothing is changed; libc fills the structure.
    let asked = unsafe { libc::sigaction(libc::SIGPIPE, std::ptr::null(), &raw mut action) };
    let ignores = asked == 0 && action.sa_sigaction == libc::SIG_IGN;
    IGNORES_BROKEN_PIPES.store(ignores, Ordering::Relaxed);
    for number in STANDARD {
        // SAFETY: asks for flags, and touches no memory.
        if unsafe { libc::fcntl(number, libc::F_GETFD) } < 0 {
            CLOSED.fetch_or(1 << number, Ordering::Relaxed);
        }
    }
}

/// Returns whether SIGPIPE was ignored.
#[must_use]
pub fn ignores_broken_pipes() -> bool {
    IGNORES_BROKEN_PIPES.load(Ordering::Relaxed)
}

/// The numbers from 0 to 2 that were closed.
pub fn closed() -> impl Iterator<Item = i32> {
    let closed = CLOSED.load(Ordering::Relaxed);
    STANDARD.filter(move |number| closed & 1 << number != 0)
}
