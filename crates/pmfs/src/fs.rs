//! [`Fs`]: the engine's face. It translates nothing and decides nothing; each call is a page of its own.

mod lease;

use crate::admin::check::{self, CheckReport};
use crate::admin::holders::{Holding, Locked, Process};
use crate::admin::info::{FilePages, PoolDetails, PoolInfo};
use crate::admin::mkfs;
use crate::admin::repair::{self, RepairReport};
use crate::dir::list;
use crate::error::{Error, Result};
use crate::namespace::create::Kind;
use crate::open::open_file::OpenFile;
use crate::options::{MkfsOptions, OpenOptions};
use crate::pool::Pool;
use crate::share::attach;
use crate::share::counters::Totals;
use crate::share::entrance::Entrance;
use crate::share::inherit::{ForExec, ForFork};
use crate::types::RecoveryReport;
use crate::types::{
    AtimeMode, Attr, DataMode, DirEntry, FallocateMode, FileId, Ino, LockClass, LockInfo, LockKind,
    LockOwner, LockRange, NewNode, RenameFlags, SetAttr, StatFs, XattrFlags,
};
use pmem::counters;
use std::io::SeekFrom;
use std::path::Path;
use std::sync::atomic::Ordering;

/// One attachment to a pool. Calls are atomic and durable when they return; they may come from any thread.
/// Errors are those of the POSIX calls of the same names ([`crate::Error::errno`]). Permissions are not
/// checked here: whoever may open the pool is trusted with it, and the mount enforces them for others.
pub struct Fs {
    entrance: Entrance,
    recovery: RecoveryReport,
}

#[allow(clippy::missing_errors_doc)]
impl Fs {
    fn attached((pool, recovery): (Pool, RecoveryReport)) -> Fs {
        Fs {
            entrance: Entrance::new(pool),
            recovery,
        }
    }

    /// Makes a pool.
    pub fn mkfs(path: &Path, options: &MkfsOptions) -> Result<PoolInfo> {
        Fs::mkfs_watched(path, options, &mut |_, _| ())
    }

    /// Attaches to a pool; recovers it if it was left uncleanly.
    pub fn open(path: &Path, options: &OpenOptions) -> Result<Fs> {
        Ok(Fs::attached(attach::attach(path, options)?))
    }

    /// Formats a mapping without a file: for tests and crash images.
    pub fn format_private(mem: pmem::Pmem, options: &MkfsOptions) -> Result<pmem::Pmem> {
        Ok(mkfs::format(mem, options)?.pm.into_mapping())
    }

    /// Attaches to a mapping without a file, as after power loss: for tests and crash images.
    pub fn open_private(mem: pmem::Pmem, options: &OpenOptions) -> Result<Fs> {
        Ok(Fs::attached(attach::attach_private(mem, options)?))
    }

    /// Leaves the pool, clean if nobody else is in it. Dropping an `Fs` instead is an unclean end, which
    /// the next one recovers from.
    pub fn close(self) -> Result<()> {
        self.detach()
    }

    /// As [`Fs::close`], by reference; later calls fail with [`crate::Error::ShutDown`].
    pub fn detach(&self) -> Result<()> {
        attach::detach(self.pool())
    }

    /// Before fork: takes a slot for the child, and has it hold all that this process holds. Nothing may be opened
    /// or closed until the fork. Without this a child can't use what it inherits ([`crate::Error::Forked`]).
    pub fn before_fork(&self) -> Result<ForFork> {
        self.pool().before_fork()
    }

    /// In the child: from now on it is a process of its own in the pool, with the parent's open files and without its
    /// POSIX locks.
    pub fn after_fork_in_child(&self, prepared: ForFork) -> Result<()> {
        self.pool().after_fork_in_child(prepared)
    }

    /// Cleans up after a thread of this process that ended in the middle of a call, by its tag ([`pmem::thread::Thread::tag`]):
    /// for faces whose threads can do so without anybody else of the process waiting for what they held.
    pub fn clean_after_thread(&self, tag: u64) {
        crate::recovery::clean_after_thread(self.pool(), tag);
    }

    /// If the fork failed.
    pub fn cancel_fork(&self, prepared: ForFork) {
        self.pool().cancel_fork(prepared);
    }

    /// Before exec: takes a slot for the program that this process becomes, with its open files and its locks. The
    /// program attaches by [`Fs::open_after_exec`] with the text of the [`ForExec`], which it has to be told.
    pub fn before_exec(&self) -> Result<ForExec> {
        self.pool().before_exec()
    }

    /// As [`Fs::before_exec`], with these open files alone, each named as often as the program will have descriptors of it.
    pub fn before_exec_with(&self, files: &[FileId]) -> Result<ForExec> {
        self.pool().before_exec_with(files)
    }

    /// As [`Fs::before_exec_with`], for a child that shares this process's memory until then (vfork): what it has locked as
    /// `owner` is that program's, and what this process has locked is not.
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

    /// Geometry, medium, free space.
    #[must_use]
    pub fn info(&self) -> PoolInfo {
        self.pool().info()
    }

    /// History, regions, free pages.
    #[must_use]
    pub fn details(&self) -> PoolDetails {
        self.pool().details()
    }

    /// What this process has done since it attached: all its threads, in calls that are over.
    #[must_use]
    pub fn totals(&self) -> Totals {
        let pool = self.pool();
        pool.tell_reads();
        pool.totals_of(pool.holder().slot)
    }

    /// By which pages a file is held.
    pub fn pages(&self, ino: Ino) -> Result<FilePages> {
        self.look(|pool| pool.pages(ino))
    }

    /// Who is attached.
    #[must_use]
    pub fn processes(&self) -> Vec<Process> {
        self.pool().processes()
    }

    /// What they have open.
    #[must_use]
    pub fn holdings(&self) -> Vec<Holding> {
        self.pool().holdings()
    }

    /// What stands at an offset of the pool, in words.
    #[must_use]
    pub fn name_of(&self, off: u64) -> String {
        self.pool().name_of(off)
    }

    /// The file locks, held and waited for.
    #[must_use]
    pub fn locked(&self) -> Vec<Locked> {
        self.pool().locked()
    }

    /// What an emulated medium has charged this process ([`MapOptions::emulate`](pmem::MapOptions::emulate)).
    #[must_use]
    pub fn charged(&self) -> pmem::Charged {
        self.pool().pm.mapping().charged()
    }

    /// What attaching had to do.
    #[must_use]
    pub fn recovery(&self) -> &RecoveryReport {
        &self.recovery
    }

    /// Cleans up after processes that died while this one is attached; waiters do the same by themselves.
    pub fn recover_dead(&self) -> Result<u64> {
        crate::recovery::recover_dead(self.pool()).map(|undone| undone.slots)
    }

    /// Checks the whole pool, which must be at rest.
    pub fn check(&self) -> Result<CheckReport> {
        check::check(self.pool(), &mut |_, _| {})
    }

    /// As [`Fs::check`], telling how far it is.
    pub fn check_watched(&self, watch: check::Watch<'_>) -> Result<CheckReport> {
        check::check(self.pool(), watch)
    }

    /// Reads the whole pool, and tells which blocks the medium can't give; `watch` is told how many blocks were read.
    pub fn bad_blocks(&self, watch: check::Watch<'_>) -> Result<Vec<check::BadBlock>> {
        check::bad_blocks::bad_blocks(self.pool(), watch)
    }

    /// Mends what check finds, in a pool attached for [`OpenOptions::repair`]; see `docs/FSCK.md`.
    pub fn repair(&self) -> Result<RepairReport> {
        repair::repair(self.pool(), &mut |_, _| {})
    }

    /// As [`Fs::repair`], telling how far each round's check is.
    pub fn repair_watched(&self, watch: check::Watch<'_>) -> Result<RepairReport> {
        repair::repair(self.pool(), watch)
    }

    /// Finds a name; "." and ".." too.
    pub fn lookup(&self, dir: Ino, name: &[u8]) -> Result<Attr> {
        self.look(|pool| pool.lookup(dir, name))
    }

    /// As [`Fs::lookup`], to where the caller wants it; after an error it says nothing.
    pub fn lookup_into(&self, dir: Ino, name: &[u8], attr: &mut Attr) -> Result<()> {
        self.look(|pool| pool.lookup_into(dir, name, attr))
    }

    /// An inode's attributes.
    pub fn getattr(&self, ino: Ino) -> Result<Attr> {
        self.look(|pool| pool.getattr(ino))
    }

    /// As [`Fs::lookup`], by the number, of what was just listed in a directory. What has another name since may be an error.
    pub fn listed(&self, dir: Ino, entry: &DirEntry<'_>) -> Result<Attr> {
        self.look(|pool| pool.listed(dir, entry))
    }

    /// Changes attributes.
    pub fn setattr(&self, ino: Ino, set: &SetAttr) -> Result<Attr> {
        self.change(|pool| pool.setattr(ino, set))
    }

    /// Changes attributes as they are: `change` is asked under the inode's lock, so nobody else changes them between its look and what it
    /// says. Set-id bits are taken away so. A size that it says is not set, and with nothing to set nothing is done.
    pub fn setattr_by(&self, ino: Ino, change: &dyn Fn(&Attr) -> SetAttr) -> Result<Attr> {
        self.change(|pool| pool.setattr_by(ino, change))
    }

    /// Makes a regular file; does not hold it open.
    pub fn create(&self, dir: Ino, name: &[u8], node: &NewNode) -> Result<Attr> {
        self.change(|pool| pool.make(dir, name, node, Kind::File))
    }

    /// Makes a directory.
    pub fn mkdir(&self, dir: Ino, name: &[u8], node: &NewNode) -> Result<Attr> {
        self.change(|pool| pool.make(dir, name, node, Kind::Directory))
    }

    /// Makes a file, device, FIFO or socket; `kind` is the type's bits.
    pub fn mknod(
        &self,
        dir: Ino,
        name: &[u8],
        node: &NewNode,
        kind: u32,
        rdev: u32,
    ) -> Result<Attr> {
        self.change(|pool| pool.make(dir, name, node, Kind::Special(kind, rdev)))
    }

    /// Makes a symbolic link.
    pub fn symlink(&self, dir: Ino, name: &[u8], target: &[u8], node: &NewNode) -> Result<Attr> {
        self.change(|pool| pool.make(dir, name, node, Kind::Symlink(target)))
    }

    /// Makes a file without a name (O_TMPFILE), held open once: pair it with [`Fs::release`].
    pub fn tmpfile(&self, dir: Ino, node: &NewNode) -> Result<Attr> {
        self.change(|pool| pool.tmpfile(dir, node))
    }

    /// Gives a file one more name.
    pub fn link(&self, ino: Ino, dir: Ino, name: &[u8]) -> Result<Attr> {
        self.change(|pool| pool.link(ino, dir, name))
    }

    /// Removes a name of anything but a directory.
    pub fn unlink(&self, dir: Ino, name: &[u8]) -> Result<()> {
        self.change(|pool| pool.unlink(dir, name, None))
    }

    /// As [`Fs::unlink`], for who has just looked: the name stood for `seen`. If it does no more, what it stands for now goes.
    pub fn unlink_seen(&self, dir: Ino, name: &[u8], seen: Ino) -> Result<()> {
        self.change(|pool| pool.unlink(dir, name, Some(seen)))
    }

    /// Removes an empty directory.
    pub fn rmdir(&self, dir: Ino, name: &[u8]) -> Result<()> {
        self.change(|pool| pool.rmdir(dir, name))
    }

    /// Moves a name; see `renameat2(2)`.
    pub fn rename(
        &self,
        dir: Ino,
        name: &[u8],
        new_dir: Ino,
        new_name: &[u8],
        flags: RenameFlags,
    ) -> Result<()> {
        self.rename_by((dir, name), (new_dir, new_name), flags, (0, 0), None)
    }

    /// As [`Fs::rename`], by a user and a group: whose a whiteout is to be, which else is root's. `seen`: what the names, the second
    /// one if it stood for anything, stood for when the caller looked; if they do no more, what they stand for now counts.
    pub fn rename_by(
        &self,
        from: (Ino, &[u8]),
        to: (Ino, &[u8]),
        flags: RenameFlags,
        owner: (u32, u32),
        seen: Option<(Ino, Option<Ino>)>,
    ) -> Result<()> {
        self.change(|pool| pool.rename(from, to, flags, owner, seen))
    }

    /// A symbolic link's target.
    pub fn readlink(&self, ino: Ino) -> Result<Vec<u8>> {
        self.look(|pool| pool.readlink(ino))
    }

    /// Shows `emit` the entries after `cookie` (0: all, "." and ".." first) until it declines one. A cookie
    /// stays good whatever changes meanwhile.
    pub fn readdir(
        &self,
        dir: Ino,
        cookie: u64,
        emit: &mut dyn FnMut(DirEntry<'_>) -> bool,
    ) -> Result<()> {
        self.readdir_for(dir, cookie, true, emit)
    }

    /// As [`Fs::readdir`], with the time of access left as it is unless `wants_atime`.
    pub fn readdir_for(
        &self,
        dir: Ino,
        cookie: u64,
        wants_atime: bool,
        emit: &mut dyn FnMut(DirEntry<'_>) -> bool,
    ) -> Result<()> {
        self.look(|pool| {
            pool.alive()?;
            list::readdir(pool, dir, cookie, wants_atime, emit)
        })
    }

    /// Holds an inode open: it and its blocks outlive its last name until as many releases.
    pub fn hold(&self, ino: Ino) -> Result<Attr> {
        self.change(|pool| pool.hold(ino))
    }

    /// Ends one hold.
    pub fn release(&self, ino: Ino) -> Result<()> {
        self.store(|pool| pool.release(ino))
    }

    /// Hints that a read from `offset` on comes next: its first byte's line is asked for while the call is still on its way.
    #[inline]
    pub fn expect(&self, ino: Ino, offset: u64) {
        self.pool().expect_byte(ino, offset);
    }

    /// Whether an inode may have set-id bits or file capabilities, which a change of its content takes away: set-id bits, or any extended attribute.
    /// One look at the line that a write needs anyway, without locks; false of what is not there.
    #[inline]
    pub fn may_have_privileges(&self, ino: Ino) -> bool {
        self.pool().may_have_privileges(ino)
    }

    /// Writes; short where the pool is full, or too scattered for one transaction.
    pub fn write(&self, ino: Ino, offset: u64, data: &[u8]) -> Result<usize> {
        self.change_data(|pool| pool.write(ino, offset, data), |&written| written)
    }

    /// Writes at the true end; answers the offset and the bytes written.
    pub fn append(&self, ino: Ino, data: &[u8]) -> Result<(u64, usize)> {
        self.change_data(|pool| pool.append(ino, data), |&(_, written)| written)
    }

    /// Writes at the end, if that is at `end`; `None`, and nothing is done, if it is not.
    pub fn write_at_end(&self, ino: Ino, end: u64, data: &[u8]) -> Result<Option<usize>> {
        let written = |done: &Option<usize>| done.unwrap_or(0);
        self.change_data(|pool| pool.write_at_end(ino, end, data), written)
    }

    /// Writes back what the kernel of a mount had in a page: nothing past the true end.
    pub fn write_back(&self, ino: Ino, offset: u64, data: &[u8]) -> Result<()> {
        self.change_data(|pool| pool.write_back(ino, offset, data), |()| data.len())
    }

    /// See `fallocate(2)`.
    pub fn fallocate(&self, ino: Ino, mode: FallocateMode, offset: u64, len: u64) -> Result<()> {
        self.change(|pool| pool.fallocate(ino, mode, offset, len))
    }

    /// Takes a range of whole blocks out of a file: what lies behind it moves up to its start.
    /// COLLAPSE_RANGE of `fallocate(2)`.
    pub fn collapse_range(&self, ino: Ino, offset: u64, len: u64) -> Result<()> {
        self.change(|pool| pool.collapse_range(ino, offset, len))
    }

    /// Moves what lies from `offset` on by `len` bytes, both of whole blocks, and leaves a hole. INSERT_RANGE of
    /// `fallocate(2)`.
    pub fn insert_range(&self, ino: Ino, offset: u64, len: u64) -> Result<()> {
        self.change(|pool| pool.insert_range(ino, offset, len))
    }

    /// The first data from `offset` on.
    pub fn seek_data(&self, ino: Ino, offset: u64) -> Result<u64> {
        self.seek(ino, offset, true)
    }

    /// The first hole from `offset` on; the end counts as one.
    pub fn seek_hole(&self, ino: Ino, offset: u64) -> Result<u64> {
        self.seek(ino, offset, false)
    }

    fn seek(&self, ino: Ino, offset: u64, data: bool) -> Result<u64> {
        self.look(|pool| {
            let mut found = pool.seek(ino, offset, data);
            while let Err(error) = &found
                && self.pages_are_back(error)
            {
                found = pool.seek(ino, offset, data);
            }
            found
        })
    }

    /// Copies between files inside the pool.
    pub fn copy_range(
        &self,
        from: Ino,
        from_offset: u64,
        to: Ino,
        to_offset: u64,
        len: u64,
    ) -> Result<u64> {
        self.change(|pool| pool.copy_range(from, from_offset, to, to_offset, len))
    }

    /// Nothing to do: every call is durable when it returns.
    pub fn fsync(&self, _ino: Ino) -> Result<()> {
        self.pool().alive()
    }

    /// Opens an inode: a new open file with its offset at 0, had once by this process. `flags` are the caller's.
    pub fn open_file(&self, ino: Ino, flags: u64) -> Result<FileId> {
        self.change(|pool| pool.open_file(ino, flags))
    }

    /// As [`Fs::open_file`], of a file that was looked up before; [`Error::Stale`] if that one has gone since, also if another
    /// has its number by now.
    pub fn open_found(&self, found: &Attr, flags: u64) -> Result<FileId> {
        self.change(|pool| pool.open_found(found, flags))
    }

    /// What an open file is.
    pub fn file(&self, file: FileId) -> Result<OpenFile> {
        self.pool().file_state(file)
    }

    /// The flags of an open file that this process has, as the last of those who share it has set them; whether it has it is not looked at.
    #[inline]
    #[must_use]
    pub fn file_flags(&self, file: FileId) -> u64 {
        self.pool().file_flags(file)
    }

    /// Sets the flags of an open file.
    pub fn set_file_flags(&self, file: FileId, flags: u64) -> Result<()> {
        self.store(|pool| pool.set_file_flags(file, flags))
    }

    /// One more descriptor of this process for an open file: pair it with [`Fs::close_file`].
    pub fn dup_file(&self, file: FileId) -> Result<()> {
        self.store(|pool| pool.dup_file(file))
    }

    /// As [`Fs::dup_file`], of an open file that may be another process's alone.
    pub fn share_file(&self, file: FileId) -> Result<()> {
        self.store(|pool| pool.share_file(file))
    }

    /// One descriptor less; the last one of all ends the file and its locks.
    pub fn close_file(&self, file: FileId) -> Result<()> {
        self.store(|pool| pool.close_file(file))
    }

    /// Reads at an open file's offset and moves it.
    pub fn read_file(&self, file: FileId, buffer: &mut [u8]) -> Result<usize> {
        self.pool().at_offset(file, |now| {
            let wants_atime = || now.wants_atime();
            let read = self.read_for(now.ino, now.offset, buffer, wants_atime)?;
            Ok((now.offset + read as u64, read))
        })
    }

    /// Writes at an open file's offset, or at the true end if `append` says so of it, and moves the offset behind it.
    pub fn write_file(
        &self,
        file: FileId,
        data: &[u8],
        append: impl FnOnce(&OpenFile) -> bool,
    ) -> Result<usize> {
        self.pool().at_offset(file, |now| {
            let (at, written) = if append(&now) {
                self.append(now.ino, data)?
            } else {
                (now.offset, self.write(now.ino, now.offset, data)?)
            };
            Ok((at + written as u64, written))
        })
    }

    /// Does something at an open file's offset, and moves that to what `body` answers first; nobody else moves it
    /// meanwhile.
    pub fn at_offset(
        &self,
        file: FileId,
        body: impl FnOnce(OpenFile) -> Result<(u64, usize)>,
    ) -> Result<usize> {
        self.pool().at_offset(file, body)
    }

    /// Moves an open file's offset: from the start, from where it is, from the end.
    pub fn seek_file(&self, file: FileId, to: SeekFrom) -> Result<u64> {
        self.store(|pool| pool.seek_file(file, to))
    }

    /// Takes a file lock for an open file (F_OFD_SETLK or flock): it ends with the last descriptor, whichever process
    /// has that.
    pub fn lock_file(
        &self,
        file: FileId,
        class: LockClass,
        kind: LockKind,
        range: LockRange,
    ) -> Result<()> {
        let request = self.pool().file_request(file, class, (kind, range))?;
        self.change(|pool| pool.file_lock(&request))
    }

    /// As [`Fs::lock_file`], but waits as [`Fs::lock_wait`] does.
    pub fn lock_file_wait(
        &self,
        file: FileId,
        class: LockClass,
        kind: LockKind,
        range: LockRange,
        interrupted: &dyn Fn() -> bool,
    ) -> Result<()> {
        let request = self.pool().file_request(file, class, (kind, range))?;
        self.pool().file_lock_wait(&request, interrupted)
    }

    /// What would be in the way of a lock of an open file; F_OFD_GETLK of `fcntl(2)`.
    pub fn file_lock_conflict(
        &self,
        file: FileId,
        class: LockClass,
        kind: LockKind,
        range: LockRange,
    ) -> Result<Option<LockInfo>> {
        let request = self.pool().file_request(file, class, (kind, range))?;
        self.pool().file_lock_conflict(&request)
    }

    /// Gives up what an open file has of a range.
    pub fn unlock_file(&self, file: FileId, class: LockClass, range: LockRange) -> Result<()> {
        self.store(|pool| {
            let ino = pool.file_state(file)?.ino;
            let owner = pool.file_owner(file.index(), class);
            pool.file_unlock(ino, owner, range)
        })
    }

    /// Takes a file lock, or changes the kind of one that the owner has, if nobody is in the way. `pid` is what
    /// others are told of who has it.
    pub fn lock(
        &self,
        ino: Ino,
        owner: LockOwner,
        kind: LockKind,
        range: LockRange,
        pid: u32,
    ) -> Result<()> {
        let request = self.pool().lock_request(ino, owner, (kind, range), pid);
        self.change(|pool| pool.file_lock(&request))
    }

    /// As [`Fs::lock`], but waits for who is in the way. `interrupted` is asked every few milliseconds and ends
    /// the wait with [`crate::Error::Interrupted`], as does a signal that this thread handles meanwhile.
    pub fn lock_wait(
        &self,
        ino: Ino,
        owner: LockOwner,
        kind: LockKind,
        range: LockRange,
        pid: u32,
        interrupted: &dyn Fn() -> bool,
    ) -> Result<()> {
        let request = self.pool().lock_request(ino, owner, (kind, range), pid);
        self.pool().file_lock_wait(&request, interrupted)
    }

    /// Gives up what an owner has of a range.
    pub fn unlock(&self, ino: Ino, owner: LockOwner, range: LockRange) -> Result<()> {
        self.store(|pool| pool.unlock_of(ino, owner, range))
    }

    /// Gives up all that an owner has of an inode.
    pub fn unlock_all(&self, ino: Ino, owner: LockOwner) -> Result<()> {
        self.unlock(ino, owner, LockRange::WHOLE)
    }

    /// Gives up all that an owner has of all inodes.
    pub fn end_lock_owner(&self, owner: LockOwner) -> Result<()> {
        self.store(|pool| {
            pool.end_lock_owner(owner);
            Ok(())
        })
    }

    /// What would be in the way of a lock; F_GETLK of `fcntl(2)`.
    pub fn lock_conflict(
        &self,
        ino: Ino,
        owner: LockOwner,
        kind: LockKind,
        range: LockRange,
    ) -> Result<Option<LockInfo>> {
        let request = self.pool().lock_request(ino, owner, (kind, range), 0);
        self.pool().file_lock_conflict(&request)
    }

    /// An extended attribute's value.
    pub fn getxattr(&self, ino: Ino, name: &[u8]) -> Result<Vec<u8>> {
        self.look(|pool| pool.getxattr(ino, name))
    }

    /// Sets an extended attribute.
    pub fn setxattr(&self, ino: Ino, name: &[u8], value: &[u8], flags: XattrFlags) -> Result<()> {
        self.change(|pool| pool.setxattr(ino, name, value, flags))
    }

    /// The extended attributes' names.
    pub fn listxattr(&self, ino: Ino) -> Result<Vec<Vec<u8>>> {
        self.look(|pool| pool.listxattr(ino))
    }

    /// Removes an extended attribute.
    pub fn removexattr(&self, ino: Ino, name: &[u8]) -> Result<()> {
        self.change(|pool| pool.removexattr(ino, name))
    }

    /// Space and inodes.
    pub fn statfs(&self) -> Result<StatFs> {
        self.look(|pool| pool.statfs())
    }

    /// The attachment, which this thread enters.
    #[inline(always)]
    pub(crate) fn pool(&self) -> &Pool {
        self.entrance.enter()
    }

    /// What a write promises here.
    #[must_use]
    pub fn data_mode(&self) -> DataMode {
        self.pool().data_mode
    }

    /// Whether recovery found damage: the pool is then read-only, and its bitmaps are not to be relied on.
    #[must_use]
    pub fn is_damaged(&self) -> bool {
        self.pool().damaged.load(Ordering::Relaxed)
    }

    /// What a remount may change: when reads update atime, of directories too, and whether changes are refused.
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
        pool.read_only.store(read_only, Ordering::Relaxed);
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
        self.entrance.into_pool().pm.into_mapping()
    }

    /// Counts a call that reads.
    #[inline]
    pub(crate) fn look<T>(&self, call: impl FnOnce(&Pool) -> Result<T>) -> Result<T> {
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
    #[inline]
    pub(crate) fn change<T>(&self, call: impl Fn(&Pool) -> Result<T>) -> Result<T> {
        self.change_data(call, |_| 0)
    }

    /// Makes a change and counts it; `written` is the file data in it, bytes. Where something has run out, what dead
    /// processes still held may be had. One write window for all of it: with one around each store, a
    /// create would open 32.
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

    /// After a call that has changed nothing: whether to try again. What has run out is looked for among the dead once.
    #[cold]
    fn may_go_better(&self, error: &Error, recovered: &mut bool) -> bool {
        if error.is_shortage() && !*recovered {
            *recovered = true;
            return self.recover_dead().is_ok_and(|slots| slots > 0);
        }
        self.pages_are_back(error)
    }
}

/// A change that met damage is the last one: the pool is read-only from then on, so that nothing is built
/// on what can't be right. One under which the medium failed has lost stores, whatever it answered.
fn stop_at_damage<T>(pool: &Pool, result: Result<T>) -> Result<T> {
    if matches!(result, Err(Error::Corrupt(_))) {
        pool.stop_at_damage();
    }
    pool.pm.intact().and(result)
}
