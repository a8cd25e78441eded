//! The state that all parts of an open heap share, and its chunks' locks.
//!
//! **A chunk's lock** covers each word in the chunk from before a record with that word is written
//! until it has been stored in place. Locks are taken in the order of the chunks, and their holder
//! waits for nothing but the medium. A lock's line names the last record that changed the chunk
//! (`pending`): the next holder's record gets a greater stamp, and if that record is another
//! lane's, the holder closes it (`crates/pmlib/src/lane.rs`).

use std::ops::{Deref, RangeInclusive};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use pmem::MediumKind;
use pmem::Pmem;
use pmlib_format::chunk::{OWNER_OFFSET, PENDING_OFFSET, SEQUENCE_OFFSET};
use pmlib_format::header::{NAMES_OFFSET, ROOT_OFFSET};
use pmlib_format::{CHUNK_BYTES, HeaderRaw};
use pmshare::{Share, owner, rescue};
use zerocopy::IntoBytes;

use crate::check::Key;
use crate::counts::Counts;
use crate::error::{Error, Result};
use crate::layout::{Places, Span, Spans};
use crate::packed::{Ticket, root_of};
use crate::protocol;
use crate::reader::Reader;
use crate::seen::Seen;
use crate::sessions::Sessions;
use crate::shared::Memory;
use crate::space::Space;

/// Looks at a chunk that is being changed before its reader sleeps.
const SPINS: u32 = 200;
/// The sleep of such a reader.
const NAP: Duration = Duration::from_micros(100);

/// An open heap.
pub(crate) struct Core {
    /// This process among those that have the heap.
    pub share: Share<Memory>,
    pub header: HeaderRaw,
    pub places: Places,
    pub spans: Spans,
    pub key: Key,
    /// Room that this process believes in: a hint.
    pub space: Mutex<Space>,
    /// Chunks that it lists.
    pub seen: Arc<Seen>,
    /// The lock of the thread that looks for spans, or adds one.
    pub growing: Mutex<()>,
    /// Bytes to which it may grow.
    pub max: u64,
    /// The process that opened it.
    pub life: u64,
    /// A commit broke off: what this process knows is believed no more.
    pub broken: AtomicBool,
    /// Tells it from others of the process.
    pub id: u64,
    /// A view is tried again for so long.
    pub patience: Duration,
    /// Counts of its threads' calls.
    pub counts: Counts,
    /// Sessions of readers of engines.
    pub sessions: Sessions,
    /// It is only read.
    pub reader: Option<Reader>,
    /// It was opened, and is not only looked at as it stands.
    pub is_open: bool,
    /// Counts it among those of the process.
    pub _counted: Counted,
}

/// Heaps that this process has.
static HEAPS: AtomicU64 = AtomicU64::new(0);

/// One of them.
#[derive(Debug)]
pub(crate) struct Counted(());

impl Counted {
    pub fn new() -> Counted {
        HEAPS.fetch_add(1, Ordering::Relaxed);
        Counted(())
    }

    /// How many there are.
    pub fn heaps() -> u64 {
        HEAPS.load(Ordering::Relaxed)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        HEAPS.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Deref for Core {
    type Target = Share<Memory>;

    #[inline(always)]
    fn deref(&self) -> &Share<Memory> {
        &self.share
    }
}

impl Core {
    pub fn space(&self) -> MutexGuard<'_, Space> {
        // No panic leaves it half changed: it is changed by single calls of collections.
        self.space.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether this process may use it, and its thread may load.
    #[inline]
    pub fn enter(&self) -> Result<()> {
        let is_well = pmem::life::number() == self.life
            && !self.broken.load(Ordering::Relaxed)
            && !self.share.is_damaged()
            && self.mem.failed().is_none();
        if !is_well {
            return self.refuse();
        }
        self.mem.enter();
        Ok(())
    }

    /// Whether this process opened it.
    ///
    /// # Errors
    /// `Forked`: it is a copy of the one that did.
    pub fn test_process(&self) -> Result<()> {
        match pmem::life::number() == self.life {
            true => Ok(()),
            false => Err(Error::Forked),
        }
    }

    /// The cause why this process may not use it.
    #[cold]
    fn refuse(&self) -> Result<()> {
        self.test_process()?;
        if let (false, Some(offset)) = (self.is_broken(), self.mem.failed()) {
            // One who only reads may have met what the heap has lost at its end.
            self.look()?;
            return Err(Error::Lost { offset });
        }
        Err(Error::Broken)
    }

    fn is_broken(&self) -> bool {
        self.broken.load(Ordering::Relaxed) || self.share.is_damaged()
    }

    /// The lane's memory after its words are believed no more, or not yet.
    pub fn broke(&self) {
        self.broken.store(true, Ordering::Relaxed);
    }

    /// That it was not opened to be read.
    pub fn writable(&self) -> Result<()> {
        match self.reader {
            None => Ok(()),
            Some(_) => Err(Error::ReadOnly),
        }
    }

    /// The memory back.
    pub fn into_memory(mut self) -> Pmem {
        let memory = self.share.store_mut();
        std::mem::replace(&mut memory.mem, Pmem::private(0))
    }

    /// Bytes that the heap has or may come to have. A device is mapped to its end, and the heap may
    /// be a part of it.
    pub fn bound(&self) -> u64 {
        let there = match self.mem.medium().kind {
            MediumKind::DevDax => self.spans.chunks() * CHUNK_BYTES,
            _ => self.mem.len(),
        };
        self.max.min(self.mem.room()).max(there)
    }

    /// Words from `offset` on, of a range that is in the heap.
    pub fn words(&self, offset: u64, count: usize, to: &mut Vec<u64>) -> Result<()> {
        to.clear();
        to.resize(count, 0);
        self.mem.copy_out(offset, to.as_mut_bytes())?;
        Ok(())
    }

    /// The span of a chunk, also of one by which another process has made the heap longer; `None`:
    /// past the end.
    #[inline]
    pub fn span_of(&self, chunk: u64) -> Option<&Span> {
        self.spans.of(chunk).or_else(|| self.look_for_span(chunk))
    }

    #[cold]
    fn look_for_span(&self, chunk: u64) -> Option<&Span> {
        self.find_spans().ok()?;
        self.spans.of(chunk)
    }

    /// Whether the heap is longer than so many bytes.
    pub fn has_room_for(&self, bytes: u64) -> bool {
        self.span_of(bytes / CHUNK_BYTES).is_some()
    }

    /// The line of a chunk that is in the heap.
    #[inline]
    pub fn line(&self, chunk: u64) -> u64 {
        let span = self.span_of(chunk).expect("a chunk of the heap");
        span.line(chunk)
    }

    /// Locks a chunk, in a write window; answers what it leaves pending.
    pub fn lock_chunk(&self, chunk: u64) -> Option<Ticket> {
        self.lock_at(self.line(chunk))
    }

    pub fn unlock_chunk(&self, chunk: u64) {
        self.unlock_at(self.line(chunk));
    }

    /// Locks the chunk with this line, as [`Core::lock_chunk`] does.
    #[inline]
    pub fn lock_at(&self, line: u64) -> Option<Ticket> {
        owner::acquire(self, line + OWNER_OFFSET);
        self.pending_at(line)
    }

    #[inline]
    pub fn unlock_at(&self, line: u64) {
        owner::release_by_store(&self.share, line + OWNER_OFFSET);
    }

    /// The last record that changed a chunk, in this run.
    pub fn pending(&self, chunk: u64) -> Option<Ticket> {
        self.pending_at(self.line(chunk))
    }

    #[inline]
    fn pending_at(&self, line: u64) -> Option<Ticket> {
        let word = self.mem.load_cached(line + PENDING_OFFSET);
        (word != 0).then(|| Ticket::of(word))
    }

    /// Whether a record is closed durably: nobody will redo it, nor any that it follows.
    pub fn is_settled(&self, ticket: Ticket) -> bool {
        let place = self.lane_place(ticket.lane);
        place.is_settled(&self.mem, ticket.stamp) || planted!("bug-unsettled-chunk-given-out")
    }

    /// Before (`odd`) and after the locked chunk with this line is changed in place.
    #[inline]
    pub fn mark_changing(&self, line: u64, odd: bool) {
        protocol::mark_changing(&self.mem, line + SEQUENCE_OFFSET, odd);
    }

    /// The chunk with this line was changed by this record last.
    #[inline]
    pub fn set_pending(&self, line: u64, ticket: Ticket) {
        self.mem.store(line + PENDING_OFFSET, ticket.word());
    }

    /// The sequence of the chunk with this line, when nobody is changing the chunk.
    #[inline(always)]
    pub fn sequence(&self, line: u64) -> Result<u64> {
        let mut spins = 0;
        protocol::sequence(&self.mem, line + SEQUENCE_OFFSET, || {
            spins += 1;
            self.await_sequence(line, spins)
        })
    }

    /// The time between two looks at a sequence; `spins`: how many looks there were.
    #[cold]
    fn await_sequence(&self, line: u64, spins: u32) -> Result<()> {
        if spins < SPINS {
            std::hint::spin_loop();
            return Ok(());
        }
        self.enter()?;
        std::thread::sleep(NAP);
        let owner = self.mem.load_cached(line + OWNER_OFFSET);
        rescue::recover_if_dead(self.into(), owner);
        Ok(())
    }

    /// Whether all that was read since these chunks' sequences were noted is of one moment.
    #[inline]
    pub fn is_unchanged(&self, noted: &[(u64, u64)]) -> bool {
        let places = noted
            .iter()
            .map(|&(chunk, sequence)| (self.line(chunk) + SEQUENCE_OFFSET, sequence));
        protocol::is_unchanged(&self.mem, places)
    }

    /// The object that the root pointer names; 0: none.
    pub fn root(&self) -> Result<u64> {
        self.object_at(ROOT_OFFSET, "the root pointer")
    }

    /// Where the list of named roots begins; 0: there are none.
    pub fn names(&self) -> Result<u64> {
        self.object_at(NAMES_OFFSET, "the pointer to named roots")
    }

    fn object_at(&self, offset: u64, what: &'static str) -> Result<u64> {
        root_of(self.mem.load(offset)).ok_or(Error::Damaged { what, offset })
    }

    /// Copies bytes of the heap as they were at one moment, between the commits of others.
    #[inline(always)]
    pub fn read_stable(&self, offset: u64, to: &mut [u8]) -> Result<()> {
        if to.is_empty() {
            return Ok(());
        }
        let first = offset / CHUNK_BYTES;
        let last = (offset + to.len() as u64 - 1) / CHUNK_BYTES;
        if first != last || self.reader.is_some() {
            return self.read_stable_chunks(first..=last, offset, to);
        }
        let line = self.line(first);
        loop {
            let before = self.sequence(line)?;
            self.mem.copy_out(offset, to)?;
            if protocol::is_unchanged(&self.mem, [(line + SEQUENCE_OFFSET, before)]) {
                return Ok(());
            }
        }
    }

    /// Reads as [`Core::read_stable`] does, from several chunks or as one who only reads.
    #[inline(never)]
    fn read_stable_chunks(
        &self,
        chunks: RangeInclusive<u64>,
        offset: u64,
        to: &mut [u8],
    ) -> Result<()> {
        if self.reader.is_some() {
            return self.read_as_reader(offset, to);
        }
        let mut before = Vec::new();
        loop {
            before.clear();
            for chunk in chunks.clone() {
                before.push((chunk, self.sequence(self.line(chunk))?));
            }
            self.mem.copy_out(offset, to)?;
            if self.is_unchanged(&before) {
                return Ok(());
            }
        }
    }
}
