//! The state of a guest, a child that shares its parent's memory (`vfork.rs`), that differs from
//! its parent's.

use pmfs::{LockClass, LockOwner};

use crate::own::words::{self, word};
use crate::thread::descriptor::Overlay;
use crate::thread::{self, Own};

impl Own {
    /// The owner of its POSIX locks, by its own number.
    pub fn as_owner(&self) -> LockOwner {
        LockOwner {
            class: LockClass::Posix,
            id: self.number.into(),
        }
    }
}

/// The state of this guest; `None` if this process is none.
#[inline]
pub(crate) fn own() -> Option<&'static mut Own> {
    if words::get(word::STACK) == 0 {
        // The thread has made no call yet.
        return None;
    }
    // SAFETY: only this thread uses its room, and no two references to this part of it
    // live at a time: each is used within one expression.
    unsafe { (*thread::room()).guest.as_mut() }
}

/// The same, of a guest whose umask and root are not its parent's.
pub(crate) fn own_place() -> Option<&'static mut Own> {
    own().filter(|own| !own.shares_place)
}

/// This process as an owner of POSIX locks.
const PROCESS: LockOwner = LockOwner {
    class: LockClass::Posix,
    id: 0,
};

/// This process, or this guest, as an owner of POSIX locks. Threads that share the table of
/// descriptors share these, too.
pub(crate) fn lock_owner() -> LockOwner {
    if !has_own_table() {
        return PROCESS;
    }
    own().map_or(PROCESS, |own| own.as_owner())
}

/// It is about to lock something.
pub(crate) fn locks() {
    own().into_iter().for_each(|own| own.has_locks = true);
}

/// The guest of which the next program inherits; `None`: this is none. Locks that it
/// shares with its parent stay that one's: it is nobody by its own number then.
pub(crate) fn heir() -> Option<LockOwner> {
    own().map(|own| own.as_owner())
}

/// Returns whether this is a guest, and its descriptors are not its parent's.
pub(crate) fn has_own_table() -> bool {
    overlay().is_some()
}

/// The descriptors that differ.
#[inline]
pub(crate) fn overlay() -> Option<&'static mut Overlay> {
    if words::get(word::STACK) == 0 {
        // The thread has made no call yet.
        return None;
    }
    // SAFETY: only this thread uses its room, and no two references to the overlay live
    // at a time: each is used within a function of `descriptors`.
    unsafe { (*thread::room()).overlay.as_mut() }
}
