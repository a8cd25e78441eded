//! Calls on a file's content, by its inode number.

use super::Fs;
use crate::file::extents::FileExtent;
use crate::types::{FallocateMode, Ino};
use pm_journal::error::Result;
use pmshare::counters::CountedRead;

#[allow(clippy::missing_errors_doc)]
impl Fs {
    /// Prefetches the first byte at `offset` (bytes) for a read that follows.
    #[inline]
    pub fn expect(&self, ino: Ino, offset: u64) {
        self.pool().expect_byte(ino, offset);
    }

    /// Returns whether an inode may have set-id bits or file capabilities, which a change of its
    /// content removes: it has set-id bits, or any extended attribute. This reads one line, which a
    /// write needs anyway, without locks. `false` if there is no such inode.
    #[inline]
    pub fn may_have_privileges(&self, ino: Ino) -> bool {
        self.pool().may_have_privileges(ino)
    }

    /// Writes `data` at `offset` (bytes). Returns the bytes written: fewer than `data` has where
    /// the pool is full, or too scattered for one transaction.
    ///
    /// # Errors
    /// [`crate::Error::NoSpace`] if no byte can be written, [`crate::Error::FileTooBig`],
    /// [`crate::Error::IsDirectory`].
    pub fn write(&self, ino: Ino, offset: u64, data: &[u8]) -> Result<usize> {
        self.change_data(|pool| pool.write(ino, offset, data), |&written| written)
    }

    /// Writes `data` at the end of the file. Returns the offset and the bytes written, as
    /// [`Fs::write`] does.
    pub fn append(&self, ino: Ino, data: &[u8]) -> Result<(u64, usize)> {
        self.change_data(|pool| pool.append(ino, data), |&(_, written)| written)
    }

    /// Writes at the end of the file if that is at `end` (bytes); otherwise writes nothing and
    /// returns `None`.
    pub fn write_at_end(&self, ino: Ino, end: u64, data: &[u8]) -> Result<Option<usize>> {
        let written = |done: &Option<usize>| done.unwrap_or(0);
        self.change_data(|pool| pool.write_at_end(ino, end, data), written)
    }

    /// Writes back a page of a mount's kernel, except the part behind the end of the file.
    pub fn write_back(&self, ino: Ino, offset: u64, data: &[u8]) -> Result<()> {
        self.change_data(|pool| pool.write_back(ino, offset, data), |()| data.len())
    }

    /// Allocates or frees space as `fallocate(2)` does; `offset` and `len` are in bytes.
    pub fn fallocate(&self, ino: Ino, mode: FallocateMode, offset: u64, len: u64) -> Result<()> {
        self.change(|pool| pool.fallocate(ino, mode, offset, len))
    }

    /// Has `len` bytes of the file `to`, from `to_offset` on, be those of the file `from` from
    /// `from_offset` on, without copying them: the files share the blocks until one of them is
    /// written. A `len` of 0 means up to the source's end. Offsets and length are multiples of the
    /// block size; the length need not be where the range ends with the source and not before the
    /// target's end.
    ///
    /// # Errors
    /// [`crate::Error::Invalid`] for other ranges, ranges past the source's end, and ranges of one
    /// file that overlap; [`crate::Error::Mapped`] if a program has blocks of either file mapped;
    /// [`crate::Error::NoSpace`], with a part of the range cloned.
    pub fn clone_range(
        &self,
        (from, from_offset): (Ino, u64),
        (to, to_offset): (Ino, u64),
        len: u64,
    ) -> Result<()> {
        self.change(|pool| pool.clone_range((from, from_offset), (to, to_offset), len))
    }

    /// Has two files share the blocks of a range, if both hold the same bytes there; answers
    /// whether they do. Neither file changes. Offsets and length are as those of
    /// [`Fs::clone_range`], and the range lies inside both files; a length that is no multiple of
    /// the block size ends both.
    ///
    /// # Errors
    /// Those of [`Fs::clone_range`].
    pub fn dedupe_range(
        &self,
        (from, from_offset): (Ino, u64),
        (to, to_offset): (Ino, u64),
        len: u64,
    ) -> Result<bool> {
        self.change(|pool| pool.dedupe_range((from, from_offset), (to, to_offset), len))
    }

    /// Removes a range of whole blocks from a file, and moves the later bytes up to its start:
    /// COLLAPSE_RANGE of `fallocate(2)`.
    pub fn collapse_range(&self, ino: Ino, offset: u64, len: u64) -> Result<()> {
        self.change(|pool| pool.collapse_range(ino, offset, len))
    }

    /// Moves the bytes from `offset` on by `len` bytes, both multiples of the block size, and
    /// leaves a hole: INSERT_RANGE of `fallocate(2)`.
    pub fn insert_range(&self, ino: Ino, offset: u64, len: u64) -> Result<()> {
        self.change(|pool| pool.insert_range(ino, offset, len))
    }

    /// Finds the offset of the first data from `offset` on.
    ///
    /// # Errors
    /// [`crate::Error::NoSuchOffset`] if there is none, or `offset` is past the end.
    pub fn seek_data(&self, ino: Ino, offset: u64) -> Result<u64> {
        self.seek(ino, offset, true)
    }

    /// Finds the offset of the first hole from `offset` on; the end of the file counts as one.
    ///
    /// # Errors
    /// [`crate::Error::NoSuchOffset`] if `offset` is past the end.
    pub fn seek_hole(&self, ino: Ino, offset: u64) -> Result<u64> {
        self.seek(ino, offset, false)
    }

    fn seek(&self, ino: Ino, offset: u64, data: bool) -> Result<u64> {
        self.read_call(|pool| {
            let mut found = pool.seek(ino, offset, data);
            while let Err(error) = &found
                && self.pages_are_back(error)
            {
                found = pool.seek(ino, offset, data);
            }
            found
        })
    }

    /// The extents of a file from `offset` on that begin in the next `len` bytes, `most` at most;
    /// and whether no other one follows. Blocks move with atomic writes: the places in the pool are
    /// those of this moment.
    ///
    /// # Errors
    /// [`crate::Error::IsDirectory`]; [`crate::Error::Invalid`] for other files than regular ones.
    pub fn extents(
        &self,
        ino: Ino,
        offset: u64,
        len: u64,
        most: usize,
    ) -> Result<(Vec<FileExtent>, bool)> {
        self.read_call(|pool| {
            let mut found = pool.extents(ino, offset, len, most);
            while let Err(error) = &found
                && self.pages_are_back(error)
            {
                found = pool.extents(ino, offset, len, most);
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

    /// Does nothing: every call is durable when it returns.
    pub fn fsync(&self, _ino: Ino) -> Result<()> {
        Ok(self.pool().alive()?)
    }

    /// Reads at `offset` into `buffer`. Returns the bytes read: fewer than `buffer` has only at the
    /// end of the file.
    #[inline]
    pub fn read(&self, ino: Ino, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        // No closure here: the immediate read may be inlined into this function.
        match self.pool().read_at_once(ino, offset, buffer) {
            Ok(read) => Ok(read),
            Err(counted) => self.read_in_tries(ino, offset, buffer, counted, &|| true),
        }
    }

    /// Reads as [`Fs::read`] does. The time of access is stored only if it is due and `wants_atime`
    /// returns true; an open file with O_NOATIME returns false.
    // Inlined, so that the closure exists only where the immediate read failed.
    #[inline(always)]
    pub fn read_for(
        &self,
        ino: Ino,
        offset: u64,
        buffer: &mut [u8],
        wants_atime: impl Fn() -> bool,
    ) -> Result<usize> {
        match self.read_at_once(ino, offset, buffer) {
            Ok(read) => Ok(read),
            Err(counted) => self.read_in_tries(ino, offset, buffer, counted, &wants_atime),
        }
    }

    #[inline(never)]
    fn read_at_once(
        &self,
        ino: Ino,
        offset: u64,
        buffer: &mut [u8],
    ) -> std::result::Result<usize, CountedRead> {
        self.pool().read_at_once(ino, offset, buffer)
    }

    #[cold]
    #[inline(never)]
    fn read_in_tries(
        &self,
        ino: Ino,
        offset: u64,
        buffer: &mut [u8],
        mut counted: CountedRead,
        wants_atime: &dyn Fn() -> bool,
    ) -> Result<usize> {
        let pool = self.pool();
        loop {
            match pool.read(ino, offset, buffer, &mut counted, wants_atime) {
                Ok(read) => {
                    pool.count_done(&counted, Some(read as u64));
                    return Ok(read);
                }
                Err(error) if self.pages_are_back(&error) => {}
                Err(error) => {
                    pool.count_done(&counted, None);
                    return Err(error);
                }
            }
        }
    }

    /// Writes whole blocks, given as byte offset and 4,096 bytes each in ascending order: after a
    /// crash all of them are there, or none. The part behind the end of the file is left out. The
    /// file's blocks must not be pinned by this process, except by [`Fs::pin_apart`].
    ///
    /// # Errors
    /// [`crate::Error::Mapped`]: another process has the file mapped. [`crate::Error::NoSpace`]:
    /// nothing was written.
    pub fn write_pages(&self, ino: Ino, pages: &[(u64, &[u8])]) -> Result<()> {
        self.change(|pool| pool.write_pages(ino, pages))
    }
}
