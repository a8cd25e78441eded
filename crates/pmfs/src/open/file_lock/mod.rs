//! File locks: POSIX ranges, ranges of an open file (OFD), and flock(2). They are in the runtime
//! area, so that they exclude each other on all ways to the file.
//!
//! A lock belongs to an owner inside a process, or to an open file that several processes may
//! share. It ends with its owner. A dead process is cleaned up after when its lock is in the way.

mod deadlock;
pub mod table;

use crate::inode::Inode;
use crate::pool::Pool;
use crate::types::{Ino, LockClass, LockInfo, LockKind, LockOwner, LockRange};
use pm_journal::error::{Error, Result};
use pmfs_format::runtime::{FILE_LOCK_HELD, FILE_LOCK_WAITING};
use pmshare::member::Began;
use std::time::Duration;
use table::{Bucket, Lock, Record};

/// The sleep of a waiter before it checks whether the holder lives, and whether it was interrupted
/// itself.
const NAP: Duration = Duration::from_millis(10);

/// The owner of a lock, among all processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owner {
    pub class: LockClass,
    /// The process's token; 0 for an open file, whichever processes have it.
    pub token: u64,
    pub id: u64,
}

/// A request for a lock.
#[derive(Clone, Copy, Debug)]
pub struct Request {
    pub lock: Lock,
    /// The slot whose end ends the lock; `None`: it ends with its open file.
    pub slot: Option<u64>,
}

impl Pool {
    /// A request of an owner in this process.
    pub(crate) fn lock_request(
        &self,
        ino: Ino,
        owner: LockOwner,
        (kind, range): (LockKind, LockRange),
        pid: u32,
    ) -> Request {
        Request {
            lock: Lock {
                ino,
                owner: self.lock_owner(owner),
                kind,
                range,
                pid,
            },
            slot: (!planted!("bug-lock-outlives-its-process")).then(|| self.holder().slot),
        }
    }

    pub(crate) fn lock_owner(&self, owner: LockOwner) -> Owner {
        Owner {
            class: owner.class,
            token: self.slot_token(self.holder().slot),
            id: owner.id,
        }
    }

    /// Takes a lock, or changes the kind of the owner's lock.
    ///
    /// # Errors
    /// [`Error::WouldBlock`], [`Error::NoLocks`], [`Error::Invalid`] for an empty range.
    pub(crate) fn file_lock(&self, request: &Request) -> Result<()> {
        self.lockable(request)?;
        loop {
            match self.try_file_lock(request)? {
                Tried::Locked => return Ok(()),
                Tried::Blocked { by, .. } => {
                    if !self.bury(&by)? {
                        self.give_up_flock(request)?;
                        return Err(Error::WouldBlock);
                    }
                }
            }
        }
    }

    /// Takes a lock as [`Pool::file_lock`] does, and waits for it. `interrupted` is called from
    /// time to time.
    ///
    /// # Errors
    /// Those of [`Pool::file_lock`]; [`Error::Interrupted`]; [`Error::Deadlock`] for POSIX ranges.
    pub(crate) fn file_lock_wait(
        &self,
        request: &Request,
        interrupted: &dyn Fn() -> bool,
    ) -> Result<()> {
        self.lockable(request)?;
        let mut waiting = Waiting {
            pool: self,
            request,
            record: None,
            began: Began::now(),
        };
        loop {
            let (by, seen) = match self.try_file_lock(request)? {
                Tried::Locked => return Ok(()),
                Tried::Blocked { by, seen } => (by, seen),
            };
            if self.bury(&by)? {
                continue;
            }
            if interrupted() {
                return Err(Error::Interrupted);
            }
            self.give_up_flock(request)?;
            waiting.tell()?;
            if request.lock.owner.class == LockClass::Posix
                && deadlock::is_certain(self, &request.lock)
            {
                return Err(Error::Deadlock);
            }
            if table::sleep(self, request.lock.ino, seen, NAP) {
                return Err(Error::Interrupted);
            }
            self.alive()?;
        }
    }

    /// Releases the flock of an owner that requests another kind and can't have it at once, as
    /// Linux does. So two sharers that both want exclusive locks don't wait for each other.
    fn give_up_flock(&self, request: &Request) -> Result<()> {
        let Lock { ino, owner, .. } = request.lock;
        match owner.class {
            LockClass::Flock => self.file_unlock(ino, owner, LockRange::WHOLE),
            _ => Ok(()),
        }
    }

    fn lockable(&self, request: &Request) -> Result<()> {
        self.alive()?;
        let range = request.lock.range;
        if range.start > range.end {
            return Err(Error::Invalid(&"the range of a lock"));
        }
        Inode::live(self, request.lock.ino).map(drop)
    }

    /// Returns whether the holder of a conflicting lock was dead; the lock is then gone.
    fn bury(&self, by: &Record) -> Result<bool> {
        // A lock of an open file has no process: it ends with the file's last opener.
        let is_dead = match by.slot {
            Some(slot) => self.slot_dead(slot),
            None => !self.dead_slots().is_empty(),
        };
        if !is_dead {
            return Ok(false);
        }
        pmshare::rescue::recover_dead(self)?;
        Ok(true)
    }

    fn try_file_lock(&self, request: &Request) -> Result<Tried> {
        let bucket = Bucket::of(self, request.lock.ino);
        let records = bucket.records();
        let blocks = |record: &&Record| record.is_held() && record.lock.conflicts(&request.lock);
        if let Some(&by) = records.iter().find(blocks) {
            let seen = bucket.changes();
            return Ok(Tried::Blocked { by, seen });
        }
        let (ino, owner) = (request.lock.ino, request.lock.owner);
        replace(
            &bucket,
            &records,
            (ino, owner),
            request.lock.range,
            Some(request),
        )?;
        Ok(Tried::Locked)
    }

    /// Releases an owner's locks in a range.
    ///
    /// # Errors
    /// [`Error::NoLocks`] if the rest needs one more record than there is: not before an eighth of
    /// the table are such rests, and the pool has no block for more.
    pub(crate) fn file_unlock(&self, ino: Ino, owner: Owner, range: LockRange) -> Result<()> {
        self.alive()?;
        self.take_lock_away(ino, owner, range)
    }

    /// Unlocks as [`Pool::file_unlock`] does, also for a process that is leaving the pool.
    ///
    /// # Errors
    /// Those of [`Pool::file_unlock`].
    pub(crate) fn take_lock_away(&self, ino: Ino, owner: Owner, range: LockRange) -> Result<()> {
        if Bucket::is_empty(self, ino) {
            return Ok(());
        }
        let bucket = Bucket::of(self, ino);
        let records = bucket.records();
        replace(&bucket, &records, (ino, owner), range, None)
    }

    /// Unlocks as [`Pool::file_unlock`] does, for an owner in this process.
    ///
    /// # Errors
    /// Those of [`Pool::file_unlock`].
    pub(crate) fn unlock_of(&self, ino: Ino, owner: LockOwner, range: LockRange) -> Result<()> {
        self.file_unlock(ino, self.lock_owner(owner), range)
    }

    /// Releases all locks of an owner in this process on all inodes.
    pub(crate) fn end_lock_owner(&self, owner: LockOwner) {
        self.for_each_lock_of(self.lock_owner(owner), |bucket, record| {
            bucket.remove(record);
            bucket.changed(true);
        });
    }

    /// Gives an owner's locks to another owner, with whose slot they then end.
    pub(crate) fn rename_locks(&self, before: Owner, after: Owner, slot: u64) {
        self.for_each_lock_of(before, |bucket, record| bucket.rename(record, after, slot));
    }

    /// The lock that conflicts with a request.
    ///
    /// # Errors
    /// The inode is gone; cleaning up after a dead process met damage.
    pub(crate) fn file_lock_conflict(&self, request: &Request) -> Result<Option<LockInfo>> {
        self.lockable(request)?;
        loop {
            let records = Bucket::of(self, request.lock.ino).records();
            let blocks = |record: &Record| record.is_held() && record.lock.conflicts(&request.lock);
            // The first one in the file counts.
            let blocking = records.into_iter().filter(blocks);
            let Some(by) = blocking.min_by_key(|record| record.lock.range.start) else {
                return Ok(None);
            };
            if !self.bury(&by)? {
                return Ok(Some(LockInfo {
                    kind: by.lock.kind,
                    range: by.lock.range,
                    pid: by.lock.pid,
                    class: by.lock.owner.class,
                }));
            }
        }
    }
}

/// The result of a try.
enum Tried {
    Locked,
    /// Another lock conflicts; the count of changes at that time.
    Blocked {
        by: Record,
        seen: u64,
    },
}

/// Removes a range from an owner's locks on an inode, and adds a lock there, if one is given.
/// Records are claimed first, so that a shortage leaves nothing half done. The new lock is added
/// before the replaced ones are removed: a death in between leaves too much locked, never too
/// little.
fn replace(
    bucket: &Bucket<'_>,
    records: &[Record],
    (ino, owner): (Ino, Owner),
    range: LockRange,
    wanted: Option<&Request>,
) -> Result<()> {
    let own =
        |record: &&Record| record.is_held() && record.lock.ino == ino && record.lock.owner == owner;
    let same_kind = |record: &Record| wanted.is_some_and(|new| new.lock.kind == record.lock.kind);
    let mine: Vec<&Record> = records.iter().filter(own).collect();
    let mut merged = range;
    for old in mine.iter().filter(|old| same_kind(old)) {
        if old.lock.range.touches(merged) {
            merged = merged.with(old.lock.range);
        }
    }
    let splits = |old: &&&Record| {
        !same_kind(old) && old.lock.range.start < range.start && old.lock.range.end > range.end
    };
    // There is at most one, because an owner's locks don't overlap.
    let split = mine.iter().find(splits);
    let for_new = wanted.map(|_| bucket.claim()).transpose()?;
    let for_rest = match split.map(|_| bucket.claim_for_rest()).transpose() {
        Ok(rest) => rest,
        Err(error) => {
            for_new.into_iter().for_each(|new| bucket.unclaim(new));
            return Err(error);
        }
    };
    if let (Some(rest), Some(old)) = (for_rest, split) {
        let lock = Lock {
            range: LockRange {
                start: range.end + 1,
                end: old.lock.range.end,
            },
            ..old.lock
        };
        bucket.insert(rest, FILE_LOCK_HELD, old.slot, &lock);
    }
    if let (Some(new), Some(request)) = (for_new, wanted) {
        let lock = Lock {
            range: merged,
            ..request.lock
        };
        bucket.insert(new, FILE_LOCK_HELD, request.slot, &lock);
    }
    let mut given_up = false;
    for old in mine {
        if same_kind(old) {
            if old.lock.range.touches(merged) {
                bucket.remove(old);
            }
        } else if old.lock.range.overlaps(range) {
            given_up = true;
            cut(bucket, old, range);
        }
    }
    if given_up {
        bucket.changed(records.iter().any(Record::is_waiting));
    }
    Ok(())
}

/// Removes a range from a record. If parts on both sides stay, the right one is in another record
/// already.
fn cut(bucket: &Bucket<'_>, old: &Record, range: LockRange) {
    let was = old.lock.range;
    if was.start < range.start {
        let end = range.start - 1;
        bucket.shrink(old, LockRange { end, ..was });
    } else if was.end > range.end {
        let start = range.end + 1;
        bucket.shrink(old, LockRange { start, ..was });
    } else {
        bucket.remove(old);
    }
}

/// A wait that others can see.
struct Waiting<'a> {
    pool: &'a Pool,
    request: &'a Request,
    record: Option<Record>,
    began: Began,
}

impl Waiting<'_> {
    fn tell(&mut self) -> Result<()> {
        if self.record.is_none() {
            let bucket = Bucket::of(self.pool, self.request.lock.ino);
            let claimed = bucket.claim()?;
            let slot = Some(self.pool.holder().slot);
            let record = bucket.insert(claimed, FILE_LOCK_WAITING, slot, &self.request.lock);
            self.record = Some(record);
        }
        Ok(())
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        if self.pool.gives_up(self.began) {
            return;
        }
        if let Some(record) = &self.record {
            Bucket::of(self.pool, self.request.lock.ino).remove(record);
        }
    }
}
