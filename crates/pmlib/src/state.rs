//! The state of a heap in a file, as one sees it who does not open it.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use pmlib_format::header::{COPY_OFFSET, MAGIC};

use crate::error::{Error, Result};
use crate::heap::{Heap, Options};
use crate::reader::Look;

/// The state of a heap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Nobody has it, and it was left clean.
    Clean,
    /// Somebody has it, comes or goes.
    InUse,
    /// A crash has left it, or processes that were all killed.
    NeedsRecovery,
}

impl State {
    /// That of the heap in a file.
    ///
    /// # Errors
    /// Those of [`Heap::open`] to be read, but for `NeedsRecovery` and `Busy`.
    pub fn of(path: &Path) -> Result<State> {
        let look = Heap::open(path, &Options::read_only()).and_then(|heap| heap.core().look());
        match look {
            Ok(Look::Rest(_)) => Ok(State::Clean),
            Ok(_) | Err(Error::Busy { .. }) => Ok(State::InUse),
            Err(Error::NeedsRecovery { .. }) => Ok(State::NeedsRecovery),
            Err(error) => Err(error),
        }
    }
}

/// Whether a regular file begins as a heap does, or its header's copy says so.
///
/// # Errors
/// The file can't be read.
pub fn is_heap(path: &Path) -> io::Result<bool> {
    let file = File::open(path)?;
    for place in [0, COPY_OFFSET] {
        let mut word = [0; 8];
        match file.read_exact_at(&mut word, place) {
            Ok(()) if u64::from_le_bytes(word) == MAGIC => return Ok(true),
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(false),
            Err(error) => return Err(error),
        }
    }
    Ok(false)
}
