//! Telling a forked child from the process that it is a copy of.
//!
//! A number stands in a page that the kernel wipes in a forked child (MADV_WIPEONFORK), so that a look at it costs two
//! loads and no call. A child that shares its parent's memory (vfork) counts as the parent.

use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

static PAGE: AtomicPtr<AtomicU64> = AtomicPtr::new(null_mut());

/// Names this address space; another one in a forked child. Never 0.
#[inline]
pub fn number() -> u64 {
    let page = PAGE.load(Ordering::Acquire);
    if !page.is_null() {
        // SAFETY: the page is mapped for good, by `map`.
        let number = unsafe { &*page }.load(Ordering::Relaxed);
        if number != 0 {
            return number;
        }
    }
    begin()
}

/// The first look of a process, or of a forked child.
#[cold]
fn begin() -> u64 {
    if PAGE.load(Ordering::Acquire).is_null() {
        let new = map();
        if PAGE
            .compare_exchange(null_mut(), new, Ordering::AcqRel, Ordering::Acquire)
            .is_err()
        {
            // Another thread was faster.
            // SAFETY: `map` gave a page of its own, which nobody else knows.
            unsafe { libc::munmap(new.cast(), PAGE_BYTES) };
        }
    }
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let fresh = now.map_or(0, |now| now.as_nanos() as u64) << 8 ^ u64::from(std::process::id()) | 1;
    // SAFETY: as in `number`.
    let word = unsafe { &*PAGE.load(Ordering::Acquire) };
    match word.compare_exchange(0, fresh, Ordering::AcqRel, Ordering::Acquire) {
        Ok(_) => fresh,
        Err(there) => there,
    }
}

const PAGE_BYTES: usize = 4096;

fn map() -> *mut AtomicU64 {
    // SAFETY: a new anonymous mapping; nothing else is touched.
    let page = unsafe {
        libc::mmap(
            null_mut(),
            PAGE_BYTES,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
            -1,
            0,
        )
    };
    assert!(page != libc::MAP_FAILED, "no memory for a page");
    // SAFETY: the mapping just made. Kernels since 4.14 know the advice.
    let wiped = unsafe { libc::madvise(page, PAGE_BYTES, libc::MADV_WIPEONFORK) };
    assert!(wiped == 0, "MADV_WIPEONFORK, of Linux 4.14 and later");
    page.cast()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_has_a_number_of_its_own() {
        let mine = number();
        assert_eq!(mine, number());
        // SAFETY: the child only looks at its memory and exits.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let other = number();
            let well = other != mine && other != 0 && other == number();
            // SAFETY: ends the child at once.
            unsafe { libc::_exit(i32::from(!well)) };
        }
        let mut status = 0;
        // SAFETY: waits for the child just made.
        unsafe { libc::waitpid(child, &raw mut status, 0) };
        assert_eq!(status, 0);
        assert_eq!(mine, number());
    }
}
