//! Handles that stand for an open file of the pool, which other processes have: a request through
//! such a handle begins at that file's offset, and moves it.
//!
//! The kernel keeps an offset of its own for each handle, sends it with each request, and does not
//! tell when it is moved, nor whether a request is a read(2) or a pread(2). A request at the end of
//! the last one is therefore taken for its continuation, and begins at the open file's present
//! offset. Any other has its own place, and the open file goes on behind it: after an lseek(2) that
//! is right, after a pread(2) or pwrite(2) the offset has moved when it should not have.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use pmfs::{Error, FileId, Fs, Result};

use super::{Server, ino_of};

/// A handle of this kind.
pub(super) struct Follower {
    pub(super) file: FileId,
    /// The kernel's offset, as far as its requests tell.
    kernel: Mutex<u64>,
}

impl Follower {
    /// Does something at the place that a request means; `body` answers how far it came.
    fn at(
        &self,
        fs: &Fs,
        offset: u64,
        append: bool,
        body: impl FnOnce(u64) -> Result<(u64, usize)>,
    ) -> Result<usize> {
        let mut kernel = self.kernel.lock().unwrap_or_else(PoisonError::into_inner);
        let goes_on = offset == *kernel && !append;
        let done = fs.at_offset(self.file, |now| {
            body(if goes_on { now.offset } else { offset })
        })?;
        *kernel = offset + done as u64;
        Ok(done)
    }

    pub(super) fn read(&self, fs: &Fs, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        let open = fs.file(self.file)?;
        self.at(fs, offset, false, |at| {
            let read = fs.read_for(open.ino, at, buffer, || open.wants_atime())?;
            Ok((at + read as u64, read))
        })
    }

    pub(super) fn write(&self, fs: &Fs, offset: u64, data: &[u8], append: bool) -> Result<usize> {
        let ino = fs.file(self.file)?.ino;
        self.at(fs, offset, append, |at| {
            let (at, written) = if append {
                fs.append(ino, data)?
            } else {
                (at, fs.write(ino, at, data)?)
            };
            Ok((at + written as u64, written))
        })
    }
}

/// The followed files of a mount, by handle.
#[derive(Default)]
pub(super) struct Following {
    count: AtomicUsize,
    handles: Mutex<HashMap<u64, Arc<Follower>>>,
}

impl Following {
    #[inline]
    pub(super) fn get(&self, handle: u64) -> Option<Arc<Follower>> {
        if self.count.load(Ordering::Acquire) == 0 {
            return None;
        }
        self.change(|handles| handles.get(&handle).cloned())
    }

    pub(super) fn remove(&self, handle: u64) -> Option<Arc<Follower>> {
        if self.count.load(Ordering::Acquire) == 0 {
            return None;
        }
        self.change(|handles| handles.remove(&handle))
    }

    pub(super) fn drain(&self) -> Vec<Arc<Follower>> {
        self.change(|handles| handles.drain().map(|(_, follower)| follower).collect())
    }

    fn change<T>(&self, body: impl FnOnce(&mut HashMap<u64, Arc<Follower>>) -> T) -> T {
        let mut handles = self.handles.lock().unwrap_or_else(PoisonError::into_inner);
        let answer = body(&mut handles);
        self.count.store(handles.len(), Ordering::Release);
        answer
    }
}

impl Server {
    /// A handle stands for the open file of that number from now on; the kernel's
    /// offset of it is `at`. `uid` asks for it.
    ///
    /// # Errors
    /// [`Error::NotPermitted`] for a caller that is neither root nor this process's user;
    /// [`Error::NotOpen`] if it is no open file, or another inode's; [`Error::NotSupported`] where
    /// the kernel answers reads from its pages.
    pub(crate) fn follow(
        &self,
        uid: u32,
        node: u64,
        handle: u64,
        number: u64,
        at: u64,
    ) -> Result<()> {
        if uid != 0 && uid != rustix::process::geteuid().as_raw() {
            return Err(Error::NotPermitted(&"open files of another user's pool"));
        }
        if self.is_cached {
            return Err(Error::NotSupported(&"shared offsets, by this kernel"));
        }
        let file = FileId::from_number(number);
        if self.fs.file(file)?.ino != ino_of(node) {
            return Err(Error::NotOpen);
        }
        self.fs.share_file(file)?;
        let follower = Arc::new(Follower {
            file,
            kernel: Mutex::new(at),
        });
        let before = self
            .following
            .change(|handles| handles.insert(handle, follower));
        self.stop_following(before)
    }

    /// The handle is no more, or another file's.
    pub(super) fn stop_following(&self, follower: Option<Arc<Follower>>) -> Result<()> {
        follower.map_or(Ok(()), |follower| self.fs.close_file(follower.file))
    }
}

#[cfg(test)]
mod tests {
    use std::io::SeekFrom;

    use pmfs::{NewNode, ROOT_INO};
    use pmfs_admin::Admin;

    use super::*;
    use crate::caller::Caller;
    use crate::server::{Access, WriteKind};

    /// A file of ten digits that a process has open at offset 2, and a handle that follows.
    struct Case {
        server: Server,
        file: FileId,
        node: u64,
        handle: u64,
        _dir: tempfile::TempDir,
    }

    impl Case {
        fn new() -> Case {
            let dir = crate::temporary::dir();
            let fs = crate::temporary::pool(&dir);
            let new = NewNode {
                mode: 0o644,
                umask: 0,
                uid: 0,
                gid: 0,
            };
            let node = fs.create(ROOT_INO, b"file", &new).unwrap().ino;
            fs.write(node, 0, b"0123456789").unwrap();
            let file = fs.open_file(node, 0).unwrap();
            fs.seek_file(file, SeekFrom::Start(2)).unwrap();
            let server = Server::new(fs);
            let handle = server.open(node, Access::Both).unwrap();
            server.follow(0, node, handle, file.number(), 2).unwrap();
            Case {
                server,
                file,
                node,
                handle,
                _dir: dir,
            }
        }

        fn read(&self, offset: u64, len: usize) -> Vec<u8> {
            let mut buffer = vec![0; len];
            let read = self
                .server
                .read(self.node, (self.handle, true), offset, &mut buffer);
            buffer.truncate(read.unwrap());
            buffer
        }

        fn write(&self, offset: u64, data: &[u8], append: bool) {
            let nobody = Caller {
                uid: 0,
                gid: 0,
                pid: 0,
            };
            let kind = WriteKind {
                append,
                ..WriteKind::by(nobody)
            };
            let written = self
                .server
                .write(self.node, self.handle, offset, data, &kind);
            assert_eq!(written.unwrap(), data.len());
        }

        fn offset(&self) -> u64 {
            self.server.fs.file(self.file).unwrap().offset
        }
    }

    /// The kernel's offset stays behind when others move the shared one.
    #[test]
    fn what_goes_on_goes_on_where_the_open_file_is() {
        let case = Case::new();
        assert_eq!(case.read(2, 3), b"234");
        assert_eq!(case.offset(), 5);
        case.server
            .fs
            .write_file(case.file, b"XY", |_| false)
            .unwrap();
        assert_eq!(case.read(5, 2), b"78");
        case.write(7, b"Z", false);
        assert_eq!(case.offset(), 10);
        let mut all = [0; 20];
        assert_eq!(case.server.fs.read(case.node, 0, &mut all).unwrap(), 10);
        assert_eq!(&all[..10], b"01234XY78Z");
    }

    #[test]
    fn what_has_its_own_place_moves_the_open_file() {
        let case = Case::new();
        assert_eq!(case.read(6, 2), b"67");
        assert_eq!(case.offset(), 8);
        case.write(3, b"append", true);
        assert_eq!(case.offset(), 16);
        // The write above left the kernel's offset here, which is not the file's end.
        case.write(9, b"!", false);
        assert_eq!(case.offset(), 17);
    }

    #[test]
    fn strangers_files_and_users_are_refused() {
        let case = Case::new();
        let follow = |uid, node, number| case.server.follow(uid, node, case.handle, number, 0);
        let number = case.file.number();
        let own = rustix::process::geteuid().as_raw();
        let refused = follow(own + 1, case.node, number);
        assert!(matches!(refused, Err(Error::NotPermitted(_))));
        let other = follow(0, ROOT_INO, number);
        assert!(matches!(other, Err(Error::NotOpen)));
        assert!(follow(0, case.node, number + 1).is_err());
        follow(own, case.node, number).unwrap();
    }

    /// The handle keeps the open file, and its end is the end of that.
    #[test]
    fn an_open_file_lasts_as_long_as_its_handle() {
        let case = Case::new();
        case.server.fs.close_file(case.file).unwrap();
        assert_eq!(case.read(2, 1), b"2");
        case.server.close_file(case.node, case.handle).unwrap();
        assert!(matches!(
            case.server.fs.file(case.file),
            Err(Error::NotOpen)
        ));
        assert!(case.server.following.get(case.handle).is_none());
    }

    /// Goal: a handle that follows gives up what it has taken, and nothing of others.
    /// Method: another process's open file; one more handle, and the file loses its name.
    #[test]
    fn whose_open_file_it_was_does_not_matter() {
        let case = Case::new();
        let path = case._dir.path().join("pool");
        let program = Fs::open(&path, &pmfs::OpenOptions::default()).unwrap();
        case.server.fs.close_file(case.file).unwrap();
        let file = program.open_file(case.node, 0).unwrap();
        let handles = [0; 2].map(|_| case.server.open(case.node, Access::Both).unwrap());
        for _ in 0..2 {
            let followed = case
                .server
                .follow(0, case.node, handles[0], file.number(), 0);
            followed.unwrap();
        }
        program.close_file(file).unwrap();
        program.unlink(ROOT_INO, b"file").unwrap();
        let close = |handle| case.server.close_file(case.node, handle).unwrap();
        close(case.handle);
        close(handles[0]);
        assert!(case.server.fs.getattr(case.node).is_ok(), "one is open");
        close(handles[1]);
        assert!(case.server.fs.getattr(case.node).is_err());
        assert!(program.holdings().is_empty());
        program.close().unwrap();
    }
}
