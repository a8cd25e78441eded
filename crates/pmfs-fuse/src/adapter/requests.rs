//! The kernel's requests, as `fuser` hands them over, each passed to the [`Server`].

use std::any::Any;
use std::cell::RefCell;
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use fuser::{
    CopyFileRangeFlags, Errno, FileHandle, Filesystem, FopenFlags, INodeNo, InitFlags, IoctlFlags,
    KernelConfig, LockOwner, OpenFlags, PollEvents, PollFlags, PollNotifier,
    RenameFlags as FuserRename, ReplyAttr, ReplyBmap, ReplyCreate, ReplyData, ReplyDirectory,
    ReplyEmpty, ReplyEntry, ReplyIoctl, ReplyLseek, ReplyOpen, ReplyPoll, ReplyStatfs, ReplyWrite,
    ReplyXattr, Request, TimeOrNow, WriteFlags,
};
use pmfs::types::mode;
use pmfs::{Attr, Error, SetAttr};
use rustix::fs::OFlags;

use super::translate::{caller, file_attr, file_type, generation, new_node, set_time};
use crate::freeze::{self, Frozen};
use crate::server::{Server, WriteKind};

/// How long the kernel may remember names and attributes, if it may at all: every change passes through it.
const REMEMBERED: Duration = Duration::from_secs(1);

/// Bytes a request may carry; a larger write is cut by the kernel, in order.
const WRITE_MAX: u32 = 1 << 20;

const SEEK_DATA: i32 = 3;
const SEEK_HOLE: i32 = 4;

/// `fuser`'s view of a [`Server`].
pub(super) struct Adapter {
    server: Arc<Server>,
    /// What each file is opened with; settled by INIT.
    open_flags: FopenFlags,
    /// How long an answer about a name or an inode holds.
    ttl: Duration,
    /// The kernel enforces ACLs; settled by INIT.
    acls: bool,
}

impl Adapter {
    pub(super) fn new(server: Arc<Server>, cache: bool) -> Adapter {
        Adapter {
            server,
            ttl: if cache { REMEMBERED } else { Duration::ZERO },
            open_flags: FopenFlags::empty(),
            acls: false,
        }
    }

    /// How long the kernel may take these attributes for granted. Not at all with set-id bits: a write drops them,
    /// and the kernel asks for no new mode after a write.
    fn ttl_of(&self, attr: &Attr) -> Duration {
        let set_id = attr.mode & (mode::S_ISUID | mode::S_ISGID) != 0;
        if set_id && attr.mode & mode::S_IFMT == mode::S_IFREG {
            Duration::ZERO
        } else {
            self.ttl
        }
    }

    /// ACLs are refused where nobody would enforce them.
    fn enforced<'a>(&self, name: &'a OsStr) -> pmfs::Result<&'a [u8]> {
        let name = name.as_bytes();
        if !self.acls && name.starts_with(b"system.") {
            return Err(Error::NotSupported("ACLs, by this kernel"));
        }
        Ok(name)
    }

    /// Runs one request: keeps the pool attached, turns errors into numbers, survives panics.
    fn run<T>(
        &self,
        request: &'static str,
        body: impl FnOnce(&Server) -> pmfs::Result<T>,
    ) -> Result<T, Errno> {
        let guarded = || {
            let _pass = self.server.pass(freeze::changes(request));
            let _attached = self.server.enter()?;
            body(&self.server)
        };
        match catch_unwind(AssertUnwindSafe(guarded)) {
            Ok(Ok(value)) => Ok(value),
            Ok(Err(error)) => {
                let errno = error.errno();
                if errno == rustix::io::Errno::IO {
                    log::error!("{request}: {error}");
                }
                Err(Errno::from_i32(errno.raw_os_error()))
            }
            Err(panic) => {
                log::error!("{request} panicked: {}; answered EIO", words(&*panic));
                Err(Errno::EIO)
            }
        }
    }

    fn entry(
        &self,
        reply: ReplyEntry,
        request: &'static str,
        body: impl FnOnce(&Server) -> pmfs::Result<Attr>,
    ) {
        match self.run(request, body) {
            Ok(attr) => reply.entry(&self.ttl_of(&attr), &file_attr(&attr), generation(&attr)),
            Err(errno) => reply.error(errno),
        }
    }

    fn attr(
        &self,
        reply: ReplyAttr,
        request: &'static str,
        body: impl FnOnce(&Server) -> pmfs::Result<Attr>,
    ) {
        match self.run(request, body) {
            Ok(attr) => reply.attr(&self.ttl_of(&attr), &file_attr(&attr)),
            Err(errno) => reply.error(errno),
        }
    }

    fn empty(
        &self,
        reply: ReplyEmpty,
        request: &'static str,
        body: impl FnOnce(&Server) -> pmfs::Result<()>,
    ) {
        match self.run(request, body) {
            Ok(()) => reply.ok(),
            Err(errno) => reply.error(errno),
        }
    }

    /// GETXATTR and LISTXATTR: the caller's room is `size` bytes, and 0 asks how much it takes.
    fn xattr(
        &self,
        reply: ReplyXattr,
        request: &'static str,
        size: u32,
        body: impl FnOnce(&Server) -> pmfs::Result<Vec<u8>>,
    ) {
        match self.run(request, body) {
            Ok(value) if size == 0 => reply.size(value.len() as u32),
            Ok(value) if value.len() > size as usize => reply.error(Errno::ERANGE),
            Ok(value) => reply.data(&value),
            Err(errno) => reply.error(errno),
        }
    }
}

thread_local! {
    /// Where reads land, one for each worker, as large as the largest so far.
    static READ_BUFFER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

impl Filesystem for Adapter {
    fn init(&mut self, _request: &Request, config: &mut KernelConfig) -> io::Result<()> {
        let _ = config.set_max_write(WRITE_MAX);
        // AUTO_INVAL_DATA: pages of mappings are dropped once size or mtime say they are old.
        for wish in [
            InitFlags::FUSE_PARALLEL_DIROPS,
            InitFlags::FUSE_AUTO_INVAL_DATA,
            InitFlags::FUSE_HAS_IOCTL_DIR,
        ] {
            if config.add_capabilities(wish).is_err() {
                log::info!("the kernel does not offer {wish:?}");
            }
        }
        // The umask comes along, because a default ACL takes its place.
        self.acls = config
            .add_capabilities(InitFlags::FUSE_POSIX_ACL | InitFlags::FUSE_DONT_MASK)
            .is_ok();
        if !self.acls {
            log::info!("the kernel does not offer ACLs");
        }
        if config
            .add_capabilities(InitFlags::FUSE_DIRECT_IO_ALLOW_MMAP)
            .is_ok()
        {
            self.open_flags =
                FopenFlags::FOPEN_DIRECT_IO | FopenFlags::FOPEN_PARALLEL_DIRECT_WRITES;
        } else {
            log::info!("before Linux 6.6 files can't be mapped under direct I/O: cached instead");
        }
        Ok(())
    }

    fn lookup(&self, _request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        self.entry(reply, "lookup", |server| {
            server.lookup(parent.0, name.as_bytes())
        });
    }

    fn forget(&self, _request: &Request, node: INodeNo, count: u64) {
        let _ = self.run("forget", |server| {
            server.forget(node.0, count);
            Ok(())
        });
    }

    fn getattr(&self, _: &Request, node: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        self.attr(reply, "getattr", |server| server.getattr(node.0));
    }

    fn setattr(
        &self,
        _request: &Request,
        node: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        atime: Option<TimeOrNow>,
        mtime: Option<TimeOrNow>,
        // The kernel sends its own ctime only under the writeback cache; the engine's clock it is.
        _ctime: Option<SystemTime>,
        _handle: Option<FileHandle>,
        _crtime: Option<SystemTime>,
        _chgtime: Option<SystemTime>,
        _bkuptime: Option<SystemTime>,
        _flags: Option<fuser::BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let set = SetAttr {
            mode: mode.map(|mode| mode & 0o7777),
            uid,
            gid,
            size,
            atime_ns: atime.map(set_time),
            mtime_ns: mtime.map(set_time),
            ctime_ns: None,
        };
        self.attr(reply, "setattr", |server| server.setattr(node.0, &set));
    }

    fn readlink(&self, _request: &Request, node: INodeNo, reply: ReplyData) {
        match self.run("readlink", |server| server.readlink(node.0)) {
            Ok(target) => reply.data(&target),
            Err(errno) => reply.error(errno),
        }
    }

    fn mknod(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        rdev: u32,
        reply: ReplyEntry,
    ) {
        let new = new_node(request, mode, umask);
        self.entry(reply, "mknod", |server| {
            server.mknod(parent.0, name.as_bytes(), &new, rdev)
        });
    }

    fn mkdir(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        reply: ReplyEntry,
    ) {
        let new = new_node(request, mode, umask);
        self.entry(reply, "mkdir", |server| {
            server.mkdir(parent.0, name.as_bytes(), &new)
        });
    }

    fn unlink(&self, _request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        self.empty(reply, "unlink", |server| {
            server.unlink(parent.0, name.as_bytes())
        });
    }

    fn rmdir(&self, _request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        self.empty(reply, "rmdir", |server| {
            server.rmdir(parent.0, name.as_bytes())
        });
    }

    fn symlink(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        target: &Path,
        reply: ReplyEntry,
    ) {
        let new = new_node(request, 0o777, 0);
        let target = target.as_os_str().as_bytes();
        self.entry(reply, "symlink", |server| {
            server.symlink(parent.0, name.as_bytes(), target, &new)
        });
    }

    fn rename(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        new_parent: INodeNo,
        new_name: &OsStr,
        flags: FuserRename,
        reply: ReplyEmpty,
    ) {
        let from = (parent.0, name.as_bytes());
        let to = (new_parent.0, new_name.as_bytes());
        self.empty(reply, "rename", |server| {
            server.rename(from, to, flags.bits(), &caller(request))
        });
    }

    fn link(
        &self,
        _request: &Request,
        node: INodeNo,
        new_parent: INodeNo,
        new_name: &OsStr,
        reply: ReplyEntry,
    ) {
        self.entry(reply, "link", |server| {
            server.link(node.0, new_parent.0, new_name.as_bytes())
        });
    }

    // The kernel forgets a node only after its last close, so an open file needs no hold of its own.
    fn open(&self, _request: &Request, _node: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        reply.opened(FileHandle(0), self.open_flags);
    }

    fn create(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        _flags: i32,
        reply: ReplyCreate,
    ) {
        let new = new_node(request, mode & 0o7777, umask);
        match self.run("create", |server| {
            server.create(parent.0, name.as_bytes(), &new)
        }) {
            Ok(attr) => reply.created(
                &self.ttl_of(&attr),
                &file_attr(&attr),
                generation(&attr),
                FileHandle(0),
                self.open_flags,
            ),
            Err(errno) => reply.error(errno),
        }
    }

    fn read(
        &self,
        _request: &Request,
        node: INodeNo,
        _handle: FileHandle,
        offset: u64,
        size: u32,
        _flags: OpenFlags,
        _owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        READ_BUFFER.with_borrow_mut(|buffer| {
            let size = size as usize;
            if buffer.len() < size {
                buffer.resize(size, 0);
            }
            match self.run("read", |server| {
                server.read(node.0, offset, &mut buffer[..size])
            }) {
                Ok(len) => reply.data(&buffer[..len]),
                Err(errno) => reply.error(errno),
            }
        });
    }

    fn write(
        &self,
        request: &Request,
        node: INodeNo,
        _handle: FileHandle,
        offset: u64,
        data: &[u8],
        write_flags: WriteFlags,
        flags: OpenFlags,
        _owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        // A page written back has its place, however the file was opened.
        let cached = write_flags.contains(WriteFlags::FUSE_WRITE_CACHE);
        let flags = OFlags::from_bits_retain(flags.0 as u32);
        let kind = WriteKind {
            append: !cached && flags.contains(OFlags::APPEND),
            kill_set_id: write_flags
                .contains(WriteFlags::FUSE_WRITE_KILL_SUIDGID)
                .then(|| caller(request)),
        };
        match self.run("write", |server| server.write(node.0, offset, data, kind)) {
            Ok(written) => reply.written(written as u32),
            Err(errno) => reply.error(errno),
        }
    }

    fn flush(
        &self,
        _request: &Request,
        _node: INodeNo,
        _handle: FileHandle,
        _owner: LockOwner,
        reply: ReplyEmpty,
    ) {
        reply.error(Errno::ENOSYS);
    }

    fn fsync(&self, _: &Request, _: INodeNo, _: FileHandle, _datasync: bool, reply: ReplyEmpty) {
        reply.error(Errno::ENOSYS);
    }

    fn fsyncdir(&self, _: &Request, _: INodeNo, _: FileHandle, _datasync: bool, reply: ReplyEmpty) {
        reply.error(Errno::ENOSYS);
    }

    fn readdir(
        &self,
        _request: &Request,
        node: INodeNo,
        _handle: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        let filled = self.run("readdir", |server| {
            server.readdir(node.0, offset, &mut |entry| {
                let name = OsStr::from_bytes(entry.name);
                !reply.add(
                    INodeNo(entry.ino),
                    entry.cookie,
                    file_type(entry.kind),
                    name,
                )
            })
        });
        match filled {
            Ok(()) => reply.ok(),
            Err(errno) => reply.error(errno),
        }
    }

    fn statfs(&self, _request: &Request, _node: INodeNo, reply: ReplyStatfs) {
        match self.run("statfs", Server::statfs) {
            Ok(stat) => reply.statfs(
                stat.blocks,
                stat.blocks_free,
                stat.blocks_free,
                stat.inodes,
                stat.inodes_free,
                stat.block_size,
                stat.name_max,
                stat.block_size,
            ),
            Err(errno) => reply.error(errno),
        }
    }

    fn setxattr(
        &self,
        request: &Request,
        node: INodeNo,
        name: &OsStr,
        value: &[u8],
        flags: i32,
        _position: u32,
        reply: ReplyEmpty,
    ) {
        self.empty(reply, "setxattr", |server| {
            let name = self.enforced(name)?;
            server.setxattr(node.0, name, value, flags as u32, &caller(request))
        });
    }

    fn getxattr(&self, _: &Request, node: INodeNo, name: &OsStr, size: u32, reply: ReplyXattr) {
        self.xattr(reply, "getxattr", size, |server| {
            server.getxattr(node.0, self.enforced(name)?)
        });
    }

    fn listxattr(&self, request: &Request, node: INodeNo, size: u32, reply: ReplyXattr) {
        self.xattr(reply, "listxattr", size, |server| {
            server.listxattr(node.0, &caller(request))
        });
    }

    fn removexattr(&self, _request: &Request, node: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        self.empty(reply, "removexattr", |server| {
            server.removexattr(node.0, self.enforced(name)?)
        });
    }

    // Terminals are asked for by programs that only want to know whether this is one.
    fn ioctl(
        &self,
        request: &Request,
        _node: INodeNo,
        _handle: FileHandle,
        _flags: IoctlFlags,
        command: u32,
        _in_data: &[u8],
        _out_size: u32,
        reply: ReplyIoctl,
    ) {
        if command != freeze::REQUEST {
            return reply.error(Errno::ENOTTY);
        }
        // Not as the others: it waits for them, so it must not hold what they wait for.
        match self.server.freeze(request.uid()) {
            Ok(frozen) => reply.ioctl(i32::from(frozen == Frozen::Damaged), &[]),
            Err(error) => reply.error(Errno::from_i32(error.errno().raw_os_error())),
        }
    }

    // The kernel then takes files for always ready, and does not ask again.
    fn poll(
        &self,
        _request: &Request,
        _node: INodeNo,
        _handle: FileHandle,
        _notifier: PollNotifier,
        _events: PollEvents,
        _flags: PollFlags,
        reply: ReplyPoll,
    ) {
        reply.error(Errno::ENOSYS);
    }

    fn bmap(&self, _: &Request, _: INodeNo, _block_bytes: u32, _index: u64, reply: ReplyBmap) {
        reply.error(Errno::ENOSYS);
    }

    fn fallocate(
        &self,
        _request: &Request,
        node: INodeNo,
        _handle: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        self.empty(reply, "fallocate", |server| {
            server.fallocate(node.0, mode as u32, offset, length)
        });
    }

    fn lseek(
        &self,
        _request: &Request,
        node: INodeNo,
        _handle: FileHandle,
        offset: i64,
        whence: i32,
        reply: ReplyLseek,
    ) {
        let found = self.run("lseek", |server| {
            let offset = u64::try_from(offset).map_err(|_| Error::NoSuchOffset)?;
            match whence {
                SEEK_DATA => server.seek_data(node.0, offset),
                SEEK_HOLE => server.seek_hole(node.0, offset),
                _ => Err(Error::Invalid("whence")),
            }
        });
        match found {
            Ok(offset) => reply.offset(offset as i64),
            Err(errno) => reply.error(errno),
        }
    }

    fn copy_file_range(
        &self,
        _request: &Request,
        node_in: INodeNo,
        _handle_in: FileHandle,
        offset_in: u64,
        node_out: INodeNo,
        _handle_out: FileHandle,
        offset_out: u64,
        len: u64,
        _flags: CopyFileRangeFlags,
        reply: ReplyWrite,
    ) {
        let from = (node_in.0, offset_in);
        let to = (node_out.0, offset_out);
        match self.run("copy_file_range", |server| server.copy_range(from, to, len)) {
            Ok(copied) => reply.written(copied as u32),
            Err(errno) => reply.error(errno),
        }
    }
}

fn words(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("(no message)")
}

#[cfg(test)]
mod tests {
    use super::*;
    use pmfs::Fs;

    /// Also after a panic requests are answered, and after the end none is.
    #[test]
    fn panics_and_errors_become_numbers() {
        let dir = crate::temporary::dir();
        let pool = dir.path().join("pool");
        let options = pmfs::MkfsOptions {
            size: Some(64 << 20),
            ..Default::default()
        };
        Fs::mkfs(&pool, &options).unwrap();
        let fs = Fs::open(&pool, &pmfs::OpenOptions::default()).unwrap();
        let server = Arc::new(Server::new(Arc::new(fs)));
        let adapter = Adapter::new(Arc::clone(&server), true);
        let panicked = adapter.run("test", |_| -> pmfs::Result<()> { panic!("on purpose") });
        assert_eq!(panicked.unwrap_err().code(), Errno::EIO.code());
        let absent = adapter.run("test", |server| server.lookup(1, b"absent"));
        assert_eq!(absent.unwrap_err().code(), Errno::ENOENT.code());
        assert_eq!(
            adapter.run("test", |server| server.getattr(1)).unwrap().ino,
            pmfs::ROOT_INO
        );
        server.close().unwrap();
        let after = adapter.run("test", |server| server.getattr(1));
        assert_eq!(after.unwrap_err().code(), Errno::EIO.code());
    }
}
