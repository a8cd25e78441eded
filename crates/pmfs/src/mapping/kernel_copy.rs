//! Pages of files that the kernels of mounts hold, and how others get them back
//! (docs/adr/0008-pages-are-taken-back.md).
//!
//! A program below a mount that maps a file works on pages of that mount's kernel; nothing that others store in the pool reaches
//! them, and what the program stores stays there until the kernel writes it back. So an inode's pages belong to one mount at a
//! time, or, as long as nobody can store to them, to several; and whoever touches the content first takes them back.
//!
//! - A record says that a slot's kernel may hold pages of an inode: clean ones (READ), or ones that may be stored to
//!   (MAYBE_DIRTY), of which there is then no other record. It is written before the pages are served, so whoever holds the
//!   inode's lock and finds none knows that no kernel has any.
//! - Records change under the lock of their inode's line, but for the claim of a free one, which is a CAS with the owner. They
//!   stand from their line's home on; the line's word `copies` says how far to look, and is 0 where there are none. That word is
//!   all that a call looks at that meets no pages.
//! - A call that meets pages of another slot which conflict with it (of MAYBE_DIRTY ones every call on the content, of READ ones
//!   those that change it) has changed nothing yet. It ends with [`Error::PagesElsewhere`], and begins anew when they are back:
//!   [`crate::Fs::wait_for_pages`] marks the record as WANTED, wakes its mount, and waits for the record to be freed, holding no lock.
//! - The mount has its kernel drop the pages, which writes back dirty ones by ordinary writes; then it frees the record, unless
//!   pages were served meanwhile, which the record's generation tells.
//!
//! The data of a page is read after the mark, under the sequence, and not under the lock: no other process can change the
//! content from the mark on until the record is freed, and that waits, in the mount's kernel, for the very page to be filled,
//! which is locked from before the READ was sent until it is answered.
//!
//! **No wait goes round.** A mount that waits may have a page locked: one that its READ waits for. It then has no record of
//! that inode, or a sufficient one and does not wait. So the only upgrade, from READ to MAYBE_DIRTY, is made when a file is
//! opened for writing, where no page is locked; and a slot that has such a handle only ever takes MAYBE_DIRTY records.

use crate::error::{Error, Result};
use crate::inode::Inode;
use crate::pool::Pool;
use crate::recovery;
use crate::share::locks::{LockSet, line_of};
use crate::share::owner::{stalled, wait_times};
use crate::share::patrol::now_ns;
use crate::share::slot::SLOT_ASKED;
use crate::types::{Ino, PagesInTheWay};
use pmfs_format::runtime::{
    KERNEL_COPY_FREE, KERNEL_COPY_HELD, KERNEL_COPY_MAYBE_DIRTY, KERNEL_COPY_PIN_APART,
    KERNEL_COPY_PIN_READ, KERNEL_COPY_PIN_WRITE, KERNEL_COPY_READ, KERNEL_COPY_SLOT_SHIFT,
    KERNEL_COPY_TAKEN, KERNEL_COPY_WANTED,
};
use pmfs_format::{KernelCopyRaw, LockRaw};
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Of [`LockRaw`].
pub(crate) const COPIES: u64 = 16;
const SEQUENCE: u64 = 8;

/// Of [`KernelCopyRaw`].
const INO: u64 = 8;
pub(crate) const KIND: u64 = 16;
const GENERATION: u64 = 24;

const SLOT_MASK: u64 = 0xfff;

/// Pages of an inode that a mount's kernel may hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KernelCopy {
    /// The mount's slot.
    pub slot: u64,
    /// The inode.
    pub ino: Ino,
    /// Whether programs may store to them.
    pub may_be_dirty: bool,
    /// None of a kernel's, but the pool's own blocks, mapped by the slot's process.
    pub is_pin: bool,
    /// Whether somebody waits for them.
    pub is_wanted: bool,
}

/// Pages that this mount is asked to give back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WantedPages {
    /// Of this inode.
    pub ino: Ino,
    /// Reads of pages that were answered.
    pub generation: u64,
    /// How long the mount has had them.
    pub age: Duration,
}

/// What a mount knows of its own records.
#[derive(Debug, Default)]
pub(crate) struct OwnCopies {
    /// Where they stand.
    records: Mutex<BTreeSet<u64>>,
    /// Calls that meet others' pages answer so, and don't wait.
    tells: AtomicBool,
}

impl OwnCopies {
    fn records(&self) -> MutexGuard<'_, BTreeSet<u64>> {
        self.records.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A record in use, as it was read.
#[derive(Clone, Copy)]
pub(crate) struct Record {
    pub off: u64,
    state: u64,
    pub ino: Ino,
    pub kind: u64,
}

impl Record {
    fn read(pool: &Pool, off: u64) -> Record {
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

    fn phase(&self) -> u64 {
        self.state & 0xffff_ffff
    }

    fn counts(&self) -> bool {
        matches!(self.phase(), KERNEL_COPY_HELD | KERNEL_COPY_WANTED)
    }

    /// Whether it is in the way of a call of another slot that changes the content, or only looks at it.
    fn conflicts(&self, change: bool) -> bool {
        !self.is_pin() && (change || self.kind != KERNEL_COPY_READ)
    }

    /// Whether the pool's own blocks are mapped.
    pub fn is_pin(&self) -> bool {
        (KERNEL_COPY_PIN_READ..=KERNEL_COPY_PIN_APART).contains(&self.kind)
    }
}

fn state(phase: u64, slot: u64) -> u64 {
    phase | (slot + 1) << KERNEL_COPY_SLOT_SHIFT
}

impl Pool {
    /// Where the record stands that is `probe` after a line's first.
    fn copy_at(&self, line: u64, probe: u64) -> u64 {
        let home = (line - self.geometry.locks) / LockRaw::SIZE;
        let index = (home + probe) & (self.geometry.kernel_copy_count() - 1);
        self.geometry.kernel_copy(index)
    }

    /// The records in use that may be of an inode of the line.
    fn copies_near(&self, line: u64) -> impl Iterator<Item = Record> + '_ {
        let reach = self.pm.load(line + COPIES);
        (0..reach.min(self.geometry.kernel_copy_count()))
            .map(move |probe| Record::read(self, self.copy_at(line, probe)))
            .filter(Record::counts)
    }

    pub(crate) fn copies_of(&self, line: u64, ino: Ino) -> impl Iterator<Item = Record> + '_ {
        self.copies_near(line).filter(move |copy| copy.ino == ino)
    }

    /// The records of such pages, if there are any.
    fn in_the_way(&self, line: u64, pages: PagesInTheWay) -> impl Iterator<Item = Record> + '_ {
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
        if self.pm.load(line + COPIES) == 0 || planted!("bug-pages-read-past") {
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
        if self.pm.load(line + COPIES) == 0 || planted!("bug-pages-written-past") {
            return Ok(());
        }
        self.refuse_over_pages(line, ino, true)
    }

    #[cold]
    fn refuse_over_pages(&self, line: u64, ino: Ino, change: bool) -> Result<()> {
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

    /// Under the line's lock: from now on nobody has to look for records, if there are none of its inodes.
    #[cold]
    fn forget_line_if_empty(&self, line: u64) {
        let mut near = self.copies_near(line);
        let forgets = planted!("bug-pages-forgotten-by-all");
        if forgets || !near.any(|copy| line_of(self, copy.ino) == line) {
            self.pm.runtime().store(line + COPIES, 0);
        }
    }

    /// Under the lock of the record's inode.
    pub(crate) fn free_copy(&self, copy: &Record) {
        // Others clean up after dead mounts; a child that was forked meanwhile must not find the lock taken.
        if self.own_copies.tells.load(Ordering::Relaxed) {
            self.own_copies.records().remove(&copy.off);
        }
        let runtime = self.pm.runtime();
        runtime.store(copy.off, KERNEL_COPY_FREE);
        runtime.wake_all(copy.off);
        self.forget_line_if_empty(line_of(self, copy.ino));
    }

    /// This slot's record of the inode.
    pub(crate) fn own_copy(&self, line: u64, ino: Ino) -> Option<Record> {
        let me = self.holder().slot;
        self.copies_of(line, ino)
            .find(|copy| copy.slot() == Some(me))
    }

    /// Under the inode's lock: this slot has pages of that kind from now on.
    fn claim_copy(&self, line: u64, ino: Ino, kind: u64) -> Result<()> {
        let off = self.claim_copy_for(self.holder().slot, line, ino, kind)?;
        self.own_copies.records().insert(off);
        Ok(())
    }

    /// As [`Pool::claim_copy`], for a slot; answers where the record stands.
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
            runtime.write(off + INO, &[ino, kind, 1, now_ns(), 0, 0]);
            // Before the record counts, so that one that does is always in reach.
            let reach = runtime.load(line + COPIES).max(probe + 1);
            runtime.store(line + COPIES, reach);
            runtime.store(off, state(KERNEL_COPY_HELD, me));
            return Ok(off);
        }
        Err(Error::TooManyOpen)
    }

    /// See [`crate::Fs::note_kernel_read`].
    pub(crate) fn note_kernel_read(&self, ino: Ino, may_be_dirty: &dyn Fn() -> bool) -> Result<()> {
        self.alive()?;
        self.inode_off(ino)?;
        let _lock = LockSet::take(self, &[ino]);
        Inode::live(self, ino)?.require_file()?;
        let line = line_of(self, ino);
        let own = self.own_copy(line, ino);
        let dirty = may_be_dirty();
        let kind = match dirty {
            true => KERNEL_COPY_MAYBE_DIRTY,
            false => KERNEL_COPY_READ,
        };
        self.refuse_over_pins(line, ino, dirty)?;
        let Some(own) = own else {
            self.refuse_over_pages(line, ino, dirty)?;
            return self.claim_copy(line, ino, kind);
        };
        let runtime = self.pm.runtime();
        if own.kind < kind {
            // Not met: whoever began to write has strengthened it.
            self.refuse_over_pages(line, ino, dirty)?;
            runtime.store(own.off + KIND, kind);
        }
        let served = runtime.load(own.off + GENERATION);
        if !planted!("bug-pages-served-uncounted") {
            runtime.store(own.off + GENERATION, served + 1);
        }
        Ok(())
    }

    /// See [`crate::Fs::begin_kernel_writing`].
    pub(crate) fn begin_kernel_writing(&self, ino: Ino, begin: &dyn Fn()) -> Result<()> {
        self.alive()?;
        self.inode_off(ino)?;
        let _lock = LockSet::take(self, &[ino]);
        let line = line_of(self, ino);
        if let Some(own) = self.own_copy(line, ino) {
            self.refuse_over_pins(line, ino, true)?;
            if !planted!("bug-pages-strengthened-unasked") {
                self.refuse_over_pages(line, ino, true)?;
            }
            let runtime = self.pm.runtime();
            if !planted!("bug-pages-kind-kept") {
                runtime.store(own.off + KIND, KERNEL_COPY_MAYBE_DIRTY);
            }
        }
        begin();
        Ok(())
    }

    /// See [`crate::Fs::forget_kernel_copies`].
    pub(crate) fn forget_kernel_copies(&self, ino: Ino, unless: &dyn Fn() -> bool) -> Result<()> {
        self.alive()?;
        self.inode_off(ino)?;
        let line = line_of(self, ino);
        if self.pm.load(line + COPIES) == 0 {
            return Ok(());
        }
        let _lock = LockSet::take(self, &[ino]);
        match self.own_copy(line, ino) {
            Some(own) if !unless() => self.free_copy(&own),
            _ => {}
        }
        Ok(())
    }

    /// Under the lock: asks all who have pages in the way, `own` ones too; answers who is to be waited for.
    fn ask_for_pages(&self, pages: PagesInTheWay) -> Option<Record> {
        let _lock = LockSet::take(self, &[pages.ino]);
        let line = line_of(self, pages.ino);
        let runtime = self.pm.runtime();
        let mut first = None;
        for copy in self.in_the_way(line, pages) {
            let Some(slot) = copy.slot() else { continue };
            let wanted = state(KERNEL_COPY_WANTED, slot);
            runtime.store(copy.off, wanted);
            self.wake_revoker(slot);
            first.get_or_insert(Record {
                state: wanted,
                ..copy
            });
        }
        first
    }

    pub(crate) fn want_own_pages(&self, ino: Ino) -> Result<()> {
        self.alive()?;
        let _lock = LockSet::take(self, &[ino]);
        if let Some(own) = self.own_copy(line_of(self, ino), ino) {
            let me = self.holder().slot;
            let runtime = self.pm.runtime();
            runtime.store(own.off, state(KERNEL_COPY_WANTED, me));
            self.wake_revoker(me);
        }
        Ok(())
    }

    /// Somebody looks at a slot's records: it is asked for one, or for its lease, or is to end.
    pub(crate) fn wake_revoker(&self, slot: u64) {
        let asked = self.geometry.slot(slot) + SLOT_ASKED;
        let runtime = self.pm.runtime();
        let mut count = runtime.load(asked);
        while let Err(found) = runtime.cas(asked, count, count.wrapping_add(1)) {
            count = found;
        }
        runtime.wake_all(asked);
    }

    /// Whether the slot is a mount's.
    pub(crate) fn is_mount(&self, slot: u64) -> bool {
        slot < self.geometry.slot_count && self.pm.load(self.geometry.slot(slot) + SLOT_ASKED) != 0
    }

    /// See [`crate::Fs::wait_for_pages`].
    pub(crate) fn wait_for_pages(
        &self,
        pages: PagesInTheWay,
        gives_up: &dyn Fn() -> bool,
    ) -> Result<()> {
        self.alive()?;
        let Some(asked) = self.ask_for_pages(pages) else {
            return Ok(());
        };
        let (began, mut sleep) = (Instant::now(), wait_times::FIRST);
        let mut moved = (self.progress_of(&asked), Instant::now());
        let mut told = false;
        let is_there = || {
            let now = Record::read(self, asked.off);
            (now.state, now.ino) == (asked.state, asked.ino)
        };
        while is_there() && !gives_up() {
            let runtime = self.pm.runtime();
            runtime.wait(asked.off, asked.state as u32, sleep);
            sleep = (sleep * 2).min(wait_times::MAX);
            let Some(slot) = asked.slot().filter(|_| is_there()) else {
                break;
            };
            if self.slot_dead(slot) {
                let _ = recovery::recover_dead(self);
                continue;
            }
            let progress = self.progress_of(&asked);
            if progress != moved.0 {
                moved = (progress, Instant::now());
            }
            if !told && moved.1.elapsed() > wait_times::STALLED {
                told = true;
                stalled::tell_of_pages(self, slot);
            }
        }
        self.count_wait(began.elapsed());
        self.alive()
    }

    /// Changes while its mount writes pages back or serves some.
    fn progress_of(&self, copy: &Record) -> (u64, u64) {
        let line = line_of(self, copy.ino);
        let load = |off| self.pm.load(off);
        (load(line + SEQUENCE), load(copy.off + GENERATION))
    }

    /// Frees what a slot has: its mount's pages are gone, or no concern of anybody's.
    pub(crate) fn free_kernel_copies_of(&self, slot: u64) {
        for index in 0..self.geometry.kernel_copy_count() {
            let off = self.geometry.kernel_copy(index);
            let found = Record::read(self, off);
            if found.phase() == KERNEL_COPY_FREE || found.slot() != Some(slot) {
                continue;
            }
            if found.phase() == KERNEL_COPY_TAKEN && planted!("bug-cut-pages-record-stays") {
                continue;
            }
            if found.phase() == KERNEL_COPY_TAKEN {
                // Its number may be that of an earlier record.
                self.pm.runtime().store(off, KERNEL_COPY_FREE);
                continue;
            }
            let _lock = LockSet::take(self, &[found.ino]);
            self.free_copy(&found);
        }
    }

    /// The records of a slot.
    pub(crate) fn copies_of_slot(&self, slot: u64) -> impl Iterator<Item = Record> + '_ {
        (0..self.geometry.kernel_copy_count())
            .map(|index| Record::read(self, self.geometry.kernel_copy(index)))
            .filter(move |found| found.counts() && found.slot() == Some(slot))
    }

    /// Whatever kernels may hold, and what is pinned.
    pub(crate) fn kernel_copies(&self) -> impl Iterator<Item = KernelCopy> + '_ {
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

    pub(crate) fn wanted_pages(&self) -> Vec<WantedPages> {
        let records: Vec<u64> = self.own_copies.records().iter().copied().collect();
        let wanted = |&off: &u64| {
            let [state, ino, _, generation, since_ns] = self.pm.read(off);
            (state & 0xffff_ffff == KERNEL_COPY_WANTED).then(|| WantedPages {
                ino,
                generation,
                age: Duration::from_nanos(now_ns().saturating_sub(since_ns)),
            })
        };
        records.iter().filter_map(wanted).collect()
    }

    pub(crate) fn give_pages_back(&self, ino: Ino, generation: u64) -> Result<bool> {
        self.alive()?;
        let _lock = LockSet::take(self, &[ino]);
        let Some(own) = self.own_copy(line_of(self, ino), ino) else {
            return Ok(true);
        };
        let unserved = self.pm.load(own.off + GENERATION) == generation;
        if unserved {
            self.free_copy(&own);
        }
        Ok(unserved)
    }

    /// See [`crate::Fs::tell_of_pages`].
    pub(crate) fn tell_of_pages(&self) {
        self.own_copies.tells.store(true, Ordering::Relaxed);
        // From now on the slot counts as a mount's.
        self.wake_revoker(self.holder().slot);
    }

    /// See [`crate::Fs::own_pages_are_gone`].
    pub(crate) fn own_pages_are_gone(&self, ino: Ino) -> Result<()> {
        self.alive()?;
        self.inode_off(ino)?;
        match self.own_copy(line_of(self, ino), ino) {
            Some(_) => Err(Error::pages(PagesInTheWay {
                ino,
                change: true,
                own: true,
            })),
            None => Ok(()),
        }
    }

    /// See [`crate::Fs::stores_are_written`].
    pub(crate) fn stores_are_written(&self, ino: Ino) -> Result<()> {
        self.alive()?;
        self.inode_off(ino)?;
        let line = line_of(self, ino);
        let pages = PagesInTheWay {
            ino,
            change: false,
            own: true,
        };
        let is_marked = self.pm.load(line + COPIES) != 0;
        match is_marked && self.in_the_way(line, pages).next().is_some() {
            true => Err(Error::pages(pages)),
            false => Ok(()),
        }
    }

    /// See [`crate::Fs::asked_for_pages`].
    pub(crate) fn asked_for_pages(&self) -> Result<u64> {
        self.alive()?;
        let asked = self.geometry.slot(self.holder().slot) + SLOT_ASKED;
        Ok(self.pm.load(asked))
    }

    /// See [`crate::Fs::wait_to_be_asked`].
    pub(crate) fn wait_to_be_asked(&self, seen: u64, timeout: Duration) -> Result<()> {
        self.alive()?;
        let asked = self.geometry.slot(self.holder().slot) + SLOT_ASKED;
        self.pm.runtime().wait(asked, seen as u32, timeout);
        Ok(())
    }

    /// See [`crate::Fs::end_wait_to_be_asked`].
    pub(crate) fn end_wait_to_be_asked(&self) {
        if self.alive().is_ok() {
            self.wake_revoker(self.holder().slot);
        }
    }

    /// After a call that met pages of another mount, and so has done nothing: waits for them, if that is this process's way, and
    /// then it is to be tried again.
    #[cold]
    pub(crate) fn pages_are_back(&self, error: &Error) -> bool {
        let Error::PagesElsewhere(pages) = error else {
            return false;
        };
        if self.own_copies.tells.load(Ordering::Relaxed) {
            return false;
        }
        // An error will be the next try's, too.
        let _ = self.wait_for_pages(**pages, &|| false);
        true
    }
}

const _: () = assert!(KernelCopyRaw::SIZE == 64);
