//! Calls on what is held open, and on open files with their offsets.

use super::Fs;
use crate::open::open_file::OpenFile;
use crate::types::{Attr, FileId, Ino};
use pm_journal::error::Result;
use std::io::SeekFrom;

#[allow(clippy::missing_errors_doc)]
impl Fs {
    /// Holds an inode open: it and its blocks outlive its last name until as many releases.
    pub fn hold(&self, ino: Ino) -> Result<Attr> {
        self.change(|pool| pool.hold(ino))
    }

    /// Ends one hold.
    pub fn release(&self, ino: Ino) -> Result<()> {
        self.store(|pool| pool.release(ino))
    }

    /// Opens an inode: a new open file with its offset at 0, had once by this process. `flags` are
    /// the caller's.
    pub fn open_file(&self, ino: Ino, flags: u64) -> Result<FileId> {
        self.change(|pool| pool.open_file(ino, flags))
    }

    /// Opens like [`Fs::open_file`] a file that was looked up before; [`Error::Stale`] if that one
    /// has gone since, also if another has its number by now.
    pub fn open_found(&self, found: &Attr, flags: u64) -> Result<FileId> {
        self.change(|pool| pool.open_found(found, flags))
    }

    /// The state of an open file.
    pub fn file(&self, file: FileId) -> Result<OpenFile> {
        self.pool().file_state(file)
    }

    /// The flags of an open file that this process has, as the last of those who share it has set
    /// them; whether it has it is not looked at.
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

    /// Shares like [`Fs::dup_file`] an open file that may be another process's alone.
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

    /// Writes at an open file's offset, or at the true end if `append` says so of it, and moves the
    /// offset behind it.
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

    /// Does something at an open file's offset, and moves that to what `body` answers first; nobody
    /// else moves it meanwhile.
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

    /// Does something at the offsets of two open files, of those that are named, and moves them to
    /// what `body` answers first; nobody else moves either meanwhile.
    pub fn at_offsets(
        &self,
        files: [Option<FileId>; 2],
        body: impl FnOnce([u64; 2]) -> Result<([u64; 2], u64)>,
    ) -> Result<u64> {
        self.pool().at_offsets(files, body)
    }
}
