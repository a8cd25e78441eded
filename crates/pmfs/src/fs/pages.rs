//! Calls of mounts, whose kernels hold pages of files.

use super::Fs;
use crate::mapping::kernel_copy::WantedPages;
use crate::pages::records::KernelCopy;
use crate::types::{Ino, PagesInTheWay};
use pm_journal::error::{Error, Result};
use std::time::Duration;

#[allow(clippy::missing_errors_doc)]
impl Fs {
    /// Lets calls that meet pages of another mount's kernel return [`Error::PagesElsewhere`]
    /// without any change; the caller waits by [`Fs::wait_for_pages`] and calls again. By default
    /// such calls wait themselves.
    pub fn tell_of_pages(&self) {
        self.pool().tell_of_pages(&self.own_copies);
    }

    /// Notes that this mount's kernel gets pages of a file by a READ; the data must be read after
    /// this call. `may_be_dirty` is called under the inode's lock, and says whether programs may
    /// store to the pages.
    ///
    /// # Errors
    /// [`Error::PagesElsewhere`]; [`Error::Mapped`]: programs have the blocks mapped.
    /// [`Error::TooManyOpen`]: the table is full.
    pub fn note_kernel_read(&self, ino: Ino, may_be_dirty: &dyn Fn() -> bool) -> Result<()> {
        let pool = self.pool();
        pool.unless_dead(ino, || {
            pool.note_kernel_read(&self.own_copies, ino, may_be_dirty)
        })
    }

    /// Prepares this mount for opening a file for writing. `begin` is called under the inode's
    /// lock; from then on `may_be_dirty` of [`Fs::note_kernel_read`] is true.
    ///
    /// # Errors
    /// [`Error::PagesElsewhere`]: other mounts have pages of a file of which this one has some too.
    pub fn begin_kernel_writing(&self, ino: Ino, begin: &dyn Fn()) -> Result<()> {
        let pool = self.pool();
        pool.unless_dead(ino, || pool.begin_kernel_writing(ino, begin))
    }

    /// Asks this mount's own revoker to drop its kernel's pages of a file, because they differ from
    /// the file.
    pub fn want_own_pages(&self, ino: Ino) -> Result<()> {
        self.pool().want_own_pages(ino)
    }

    /// Prepares a write past this mount's kernel, which must not note a read of the pages until it
    /// ends.
    ///
    /// # Errors
    /// [`Error::PagesElsewhere`]: the kernel has pages of the file.
    pub fn own_pages_are_gone(&self, ino: Ino) -> Result<()> {
        self.pool().own_pages_are_gone(ino)
    }

    /// Prepares an answer about the places of a file's data and holes, from which stores in
    /// kernels' pages, also this mount's own, would be missing.
    ///
    /// # Errors
    /// [`Error::PagesElsewhere`]: there may be such stores.
    pub fn stores_are_written(&self, ino: Ino) -> Result<()> {
        self.pool().stores_are_written(ino)
    }

    /// Notes that the mount's last handle of a file is closed, so that nobody can reach its pages.
    /// `unless` is called under the inode's lock, and says whether another handle was opened
    /// meanwhile.
    pub fn forget_kernel_copies(&self, ino: Ino, unless: &dyn Fn() -> bool) -> Result<()> {
        self.pool()
            .forget_kernel_copies(&self.own_copies, ino, unless)
    }

    /// Asks for the pages of an [`Error::PagesElsewhere`], and waits until some are back or
    /// `gives_up`, which is called every few milliseconds, returns true. The caller holds nothing
    /// that the other mount may need.
    pub fn wait_for_pages(&self, pages: PagesInTheWay, gives_up: &dyn Fn() -> bool) -> Result<()> {
        self.pool().wait_for_pages(pages, gives_up)
    }

    /// The number of requests for pages that this mount has got.
    pub fn asked_for_pages(&self) -> Result<u64> {
        self.pool().asked_for_pages()
    }

    /// Sleeps until this mount has got more than `seen` requests, at most for `timeout`.
    pub fn wait_to_be_asked(&self, seen: u64, timeout: Duration) -> Result<()> {
        self.pool().wait_to_be_asked(seen, timeout)
    }

    /// Ends a sleep of [`Fs::wait_to_be_asked`].
    pub fn end_wait_to_be_asked(&self) {
        self.pool().end_wait_to_be_asked();
    }

    /// The pages that others want back from this mount.
    pub fn wanted_pages(&self) -> Result<Vec<WantedPages>> {
        self.pool().alive()?;
        Ok(self.pool().wanted_pages(&self.own_copies))
    }

    /// Notes that the kernel has dropped its pages, after the record was read at this generation.
    /// `false`: some were read again since.
    pub fn give_pages_back(&self, ino: Ino, generation: u64) -> Result<bool> {
        self.pool()
            .give_pages_back(&self.own_copies, ino, generation)
    }

    /// The records of pages in the kernels of mounts.
    #[must_use]
    pub fn kernel_copies(&self) -> Vec<KernelCopy> {
        self.pool().kernel_copies().collect()
    }

    /// Waits for pages of another mount that a call has met, if this process waits. Returns whether
    /// the call, which has changed nothing, must be repeated.
    #[cold]
    pub(super) fn pages_are_back(&self, error: &Error) -> bool {
        self.pool().pages_are_back(&self.own_copies, error)
    }
}
