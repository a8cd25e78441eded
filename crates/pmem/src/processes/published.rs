//! Counts of this process's calls by thread, published in a page file while a monitor asks
//! (docs/adr/0086-counts-by-thread.md).
//!
//! The file is a memfd that is sealed at its length: nothing of it is left after a kill, and no
//! reader of it can be made to fault. A line belongs to one thread, which stores to it alone;
//! lines of the callers of a mount, and the line of all that found none, are added to atomically.
//!
//! [`Page`] is the owner's side, [`read`] the monitor's, which trusts nothing in the file.

mod page;
mod reader;

pub use page::{Page, for_caller};
pub use reader::{Line, Snapshot, read};

/// The file's name, as `/proc/PID/fd` shows it behind `/memfd:`.
pub const NAME: &str = "pmfs-calls";

/// First word of the file.
const MAGIC: u64 = u64::from_le_bytes(*b"PMCALLS1");
/// Lines of the file, the first of which is its header.
const LINES: usize = 1024;
/// Words of a line.
const WORDS: usize = 8;
/// Bytes of the file.
const BYTES: usize = LINES * WORDS * 8;
/// The line of all that found no line of their own, and of threads that have lost theirs.
const OTHERS: usize = 1;
/// Set in the name of a line of a mount's caller.
const CALLER: u64 = 1 << 31;
/// Bits of a line's name that are the thread's number.
const NUMBER: u64 = (1 << 22) - 1;
/// The name of a line that is being emptied, for another thread.
const BUSY: u64 = CALLER | NUMBER;

/// Bits of a line's start that are ticks; above them is the process of a mount's caller.
const TICKS: u64 = (1 << PROCESS_SHIFT) - 1;
const PROCESS_SHIFT: u32 = 42;

/// Words of the header.
mod header {
    pub const MAGIC: usize = 0;
    pub const PID: usize = 1;
    pub const POOL_INO: usize = 2;
    pub const POOL_DEV: usize = 3;
    /// Odd while a line is emptied into that of the others.
    pub const SEQUENCE: usize = 4;
}

/// Words of a line.
mod word {
    pub const NAME: usize = 0;
    pub const START: usize = 1;
    /// The first of [`super::Counts::WORDS`] counts.
    pub const COUNTS: usize = 2;
}

/// Counts of calls. Each wraps around.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Bytes that calls have read.
    pub read_bytes: u64,
    /// Bytes that calls have written.
    pub written_bytes: u64,
    /// Calls that have read content.
    pub reads: u64,
    /// Calls that have changed something.
    pub changes: u64,
    /// Lines flushed by them.
    pub flushed_lines: u64,
    /// Barriers of them.
    pub barriers: u64,
}

impl Counts {
    const WORDS: usize = 6;
    /// The places of the counts among the words.
    pub const READ_BYTES: usize = 0;
    /// See [`Counts::written_bytes`].
    pub const WRITTEN_BYTES: usize = 1;
    /// See [`Counts::reads`].
    pub const READS: usize = 2;
    /// See [`Counts::changes`].
    pub const CHANGES: usize = 3;
    /// See [`Counts::flushed_lines`].
    pub const FLUSHED_LINES: usize = 4;
    /// See [`Counts::barriers`].
    pub const BARRIERS: usize = 5;

    fn as_words(self) -> [u64; Counts::WORDS] {
        [
            self.read_bytes,
            self.written_bytes,
            self.reads,
            self.changes,
            self.flushed_lines,
            self.barriers,
        ]
    }

    fn of(words: [u64; Counts::WORDS]) -> Counts {
        let [
            read_bytes,
            written_bytes,
            reads,
            changes,
            flushed_lines,
            barriers,
        ] = words;
        Counts {
            read_bytes,
            written_bytes,
            reads,
            changes,
            flushed_lines,
            barriers,
        }
    }

    fn each_with(self, other: Counts, join: impl Fn(u64, u64) -> u64) -> Counts {
        let (mut own, other) = (self.as_words(), other.as_words());
        for (own, other) in own.iter_mut().zip(other) {
            *own = join(*own, other);
        }
        Counts::of(own)
    }

    /// The counts of both.
    #[must_use]
    pub fn with_more(self, other: Counts) -> Counts {
        self.each_with(other, u64::wrapping_add)
    }

    /// The counts since there were as many as `earlier`.
    #[must_use]
    pub fn since_earlier(self, earlier: Counts) -> Counts {
        self.each_with(earlier, u64::wrapping_sub)
    }
}

#[cfg(test)]
mod tests;
