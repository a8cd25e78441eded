//! Pages of files that the kernels of mounts hold, and how other processes get them back
//! (docs/adr/0008-pages-are-taken-back.md).
//!
//! A program below a mount that maps a file works on pages of that mount's kernel; a store of
//! another process to the pool does not reach them, and a store of the program stays in them until
//! the kernel writes it back. So an inode's pages belong to one mount at a time, or, as long as no
//! program can store to them, to several; a call that touches the content first takes them back.
//!
//! - A record says that a slot's kernel may hold pages of an inode: clean ones (READ), or ones that
//!   may be stored to (MAYBE_DIRTY), of which there is then no other record. The record is written
//!   before the pages are served, so a holder of the inode's lock that finds none knows that no
//!   kernel has any.
//! - Records change under the lock of their inode's line, but for the claim of a free one, which is
//!   a CAS with the owner. Records stand from their line's home on; the line's word `copies` says
//!   how far to look, and is 0 where there are none. A call that meets no pages looks at that word
//!   alone.
//! - A call that meets pages of another slot which conflict with it (of MAYBE_DIRTY ones every call
//!   on the content, of READ ones those that change it) has changed nothing yet. The call ends with
//!   [`Error::PagesElsewhere`], and begins anew when they are back: [`crate::Fs::wait_for_pages`]
//!   marks the record as WANTED, wakes its mount, and waits for the record to be freed, holding no
//!   lock.
//! - The mount has its kernel drop the pages, which writes back dirty ones by ordinary writes; then
//!   it frees the record, unless pages were served meanwhile, which the record's generation tells.
//!
//! The data of a page is read after the mark, under the sequence, and not under the lock: no other
//! process can change the content from the mark on until the record is freed, and that waits, in
//! the mount's kernel, for the very page to be filled, which is locked from before the READ was
//! sent until it is answered.
//!
//! **No wait goes round.** A mount that waits may have a page locked: one that its READ waits for.
//! Such a mount has no record of that inode, or a sufficient one and does not wait. So the only
//! upgrade, from READ to MAYBE_DIRTY, is made when a file is opened for writing, where no page is
//! locked; and a slot that has such a handle only ever takes MAYBE_DIRTY records.

use crate::inode::Inode;
use crate::pages::records::{Record, state};
use crate::pool::Pool;
use crate::types::{Ino, PagesInTheWay};
use pm_journal::error::{Error, Result};
use pm_journal::locks::{LockSet, line_of};
use pm_store::clock::now_ns;
use pmfs_format::runtime::{KERNEL_COPY_MAYBE_DIRTY, KERNEL_COPY_READ, KERNEL_COPY_WANTED};
use pmfs_format::{KernelCopyRaw, LockRaw, SlotRaw};
use pmshare::owner::{stalled, wait_times};
use pmshare::rescue;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Pages that this mount is asked to give back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WantedPages {
    /// The inode that they are of.
    pub ino: Ino,
    /// Reads of pages that were answered.
    pub generation: u64,
    /// The time that the mount has had them.
    pub age: Duration,
}

/// A mount's knowledge of its own records.
#[derive(Debug, Default)]
pub(crate) struct OwnCopies {
    /// The places where they stand.
    records: Mutex<BTreeSet<u64>>,
    /// Calls that meet others' pages answer so, and don't wait.
    tells: AtomicBool,
}

impl OwnCopies {
    fn records(&self) -> MutexGuard<'_, BTreeSet<u64>> {
        self.records.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Under the lock of its inode, before it is freed: then it may be another's.
    fn forget(&self, copy: &Record) {
        self.records().remove(&copy.off);
    }
}

impl Pool {
    /// Under the inode's lock: this slot has pages of that kind from now on.
    fn claim_copy(&self, own_copies: &OwnCopies, line: u64, ino: Ino, kind: u64) -> Result<()> {
        let off = self.claim_copy_for(self.holder().slot, line, ino, kind)?;
        own_copies.records().insert(off);
        Ok(())
    }

    /// See [`crate::Fs::note_kernel_read`].
    pub(crate) fn note_kernel_read(
        &self,
        own_copies: &OwnCopies,
        ino: Ino,
        may_be_dirty: &dyn Fn() -> bool,
    ) -> Result<()> {
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
            return self.claim_copy(own_copies, line, ino, kind);
        };
        let runtime = self.pm.runtime();
        if own.kind < kind {
            // Not reached: the open for writing has strengthened the record.
            self.refuse_over_pages(line, ino, dirty)?;
            runtime.store(KernelCopyRaw::kind.of(own.off), kind);
        }
        let served = runtime.load(KernelCopyRaw::generation.of(own.off));
        runtime.store(KernelCopyRaw::generation.of(own.off), served + 1);
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
            runtime.store(KernelCopyRaw::kind.of(own.off), KERNEL_COPY_MAYBE_DIRTY);
        }
        begin();
        Ok(())
    }

    /// See [`crate::Fs::forget_kernel_copies`].
    pub(crate) fn forget_kernel_copies(
        &self,
        own_copies: &OwnCopies,
        ino: Ino,
        unless: &dyn Fn() -> bool,
    ) -> Result<()> {
        self.alive()?;
        self.inode_off(ino)?;
        let line = line_of(self, ino);
        if self.pm.load(LockRaw::copies.of(line)) == 0 {
            return Ok(());
        }
        let _lock = LockSet::take(self, &[ino]);
        match self.own_copy(line, ino) {
            Some(own) if !unless() => {
                own_copies.forget(&own);
                self.free_copy(&own);
            }
            _ => {}
        }
        Ok(())
    }

    /// Under the lock: asks every slot that has pages in the way, with `own` this one too; returns
    /// the record to wait for.
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
                let _ = rescue::recover_dead(self);
                continue;
            }
            let progress = self.progress_of(&asked);
            if progress != moved.0 {
                moved = (progress, Instant::now());
            }
            if !told && moved.1.elapsed() > wait_times::STALLED {
                told = true;
                stalled::tell_if_stopped(
                    self,
                    slot,
                    "which has mapped files and does not give their pages back",
                );
            }
        }
        self.count_wait(began.elapsed());
        Ok(self.alive()?)
    }

    /// Changes while its mount writes pages back or serves some.
    fn progress_of(&self, copy: &Record) -> (u64, u64) {
        let line = line_of(self, copy.ino);
        let load = |off| self.pm.load(off);
        (
            load(LockRaw::sequence.of(line)),
            load(KernelCopyRaw::generation.of(copy.off)),
        )
    }

    pub(crate) fn wanted_pages(&self, own_copies: &OwnCopies) -> Vec<WantedPages> {
        let records: Vec<u64> = own_copies.records().iter().copied().collect();
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

    pub(crate) fn give_pages_back(
        &self,
        own_copies: &OwnCopies,
        ino: Ino,
        generation: u64,
    ) -> Result<bool> {
        self.alive()?;
        let _lock = LockSet::take(self, &[ino]);
        let Some(own) = self.own_copy(line_of(self, ino), ino) else {
            return Ok(true);
        };
        let unserved = self.pm.load(KernelCopyRaw::generation.of(own.off)) == generation;
        if unserved {
            own_copies.forget(&own);
            self.free_copy(&own);
        }
        Ok(unserved)
    }

    /// See [`crate::Fs::tell_of_pages`].
    pub(crate) fn tell_of_pages(&self, own_copies: &OwnCopies) {
        own_copies.tells.store(true, Ordering::Relaxed);
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
        let is_marked = self.pm.load(LockRaw::copies.of(line)) != 0;
        match is_marked && self.in_the_way(line, pages).next().is_some() {
            true => Err(Error::pages(pages)),
            false => Ok(()),
        }
    }

    /// See [`crate::Fs::asked_for_pages`].
    pub(crate) fn asked_for_pages(&self) -> Result<u64> {
        self.alive()?;
        let asked = SlotRaw::asked.of(self.geometry.slot(self.holder().slot));
        Ok(self.pm.load(asked))
    }

    /// See [`crate::Fs::wait_to_be_asked`].
    pub(crate) fn wait_to_be_asked(&self, seen: u64, timeout: Duration) -> Result<()> {
        self.alive()?;
        let asked = SlotRaw::asked.of(self.geometry.slot(self.holder().slot));
        self.pm.runtime().wait(asked, seen as u32, timeout);
        Ok(())
    }

    /// See [`crate::Fs::end_wait_to_be_asked`].
    pub(crate) fn end_wait_to_be_asked(&self) {
        if self.alive().is_ok() {
            self.wake_revoker(self.holder().slot);
        }
    }

    /// After a call that met pages of another mount: waits for them, if that is this process's way.
    /// Answers whether to try again.
    #[cold]
    pub(crate) fn pages_are_back(&self, own_copies: &OwnCopies, error: &Error) -> bool {
        let Error::PagesElsewhere(pages) = error else {
            return false;
        };
        // A mount needs locks to write its pages back.
        if own_copies.tells.load(Ordering::Relaxed) || self.has_all_locks() {
            return false;
        }
        // An error will be the next try's, too.
        let _ = self.wait_for_pages(**pages, &|| false);
        true
    }
}
