//! Write protection by page permissions: the mapping is read-only while no thread of the process is
//! in a window.
//!
//! Permissions are the process's, windows a thread's: who leaves one closes the pages under another
//! thread that is in one. That one's store faults, and opens them again ([`reopen`]). So no count
//! is shared, which a thread that is killed in a window would leave wrong, and no lock, which a
//! child of fork or vfork would find held.

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
    /// Bytes; it may grow.
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

    /// The mapping has `len` bytes from now on; those that are new are read-only.
    pub(crate) fn grow(&self, len: usize) {
        self.len.fetch_max(len, Ordering::SeqCst);
    }

    /// One window more of this thread.
    #[cold]
    pub(crate) fn open(&self) {
        let before = thread::with(|thread| thread.depth.replace(thread.depth.get() + 1));
        if before == 0 {
            counters::opened();
            self.set(libc::PROT_READ | libc::PROT_WRITE);
        }
    }

    /// One less.
    #[cold]
    pub(crate) fn shut(&self) {
        let left = thread::with(|thread| {
            // A guest's end may have taken it away already.
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

/// After a store to a mapping that was refused: makes that writable again if this thread is in a
/// window, which another one has closed over it. Whether it has, and the store is to be done again.
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
