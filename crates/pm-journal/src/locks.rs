//! The lock table: one line {owner, sequence} for all inodes whose keyed hash falls on it
//! (docs/adr/0028-lock-table.md).
//!
//! Writers hold the line's owner word; its sequence is odd while they change words that readers may
//! see. Readers take no lock: they read the sequence, the words, and the sequence again.

use crate::committed_redo;
use crate::error::{Error, Result};
use crate::lane::Lane;
use crate::medium::store::{Share, Waits};
use crate::pending::PendingCommit;
use crate::redo::Redo;
use crate::transaction::Sealed;
use crate::types::Ino;
use crate::undo::may_go;
use pmfs_format::LockRaw;
use pmshare::member::Began;
use pmshare::owner;
use std::cell::Cell;

/// The most inodes that a call locks: two directories and two files.
const LOCKS_MAX: usize = 4;
/// Optimistic tries before a reader takes the lock.
const READ_TRIES: u32 = 8;

/// The locks of one call, taken in table order, each once.
pub struct LockSet<'a> {
    waits: Waits<'a>,
    lines: [u64; LOCKS_MAX],
    count: usize,
    changing: Cell<bool>,
    /// Whether the locks named pending commits, which this call has to complete.
    adopted: Cell<bool>,
    /// Whether the thread has the locks without this set ([`AllLocks`]), and keeps them.
    had: bool,
    /// Whether the call only reads under the locks: pending commits are then left as they are.
    reads: bool,
    began: Began,
}

impl<'a> LockSet<'a> {
    /// Locks the inodes, however long that takes.
    #[inline]
    #[cfg_attr(feature = "record", track_caller)]
    pub fn take(waits: impl Into<Waits<'a>>, inos: &[Ino]) -> LockSet<'a> {
        let locks = LockSet::acquire(waits.into(), inos, false);
        for &line in &locks.lines[..locks.count] {
            locks.adopt_pending(line);
        }
        locks
    }

    #[inline(always)]
    #[cfg_attr(feature = "record", track_caller)]
    fn acquire(waits: Waits<'a>, inos: &[Ino], reads: bool) -> LockSet<'a> {
        let share = waits.share;
        let mut lines = [u64::MAX; LOCKS_MAX];
        let mut count = 0;
        for &ino in inos {
            let line = line_of(share, ino);
            if !lines[..count].contains(&line) {
                lines[count] = line;
                count += 1;
            }
        }
        lines[..count].sort_unstable();
        let mut had = false;
        for &line in &lines[..count] {
            had |= owner::acquire_unless_had(waits, line);
        }
        LockSet {
            waits,
            lines,
            count,
            had,
            changing: Cell::new(false),
            adopted: Cell::new(false),
            reads,
            began: Began::now(),
        }
    }

    /// Locks one more inode, unless its line is held: it is out of order, so the call must not wait
    /// for it.
    #[inline]
    #[cfg_attr(feature = "record", track_caller)]
    pub fn try_add(&mut self, ino: Ino) -> bool {
        let line = line_of(self.waits.share, ino);
        if self.lines[..self.count].contains(&line) {
            return true;
        }
        if self.count == LOCKS_MAX || !self.had && !owner::try_acquire(self.waits.share, line) {
            return false;
        }
        let pending = PendingCommit::load(self.waits.share, LockRaw::pending_commit.of(line));
        if pending
            .is_some_and(|pending| pending.is_redo() && !pending.is_complete(self.waits.share))
        {
            // Another lane would have to complete the commit, and this call has a lane already.
            if !self.had {
                owner::release(self.waits.share, line);
            }
            return false;
        }
        self.lines[self.count] = line;
        self.count += 1;
        if self.changing.get() {
            self.bump(line);
        }
        self.adopt_pending(line);
        true
    }

    /// Takes over the pending commit that the line's lock names.
    #[inline]
    #[cfg_attr(feature = "record", track_caller)]
    fn adopt_pending(&self, line: u64) {
        let Some(pending) = PendingCommit::load(self.waits.share, LockRaw::pending_commit.of(line))
        else {
            return;
        };
        self.adopted.set(true);
        if pending.is_complete(self.waits.share) || planted!("bug-pending-not-completed") {
            return;
        }
        let entry = pending.line(self.waits.share);
        if !pending.is_redo() {
            self.waits.share.pm.defer(entry);
        } else if self.count > 1 || !self.waits.share.pm.defer_redo(entry) {
            committed_redo::close_at(self.waits, entry);
        }
    }

    /// Makes the pending commits of these locks durable, for a call without a lane.
    #[inline]
    #[cfg_attr(feature = "record", track_caller)]
    pub fn drain(&self) {
        match self.waits.share.pm.pending_redo() {
            Some(_) => self.drain_in_lane(),
            None => self.waits.share.pm.drain_from_locks(),
        }
    }

    /// Closes a committed redo record, in its lane.
    #[cold]
    #[cfg_attr(feature = "record", track_caller)]
    fn drain_in_lane(&self) {
        let lane = Lane::claim(self.waits);
        self.waits.share.pm.drain_from_locks();
        if may_go(&lane) {
            lane.release();
        }
    }

    /// Makes the words that a transaction has changed durable, and closes it by its commit
    /// checksum. These locks cover all that it logged, and name the pending commit from now on.
    /// Later stores of this call in place touch none of its words.
    #[inline]
    #[cfg_attr(feature = "record", track_caller)]
    pub fn commit(&self, tx: Sealed<'_>) {
        self.leave_pending(tx.commit_by_checksum());
    }

    /// Changes bytes in place by a log of the new ones, which is durable on return; in the rest as
    /// [`LockSet::commit`]. `behind` makes the stores of the change that no log covers.
    ///
    /// # Errors
    /// [`crate::Error::Medium`] of the bytes that are to change; nothing is changed then.
    #[inline]
    #[cfg_attr(feature = "record", track_caller)]
    pub fn redo(&self, tx: Redo<'_>, behind: impl FnOnce()) -> Result<()> {
        // Readers must retry before the record is durable: from then on recovery may apply it.
        self.change();
        let pending = tx.seal()?.apply();
        behind();
        self.leave_pending(pending);
        Ok(())
    }

    #[inline]
    #[cfg_attr(all(feature = "record", not(feature = "planted-bugs")), track_caller)]
    fn leave_pending(&self, pending: Option<PendingCommit>) {
        let Some(pending) = pending else {
            return;
        };
        self.adopted.set(false);
        for &line in &self.lines[..self.count] {
            self.waits
                .share
                .pm
                .runtime()
                .store(LockRaw::pending_commit.of(line), pending.word());
        }
        let entry = pending.line(self.waits.share);
        match pending.is_redo() {
            true => self.waits.share.pm.defer_own_redo(entry),
            false => self.waits.share.pm.defer_own(entry),
        }
    }

    /// Clears the completed pending commits of these locks.
    #[cold]
    #[cfg_attr(feature = "record", track_caller)]
    fn clear_pending(&self) {
        for &line in &self.lines[..self.count] {
            self.waits
                .share
                .pm
                .runtime()
                .store(LockRaw::pending_commit.of(line), 0);
        }
    }

    /// The line of the only inode, or of one of several.
    #[inline]
    pub fn first(&self) -> u64 {
        self.lines[0]
    }

    /// Makes readers of the covered words retry until the locks are released. The call comes before
    /// the first store in place.
    #[inline]
    #[cfg_attr(feature = "record", track_caller)]
    pub fn change(&self) {
        if !self.changing.replace(true) {
            for &line in &self.lines[..self.count] {
                self.bump(line);
            }
        }
    }

    #[inline]
    #[cfg_attr(feature = "record", track_caller)]
    fn bump(&self, line: u64) {
        let runtime = self.waits.share.pm.runtime();
        runtime.store(
            LockRaw::sequence.of(line),
            runtime.load(LockRaw::sequence.of(line)) + 1,
        );
    }
}

impl Drop for LockSet<'_> {
    #[inline]
    fn drop(&mut self) {
        // The locks still name the pending commits that they had, or got from this call.
        let complete = !self.reads && !self.waits.share.pm.leave_pending();
        if self.waits.share.gives_up(self.began) {
            return;
        }
        if self.adopted.get() && complete {
            self.clear_pending();
        }
        for &line in self.lines[..self.count].iter().rev() {
            if self.changing.get() {
                self.bump(line);
            }
            if !self.had || planted!("bug-had-lock-released") {
                owner::release(self.waits.share, line);
            }
        }
    }
}

/// Every lock of the table, so that nobody but this thread changes anything of a file meanwhile.
/// The calls that the thread makes have their locks by this one. It must not wait for anything that
/// another thread does in a call, and must not print: its output may lie in this very pool.
pub struct AllLocks<'a> {
    waits: Waits<'a>,
    began: Began,
}

impl<'a> AllLocks<'a> {
    /// Takes all locks, in table order, however long that takes. The thread has none of them.
    #[cfg_attr(feature = "record", track_caller)]
    pub fn take(waits: impl Into<Waits<'a>>) -> AllLocks<'a> {
        let waits = waits.into();
        if !planted!("bug-tree-cloned-unlocked") {
            for line in lines(waits.share) {
                owner::acquire(waits, line);
            }
            waits.share.note_all_locks(true);
        }
        let began = Began::now();
        AllLocks { waits, began }
    }
}

impl Drop for AllLocks<'_> {
    fn drop(&mut self) {
        let share = self.waits.share;
        if !share.has_all_locks() || share.gives_up(self.began) {
            return;
        }
        share.note_all_locks(false);
        for line in lines(share).rev() {
            owner::release(share, line);
        }
    }
}

fn lines(share: &Share) -> impl DoubleEndedIterator<Item = u64> {
    let first = share.geometry.locks;
    (0..share.geometry.lock_count).map(move |at| first + at * LockRaw::SIZE)
}

/// Makes the pending commit of an inode's line durable. A call that writes a new inode in the place
/// of a freed one needs this, because it does not hold the line. The calls that left that commit
/// had the line before the place became free.
#[cfg_attr(feature = "record", track_caller)]
pub fn drain_place(share: &Share, ino: Ino) {
    let pending = PendingCommit::load(share, LockRaw::pending_commit.of(line_of(share, ino)));
    // No redo record covers an inode.
    if let Some(pending) = pending
        && !pending.is_redo()
        && !pending.is_complete(share)
        && !planted!("bug-place-not-drained")
    {
        share.pm.defer(pending.line(share));
        share.pm.drain_from_locks();
    }
}

/// The lock line of an inode.
#[inline]
pub fn line_of(share: &Share, ino: Ino) -> u64 {
    let key = share.geometry.hash_key[0];
    let hash = (ino ^ key).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    share.geometry.locks + (hash >> 32 & (share.geometry.lock_count - 1)) * LockRaw::SIZE
}

/// Reads without a lock: runs `body` until no writer came between, and returns its result. After a
/// few disturbed tries it takes the lock. `body` may see any state while a writer works, so its
/// errors count only if nothing changed.
#[inline]
pub fn read<'a, T>(
    waits: impl Into<Waits<'a>>,
    ino: Ino,
    body: impl FnMut() -> Result<T>,
) -> Result<T> {
    let waits = waits.into();
    let line = line_of(&waits, ino);
    read_optimistically(waits.share, line, || read_lock(waits, ino), body).expect("a lock ends it")
}

/// Reads as [`read`] does, and gives up after those tries, for a `body` that takes locks itself.
#[inline]
pub fn read_unlocked<'a, T>(
    waits: impl Into<Waits<'a>>,
    ino: Ino,
    body: impl FnMut() -> Result<T>,
) -> Option<Result<T>> {
    let share = waits.into().share;
    read_optimistically(share, line_of(share, ino), || None, body)
}

/// Reads as [`read`] does, and passes the inode's line to `body`.
#[inline(always)]
pub fn read_line<'a, T>(
    waits: impl Into<Waits<'a>>,
    ino: Ino,
    mut body: impl FnMut(u64) -> Result<T>,
) -> Result<T> {
    let waits = waits.into();
    let line = line_of(&waits, ino);
    read_optimistically(waits.share, line, || read_lock(waits, ino), || body(line))
        .expect("a lock ends it")
}

/// One try at a read without a lock, for a reader that repeats it itself.
pub struct Glimpse<'a> {
    share: &'a Share,
    /// The inode's line.
    pub line: u64,
    before: u64,
}

impl<'a> Glimpse<'a> {
    /// Begins a try; `None`: a writer is at work.
    #[inline(always)]
    pub fn begin(share: &'a Share, ino: Ino) -> Option<Glimpse<'a>> {
        let line = line_of(share, ino);
        let before = share.pm.load(LockRaw::sequence.of(line));
        (before & 1 == 0).then_some(Glimpse {
            share,
            line,
            before,
        })
    }

    /// Returns whether the words read since then are valid: no writer came, and the medium has not
    /// failed. Little code may follow a copy here (see [`pmshare::counters::CountedRead`]).
    #[inline(always)]
    pub fn is_true(&self) -> bool {
        self.share.pm.acquire();
        let now = self.share.pm.load(LockRaw::sequence.of(self.line));
        now == self.before && self.share.pm.intact().is_ok()
    }
}

/// Makes the tries, and then a last one under the lock that `lock` returns, if any. `body` is
/// called in one place, so that a whole read can be one function.
#[inline(always)]
fn read_optimistically<'a, T>(
    share: &'a Share,
    line: u64,
    lock: impl Fn() -> Option<LockSet<'a>>,
    mut body: impl FnMut() -> Result<T>,
) -> Option<Result<T>> {
    let mut locked = None;
    for tried in 0..=READ_TRIES {
        if tried == READ_TRIES {
            locked = Some(lock()?);
        }
        let before = share.pm.load(LockRaw::sequence.of(line));
        if before & 1 == 1 && locked.is_none() {
            std::hint::spin_loop();
            continue;
        }
        // Result and error are separated here: errors are large, and moving one costs time even
        // where there is none.
        match body() {
            Ok(answer) => {
                share.pm.acquire();
                if share.pm.load(LockRaw::sequence.of(line)) == before || locked.is_some() {
                    return Some(share.pm.intact().map(|()| answer).map_err(Error::from));
                }
            }
            Err(error) => {
                share.pm.acquire();
                if share.pm.load(LockRaw::sequence.of(line)) == before || locked.is_some() {
                    return Some(Err(share.pm.intact().map_or_else(Error::from, |()| error)));
                }
            }
        }
    }
    None
}

#[cold]
#[inline(never)]
fn read_lock(waits: Waits<'_>, ino: Ino) -> Option<LockSet<'_>> {
    Some(LockSet::acquire(waits, &[ino], true))
}
