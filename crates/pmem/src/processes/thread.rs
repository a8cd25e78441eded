//! A thread's own state: one block of thread-local words, reached by one addition.
//!
//! The block is initial-exec, by hand. Rust's thread-locals of a shared library go through
//! `__tls_get_addr`, which may allocate; a preloaded library must not, because its callers may be
//! inside malloc or a signal handler (docs/adr/0049-stack-and-thread-locals.md). The block has no
//! Drop and begins with zeros. A child of vfork shares its parent's block.

use std::arch::{asm, global_asm};
use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};

/// The state of [`Thread::pending`] in which a line was flushed and the fence is missing.
pub const PENDING_FLUSHED: u64 = 1;
/// [`PENDING_FLUSHED`] for a closing entry: stores of pointers and sizes need not wait for it.
pub const PENDING_CLOSED: u64 = 3;

/// A thread's words: this crate's and the engine's, and behind them the preload library's.
#[repr(C, align(64))]
#[derive(Default)]
pub struct Thread {
    /// Bytes stored non-temporally.
    pub(crate) nt_bytes: Cell<u64>,
    /// Lines written back.
    pub(crate) lines_flushed: Cell<u64>,
    /// Barriers.
    pub(crate) fences: Cell<u64>,
    /// Bytes of undo log.
    pub(crate) logged_bytes: Cell<u64>,
    /// Not 0 if there were non-temporal stores since the last sfence.
    pub(crate) nt_pending: Cell<u64>,
    /// The thread's tag in owner words; 0 before it has one.
    pub tag: Cell<u64>,
    /// The lane that the thread used last, plus one.
    pub lane: Cell<u64>,
    /// The count of changing calls that the thread has begun.
    pub begun: Cell<u64>,
    /// The line that the thread read last, plus one, and its excess delay in ticks, for an emulated
    /// medium.
    pub(crate) line_read: Cell<u64>,
    pub(crate) delay_credit: Cell<u64>,
    /// Write windows opened in a closed pool.
    pub(crate) windows: Cell<u64>,
    /// With page permissions, the nesting of the thread's windows. With a key, not 0 if a window is
    /// known to be open.
    pub(crate) depth: Cell<u64>,
    /// The pending commit, which must be durable before this thread stores in place: 0 none,
    /// [`PENDING_FLUSHED`] and [`PENDING_CLOSED`] one that the next fence makes durable, else the
    /// offset of a line that is not flushed yet.
    pub pending: Cell<u64>,
    /// The unflushed stores of this thread's last committed redo record: the pool and the log, as
    /// the engine names them, and two ranges, each as offset and bytes.
    pub redo_ranges: [Cell<u64>; 6],
    /// Words of the face that runs in this process.
    pub face: [Cell<u64>; 10],
    /// The mapping in which the thread has a tally, by its number, and its address.
    pub(crate) tally_of: Cell<u64>,
    pub(crate) tally_at: Cell<usize>,
    /// The line where this thread's calls are published ([`crate::published`]), or the caller for
    /// whom it works.
    pub(crate) line: Cell<u64>,
}

impl Thread {
    /// Resets the words to the state outside of any call: no window, no pending commit. A face
    /// calls this when it takes the words over from a guest that may have been killed inside a
    /// call.
    pub fn leave_call(&self) {
        self.depth.set(0);
        self.pending.set(0);
    }
}

/// Bytes of [`Thread`]; the assembly below repeats the number.
const BYTES: usize = 256;
/// The offset in bytes of [`Thread::face`], for a face's own assembly.
pub const FACE: usize = 152;

const _: () = assert!(size_of::<Thread>() == BYTES);
const _: () = assert!(std::mem::offset_of!(Thread, face) == FACE);

global_asm!(
    ".section .tbss.pmem_thread,\"awT\",@nobits",
    ".globl pmem_thread",
    ".hidden pmem_thread",
    ".type pmem_thread, @object",
    ".size pmem_thread, 256",
    ".p2align 6",
    "pmem_thread:",
    ".zero 256",
    ".previous",
);

/// The number of a mapping, or of a mapping's next user, in which no thread has a tally.
pub(crate) fn next_tally() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// This thread's words.
#[inline(always)]
pub fn with<T>(body: impl FnOnce(&Thread) -> T) -> T {
    let at: *const Thread;
    // SAFETY: the sum of the thread pointer and the block's offset from it, as the ABI for
    // thread-local storage has it; neither changes while a thread runs, and no memory is read but
    // these two words: so it may be computed once for many uses.
    unsafe {
        asm!(
            "mov {at}, qword ptr fs:[0]",
            "add {at}, qword ptr [rip + pmem_thread@GOTTPOFF]",
            at = out(reg) at,
            options(pure, nomem, nostack),
        );
    }
    // SAFETY: the block is this thread's alone (`Thread` is not Sync, and the reference ends with
    // `body`), lives as long as it runs, and all zero is a valid value.
    body(unsafe { &*at })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_thread_has_its_own() {
        with(|thread| thread.face[0].set(7));
        let other = std::thread::spawn(|| {
            with(|thread| {
                let seen = thread.face[0].get();
                thread.face[0].set(8);
                (seen, std::ptr::from_ref(thread).addr())
            })
        });
        let (seen, place) = other.join().expect("the thread");
        assert_eq!(seen, 0);
        with(|thread| {
            assert_eq!(thread.face[0].replace(0), 7);
            assert_ne!(std::ptr::from_ref(thread).addr(), place);
            assert!(std::ptr::from_ref(thread).addr().is_multiple_of(64));
        });
    }
}
