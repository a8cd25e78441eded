//! Open files, by the numbers that the kernel hands back with each request, and the locks to give
//! up with them.
//!
//! The kernel tells when a process closes a file (FLUSH, with the owner of its POSIX locks) and
//! when an open file is no more (RELEASE), but not when a lock of the open file itself (OFD) ends.
//! Each handle therefore remembers the owners that took range locks through it; the locks of those
//! that no FLUSH has named end with the handle.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use pmfs::Ino;

/// The access that a file is opened for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Reading, and mappings that can't be stored to.
    Reading,
    /// Writing alone: it can't be mapped.
    Writing,
    /// Reading, writing and any mapping.
    Both,
}

/// Owners of range locks, by handle.
type Owners = HashMap<u64, Vec<u64>>;

#[derive(Default)]
pub(super) struct Handles {
    last: AtomicU64,
    /// The owners of locks, by inode.
    owners: Mutex<HashMap<Ino, Owners>>,
}

impl Handles {
    /// Returns a number that no other open file has or had, with the access in it.
    pub(super) fn number(&self, access: Access) -> u64 {
        let number = self.last.fetch_add(1, Ordering::Relaxed) + 1;
        number << 2 | access as u64
    }

    /// The access in a handle's number.
    pub(super) fn access(handle: u64) -> Access {
        match handle & 3 {
            0 => Access::Reading,
            1 => Access::Writing,
            _ => Access::Both,
        }
    }

    /// The owner is about to lock a range through the handle.
    pub(super) fn note(&self, ino: Ino, handle: u64, owner: u64) {
        let mut owners = self.owners();
        let noted = owners.entry(ino).or_default().entry(handle).or_default();
        if !noted.contains(&owner) {
            noted.push(owner);
        }
    }

    /// The owner gives up all it has of the inode, whichever handles it was locked through.
    pub(super) fn forget(&self, ino: Ino, owner: u64) {
        let mut owners = self.owners();
        let Some(handles) = owners.get_mut(&ino) else {
            return;
        };
        handles.retain(|_, noted| {
            noted.retain(|other| *other != owner);
            !noted.is_empty()
        });
        if handles.is_empty() {
            owners.remove(&ino);
        }
    }

    /// The handle is no more; whose locks end with it.
    pub(super) fn close(&self, ino: Ino, handle: u64) -> Vec<u64> {
        let mut owners = self.owners();
        let Some(handles) = owners.get_mut(&ino) else {
            return Vec::new();
        };
        let closed = handles.remove(&handle).unwrap_or_default();
        if handles.is_empty() {
            owners.remove(&ino);
        }
        closed
    }

    /// No code that may panic runs under this lock.
    fn owners(&self) -> MutexGuard<'_, HashMap<Ino, Owners>> {
        self.owners.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// After close there is nothing left for the end of a handle to take; a late end takes
    /// nothing of what was locked through another handle since.
    #[test]
    fn what_ends_with_a_handle() {
        let handles = Handles::default();
        let [first, second] = [Access::Reading, Access::Both].map(|access| handles.number(access));
        assert_ne!(first, second);
        assert_eq!(Handles::access(first), Access::Reading);
        assert_eq!(Handles::access(second), Access::Both);
        let third = handles.number(Access::Writing);
        assert_eq!(Handles::access(third), Access::Writing);
        handles.note(7, first, 100);
        handles.note(7, first, 100);
        handles.note(7, first, 200);
        handles.note(7, second, 100);
        handles.note(8, first, 300);
        handles.forget(7, 100);
        handles.note(7, second, 100);
        assert_eq!(handles.close(7, first), [200]);
        assert_eq!(handles.close(7, first), []);
        assert_eq!(handles.close(7, second), [100]);
        assert_eq!(handles.close(8, first), [300]);
        assert!(handles.owners().is_empty());
    }
}
