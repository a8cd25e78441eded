//! Places that readers' sessions hold back: which chunks have some, and when they are free again
//! (`crates/pmlib/src/eras.rs`).
//!
//! - The places' bytes are the truth (`crates/pmkv/src/protocol.rs`). A process knows hints beside
//!   them: chunks in which it has held places, and since which era. Those of others are found as
//!   free places of others are, by a look for room.
//! - A writer that wants room has the era go on first, which ends sessions that last longer than
//!   they may.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use pmlib::eras::Era;
use pmlib_format::kv::RECORD_CLASSES;

use crate::engine::Index;
use crate::error::{Error, Result};
use crate::kv::Kv;
use crate::places::Places;
use crate::protocol::{byte_of_free, free_held, is_held};

/// Records with a run of their own that are dropped at once by one that wants such a run.
const DROPPED_AT_ONCE: usize = 4;
/// Eras after which what was held is nobody's.
const ERAS: u64 = 2;

/// The chunks in which this process has held places: the class of their places, the chunk, and the
/// number of the first era.
#[derive(Debug, Default)]
pub(crate) struct HeldChunks {
    chunks: Mutex<BTreeMap<(usize, u64), u64>>,
    /// How many they are.
    count: AtomicU64,
}

impl HeldChunks {
    fn chunks(&self) -> MutexGuard<'_, BTreeMap<(usize, u64), u64>> {
        // After a panic it is a hint as before.
        self.chunks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note(&self, class: usize, chunk: u64, era: Era) {
        let mut chunks = self.chunks();
        chunks.entry((class, chunk)).or_insert(era.number());
        self.count.store(chunks.len() as u64, Ordering::Relaxed);
    }

    /// Takes a chunk of a class out whose places may be free by now.
    fn take(&self, class: usize, era: Era) -> Option<u64> {
        let mut chunks = self.chunks();
        let is_over = |since: u64| era.is_off() || era.number() >= since + ERAS;
        let mut of_class = chunks.range((class, 0)..(class + 1, 0));
        let (&key, _) = of_class.find(|&(_, &since)| is_over(since))?;
        chunks.remove(&key);
        self.count.store(chunks.len() as u64, Ordering::Relaxed);
        Some(key.1)
    }

    fn is_empty(&self) -> bool {
        self.count.load(Ordering::Relaxed) == 0
    }
}

impl<I: Index> Kv<'_, I> {
    /// The era, at a look.
    fn era(&self) -> Era {
        Era(self.ground.mem().load_cached(self.ground.era_at()))
    }

    /// The byte that a place gets which no slot names any more; it is noted if that is held.
    #[inline]
    pub(crate) fn byte_of_free(&self, cut: &Places, instance: u64) -> u64 {
        let byte = byte_of_free(self.ground.mem(), self.ground.era_at(), instance);
        if is_held(byte) {
            self.note_held(cut);
        }
        byte
    }

    #[cold]
    pub(crate) fn note_held(&self, cut: &Places) {
        let class = cut.class();
        self.pools.held.note(class, cut.chunk(), self.era());
    }

    /// Has the era go on if this process has held places, so that they become free.
    pub(crate) fn advance_era(&self) {
        if !self.pools.held.is_empty() {
            self.ground.advance_era();
        }
    }

    /// A chunk of a class in which places that were held may be free by now.
    pub(crate) fn no_more_held(&self, class: usize) -> Option<u64> {
        match self.pools.held.is_empty() {
            true => None,
            false => self.pools.held.take(class, self.era()),
        }
    }

    /// Drops records with runs of their own that nobody looks at any more; nothing is locked.
    pub(crate) fn drop_held(&self) -> Result<()> {
        if self.pools.held.is_empty() {
            return Ok(());
        }
        self.ground.advance_era();
        for _ in 0..DROPPED_AT_ONCE {
            let Some(chunk) = self.no_more_held(RECORD_CLASSES) else {
                break;
            };
            self.drop_alone(Places::alone_in(chunk))?;
        }
        Ok(())
    }

    /// The cause why there is no room: the first process that has a session open, if one has.
    #[cold]
    pub(crate) fn told_who_reads(&self, error: Error) -> Error {
        match error {
            Error::Heap(pmlib::Error::Full { wanted }) if !self.era().is_off() => {
                let first = self.ground.reading().into_iter().next();
                first.map_or(error, |process| Error::Held {
                    wanted,
                    pid: process.pid,
                    command: process.command,
                })
            }
            other => other,
        }
    }

    /// Frees places of a locked chunk that are held by nobody any more; whether others are held.
    pub(crate) fn free_held(&self, cut: &Places) -> bool {
        if self.era() == Era(0) {
            // There was no session in this run.
            return false;
        }
        let (mem, era_at) = (self.ground.mem(), self.ground.era_at());
        let (mut freed, mut rest) = (0, false);
        for at in cut.words() {
            let (more, held) = free_held(mem, at, era_at);
            freed += more;
            rest |= held;
        }
        if freed > 0 {
            self.note_room(cut);
        }
        if rest {
            self.note_held(cut);
        }
        rest
    }

    /// The same of a chunk that is not locked, if it is cut so still.
    pub(crate) fn free_held_in(&self, cut: &Places) {
        if self.era() != Era(0) {
            let _locked = self.ground.lock(cut.chunk());
            if self.is_cut_so(cut) {
                self.free_held(cut);
            }
        }
    }
}
