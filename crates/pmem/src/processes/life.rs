//! The identity of an address space: a forked child differs from its parent.
//!
//! A number stands in a page that the kernel wipes in a forked child (MADV_WIPEONFORK), so that
//! reading it costs two loads and no call. A child that shares its parent's memory (vfork) has the
//! parent's number.

use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

static PAGE: AtomicPtr<AtomicU64> = AtomicPtr::new(null_mut());

/// The number of this address space, never 0. A forked child has another one.
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

/// Gives the process, or a forked child, its number at the first call.
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

/// Runs `body` in a forked child and waits for the child's end. Returns the exit status that `body`
/// gave, or 255 if the child ended otherwise. For tests: the child has this thread alone, so `body`
/// must not wait for other threads of the parent.
#[doc(hidden)]
pub fn in_child(body: impl FnOnce() -> u8) -> u8 {
    // SAFETY: the child runs `body` and exits; what that may do is the caller's to know.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let run = std::panic::AssertUnwindSafe(body);
        let status = std::panic::catch_unwind(run).unwrap_or(254);
        // SAFETY: ends the child at once, without the parent's destructors.
        unsafe { libc::_exit(status.into()) };
    }
    assert!(child > 0, "fork failed");
    let mut status = 0;
    // SAFETY: waits for the child just made.
    unsafe { libc::waitpid(child, &raw mut status, 0) };
    if libc::WIFEXITED(status) {
        libc::WEXITSTATUS(status) as u8
    } else {
        255
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_has_a_number_of_its_own() {
        let mine = number();
        assert_eq!(mine, number());
        let status = in_child(|| {
            let other = number();
            u8::from(other == mine || other == 0 || other != number())
        });
        assert_eq!(status, 0);
        assert_eq!(mine, number());
    }
}
