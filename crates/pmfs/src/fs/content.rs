//! Calls on a file's content, by its number.

use super::Fs;
use crate::types::{FallocateMode, Ino};
use pm_journal::error::Result;
use pmshare::counters::CountedRead;

#[allow(clippy::missing_errors_doc)]
impl Fs {
    /// Hints that a read from `offset` on comes next: its first byte's line is asked for while the
    /// call is still on its way.
    #[inline]
    pub fn expect(&self, ino: Ino, offset: u64) {
        self.pool().expect_byte(ino, offset);
    }

    /// Returns whether an inode may have set-id bits or file capabilities, which a change of its
    /// content takes away: set-id bits, or any extended attribute. One look at the line that a
    /// write needs anyway, without locks; false of what is not there.
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

    /// Moves what lies from `offset` on by `len` bytes, both of whole blocks, and leaves a hole.
    /// INSERT_RANGE of `fallocate(2)`.
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
        Ok(self.pool().alive()?)
    }

    /// Reads; short only at the end of the file.
    #[inline]
    pub fn read(&self, ino: Ino, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        // Nothing is captured here: the read at once may be part of this function.
        match self.pool().read_at_once(ino, offset, buffer) {
            Ok(read) => Ok(read),
            Err(counted) => self.read_in_tries(ino, offset, buffer, counted, &|| true),
        }
    }

    /// Reads like [`Fs::read`]; a time of access that is due is stored only if `wants_atime`, which
    /// is asked then alone: not for an open file with O_NOATIME.
    // Inlined, so that the closure is made where the read was not done at once.
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

    /// Writes whole blocks (byte offset and 4,096 bytes each, in ascending order): after a crash
    /// all of them are there, or none. The part behind the end of the file is left out. A file of
    /// which this process has pinned blocks otherwise than by [`Fs::pin_apart`] must not be written
    /// so.
    ///
    /// # Errors
    /// [`Error::Mapped`]: another process has it mapped. [`Error::NoSpace`]: nothing was written.
    pub fn write_pages(&self, ino: Ino, pages: &[(u64, &[u8])]) -> Result<()> {
        self.change(|pool| pool.write_pages(ino, pages))
    }
}
