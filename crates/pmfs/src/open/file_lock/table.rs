//! Records of file locks, in chains by the inode's hash.
//!
//! A bucket's chain changes under its owner word, each time by one store, so a kill leaves a chain
//! that can be walked. A record's state word names the slot whose end ends it, by which records are
//! found that were taken and not linked, or unlinked and not freed ([`Pool::drop_file_locks`]).

use super::Owner;
use crate::pool::Pool;
use crate::tables::annex::{Line, Table};
use crate::types::{Ino, LockClass, LockKind, LockRange};
use pm_journal::error::{Error, Result};
use pm_journal::medium::store::Held;
use pm_space::Class;
use pmfs_format::runtime::{
    FILE_LOCK_CLASS_SHIFT, FILE_LOCK_FREE, FILE_LOCK_HELD, FILE_LOCK_PID_SHIFT,
    FILE_LOCK_SLOT_SHIFT, FILE_LOCK_TAKEN, FILE_LOCK_WAITING, FILE_LOCK_WRITE,
};
use pmfs_format::{FileLockBucketRaw, FileLockRaw};
use std::sync::atomic::Ordering;

const STATE_MASK: u64 = 0xff;

/// One record in this many is kept for the rests of locks.
const KEPT_SHARE: u64 = 8;

/// The contents of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lock {
    pub ino: Ino,
    pub owner: Owner,
    pub kind: LockKind,
    pub range: LockRange,
    /// The process id that others see.
    pub pid: u32,
}

impl Lock {
    /// Returns whether the two can't be held at once.
    pub fn conflicts(&self, other: &Lock) -> bool {
        self.ino == other.ino
            && self.owner != other.owner
            && self.owner.class.same_space(other.owner.class)
            && self.range.overlaps(other.range)
            && (self.kind == LockKind::Write || other.kind == LockKind::Write)
    }
}

/// A record in the table.
#[derive(Clone, Copy, Debug)]
pub struct Record {
    /// Its number.
    pub index: u64,
    /// The line where it stands.
    line: Line,
    /// FILE_LOCK_*.
    pub state: u64,
    /// The slot whose end ends the lock; `None`: it ends with an open file.
    pub slot: Option<u64>,
    pub lock: Lock,
}

impl Record {
    pub fn is_held(&self) -> bool {
        self.state == FILE_LOCK_HELD
    }

    pub fn is_waiting(&self) -> bool {
        self.state == FILE_LOCK_WAITING
    }
}

fn state_word(state: u64, slot: Option<u64>) -> u64 {
    state | slot.map_or(0, |slot| slot + 1) << FILE_LOCK_SLOT_SHIFT
}

/// The line of record `index`, if it exists.
fn line(pool: &Pool, index: u64) -> Option<Line> {
    match index.checked_sub(pool.geometry.file_lock_count()) {
        None => Some(own_line(pool, index)),
        Some(number) => pool.line_in_annexes(Table::FileLocks, number),
    }
}

/// Returns what [`line`] does, for a record in the runtime area.
fn own_line(pool: &Pool, index: u64) -> Line {
    Line {
        off: pool.geometry.file_lock(index),
        annex: None,
    }
}

/// All records that there may be, by number.
fn lines(pool: &Pool) -> impl Iterator<Item = (u64, Line)> + '_ {
    let count = pool.geometry.file_lock_count();
    let own = (0..count).map(|index| (index, own_line(pool, index)));
    let more = pool.lines_in_annexes(Table::FileLocks);
    own.chain(more.map(move |(number, line)| (count + number, line)))
}

pub(crate) fn record(pool: &Pool, index: u64, line: Line) -> Record {
    let [state, _, ino, start, end, mode, token, id] = pool.pm.read::<8>(line.off);
    Record {
        line,
        index,
        state: state & STATE_MASK,
        slot: (state >> FILE_LOCK_SLOT_SHIFT).checked_sub(1),
        lock: Lock {
            ino,
            owner: Owner {
                class: LockClass::from_number(mode >> FILE_LOCK_CLASS_SHIFT & 0xff),
                token,
                id,
            },
            kind: if mode & FILE_LOCK_WRITE != 0 {
                LockKind::Write
            } else {
                LockKind::Read
            },
            range: LockRange { start, end },
            pid: (mode >> FILE_LOCK_PID_SHIFT) as u32,
        },
    }
}

/// All records in use, linked or not.
pub fn records(pool: &Pool) -> impl Iterator<Item = Record> + '_ {
    let used = |line: &Line| pool.pm.load(line.off) & STATE_MASK != FILE_LOCK_FREE;
    lines(pool)
        .filter(move |(_, line)| used(line))
        .map(|(index, line)| record(pool, index, line))
}

/// Returns where an inode's bucket is.
fn bucket_of(pool: &Pool, ino: Ino) -> u64 {
    let hash = (ino ^ pool.geometry.hash_key[1]).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
    let index = hash & (pool.geometry.file_lock_bucket_count() - 1);
    pool.geometry.file_lock_bucket(index)
}

/// A locked bucket.
pub struct Bucket<'a> {
    pool: &'a Pool,
    off: u64,
    _held: Held<'a>,
}

impl<'a> Bucket<'a> {
    /// Locks the bucket of an inode. It is a leaf of the lock order.
    pub fn of(pool: &'a Pool, ino: Ino) -> Bucket<'a> {
        let off = bucket_of(pool, ino);
        Bucket {
            pool,
            off,
            _held: Held::new(pool, off),
        }
    }

    /// Returns whether a record is linked into its chain.
    pub fn has(pool: &Pool, record: &Record) -> bool {
        let bucket = Bucket::of(pool, record.lock.ino);
        bucket
            .records()
            .iter()
            .any(|found| found.index == record.index)
    }

    /// Returns whether the bucket is empty, without its lock.
    pub fn is_empty(pool: &Pool, ino: Ino) -> bool {
        pool.pm
            .load(FileLockBucketRaw::first.of(bucket_of(pool, ino)))
            == 0
    }

    /// The records of the chain.
    pub fn records(&self) -> Vec<Record> {
        let mut found = Vec::new();
        let mut next = self.pool.pm.load(FileLockBucketRaw::first.of(self.off));
        let most = self.pool.geometry.file_lock_count() + Table::FileLocks.lines();
        while let Some(index) = next.checked_sub(1)
            && let Some(at) = line(self.pool, index)
        {
            found.push(record(self.pool, index, at));
            next = self.pool.pm.load(FileLockRaw::next.of(at.off));
            if found.len() as u64 > most {
                break;
            }
        }
        found
    }

    /// Claims a free record for this process, without linking it.
    ///
    /// # Errors
    /// [`Error::NoLocks`].
    pub fn claim(&self) -> Result<Claimed> {
        let count = self.pool.geometry.file_lock_count();
        self.claim_among(count - count / KEPT_SHARE, Class::Ordinary)
    }

    /// Claims a record as [`Bucket::claim`] does, for the rest of a lock of which a part is
    /// released: some records are kept for that.
    ///
    /// # Errors
    /// Those of [`Bucket::claim`].
    pub fn claim_for_rest(&self) -> Result<Claimed> {
        let count = self.pool.geometry.file_lock_count();
        self.claim_among(count, Class::Privileged)
    }

    /// Claims one of the first `count` records of the table, or one of its annexes.
    fn claim_among(&self, count: u64, class: Class) -> Result<Claimed> {
        let pool = self.pool;
        pool.traces.locks.leave();
        let runtime = pool.pm.runtime();
        let taken = state_word(FILE_LOCK_TAKEN, Some(pool.holder().slot));
        let take = |index: u64, line: Line| {
            let free = runtime.load(line.off) == FILE_LOCK_FREE
                && runtime.cas(line.off, FILE_LOCK_FREE, taken).is_ok();
            free.then_some(Claimed { index, line })
        };
        let all = pool.geometry.file_lock_count();
        let take_more = |number, line| {
            pool.next_lock.store(number + 1, Ordering::Relaxed);
            take(all + number, line)
        };
        // Buckets begin their search at different places.
        let start = self.off / 64 % count;
        let own = || {
            let mut all = (0..count).map(|step| (start + step) % count);
            all.find_map(|index| take(index, own_line(pool, index)))
        };
        let near = pool.next_lock.load(Ordering::Relaxed).checked_sub(1);
        near.and_then(|number| pool.take_line_near(Table::FileLocks, number, &take_more))
            .or_else(own)
            .or_else(|| pool.take_line_in_annexes(Table::FileLocks, class, &take_more))
            .ok_or(Error::NoLocks)
    }

    /// Releases a claimed record.
    pub fn unclaim(&self, claimed: Claimed) {
        self.free(claimed.line);
    }

    fn free(&self, line: Line) {
        const { assert!(FILE_LOCK_FREE == 0) };
        self.pool.free_in_table(line.off, line.annex);
    }

    /// Fills a claimed record and links it. `slot` as in [`Record`].
    pub fn insert(&self, claimed: Claimed, state: u64, slot: Option<u64>, lock: &Lock) -> Record {
        let Claimed { index, line } = claimed;
        let runtime = self.pool.pm.runtime();
        let off = line.off;
        let mode = u64::from(lock.kind == LockKind::Write)
            | (lock.owner.class as u64) << FILE_LOCK_CLASS_SHIFT
            | u64::from(lock.pid) << FILE_LOCK_PID_SHIFT;
        let first = self.pool.pm.load(FileLockBucketRaw::first.of(self.off));
        runtime.write(
            FileLockRaw::next.of(off),
            &[
                first,
                lock.ino,
                lock.range.start,
                lock.range.end,
                mode,
                lock.owner.token,
                lock.owner.id,
            ],
        );
        runtime.store(FileLockBucketRaw::first.of(self.off), index + 1);
        runtime.store(FileLockRaw::state.of(off), state_word(state, slot));
        Record {
            index,
            line,
            state,
            slot,
            lock: *lock,
        }
    }

    /// Makes a record shorter.
    pub fn shrink(&self, record: &Record, range: LockRange) {
        let off = record.line.off;
        let runtime = self.pool.pm.runtime();
        runtime.store(FileLockRaw::start.of(off), range.start);
        runtime.store(FileLockRaw::end.of(off), range.end);
    }

    /// Unlinks a record, if it is linked, and frees it.
    pub fn remove(&self, record: &Record) {
        let runtime = self.pool.pm.runtime();
        let off = record.line.off;
        let mine = Some(self.pool.holder().slot);
        runtime.store(
            FileLockRaw::state.of(off),
            state_word(FILE_LOCK_TAKEN, mine),
        );
        let mut link = FileLockBucketRaw::first.of(self.off);
        for _ in 0..=self.pool.geometry.file_lock_count() + Table::FileLocks.lines() {
            let Some(at) = self.pool.pm.load(link).checked_sub(1) else {
                break;
            };
            if at == record.index {
                runtime.store(link, self.pool.pm.load(FileLockRaw::next.of(off)));
                break;
            }
            let Some(next) = line(self.pool, at) else {
                break;
            };
            link = FileLockRaw::next.of(next.off);
        }
        self.free(record.line);
    }

    /// Sets the slot whose end ends a record.
    #[cfg_attr(feature = "record", track_caller)]
    pub fn bequeath(&self, record: &Record, slot: u64) {
        let off = record.line.off;
        let word = state_word(record.state, Some(slot));
        self.pool
            .pm
            .runtime()
            .store(FileLockRaw::state.of(off), word);
    }

    /// Sets a record's owner. The slot changes first: if this thread dies in between, the record
    /// ends with a successor that never began.
    pub fn rename(&self, record: &Record, owner: Owner, slot: u64) {
        self.bequeath(record, slot);
        let off = record.line.off;
        let runtime = self.pool.pm.runtime();
        runtime.store(FileLockRaw::token.of(off), owner.token);
        runtime.store(FileLockRaw::id.of(off), owner.id);
    }

    /// The count of changes, to sleep on.
    pub fn changes(&self) -> u64 {
        self.pool.pm.load(FileLockBucketRaw::changes.of(self.off))
    }

    /// Counts a change and wakes waiters.
    pub fn changed(&self, waiters: bool) {
        let runtime = self.pool.pm.runtime();
        runtime.store(FileLockBucketRaw::changes.of(self.off), self.changes() + 1);
        if waiters {
            runtime.wake_all(FileLockBucketRaw::changes.of(self.off));
        }
    }
}

/// A record that this process may fill.
pub struct Claimed {
    index: u64,
    line: Line,
}

/// Sleeps until the inode's bucket has changed since `seen`, at most for `timeout`. Returns whether
/// a signal came.
pub(crate) fn sleep(pool: &Pool, ino: Ino, seen: u64, timeout: std::time::Duration) -> bool {
    let off = FileLockBucketRaw::changes.of(bucket_of(pool, ino));
    pool.pm.runtime().wait(off, seen as u32, timeout)
}

impl Pool {
    /// Ends the locks and waits of a slot whose holder is gone. Those that its process has handed
    /// over go to the heir.
    pub(crate) fn drop_file_locks(&self, slot: u64) {
        let token = self.slot_token(slot);
        let heir = self.heir_of(slot, token);
        for found in records(self).filter(|record| record.slot == Some(slot)) {
            if planted!("bug-waits-of-the-dead-stay") && found.is_waiting() {
                continue;
            }
            let bucket = Bucket::of(self, found.lock.ino);
            let now = record(self, found.index, found.line);
            if now.slot != Some(slot) || now.state == FILE_LOCK_FREE {
                continue;
            }
            match heir {
                Some(heir)
                    if now.is_held()
                        && now.lock.owner.token == token
                        && !planted!("bug-heir-forgotten") =>
                {
                    bucket.bequeath(&now, heir);
                }
                _ => {
                    bucket.remove(&now);
                    bucket.changed(true);
                }
            }
        }
    }

    /// Calls `body` for all locks of an owner, each record under its bucket's lock.
    pub(crate) fn for_each_lock_of(&self, owner: Owner, body: impl Fn(&Bucket<'_>, &Record)) {
        let is_its = |record: &Record| record.is_held() && record.lock.owner == owner;
        for found in records(self).filter(is_its) {
            let bucket = Bucket::of(self, found.lock.ino);
            let now = record(self, found.index, found.line);
            if is_its(&now) && now.lock.ino == found.lock.ino {
                body(&bucket, &now);
            }
        }
    }

    /// The lock words of all buckets.
    pub fn file_lock_buckets(&self) -> impl Iterator<Item = u64> + '_ {
        (0..self.geometry.file_lock_bucket_count()).map(|at| self.geometry.file_lock_bucket(at))
    }
}
