//! Calls of faces that map the pool's own blocks for programs.

use super::Fs;
use crate::mapping::pin::BlockRun;
use crate::mapping::stored::{LEN_MIN, Shown};
use crate::types::Ino;
use pm_journal::error::Result;

#[allow(clippy::missing_errors_doc)]
impl Fs {
    /// Pins a file for this process, which may store to its blocks if it `writes`. A second pin of
    /// a file changes nothing, except that it may add writing.
    ///
    /// # Errors
    /// [`crate::Error::Mapped`]: the file is open below a mount, or a mount's kernel has pages of
    /// it. [`crate::Error::TooManyOpen`]: the table is full.
    pub fn pin(&self, ino: Ino, writes: bool) -> Result<()> {
        let pool = self.pool();
        pool.unless_dead(ino, || pool.pin(ino, writes))
    }

    /// Pins a file as [`Fs::pin`] does, for a process that stores to copies of its blocks and hands
    /// them over by [`Fs::write_pages`]. That moves the blocks, so no other process may have the
    /// file mapped.
    ///
    /// # Errors
    /// [`crate::Error::Mapped`]: another process has the file mapped, or a mount's kernel has pages
    /// of it that may be stored to.
    pub fn pin_apart(&self, ino: Ino) -> Result<()> {
        let pool = self.pool();
        pool.unless_dead(ino, || pool.pin_apart(ino))
    }

    /// Ends this process's pin of a file, of which nothing is mapped any more.
    pub fn unpin(&self, ino: Ino) -> Result<()> {
        self.pool().unpin(ino)
    }

    /// The blocks of a range of a pinned file, up to its end. Up to `missing_max` missing bytes get
    /// memory first. The blocks stay in place until the pin ends.
    ///
    /// # Errors
    /// [`crate::Error::NoSpace`]: more bytes are missing, or the pool is full.
    pub fn blocks(&self, ino: Ino, at: u64, len: u64, missing_max: u64) -> Result<Vec<BlockRun>> {
        self.change(|pool| pool.blocks(ino, at, len, Some(missing_max)))
    }

    /// The blocks of a range of a pinned file, as [`blocks`](Self::blocks); holes stay holes and
    /// have none.
    pub fn blocks_there(&self, ino: Ino, at: u64, len: u64) -> Result<Vec<BlockRun>> {
        self.change(|pool| pool.blocks(ino, at, len, None))
    }

    /// Makes the programs' stores to the blocks of some ranges (offset and length in bytes)
    /// durable, and updates the file's times.
    pub fn flush_blocks(&self, ino: Ino, parts: &[(u64, u64)]) -> Result<()> {
        self.change(|pool| pool.flush_blocks(ino, parts))
    }

    /// Makes the programs' stores to the blocks that `part` shows durable, and updates the file's
    /// times. `all` has every writable mapping of this file in this process, with `part` or the
    /// mapping that contains it. The calls for a file come one at a time, while nothing of it is
    /// mapped or unmapped.
    ///
    /// # Errors
    /// Those of [`Fs::flush_blocks`].
    pub fn flush_stored(&self, ino: Ino, part: &Shown, all: &[Shown]) -> Result<()> {
        let flush = |parts: &[(u64, u64)]| self.flush_blocks(ino, parts);
        if part.len < LEN_MIN || !self.mapping().needs_flush() {
            return flush(&[(part.at, part.len)]);
        }
        let elsewhere = || self.pool().take_stored_elsewhere(ino);
        self.watching.flush_stored(part, all, elsewhere, flush)
    }

    /// The number of the descriptor by which this process probes locks of the pool's file.
    #[must_use]
    pub fn asks_by(&self) -> Option<i32> {
        self.pool().asks_by()
    }

    /// Returns whether a descriptor of this number watches stores.
    #[must_use]
    pub fn watches_by(&self, number: i32) -> bool {
        self.watching.has(number)
    }
}
