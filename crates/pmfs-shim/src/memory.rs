//! The library's allocator: the program's may be what is calling us.
//!
//! Its lock says who has it, because a child that shares our memory (vfork) can be killed while it does.

use std::alloc::{GlobalAlloc, Layout};
use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicU64, Ordering};

use dlmalloc::Dlmalloc;

use crate::entry::{GUEST, word};
use crate::{kernel, thread};

/// The allocator, behind its lock.
pub(crate) struct Memory {
    /// 0: free; else whose.
    owner: AtomicU64,
    heap: UnsafeCell<Dlmalloc>,
}

// SAFETY: the heap is used by who has the lock alone.
unsafe impl Sync for Memory {}

/// Pauses before a waiter sleeps.
const SPINS: u32 = 100;

impl Memory {
    pub const fn new() -> Memory {
        Memory {
            owner: AtomicU64::new(0),
            heap: UnsafeCell::new(Dlmalloc::new()),
        }
    }

    fn with<T>(&self, body: impl FnOnce(&mut Dlmalloc) -> T) -> T {
        let me = me(thread::get(word::AFTERWARDS) == GUEST);
        let take = || {
            self.owner
                .compare_exchange_weak(0, me, Ordering::Acquire, Ordering::Relaxed)
                .is_ok()
        };
        let mut tries = 0u32;
        while !take() {
            tries += 1;
            if tries < SPINS {
                std::hint::spin_loop();
            } else {
                // It is held for the time of one allocation: its holder only has to run.
                kernel::plain(libc::SYS_sched_yield, &[]);
            }
        }
        // SAFETY: this thread has the lock.
        let answer = body(unsafe { &mut *self.heap.get() });
        self.owner.store(0, Ordering::Release);
        answer
    }

    /// A child that shared this thread's room is over: the lock is not its any more.
    pub fn guest_is_over(&self) {
        let _ = self
            .owner
            .compare_exchange(me(true), 0, Ordering::AcqRel, Ordering::Relaxed);
    }
}

/// This thread, by its room; a child that shares it is told apart.
fn me(is_guest: bool) -> u64 {
    // Before it has a room there is one thread alone.
    thread::get(word::STACK) | 2 | u64::from(is_guest)
}

// SAFETY: Dlmalloc's own contract, under a lock.
unsafe impl GlobalAlloc for Memory {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promise.
        self.with(|heap| unsafe { heap.malloc(layout.size(), layout.align()) })
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise.
        self.with(|heap| unsafe { heap.free(at, layout.size(), layout.align()) });
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promise.
        self.with(|heap| unsafe { heap.calloc(layout.size(), layout.align()) })
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: the caller's promise.
        self.with(|heap| unsafe { heap.realloc(at, layout.size(), layout.align(), size) })
    }
}
