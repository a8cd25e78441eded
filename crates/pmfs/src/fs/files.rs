//! Calls on held inodes, and on open files with their offsets.

use super::Fs;
use crate::open::open_file::OpenFile;
use crate::types::{Attr, FileId, Ino};
use pm_journal::error::Result;
use std::io::SeekFrom;

#[allow(clippy::missing_errors_doc)]
impl Fs {
    /// Holds an inode: it and its blocks outlive its last name until [`Fs::release`] was called as
    /// often.
    pub fn hold(&self, ino: Ino) -> Result<Attr> {
        self.change(|pool| pool.hold(ino))
    }

    /// Ends one hold. The last one of an inode without a name frees it.
    pub fn release(&self, ino: Ino) -> Result<()> {
        self.store(|pool| pool.release(ino))
    }

    /// Creates an open file of an inode, with offset 0 and one descriptor of this process. `flags`
    /// are the caller's.
    ///
    /// # Errors
    /// [`crate::Error::TooManyOpen`]; [`crate::Error::Stale`] or [`crate::Error::NotFound`]: the
    /// inode is gone.
    pub fn open_file(&self, ino: Ino, flags: u64) -> Result<FileId> {
        self.change(|pool| pool.open_file(ino, flags))
    }

    /// Opens as [`Fs::open_file`] does, after a lookup. [`crate::Error::Stale`] if the inode has
    /// gone since, even if its number belongs to another inode now.
    pub fn open_found(&self, found: &Attr, flags: u64) -> Result<FileId> {
        self.change(|pool| pool.open_found(found, flags))
    }

    /// The inode, offset and flags of an open file.
    pub fn file(&self, file: FileId) -> Result<OpenFile> {
        self.pool().file_state(file)
    }

    /// The flags of an open file that this process has, as its sharers have last set them. There is
    /// no check that the process has it.
    #[inline]
    #[must_use]
    pub fn file_flags(&self, file: FileId) -> u64 {
        self.pool().file_flags(file)
    }

    /// Sets those flags of an open file that may change.
    pub fn set_file_flags(&self, file: FileId, flags: u64) -> Result<()> {
        self.store(|pool| pool.set_file_flags(file, flags))
    }

    /// Adds a descriptor of this process to an open file that it has; [`Fs::close_file`] removes
    /// it.
    pub fn dup_file(&self, file: FileId) -> Result<()> {
        self.store(|pool| pool.dup_file(file))
    }

    /// Adds a descriptor as [`Fs::dup_file`] does, even if only another process has the open file.
    pub fn share_file(&self, file: FileId) -> Result<()> {
        self.store(|pool| pool.share_file(file))
    }

    /// Removes a descriptor of this process. The last one of all processes ends the open file and
    /// its locks.
    pub fn close_file(&self, file: FileId) -> Result<()> {
        self.store(|pool| pool.close_file(file))
    }

    /// Reads at an open file's offset and advances it by the bytes read.
    pub fn read_file(&self, file: FileId, buffer: &mut [u8]) -> Result<usize> {
        self.pool().at_offset(file, |now| {
            let wants_atime = || now.wants_atime();
            let read = self.read_for(now.ino, now.offset, buffer, wants_atime)?;
            Ok((now.offset + read as u64, read))
        })
    }

    /// Writes at an open file's offset, or at the end of the file if `append` returns true for its
    /// state, and sets the offset behind the written bytes.
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

    /// Calls `body` with an open file's offset and advances it by the first result. No other call
    /// moves it meanwhile.
    pub fn at_offset(
        &self,
        file: FileId,
        body: impl FnOnce(OpenFile) -> Result<(u64, usize)>,
    ) -> Result<usize> {
        self.pool().at_offset(file, body)
    }

    /// Moves an open file's offset and returns the new one, as `lseek(2)` does.
    pub fn seek_file(&self, file: FileId, to: SeekFrom) -> Result<u64> {
        self.store(|pool| pool.seek_file(file, to))
    }

    /// Calls `body` with the offsets of the named ones of two open files, and advances each by its
    /// first results. No other call moves either meanwhile.
    pub fn at_offsets(
        &self,
        files: [Option<FileId>; 2],
        body: impl FnOnce([u64; 2]) -> Result<([u64; 2], u64)>,
    ) -> Result<u64> {
        self.pool().at_offsets(files, body)
    }
}
