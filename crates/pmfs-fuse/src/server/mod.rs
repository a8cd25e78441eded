//! The server: a method for each request of the kernel, in the engine's terms.
//!
//! The kernel and the engine share the work:
//! - **Permissions**: the kernel (`default_permissions`), with attributes and access ACLs that it
//!   asks for. The kernel also checks the right to set an ACL, or an attribute of a namespace.
//! - **umask**: the engine, because a default ACL overrides it. **set-gid
//!   directories**: the engine.
//! - **Set-id bits and file capabilities**: at chown, truncate, fallocate and copy the kernel drops
//!   them (it sends the new mode in the same SETATTR, as neither of FUSE's HANDLE_KILLPRIV versions
//!   is asked for), but for set-gid without group execution, which is dropped here if the caller is
//!   outside the group. At write it can't, under direct I/O: it sets FUSE_WRITE_KILL_SUIDGID if the
//!   writer lacks CAP_FSETID, and [`Server::write`] drops them, before the data is written.
//! - **O_TRUNC**: the kernel, by a SETATTR of its own after the open.
//! - **O_APPEND**: the engine, at the true end; the kernel's idea of the size may be
//!   old ([`placing`]).
//! - **File locks**: the engine, because other processes have the pool, too ([`locks`]).

mod following;
mod handles;
mod locks;
mod mapped;
mod numbers;
mod pages;
mod placing;
mod privileges;

use std::fs::File;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};
use std::time::{Duration, Instant};

use pmfs::types::mode;
use pmfs::{
    Attr, DirEntry, Error, FallocateMode, Fs, Ino, NewNode, ROOT_INO, RenameFlags, Result, StatFs,
    XattrFlags,
};

use crate::caller::{Caller, SYS_ADMIN};
use crate::freeze::{Frozen, Gate, Pass};
use crate::lease::{Grant, Lease};
use crate::lookups::LookupTable;
use crate::remount::Manner;
use crate::served::{self, Served};
use crate::wire::device::ROOT_NODE;
use following::Following;
use handles::Handles;
use pages::{Opened, Pace, PastPages};

pub use handles::Access;
pub(crate) use locks::LockRequest;
pub use placing::WriteKind;
use privileges::has_set_id;

/// A copy may stop short; this keeps a request from lasting long, bytes.
const COPY_MAX: u64 = 64 << 20;

/// The longest wait of a call that found no space for a release under way.
const RELEASE_WAIT: Duration = Duration::from_secs(1);

const ACCESS_ACL: &[u8] = b"system.posix_acl_access";

/// Answers requests. Inodes are named by the kernel's node numbers: 1 is the root, anything else is
/// the engine's number (1 is never given out by the engine, and its root, 2, never by a lookup).
pub struct Server {
    fs: Arc<Fs>,
    known: LookupTable,
    /// Read-locked by each request; `true` once the pool is let go, and then nothing gets in.
    closed: RwLock<bool>,
    /// Set before that, so that waits for a lock end.
    ending: AtomicBool,
    handles: Handles,
    following: Following,
    opened: Opened,
    pace: Pace,
    past: PastPages,
    /// The kernel keeps in pages what it reads and writes: it can't have files mapped else.
    is_cached: bool,
    /// The gate at which changes wait while the pool is copied.
    gate: Gate,
    /// Releases of unlinked inodes under way, that is, blocks about to become free.
    releasing: AtomicUsize,
    /// The lease of the kernel's memory of names.
    lease: Arc<Lease>,
    /// The pool's file, for what it is called by now.
    named: Option<File>,
}

impl Server {
    /// Over an attached pool.
    #[must_use]
    pub fn new(fs: Arc<Fs>) -> Server {
        fs.tell_of_pages();
        Server {
            gate: Gate::new(fs.mapping().path()),
            lease: Arc::new(Lease::new(Arc::clone(&fs), false)),
            fs,
            known: LookupTable::default(),
            closed: RwLock::new(false),
            ending: AtomicBool::new(false),
            handles: Handles::default(),
            following: Following::default(),
            opened: Opened::default(),
            pace: Pace::default(),
            past: PastPages::default(),
            is_cached: false,
            releasing: AtomicUsize::new(0),
            named: None,
        }
    }

    /// Notes the pool's file.
    #[must_use]
    pub(crate) fn named(self, file: io::Result<File>) -> Server {
        Server {
            named: file.ok(),
            ..self
        }
    }

    /// For a kernel that reads and writes through its pages.
    #[must_use]
    pub(crate) fn cached(self, is_cached: bool) -> Server {
        Server { is_cached, ..self }
    }

    /// The kernel may remember answers while no other process has the pool.
    #[must_use]
    pub(crate) fn leasing(self, is_wished: bool) -> Server {
        let lease = Arc::new(Lease::new(Arc::clone(&self.fs), is_wished));
        Server { lease, ..self }
    }

    /// A request is to be answered: what of it may be remembered.
    pub(crate) fn begin_answer(&self) -> Option<Grant> {
        self.lease.begin()
    }

    /// The time for which an answer that is now known may be remembered.
    pub(crate) fn term(&self, grant: &mut Option<Grant>) -> Duration {
        match (grant, self.enter()) {
            (Some(grant), Ok(_attached)) => grant.term(),
            _ => Duration::ZERO,
        }
    }

    /// Sees to the lease, see [`Lease::tend`].
    pub(crate) fn tend_lease(&self) -> Result<()> {
        let _attached = self.enter()?;
        self.lease.tend();
        Ok(())
    }

    /// A request is to begin; one that changes anything waits while the pool stands still.
    pub(crate) fn pass(&self, changes: bool) -> Pass<'_> {
        self.gate.pass(changes)
    }

    /// Passes as [`Server::pass`] does, but `None` if it would have to wait.
    pub(crate) fn try_pass(&self, changes: bool) -> Option<Pass<'_>> {
        self.gate.try_pass(changes)
    }

    /// Makes the pool stand still for the holder of its freeze lock; `uid` asks for it.
    ///
    /// # Errors
    /// [`Error::NotPermitted`]: neither root nor this process's user; see [`crate::freeze`].
    pub(crate) fn freeze(&self, uid: u32) -> Result<Frozen> {
        if uid != 0 && uid != rustix::process::geteuid().as_raw() {
            return Err(Error::NotPermitted(&"freezing a pool of another user"));
        }
        drop(self.enter()?);
        self.gate.freeze()?;
        Ok(if self.fs.is_damaged() {
            Frozen::Damaged
        } else {
            Frozen::Sound
        })
    }

    /// Returns the answer to the request for this mount's pool.
    pub(crate) fn served(&self) -> Vec<u8> {
        let file = self.fs.mapping().identity();
        Served::answer(
            file,
            self.named
                .as_ref()
                .and_then(|file| served::name_of_open(file).ok())
                .as_deref(),
        )
    }

    /// Goes on as a remount wants it.
    pub(crate) fn remount(&self, uid: u32, manner: Manner) -> Result<()> {
        if uid != 0 && uid != rustix::process::geteuid().as_raw() {
            return Err(Error::NotPermitted(&"remounting a pool of another user"));
        }
        self.fs
            .remount(manner.atime, manner.nodiratime, manner.read_only)
    }

    /// A request begins: the pool stays attached until the guard goes.
    ///
    /// # Errors
    /// [`Error::ShutDown`] after [`Server::close`].
    pub fn enter(&self) -> Result<RwLockReadGuard<'_, bool>> {
        let closed = self.closed.read().unwrap_or_else(PoisonError::into_inner);
        if *closed {
            return Err(Error::ShutDown);
        }
        Ok(closed)
    }

    /// Lets requests under way finish, gives up what the kernel still knew, and marks the pool
    /// clean. Doing it again does nothing.
    ///
    /// # Errors
    /// Those of [`Fs::detach`].
    pub fn close(&self) -> Result<()> {
        let _pass = self.gate.pass(true);
        self.ending.store(true, Ordering::SeqCst);
        self.fs.end_wait_to_be_asked();
        let mut closed = self.closed.write().unwrap_or_else(PoisonError::into_inner);
        if *closed {
            return Ok(());
        }
        *closed = true;
        // The mount is gone, and what its kernel remembered.
        self.fs.end_lease();
        for ino in self.known.drain_held() {
            self.release(ino);
        }
        for follower in self.following.drain() {
            let _ = self.stop_following(Some(follower));
        }
        self.fs.detach()
    }

    // ---- names ----

    /// LOOKUP.
    ///
    /// # Errors
    /// Those of the engine's call of this name; so for all methods below.
    pub fn lookup(&self, parent: u64, name: &[u8]) -> Result<Attr> {
        let ino = ino_of(parent);
        if name == b"." {
            return self.lookup_itself(ino);
        }
        self.fs.lookup(ino, name).map(|attr| self.told(attr))
    }

    /// FORGET.
    pub fn forget(&self, node: u64, count: u64) {
        if node != ROOT_NODE && self.known.forget(node, count) {
            self.release(node);
        }
    }

    /// CREATE: also opens; with the number of the open file.
    pub fn create(
        &self,
        parent: u64,
        name: &[u8],
        new: &NewNode,
        access: Access,
    ) -> Result<(Attr, u64)> {
        self.make(parent, name, new)
            .and_then(|attr| self.open_new(attr, access))
    }

    fn make(&self, parent: u64, name: &[u8], new: &NewNode) -> Result<Attr> {
        self.with_space(|| self.fs.create(ino_of(parent), name, new))
            .map(|attr| self.told(attr))
    }

    /// TMPFILE: without a name, open, and held until the kernel forgets it, whether or
    /// not it gets a name.
    pub fn tmpfile(&self, parent: u64, new: &NewNode, access: Access) -> Result<(Attr, u64)> {
        let attr = self.with_space(|| self.fs.tmpfile(ino_of(parent), new))?;
        let attr = self.told(attr);
        if !self.known.set_held(attr.ino) {
            self.release(attr.ino);
        }
        self.open_new(attr, access)
    }

    /// MKNOD; `mode` carries the type.
    pub fn mknod(&self, parent: u64, name: &[u8], new: &NewNode, rdev: u32) -> Result<Attr> {
        let kind = new.mode & mode::S_IFMT;
        let new = permissions(new);
        if kind == mode::S_IFREG || kind == 0 {
            return self.make(parent, name, &new);
        }
        self.with_space(|| self.fs.mknod(ino_of(parent), name, &new, kind, rdev))
            .map(|attr| self.told(attr))
    }

    /// MKDIR.
    pub fn mkdir(&self, parent: u64, name: &[u8], new: &NewNode) -> Result<Attr> {
        let new = permissions(new);
        self.with_space(|| self.fs.mkdir(ino_of(parent), name, &new))
            .map(|attr| self.told(attr))
    }

    /// SYMLINK.
    pub fn symlink(&self, parent: u64, name: &[u8], target: &[u8], new: &NewNode) -> Result<Attr> {
        self.with_space(|| self.fs.symlink(ino_of(parent), name, target, new))
            .map(|attr| self.told(attr))
    }

    /// LINK.
    pub fn link(&self, node: u64, parent: u64, name: &[u8]) -> Result<Attr> {
        self.with_space(|| self.fs.link(ino_of(node), ino_of(parent), name))
            .map(|attr| self.told(attr))
    }

    /// UNLINK.
    pub fn unlink(&self, parent: u64, name: &[u8]) -> Result<()> {
        let dir = ino_of(parent);
        let victim = self.fs.lookup(dir, name)?;
        let pinned = self.pin(victim)?;
        self.unpin(pinned, self.fs.unlink_seen(dir, name, victim.ino))
    }

    /// RMDIR.
    pub fn rmdir(&self, parent: u64, name: &[u8]) -> Result<()> {
        let dir = ino_of(parent);
        let pinned = self.pin(self.fs.lookup(dir, name)?)?;
        self.unpin(pinned, self.fs.rmdir(dir, name))
    }

    /// RENAME and RENAME2, `flags` as in `renameat2(2)`.
    pub fn rename(
        &self,
        from: (u64, &[u8]),
        to: (u64, &[u8]),
        flags: u32,
        caller: &Caller,
    ) -> Result<()> {
        let flags = RenameFlags::from_bits(flags).ok_or(Error::Invalid(&"rename flags"))?;
        let (dir, new_dir) = (ino_of(from.0), ino_of(to.0));
        let mut pinned = None;
        // Only a rename that replaces can take the last name of what it lands on.
        if !flags.intersects(RenameFlags::NOREPLACE | RenameFlags::EXCHANGE) {
            match self.fs.lookup(new_dir, to.1) {
                Ok(victim) => pinned = self.pin(victim)?,
                Err(Error::NotFound) => {}
                Err(error) => return Err(error),
            }
        }
        let renamed = self.with_space(|| {
            let owner = (caller.uid, caller.gid);
            let (from, to) = ((dir, from.1), (new_dir, to.1));
            self.fs.rename_by(from, to, flags, owner, None)
        });
        self.unpin(pinned, renamed)
    }

    /// READLINK.
    pub fn readlink(&self, node: u64) -> Result<Vec<u8>> {
        self.fs.readlink(ino_of(node))
    }

    /// READDIR, from `cookie` on; `emit` answers `false` when its buffer is full.
    pub fn readdir(
        &self,
        node: u64,
        cookie: u64,
        wants_atime: bool,
        emit: &mut dyn FnMut(DirEntry<'_>) -> bool,
    ) -> Result<()> {
        self.fs.readdir_for(ino_of(node), cookie, wants_atime, emit)
    }

    /// A LOOKUP of what READDIRPLUS lists. `None`: it is left to a LOOKUP.
    pub(crate) fn looked_up(&self, node: u64, found: &DirEntry<'_>) -> Option<Attr> {
        let is_own = matches!(found.name, b"." | b"..");
        let attr = (!is_own).then(|| self.fs.listed(ino_of(node), found).ok())??;
        may_remember(&attr).then(|| self.told(attr))
    }

    // ---- attributes ----

    /// GETATTR.
    pub fn getattr(&self, node: u64) -> Result<Attr> {
        let ino = ino_of(node);
        let mut attr = self.fs.getattr(ino)?;
        if attr.is_sparse() {
            // The kernel asks without writing back first, and programs take a file
            // without blocks for one without data.
            self.fs.stores_are_written(ino)?;
            attr = self.fs.getattr(ino)?;
        }
        self.same(attr)
    }

    /// GETXATTR.
    pub fn getxattr(&self, node: u64, name: &[u8]) -> Result<Vec<u8>> {
        self.fs.getxattr(ino_of(node), name)
    }

    /// SETXATTR, `flags` as in `setxattr(2)`; `kill_set_gid` if the caller that sets an access ACL
    /// may not keep set-gid.
    pub fn setxattr(
        &self,
        node: u64,
        name: &[u8],
        value: &[u8],
        flags: u32,
        kill_set_gid: bool,
    ) -> Result<()> {
        let ino = ino_of(node);
        let of_the_kernel = XattrFlags::CREATE | XattrFlags::REPLACE;
        let mut flags = XattrFlags::from_bits(flags)
            .filter(|&flags| of_the_kernel.contains(flags))
            .ok_or(Error::Invalid(&"setxattr flags"))?;
        // The kernel says it of a default ACL too, which takes nothing away.
        if kill_set_gid && name == ACCESS_ACL {
            flags |= XattrFlags::KILL_SGID;
        }
        self.with_space(|| self.fs.setxattr(ino, name, value, flags))
    }

    /// LISTXATTR: the names, each with a NUL behind it; `trusted.` ones for CAP_SYS_ADMIN alone.
    pub fn listxattr(&self, node: u64, caller: &Caller) -> Result<Vec<u8>> {
        let names = self.fs.listxattr(ino_of(node))?;
        let trusted = |name: &Vec<u8>| name.starts_with(b"trusted.");
        let all = !names.iter().any(trusted) || caller.has_capability(SYS_ADMIN);
        let mut list = Vec::new();
        for name in names.iter().filter(|name| all || !trusted(name)) {
            list.extend_from_slice(name);
            list.push(0);
        }
        Ok(list)
    }

    /// REMOVEXATTR.
    pub fn removexattr(&self, node: u64, name: &[u8]) -> Result<()> {
        self.fs.removexattr(ino_of(node), name)
    }

    /// STATFS.
    pub fn statfs(&self) -> Result<StatFs> {
        self.fs.statfs()
    }

    // ---- data ----

    /// READ.
    pub fn read(
        &self,
        node: u64,
        (handle, wants_atime): (u64, bool),
        offset: u64,
        buffer: &mut [u8],
    ) -> Result<usize> {
        if let Some(follower) = self.following.get(handle) {
            // The kernel has written back what is at its own offset.
            self.fs.stores_are_written(ino_of(node))?;
            return follower.read(&self.fs, offset, buffer);
        }
        self.fs
            .read_for(ino_of(node), offset, buffer, || wants_atime)
    }

    /// WRITE.
    pub fn write(
        &self,
        node: u64,
        handle: u64,
        offset: u64,
        data: &[u8],
        kind: &WriteKind,
    ) -> Result<usize> {
        let ino = ino_of(node);
        self.drop_privileges(ino, kind.kill_set_id.then_some(kind.writer))?;
        let follower = self.following.get(handle);
        let written = self.with_space(|| match &follower {
            // The place is elsewhere than the kernel expects. The offset's holder may wait for
            // pages of this mount, so none are kept from being filled meanwhile; those that were go
            // afterwards.
            Some(follower) => {
                self.fs.own_pages_are_gone(ino)?;
                let written = follower.write(&self.fs, offset, data, kind.append)?;
                self.fs.want_own_pages(ino)?;
                Ok(written)
            }
            None => self.write_placed(ino, handle, offset, data, kind),
        })?;
        self.known.grow(ino, offset + written as u64);
        Ok(written)
    }

    /// FALLOCATE, `mode` as in `fallocate(2)`.
    pub fn fallocate(
        &self,
        node: u64,
        mode: u32,
        offset: u64,
        len: u64,
        caller: &Caller,
    ) -> Result<()> {
        let mode =
            FallocateMode::from_bits(mode).ok_or(Error::NotSupported(&"this mode of fallocate"))?;
        let ino = ino_of(node);
        self.drop_privileges(ino, Some(*caller))?;
        self.with_space(|| self.fs.fallocate(ino, mode, offset, len))?;
        if !mode.contains(FallocateMode::KEEP_SIZE) {
            self.known.grow(ino, offset.saturating_add(len));
        }
        Ok(())
    }

    /// LSEEK with SEEK_DATA. The kernel does not write back first: stores in a hole are data.
    pub fn seek_data(&self, node: u64, offset: u64) -> Result<u64> {
        let ino = ino_of(node);
        match self.fs.seek_data(ino, offset) {
            Ok(found) if found == offset => Ok(found),
            _ => {
                self.fs.stores_are_written(ino)?;
                self.fs.seek_data(ino, offset)
            }
        }
    }

    /// LSEEK with SEEK_HOLE; as [`Server::seek_data`].
    pub fn seek_hole(&self, node: u64, offset: u64) -> Result<u64> {
        let ino = ino_of(node);
        self.fs.stores_are_written(ino)?;
        self.fs.seek_hole(ino, offset)
    }

    /// COPY_FILE_RANGE; may stop short.
    pub fn copy_range(
        &self,
        from: (u64, u64),
        to: (u64, u64),
        len: u64,
        caller: &Caller,
    ) -> Result<u64> {
        let (source, target) = (ino_of(from.0), ino_of(to.0));
        let len = len.min(COPY_MAX);
        self.drop_privileges(target, Some(*caller))?;
        let copy = || self.fs.copy_range(source, from.1, target, to.1, len);
        let copied = self.with_space(copy)?;
        self.known.grow(target, to.1.saturating_add(copied));
        Ok(copied)
    }

    // ---- inodes that the kernel knows ----

    fn told(&self, attr: Attr) -> Attr {
        if attr.ino == ROOT_INO {
            return attr;
        }
        self.known.add(attr.ino, attr.generation, attr.size);
        attr
    }

    /// Refuses an answer about another file than the one that the kernel was told of by this
    /// number: another process has removed that one, and its number was given out anew.
    fn same(&self, attr: Attr) -> Result<Attr> {
        match self.known.see(attr.ino, attr.generation, attr.size) {
            true => Ok(attr),
            false => Err(Error::Stale),
        }
    }

    /// Before a call that may take `victim`'s last name: holds it if the kernel knows it.
    fn pin(&self, victim: Attr) -> Result<Option<Ino>> {
        let last = victim.links <= 1 || victim.mode & mode::S_IFMT == mode::S_IFDIR;
        if !last || !self.known.knows(victim.ino) {
            return Ok(None);
        }
        self.fs.hold(victim.ino)?;
        Ok(Some(victim.ino))
    }

    /// After that call: the hold stays until the kernel forgets, if the last name is indeed gone.
    fn unpin(&self, pinned: Option<Ino>, outcome: Result<()>) -> Result<()> {
        if let Some(ino) = pinned {
            let gone = outcome.is_ok() && self.fs.getattr(ino).is_ok_and(|attr| attr.links == 0);
            if !gone || !self.known.set_held(ino) {
                self.release(ino);
            }
        }
        outcome
    }

    fn release(&self, ino: Ino) {
        self.releasing.fetch_add(1, Ordering::SeqCst);
        if let Err(error) = self.fs.release(ino) {
            log::error!("releasing inode {ino}: {error}");
        }
        self.releasing.fetch_sub(1, Ordering::SeqCst);
    }

    /// Runs `call`, and once more if there was no space while the blocks of an unlinked file were
    /// being given up. The kernel forgets a file in a request of its own that no program waits for,
    /// so `rm` followed by a write could otherwise find the pool still full.
    fn with_space<T>(&self, call: impl Fn() -> Result<T>) -> Result<T> {
        let first = call();
        if !matches!(first, Err(Error::NoSpace | Error::NoInodes)) {
            return first;
        }
        let began = Instant::now();
        // Files that the dead held open are released.
        if let Err(error) = self.fs.recover_dead() {
            log::error!("cleaning up after the dead: {error}");
        }
        // A release that another worker has read but not begun shows up within this.
        std::thread::sleep(Duration::from_millis(1));
        while self.releasing.load(Ordering::SeqCst) > 0 && began.elapsed() < RELEASE_WAIT {
            std::thread::sleep(Duration::from_millis(1));
        }
        call()
    }
}

fn ino_of(node: u64) -> Ino {
    if node == ROOT_NODE { ROOT_INO } else { node }
}

/// Returns whether the kernel may remember these attributes at all. Not of files with set-id bits:
/// a write drops them, and the kernel asks for no new mode after a write. Nor of files with holes,
/// into which programs may store by mappings.
pub(crate) fn may_remember(attr: &Attr) -> bool {
    !(has_set_id(attr) || attr.is_sparse())
}

fn permissions(new: &NewNode) -> NewNode {
    NewNode {
        mode: new.mode & 0o7777,
        ..*new
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::thread;

    use pmfs::OpenOptions;

    use super::*;

    pub(super) fn server(dir: &tempfile::TempDir) -> Server {
        Server::new(crate::temporary::pool(dir))
    }

    const NEW: NewNode = NewNode {
        umask: 0,
        mode: 0o644,
        uid: 0,
        gid: 0,
    };

    const ROOT: Caller = Caller {
        uid: 0,
        gid: 0,
        pid: 0,
    };

    /// A file, closed again.
    pub(super) fn made(server: &Server, name: &[u8]) -> u64 {
        let (attr, handle) = server.create(1, name, &NEW, Access::Both).unwrap();
        server.close_file(attr.ino, handle).unwrap();
        attr.ino
    }

    /// The kernel's offset is where it thinks the end is, which another writer may have moved.
    #[test]
    fn appends_go_to_the_true_end() {
        let dir = crate::temporary::dir();
        let server = server(&dir);
        let node = made(&server, b"a");
        let append = WriteKind {
            append: true,
            ..WriteKind::by(ROOT)
        };
        server.fs.append(node, b"first").unwrap();
        server.write(node, 0, 0, b"second", &append).unwrap();
        let mut content = [0; 32];
        let len = server.read(node, (0, true), 0, &mut content).unwrap();
        assert_eq!(&content[..len], b"firstsecond");
    }

    /// A number lives until the kernel has forgotten it, and not longer.
    #[test]
    fn unlinked_inodes_live_until_forgotten() {
        let dir = crate::temporary::dir();
        let server = server(&dir);
        let node = made(&server, b"a");
        server.lookup(1, b"a").unwrap();
        server.link(node, 1, b"b").unwrap();
        server.unlink(1, b"a").unwrap();
        assert_eq!(server.getattr(node).unwrap().links, 1);
        made(&server, b"c");
        server.rename((1, b"c"), (1, b"b"), 0, &ROOT).unwrap();
        assert_eq!(server.getattr(node).unwrap().links, 0);
        server.forget(node, 2);
        assert_eq!(server.getattr(node).unwrap().links, 0);
        server.forget(node, 1);
        assert!(server.getattr(node).is_err());
    }

    /// Goal: a file made without a name goes when it is forgotten, unless it got one; holds never
    /// add up.
    #[test]
    fn files_without_a_name() {
        let dir = crate::temporary::dir();
        let server = server(&dir);
        let free = server.statfs().unwrap().inodes_free;
        let tmpfile = || {
            let (attr, handle) = server.tmpfile(1, &NEW, Access::Both).unwrap();
            server.close_file(attr.ino, handle).unwrap();
            attr.ino
        };
        let node = tmpfile();
        assert_eq!(server.getattr(node).unwrap().links, 0);
        server.forget(node, 1);
        assert!(server.getattr(node).is_err());
        let node = tmpfile();
        server
            .write(node, 0, 0, b"x", &WriteKind::by(ROOT))
            .unwrap();
        assert_eq!(server.link(node, 1, b"a").unwrap().links, 1);
        server.unlink(1, b"a").unwrap();
        assert_eq!(server.getattr(node).unwrap().size, 1);
        server.link(node, 1, b"b").unwrap_err();
        server.forget(node, 2);
        assert!(server.getattr(node).is_err());
        assert_eq!(server.statfs().unwrap().inodes_free, free);
        let node = tmpfile();
        server.link(node, 1, b"c").unwrap();
        server.forget(node, 2);
        assert_eq!(server.lookup(1, b"c").unwrap().ino, node);
    }

    /// Goal: an open file outlives its names, also when another process takes them; and a number
    /// that was given out anew is not taken for the file that the kernel knows.
    #[test]
    fn others_unlink_what_is_open() {
        let dir = crate::temporary::dir();
        let server = server(&dir);
        let path = dir.path().join("pool");
        let other = Fs::open(&path, &OpenOptions::default()).unwrap();
        let (attr, handle) = server.create(1, b"a", &NEW, Access::Both).unwrap();
        let node = attr.ino;
        server
            .write(node, 0, 0, b"x", &WriteKind::by(ROOT))
            .unwrap();
        other.unlink(ROOT_INO, b"a").unwrap();
        let mut content = [0; 4];
        assert_eq!(server.read(node, (0, true), 0, &mut content).unwrap(), 1);
        server.close_file(node, handle).unwrap();
        assert!(server.getattr(node).is_err());
        // The number comes back with another file.
        let mut names = (0..10_000).map(|n| format!("n{n}"));
        let again = names.find_map(|name| {
            let attr = other.create(ROOT_INO, name.as_bytes(), &NEW).unwrap();
            (attr.ino == node).then_some(name)
        });
        if let Some(name) = again {
            assert!(matches!(
                server.open(node, Access::Reading),
                Err(Error::Stale)
            ));
            assert!(matches!(server.getattr(node), Err(Error::Stale)));
            server.lookup(1, name.as_bytes()).unwrap();
            let handle = server.open(node, Access::Reading).unwrap();
            server.close_file(node, handle).unwrap();
        }
        other.close().unwrap();
    }

    #[test]
    fn a_call_without_space_waits_for_a_release() {
        let dir = crate::temporary::dir();
        let server = server(&dir);
        server.releasing.store(1, Ordering::SeqCst);
        let calls = Cell::new(0);
        thread::scope(|scope| {
            scope.spawn(|| {
                thread::sleep(Duration::from_millis(50));
                server.releasing.store(0, Ordering::SeqCst);
            });
            let answer = server.with_space(|| {
                calls.set(calls.get() + 1);
                match server.releasing.load(Ordering::SeqCst) {
                    0 => Ok(()),
                    _ => Err(Error::NoSpace),
                }
            });
            assert!(answer.is_ok());
        });
        assert_eq!(calls.get(), 2);
    }
}
