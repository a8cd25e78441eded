//! Pages of mapped files: what the kernel reads for them and writes back, and giving
//! them back to others of the pool.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use pmfs::{Error, Ino, PagesInTheWay, Result, WantedPages};

use super::handles::{Access, Handles};
use super::{Server, ino_of};

impl Server {
    /// READ that fills pages: of a mapping, or by readahead.
    ///
    /// # Errors
    /// Those of the engine's call; [`Error::PagesElsewhere`]; so for all below.
    pub fn read_pages(
        &self,
        node: u64,
        offset: u64,
        buffer: &mut [u8],
        wants_atime: bool,
    ) -> Result<usize> {
        let ino = ino_of(node);
        self.pace.wait(ino);
        let _filling = self.past.filling(ino);
        self.fs
            .note_kernel_read(ino, &|| self.opened.is_writing(ino))?;
        self.fs.read_for(ino, offset, buffer, || wants_atime)
    }

    /// WRITE of a page that a mapping has changed, which takes no set-id bits nor capabilities
    /// away. The part past the end of the file is dropped.
    pub fn write_back(&self, node: u64, offset: u64, data: &[u8]) -> Result<()> {
        let ino = ino_of(node);
        self.with_space(|| self.fs.write_back(ino, offset, data))
    }

    /// Writes past the kernel's pages, or elsewhere than it expects: those of the file go first.
    pub(super) fn past_pages<T>(&self, ino: Ino, write: impl FnOnce() -> Result<T>) -> Result<T> {
        let _writing = self.past.writing(ino);
        self.fs.own_pages_are_gone(ino)?;
        write()
    }

    pub(super) fn count_handle(&self, ino: Ino, access: Access) -> Result<()> {
        if access == Access::Both {
            let begin = || self.opened.add(ino, true);
            return self.fs.begin_kernel_writing(ino, &begin);
        }
        self.opened.add(ino, false);
        Ok(())
    }

    pub(super) fn uncount_handle(&self, ino: Ino, handle: u64) -> Result<()> {
        if !self
            .opened
            .remove(ino, Handles::access(handle) == Access::Both)
        {
            return Ok(());
        }
        let reopened = || self.opened.is_open(ino);
        self.fs.forget_kernel_copies(ino, &reopened)
    }

    /// A kernel that writes through its pages keeps what it writes.
    pub(super) fn note_cached_write(&self, ino: Ino) -> Result<()> {
        if !self.is_cached {
            return Ok(());
        }
        self.pace.wait(ino);
        let _filling = self.past.filling(ino);
        self.fs.note_kernel_read(ino, &|| true)
    }

    /// The handle's writes come past the pages of a kernel that has others go through them.
    pub(super) fn is_past_pages(&self, handle: u64) -> bool {
        self.is_cached && Handles::access(handle) == Access::Writing
    }

    /// Waits until pages are back that are in the way of a request. `limit`: for a caller without a
    /// stand-in.
    pub(crate) fn wait_for_pages(
        &self,
        pages: PagesInTheWay,
        limit: Option<Duration>,
    ) -> Result<()> {
        let _attached = self.enter()?;
        let began = Instant::now();
        let is_late = || limit.is_some_and(|limit| began.elapsed() > limit);
        let gives_up = || self.ending.load(Ordering::SeqCst) || is_late();
        self.fs.wait_for_pages(pages, &gives_up)?;
        if is_late() {
            let ino = pages.ino;
            log::error!("no worker left to wait for pages of inode {ino}: answered EBUSY");
            return Err(Error::Busy);
        }
        Ok(())
    }

    /// Sleeps until others want pages back, with what was told of it last; what they want.
    pub(crate) fn wait_for_askers(
        &self,
        seen: u64,
        timeout: Duration,
    ) -> Result<(u64, Vec<WantedPages>)> {
        let _attached = self.enter()?;
        if self.ending.load(Ordering::SeqCst) {
            return Err(Error::ShutDown);
        }
        self.fs.wait_to_be_asked(seen, timeout)?;
        Ok((self.fs.asked_for_pages()?, self.fs.wanted_pages()?))
    }

    /// The kernel has dropped them; `false`: it has read some since.
    pub(crate) fn give_pages_back(&self, wanted: &WantedPages, round: u32) -> Result<bool> {
        let _attached = self.enter()?;
        self.pace.hold_up(wanted.ino, round);
        self.fs.give_pages_back(wanted.ino, wanted.generation)
    }

    /// READs of the file's pages come after others for a moment.
    pub(crate) fn hold_up_reads(&self, ino: Ino, round: u32) {
        self.pace.hold_up(ino, round);
    }

    /// Files without a name that the kernel does not forget, though no program has them open.
    pub(crate) fn long_held(&self) -> Vec<Ino> {
        self.known.long_held(|ino| self.opened.is_open(ino))
    }

    /// The pages of a file that are still wanted.
    pub(crate) fn still_wanted(&self, ino: Ino) -> Result<Option<WantedPages>> {
        let _attached = self.enter()?;
        let wanted = self.fs.wanted_pages()?;
        Ok(wanted.into_iter().find(|pages| pages.ino == ino))
    }
}
