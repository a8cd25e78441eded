//! msync of the pages stored to, and not of the whole range: a database that maps a gigabyte and
//! commits a page pays for the page.
//!
//! The kernel notes which pages this process has stored to ([`pmem::watch`]). No other page needs a
//! flush if no other process can have stored to the file's blocks meanwhile. Each writing pin
//! therefore carries a mark (`stored_elsewhere`), set whenever a process begins to map the file for
//! writing, this one included. A process that finds the mark, others' pins, or pages that are not
//! watched flushes the whole range, and so does every process where the kernel keeps no such notes.

use std::sync::{Mutex, MutexGuard, PoisonError};

use pm_journal::error::Result;
use pmem::watch::Watch;

/// Shorter ranges are flushed whole: 20 us for each MiB, against a fault for each page that is
/// stored to; and large pages stay large.
pub(crate) const LEN_MIN: u64 = 2 << 20;

/// Addresses that show a part of a file, to which this process may store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shown {
    /// The first.
    pub address: usize,
    /// The byte of the file that it shows; whole pages.
    pub at: u64,
    /// Bytes.
    pub len: u64,
}

impl Shown {
    fn meets(&self, other: &Shown) -> bool {
        self.at < other.at + other.len && other.at < self.at + self.len
    }
}

/// Stores to a file's blocks that this process does not know of, since it was asked last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Elsewhere {
    /// No other process may have stored.
    No,
    /// A process that has ended its mapping may have stored, or this one by a mapping that it did
    /// not have then.
    Before,
    /// Another process has it mapped for writing.
    Now,
}

/// The state of this process's watch: nothing watched yet, or nothing ever.
#[derive(Debug, Default)]
enum State {
    #[default]
    Unasked,
    Watching(Watch),
    Impossible,
}

/// The watch of a process, made when it is first needed.
#[derive(Debug, Default)]
pub(crate) struct Watching(Mutex<State>);

impl Watching {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns whether a descriptor of this number is one by which stores are watched.
    pub fn has(&self, number: i32) -> bool {
        matches!(&*self.state(), State::Watching(watch) if watch.has(number))
    }

    /// Makes durable what was stored to the bytes that `part` shows, by `flush`, which gets ranges
    /// of the file. `all` is as of [`crate::Fs::flush_stored`]; `elsewhere` is asked under the
    /// watch's lock.
    ///
    /// # Errors
    /// Those of the two.
    pub fn flush_stored(
        &self,
        part: &Shown,
        all: &[Shown],
        elsewhere: impl FnOnce() -> Result<Elsewhere>,
        flush: impl Fn(&[(u64, u64)]) -> Result<()>,
    ) -> Result<()> {
        let whole = [(part.at, part.len)];
        let mut state = self.state();
        if state.watch().is_none() {
            return flush(&whole);
        }
        // Twice in this process: what is stored through the other is not noted here.
        let twice = all.iter().filter(|one| one.meets(part)).count() > 1;
        let elsewhere = elsewhere()?;
        if twice || elsewhere != Elsewhere::No {
            state.forget(all.iter());
        }
        let (address, len) = (part.address, part.len as usize);
        let watch = state
            .watch()
            .filter(|_| !twice && elsewhere != Elsewhere::Now);
        let Some(watch) = watch else {
            return flush(&whole);
        };
        let flushed = match watch.take(address, len) {
            Ok(stored) if stored.is_empty() => return Ok(()),
            Ok(stored) => {
                let parts = stored.iter().map(|run| {
                    let from = (run.start - address) as u64;
                    (part.at + from, (run.end - run.start) as u64)
                });
                flush(&parts.collect::<Vec<_>>())
            }
            Err(_) => {
                // First watched, then flushed: a store between the two is noted, and flushed twice.
                let _ = watch.begin(address, len);
                flush(&whole)
            }
        };
        if flushed.is_err() {
            state.forget(std::iter::once(part));
        }
        flushed
    }
}

impl State {
    fn watch(&mut self) -> Option<&Watch> {
        let forked = matches!(self, State::Watching(watch) if !watch.is_own());
        if forked || matches!(self, State::Unasked) {
            *self = Watch::new().map_or(State::Impossible, State::Watching);
        }
        match self {
            State::Watching(watch) => Some(watch),
            _ => None,
        }
    }

    /// Nothing is known any more of what these show.
    fn forget<'a>(&mut self, all: impl Iterator<Item = &'a Shown>) {
        if let State::Watching(watch) = self {
            let mut ended = all.map(|one| watch.end(one.address, one.len as usize));
            if ended.any(|ended| ended.is_err()) {
                // Watching ends as a whole.
                *self = State::Unasked;
            }
        }
    }
}
