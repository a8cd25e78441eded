//! Hooks that compile to nothing, without the feature `record`.

use crate::Pmem;

/// The kind of a store. Kept in step with `record::StoreKind`.
#[derive(Clone, Copy)]
pub(crate) enum StoreKind {
    Cached,
    NonTemporal,
    Atomic,
}

impl Pmem {
    /// Does nothing; builds with the recorder tell the observer about a checksum over these bytes.
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

    /// Returns `true`; builds with the recorder may leave the words at `off` out of a log.
    #[inline(always)]
    pub fn may_log(&self, _off: u64) -> bool {
        true
    }

    #[inline(always)]
    pub(crate) fn note_wait(&self, _off: u64) {}

    #[inline(always)]
    pub(crate) fn note_window(&self, _open: bool) {}
}
