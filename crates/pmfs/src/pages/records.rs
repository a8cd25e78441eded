//! The holders of a file's pages: a table of records in the runtime area
//! (docs/adr/0008-pages-are-taken-back.md, docs/adr/0010-pins.md).
//!
//! A record says that a slot's kernel may hold pages of an inode, or that its process has mapped
//! the inode's own blocks (a pin). The rules of what may stand beside what, and how pages are got
//! back, are in [`crate::mapping`]; here is how records are found, claimed and freed, and the two
//! questions that every call on content asks. Records stand from their line's home on; the line's
//! word `copies` says how far to look, and is 0 where there are none.

use crate::pool::Pool;
use crate::types::{Ino, PagesInTheWay};
use pm_journal::error::{Error, Result};
use pm_journal::locks::{LockSet, line_of};
use pm_store::clock::now_ns;
use pmfs_format::runtime::{
    KERNEL_COPY_FREE, KERNEL_COPY_HELD, KERNEL_COPY_MAYBE_DIRTY, KERNEL_COPY_PIN_APART,
    KERNEL_COPY_PIN_READ, KERNEL_COPY_PIN_WRITE, KERNEL_COPY_READ, KERNEL_COPY_SLOT_SHIFT,
    KERNEL_COPY_TAKEN, KERNEL_COPY_WANTED,
};
use pmfs_format::{KernelCopyRaw, LockRaw};

const SLOT_MASK: u64 = 0xfff;

/// Pages of an inode that a mount's kernel may hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KernelCopy {
    /// The mount's slot.
    pub slot: u64,
    /// The inode.
    pub ino: Ino,
    /// Says whether programs may store to them.
    pub may_be_dirty: bool,
    /// None of a kernel's, but the pool's own blocks, mapped by the slot's process.
    pub is_pin: bool,
    /// Says whether a process waits for them.
    pub is_wanted: bool,
}

/// A record in use, as it was read.
#[derive(Clone, Copy)]
pub(crate) struct Record {
    pub off: u64,
    pub state: u64,
    pub ino: Ino,
    pub kind: u64,
}

impl Record {
    pub fn read(pool: &Pool, off: u64) -> Record {
        let [state, ino, kind, _] = pool.pm.read(off);
        Record {
            off,
            state,
            ino,
            kind,
        }
    }

    pub fn slot(&self) -> Option<u64> {
        (self.state >> KERNEL_COPY_SLOT_SHIFT & SLOT_MASK).checked_sub(1)
    }

    pub fn phase(&self) -> u64 {
        self.state & 0xffff_ffff
    }

    fn counts(&self) -> bool {
        matches!(self.phase(), KERNEL_COPY_HELD | KERNEL_COPY_WANTED)
    }

    /// Returns whether it is in the way of a call of another slot that changes the content, or only
    /// looks at it.
    fn conflicts(&self, change: bool) -> bool {
        !self.is_pin() && (change || self.kind != KERNEL_COPY_READ)
    }

    /// Returns whether the pool's own blocks are mapped.
    pub fn is_pin(&self) -> bool {
        (KERNEL_COPY_PIN_READ..=KERNEL_COPY_PIN_APART).contains(&self.kind)
    }
}

/// The state word of a slot's record.
pub(crate) fn state(phase: u64, slot: u64) -> u64 {
    phase | (slot + 1) << KERNEL_COPY_SLOT_SHIFT
}
impl Pool {
    /// Returns where the record stands that is `probe` after a line's first.
    fn copy_at(&self, line: u64, probe: u64) -> u64 {
        let home = (line - self.geometry.locks) / LockRaw::SIZE;
        let index = (home + probe) & (self.geometry.kernel_copy_count() - 1);
        self.geometry.kernel_copy(index)
    }

    /// The records in use that may be of an inode of the line.
    fn copies_near(&self, line: u64) -> impl Iterator<Item = Record> + '_ {
        let reach = self.pm.load(LockRaw::copies.of(line));
        (0..reach.min(self.geometry.kernel_copy_count()))
            .map(move |probe| Record::read(self, self.copy_at(line, probe)))
            .filter(Record::counts)
    }

    pub(crate) fn copies_of(&self, line: u64, ino: Ino) -> impl Iterator<Item = Record> + '_ {
        self.copies_near(line).filter(move |copy| copy.ino == ino)
    }

    /// The records of such pages, if there are any.
    pub(crate) fn in_the_way(
        &self,
        line: u64,
        pages: PagesInTheWay,
    ) -> impl Iterator<Item = Record> + '_ {
        let me = self.holder().slot;
        self.copies_of(line, pages.ino).filter(move |copy| {
            (pages.own || copy.slot() != Some(me)) && copy.conflicts(pages.change)
        })
    }

    /// Before the content of an inode is looked at: without its lock, inside its sequence.
    ///
    /// # Errors
    /// [`Error::PagesElsewhere`].
    #[inline]
    pub(crate) fn pages_are_clean(&self, line: u64, ino: Ino) -> Result<()> {
        if self.pm.load(LockRaw::copies.of(line)) == 0 || planted!("bug-pages-read-past") {
            return Ok(());
        }
        self.refuse_over_pages(line, ino, false)
    }

    /// Before the content of an inode is changed, under its lock.
    ///
    /// # Errors
    /// [`Error::PagesElsewhere`].
    #[inline]
    pub(crate) fn pages_are_ours(&self, line: u64, ino: Ino) -> Result<()> {
        if self.pm.load(LockRaw::copies.of(line)) == 0 || planted!("bug-pages-written-past") {
            return Ok(());
        }
        self.refuse_over_pages(line, ino, true)
    }

    #[cold]
    pub(crate) fn refuse_over_pages(&self, line: u64, ino: Ino, change: bool) -> Result<()> {
        if change {
            self.forget_line_if_empty(line);
        }
        let pages = PagesInTheWay {
            ino,
            change,
            own: false,
        };
        match self.in_the_way(line, pages).next() {
            Some(_) => Err(Error::pages(pages)),
            None => Ok(()),
        }
    }

    /// Under the line's lock: ends the search for records of its inodes, if there are none.
    #[cold]
    fn forget_line_if_empty(&self, line: u64) {
        let mut near = self.copies_near(line);
        let forgets = planted!("bug-pages-forgotten-by-all");
        if forgets || !near.any(|copy| line_of(self, copy.ino) == line) {
            self.pm.runtime().store(LockRaw::copies.of(line), 0);
        }
    }

    /// Under the lock of the record's inode.
    pub(crate) fn free_copy(&self, copy: &Record) {
        let runtime = self.pm.runtime();
        runtime.store(copy.off, KERNEL_COPY_FREE);
        runtime.wake_all(copy.off);
        self.forget_line_if_empty(line_of(self, copy.ino));
    }

    /// Returns this slot's record of the inode.
    pub(crate) fn own_copy(&self, line: u64, ino: Ino) -> Option<Record> {
        let me = self.holder().slot;
        self.copies_of(line, ino)
            .find(|copy| copy.slot() == Some(me))
    }

    /// Claims a record like [`Pool::claim_copy`], for a slot; returns where it stands.
    pub(crate) fn claim_copy_for(&self, me: u64, line: u64, ino: Ino, kind: u64) -> Result<u64> {
        self.traces.copies.leave();
        let runtime = self.pm.runtime();
        for probe in 0..self.geometry.kernel_copy_count() {
            let off = self.copy_at(line, probe);
            let free = runtime.load(off) == KERNEL_COPY_FREE;
            let taken = state(KERNEL_COPY_TAKEN, me);
            if !free || runtime.cas(off, KERNEL_COPY_FREE, taken).is_err() {
                continue;
            }
            runtime.write(KernelCopyRaw::ino.of(off), &[ino, kind, 1, now_ns(), 0, 0]);
            // Before the record counts, so that one that does is always in reach.
            let reach = runtime.load(LockRaw::copies.of(line)).max(probe + 1);
            runtime.store(LockRaw::copies.of(line), reach);
            runtime.store(off, state(KERNEL_COPY_HELD, me));
            return Ok(off);
        }
        Err(Error::TooManyOpen)
    }

    /// Frees a slot's records: the pages of its mount are gone, or conflict with no call.
    pub(crate) fn free_kernel_copies_of(&self, slot: u64) {
        for index in 0..self.geometry.kernel_copy_count() {
            let off = self.geometry.kernel_copy(index);
            let found = Record::read(self, off);
            if found.phase() == KERNEL_COPY_FREE || found.slot() != Some(slot) {
                continue;
            }
            if found.phase() == KERNEL_COPY_TAKEN {
                // The number may be that of an earlier record.
                self.pm.runtime().store(off, KERNEL_COPY_FREE);
                continue;
            }
            let _lock = LockSet::take(self, &[found.ino]);
            self.free_copy(&found);
        }
    }

    pub(crate) fn copies_of_slot(&self, slot: u64) -> impl Iterator<Item = Record> + '_ {
        (0..self.geometry.kernel_copy_count())
            .map(|index| Record::read(self, self.geometry.kernel_copy(index)))
            .filter(move |found| found.counts() && found.slot() == Some(slot))
    }

    /// Returns all that kernels may hold, and what is pinned.
    pub fn kernel_copies(&self) -> impl Iterator<Item = KernelCopy> + '_ {
        (0..self.geometry.kernel_copy_count())
            .map(|index| Record::read(self, self.geometry.kernel_copy(index)))
            .filter(|found| found.phase() != KERNEL_COPY_FREE)
            .map(|found| KernelCopy {
                slot: found.slot().unwrap_or(u64::MAX),
                ino: found.ino,
                may_be_dirty: matches!(found.kind, KERNEL_COPY_MAYBE_DIRTY | KERNEL_COPY_PIN_WRITE),
                is_pin: found.is_pin(),
                is_wanted: found.phase() == KERNEL_COPY_WANTED,
            })
    }
}

const _: () = assert!(KernelCopyRaw::SIZE == 64);
