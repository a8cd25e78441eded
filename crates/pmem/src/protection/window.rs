//! Write windows (PMFS section 3.3): stores happen inside one.
//!
//! Windows nest: the outermost one of a thread opens the pool and closes it. A call that changes
//! much opens one for all of it ([`Pmem::writable`]), so that it has the cost once; a program that
//! makes many calls may have it once for all of them ([`Pmem::burst`]).

use crate::Pmem;
use crate::protection::{Guard, Protection};

/// While this lives, its thread may store to the pool.
#[must_use = "the right ends when this is dropped"]
#[derive(Debug)]
pub struct Writable<'a> {
    mem: &'a Pmem,
    /// It was closed before.
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

/// An open write window of this thread, around stores that belong together; closed on drop.
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
/// next to nothing; closed on drop. It is the program's choice: a stray store that it makes
/// meanwhile arrives.
#[must_use = "the window closes when this is dropped"]
#[derive(Debug)]
pub struct Burst<'a> {
    _writable: Writable<'a>,
}

impl Pmem {
    /// Keeps the write window of this thread open until the guard is dropped. Not shown to the
    /// observer: each call still has to open its own. Ask for what the calls load before
    /// ([`Pmem::prefetch`]): misses do not go on beside the change of rights.
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

    /// Lets this thread load from the pool. To be called wherever a thread comes in: one that is
    /// older than the mapping, and every signal handler, may do nothing. It stays so when it
    /// leaves; costs one RDPKRU.
    #[inline(always)]
    pub fn enter(&self) {
        if let Guard::Keys(key) = &self.guard {
            key.admit();
        }
    }

    /// Lets this thread load and store until the guard is dropped; from then on it may load.
    /// Nothing of the program's may run meanwhile, and nothing be copied to where it says.
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

    /// Opens a write window for this thread, until the guard is dropped: as [`Pmem::writable`], and
    /// shown to the observer.
    #[inline]
    #[cfg_attr(feature = "record", track_caller)]
    pub fn window(&self) -> Window<'_> {
        self.note_window(true);
        Window {
            writable: self.writable(),
        }
    }
}
