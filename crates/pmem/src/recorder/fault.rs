//! Faults: what a checker makes go wrong at a place in the source, as if the program said so there.

use std::panic::Location;
use std::sync::RwLock;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::Pmem;
use crate::recorder::record::{StoreKind, Verdict};

/// Is asked before each access, before its observer is. It may do the access in another way itself,
/// and answer [`Verdict::Skip`].
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

    /// What is flushed instead of a range (offset and length in bytes); a length of 0 for nothing.
    fn flush(&self, range: (u64, u64), at: &'static Location<'static>) -> (u64, u64);

    /// Whether a fence is done.
    fn fence(&self, at: &'static Location<'static>) -> Verdict;

    /// Whether the words at `off` get into a log.
    fn log(&self, off: u64, at: &'static Location<'static>) -> Verdict;
}

static IS_THERE: AtomicBool = AtomicBool::new(false);
static FAULT: RwLock<Option<&'static dyn Fault>> = RwLock::new(None);

/// From now on every pool of this process has this fault, or none.
///
/// # Panics
/// If another thread panicked while it set one.
pub fn set_fault(fault: Option<Box<dyn Fault>>) {
    let fault = fault.map(|fault| -> &'static dyn Fault { Box::leak(fault) });
    *FAULT.write().expect("nothing panics inside") = fault;
    IS_THERE.store(fault.is_some(), Ordering::SeqCst);
}

/// The fault that is set.
#[inline]
pub(crate) fn fault() -> Option<&'static dyn Fault> {
    if !IS_THERE.load(Ordering::Relaxed) {
        return None;
    }
    *FAULT.read().expect("nothing panics inside")
}
