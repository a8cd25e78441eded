//! The ground of an engine: bytes of a heap that it keeps by itself, without redo records.
//!
//! - An engine's bytes are *owned runs*: chunks of their own, whose entries in the chunk table name
//!   the engine's head object. A transaction takes and frees them ([`Tx::take_owned`]), so that the
//!   heap accounts for them, and the engine finds them again ([`Ground::runs_of`]). No transaction
//!   stores into them.
//! - Their content is the engine's: it stores, flushes and fences, and recovers it by its own rules
//!   after power loss.
//! - The lock of a run's first chunk is the engine's lock of the run ([`Ground::lock`]). It is open
//!   after its process: whoever cleans up after a dead one opens it. The next holder finds the dead
//!   one's half-done work by the engine's words of the chunk's line ([`Ground::note`]).
//! - The holder of such a lock may commit a transaction that it has begun before, and begins none.
//!   An engine that takes several such locks has an order for them.
#![doc(hidden)]

use pmem::Pmem;
use pmlib_format::CHUNK_BYTES;
use pmlib_format::chunk::{ENGINE_OFFSET, KIND_RUN, OWNER_OFFSET};
use pmlib_format::header::RUN_OFFSET;
use pmshare::holder::thread_tag;
use pmshare::{owner, patrol, rescue};

pub use crate::counts::Count;
use crate::engine::Core;
use crate::entered::is_in;
use crate::error::{Error, Result};
use crate::heap::Heap;
use crate::packed::Entry;
use crate::space::Object;
use crate::tx::{Made, Tx};

/// A heap, as an engine sees it.
#[derive(Clone, Copy)]
pub struct Ground<'h> {
    pub(crate) core: &'h Core,
}

impl Heap {
    /// The heap as an engine sees it.
    #[must_use]
    pub fn ground(&self) -> Ground<'_> {
        Ground { core: self.core() }
    }
}

impl Tx<'_> {
    /// Takes chunks of their own for `size` bytes, which are the object `owner`'s; answers their
    /// offset. Their content is chance: the engine stores its first content, and fences, before the
    /// transaction ends.
    ///
    /// # Errors
    /// `Full`; `Size`.
    pub fn take_owned(&mut self, size: u64, owner: u64) -> Result<u64> {
        let core = self.core();
        core.enter()?;
        // Another process may have made the heap longer than this one would.
        if size == 0 || size > core.bound() && !core.has_room_for(size) {
            return Err(Error::Size { size });
        }
        let chunks = size.div_ceil(CHUNK_BYTES);
        let first = self.take(chunks)?.ok_or(Error::Full { wanted: size })?;
        let (object, offset) = (Object::Run(first, chunks), first * CHUNK_BYTES);
        let made = Made {
            object,
            word: owner,
        };
        self.work.plan.note_made(offset, made);
        let _window = core.mem.window();
        let line = core.line(offset / CHUNK_BYTES);
        core.mem.write(line + ENGINE_OFFSET, &[0, 0]);
        Ok(offset)
    }
}

impl<'h> Ground<'h> {
    /// The memory.
    #[inline]
    #[must_use]
    pub fn mem(self) -> &'h Pmem {
        &self.core.mem
    }

    /// The key of the heap's checks.
    #[inline]
    #[must_use]
    pub fn seed(self) -> u64 {
        self.core.header.seed
    }

    /// The number of the run, which grows with each opening by a first process.
    #[inline]
    #[must_use]
    pub fn run(self) -> u32 {
        self.core.mem.load_cached(RUN_OFFSET) as u32
    }

    /// A number of this thread, for its share of something.
    #[inline]
    #[must_use]
    pub fn thread(self) -> u64 {
        thread_tag()
    }

    /// Before a look at the heap.
    ///
    /// # Errors
    /// A heap that can't be used; `ReadOnly`: its reader could not settle what power loss left.
    #[inline]
    pub fn enter(self) -> Result<()> {
        self.core.enter()?;
        self.core.writable()
    }

    /// Before a change, by a thread that holds nothing.
    ///
    /// # Errors
    /// Those of [`Ground::enter`]; `Nested`: it has a transaction of this heap.
    #[inline]
    pub fn enter_to_change(self) -> Result<()> {
        self.enter()?;
        if is_in((self.core.mem.identity(), self.core.life)) {
            return Err(Error::Nested);
        }
        patrol::writable(self.core)?;
        Ok(())
    }

    /// Whether the heap has these bytes; others may have made it longer.
    #[inline]
    #[must_use]
    pub fn has(self, offset: u64, len: u64) -> bool {
        let Some(end) = offset.checked_add(len) else {
            return false;
        };
        // 0 has no last byte.
        let last = end.wrapping_sub(1);
        last < self.core.spans.first_bytes() || end > 0 && self.has_further(last / CHUNK_BYTES)
    }

    #[inline(never)]
    fn has_further(self, chunk: u64) -> bool {
        self.core.span_of(chunk).is_some()
    }

    /// Whether the run that begins at a chunk is this object's; answers its chunks, or 0.
    #[must_use]
    pub fn owned(self, chunk: u64, by: u64) -> u64 {
        let Some(span) = self.core.span_of(chunk) else {
            return 0;
        };
        let [word, owner] = self.core.mem.read(span.entry(chunk));
        let entry = Entry::of(word);
        let is_run = entry.kind == KIND_RUN && owner == by && self.has(chunk * CHUNK_BYTES, 1);
        if is_run { entry.chunks } else { 0 }
    }

    /// The runs of an object: first chunk, chunks.
    #[must_use]
    pub fn runs_of(self, by: u64) -> Vec<(u64, u64)> {
        let mut runs = Vec::new();
        let _ = self.core.find_spans();
        self.core.walk_owners(|chunk, entry, owner| {
            if entry.kind == KIND_RUN && owner == by {
                runs.push((chunk, entry.chunks));
            }
        });
        runs
    }

    /// Where an engine's word of a chunk's line is, 0 or 1. It is 0 in a new run of the heap.
    ///
    /// # Panics
    /// If the heap has no such chunk.
    #[inline]
    #[must_use]
    pub fn note(self, chunk: u64, word: u64) -> u64 {
        debug_assert!(word < 2);
        self.core.line(chunk) + ENGINE_OFFSET + word * 8
    }

    /// Where an engine's word 0 of a chunk's line is; `None`: the heap has no such chunk. Word 1 is
    /// the next one.
    #[inline(always)]
    #[must_use]
    pub fn note_if_there(self, chunk: u64) -> Option<u64> {
        let span = self.core.span_of(chunk)?;
        Some(span.line(chunk) + ENGINE_OFFSET)
    }

    /// Locks a run by its first chunk, in a write window.
    ///
    /// # Panics
    /// If the heap has no such chunk.
    #[inline]
    #[must_use]
    pub fn lock(self, chunk: u64) -> Locked<'h> {
        let line = self.core.line(chunk);
        owner::acquire(self.core, line + OWNER_OFFSET);
        Locked {
            core: self.core,
            line,
        }
    }
}

/// A run's lock, until this is dropped.
pub struct Locked<'h> {
    core: &'h Core,
    line: u64,
}

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            // Half a change is for the next holder, as after a dead process.
            self.core.broke();
            rescue::clean_after_thread(self.core, thread_tag());
        } else {
            owner::release(&self.core.share, self.line + OWNER_OFFSET);
        }
    }
}
