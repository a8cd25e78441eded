//! The counts of threads, and the file that shows them while threads run.

use std::fmt;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use pm_cli::Failure;
use serde::Serialize;

/// Bytes of a thread's line: five numbers of 20 digits at most, and what stands between them.
const LINE_BYTES: usize = 105;

/// The work that a thread has done. 64 bits hold 500 years at 1 GB/s.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Counts {
    pub tid: u32,
    pub written_bytes: u64,
    pub written_accesses: u64,
    pub read_bytes: u64,
    pub read_accesses: u64,
}

impl fmt::Display for Counts {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            to,
            "thread {}: {} bytes written in {} accesses, {} bytes read in {}",
            self.tid,
            self.written_bytes,
            self.written_accesses,
            self.read_bytes,
            self.read_accesses
        )
    }
}

/// The file with a line of fixed length for each thread. It is written by calls, so that it adds no
/// store to a mapping.
#[derive(Debug)]
pub(crate) struct Board(Option<File>);

impl Board {
    pub fn open(path: Option<&Path>, threads: u32) -> Result<Self, Failure> {
        let Some(path) = path else {
            return Ok(Self(None));
        };
        let made = File::create(path).map_err(|error| {
            let cause = format!("{}: {error}", path.display());
            Failure::new(cause, "name a file that may be written")
        })?;
        let board = Self(Some(made));
        for number in 0..threads {
            board.publish(number, &Counts::default())?;
        }
        Ok(board)
    }

    pub fn publish(&self, number: u32, counts: &Counts) -> Result<(), Failure> {
        let Some(file) = &self.0 else {
            return Ok(());
        };
        let line = format!(
            "{:<20} {:<20} {:<20} {:<20} {:<20}\n",
            counts.tid,
            counts.written_bytes,
            counts.written_accesses,
            counts.read_bytes,
            counts.read_accesses
        );
        debug_assert_eq!(line.len(), LINE_BYTES);
        let at = u64::from(number) * LINE_BYTES as u64;
        file.write_all_at(line.as_bytes(), at)
            .map_err(|error| Failure::new(format!("--counts: {error}"), "make space for the file"))
    }
}
