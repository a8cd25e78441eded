//! Write protection by page permissions: the mapping is read-only while no thread of the process is
//! in a window.
//!
//! Permissions belong to the process, windows to a thread: a thread that leaves its window closes
//! the pages for another that is still in one. The store of the latter faults and opens them again
//! ([`reopen`]). So there is no shared count, which a thread killed in a window would leave wrong,
//! and no lock, which a child of fork or vfork could find held.

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::address_space::Mapping;
use crate::processes::counters;
use crate::processes::thread;
use crate::raw;

/// The pages of one mapping.
#[derive(Debug)]
pub(crate) struct Pages {
    base: *mut u8,
    /// Bytes; the mapping may grow.
    len: AtomicUsize,
}

// SAFETY: the address is used for mprotect(2) alone, which any thread may call.
unsafe impl Send for Pages {}
// SAFETY: as above.
unsafe impl Sync for Pages {}

impl Pages {
    /// Makes a writable mapping read-only.
    ///
    /// # Errors
    /// The kernel refuses.
    pub(crate) fn close(mapping: &Mapping) -> io::Result<Pages> {
        let pages = Pages {
            base: mapping.base(),
            len: AtomicUsize::new(mapping.len()),
        };
        pages.permit(libc::PROT_READ)?;
        Ok(pages)
    }

    /// Sets the length of the mapping, which has grown. The new bytes are read-only.
    pub(crate) fn grow(&self, len: usize) {
        self.len.fetch_max(len, Ordering::SeqCst);
    }

    /// Begins one more window of this thread.
    #[cold]
    pub(crate) fn open(&self) {
        let before = thread::with(|thread| thread.depth.replace(thread.depth.get() + 1));
        if before == 0 {
            counters::opened();
            self.set(libc::PROT_READ | libc::PROT_WRITE);
        }
    }

    /// Ends a window of this thread.
    #[cold]
    pub(crate) fn shut(&self) {
        let left = thread::with(|thread| {
            // The end of a guest may have reset the count already.
            let left = thread.depth.get().saturating_sub(1);
            thread.depth.set(left);
            left
        });
        if left == 0 {
            self.set(libc::PROT_READ);
        }
    }

    fn set(&self, permissions: libc::c_int) {
        let set = self.permit(permissions);
        set.expect("permissions of a whole mapping can be changed");
    }

    fn permit(&self, permissions: libc::c_int) -> io::Result<()> {
        let len = self.len.load(Ordering::SeqCst);
        // SAFETY: all of a mapping of this crate's, which lives as long as the pool that this
        // belongs to; it stays readable.
        match unsafe { libc::mprotect(self.base.cast(), len, permissions) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

/// Makes a mapping writable again after a refused store, if this thread is in a window whose pages
/// another thread has closed. Returns whether it did, so that the store is done again.
/// Async-signal-safe.
pub(crate) fn reopen(base: usize, len: usize) -> bool {
    if thread::with(|thread| thread.depth.get()) == 0 {
        return false;
    }
    let permissions = (libc::PROT_READ | libc::PROT_WRITE) as usize;
    // SAFETY: a registered mapping, so one of this crate's. One that is read-only for good has a
    // descriptor that was, and the kernel refuses.
    unsafe { raw::call(libc::SYS_mprotect, [base, len, permissions, 0, 0, 0]) == 0 }
}
