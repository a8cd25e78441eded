//! A process that kills itself, or stops, at a chosen instant, for crash tests.
//!
//! A kill from outside seldom falls inside a transaction, which lasts a
//! microsecond. This one falls at a barrier, or so many instructions of the same
//! thread after it: between any two stores, that is. Nothing of it costs
//! anything until [`arm`] is called.

use std::arch::asm;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::processes::active;

static BARRIERS_LEFT: AtomicU64 = AtomicU64::new(0);
static INSTRUCTIONS_LEFT: AtomicU64 = AtomicU64::new(0);
static STOPS: AtomicBool = AtomicBool::new(false);
static ENDS: AtomicBool = AtomicBool::new(false);

/// The process is to die, by SIGKILL, so that nothing of it runs any more:
/// `instructions` after it has done its `barrier`-th fence from now, on
/// whichever thread that is. An instruction is counted by a trap, so the other
/// threads run on meanwhile, a thousand times as fast.
pub fn arm(barrier: u64, instructions: u64) {
    INSTRUCTIONS_LEFT.store(instructions, Ordering::Relaxed);
    BARRIERS_LEFT.store(barrier, Ordering::Relaxed);
    // SAFETY: all-zero is a valid sigaction (empty mask); the pointers are
    // valid; the handler is async-signal-safe.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = on_step as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO;
        libc::sigaction(libc::SIGTRAP, &action, null_mut());
    }
    active::count_barriers();
}

/// The thread that does the `barrier`-th fence from now is to end there, without a word: what it
/// was doing stays half done.
pub fn end_thread_at(barrier: u64) {
    ENDS.store(true, Ordering::Relaxed);
    BARRIERS_LEFT.store(barrier, Ordering::Relaxed);
    active::count_barriers();
}

/// The process is to stop, by SIGSTOP, when it has done its `barrier`-th fence from now; it goes on
/// with SIGCONT.
pub fn stop_at(barrier: u64) {
    STOPS.store(true, Ordering::Relaxed);
    BARRIERS_LEFT.store(barrier, Ordering::Relaxed);
    active::count_barriers();
}

/// A fence, just done, of a process that counts them.
pub(crate) fn at_barrier() {
    if BARRIERS_LEFT.fetch_sub(1, Ordering::Relaxed) != 1 {
        return;
    }
    if ENDS.load(Ordering::Relaxed) {
        // SAFETY: ends this thread alone; nothing of it runs any more, and its stack stays.
        unsafe { libc::syscall(libc::SYS_exit, 0) };
    }
    if STOPS.load(Ordering::Relaxed) {
        // SAFETY: no memory is touched; the signal goes to this process alone.
        unsafe { libc::raise(libc::SIGSTOP) };
        return;
    }
    if INSTRUCTIONS_LEFT.load(Ordering::Relaxed) == 0 {
        die();
    }
    // SAFETY: the stack is left as it was; the trap flag makes each instruction
    // from the next one on raise SIGTRAP, whose handler `arm` has installed.
    unsafe { asm!("pushfq", "or qword ptr [rsp], 0x100", "popfq") };
}

/// After each instruction of the thread that is to die. The kernel clears the
/// trap flag for the handler and sets it again on return from it.
extern "C" fn on_step(_: libc::c_int, _: *mut libc::siginfo_t, _: *mut libc::c_void) {
    if INSTRUCTIONS_LEFT.fetch_sub(1, Ordering::Relaxed) <= 1 {
        die();
    }
}

fn die() -> ! {
    // SAFETY: no memory is touched; the signal goes to this process alone.
    unsafe { libc::kill(libc::getpid(), libc::SIGKILL) };
    // The signal may be taken by another thread a moment later.
    loop {
        std::hint::spin_loop();
    }
}
