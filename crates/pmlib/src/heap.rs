//! A heap: made, opened, read, and left.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use pmem::slots::ByteLock;
use pmem::{MapOptions, Pmem};
use pmlib_format::chunk::{GROUP_BYTES, GROUP_CHUNKS, KIND_FREE, KIND_META};
use pmlib_format::header::{
    COPY_OFFSET, HEADER_PAGE_BYTES, MAGIC, ROOT_OFFSET, RUN_OFFSET, SPANS_MAX, SPANS_OFFSET,
    STATE_ACTIVE, STATE_CLEAN, STATE_OFFSET,
};
use pmlib_format::lane::{CLOSED_OFFSET, LANE_BYTES, LANE_LINE_BYTES, LANES_MAX};
use pmlib_format::{CHUNK_BYTES, HeaderRaw, VERSION};
use zerocopy::{FromBytes, FromZeros, IntoBytes};

use crate::check::{Key, split_mix};
use crate::engine::Core;
use crate::error::{Error, Result};
use crate::lane::{GROUP_WORDS, Lane, group_check};
use crate::layout::{CHUNKS_MAX, Places, Span, Spans, possible};
use crate::packed::{Entry, checked_value, checked_word, closed_word, root_of, root_word};
use crate::space::Space;
use crate::tx::{Tx, in_object, thread};

/// The byte of a heap's file that its process locks: beyond any file's end, and none of a pool's.
const LOCK_BYTE: u64 = (1 << 62) + (1 << 61);

/// Address space that is kept for a heap's growth.
const ROOM_BYTES: u64 = 1 << 40;

/// How a heap is made and mapped.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// How its file is mapped.
    pub map: MapOptions,
    /// How many transactions may go on at once; 0: one a MiB of the heap, 2 to 64, and then one
    /// more a GiB.
    pub lanes: u32,
    /// Bytes of log for each of them, a multiple of 64; 0: 64 KiB.
    pub lane_bytes: u64,
    /// Bytes to which it may grow; 0: 1 TiB in a file, and not at all in memory. Address space for
    /// them is kept, or for what the process may have.
    pub max: u64,
    /// What the heap's name and its records' checks are made from; 0: chance.
    pub seed: u64,
}

impl Options {
    fn mapping(&self) -> MapOptions {
        MapOptions {
            reserve: match self.max {
                0 => ROOM_BYTES,
                max => max,
            },
            ..self.map
        }
    }
}

/// A persistent heap in this process.
///
/// Everything is named by its offset in bytes: no address is ever stored, so that a heap can be
/// mapped anywhere.
pub struct Heap {
    core: Core,
    /// Other processes can't have it.
    _lock: Option<ByteLock>,
    /// It is left clean.
    closes: bool,
}

impl Heap {
    /// Makes a heap of `len` bytes, in whole chunks of 64 KiB, in a file that is not there yet, or
    /// on a DAX device.
    ///
    /// # Errors
    /// Those of [`Pmem::create`]; `TooSmall`; `Busy`.
    pub fn create(path: &Path, len: u64, options: &Options) -> Result<Heap> {
        let header = new_header(len, options)?;
        let len = header.chunks * CHUNK_BYTES;
        let mem = Pmem::create(path, len, false, true, &options.mapping())?;
        let lock = lock(path)?;
        format(&mem, &header)?;
        Heap::attach_locked(mem, Some(lock))
    }

    /// Opens the heap in a file. If it was not left clean, what had committed is there and nothing
    /// else.
    ///
    /// # Errors
    /// Those of [`Pmem::open`]; `Busy`; `Foreign`, `Version`, `Features`, `TooSmall`, `Damaged`.
    pub fn open(path: &Path, options: &Options) -> Result<Heap> {
        let mem = Pmem::open(path, &options.mapping())?;
        Heap::attach_locked(mem, Some(lock(path)?))
    }

    /// A heap in memory of this process, for which nothing is to last.
    ///
    /// # Errors
    /// `TooSmall`.
    pub fn private(len: u64, options: &Options) -> Result<Heap> {
        let header = new_header(len, options)?;
        let len = header.chunks * CHUNK_BYTES;
        let mem = match options.max {
            0 => Pmem::private(len),
            max => Pmem::private_within(len, max.max(len)),
        };
        format(&mem, &header)?;
        Heap::attach(mem)
    }

    /// Makes the first `len` bytes of `mem` a heap, and leaves it. It grows into the rest.
    ///
    /// # Errors
    /// `TooSmall`.
    pub fn format(mem: &Pmem, len: u64, options: &Options) -> Result<()> {
        format(mem, &new_header(len.min(mem.len()), options)?)
    }

    /// Opens the heap in `mem`, which no other process may have.
    ///
    /// # Errors
    /// As [`Heap::open`].
    pub fn attach(mem: Pmem) -> Result<Heap> {
        Heap::attach_locked(mem, None)
    }

    fn attach_locked(mem: Pmem, lock: Option<ByteLock>) -> Result<Heap> {
        mem.enter();
        // Of a file nobody can guess it, so that no word in the file was made to look like this
        // run's: such a lock would never be opened. A checker's memory has the same one each time.
        let salt = lock.as_ref().map_or(0, |_| chance());
        let core = attach(mem, salt)?;
        Ok(Heap {
            core,
            _lock: lock,
            closes: true,
        })
    }

    /// Leaves the heap clean, so that the next opener has nothing to redo; answers its memory. A
    /// heap that is dropped is left clean too, if that can be done.
    ///
    /// # Errors
    /// `Broken`, `Lost`, `Forked`.
    pub fn close(self) -> Result<Pmem> {
        self.leave()?;
        Ok(self.into_memory())
    }

    /// The memory back, as a crash would leave it.
    #[must_use]
    pub fn into_memory(mut self) -> Pmem {
        self.closes = false;
        std::mem::replace(&mut self.core.mem, Pmem::private(0))
    }

    /// Closes every lane durably, and says so.
    fn leave(&self) -> Result<()> {
        let core = &self.core;
        core.enter()?;
        let _window = core.mem.window();
        for lane in &core.lanes {
            let mut lane = lane.lock().unwrap_or_else(PoisonError::into_inner);
            core.quiet(&mut lane, thread())?;
        }
        set_word(&core.mem, STATE_OFFSET, STATE_CLEAN);
        core.mem.fence();
        Ok(())
    }

    /// Does what the closure says, all of it or, after an error or a panic, nothing. It is durable
    /// when this returns.
    ///
    /// # Errors
    /// The closure's; `Nested`: this thread has a transaction of this heap; `NoObject`: another
    /// transaction has freed what this one frees; `Full`; `Forked`.
    pub fn tx<T, E: From<Error>>(
        &self,
        body: impl FnOnce(&mut Tx<'_>) -> std::result::Result<T, E>,
    ) -> std::result::Result<T, E> {
        let mut tx = Tx::begin(&self.core)?;
        let value = body(&mut tx)?;
        tx.commit()?;
        Ok(value)
    }

    /// A transaction on a lane of the caller's choice, which nobody may have; it ends by
    /// [`Heap::commit`], or by being dropped. For checkers, which run several on one thread.
    ///
    /// # Panics
    /// If there is no such lane, or it is in use.
    #[doc(hidden)]
    pub fn begin_on(&self, lane: usize) -> Tx<'_> {
        let lane = self.core.lanes[lane].try_lock().expect("a free lane");
        Tx::on(&self.core, lane, thread())
    }

    /// Ends such a transaction.
    ///
    /// # Errors
    /// As [`Heap::tx`].
    #[doc(hidden)]
    pub fn commit(&self, tx: Tx<'_>) -> Result<()> {
        tx.commit()
    }

    /// Copies bytes of an object from `start` on, as they were between two transactions.
    ///
    /// # Errors
    /// `NoObject`; `Range`.
    pub fn read(&self, offset: u64, start: u64, to: &mut [u8]) -> Result<()> {
        self.core.enter()?;
        let object = self.core.object(offset)?;
        in_object(offset, object.size(), start, to.len() as u64)?;
        self.core.read_stable(offset + start, to)
    }

    /// Bytes of an object: at least those that were asked for.
    ///
    /// # Errors
    /// `NoObject`.
    pub fn size_of(&self, offset: u64) -> Result<u64> {
        self.core.enter()?;
        Ok(self.core.object(offset)?.size())
    }

    /// The object by which everything else is found; 0: none was set.
    ///
    /// # Errors
    /// `Damaged`.
    pub fn root(&self) -> Result<u64> {
        self.core.enter()?;
        root_of(self.core.mem.load(ROOT_OFFSET)).ok_or(Error::Damaged {
            what: "the root pointer",
            offset: ROOT_OFFSET,
        })
    }

    /// Length, bytes.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.core.spans.chunks() * CHUNK_BYTES
    }

    /// What the heap lies on, and so what its transactions survive.
    #[must_use]
    pub fn medium(&self) -> &pmem::Medium {
        self.core.mem.medium()
    }

    pub(crate) fn core(&self) -> &Core {
        &self.core
    }

    /// Where what means nothing to the next opener begins and ends, of a heap of one span.
    #[doc(hidden)]
    #[must_use]
    pub fn volatile(mem: &Pmem) -> std::ops::Range<u64> {
        let Ok(header) = read_header(mem) else {
            return 0..0;
        };
        let span = Spans::new(header).get(0);
        Places::of(&header).locks..span.line(span.chunks - 1) + 64
    }
}

impl Drop for Heap {
    fn drop(&mut self) {
        if self.closes {
            // What can't be left clean is recovered by the next opener.
            let _ = self.leave();
        }
    }
}

/// Locks a heap's file for this process.
fn lock(path: &Path) -> Result<ByteLock> {
    let lock = ByteLock::try_exclusive(path, LOCK_BYTE)?;
    lock.ok_or_else(|| Error::Busy { path: path.into() })
}

/// The header of a heap to be.
fn new_header(len: u64, options: &Options) -> Result<HeaderRaw> {
    let chunks = (len / CHUNK_BYTES).min(CHUNKS_MAX);
    let lanes = match options.lanes {
        0 => ((len >> 20).clamp(2, 64) + (len >> 30)).min(LANES_MAX.into()) as u32,
        lanes => lanes.min(LANES_MAX),
    };
    let mut state = match options.seed {
        0 => chance(),
        seed => seed,
    };
    let mut header = HeaderRaw {
        magic: MAGIC,
        version: VERSION,
        chunk_shift: CHUNK_BYTES.trailing_zeros(),
        seed: split_mix(&mut state),
        chunks: chunks.max(1),
        lanes,
        lock_lines: (lanes * 4).next_power_of_two().clamp(16, 4096),
        lane_bytes: match options.lane_bytes {
            0 => LANE_BYTES,
            bytes => bytes,
        },
        ..HeaderRaw::new_zeroed()
    };
    let name = [split_mix(&mut state), split_mix(&mut state)];
    header.uuid.copy_from_slice(name.as_bytes());
    header.crc = header_crc(&header);
    match possible(&header) {
        Some(min) if min <= len => Ok(header),
        Some(min) => Err(Error::TooSmall { len, min }),
        None => Err(Error::Size {
            size: header.lane_bytes,
        }),
    }
}

fn chance() -> u64 {
    let mut bytes = [0; 8];
    let filled = rustix::rand::getrandom(&mut bytes[..], rustix::rand::GetRandomFlags::empty());
    match filled {
        Ok(8) => u64::from_le_bytes(bytes),
        // An address and a time differ enough for a name; no secret hangs on it.
        _ => pmem::life::number() ^ (&raw const bytes).addr() as u64,
    }
}

fn header_crc(header: &HeaderRaw) -> u32 {
    let bytes = header.as_bytes();
    crc32c::crc32c(&bytes[..bytes.len() - 4])
}

fn set_word(mem: &Pmem, place: u64, value: u32) {
    mem.store(place, checked_word(value, place));
    mem.flush(place, 8);
}

/// Stores a new heap's own parts.
fn format(mem: &Pmem, header: &HeaderRaw) -> Result<()> {
    let _window = mem.window();
    mem.zero_nt(0, 2 * HEADER_PAGE_BYTES);
    let spans = Spans::new(*header);
    format_span(mem, &spans.get(0))?;
    let places = Places::of(header);
    for lane in 0..header.lanes {
        let start = places.lane(lane);
        mem.zero_nt(start, header.lane_bytes);
        mem.fence_stores();
        mem.store(start + CLOSED_OFFSET, closed_word(0));
        mem.flush(start + CLOSED_OFFSET, 8);
    }
    mem.fence();
    mem.store(ROOT_OFFSET, root_word(0));
    mem.flush(ROOT_OFFSET, 8);
    set_word(mem, RUN_OFFSET, 0);
    set_word(mem, STATE_OFFSET, STATE_CLEAN);
    for page in [0, COPY_OFFSET] {
        let place = page + SPANS_OFFSET;
        mem.store(place, checked_word(header.chunks as u32, SPANS_OFFSET));
        mem.flush(place, 8);
    }
    mem.fence();
    // The header last: until then the file has the copy at most, which leads to a whole heap.
    for page in [COPY_OFFSET, 0] {
        mem.write_bytes(page, header.as_bytes());
        mem.flush(page, size_of::<HeaderRaw>() as u64);
        mem.fence();
    }
    Ok(())
}

/// Stores the chunk table of a new span.
pub(crate) fn format_span(mem: &Pmem, span: &Span) -> Result<()> {
    let own = Entry {
        kind: KIND_META,
        class: 0,
        chunks: span.meta_chunks,
        generation: 0,
    };
    for group in 0..span.groups() {
        let mut words = [0; GROUP_WORDS];
        for at in 0..GROUP_CHUNKS as usize {
            let entry = Entry {
                kind: KIND_FREE,
                ..Entry::default()
            };
            let entry = if group == 0 && at == 0 { own } else { entry };
            words[2 * at..2 * at + 2].copy_from_slice(&entry.words());
        }
        words[2 * GROUP_CHUNKS as usize] = group_check(&words);
        let place = span.table + group * GROUP_BYTES;
        mem.write_nt(place, words.as_bytes())?;
    }
    Ok(())
}

/// Reads one of the two headers. An error says what is wrong with it.
fn read_one(mem: &Pmem, page: u64) -> Result<HeaderRaw> {
    let mut bytes = [0; size_of::<HeaderRaw>()];
    mem.copy_out(page, &mut bytes)?;
    let header = HeaderRaw::read_from_bytes(&bytes).map_err(|_| Error::Broken)?;
    if header.magic != MAGIC {
        return Err(Error::Foreign {
            found: header.magic,
        });
    }
    let damaged = Error::Damaged {
        what: "the header",
        offset: page,
    };
    if header.crc != header_crc(&header) {
        return Err(damaged);
    }
    if header.version > VERSION {
        return Err(Error::Version {
            found: header.version,
            known: VERSION,
        });
    }
    let unknown = header.features_ro | header.features_incompat;
    if unknown != 0 {
        return Err(Error::Features { unknown });
    }
    if 1 << (header.chunk_shift & 63) != CHUNK_BYTES {
        return Err(damaged);
    }
    match possible(&header) {
        Some(min) if min <= mem.len() && header.chunks * CHUNK_BYTES <= mem.len() => Ok(header),
        Some(min) => Err(Error::TooSmall {
            len: mem.len(),
            min,
        }),
        None => Err(damaged),
    }
}

/// The header, or else its copy.
fn read_header(mem: &Pmem) -> Result<HeaderRaw> {
    let min = 2 * HEADER_PAGE_BYTES;
    if mem.len() < min {
        return Err(Error::TooSmall {
            len: mem.len(),
            min,
        });
    }
    match read_one(mem, 0) {
        Err(error @ (Error::Foreign { .. } | Error::Damaged { .. })) => {
            read_one(mem, COPY_OFFSET).map_err(|_| error)
        }
        read => read,
    }
}

/// The spans behind the first, from the header's page or else the copy's.
fn read_spans(mem: &Pmem, spans: &Spans) -> Result<()> {
    for index in 1..SPANS_MAX {
        let place = SPANS_OFFSET + index * 8;
        let [word, copy] = [place, COPY_OFFSET + place].map(|at| mem.load(at));
        let chunks = checked_value(word, place).or_else(|| checked_value(copy, place));
        if chunks.is_none() && word == 0 {
            return Ok(());
        }
        let damaged = Error::Damaged {
            what: "the list of spans",
            offset: place,
        };
        let Some(chunks) = chunks.map(u64::from) else {
            return Err(damaged);
        };
        let end = spans.chunks() + chunks;
        if spans.next(chunks).meta_chunks >= chunks || end * CHUNK_BYTES > mem.len() {
            return Err(damaged);
        }
        spans.push(chunks);
    }
    Ok(())
}

/// Opens a heap: what had committed is redone, and all that is volatile begins anew. `salt` goes
/// into the run's tag.
fn attach(mem: Pmem, salt: u64) -> Result<Core> {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    let header = read_header(&mem)?;
    let spans = Spans::new(header);
    read_spans(&mem, &spans)?;
    let places = Places::of(&header);
    // A damaged number is as good as any other that was not there before.
    let word = mem.load(RUN_OFFSET);
    let run = checked_value(word, RUN_OFFSET).unwrap_or((word >> 32) as u32 ^ word as u32);
    let run = run.wrapping_add(1);
    let state = checked_value(mem.load(STATE_OFFSET), STATE_OFFSET);
    let mut seed = header.seed ^ u64::from(run).rotate_left(32) ^ salt;
    let mut core = Core {
        key: Key::new(header.seed),
        tag: split_mix(&mut seed) | 1,
        lanes: Vec::new(),
        space: Mutex::new(Space::default()),
        growing: Mutex::new(()),
        life: pmem::life::number(),
        id: NEXT.fetch_add(1, Ordering::Relaxed),
        broken: AtomicBool::new(false),
        mem,
        header,
        places,
        spans,
    };
    let window = core.mem.window();
    // Before anything else changes: from here on the heap is in use.
    set_word(&core.mem, RUN_OFFSET, run);
    set_word(&core.mem, STATE_OFFSET, STATE_ACTIVE);
    core.mem.fence();
    let stamp = core.recover(state == Some(STATE_CLEAN))?;
    core.check_table()?;
    for lane in 0..header.lanes {
        let line = places.lane_line(lane);
        core.mem.write(line, &[0; LANE_LINE_BYTES as usize / 8]);
    }
    drop(window);
    core.read_table()?;
    let lanes = (0..header.lanes).map(|lane| Mutex::new(Lane::new(lane, places.ring(lane), stamp)));
    core.lanes = lanes.collect();
    Ok(core)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: the same bytes of a file do not lead to the same tag. Method: two copies, opened.
    #[test]
    fn a_runs_tag_is_not_in_the_file() {
        let dir = tempfile::tempdir().unwrap();
        let [first, second] = ["first", "second"].map(|name| dir.path().join(name));
        let heap = Heap::create(&first, 1 << 20, &Options::default()).unwrap();
        heap.close().unwrap();
        std::fs::copy(&first, &second).unwrap();
        let tag = |path: &Path| Heap::open(path, &Options::default()).unwrap().core().tag;
        assert_ne!(tag(&first), tag(&second));
    }
}
