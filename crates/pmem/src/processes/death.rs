//! A process that kills or stops itself at a chosen instant, for crash tests.
//!
//! A kill from outside seldom falls inside a transaction, which lasts a microsecond. This one falls
//! at a barrier, or a given number of instructions of the same thread after it, and so between any
//! two stores. It costs nothing until [`arm`] is called.

use std::arch::asm;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::processes::active;

static BARRIERS_LEFT: AtomicU64 = AtomicU64::new(0);
static INSTRUCTIONS_LEFT: AtomicU64 = AtomicU64::new(0);
static STOPS: AtomicBool = AtomicBool::new(false);
static ENDS: AtomicBool = AtomicBool::new(false);

/// Kills the process by SIGKILL, `instructions` after its `barrier`-th fence from now, on whichever
/// thread that is. A trap counts each instruction, so the other threads run on meanwhile, a
/// thousand times as fast.
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

/// Ends the thread that executes the `barrier`-th fence from now, without cleaning up: its work
/// stays half done.
pub fn end_thread_at(barrier: u64) {
    ENDS.store(true, Ordering::Relaxed);
    BARRIERS_LEFT.store(barrier, Ordering::Relaxed);
    active::count_barriers();
}

/// Stops the process by SIGSTOP after its `barrier`-th fence from now; it continues with SIGCONT.
pub fn stop_at(barrier: u64) {
    STOPS.store(true, Ordering::Relaxed);
    BARRIERS_LEFT.store(barrier, Ordering::Relaxed);
    active::count_barriers();
}

/// Counts a fence of a process in which fences are counted.
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

/// Runs after each instruction of the thread that is to die. The kernel clears the trap flag for
/// the handler and sets it again on return.
extern "C" fn on_step(_: libc::c_int, _: *mut libc::siginfo_t, _: *mut libc::c_void) {
    if INSTRUCTIONS_LEFT.fetch_sub(1, Ordering::Relaxed) <= 1 {
        die();
    }
}

fn die() -> ! {
    // SAFETY: no memory is touched; the signal goes to this process alone.
    unsafe { libc::kill(libc::getpid(), libc::SIGKILL) };
    // Another thread may take the signal a moment later.
    loop {
        std::hint::spin_loop();
    }
}
