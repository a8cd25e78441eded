//! Calls of mounts, whose kernels hold pages of files.

use super::Fs;
use crate::mapping::kernel_copy::WantedPages;
use crate::pages::records::KernelCopy;
use crate::types::{Ino, PagesInTheWay};
use pm_journal::error::{Error, Result};
use std::time::Duration;

#[allow(clippy::missing_errors_doc)]
impl Fs {
    /// From now on calls that meet pages of another mount's kernel answer [`Error::PagesElsewhere`]
    /// and have done nothing; the caller waits by [`Fs::wait_for_pages`] and calls again. Without
    /// this they wait themselves.
    pub fn tell_of_pages(&self) {
        self.pool().tell_of_pages(&self.own_copies);
    }

    /// Before a mount answers a READ that fills its kernel's pages of a file; the data is to be
    /// read after it. `may_be_dirty`, asked under the inode's lock: whether programs may store to
    /// the pages.
    ///
    /// # Errors
    /// [`Error::PagesElsewhere`]; [`Error::Mapped`] by programs that have the blocks themselves;
    /// [`Error::TooManyOpen`] if the table has no room.
    pub fn note_kernel_read(&self, ino: Ino, may_be_dirty: &dyn Fn() -> bool) -> Result<()> {
        let pool = self.pool();
        pool.unless_dead(ino, || {
            pool.note_kernel_read(&self.own_copies, ino, may_be_dirty)
        })
    }

    /// Before a mount lets a file be opened for writing. `begin`, under the inode's lock: from here
    /// on `may_be_dirty` of [`Fs::note_kernel_read`] is true.
    ///
    /// # Errors
    /// [`Error::PagesElsewhere`]: other mounts have pages of a file of which this one has, too.
    pub fn begin_kernel_writing(&self, ino: Ino, begin: &dyn Fn()) -> Result<()> {
        let pool = self.pool();
        pool.unless_dead(ino, || pool.begin_kernel_writing(ino, begin))
    }

    /// This mount's kernel has something else in its pages than the file: its revoker is to drop
    /// them.
    pub fn want_own_pages(&self, ino: Ino) -> Result<()> {
        self.pool().want_own_pages(ino)
    }

    /// Before this mount writes what its kernel has not put in its pages, as long as it notes no
    /// read of them.
    ///
    /// # Errors
    /// [`Error::PagesElsewhere`]: its kernel has pages of the file.
    pub fn own_pages_are_gone(&self, ino: Ino) -> Result<()> {
        self.pool().own_pages_are_gone(ino)
    }

    /// Before an answer about what a file has where: stores that are still in a kernel's pages,
    /// this mount's own too, are not told of in it.
    ///
    /// # Errors
    /// [`Error::PagesElsewhere`]: some may be.
    pub fn stores_are_written(&self, ino: Ino) -> Result<()> {
        self.pool().stores_are_written(ino)
    }

    /// The mount's last handle of the file is closed, so nobody can reach its pages; `unless`,
    /// asked under the inode's lock: there is another handle by now.
    pub fn forget_kernel_copies(&self, ino: Ino, unless: &dyn Fn() -> bool) -> Result<()> {
        self.pool()
            .forget_kernel_copies(&self.own_copies, ino, unless)
    }

    /// Asks for the pages that [`Error::PagesElsewhere`] spoke of, and waits until some are back,
    /// or `gives_up`, asked every few milliseconds, says so. The caller holds nothing that their
    /// mount may need.
    pub fn wait_for_pages(&self, pages: PagesInTheWay, gives_up: &dyn Fn() -> bool) -> Result<()> {
        self.pool().wait_for_pages(pages, gives_up)
    }

    /// The number of requests to this mount for pages.
    pub fn asked_for_pages(&self) -> Result<u64> {
        self.pool().asked_for_pages()
    }

    /// Sleeps until this mount is asked once more than `seen`, at most `timeout`.
    pub fn wait_to_be_asked(&self, seen: u64, timeout: Duration) -> Result<()> {
        self.pool().wait_to_be_asked(seen, timeout)
    }

    /// Ends a sleep of [`Fs::wait_to_be_asked`].
    pub fn end_wait_to_be_asked(&self) {
        self.pool().end_wait_to_be_asked();
    }

    /// The pages that this mount is asked for.
    pub fn wanted_pages(&self) -> Result<Vec<WantedPages>> {
        self.pool().alive()?;
        Ok(self.pool().wanted_pages(&self.own_copies))
    }

    /// The kernel has dropped the pages after the record was seen at this generation. `false`: some
    /// were served since.
    pub fn give_pages_back(&self, ino: Ino, generation: u64) -> Result<bool> {
        self.pool()
            .give_pages_back(&self.own_copies, ino, generation)
    }

    /// The pages that kernels of mounts may hold.
    #[must_use]
    pub fn kernel_copies(&self) -> Vec<KernelCopy> {
        self.pool().kernel_copies().collect()
    }

    /// After a call that met pages of another mount, and so has done nothing: waits for them, if
    /// that is this process's way, and then it is to be tried again.
    #[cold]
    pub(super) fn pages_are_back(&self, error: &Error) -> bool {
        self.pool().pages_are_back(&self.own_copies, error)
    }
}
