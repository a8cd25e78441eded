//! [`Fs`]: the engine's face. It translates and decides nothing.
//!
//! This file has attaching, leaving, and the parts that every call passes. The other files have the
//! calls, by subject.

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

/// One attachment to a pool. Calls are atomic, durable when they return, and allowed on any thread.
/// Errors are those of the POSIX calls of the same names ([`crate::Error::errno`]). Permissions are
/// not checked here: a process that may open the pool is trusted with it, and the mount enforces
/// permissions for others.
pub struct Fs {
    entrance: Entrance,
    recovery: RecoveryReport,
    /// The mapped parts of files in this process.
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

    /// Attaches to the pool at `path`, and recovers it if it was left uncleanly.
    ///
    /// # Errors
    /// [`Error::NotAPool`], [`Error::TooNew`], [`Error::Corrupt`], [`Error::Held`],
    /// [`Error::Elsewhere`], [`Error::TooManyProcesses`], [`Error::Media`].
    pub fn open(path: &Path, options: &OpenOptions) -> Result<Fs> {
        Ok(Fs::attached(attach::attach(path, options)?))
    }

    /// Attaches to a mapping without a file, in the state after a power loss: for tests and crash
    /// images.
    pub fn open_private(mem: pmem::Pmem, options: &OpenOptions) -> Result<Fs> {
        Ok(Fs::attached(attach::attach_private(mem, options)?))
    }

    /// Leaves the pool, and marks it clean if no other process has it. A dropped `Fs` is an unclean
    /// end, from which the next process recovers.
    pub fn close(self) -> Result<()> {
        self.detach()
    }

    /// Leaves as [`Fs::close`] does, by reference. Later calls fail with
    /// [`crate::Error::ShutDown`].
    pub fn detach(&self) -> Result<()> {
        attach::detach(self.pool())
    }

    /// Prepares a fork: takes a slot for the child, with all that this process holds. No file may
    /// be opened or closed until the fork. Without this, the child's calls fail with
    /// [`crate::Error::Forked`].
    pub fn before_fork(&self) -> Result<ForFork> {
        self.pool().before_fork()
    }

    /// Moves the child into its slot: it becomes a process of its own in the pool, with the
    /// parent's open files and without its POSIX locks.
    pub fn after_fork_in_child(&self, prepared: ForFork) -> Result<()> {
        self.pool().after_fork_in_child(prepared)
    }

    /// Cleans up after a thread of this process that ended inside a call, by its tag
    /// ([`pmem::thread::Thread::tag`]). This is for faces whose threads can end so while no other
    /// thread of the process waits for their locks.
    pub fn clean_after_thread(&self, tag: u64) {
        pmshare::rescue::clean_after_thread(self.pool(), tag);
    }

    /// Gives the child's slot back after a fork that failed.
    pub fn cancel_fork(&self, prepared: ForFork) {
        self.pool().cancel_fork(prepared);
    }

    /// Prepares an exec: takes a slot for the next program, with the open files and locks of this
    /// process. The program gets the text of the [`ForExec`], and attaches by
    /// [`Fs::open_after_exec`] with it.
    pub fn before_exec(&self) -> Result<ForExec> {
        self.pool().before_exec()
    }

    /// Prepares as [`Fs::before_exec`] does, with these open files alone. Each is listed once for
    /// each descriptor that the program will have.
    pub fn before_exec_with(&self, files: &[FileId]) -> Result<ForExec> {
        self.pool().before_exec_with(files)
    }

    /// Prepares as [`Fs::before_exec_with`] does, for a child that shares this process's memory
    /// until its exec (vfork). The program gets the locks of `owner`, and none of this process's.
    pub fn before_exec_of_guest(&self, files: &[FileId], owner: LockOwner) -> Result<ForExec> {
        self.pool().before_exec_of_guest(files, owner)
    }

    /// Gives the program's slot back after an exec that failed.
    pub fn cancel_exec(&self, prepared: ForExec) {
        self.pool().cancel_exec(prepared);
    }

    /// Attaches in the next program, with the text that the previous one has handed over.
    pub fn open_after_exec(path: &Path, options: &OpenOptions, handed: &str) -> Result<Fs> {
        let attached = attach::attach_after_exec(path, options, handed)?;
        Ok(Fs::attached(attached))
    }

    /// The totals of this process since it attached: all finished calls of all its threads.
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

    /// The work of the recovery when this process attached.
    #[must_use]
    pub fn recovery(&self) -> &RecoveryReport {
        &self.recovery
    }

    /// Cleans up after processes that have died while this one was attached. Returns their number.
    /// Calls that wait for a dead process do the same by themselves.
    pub fn recover_dead(&self) -> Result<u64> {
        pmshare::rescue::recover_dead(self.pool()).map(|undone| undone.slots)
    }

    /// Enters the pool. Besides this crate only `pmfs-admin` calls this, `read_call` and `change`.
    #[doc(hidden)]
    #[inline(always)]
    pub fn pool(&self) -> &Pool {
        self.entrance.enter()
    }

    /// The crash guarantee of writes through this attachment.
    #[must_use]
    pub fn data_mode(&self) -> DataMode {
        self.pool().data_mode
    }

    /// Returns whether recovery found damage. The pool is then read-only, and its bitmaps are
    /// unreliable.
    #[must_use]
    pub fn is_damaged(&self) -> bool {
        self.pool().is_damaged()
    }

    /// Changes the settings that a remount may change: the update of atime by reads, also for
    /// directories, and whether changes are refused.
    ///
    /// # Errors
    /// [`Error::ReadOnly`] if a damaged pool should become writable.
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

    /// The mapping, for tools that inspect the medium.
    #[must_use]
    pub fn mapping(&self) -> &pmem::Pmem {
        self.pool().pm.mapping()
    }

    /// Unwraps the mapping without cleaning up: an unclean end.
    #[must_use]
    pub fn into_mapping(self) -> pmem::Pmem {
        self.entrance.into_pool().into_mapping()
    }

    /// Runs and counts a call that reads.
    #[doc(hidden)]
    #[inline]
    pub fn read_call<T>(&self, call: impl FnOnce(&Pool) -> Result<T>) -> Result<T> {
        let pool = self.pool();
        let answer = call(pool);
        pool.count_look(answer.is_ok());
        answer
    }

    /// Runs a call that stores and is not counted.
    #[inline]
    fn store<T>(&self, call: impl FnOnce(&Pool) -> Result<T>) -> Result<T> {
        let pool = self.pool();
        let _writable = pool.pm.mapping().writable();
        call(pool)
    }

    /// Runs and counts a change.
    #[doc(hidden)]
    #[inline]
    pub fn change<T>(&self, call: impl Fn(&Pool) -> Result<T>) -> Result<T> {
        self.change_data(call, |_| 0)
    }

    /// Runs and counts a change with `written` bytes of file data. If space or a table has run out,
    /// dead processes may still hold some, so the change is tried again after cleaning up. The
    /// whole change has one write window: with one around each store, a create would open 32.
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

    /// Returns whether to repeat a call that has changed nothing. After a shortage the dead are
    /// cleaned up after once.
    #[cold]
    fn may_go_better(&self, error: &Error, recovered: &mut bool) -> bool {
        if error.is_shortage() && !*recovered {
            *recovered = true;
            return self.recover_dead().is_ok_and(|slots| slots > 0);
        }
        self.pages_are_back(error)
    }
}

/// Makes the pool read-only after a change that met damage, so that no later change depends on
/// damaged data. A change during which the medium failed has lost stores, whatever its result.
fn stop_at_damage<T>(pool: &Pool, result: Result<T>) -> Result<T> {
    if matches!(result, Err(Error::Corrupt(_))) {
        pool.stop_at_damage();
    }
    pool.pm.intact()?;
    result
}

/// The free entries of a lane's log before it wraps around.
#[cfg(feature = "record")]
#[must_use]
pub fn lane_entries_left(fs: &Fs, index: u64) -> u64 {
    let pool = fs.pool();
    let entries = pool.geometry.lane_entries();
    entries - Lane::at(pool, index).head() % entries
}
