//! Growth: a heap that is full becomes longer by a span.
//!
//! The file is made longer, the span's chunk table is stored and fenced, and then one word
//! publishes it. A crash before that leaves a file that is longer than its heap, no more. One
//! process does this at a time; the others find the span when they meet something in it.

use std::sync::PoisonError;

use pmlib_format::CHUNK_BYTES;
use pmlib_format::header::{COPY_OFFSET, SPANS_MAX, SPANS_OFFSET};
use pmlib_format::shared::GROW_OFFSET;
use pmshare::owner::Held;

use crate::engine::Core;
use crate::error::{Error, Result};
use crate::heap::{Heap, format_span};
use crate::layout::CHUNKS_MAX;
use crate::packed::{checked_value, checked_word};

/// The least by which a heap grows, unless its bound is nearer: 64 MiB.
const STEP_CHUNKS: u64 = (64 << 20) / CHUNK_BYTES;
/// Otherwise by this part of its length.
const STEP_PART: u64 = 8;

impl Heap {
    /// Makes the heap `len` bytes long at least, in whole chunks of 64 KiB; answers its length. It
    /// grows by itself when it is full: this takes the medium's room beforehand.
    ///
    /// # Errors
    /// The medium's; `Full`: it may not become so long ([`crate::Options::max`]), or has grown too
    /// often; `ReadOnly`.
    pub fn grow(&self, len: u64) -> Result<u64> {
        let core = self.core();
        core.enter()?;
        core.writable()?;
        let _window = core.mem.window();
        core.grow_to(len.div_ceil(CHUNK_BYTES))?;
        Ok(self.size())
    }
}

impl Core {
    /// Makes the heap longer, so that a run of `wanted` free chunks is there, in a write window.
    /// `false`: it can't be, or its medium has no room.
    ///
    /// # Errors
    /// The medium's, but for one without room.
    pub fn grow(&self, wanted: u64) -> Result<bool> {
        let _grower = Held::new(self, self.places.shared + GROW_OFFSET);
        self.find_spans()?;
        if self.space().has_run(wanted) {
            // Somebody else was faster.
            return Ok(true);
        }
        let one = self.growing.lock();
        let _one = one.unwrap_or_else(PoisonError::into_inner);
        let (old, count) = (self.spans.chunks(), self.spans.count());
        let bound = (self.bound() / CHUNK_BYTES).min(CHUNKS_MAX);
        let room = bound.saturating_sub(old);
        if count == SPANS_MAX {
            return Ok(false);
        }
        let step = STEP_CHUNKS.max(old / STEP_PART).min(room);
        let Some(chunks) = self.lengthen(old, step, wanted, room)? else {
            return Ok(false);
        };
        self.add_span(chunks)?;
        Ok(true)
    }

    /// Makes the heap `chunks` long at least, in a write window.
    ///
    /// # Errors
    /// The medium's; `Full`: it may not become so long, or has grown too often.
    pub fn grow_to(&self, chunks: u64) -> Result<()> {
        let _grower = Held::new(self, self.places.shared + GROW_OFFSET);
        self.find_spans()?;
        let one = self.growing.lock();
        let _one = one.unwrap_or_else(PoisonError::into_inner);
        let old = self.spans.chunks();
        if chunks <= old {
            return Ok(());
        }
        let mut more = chunks - old;
        while !self.fits(more, 1) {
            more += 1;
        }
        let bound = match self.max {
            // A device whose heap does not grow by itself: this call says that it is to.
            0 => self.mem.room(),
            _ => self.bound(),
        };
        let bound = (bound / CHUNK_BYTES).min(CHUNKS_MAX);
        if old + more > bound || self.spans.count() == SPANS_MAX {
            let wanted = more * CHUNK_BYTES;
            return Err(Error::Full { wanted });
        }
        self.mem.lengthen((old + more) * CHUNK_BYTES, false)?;
        self.add_span(more)
    }

    /// Adds a span of chunks that the file has already; by the thread that holds both locks.
    fn add_span(&self, chunks: u64) -> Result<()> {
        let count = self.spans.count();
        let span = self.spans.next(chunks);
        format_span(&self.mem, &span)?;
        if !planted!("bug-grown-before-table") {
            self.mem.fence();
        }
        let place = SPANS_OFFSET + count * 8;
        for page in [0, COPY_OFFSET] {
            self.mem
                .store(page + place, checked_word(chunks as u32, place));
            self.mem.flush(page + place, 8);
        }
        // Nothing may be stored there before the span is the heap's for good.
        self.mem.fence();
        self.spans.push(chunks);
        let first = span.first + span.meta_chunks;
        self.space().give(first, chunks - span.meta_chunks);
        Ok(())
    }

    /// Makes the file longer by a step, or by the less that its medium has room for; answers by how
    /// many chunks. One object may need more than a step.
    fn lengthen(&self, old: u64, step: u64, wanted: u64, room: u64) -> Result<Option<u64>> {
        let mut chunks = match self.fits(step, wanted) {
            true => step,
            false => wanted.saturating_mul(2).min(room),
        };
        while self.fits(chunks, wanted) {
            match self.mem.lengthen((old + chunks) * CHUNK_BYTES, false) {
                Ok(()) => return Ok(Some(chunks)),
                Err(pmem::Error::NoSpace { .. }) => chunks /= 2,
                Err(pmem::Error::NoRoom { .. }) => return Ok(None),
                Err(error) => return Err(Error::Medium(error)),
            }
        }
        Ok(None)
    }

    /// Whether a span of so many chunks has `wanted` for objects.
    fn fits(&self, chunks: u64, wanted: u64) -> bool {
        chunks > 0 && self.spans.next(chunks).meta_chunks + wanted <= chunks
    }

    /// Looks whether another process has made the heap longer, and reaches what it has added.
    ///
    /// # Errors
    /// `Damaged`; there is no address space for it.
    pub fn find_spans(&self) -> Result<()> {
        let count = self.spans.count();
        if count == SPANS_MAX || self.mem.load_cached(SPANS_OFFSET + count * 8) == 0 {
            return Ok(());
        }
        let one = self.growing.lock();
        let _one = one.unwrap_or_else(PoisonError::into_inner);
        while let Some(chunks) = self.span_after(self.spans.count())? {
            let end = self.spans.chunks() + chunks;
            self.mem
                .extend(end * CHUNK_BYTES)
                .map_err(|error| match error {
                    pmem::Error::TooSmall { .. } => Error::Damaged {
                        what: "the list of spans",
                        offset: SPANS_OFFSET,
                    },
                    error => Error::Medium(error),
                })?;
            let span = self.spans.next(chunks);
            self.spans.push(chunks);
            self.space()
                .give(span.first + span.meta_chunks, chunks - span.meta_chunks);
        }
        Ok(())
    }

    /// A span's word in the header, and in its copy.
    pub fn span_words(&self, place: u64) -> [u64; 2] {
        [place, COPY_OFFSET + place].map(|at| self.mem.load(at))
    }

    /// The chunks of a span as the header says, or else its copy; `None`: there is no such span.
    pub fn span_after(&self, count: u64) -> Result<Option<u64>> {
        if count == SPANS_MAX {
            return Ok(None);
        }
        let place = SPANS_OFFSET + count * 8;
        let [word, copy] = self.span_words(place);
        let chunks = checked_value(word, place).or_else(|| checked_value(copy, place));
        let damaged = Error::Damaged {
            what: "the list of spans",
            offset: place,
        };
        match chunks.map(u64::from) {
            None if word == 0 => Ok(None),
            None => Err(damaged),
            Some(chunks) => {
                let fits = self.spans.chunks() + chunks <= CHUNKS_MAX
                    && self.spans.next(chunks).meta_chunks < chunks;
                fits.then_some(Some(chunks)).ok_or(damaged)
            }
        }
    }
}
