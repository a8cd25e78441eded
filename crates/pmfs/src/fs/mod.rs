//! [`Fs`]: the engine's face. It translates nothing and decides nothing; each call is a page of its
//! own.
//!
//! This file has attaching and leaving, and the parts that every call passes; the calls are in the
//! other files, by subject.

mod content;
mod entrance;
mod files;
mod lease;
mod locks;
pub(crate) mod map;
mod names;
mod pages;
pub(crate) mod path;
mod pins;
mod statfs;

use crate::mapping::kernel_copy::OwnCopies;
use crate::mapping::stored::Watching;
use crate::options::OpenOptions;
use crate::pool::Pool;
#[cfg(feature = "record")]
use crate::purpose::Lane;
use crate::recovery::attach;
use crate::recovery::inherit::{ForExec, ForFork};
use crate::types::{AtimeMode, DataMode, FileId, LockOwner, RecoveryReport};
use entrance::Entrance;
use map::Maps;
use pm_journal::error::{Error, Result};
use pmem::counters;
use pmshare::counters::Totals;
use std::path::Path;
use std::sync::atomic::Ordering;

/// One attachment to a pool. Calls are atomic and durable when they return; they may come from any
/// thread. Errors are those of the POSIX calls of the same names ([`crate::Error::errno`]).
/// Permissions are not checked here: whoever may open the pool is trusted with it, and the mount
/// enforces them for others.
pub struct Fs {
    entrance: Entrance,
    recovery: RecoveryReport,
    /// Parts of files at this process's addresses.
    maps: Maps,
    watching: Watching,
    own_copies: OwnCopies,
}

#[allow(clippy::missing_errors_doc)]
impl Fs {
    fn attached((pool, recovery): (Pool, RecoveryReport)) -> Fs {
        Fs {
            entrance: Entrance::new(pool),
            recovery,
            maps: Maps::default(),
            watching: Watching::default(),
            own_copies: OwnCopies::default(),
        }
    }

    /// Attaches to a pool; recovers it if it was left uncleanly.
    pub fn open(path: &Path, options: &OpenOptions) -> Result<Fs> {
        Ok(Fs::attached(attach::attach(path, options)?))
    }

    /// Attaches to a mapping without a file, as after power loss: for tests and crash images.
    pub fn open_private(mem: pmem::Pmem, options: &OpenOptions) -> Result<Fs> {
        Ok(Fs::attached(attach::attach_private(mem, options)?))
    }

    /// Leaves the pool, clean if nobody else is in it. Dropping an `Fs` instead is an unclean end,
    /// which the next one recovers from.
    pub fn close(self) -> Result<()> {
        self.detach()
    }

    /// Closes like [`Fs::close`], by reference; later calls fail with [`crate::Error::ShutDown`].
    pub fn detach(&self) -> Result<()> {
        attach::detach(self.pool())
    }

    /// Before fork: takes a slot for the child, and has it hold all that this process holds.
    /// Nothing may be opened or closed until the fork. Without this a child can't use what it
    /// inherits ([`crate::Error::Forked`]).
    pub fn before_fork(&self) -> Result<ForFork> {
        self.pool().before_fork()
    }

    /// In the child: from now on it is a process of its own in the pool, with the parent's open
    /// files and without its POSIX locks.
    pub fn after_fork_in_child(&self, prepared: ForFork) -> Result<()> {
        self.pool().after_fork_in_child(prepared)
    }

    /// Cleans up after a thread of this process that ended in the middle of a call, by its tag
    /// ([`pmem::thread::Thread::tag`]): for faces whose threads can do so without anybody else of
    /// the process waiting for what they held.
    pub fn clean_after_thread(&self, tag: u64) {
        pmshare::rescue::clean_after_thread(self.pool(), tag);
    }

    /// If the fork failed.
    pub fn cancel_fork(&self, prepared: ForFork) {
        self.pool().cancel_fork(prepared);
    }

    /// Before exec: takes a slot for the program that this process becomes, with its open files and
    /// its locks. The program attaches by [`Fs::open_after_exec`] with the text of the [`ForExec`],
    /// which it has to be told.
    pub fn before_exec(&self) -> Result<ForExec> {
        self.pool().before_exec()
    }

    /// Prepares like [`Fs::before_exec`], with these open files alone, each named as often as the
    /// program will have descriptors of it.
    pub fn before_exec_with(&self, files: &[FileId]) -> Result<ForExec> {
        self.pool().before_exec_with(files)
    }

    /// Prepares like [`Fs::before_exec_with`], for a child that shares this process's memory until
    /// then (vfork): what it has locked as `owner` is that program's, and what this process has
    /// locked is not.
    pub fn before_exec_of_guest(&self, files: &[FileId], owner: LockOwner) -> Result<ForExec> {
        self.pool().before_exec_of_guest(files, owner)
    }

    /// If the exec failed.
    pub fn cancel_exec(&self, prepared: ForExec) {
        self.pool().cancel_exec(prepared);
    }

    /// Attaches as the program that another one has become.
    pub fn open_after_exec(path: &Path, options: &OpenOptions, handed: &str) -> Result<Fs> {
        let attached = attach::attach_after_exec(path, options, handed)?;
        Ok(Fs::attached(attached))
    }

    /// The work of this process since it attached: all its threads, in calls that are over.
    #[must_use]
    pub fn totals(&self) -> Totals {
        let pool = self.pool();
        pool.tell_reads();
        pool.totals_of(pool.holder().slot)
    }

    /// The delays that an emulated medium has charged this process
    /// ([`MapOptions::emulate`](pmem::MapOptions::emulate)).
    #[must_use]
    pub fn charged(&self) -> pmem::Charged {
        self.pool().pm.mapping().charged()
    }

    /// The work that attaching had to do.
    #[must_use]
    pub fn recovery(&self) -> &RecoveryReport {
        &self.recovery
    }

    /// Cleans up after processes that died while this one is attached; waiters do the same by
    /// themselves.
    pub fn recover_dead(&self) -> Result<u64> {
        pmshare::rescue::recover_dead(self.pool()).map(|undone| undone.slots)
    }

    /// The attachment, which this thread enters. `pmfs-admin` calls it, as it does `read_call` and
    /// `change`; others outside do not.
    #[doc(hidden)]
    #[inline(always)]
    pub fn pool(&self) -> &Pool {
        self.entrance.enter()
    }

    /// The promise of a write here.
    #[must_use]
    pub fn data_mode(&self) -> DataMode {
        self.pool().data_mode
    }

    /// Returns whether recovery found damage: the pool is then read-only, and its bitmaps are not
    /// to be relied on.
    #[must_use]
    pub fn is_damaged(&self) -> bool {
        self.pool().is_damaged()
    }

    /// Changes the settings that a remount may change: when reads update atime, also of
    /// directories, and whether changes are refused.
    ///
    /// # Errors
    /// [`Error::ReadOnly`] if a damaged pool is to be writable.
    pub fn remount(&self, atime: AtimeMode, nodiratime: bool, read_only: bool) -> Result<()> {
        if !read_only && self.is_damaged() {
            return Err(Error::ReadOnly);
        }
        let pool = self.pool();
        pool.atime.store(atime as u8, Ordering::Relaxed);
        pool.nodiratime.store(nodiratime, Ordering::Relaxed);
        pool.set_read_only(read_only);
        Ok(())
    }

    /// The mapping, for tools that look at the medium itself.
    #[must_use]
    pub fn mapping(&self) -> &pmem::Pmem {
        self.pool().pm.mapping()
    }

    /// The mapping back, as it is: an unclean end.
    #[must_use]
    pub fn into_mapping(self) -> pmem::Pmem {
        self.entrance.into_pool().into_mapping()
    }

    /// Counts a call that reads.
    #[doc(hidden)]
    #[inline]
    pub fn read_call<T>(&self, call: impl FnOnce(&Pool) -> Result<T>) -> Result<T> {
        let pool = self.pool();
        let answer = call(pool);
        pool.count_read(answer.is_ok().then_some(0));
        answer
    }

    /// A call that stores, and counts as nothing.
    #[inline]
    fn store<T>(&self, call: impl FnOnce(&Pool) -> Result<T>) -> Result<T> {
        let pool = self.pool();
        let _writable = pool.pm.mapping().writable();
        call(pool)
    }

    /// Makes a change and counts it.
    #[doc(hidden)]
    #[inline]
    pub fn change<T>(&self, call: impl Fn(&Pool) -> Result<T>) -> Result<T> {
        self.change_data(call, |_| 0)
    }

    /// Makes a change and counts it; `written` is the file data in it, bytes. Room that dead
    /// processes still held may be had where something has run out. One write window for all of it:
    /// with one around each store, a create would open 32.
    #[inline]
    fn change_data<T>(
        &self,
        call: impl Fn(&Pool) -> Result<T>,
        written: impl Fn(&T) -> usize,
    ) -> Result<T> {
        let pool = self.pool();
        let _writable = pool.pm.mapping().writable();
        let before = counters::snapshot();
        let mut result = call(pool);
        let mut recovered = false;
        while let Err(error) = &result
            && self.may_go_better(error, &mut recovered)
        {
            result = call(pool);
        }
        let written = result.as_ref().map_or(0, written);
        pool.count_change(&before, written as u64);
        stop_at_damage(pool, result)
    }

    /// After a call that has changed nothing: whether to try again. A thing that has run out is
    /// looked for among the dead once.
    #[cold]
    fn may_go_better(&self, error: &Error, recovered: &mut bool) -> bool {
        if error.is_shortage() && !*recovered {
            *recovered = true;
            return self.recover_dead().is_ok_and(|slots| slots > 0);
        }
        self.pages_are_back(error)
    }
}

/// A change that met damage is the last one: the pool is read-only from then on, so that nothing is
/// built on what can't be right. One under which the medium failed has lost stores, whatever it
/// answered.
fn stop_at_damage<T>(pool: &Pool, result: Result<T>) -> Result<T> {
    if matches!(result, Err(Error::Corrupt(_))) {
        pool.stop_at_damage();
    }
    pool.pm.intact()?;
    result
}

/// Entries that a lane's log has room for before it begins at its start again.
#[cfg(feature = "record")]
#[must_use]
pub fn lane_entries_left(fs: &Fs, index: u64) -> u64 {
    let pool = fs.pool();
    let entries = pool.geometry.lane_entries();
    entries - Lane::at(pool, index).head() % entries
}
