//! A heap: made, opened, read, and left.

use std::path::Path;
use std::time::Duration;

use pmem::{MapOptions, Pmem};
use pmlib_format::chunk::{GROUP_BYTES, GROUP_CHUNKS, KIND_FREE, KIND_META};
use pmlib_format::header::{
    COPY_OFFSET, ERA_OFFSET, HEADER_PAGE_BYTES, MAGIC, NAMES_OFFSET, ROOT_OFFSET, RUN_OFFSET,
    SPANS_OFFSET, STATE_CLEAN, STATE_OFFSET,
};
use pmlib_format::lane::{CLOSED_OFFSET, LANE_BYTES, LANES_MAX};
use pmlib_format::shared::{SLOTS_MAX, SLOTS_MIN};
use pmlib_format::{CHUNK_BYTES, HeaderRaw, VERSION};
use pmshare::Stalled;
use zerocopy::{FromBytes, FromZeros, IntoBytes};

use crate::attach::{self, Entrance};
use crate::check::split_mix;
use crate::engine::{Core, Counted};
use crate::error::{Error, Result, in_object};
use crate::lane::{GROUP_WORDS, group_check};
use crate::layout::{CHUNKS_MAX, Places, Span, Spans, possible};
use crate::packed::{Entry, checked_value, checked_word, closed_word, root_word};
use crate::pointer::RawP;
use crate::tx::Tx;

/// Address space that is kept for a heap's growth.
const ROOM_BYTES: u64 = 1 << 40;

/// How a heap is made and mapped.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// How its file is mapped; without write access it is only read ([`Options::read_only`]).
    pub map: MapOptions,
    /// How many transactions may go on at once; 0: one a MiB of the heap, 2 to 64, and then one
    /// more a GiB.
    pub lanes: u32,
    /// Bytes of log for each of them, a multiple of 64; 0: 64 KiB.
    pub lane_bytes: u64,
    /// How many processes may have it at once, one less than these; 0: 16 a MiB of the heap, up to
    /// 4,094.
    pub processes: u32,
    /// Bytes to which it may grow; 0: 1 TiB in a file, and not at all on a device or in memory.
    /// Address space for 1 TiB is kept, or for what the process may have; by a process that has 32
    /// heaps already for a half of that, and so on, but never for less than this.
    pub max: u64,
    /// The seed of the heap's name and of its records' checks; 0: chance.
    pub seed: u64,
    /// The treatment of a process that holds a lock and does not run.
    pub stalled: Stalled,
    /// How long a process that attaches or leaves is waited for before the answer is `Busy`; 0:
    /// 60 s, and 10 s of a heap that is only read. After a second stderr has for whom it waits.
    pub wait: Duration,
    /// Open a heap that was in use in this boot by another name, or a copy of one: its last user is
    /// known to be gone.
    pub adopt: bool,
}

/// Address space for one more heap of a process that has so many: together they ask for less than
/// 64 TiB, and a process has 128.
fn room_bytes(heaps: u64) -> u64 {
    ROOM_BYTES >> (heaps / 32).min(ROOM_BYTES.ilog2().into())
}

impl Options {
    /// Those of a heap that is only read: its file may be one that this user can't write. Such a
    /// process takes no slot and no lock and stores nothing. It sees what others commit.
    #[must_use]
    pub fn read_only() -> Options {
        Options {
            map: MapOptions {
                read_only: true,
                ..MapOptions::default()
            },
            ..Options::default()
        }
    }

    pub(crate) fn mapping(&self) -> MapOptions {
        MapOptions {
            // Others may make it longer than this process would.
            reserve: room_bytes(Counted::heaps()).max(self.max),
            ..self.map
        }
    }

    /// The wait for a process that attaches, if none is said: `most`.
    pub(crate) fn patience(&self, most: Duration) -> Duration {
        match self.wait {
            Duration::ZERO => most,
            wait => wait,
        }
    }

    /// Bytes to which it may grow.
    pub(crate) fn max_bytes(&self) -> u64 {
        match self.max {
            0 => ROOM_BYTES,
            max => max,
        }
    }
}

/// A persistent heap in this process.
///
/// Everything is named by its offset in bytes: no address is ever stored, so that a heap can be
/// mapped anywhere.
pub struct Heap {
    core: Core,
    /// It is left clean.
    closes: bool,
}

impl Heap {
    /// Makes a heap of `len` bytes, in whole chunks of 64 KiB, in a file that is not there yet, or
    /// on a DAX device.
    ///
    /// # Errors
    /// Those of [`Pmem::create`]; `TooSmall`; `Busy`; `ReadOnly`.
    pub fn create(path: &Path, len: u64, options: &Options) -> Result<Heap> {
        if options.map.read_only {
            return Err(Error::ReadOnly);
        }
        let header = new_header(len, options)?;
        let len = header.chunks * CHUNK_BYTES;
        let mem = Pmem::create(path, len, false, true, &options.mapping())?;
        let entrance = Entrance::to(path, options)?;
        format(&mem, &header)?;
        Heap::attach_by(mem, Some(entrance), options)
    }

    /// Opens the heap in a file, which other processes may have. If nobody has it and it was not
    /// left clean, what had committed is there and nothing else.
    ///
    /// # Errors
    /// Those of [`Pmem::open`]; `Busy`, `Processes`, `Apart`; `Foreign`, `Version`, `Features`,
    /// `TooSmall`, `Damaged`; to be read alone: `NeedsRecovery`.
    pub fn open(path: &Path, options: &Options) -> Result<Heap> {
        let mem = Pmem::open(path, &options.mapping())?;
        if options.map.read_only {
            let core = attach::attach_reader(mem, path, options)?;
            return Ok(Heap {
                core,
                closes: false,
            });
        }
        Heap::attach_by(mem, Some(Entrance::to(path, options)?), options)
    }

    /// Opens like [`Heap::open`], with every access shown to `observer`. For checkers.
    ///
    /// # Errors
    /// Those of [`Heap::open`].
    #[cfg(feature = "record")]
    #[doc(hidden)]
    pub fn open_observed(
        path: &Path,
        options: &Options,
        observer: std::sync::Arc<dyn pmem::record::Observer>,
    ) -> Result<Heap> {
        let mut mem = Pmem::open(path, &options.mapping())?;
        mem.observe(Some(observer));
        Heap::attach_by(mem, Some(Entrance::to(path, options)?), options)
    }

    /// A heap in memory of this process, for which nothing is to last.
    ///
    /// # Errors
    /// `TooSmall`; `Medium`: the machine has not so much memory.
    pub fn private(len: u64, options: &Options) -> Result<Heap> {
        let header = new_header(len, options)?;
        let chunked = header.chunks * CHUNK_BYTES;
        let none = |source| {
            let path = "private memory".into();
            Error::Medium(pmem::Error::Map { path, len, source })
        };
        // Its chunk table alone, which is stored at once, would take all that there is.
        if len > machine_bytes() {
            return Err(none(std::io::ErrorKind::OutOfMemory.into()));
        }
        let room = options.max.max(chunked);
        let mem = Pmem::try_private_within(chunked, room).map_err(none)?;
        format(&mem, &header)?;
        Heap::attach_by(mem, None, options)
    }

    /// Makes the first `len` bytes of `mem` a heap, and leaves it. It grows into the rest by
    /// itself, but not on a device.
    ///
    /// # Errors
    /// `TooSmall`.
    pub fn format(mem: &Pmem, len: u64, options: &Options) -> Result<()> {
        format(mem, &new_header(len.min(mem.len()), options)?)
    }

    /// Opens the heap in `mem`, which no other process may have.
    ///
    /// # Errors
    /// Those of [`Heap::open`].
    pub fn attach(mem: Pmem) -> Result<Heap> {
        Heap::attach_by(mem, None, &Options::default())
    }

    pub(crate) fn attach_by(
        mem: Pmem,
        entrance: Option<Entrance<'_>>,
        options: &Options,
    ) -> Result<Heap> {
        let core = attach::attach(mem, entrance, options)?;
        Ok(Heap { core, closes: true })
    }

    /// Leaves the heap, clean if no other process has it, so that the next opener has nothing to
    /// redo; answers its memory. A heap that is dropped is left too, if that can be done.
    ///
    /// # Errors
    /// `Broken`, `Lost`, `Forked`.
    pub fn close(self) -> Result<Pmem> {
        self.core.leave()?;
        Ok(self.into_memory())
    }

    /// The memory back, as a crash would leave it: to others this process is dead.
    #[must_use]
    pub fn into_memory(mut self) -> Pmem {
        self.closes = false;
        let memory = self.core.share.store_mut();
        std::mem::replace(&mut memory.mem, Pmem::private(0))
    }

    /// Leaves the heap, which is of no use from then on: for checkers, which kill a process in the
    /// middle of that.
    ///
    /// # Errors
    /// Those of [`Heap::close`].
    #[cfg(feature = "record")]
    #[doc(hidden)]
    pub fn leave(&self) -> Result<()> {
        self.core.leave()
    }

    /// Cleans up after processes that died, without waiting until somebody meets what they held;
    /// answers how many. A transaction does so from time to time.
    ///
    /// # Errors
    /// A heap that can't be used; `ReadOnly`.
    pub fn recover_dead(&self) -> Result<u64> {
        self.core.enter()?;
        self.core.writable()?;
        let _window = self.core.mem.window();
        Ok(pmshare::rescue::recover_dead(&self.core)?.slots)
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
        // It stays where it is: to move what was just stored costs as much as a miss of the cache.
        let mut tx = Tx::on(&self.core);
        tx.start()?;
        let value = body(&mut tx)?;
        tx.commit()?;
        tx.end();
        Ok(value)
    }

    /// A transaction on a lane of the caller's choice, which nobody may have; it ends by
    /// [`Heap::commit`], or by being dropped. For checkers, which run several on one thread.
    ///
    /// # Panics
    /// If there is no such lane, or it is in use, or the heap is only read.
    #[doc(hidden)]
    pub fn begin_on(&self, lane: usize) -> Tx<'_> {
        self.core.writable().expect("a heap that may be written");
        let _window = self.core.mem.window();
        Tx::on_lane(&self.core, lane as u32).expect("a free lane")
    }

    /// Ends such a transaction.
    ///
    /// # Errors
    /// Those of [`Heap::tx`].
    #[doc(hidden)]
    pub fn commit(&self, mut tx: Tx<'_>) -> Result<()> {
        tx.commit()
    }

    /// Copies bytes of an object from `start` on, as they were between two transactions.
    ///
    /// # Errors
    /// `NoObject`; `Range`.
    pub fn read_bytes(&self, offset: u64, start: u64, to: &mut [u8]) -> Result<()> {
        if self.core.reader.is_some() {
            return self.view(|view| view.read_bytes(offset, start, to));
        }
        self.core.enter()?;
        let object = self.core.object(offset)?;
        in_object(offset, object.size(), start, to.len() as u64)?;
        self.core.read_stable(offset + start, to)
    }

    /// Bytes of an object: at least those that were asked for.
    ///
    /// # Errors
    /// `NoObject`.
    pub fn size_of(&self, object: impl Into<RawP>) -> Result<u64> {
        let RawP(offset) = object.into();
        if self.core.reader.is_some() {
            return self.view(|view| view.size_of(offset));
        }
        self.core.enter()?;
        Ok(self.core.object(offset)?.size())
    }

    /// The object by which everything else is found, if the program keeps bytes and no types
    /// ([`Tx::set_root`]); 0: none was set. It is none of the named ones.
    ///
    /// # Errors
    /// `Damaged`.
    pub fn root_offset(&self) -> Result<u64> {
        if self.core.reader.is_some() {
            return self.view(|view| view.root());
        }
        self.core.enter()?;
        self.core.root()
    }

    /// Length, bytes.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.core.spans.chunks() * CHUNK_BYTES
    }

    /// The medium that the heap lies on. It decides what its transactions survive.
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
        let spans = Spans::new(header);
        Places::of(&header).shared..spans.get(0).lines().end
    }

    /// Where a lane begins, its lines in the volatile area, and a chunk's line, of a heap of one
    /// span. For checkers, which name what they see.
    #[doc(hidden)]
    #[must_use]
    pub fn places(mem: &Pmem, lane: u32, chunk: u64) -> Option<[u64; 3]> {
        let header = read_header(mem).ok()?;
        let (places, spans) = (Places::of(&header), Spans::new(header));
        let span = spans.get(0);
        Some([places.lane(lane), places.lane_line(lane), span.line(chunk)])
    }
}

impl Drop for Heap {
    fn drop(&mut self) {
        if self.closes {
            // A heap that can't be left clean is recovered by its next opener.
            let _ = self.core.leave();
        }
    }
}

/// The memory of this machine, bytes.
fn machine_bytes() -> u64 {
    let info = rustix::system::sysinfo();
    let unit = u64::from(info.mem_unit.max(1));
    (info.totalram.saturating_add(info.totalswap)).saturating_mul(unit)
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
        slots: match options.processes {
            0 => ((len >> 20) * 16).clamp(16, SLOTS_MAX.into()) as u32,
            count => count.clamp(SLOTS_MIN, SLOTS_MAX),
        },
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

pub(crate) fn set_word(mem: &Pmem, place: u64, value: u32) {
    mem.store(place, checked_word(value, place));
    mem.flush(place, 8);
}

/// Gives the run that begins a name that no run of the heap has had: the next number, or, after the
/// last one or a damaged one, the first of a new era. In a write window, with the heap in use.
pub(crate) fn name_run(mem: &Pmem) {
    let era = mem.load(ERA_OFFSET);
    let known = match era {
        0 => Some(0),
        word => checked_value(word, ERA_OFFSET),
    };
    match (checked_value(mem.load(RUN_OFFSET), RUN_OFFSET), known) {
        (Some(run), Some(_)) if run < u32::MAX => set_word(mem, RUN_OFFSET, run + 1),
        _ => {
            // A damaged era is as good as any other that was not there before. Both words are in
            // one line, whose stores become durable in their order.
            let last = known.unwrap_or((era >> 32) as u32 ^ era as u32);
            set_word(mem, ERA_OFFSET, last.wrapping_add(1));
            set_word(mem, RUN_OFFSET, 0);
        }
    }
}

/// Stores a new heap's own parts.
fn format(mem: &Pmem, header: &HeaderRaw) -> Result<()> {
    let _window = mem.window();
    mem.zero_nt(0, 2 * HEADER_PAGE_BYTES);
    let spans = Spans::new(*header);
    format_span(mem, spans.get(0))?;
    let places = Places::of(header);
    for lane in 0..header.lanes {
        let start = places.lane(lane);
        mem.zero_nt(start, header.lane_bytes);
        mem.fence_stores();
        mem.store(start + CLOSED_OFFSET, closed_word(0));
        mem.flush(start + CLOSED_OFFSET, 8);
    }
    mem.fence();
    for root in [ROOT_OFFSET, NAMES_OFFSET] {
        mem.store(root, root_word(0));
        mem.flush(root, 8);
    }
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

/// Stores the chunk table of a new span; nobody has any of its chunks.
pub(crate) fn format_span(mem: &Pmem, span: &Span) -> Result<()> {
    let own = Entry {
        kind: KIND_META,
        class: 0,
        chunks: span.meta_chunks,
        generation: 0,
        owner: 0,
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
    let lines = span.lines();
    mem.zero_nt(lines.start, lines.end - lines.start);
    Ok(())
}

/// Reads one of the two headers. An error says what is wrong with it.
pub(crate) fn read_one(mem: &Pmem, page: u64) -> Result<HeaderRaw> {
    let mut bytes = [0; size_of::<HeaderRaw>()];
    mem.copy_out(page, &mut bytes)?;
    let header = HeaderRaw::read_from_bytes(&bytes).map_err(|_| Error::Broken)?;
    header_of(mem, header, page)
}

/// A header that was read, if it is one.
pub(crate) fn header_of(mem: &Pmem, header: HeaderRaw, page: u64) -> Result<HeaderRaw> {
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
    if header.version != VERSION {
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
pub(crate) fn read_header(mem: &Pmem) -> Result<HeaderRaw> {
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

#[cfg(test)]
mod tests {
    use super::*;
    use pmlib_format::header::STATE_ACTIVE;

    /// Goal: words that somebody has put into a heap's file lock nothing, and are nobody's. Method:
    /// all of the volatile area filled with words that name holders, chunks or lanes.
    #[test]
    fn what_stands_in_the_volatile_area_is_not_believed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("heap");
        let options = Options::default();
        let heap = Heap::create(&path, 1 << 20, &options).unwrap();
        let object = heap.tx(|tx| tx.alloc(64)).unwrap();
        heap.close().unwrap();
        for (word, state) in [(1 << 32 | 7, STATE_CLEAN), (u64::MAX, STATE_ACTIVE), (1, 2)] {
            let mem = Pmem::open(&path, &MapOptions::default()).unwrap();
            let area = Heap::volatile(&mem);
            let window = mem.window();
            for at in area.step_by(8) {
                mem.store(at, word);
            }
            set_word(&mem, STATE_OFFSET, state);
            drop(window);
            drop(mem);
            let heap = Heap::open(&path, &options).unwrap();
            let other = heap.tx(|tx| {
                tx.lock(object)?;
                tx.edit_bytes(object, 0, 8)?[0] += 1;
                tx.alloc(100_000)
            });
            heap.tx(|tx| tx.free(other?)).unwrap();
            assert_eq!(heap.check().unwrap().objects, 1);
        }
    }

    /// Goal: a process has address space for as many heaps as it opens, and each has room for its
    /// growth. Method: what they ask for, added up; each may be no longer than that by itself.
    #[test]
    fn many_heaps_share_the_address_space() {
        let all: u64 = (0..65_536).map(room_bytes).sum();
        assert!(all < (64 << 40) + 65_536, "{all}");
        assert_eq!(
            [0, 31, 32, 255].map(room_bytes),
            [1 << 40, 1 << 40, 1 << 39, 1 << 33]
        );
        assert!((0..=u64::from(u16::MAX)).all(|heaps| room_bytes(heaps) > 0));
        let max = Options {
            max: 1 << 42,
            ..Options::default()
        };
        assert_eq!(max.mapping().reserve, 1 << 42);
    }

    /// Goal: opening a heap that another process attaches to and never ends is an error that names
    /// it, after the wait that was asked for. Method: this process holds the attach lock itself.
    #[test]
    fn a_wait_for_one_who_attaches_has_an_end() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("heap");
        let heap = Heap::create(&path, 1 << 20, &Options::default()).unwrap();
        heap.close().unwrap();
        let prober = pmem::slots::Prober::open(&path).unwrap();
        let held = pmshare::attach::attach_lock_by(&prober).unwrap();
        let wait = Duration::from_millis(50);
        let options = Options {
            wait,
            ..Options::default()
        };
        let since = std::time::Instant::now();
        let opened = Heap::open(&path, &options).map(|_| ());
        let own = std::process::id();
        assert!(
            matches!(opened, Err(Error::Busy { pid }) if pid == own),
            "{opened:?}"
        );
        assert!((wait..Duration::from_secs(10)).contains(&since.elapsed()));
        drop(held);
        Heap::open(&path, &options).unwrap();
    }
}
