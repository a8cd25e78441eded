//! The recorder: an observer sees every load, store, flush, fence and window before it happens
//! (feature `record`).

use std::panic::Location;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, RwLock};

use crate::Pmem;
use crate::cpu::LINE;
pub use crate::recorder::bad_buffer::bad_buffer;

/// The kind of a store, which decides how a crash may tear it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StoreKind {
    /// An aligned word, or bytes within one, in program order within its line.
    Cached,
    /// Whole lines past the caches, in no order until the next fence.
    NonTemporal,
    /// 8 or 16 bytes in one piece: cas, swap, store_pair.
    Atomic,
}

/// The observer's verdict on a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// The access is done.
    Do,
    /// The access is left out, and the caller is not told.
    Skip,
}

/// A recipient of all accesses. It is called on the accessing thread before the access, and may use
/// [`Pmem::peek`] and [`Pmem::poke`], which are not observed.
pub trait Observer: Send + Sync {
    /// A load of `len` bytes. The load returns the bytes that the observer has poked by then.
    fn load(&self, mem: &Pmem, off: u64, len: u64) {
        let _ = (mem, off, len);
    }

    /// The caller is about to load `len` bytes with a checksum over all of them, and ignores all of
    /// them if the checksum is wrong.
    fn load_whole(&self, mem: &Pmem, off: u64, len: u64) {
        self.load(mem, off, len);
    }

    /// A store. A panic here leaves it undone.
    fn store(
        &self,
        mem: &Pmem,
        off: u64,
        bytes: &[u8],
        kind: StoreKind,
        at: &'static Location<'static>,
    ) -> Verdict {
        let _ = (mem, off, bytes, kind, at);
        Verdict::Do
    }

    /// The write-back of the line at `line`, even where the medium needs none. `asked` is the
    /// offset and length in bytes of the caller's whole range.
    fn flush(&self, mem: &Pmem, line: u64, asked: (u64, u64), at: &'static Location<'static>) {
        let _ = (mem, line, asked, at);
    }

    /// A fence.
    fn fence(&self, mem: &Pmem, at: &'static Location<'static>) {
        let _ = (mem, at);
    }

    /// The thread is about to sleep until the word at `off` changes. The word is read again after
    /// this.
    fn wait(&self, mem: &Pmem, off: u64) {
        let _ = (mem, off);
    }

    /// A write window opens (`open`) or is about to close. The place of a close is unknown: a guard
    /// is dropped where its scope ends.
    fn window(&self, mem: &Pmem, open: bool, at: &'static Location<'static>) {
        let _ = (mem, open, at);
    }
}

/// A fault of the code: it decides about each access before the observer sees it. It may do the
/// access in another way itself, and return [`Verdict::Skip`].
pub trait Fault: Send + Sync {
    /// Whether a store is done.
    fn store(
        &self,
        mem: &Pmem,
        off: u64,
        bytes: &[u8],
        kind: StoreKind,
        at: &'static Location<'static>,
    ) -> Verdict;

    /// The range to be flushed instead (offset and length in bytes); a length of 0 flushes nothing.
    fn flush(&self, mem: &Pmem, range: (u64, u64), at: &'static Location<'static>) -> (u64, u64);

    /// Whether a fence is done.
    fn fence(&self, mem: &Pmem, at: &'static Location<'static>) -> Verdict;

    /// Whether the words at `off` get into a log.
    fn log(&self, off: u64, at: &'static Location<'static>) -> Verdict;
}

static IS_THERE: AtomicBool = AtomicBool::new(false);
static FAULT: RwLock<Option<&'static dyn Fault>> = RwLock::new(None);

/// Sets the fault of all pools of this process, or none.
///
/// # Panics
/// If another thread panicked while it set one.
pub fn set_fault(fault: Option<Box<dyn Fault>>) {
    let fault = fault.map(|fault| -> &'static dyn Fault { Box::leak(fault) });
    *FAULT.write().expect("nothing panics inside") = fault;
    IS_THERE.store(fault.is_some(), Ordering::SeqCst);
}

#[inline]
fn fault() -> Option<&'static dyn Fault> {
    if !IS_THERE.load(Ordering::Relaxed) {
        return None;
    }
    *FAULT.read().expect("nothing panics inside")
}

impl Pmem {
    /// Shows every later access to `observer`; `None` ends that.
    pub fn observe(&mut self, observer: Option<Arc<dyn Observer>>) {
        self.observer = observer;
    }

    /// Stores `bytes` at `off`, unobserved and uncounted.
    pub fn poke(&self, off: u64, bytes: &[u8]) {
        let to = self.range(off, bytes.len() as u64);
        let _open = self.writable();
        // SAFETY: the range was checked. A fault leaves the rest unstored, and
        // whoever pokes a failed medium finds that out by the next load.
        let _ = unsafe { self.copier.copy(to, bytes.as_ptr(), bytes.len()) };
    }

    /// Loads `to.len()` bytes from `off`, unobserved.
    pub fn peek(&self, off: u64, to: &mut [u8]) {
        let from = self.range(off, to.len() as u64);
        // SAFETY: an exclusive buffer of that length; the range was checked.
        let _ = unsafe { self.copier.copy(to.as_mut_ptr(), from, to.len()) };
    }

    /// A copy of the whole pool, unobserved.
    pub fn snapshot_image(&self) -> Vec<u8> {
        let mut image = vec![0; self.len() as usize];
        self.peek(0, &mut image);
        image
    }

    /// Tells the observer that the caller compares a checksum over all of these bytes before it
    /// uses any of them. The call comes before the first load.
    #[inline]
    pub fn will_check(&self, off: u64, len: u64) {
        self.range(off, len);
        if let Some(observer) = &self.observer {
            observer.load_whole(self, off, len);
        }
    }

    #[inline]
    pub(crate) fn is_observed(&self) -> bool {
        self.observer.is_some() || fault().is_some()
    }

    #[inline]
    pub(crate) fn note_load(&self, off: u64, len: u64) {
        if let Some(observer) = &self.observer {
            observer.load(self, off, len);
        }
    }

    #[inline]
    #[track_caller]
    pub(crate) fn may_store(&self, off: u64, bytes: &[u8], kind: StoreKind) -> bool {
        // No closure here: its caller would count as the place of the access.
        let at = Location::caller();
        if let Some(fault) = fault()
            && fault.store(self, off, bytes, kind, at) == Verdict::Skip
        {
            return false;
        }
        match &self.observer {
            Some(observer) => observer.store(self, off, bytes, kind, at) == Verdict::Do,
            None => true,
        }
    }

    #[inline]
    #[track_caller]
    pub(crate) fn note_flush(&self, off: u64, len: u64) {
        let at = Location::caller();
        let (off, len) = fault().map_or((off, len), |fault| fault.flush(self, (off, len), at));
        if let Some(observer) = &self.observer
            && len > 0
        {
            for line in (off & !(LINE - 1)..off + len).step_by(LINE as usize) {
                observer.flush(self, line, (off, len), at);
            }
        }
    }

    #[inline]
    #[track_caller]
    pub(crate) fn note_fence(&self) {
        let at = Location::caller();
        let is_done = fault().is_none_or(|fault| fault.fence(self, at) == Verdict::Do);
        if let Some(observer) = &self.observer
            && is_done
        {
            observer.fence(self, at);
        }
    }

    /// Returns whether the words at `off` get into a log that the caller writes.
    #[inline]
    #[track_caller]
    pub fn may_log(&self, off: u64) -> bool {
        let at = Location::caller();
        fault().is_none_or(|fault| fault.log(off, at) == Verdict::Do)
    }

    pub(crate) fn note_wait(&self, off: u64) {
        if let Some(observer) = &self.observer {
            observer.wait(self, off);
        }
    }

    #[inline]
    #[track_caller]
    pub(crate) fn note_window(&self, open: bool) {
        if let Some(observer) = &self.observer {
            observer.window(self, open, Location::caller());
        }
    }
}
