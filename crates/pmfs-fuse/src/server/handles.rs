//! Open files, by the numbers that the kernel hands back with each request, and the locks to give
//! up with them.
//!
//! The kernel tells when a process closes a file (FLUSH, with the owner of its POSIX locks) and
//! when an open file is no more (RELEASE), but not when a lock of the open file itself (OFD) ends.
//! Each handle therefore remembers the locks that were last taken through it, by owner; those of
//! owners that no FLUSH has named end with the handle.
//!
//! The kernel makes the owner of an OFD lock or a flock from the address of the open file, and
//! sends RELEASE when that is free already. A file that is opened then may have the same owner, and
//! take a lock before the RELEASE is served: a lock belongs to one handle only, the last.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use pmfs::{Ino, LockOwner, LockRange};

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

/// Ranges of an owner that a handle keeps apart. The smallest range around all stands for more, so
/// that locks of many records cost neither time nor memory.
const RANGES_MAX: usize = 256;

/// Owners of locks and their ranges, by handle.
type Owners = HashMap<u64, Vec<(LockOwner, LockRange)>>;

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
    pub(super) fn note(&self, ino: Ino, handle: u64, (owner, range): (LockOwner, LockRange)) {
        let mut owners = self.owners();
        let handles = owners.entry(ino).or_default();
        for noted in handles.values_mut() {
            take_out(noted, owner, range);
        }
        let noted = handles.entry(handle).or_default();
        noted.push((owner, range));
        if noted.iter().filter(|(other, _)| *other == owner).count() > RANGES_MAX {
            gather(noted, owner);
        }
    }

    /// The owner is about to unlock a range, through whichever handle.
    pub(super) fn unnote(&self, ino: Ino, owner: LockOwner, range: LockRange) {
        let mut owners = self.owners();
        for noted in owners
            .get_mut(&ino)
            .into_iter()
            .flat_map(HashMap::values_mut)
        {
            take_out(noted, owner, range);
        }
    }

    /// The owner gives up all it has of the inode, whichever handles it was locked through.
    pub(super) fn forget(&self, ino: Ino, owner: LockOwner) {
        let mut owners = self.owners();
        let Some(handles) = owners.get_mut(&ino) else {
            return;
        };
        handles.retain(|_, noted| {
            noted.retain(|(other, _)| *other != owner);
            !noted.is_empty()
        });
        if handles.is_empty() {
            owners.remove(&ino);
        }
    }

    /// The handle is no more: its locks end by `unlock`. Nobody notes a range meanwhile, so that
    /// none is unlocked that was locked since.
    pub(super) fn close(
        &self,
        ino: Ino,
        handle: u64,
        mut unlock: impl FnMut(LockOwner, LockRange),
    ) {
        let mut owners = self.owners();
        let Some(handles) = owners.get_mut(&ino) else {
            return;
        };
        let closed = handles.remove(&handle).unwrap_or_default();
        if handles.is_empty() {
            owners.remove(&ino);
        }
        for (owner, range) in closed {
            unlock(owner, range);
        }
    }

    /// The map is whole at each call under this lock that may panic.
    fn owners(&self) -> MutexGuard<'_, HashMap<Ino, Owners>> {
        self.owners.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Takes a range of an owner out of those that were noted.
fn take_out(noted: &mut Vec<(LockOwner, LockRange)>, owner: LockOwner, range: LockRange) {
    for (other, old) in std::mem::take(noted) {
        if other != owner || old.end < range.start || range.end < old.start {
            noted.push((other, old));
            continue;
        }
        if old.start < range.start {
            let end = range.start - 1;
            noted.push((other, LockRange { end, ..old }));
        }
        if range.end < old.end {
            let start = range.end + 1;
            noted.push((other, LockRange { start, ..old }));
        }
    }
}

/// Has one range of an owner, around all of its ranges.
fn gather(noted: &mut Vec<(LockOwner, LockRange)>, owner: LockOwner) {
    let (mut start, mut end) = (u64::MAX, 0);
    noted.retain(|(other, range)| {
        if *other == owner {
            (start, end) = (start.min(range.start), end.max(range.end));
        }
        *other != owner
    });
    noted.push((owner, LockRange { start, end }));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(start: u64, end: u64) -> LockRange {
        LockRange { start, end }
    }

    fn posix(id: u64) -> LockOwner {
        let class = pmfs::LockClass::Posix;
        LockOwner { class, id }
    }

    fn closed(handles: &Handles, ino: Ino, handle: u64) -> Vec<(u64, LockRange)> {
        let mut all = Vec::new();
        handles.close(ino, handle, |owner, range| all.push((owner.id, range)));
        all.sort_by_key(|(owner, range)| (*owner, range.start));
        all
    }

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
        let all = LockRange::WHOLE;
        handles.note(7, first, (posix(100), all));
        handles.note(7, first, (posix(100), all));
        handles.note(7, first, (posix(200), all));
        handles.note(7, second, (posix(100), all));
        handles.note(8, first, (posix(300), all));
        handles.forget(7, posix(100));
        handles.note(7, second, (posix(100), all));
        assert_eq!(closed(&handles, 7, first), [(200, all)]);
        assert_eq!(closed(&handles, 7, first), []);
        assert_eq!(closed(&handles, 7, second), [(100, all)]);
        assert_eq!(closed(&handles, 8, first), [(300, all)]);
        assert!(handles.owners().is_empty());
    }

    /// A file opened since has the same owner: what it has locked stays.
    #[test]
    fn a_late_end_leaves_what_the_next_file_has_locked() {
        let handles = Handles::default();
        handles.note(7, 4, (posix(100), range(10, 99)));
        handles.note(7, 4, (posix(100), LockRange::WHOLE));
        handles.note(7, 8, (posix(100), range(20, 29)));
        handles.note(7, 8, (posix(200), range(20, 29)));
        handles.note(7, 12, (posix(100), range(u64::MAX, u64::MAX)));
        let left = [range(0, 19), range(30, u64::MAX - 1)];
        assert_eq!(closed(&handles, 7, 4), left.map(|range| (100, range)));
        let of_second = [100, 200].map(|owner| (owner, range(20, 29)));
        assert_eq!(closed(&handles, 7, 8), of_second);
    }
    #[test]
    fn many_ranges_are_few_to_keep() {
        let handles = Handles::default();
        for at in 0..10_000 {
            handles.note(7, 4, (posix(1), range(at * 10, at * 10)));
            handles.unnote(7, posix(1), range(at * 10, at * 10));
        }
        assert_eq!(closed(&handles, 7, 4), []);
        for at in 0..10_000 {
            handles.note(7, 4, (posix(1), range(at * 10, at * 10)));
            assert!(handles.owners()[&7][&4].len() <= RANGES_MAX);
        }
        let all = closed(&handles, 7, 4);
        assert!((0..10_000).all(|at| {
            all.iter()
                .any(|(_, range)| (range.start..=range.end).contains(&(at * 10)))
        }));
    }
}
