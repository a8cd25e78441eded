//! The library's allocator, because the caller may be the program's.
//!
//! Its lock names the holder: a child that shares the memory (vfork) can be killed while it holds
//! the lock.

use std::alloc::{GlobalAlloc, Layout};
use std::cell::UnsafeCell;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicU64, Ordering};

use dlmalloc::Dlmalloc;

use crate::own::kernel;
use crate::own::words::{self, GUEST, word};

/// The allocator, behind its lock.
pub(crate) struct Memory {
    /// The holder; 0 if the lock is free.
    owner: AtomicU64,
    heap: UnsafeCell<Heap>,
    early: Early,
}

/// The first memory, enough for a program's start. It is in a page that the start stores to anyway
/// (`start.ld`), so that a process without a pool touches no page of the heap.
#[repr(C, align(16))]
struct Early(UnsafeCell<[u8; EARLY_BYTES]>);

const EARLY_BYTES: usize = 1024;

/// The memory to allocate from, for the holder of the lock.
struct Heap {
    /// The count of early bytes that are allocated.
    given: usize,
    rest: Dlmalloc,
}

impl Early {
    fn start(&self) -> *mut u8 {
        self.0.get().cast()
    }

    /// The place of an allocation among the early bytes.
    fn place(&self, at: *mut u8) -> Option<usize> {
        let place = at.addr().wrapping_sub(self.start().addr());
        (place < EARLY_BYTES).then_some(place)
    }
}

impl Heap {
    /// Allocates from the early bytes, while there are any.
    fn early(&mut self, early: &Early, layout: Layout) -> Option<*mut u8> {
        let from = self.given.next_multiple_of(layout.align());
        let end = from.checked_add(layout.size())?;
        if end > EARLY_BYTES || layout.align() > align_of::<Early>() {
            return None;
        }
        self.given = end;
        Some(early.start().wrapping_add(from))
    }

    unsafe fn alloc(&mut self, early: &Early, layout: Layout) -> *mut u8 {
        match self.early(early, layout) {
            Some(at) => at,
            // SAFETY: the caller's promise.
            None => unsafe { self.rest.malloc(layout.size(), layout.align()) },
        }
    }

    unsafe fn alloc_zeroed(&mut self, early: &Early, layout: Layout) -> *mut u8 {
        match self.early(early, layout) {
            Some(at) => {
                // SAFETY: so many bytes, which are the caller's from now on. They may
                // have been another's before.
                unsafe { at.write_bytes(0, layout.size()) };
                at
            }
            // SAFETY: the caller's promise.
            None => unsafe { self.rest.calloc(layout.size(), layout.align()) },
        }
    }

    unsafe fn dealloc(&mut self, early: &Early, at: *mut u8, layout: Layout) {
        match early.place(at) {
            Some(place) if place + layout.size() == self.given => self.given = place,
            Some(_) => {}
            // SAFETY: the caller's promise, and it came from there.
            None => unsafe { self.rest.free(at, layout.size(), layout.align()) },
        }
    }

    unsafe fn realloc(
        &mut self,
        early: &Early,
        at: *mut u8,
        layout: Layout,
        size: usize,
    ) -> *mut u8 {
        if early.place(at).is_none() {
            // SAFETY: the caller's promise, and it came from there.
            return unsafe { self.rest.realloc(at, layout.size(), layout.align(), size) };
        }
        let Ok(wanted) = Layout::from_size_align(size, layout.align()) else {
            return null_mut();
        };
        // SAFETY: a block of its own, at least as long as what is copied to it; the old
        // one is given back.
        unsafe {
            let new = self.alloc(early, wanted);
            if !new.is_null() {
                new.copy_from_nonoverlapping(at, layout.size().min(size));
                self.dealloc(early, at, layout);
            }
            new
        }
    }
}

// SAFETY: the heap is used by who has the lock alone.
unsafe impl Sync for Memory {}

/// Pauses before a waiter sleeps.
const SPINS: u32 = 100;

impl Memory {
    pub const fn new() -> Memory {
        Memory {
            owner: AtomicU64::new(0),
            heap: UnsafeCell::new(Heap {
                given: 0,
                rest: Dlmalloc::new(),
            }),
            early: Early(UnsafeCell::new([0; EARLY_BYTES])),
        }
    }

    fn with<T>(&self, body: impl FnOnce(&mut Heap) -> T) -> T {
        let me = me(words::get(word::AFTERWARDS) == GUEST);
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
                // The lock is held for one allocation, so its holder only has to run.
                kernel::plain(libc::SYS_sched_yield, &[]);
            }
        }
        // SAFETY: this thread has the lock.
        let answer = body(unsafe { &mut *self.heap.get() });
        self.owner.store(0, Ordering::Release);
        answer
    }

    /// Frees the lock if a guest that is over has held it.
    pub fn guest_is_over(&self) {
        let _ = self
            .owner
            .compare_exchange(me(true), 0, Ordering::AcqRel, Ordering::Relaxed);
    }
}

/// This thread, by its room; a guest that shares the room gets another number.
fn me(is_guest: bool) -> u64 {
    // Before it has a room there is only one thread.
    words::get(word::STACK) | 2 | u64::from(is_guest)
}

// SAFETY: Dlmalloc's own contract, and early bytes that nobody else has, under a lock.
unsafe impl GlobalAlloc for Memory {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promise.
        self.with(|heap| unsafe { heap.alloc(&self.early, layout) })
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise.
        self.with(|heap| unsafe { heap.dealloc(&self.early, at, layout) });
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promise.
        self.with(|heap| unsafe { heap.alloc_zeroed(&self.early, layout) })
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: the caller's promise.
        self.with(|heap| unsafe { heap.realloc(&self.early, at, layout, size) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: blocks of the early bytes and of the heap keep their bytes, and none overlaps another.
    /// Method: many blocks that outgrow the early bytes, in changing sizes and alignments.
    #[test]
    fn blocks_keep_what_is_in_them() {
        let memory = Memory::new();
        let mut blocks: Vec<(*mut u8, Layout, u8)> = Vec::new();
        for turn in 0..200usize {
            let layout = Layout::from_size_align(1 + turn * 7 % 90, 1 << (turn % 6)).unwrap();
            let byte = turn as u8;
            // SAFETY: layouts that are not empty; each block is given back as it was
            // asked for, and used in its bounds.
            unsafe {
                let at = match turn % 2 {
                    0 => memory.alloc(layout),
                    _ => memory.alloc_zeroed(layout),
                };
                assert_eq!(at.addr() % layout.align(), 0);
                let zeroed = (0..layout.size()).all(|i| *at.add(i) == 0);
                assert!(turn % 2 == 0 || zeroed, "turn {turn}");
                at.write_bytes(byte, layout.size());
                blocks.push((at, layout, byte));
                if turn % 3 == 0 {
                    let (at, layout, byte) = blocks.swap_remove(turn * 5 % blocks.len());
                    let longer =
                        Layout::from_size_align(layout.size() * 2, layout.align()).unwrap();
                    let at = memory.realloc(at, layout, longer.size());
                    assert!((0..layout.size()).all(|i| *at.add(i) == byte));
                    at.write_bytes(byte, longer.size());
                    blocks.push((at, longer, byte));
                }
                if turn % 4 == 3 {
                    let (at, layout, _) = blocks.pop().unwrap();
                    memory.dealloc(at, layout);
                }
                for &(at, layout, byte) in &blocks {
                    assert!(
                        (0..layout.size()).all(|i| *at.add(i) == byte),
                        "turn {turn}"
                    );
                }
            }
        }
    }
}
