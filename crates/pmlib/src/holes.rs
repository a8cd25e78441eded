//! Holes of a heap's file that are made beside its users: free chunks lose their space, and whoever
//! takes them gives it to them again.
//!
//! A chunk becomes a hole while it is taken as by a transaction: nobody has anything there, and all
//! records that changed it are closed durably, so that recovery stores nothing to the hole. Its
//! line says so before. A process that dies meanwhile leaves a word that may be wrong in one way:
//! it says a hole where there is none.

use pmlib_format::CHUNK_BYTES;
use pmlib_format::chunk::HOLE_OFFSET;

use crate::compact::HOLE_BYTES;
use crate::engine::Core;
use crate::error::Result;
use crate::heap::Heap;
use crate::lane::Lane;
use crate::space::Object;
use crate::tx::Tx;

impl Heap {
    /// Gives free runs of 2 MiB back to the file system, as holes of the heap's file; answers their
    /// bytes. Chunks of objects without an object become free first ([`Heap::free_chunks`]). Others
    /// may use the heap meanwhile; up to 2 MiB at a time are not to be had for them. Runs that have
    /// become holes since the heap was last opened by its first user are not counted again. 0: the
    /// medium has no holes, or there is no such run.
    ///
    /// A chunk that was a hole gets space again when it is taken. A heap whose medium has none then
    /// may answer `Full`, though it has free bytes.
    ///
    /// # Errors
    /// Those of [`Heap::tx`].
    pub fn give_back(&self) -> Result<u64> {
        self.free_chunks()?;
        self.punch(HOLE_BYTES / CHUNK_BYTES)
    }

    /// The same of runs of `chunks`, of those alone that this process knows to be free.
    ///
    /// # Errors
    /// Those of [`Heap::tx`].
    #[doc(hidden)]
    pub fn punch(&self, chunks: u64) -> Result<u64> {
        let core = self.core();
        let mut tx = Tx::on(core);
        tx.start()?;
        let lane = tx.need_lane()?;
        let (mut from, mut holes) = (0, 0);
        loop {
            let Some(first) = core.space().take_aligned(from, chunks) else {
                break;
            };
            match core.punch(lane, first, chunks) {
                Some(made) => holes += made,
                // Its file system has no holes.
                None => break,
            }
            from = first + chunks;
        }
        Ok(holes * CHUNK_BYTES)
    }
}

impl Core {
    /// Whether the file may have a hole in one of these chunks, made by somebody who has the heap.
    pub fn has_hole(&self, first: u64, chunks: u64) -> bool {
        (first..first + chunks).any(|chunk| self.mem.load_cached(self.hole(chunk)) != 0)
    }

    fn hole(&self, chunk: u64) -> u64 {
        self.line(chunk) + HOLE_OFFSET
    }

    fn set_hole(&self, first: u64, chunks: u64, value: u64) {
        for chunk in first..first + chunks {
            self.mem.store(self.hole(chunk), value);
        }
    }

    /// Gives space to chunks that the caller has taken. `false`: their medium has none.
    pub fn fill_hole(&self, first: u64, chunks: u64) -> bool {
        let has_space = self.mem.fill(first * CHUNK_BYTES, chunks * CHUNK_BYTES);
        if has_space {
            self.set_hole(first, chunks, 0);
        }
        has_space
    }

    /// Has chunks be a hole, which are in no list of free ones; answers how many have become one.
    /// `None`: the file can't have holes.
    fn punch(&self, lane: &Lane, first: u64, chunks: u64) -> Option<u64> {
        let _window = self.mem.window();
        let is_known = (first..first + chunks).all(|chunk| self.has_hole(chunk, 1));
        if is_known {
            self.space().give(first, chunks);
            return Some(0);
        }
        if !planted!("bug-hole-in-anothers-chunk") && !self.take_all(lane, first, chunks) {
            return Some(0);
        }
        self.set_hole(first, chunks, 1);
        let is_hole = self.mem.punch(first * CHUNK_BYTES, chunks * CHUNK_BYTES);
        if !is_hole {
            self.set_hole(first, chunks, 0);
        }
        self.untake(first, chunks);
        is_hole.then_some(chunks)
    }

    /// Has an object's own chunks be a hole, for a planted bug.
    pub fn punch_object(&self, object: Object) {
        if let Object::Run(first, chunks) = object {
            let _window = self.mem.window();
            let _ = self.mem.punch(first * CHUNK_BYTES, chunks * CHUNK_BYTES);
        }
    }
}
