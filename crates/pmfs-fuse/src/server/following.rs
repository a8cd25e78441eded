//! Handles that stand for an open file of the pool, which others have in their process: what is done through them moves that file's offset,
//! and begins at it.
//!
//! The kernel keeps an offset of its own for each handle, sends it with each request, and tells nobody when it is moved; and it does not
//! say whether a request is a read(2) or a pread(2). So a request where the last one ended is taken for one that goes on, and
//! goes on where the open file is by now. Any other has its own place, and the open file goes on behind it: after an lseek(2)
//! that is right, after a pread(2) or pwrite(2) the offset has moved when it should not have.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use pmfs::{Error, FileId, Fs, Result};

use super::{Server, ino_of};

/// One of them.
pub(super) struct Follower {
    pub(super) file: FileId,
    /// Where the kernel's offset is, as far as its requests tell.
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
        let ino = fs.file(self.file)?.ino;
        self.at(fs, offset, false, |at| {
            let read = fs.read(ino, at, buffer)?;
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

/// Those of a mount, by handle.
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
    /// A handle stands for the open file of that number from now on; the kernel's offset of it is `at`. `uid` asks for it.
    ///
    /// # Errors
    /// [`Error::NotPermitted`] for who is neither root nor this process's user; [`Error::NotOpen`] if it is no open file, or
    /// another inode's; [`Error::NotSupported`] where the kernel answers reads from its pages.
    pub(crate) fn follow(
        &self,
        uid: u32,
        node: u64,
        handle: u64,
        number: u64,
        at: u64,
    ) -> Result<()> {
        if uid != 0 && uid != rustix::process::geteuid().as_raw() {
            return Err(Error::NotPermitted("open files of another user's pool"));
        }
        if self.is_cached {
            return Err(Error::NotSupported("shared offsets, by this kernel"));
        }
        let file = FileId::from_number(number);
        if self.fs.file(file)?.ino != ino_of(node) {
            return Err(Error::NotOpen);
        }
        self.fs.dup_file(file)?;
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
