//! The state that all parts of an open heap share, and its chunks' locks.
//!
//! **A chunk's lock** covers each word in the chunk from before a record with that word is written
//! until it has been stored in place. Locks are taken in the order of the chunks, and their holder
//! waits for nothing but the medium. A lock's line names the last record that changed the chunk
//! (`pending`): the next holder's record gets a greater stamp, and if that record is another
//! lane's, the holder closes it (`crates/pmlib/src/lane.rs`).

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use pmem::Pmem;
use pmlib_format::chunk::{OWNER_OFFSET, PENDING_OFFSET, SEQUENCE_OFFSET, TAG_OFFSET};
use pmlib_format::{CHUNK_BYTES, HeaderRaw};
use zerocopy::IntoBytes;

use crate::check::Key;
use crate::error::{Error, Result};
use crate::lane::Lane;
use crate::layout::{Places, Spans};
use crate::packed::Ticket;
use crate::space::Space;

/// Looks at a busy word before the processor is left to others.
const SPINS: u32 = 200;
/// The holder of a chunk's lock that is taken only to make its line this run's.
const HOLDER_READER: u32 = u32::MAX;

/// An open heap.
pub(crate) struct Core {
    pub mem: Pmem,
    pub header: HeaderRaw,
    pub places: Places,
    pub spans: Spans,
    pub key: Key,
    /// Tells this run's volatile words from what others left.
    pub tag: u64,
    pub lanes: Vec<Mutex<Lane>>,
    pub space: Mutex<Space>,
    /// The lock of the thread that makes the heap longer.
    pub growing: Mutex<()>,
    /// The process that opened it.
    pub life: u64,
    /// Tells it from other heaps of the process.
    pub id: u64,
    /// A commit broke off: what is in memory may be neither old nor new.
    pub broken: AtomicBool,
}

impl Core {
    pub fn space(&self) -> MutexGuard<'_, Space> {
        // No panic leaves it half changed: it is changed by single calls of collections.
        self.space.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether this process may use it, and its thread may load.
    pub fn enter(&self) -> Result<()> {
        if pmem::life::number() != self.life {
            return Err(Error::Forked);
        }
        if self.broken.load(Ordering::Relaxed) {
            return Err(Error::Broken);
        }
        if let Some(offset) = self.mem.failed() {
            return Err(Error::Lost { offset });
        }
        self.mem.enter();
        Ok(())
    }

    /// The lane's memory after its words are believed no more, or not yet.
    pub fn broke(&self) {
        self.broken.store(true, Ordering::Relaxed);
    }

    /// Words from `offset` on, of a range that is in the heap.
    pub fn words(&self, offset: u64, count: usize, to: &mut Vec<u64>) -> Result<()> {
        to.clear();
        to.resize(count, 0);
        self.mem.copy_out(offset, to.as_mut_bytes())?;
        Ok(())
    }

    /// The line of a chunk that is in the heap.
    fn line(&self, chunk: u64) -> u64 {
        let span = self.spans.of(chunk).expect("a chunk of the heap");
        span.line(chunk)
    }

    /// The word by which `holder` holds a lock in this run.
    pub fn held_by(&self, holder: u32) -> u64 {
        self.tag >> 32 << 32 | u64::from(holder)
    }

    /// Whether a lock word says that nobody holds it.
    pub fn is_free(&self, word: u64) -> bool {
        word >> 32 != self.tag >> 32 || word as u32 == 0
    }

    /// Locks a chunk, in a write window; answers what it leaves pending.
    pub fn lock_chunk(&self, chunk: u64, holder: u32) -> Result<Option<Ticket>> {
        let line = self.line(chunk);
        let mine = self.held_by(holder);
        let mut spins = 0;
        loop {
            let word = self.mem.load_cached(line + OWNER_OFFSET);
            if self.is_free(word) && self.mem.cas(line + OWNER_OFFSET, word, mine).is_ok() {
                break;
            }
            if self.broken.load(Ordering::Relaxed) {
                return Err(Error::Broken);
            }
            pause(&mut spins);
        }
        if self.mem.load_cached(line + TAG_OFFSET) != self.tag {
            let sequence = self.mem.load_cached(line + SEQUENCE_OFFSET);
            self.mem.store(line + PENDING_OFFSET, 0);
            self.mem
                .store(line + SEQUENCE_OFFSET, sequence.wrapping_add(1) & !1);
            self.mem.store(line + TAG_OFFSET, self.tag);
            return Ok(None);
        }
        let pending = self.mem.load_cached(line + PENDING_OFFSET);
        Ok((pending != 0).then(|| Ticket::of(pending)))
    }

    pub fn unlock_chunk(&self, chunk: u64) {
        self.mem.store(self.line(chunk) + OWNER_OFFSET, 0);
    }

    /// Before (`odd`) and after a locked chunk is changed in place.
    pub fn mark_changing(&self, chunk: u64, odd: bool) {
        let at = self.line(chunk) + SEQUENCE_OFFSET;
        let sequence = self.mem.load_cached(at);
        self.mem.store(at, (sequence | 1) + u64::from(!odd));
    }

    pub fn set_pending(&self, chunk: u64, ticket: Ticket) {
        self.mem
            .store(self.line(chunk) + PENDING_OFFSET, ticket.word());
    }

    /// A chunk's sequence, when nobody is changing the chunk.
    fn sequence(&self, chunk: u64) -> Result<u64> {
        let line = self.line(chunk);
        if self.mem.load_cached(line + TAG_OFFSET) != self.tag {
            let _window = self.mem.window();
            self.lock_chunk(chunk, HOLDER_READER)?;
            self.unlock_chunk(chunk);
        }
        let mut spins = 0;
        loop {
            let sequence = self.mem.load_cached(line + SEQUENCE_OFFSET);
            if sequence & 1 == 0 {
                return Ok(sequence);
            }
            if self.broken.load(Ordering::Relaxed) {
                return Err(Error::Broken);
            }
            pause(&mut spins);
        }
    }

    /// Copies bytes of the heap as they were at one moment, between the commits of others.
    pub fn read_stable(&self, offset: u64, to: &mut [u8]) -> Result<()> {
        if to.is_empty() {
            return Ok(());
        }
        let first = offset / CHUNK_BYTES;
        let last = (offset + to.len() as u64 - 1) / CHUNK_BYTES;
        let mut before = [0; 2];
        let mut many = Vec::new();
        loop {
            if last - first < 2 {
                for (at, chunk) in (first..=last).enumerate() {
                    before[at] = self.sequence(chunk)?;
                }
            } else {
                many.clear();
                for chunk in first..=last {
                    many.push(self.sequence(chunk)?);
                }
            }
            self.mem.copy_out(offset, to)?;
            self.mem.acquire();
            let old = if many.is_empty() { &before[..] } else { &many };
            let mut chunks = (first..=last).zip(old);
            if chunks.all(|(chunk, &old)| {
                self.mem.load_cached(self.line(chunk) + SEQUENCE_OFFSET) == old
            }) {
                return Ok(());
            }
        }
    }
}

/// Waits a little, longer from time to time.
fn pause(spins: &mut u32) {
    *spins += 1;
    if *spins < SPINS {
        std::hint::spin_loop();
    } else {
        std::thread::yield_now();
    }
}
