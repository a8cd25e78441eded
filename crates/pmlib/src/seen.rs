//! Which chunks a process lists as ones with room, for a look without the lock of its lists.

use std::sync::atomic::{AtomicU64, Ordering};

/// Which chunks are listed, for a look without the lock. One that is shown is listed; one that is
/// listed may not be shown, as several have a word in common.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    /// The chunk, plus one; 0: none.
    words: Box<[AtomicU64]>,
}

impl Seen {
    /// One for a heap of so many chunks.
    pub fn new(chunks: u64) -> Seen {
        let words = chunks.clamp(1, SEEN_MAX);
        Seen {
            words: (0..words).map(|_| AtomicU64::new(0)).collect(),
        }
    }

    #[inline]
    fn word(&self, chunk: u64) -> Option<&AtomicU64> {
        let count = self.words.len().max(1);
        self.words.get(chunk as usize % count)
    }

    /// Shows none.
    pub fn clear(&self) {
        for word in &self.words {
            word.store(0, Ordering::SeqCst);
        }
    }

    /// Whether a chunk is listed for certain. A thread that takes it from the list looks for room
    /// in it after that, and finds what was freed before this call.
    ///
    /// The caller had the chunk's lock when it stored the freed bits. A thread that takes the chunk
    /// hides it before it locks the chunk: either it finds those bits, or this call, which follows
    /// the caller's locking, finds it hidden. Listed room is a hint: what a list has lost is found
    /// by the look at the whole heap before it is full (`Tx::make_room`).
    #[inline]
    pub fn has(&self, chunk: u64) -> bool {
        self.word(chunk)
            .is_some_and(|word| word.load(Ordering::SeqCst) == chunk + 1)
    }

    pub fn show(&self, chunk: u64) {
        if let Some(word) = self.word(chunk) {
            word.store(chunk + 1, Ordering::SeqCst);
        }
    }

    pub fn hide(&self, chunk: u64) {
        if self.has(chunk)
            && let Some(word) = self.word(chunk)
        {
            word.store(0, Ordering::SeqCst);
        }
    }
}

/// Words of [`Seen`] at most: each chunk of 512 MiB has one of its own.
const SEEN_MAX: u64 = 8192;
