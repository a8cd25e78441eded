//! Write windows (PMFS section 3.3): stores happen inside one.

use crate::Pmem;

/// An open write window of this thread; closed on drop. No more than a mark
/// for now: this is where a protection key will be turned.
#[must_use = "the window closes when this is dropped"]
#[derive(Debug)]
pub struct Window<'a> {
    mem: &'a Pmem,
    /// Rights belong to a thread: the guard must stay with it.
    _of_this_thread: std::marker::PhantomData<*const ()>,
}

impl<'a> Window<'a> {
    #[inline]
    #[cfg_attr(feature = "record", track_caller)]
    pub(crate) fn open(mem: &'a Pmem) -> Window<'a> {
        mem.note_window(true);
        Window {
            mem,
            _of_this_thread: std::marker::PhantomData,
        }
    }
}

impl Drop for Window<'_> {
    #[inline]
    fn drop(&mut self) {
        self.mem.note_window(false);
    }
}
