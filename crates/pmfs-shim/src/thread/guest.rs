//! The state of a guest, a child that shares its parent's memory (`vfork.rs`), where it differs
//! from its parent's.

use pmfs::{LockClass, LockOwner};

use crate::own::words::{self, word};
use crate::thread::descriptor::Overlay;
use crate::thread::{self, Own};

impl Own {
    /// The owner of its POSIX locks, by its number.
    pub fn as_owner(&self) -> LockOwner {
        LockOwner {
            class: LockClass::Posix,
            id: self.number.into(),
        }
    }
}

/// The state of this guest; `None` in other processes.
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

/// The state of a guest with an umask and a root of its own.
pub(crate) fn own_place() -> Option<&'static mut Own> {
    own().filter(|own| !own.shares_place)
}

/// This process as the owner of POSIX locks.
const PROCESS: LockOwner = LockOwner {
    class: LockClass::Posix,
    id: 0,
};

/// The owner of POSIX locks: this process, or this guest. Threads that share the table of
/// descriptors share the locks too.
pub(crate) fn lock_owner() -> LockOwner {
    if !has_own_table() {
        return PROCESS;
    }
    own().map_or(PROCESS, |own| own.as_owner())
}

/// Notes that the guest is about to lock.
pub(crate) fn locks() {
    own().into_iter().for_each(|own| own.has_locks = true);
}

/// The guest from which the next program inherits; `None` in other processes. Locks that it shares
/// with its parent stay the parent's: it then owns nothing by its own number.
pub(crate) fn heir() -> Option<LockOwner> {
    own().map(|own| own.as_owner())
}

/// Returns whether this is a guest with descriptors of its own.
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
