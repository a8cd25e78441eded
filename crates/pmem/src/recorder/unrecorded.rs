//! Without the feature `record`: hooks that compile to nothing.

use crate::Pmem;

/// The kind of a store. Kept in step with `record::StoreKind`.
#[derive(Clone, Copy)]
pub(crate) enum StoreKind {
    Cached,
    NonTemporal,
    Atomic,
}

impl Pmem {
    /// Tells the observer, in builds that have one, that a checksum over all of these bytes is
    /// compared before any of them is used.
    #[inline(always)]
    pub fn will_check(&self, _off: u64, _len: u64) {}

    #[inline(always)]
    pub(crate) fn is_observed(&self) -> bool {
        false
    }

    #[inline(always)]
    pub(crate) fn note_load(&self, _off: u64, _len: u64) {}

    #[inline(always)]
    pub(crate) fn may_store(&self, _off: u64, _bytes: &[u8], _kind: StoreKind) -> bool {
        true
    }

    #[inline(always)]
    pub(crate) fn note_flush(&self, _off: u64, _len: u64) {}

    #[inline(always)]
    pub(crate) fn note_fence(&self) {}

    /// Whether the words at `off` are to get into a log that the caller writes.
    #[inline(always)]
    pub fn may_log(&self, _off: u64) -> bool {
        true
    }

    #[inline(always)]
    pub(crate) fn note_wait(&self, _off: u64) {}

    #[inline(always)]
    pub(crate) fn note_window(&self, _open: bool) {}
}
