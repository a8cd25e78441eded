//! Write windows (PMFS section 3.3): every store happens inside one.
//!
//! Windows nest: a thread's outermost window opens and closes the pool. A call with many changes
//! opens one for all of them ([`Pmem::writable`]), and so pays once. A program with many calls may
//! open one for all calls ([`Pmem::burst`]).

use crate::Pmem;
use crate::protection::{Guard, Protection};

/// The right of this thread to store to the pool, until it is dropped.
#[must_use = "the right ends when this is dropped"]
#[derive(Debug)]
pub struct Writable<'a> {
    mem: &'a Pmem,
    /// Set if this guard opened the pool, which was closed before.
    opened: bool,
    /// Rights belong to a thread: the guard must stay with it.
    _of_this_thread: std::marker::PhantomData<*const ()>,
}

impl Drop for Writable<'_> {
    #[inline]
    fn drop(&mut self) {
        if self.opened {
            match &self.mem.guard {
                Guard::None => {}
                Guard::Keys(key) => key.shut(),
                Guard::Pages(pages) => pages.shut(),
            }
        }
    }
}

/// An open write window of this thread around related stores, closed on drop.
#[must_use = "the window closes when this is dropped"]
#[derive(Debug)]
pub struct Window<'a> {
    writable: Writable<'a>,
}

impl Drop for Window<'_> {
    #[inline]
    fn drop(&mut self) {
        self.writable.mem.note_window(false);
    }
}

/// A write window of this thread that stays open over several calls, whose own windows then cost
/// next to nothing; closed on drop. The program accepts that its stray stores reach the pool
/// meanwhile.
#[must_use = "the window closes when this is dropped"]
#[derive(Debug)]
pub struct Burst<'a> {
    _writable: Writable<'a>,
}

impl Pmem {
    /// Keeps this thread's write window open until the guard is dropped. The observer does not see
    /// it: each call still has to open its own. Prefetch the lines that the calls load
    /// ([`Pmem::prefetch`]) before: cache misses do not overlap with the change of rights.
    #[inline]
    pub fn burst(&self) -> Burst<'_> {
        Burst {
            _writable: self.writable(),
        }
    }

    /// The protection that keeps stray stores from this mapping.
    #[must_use]
    pub fn protection(&self) -> Protection {
        self.guard.kind()
    }

    /// Lets this thread load from the pool, also after it leaves. A thread older than the mapping
    /// and every signal handler begin without this right, so each entry into the engine calls this.
    /// It costs one RDPKRU.
    #[inline(always)]
    pub fn enter(&self) {
        if let Guard::Keys(key) = &self.guard {
            key.admit();
        }
    }

    /// Lets this thread load and store until the guard is dropped, and only load afterwards.
    /// Meanwhile no code of the program may run, and nothing may be copied to an address that the
    /// program gave.
    #[inline(always)]
    pub fn writable(&self) -> Writable<'_> {
        let opened = match &self.guard {
            Guard::None => false,
            Guard::Keys(key) => key.open(),
            Guard::Pages(pages) => {
                pages.open();
                true
            }
        };
        Writable {
            mem: self,
            opened,
            _of_this_thread: std::marker::PhantomData,
        }
    }

    /// Opens a write window of this thread, as [`Pmem::writable`] does, and shows it to the
    /// observer.
    #[inline]
    #[cfg_attr(feature = "record", track_caller)]
    pub fn window(&self) -> Window<'_> {
        self.note_window(true);
        Window {
            writable: self.writable(),
        }
    }
}
