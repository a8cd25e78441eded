//! Sleeping on a word of the pool, across processes.

use std::ptr::null;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use crate::Pmem;

impl Pmem {
    /// Sleeps while the low half of the word at `off` (8-aligned) is `expect_low32`, until woken or
    /// for at most `timeout`. It may return early for no reason, so the caller checks the word
    /// again. Returns whether a signal ended the sleep.
    pub fn futex_wait(&self, off: u64, expect_low32: u32, timeout: Duration) -> bool {
        let at = self.word(off).cast::<u32>();
        self.note_wait(off);
        // SAFETY: `word` gave an aligned address in the mapping. (Looked at
        // here so that a page not there yet is not the kernel's to refuse.)
        if unsafe { AtomicU32::from_ptr(at) }.load(Ordering::Acquire) != expect_low32 {
            return false;
        }
        let timeout = libc::timespec {
            tv_sec: libc::time_t::try_from(timeout.as_secs()).unwrap_or(libc::time_t::MAX),
            tv_nsec: timeout.subsec_nanos().into(),
        };
        // SAFETY: little endian, so the low half is at the word's own address;
        // the kernel reads it and the timeout, and writes nothing. Every
        // failure (EAGAIN, EINTR, ETIMEDOUT) means: look again.
        let woken = unsafe {
            libc::syscall(
                libc::SYS_futex,
                at,
                libc::FUTEX_WAIT,
                expect_low32,
                &timeout,
                null::<u32>(),
                0,
            )
        };
        woken == -1 && std::io::Error::last_os_error().raw_os_error() == Some(libc::EINTR)
    }

    /// Wakes at most `n` sleepers on the word at `off` (8-aligned).
    pub fn futex_wake(&self, off: u64, n: u32) {
        let at = self.word(off);
        let n = i32::try_from(n).unwrap_or(i32::MAX);
        // SAFETY: the kernel uses the address as a name and writes nothing.
        unsafe { libc::syscall(libc::SYS_futex, at, libc::FUTEX_WAKE, n) };
    }
}
