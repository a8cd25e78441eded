//! Giving room back to the medium: chunks without objects become free, the heap becomes shorter by
//! the free chunks at its end, and free runs of 2 MiB become holes of the file.
//!
//! The first is a transaction, beside other users, who may have the heap while holes are made too
//! (`holes.rs`). The rest is done to a heap that was left clean and that nobody has, under its
//! attach lock. It is marked as in use meanwhile, in a run of its own, so that one who only reads
//! sees that something goes on:
//! 1. The words with the lengths of spans: first all of the copy, then all of the header, then a
//!    fence. The header's count; the next opener has the copy say the same.
//! 2. The file becomes shorter. A crash before leaves a file that is longer than its heap, no more.
//! 3. Holes. Free chunks mean nothing.

use std::fs::File;
use std::path::Path;

use pmem::{MediumKind, Pmem};
use pmlib_format::CHUNK_BYTES;
use pmlib_format::chunk::KIND_FREE;
use pmlib_format::header::{
    COPY_OFFSET, SPANS_MAX, SPANS_OFFSET, STATE_ACTIVE, STATE_CLEAN, STATE_OFFSET,
};
use rustix::fs::{FallocateFlags, fallocate};

use crate::attach::Entrance;
use crate::engine::Core;
use crate::error::{Error, Result};
use crate::heap::{Heap, Options, name_run, read_header, set_word};
use crate::layout::Span;
use crate::packed::{Entry, checked_value, checked_word};
use crate::space::Space;
use crate::tx::Tx;

/// Holes are of whole pages of this size: those that a medium gives at once.
pub(crate) const HOLE_BYTES: u64 = 2 << 20;

/// The room that was given back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Compacted {
    /// Bytes of chunks of objects in which no object was, which are free now.
    pub freed_bytes: u64,
    /// Bytes by which the heap and its file have become shorter.
    pub cut_bytes: u64,
    /// Bytes of free chunks that are holes of the file.
    pub hole_bytes: u64,
    /// Others have the heap: it has kept its length.
    pub is_shared: bool,
}

impl Heap {
    /// Has chunks of objects without an object be free; answers their bytes. Others may use the
    /// heap meanwhile.
    ///
    /// # Errors
    /// Those of [`Heap::tx`].
    pub fn free_chunks(&self) -> Result<u64> {
        let before = self.stats()?.free_bytes;
        let mut tx = Tx::on(self.core());
        tx.start()?;
        tx.make_room()?;
        tx.commit()?;
        Ok(self.stats()?.free_bytes.saturating_sub(before))
    }

    /// Gives the room of a heap's file back that it does not need.
    ///
    /// # Errors
    /// Those of [`Heap::open`] and [`Heap::tx`]; the file can't be changed.
    pub fn compact(path: &Path) -> Result<Compacted> {
        let options = Options::default();
        let heap = Heap::open(path, &options)?;
        let mut done = Compacted {
            freed_bytes: heap.free_chunks()?,
            ..Compacted::default()
        };
        drop(heap.close()?);
        let mem = Pmem::open(path, &options.mapping())?;
        let entrance = Entrance::to(path, &options)?;
        if entrance.has_others() {
            drop((entrance, mem));
            let heap = Heap::open(path, &options)?;
            done.hole_bytes = heap.give_back()?;
            done.is_shared = true;
            drop(heap.close()?);
            return Ok(done);
        }
        let file = match mem.medium().kind {
            MediumKind::DevDax => None,
            _ => Some(
                File::options()
                    .read(true)
                    .write(true)
                    .open(path)
                    .map_err(failed(path))?,
            ),
        };
        let (cut_bytes, holes) = cut(mem, file.as_ref().map(|file| (file, path)))?.0;
        (done.cut_bytes, done.hole_bytes) = (cut_bytes, holes);
        Ok(done)
    }

    /// The same of a heap in memory that was left clean: bytes behind its end become zeros. Answers
    /// by how many it is shorter.
    ///
    /// # Errors
    /// Those of [`Heap::compact`].
    #[doc(hidden)]
    pub fn cut_in(mem: Pmem) -> Result<(u64, Pmem)> {
        let ((bytes, _), mem) = cut(mem, None)?;
        Ok((bytes, mem))
    }
}

fn failed(path: &Path) -> impl Fn(std::io::Error) -> Error {
    move |source| {
        Error::Medium(pmem::Error::Open {
            path: path.into(),
            source,
        })
    }
}

/// Cuts a heap that nobody has; answers by how many bytes it is shorter, and how many are holes.
fn cut(mem: Pmem, file: Option<(&File, &Path)>) -> Result<((u64, u64), Pmem)> {
    mem.enter();
    let header = read_header(&mem)?;
    let core = Core::over(mem, header, None, &Options::default(), None);
    core.find_spans()?;
    let mem = &core.mem;
    let state = checked_value(mem.load(STATE_OFFSET), STATE_OFFSET);
    if state != Some(STATE_CLEAN) {
        return Err(Error::NeedsRecovery {
            why: "somebody came, and was killed",
        });
    }
    let (old, lengths) = (core.spans.chunks(), lengths(&core));
    let end = lengths
        .last()
        .map_or(old, |&(first, chunks)| first + chunks);
    let window = mem.window();
    set_word(mem, STATE_OFFSET, STATE_ACTIVE);
    name_run(mem);
    mem.fence();
    if planted!("bug-cut-before-lengths") {
        erase(mem, end, old);
    }
    for page in [COPY_OFFSET, 0] {
        for index in 1..core.spans.count() {
            let place = SPANS_OFFSET + index * 8;
            let word = match lengths.get(index as usize) {
                Some(&(_, chunks)) => checked_word(chunks as u32, place),
                None => 0,
            };
            mem.store(page + place, word);
            mem.flush(page + place, 8);
        }
        mem.fence();
    }
    let mut holes = 0;
    match file {
        None => erase(mem, end, old),
        Some((file, path)) => {
            let len = end * CHUNK_BYTES;
            if file.metadata().map_err(failed(path))?.len() > len {
                file.set_len(len).map_err(failed(path))?;
            }
            holes = punch(&core, file, end)?;
        }
    }
    set_word(mem, STATE_OFFSET, STATE_CLEAN);
    mem.fence();
    drop(window);
    Ok((((old - end) * CHUNK_BYTES, holes), core.into_memory()))
}

/// The bytes are gone that a file loses which becomes shorter.
fn erase(mem: &Pmem, end: u64, old: u64) {
    if end < old {
        mem.zero_nt(end * CHUNK_BYTES, (old - end) * CHUNK_BYTES);
        mem.fence();
    }
}

/// For each span that stays, its first chunk and how many it needs.
fn lengths(core: &Core) -> Vec<(u64, u64)> {
    let mut kept: Vec<(u64, u64)> = core
        .spans
        .iter()
        .map(|span| (span.first, span.chunks))
        .collect();
    for span in core.spans.iter().collect::<Vec<&Span>>().into_iter().rev() {
        let own = span.first + span.meta_chunks;
        let used = used_end(core, span);
        // The first one's length is in the header, and its parts lie by it.
        if span.first == 0 {
            break;
        }
        if used == own {
            kept.pop();
            continue;
        }
        if let Some(last) = kept.last_mut() {
            last.1 = used - span.first;
        }
        break;
    }
    kept
}

/// The chunk after the last one of a span that is not free.
fn used_end(core: &Core, span: &Span) -> u64 {
    let own = span.first + span.meta_chunks;
    let (mut chunk, mut end) = (own, own);
    while chunk < span.first + span.chunks {
        let entry = Entry::of(core.mem.load(span.entry(chunk)));
        let chunks = entry.extent().min(span.first + span.chunks - chunk);
        chunk += chunks;
        if entry.kind != KIND_FREE {
            end = chunk;
        }
    }
    end
}

/// Has runs of free chunks be holes of the file.
fn punch(core: &Core, file: &File, end: u64) -> Result<u64> {
    let mut free = Space::default();
    core.walk(|chunk, entry| {
        if entry.kind == KIND_FREE && chunk < end {
            free.give(chunk, 1);
        }
    });
    let mut bytes = 0;
    for (first, chunks) in free.free_spans() {
        let start = (first * CHUNK_BYTES).next_multiple_of(HOLE_BYTES);
        let stop = (first + chunks) * CHUNK_BYTES / HOLE_BYTES * HOLE_BYTES;
        if start >= stop {
            continue;
        }
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        if fallocate(file, flags, start, stop - start).is_err() {
            // Its file system has no holes.
            return Ok(bytes);
        }
        bytes += stop - start;
    }
    Ok(bytes)
}

impl Core {
    /// Has both words of each span say the same, as the header does: a crash may have come between.
    pub fn match_span_words(&self) {
        for index in 0..SPANS_MAX.min(self.spans.count() + 1) {
            let place = SPANS_OFFSET + index * 8;
            let right = match index < self.spans.count() {
                true => checked_word(self.spans.get(index).chunks as u32, place),
                false => 0,
            };
            let words = self.span_words(place);
            for (word, at) in words.into_iter().zip([place, COPY_OFFSET + place]) {
                // One that is not the heap's yet is left to its maker, who writes both.
                if word != right && (index < self.spans.count() || words[0] == 0) {
                    self.mem.store(at, right);
                    self.mem.flush(at, 8);
                }
            }
        }
    }
}
