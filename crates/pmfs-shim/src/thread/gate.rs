//! The gate: a fork, the end of the process and exec wait until no other thread is in the middle of
//! a call.
//!
//! A fork copies the locks that other threads hold at that moment (the allocator's, the engine's),
//! and no thread of the child releases them; and a pool that is left must not be changed any more.
//! So each thread notes when it is inside. A thread that needs the process to itself closes the
//! gate and waits for those inside. A call pays two plain stores for it: the closer orders its own
//! store and load of the gate (membarrier(2)).

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering, compiler_fence, fence};

use crate::own::kernel;
use crate::thread::{self, Room};

const OPEN: u32 = 0;
const CLOSED: u32 = 1;

static GATE: AtomicU32 = AtomicU32::new(OPEN);
/// Set if the kernel orders the others' stores for a closer.
static ORDERED: AtomicBool = AtomicBool::new(false);

/// The longest wait of a closer: longer than any call that does not wait itself.
const PATIENCE_MS: u64 = 2000;
/// One sleep of a waiter.
const NAP_NS: u64 = 50_000;

/// Commands of linux/membarrier.h.
const REGISTER: u64 = 1 << 4;
const EXPEDITED: u64 = 1 << 3;

/// Initializes the gate at the start of the process.
pub(crate) fn start() {
    let registered = kernel::plain(libc::SYS_membarrier, &[REGISTER, 0, 0]) == 0;
    ORDERED.store(registered, Ordering::Relaxed);
}

/// The room of the thread that closed the gate.
static CLOSER: AtomicUsize = AtomicUsize::new(0);

/// Begins a call of this thread.
#[inline]
pub(crate) fn enter(room: &Room) {
    loop {
        room.busy.store(1, Ordering::Relaxed);
        if ORDERED.load(Ordering::Relaxed) {
            compiler_fence(Ordering::SeqCst);
        } else {
            fence(Ordering::SeqCst);
        }
        if GATE.load(Ordering::Acquire) == OPEN {
            return;
        }
        if CLOSER.load(Ordering::Relaxed) == std::ptr::from_ref(room).addr() {
            // A guest that shared the room closed it, and was killed before it opened it.
            open();
        }
        room.busy.store(0, Ordering::Release);
        wait_for_change();
    }
}

/// Ends a call of this thread.
#[inline]
pub(crate) fn leave(room: &Room) {
    room.busy.store(0, Ordering::Release);
}

/// Returns whether a thread waits for the others' calls to end: calls that wait themselves give up
/// and begin again.
pub(crate) fn is_closed() -> bool {
    GATE.load(Ordering::Relaxed) == CLOSED
}

/// Runs `body`, which may last for ever and touches nothing of the pool or this library, in the
/// middle of a call.
pub(crate) fn away<T>(body: impl FnOnce() -> T) -> T {
    let room = thread::own_room();
    leave(room);
    let answer = body();
    enter(room);
    answer
}

/// Closes the gate and waits until this thread is the only one inside. `false`: another thread
/// stays inside, and the gate is open again.
pub(crate) fn close() -> bool {
    let own = thread::own_room();
    while GATE
        .compare_exchange(OPEN, CLOSED, Ordering::SeqCst, Ordering::Relaxed)
        .is_err()
    {
        // Another thread closes it, and waits for this one too.
        leave(own);
        wait_for_change();
        own.busy.store(1, Ordering::SeqCst);
    }
    CLOSER.store(std::ptr::from_ref(own).addr(), Ordering::Relaxed);
    if ORDERED.load(Ordering::Relaxed) {
        kernel::plain(libc::SYS_membarrier, &[EXPEDITED, 0, 0]);
    } else {
        fence(Ordering::SeqCst);
    }
    let naps = PATIENCE_MS * 1_000_000 / NAP_NS;
    for _ in 0..naps {
        if !thread::others_are_busy(own) {
            return true;
        }
        nap();
    }
    open();
    false
}

/// Opens the gate again.
pub(crate) fn open() {
    CLOSER.store(0, Ordering::Relaxed);
    GATE.store(OPEN, Ordering::Release);
    let at = GATE.as_ptr().expose_provenance() as u64;
    // SAFETY: a word of this library's, for the kernel to find who waits for it.
    unsafe { kernel::call(libc::SYS_futex, [at, WAKE, i32::MAX as u64, 0, 0, 0]) };
}

const WAIT: u64 = (libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG) as u64;
const WAKE: u64 = (libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG) as u64;

fn wait_for_change() {
    let at = GATE.as_ptr().expose_provenance() as u64;
    // The wait is timed, because a closer in a guest may have been killed.
    let time = [0i64, 100_000_000];
    let until = time.as_ptr().expose_provenance() as u64;
    // SAFETY: as in `open`; the kernel reads the time.
    unsafe { kernel::call(libc::SYS_futex, [at, WAIT, CLOSED.into(), until, 0, 0]) };
}

fn nap() {
    let time = [0i64, NAP_NS as i64];
    let at = time.as_ptr().expose_provenance() as u64;
    // SAFETY: the kernel reads the time.
    unsafe { kernel::call(libc::SYS_nanosleep, [at, 0, 0, 0, 0, 0]) };
}
