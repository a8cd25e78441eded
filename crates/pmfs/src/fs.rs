//! [`Fs`]: the engine's face. It translates nothing and decides nothing; each call is a page of its own.

use crate::attach;
use crate::check::{self, CheckReport};
use crate::dir::list;
use crate::error::{Error, Result};
use crate::info::{PoolDetails, PoolInfo, RecoveryReport};
use crate::mkfs;
use crate::namespace::create::Kind;
use crate::options::{MkfsOptions, OpenOptions};
use crate::pool::Pool;
use crate::repair::{self, RepairReport};
use crate::types::{
    AtimeMode, Attr, DirEntry, FallocateMode, Ino, LockInfo, LockKind, LockOwner, LockRange,
    NewNode, RenameFlags, SetAttr, StatFs, XattrFlags,
};
use std::path::Path;
use std::sync::atomic::Ordering;

/// One attachment to a pool. Calls are atomic and durable when they return; they may come from any thread.
/// Errors are those of the POSIX calls of the same names ([`crate::Error::errno`]). Permissions are not
/// checked here: whoever may open the pool is trusted with it, and the mount enforces them for others.
pub struct Fs {
    pool: Pool,
    recovery: RecoveryReport,
}

#[allow(clippy::missing_errors_doc)]
impl Fs {
    /// Makes a pool.
    pub fn mkfs(path: &Path, options: &MkfsOptions) -> Result<PoolInfo> {
        mkfs::mkfs(path, options)
    }

    /// Attaches to a pool; recovers it if it was left uncleanly.
    pub fn open(path: &Path, options: &OpenOptions) -> Result<Fs> {
        let (pool, recovery) = attach::attach(path, options)?;
        Ok(Fs { pool, recovery })
    }

    /// Formats a mapping without a file: for tests and crash images.
    pub fn format_private(mem: pmem::Pmem, options: &MkfsOptions) -> Result<pmem::Pmem> {
        Ok(mkfs::format(mem, options)?.pm.into_mapping())
    }

    /// Attaches to a mapping without a file, as after power loss: for tests and crash images.
    pub fn open_private(mem: pmem::Pmem, options: &OpenOptions) -> Result<Fs> {
        let (pool, recovery) = attach::attach_private(mem, options)?;
        Ok(Fs { pool, recovery })
    }

    /// Leaves the pool, clean if nobody else is in it. Dropping an `Fs` instead is an unclean end, which
    /// the next one recovers from.
    pub fn close(self) -> Result<()> {
        self.detach()
    }

    /// As [`Fs::close`], by reference; later calls fail with [`crate::Error::ShutDown`].
    pub fn detach(&self) -> Result<()> {
        attach::detach(&self.pool)
    }

    /// Geometry, medium, free space.
    #[must_use]
    pub fn info(&self) -> PoolInfo {
        self.pool.info()
    }

    /// History, regions, free pages.
    #[must_use]
    pub fn details(&self) -> PoolDetails {
        self.pool.details()
    }

    /// What attaching had to do.
    #[must_use]
    pub fn recovery(&self) -> &RecoveryReport {
        &self.recovery
    }

    /// Cleans up after processes that died while this one is attached; waiters do the same by themselves.
    pub fn recover_dead(&self) -> Result<u64> {
        crate::recovery::recover_dead(&self.pool).map(|undone| undone.slots)
    }

    /// Checks the whole pool, which must be at rest.
    pub fn check(&self) -> Result<CheckReport> {
        check::check(&self.pool, &mut |_, _| {})
    }

    /// As [`Fs::check`], telling how far it is.
    pub fn check_watched(&self, watch: check::Watch<'_>) -> Result<CheckReport> {
        check::check(&self.pool, watch)
    }

    /// Mends what check finds, in a pool attached for [`OpenOptions::repair`]; see `docs/FSCK.md`.
    pub fn repair(&self) -> Result<RepairReport> {
        repair::repair(&self.pool, &mut |_, _| {})
    }

    /// As [`Fs::repair`], telling how far each round's check is.
    pub fn repair_watched(&self, watch: check::Watch<'_>) -> Result<RepairReport> {
        repair::repair(&self.pool, watch)
    }

    /// Finds a name; "." and ".." too.
    pub fn lookup(&self, dir: Ino, name: &[u8]) -> Result<Attr> {
        self.pool.lookup(dir, name)
    }

    /// An inode's attributes.
    pub fn getattr(&self, ino: Ino) -> Result<Attr> {
        self.pool.getattr(ino)
    }

    /// Changes attributes.
    pub fn setattr(&self, ino: Ino, set: &SetAttr) -> Result<Attr> {
        self.stop_at_damage(self.pool.setattr(ino, set))
    }

    /// Makes a regular file; does not hold it open.
    pub fn create(&self, dir: Ino, name: &[u8], node: &NewNode) -> Result<Attr> {
        self.stop_at_damage(self.pool.make(dir, name, node, Kind::File))
    }

    /// Makes a directory.
    pub fn mkdir(&self, dir: Ino, name: &[u8], node: &NewNode) -> Result<Attr> {
        self.stop_at_damage(self.pool.make(dir, name, node, Kind::Directory))
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
        self.stop_at_damage(self.pool.make(dir, name, node, Kind::Special(kind, rdev)))
    }

    /// Makes a symbolic link.
    pub fn symlink(&self, dir: Ino, name: &[u8], target: &[u8], node: &NewNode) -> Result<Attr> {
        self.stop_at_damage(self.pool.make(dir, name, node, Kind::Symlink(target)))
    }

    /// Makes a file without a name (O_TMPFILE), held open once: pair it with [`Fs::release`].
    pub fn tmpfile(&self, dir: Ino, node: &NewNode) -> Result<Attr> {
        self.stop_at_damage(self.pool.tmpfile(dir, node))
    }

    /// Gives a file one more name.
    pub fn link(&self, ino: Ino, dir: Ino, name: &[u8]) -> Result<Attr> {
        self.stop_at_damage(self.pool.link(ino, dir, name))
    }

    /// Removes a name of anything but a directory.
    pub fn unlink(&self, dir: Ino, name: &[u8]) -> Result<()> {
        self.stop_at_damage(self.pool.unlink(dir, name))
    }

    /// Removes an empty directory.
    pub fn rmdir(&self, dir: Ino, name: &[u8]) -> Result<()> {
        self.stop_at_damage(self.pool.rmdir(dir, name))
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
        self.rename_by(dir, name, new_dir, new_name, flags, (0, 0))
    }

    /// As [`Fs::rename`], by a user and a group: whose a whiteout is to be, which else is root's.
    pub fn rename_by(
        &self,
        dir: Ino,
        name: &[u8],
        new_dir: Ino,
        new_name: &[u8],
        flags: RenameFlags,
        owner: (u32, u32),
    ) -> Result<()> {
        let to = (new_dir, new_name);
        self.stop_at_damage(self.pool.rename((dir, name), to, flags, owner))
    }

    /// A symbolic link's target.
    pub fn readlink(&self, ino: Ino) -> Result<Vec<u8>> {
        self.pool.readlink(ino)
    }

    /// Shows `emit` the entries after `cookie` (0: all, "." and ".." first) until it declines one. A cookie
    /// stays good whatever changes meanwhile.
    pub fn readdir(
        &self,
        dir: Ino,
        cookie: u64,
        emit: &mut dyn FnMut(DirEntry<'_>) -> bool,
    ) -> Result<()> {
        self.pool.alive()?;
        list::readdir(&self.pool, dir, cookie, emit)
    }

    /// Holds an inode open: it and its blocks outlive its last name until as many releases.
    pub fn hold(&self, ino: Ino) -> Result<Attr> {
        self.pool.hold(ino)
    }

    /// Ends one hold.
    pub fn release(&self, ino: Ino) -> Result<()> {
        self.pool.release(ino)
    }

    /// Reads; short only at the end of the file.
    pub fn read(&self, ino: Ino, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        self.pool.read(ino, offset, buffer)
    }

    /// Writes; short where the pool is full, or too scattered for one transaction.
    pub fn write(&self, ino: Ino, offset: u64, data: &[u8]) -> Result<usize> {
        self.stop_at_damage(self.pool.write(ino, offset, data))
    }

    /// Writes at the true end; answers the offset and the bytes written.
    pub fn append(&self, ino: Ino, data: &[u8]) -> Result<(u64, usize)> {
        self.stop_at_damage(self.pool.append(ino, data))
    }

    /// See `fallocate(2)`.
    pub fn fallocate(&self, ino: Ino, mode: FallocateMode, offset: u64, len: u64) -> Result<()> {
        self.stop_at_damage(self.pool.fallocate(ino, mode, offset, len))
    }

    /// Takes a range of whole blocks out of a file: what lies behind it moves up to its start.
    /// COLLAPSE_RANGE of `fallocate(2)`.
    pub fn collapse_range(&self, ino: Ino, offset: u64, len: u64) -> Result<()> {
        self.stop_at_damage(self.pool.collapse_range(ino, offset, len))
    }

    /// Moves what lies from `offset` on by `len` bytes, both of whole blocks, and leaves a hole. INSERT_RANGE of
    /// `fallocate(2)`.
    pub fn insert_range(&self, ino: Ino, offset: u64, len: u64) -> Result<()> {
        self.stop_at_damage(self.pool.insert_range(ino, offset, len))
    }

    /// The first data from `offset` on.
    pub fn seek_data(&self, ino: Ino, offset: u64) -> Result<u64> {
        self.pool.seek(ino, offset, true)
    }

    /// The first hole from `offset` on; the end counts as one.
    pub fn seek_hole(&self, ino: Ino, offset: u64) -> Result<u64> {
        self.pool.seek(ino, offset, false)
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
        self.stop_at_damage(self.pool.copy_range(from, from_offset, to, to_offset, len))
    }

    /// Nothing to do: every call is durable when it returns.
    pub fn fsync(&self, _ino: Ino) -> Result<()> {
        self.pool.alive()
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
        let request = self.pool.lock_request(ino, owner, (kind, range), pid);
        self.pool.file_lock(&request)
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
        let request = self.pool.lock_request(ino, owner, (kind, range), pid);
        self.pool.file_lock_wait(&request, interrupted)
    }

    /// Gives up what an owner has of a range.
    pub fn unlock(&self, ino: Ino, owner: LockOwner, range: LockRange) -> Result<()> {
        self.pool.unlock_of(ino, owner, range)
    }

    /// Gives up all that an owner has of an inode.
    pub fn unlock_all(&self, ino: Ino, owner: LockOwner) -> Result<()> {
        self.unlock(ino, owner, LockRange::WHOLE)
    }

    /// What would be in the way of a lock; F_GETLK of `fcntl(2)`.
    pub fn lock_conflict(
        &self,
        ino: Ino,
        owner: LockOwner,
        kind: LockKind,
        range: LockRange,
    ) -> Result<Option<LockInfo>> {
        let request = self.pool.lock_request(ino, owner, (kind, range), 0);
        self.pool.file_lock_conflict(&request)
    }

    /// An extended attribute's value.
    pub fn getxattr(&self, ino: Ino, name: &[u8]) -> Result<Vec<u8>> {
        self.pool.getxattr(ino, name)
    }

    /// Sets an extended attribute.
    pub fn setxattr(&self, ino: Ino, name: &[u8], value: &[u8], flags: XattrFlags) -> Result<()> {
        self.stop_at_damage(self.pool.setxattr(ino, name, value, flags))
    }

    /// The extended attributes' names.
    pub fn listxattr(&self, ino: Ino) -> Result<Vec<Vec<u8>>> {
        self.pool.listxattr(ino)
    }

    /// Removes an extended attribute.
    pub fn removexattr(&self, ino: Ino, name: &[u8]) -> Result<()> {
        self.stop_at_damage(self.pool.removexattr(ino, name))
    }

    /// Space and inodes.
    pub fn statfs(&self) -> Result<StatFs> {
        self.pool.statfs()
    }

    /// The attachment, for the parts of the engine that are not calls on files.
    pub(crate) fn attached(&self) -> &Pool {
        &self.pool
    }

    /// Whether recovery found damage: the pool is then read-only, and its bitmaps are not to be relied on.
    #[must_use]
    pub fn is_damaged(&self) -> bool {
        self.pool.damaged.load(Ordering::Relaxed)
    }

    /// What a remount may change: when reads update atime, of directories too, and whether changes are refused.
    ///
    /// # Errors
    /// [`Error::ReadOnly`] if a damaged pool is to be writable.
    pub fn remount(&self, atime: AtimeMode, nodiratime: bool, read_only: bool) -> Result<()> {
        if !read_only && self.is_damaged() {
            return Err(Error::ReadOnly);
        }
        let pool = &self.pool;
        pool.atime.store(atime as u8, Ordering::Relaxed);
        pool.nodiratime.store(nodiratime, Ordering::Relaxed);
        pool.read_only.store(read_only, Ordering::Relaxed);
        Ok(())
    }

    /// The mapping, for tools that look at the medium itself.
    #[must_use]
    pub fn mapping(&self) -> &pmem::Pmem {
        self.pool.pm.mapping()
    }

    /// The mapping back, as it is: an unclean end.
    #[must_use]
    pub fn into_mapping(self) -> pmem::Pmem {
        self.pool.pm.into_mapping()
    }

    /// A change that met damage is the last one: the pool is read-only from then on, so that nothing is built
    /// on what can't be right. One under which the medium failed has lost stores, whatever it answered.
    fn stop_at_damage<T>(&self, result: Result<T>) -> Result<T> {
        if matches!(result, Err(Error::Corrupt { .. })) {
            self.pool.damaged.store(true, Ordering::Relaxed);
            self.pool.read_only.store(true, Ordering::Relaxed);
        }
        self.pool.pm.intact().and(result)
    }
}
