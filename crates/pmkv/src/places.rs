//! Places for records, without persistent metadata: what is in use is what the index names.
//!
//! - A record chunk has a byte for each place, which means something in one run of the heap: not
//!   known yet, taken, or free, with the instance of the last record there. A byte is changed by a
//!   CAS of its word.
//! - In a new run a chunk's bytes are set to "not known" by its first user, and each is found out
//!   before a place of the chunk is given out: the record there tells its key, and the key's slot
//!   whether it names the place. That is looked up with the slot's group locked. So is each byte of
//!   a place that a slot has named, when that slot is cleared: the two can't miss each other.
//! - A record that shares no chunk has a run of its own, whose one place's byte says whether it is
//!   to be freed.
//! - A place that is freed while a reader's session is open is held for it, neither taken nor free
//!   (`crates/pmkv/src/held.rs`).
//! - Places are taken and found out with their chunk locked, or any index chunk, once it is seen
//!   that the chunk is the engine's: another process may have given it back
//!   (`crates/pmkv/src/compact.rs`), after it has had the lock of each index chunk. A lock on
//!   the head goes before the chunk's, and the chunk's before those of index chunks. Runs are
//!   freed with the head locked.
//! - A process that is killed between taking a place and naming it in a slot leaves the place taken
//!   for this run.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use pmlib_format::CHUNK_BYTES;
use pmlib_format::kv::{
    PLACE_BYTES, RECORD_CLASS_BYTES, RECORD_CLASSES, RECORDS_HEAD_BYTES, RECORDS_MAGIC,
    first_record, record_places,
};

use crate::engine::{Cut, Index};
use crate::error::{Error, Result};
use crate::group::Group;
use crate::held::HeldChunks;
use crate::kv::Kv;
use crate::protocol::{FREE, TAKEN, change_byte, is_held, take_free};
use crate::put_off::PutOff;
use crate::record;
use crate::slot::{PLACES_END, Slot};

/// A record chunk's first word of this run: its bytes mean something.
pub(crate) const READY: u64 = 1;
/// Its second word: no byte is unknown any more.
pub(crate) const KNOWN: u64 = 1;
/// Its second word: no place was free at the last look, and none was freed since.
pub(crate) const FULL: u64 = 2;
/// Places that are found out for one that was freed where nobody takes it.
const FOUND_FOR_LOST: u64 = 4;
/// Chunks that are given back by one transaction.
const FREED_AT_ONCE: usize = 256;
/// Bits of the number of a word of a chunk's bytes, of which there are at most 128.
const NEAR_SHIFT: u32 = 8;
/// Shares of the pools, so that threads have chunks of their own.
const SHARES: usize = 8;
/// The greatest record that shares a chunk, or has one alone.
pub(crate) const SHARED_MAX: u64 = RECORD_CLASS_BYTES[RECORD_CLASSES - 1];
/// Where a place begins in a run of its own.
const ALONE_OFFSET: u64 = first_record(1);
/// Where a record chunk's head says how many places it has, and, above that, how many of them, the
/// first ones, may ever have been in use; 0: any.
const PLACES_OFFSET: u64 = 16;
pub(crate) const USED_SHIFT: u32 = 32;

/// Record chunks of a class, as a share of this process believes.
#[derive(Debug, Default)]
pub(crate) struct Pool {
    /// The one from which places are taken; 0: none.
    pub chunk: u64,
    /// The word of its bytes that had a free one last.
    pub word: u64,
    /// Others that have room, or may have.
    pub rest: VecDeque<u64>,
    /// Chunks at which this share has not looked since the last search began, of any class.
    pub unseen: VecDeque<u64>,
    /// Those of the class that have places which are not known.
    pub unknown: VecDeque<u64>,
    /// The one whose places are being found out, and the next of these.
    pub finding: Option<(u64, u64)>,
    /// Chunks that were made since the last search began, and all that there were.
    pub made: u64,
    pub seen: Option<u64>,
    /// The process's [`Pools::freed`] at that time.
    pub freed: u64,
}

/// The pools of a process.
#[derive(Debug)]
pub(crate) struct Pools {
    shares: Box<[Mutex<[Pool; RECORD_CLASSES]>]>,
    /// The chunk from which a place was taken last, for each share and class, above the word of its
    /// byte; 0: none.
    near: Box<[[AtomicU64; RECORD_CLASSES]]>,
    /// How often a chunk's number of used places was raised.
    pub(crate) raises: AtomicU64,
    /// Places that were freed, about.
    pub(crate) freed: AtomicU64,
    /// For each class, places that may be found out, since as many were made or lost.
    pub(crate) credit: [AtomicU64; RECORD_CLASSES],
    pub(crate) held: HeldChunks,
    pub(crate) put_off: PutOff,
}

impl Default for Pools {
    fn default() -> Pools {
        let share = || Mutex::new(std::array::from_fn(|_| Pool::default()));
        Pools {
            shares: (0..SHARES).map(|_| share()).collect(),
            near: (0..SHARES)
                .map(|_| std::array::from_fn(|_| AtomicU64::new(0)))
                .collect(),
            raises: AtomicU64::new(0),
            freed: AtomicU64::new(0),
            credit: std::array::from_fn(|_| AtomicU64::new(0)),
            held: HeldChunks::default(),
            put_off: PutOff::default(),
        }
    }
}

impl Pools {
    pub(crate) fn share(&self, thread: u64) -> MutexGuard<'_, [Pool; RECORD_CLASSES]> {
        // After a panic it is a hint as before.
        let share = self.shares[nth_share(thread)].lock();
        share.unwrap_or_else(PoisonError::into_inner)
    }

    #[inline]
    fn near(&self, thread: u64, class: usize) -> &AtomicU64 {
        &self.near[nth_share(thread)][class]
    }
}

#[inline]
fn nth_share(thread: u64) -> usize {
    (thread.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as usize % SHARES
}

/// The class of record chunks for so many bytes; [`RECORD_CLASSES`]: a record has its own run.
#[inline]
pub(crate) fn class_of(bytes: u64) -> usize {
    match bytes {
        ..=64 => 0,
        // The next ones are each 16 bytes more.
        65..=256 => ((bytes - 64).div_ceil(PLACE_BYTES)) as usize,
        _ => RECORD_CLASS_BYTES.partition_point(|&class| class < bytes),
    }
}

/// That slots can name all of so many bytes.
fn nameable(start: u64, wanted: u64) -> Result<u64> {
    match start + wanted <= PLACES_END {
        true => Ok(start),
        false => Err(pmlib::Error::Full { wanted }.into()),
    }
}

/// A place that was taken for a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub offset: u64,
    pub instance: u64,
}

/// How a record chunk is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Places {
    chunk: u64,
    pub bytes: u64,
    pub places: u64,
}

impl Places {
    pub fn offset(&self, place: u64) -> u64 {
        self.chunk * CHUNK_BYTES + first_record(self.places) + place * self.bytes
    }

    /// The word of a place's byte, and where the byte begins in it.
    fn byte(&self, place: u64) -> (u64, u64) {
        let start = self.chunk * CHUNK_BYTES + RECORDS_HEAD_BYTES;
        (start + place / 8 * 8, place % 8 * 8)
    }

    pub fn is_alone(&self) -> bool {
        self.bytes > SHARED_MAX
    }

    pub fn chunk(&self) -> u64 {
        self.chunk
    }

    /// Where the number of its places is, with that of those that may ever have been in use.
    pub fn used_at(&self) -> u64 {
        self.chunk * CHUNK_BYTES + PLACES_OFFSET
    }

    /// The class of its places; [`RECORD_CLASSES`]: a record has the run.
    pub fn class(&self) -> usize {
        class_of(self.bytes)
    }

    /// Where the words of its places' bytes are.
    pub fn words(&self) -> impl Iterator<Item = u64> + use<> {
        let (start, words) = (self.byte(0).0, self.places.div_ceil(8));
        (0..words).map(move |word| start + word * 8)
    }

    /// The place in a run of its own.
    pub fn alone_in(chunk: u64) -> u64 {
        chunk * CHUNK_BYTES + ALONE_OFFSET
    }
}

impl<I: Index> Kv<'_, I> {
    /// The cut of the record chunk in which something is; `None`: it is in none.
    pub(crate) fn cut(&self, chunk: u64) -> Option<Places> {
        let start = chunk * CHUNK_BYTES;
        if chunk == 0 || !self.ground.has(start, CHUNK_BYTES) {
            return None;
        }
        let [magic, bytes, counts] = self.ground.mem().read(start);
        let places = counts & ((1 << USED_SHIFT) - 1);
        let is_cut = magic == RECORDS_MAGIC
            && bytes > 0
            && bytes.is_multiple_of(PLACE_BYTES)
            && match bytes > SHARED_MAX {
                true => places == 1 && self.ground.has(start + ALONE_OFFSET, bytes),
                false => {
                    let places = (1..=1024).contains(&places).then_some(places);
                    places
                        .is_some_and(|places| first_record(places) + places * bytes <= CHUNK_BYTES)
                }
            };
        is_cut.then_some(Places {
            chunk,
            bytes,
            places,
        })
    }

    /// The cut and the number of the place at an offset.
    fn place_at(&self, offset: u64) -> Option<(Places, u64)> {
        let cut = self.cut(offset / CHUNK_BYTES)?;
        let after = (offset % CHUNK_BYTES).checked_sub(first_record(cut.places))?;
        let place = after / cut.bytes;
        let is_place = place * cut.bytes == after && place < cut.places;
        is_place.then_some((cut, place))
    }

    /// Bytes of the place at an offset; 0: none is there.
    pub(crate) fn place_bytes(&self, offset: u64) -> u64 {
        self.place_at(offset).map_or(0, |(cut, _)| cut.bytes)
    }

    /// Changes a place's byte, if it is what it is thought to be.
    fn change(&self, cut: &Places, place: u64, from: u64, to: u64) -> bool {
        change_byte(self.ground.mem(), cut.byte(place), from, to)
    }

    pub(crate) fn byte(&self, cut: &Places, place: u64) -> u64 {
        let (at, shift) = cut.byte(place);
        self.ground.mem().load_cached(at) >> shift & 0xff
    }

    /// The place of a slot that was cleared is free, with the slot's chunk locked. `true`: it is a
    /// run of its own, to be dropped once nothing is locked.
    pub(crate) fn free(&self, slot: Slot) -> bool {
        let Some((cut, place)) = self.place_at(slot.place()) else {
            return false;
        };
        self.free_place(&cut, place, slot.instance())
    }

    /// A place that was taken and is not used is free; answers as [`Kv::free`] does.
    pub(crate) fn give_back(&self, place: Place) -> bool {
        let Some((cut, nth)) = self.place_at(place.offset) else {
            return false;
        };
        // Nothing is locked: once the place is free its chunk may be anybody's.
        self.note_room(&cut);
        let (taken, free) = (TAKEN | place.instance, FREE | place.instance);
        self.change(&cut, nth, taken, free);
        cut.is_alone()
    }

    /// Notes that a record chunk may have a free place.
    pub(crate) fn note_room(&self, cut: &Places) {
        self.note_room_at(cut, self.ground.note(cut.chunk, 1));
    }

    #[inline]
    fn note_room_at(&self, cut: &Places, note: u64) {
        let mem = self.ground.mem();
        let word = mem.load_cached(note);
        if word & FULL != 0 && !cut.is_alone() {
            mem.store(note, word & !FULL);
        }
    }

    fn free_place(&self, cut: &Places, place: u64, instance: u64) -> bool {
        let note = self.ground.note(cut.chunk, 0);
        if self.ground.mem().load_cached(note) != READY {
            // Its bytes mean nothing yet: who asks finds no slot that names it.
            if let Some(credit) = self.pools.credit.get(cut.class()) {
                credit.fetch_add(FOUND_FOR_LOST, Ordering::Relaxed);
            }
            return cut.is_alone();
        }
        let byte = self.byte_of_free(cut, instance);
        self.change(cut, place, TAKEN | instance, byte);
        let freed = self.pools.freed.load(Ordering::Relaxed);
        self.pools.freed.store(freed + 1, Ordering::Relaxed);
        // The chunk is not given back meanwhile: the slot's chunk is locked.
        self.note_room_at(cut, note + 8);
        cut.is_alone()
    }

    /// Takes a place for a record of so many bytes, in a write window; nothing is locked.
    pub(crate) fn take(&self, bytes: u64) -> Result<Place> {
        let class = class_of(bytes);
        if class == RECORD_CLASSES {
            return self.take_alone(bytes);
        }
        self.advance_era();
        let mut share = self.pools.share(self.ground.thread());
        let pool = &mut share[class];
        let mut has_looked = false;
        loop {
            if pool.chunk != 0
                && let Some(place) = self.take_in(pool, RECORD_CLASS_BYTES[class])
            {
                let near = self.pools.near(self.ground.thread(), class);
                near.store(pool.chunk << NEAR_SHIFT | pool.word, Ordering::Relaxed);
                return Ok(place);
            }
            (pool.chunk, pool.word) = (0, 0);
            if let Some(next) = pool.rest.pop_front() {
                pool.chunk = next;
                if has_looked {
                    self.find_out(next)?;
                }
                continue;
            }
            if let Some(next) = self.no_more_held(class) {
                pool.rest.push_back(next);
                continue;
            }
            if pool.seen.is_none() {
                pool.chunk = self.look_at_last(pool, class)?;
                continue;
            }
            if self.search_known(pool, class) {
                continue;
            }
            pool.chunk = match self.make(class) {
                Ok(chunk) => chunk,
                Err(_) if !has_looked => {
                    // Others may have freed places.
                    has_looked = true;
                    pool.rest = self.look_for_room(class)?;
                    continue;
                }
                Err(error) => return Err(self.told_who_reads(error)),
            };
            self.note_made(pool, class);
        }
    }

    /// Takes a place for a record of so many bytes in a write window, with an index chunk locked:
    /// in the chunk in which one was taken last, behind that one; `None`: none is free there.
    ///
    /// The chunk may be given back meanwhile: `crates/pmkv/src/protocol.rs` says why that does no
    /// harm.
    #[inline]
    pub(crate) fn take_near(&self, bytes: u64) -> Option<Place> {
        let class = class_of(bytes);
        if class == RECORD_CLASSES {
            return None;
        }
        let near = self.pools.near(self.ground.thread(), class);
        let hint = near.load(Ordering::Relaxed);
        let (chunk, first) = (hint >> NEAR_SHIFT, hint & ((1 << NEAR_SHIFT) - 1));
        if chunk == 0 {
            return None;
        }
        let (mem, start) = (self.ground.mem(), chunk * CHUNK_BYTES + RECORDS_HEAD_BYTES);
        let cut_now = || self.cut_of_own(chunk, RECORD_CLASS_BYTES[class]);
        // Usually the first word has one, and nothing else is looked at. Where the table ends is in
        // the chunk's head.
        let (mut words, mut word) = (first + 1, first);
        while word < words {
            let mut cut = None;
            let taken = take_free(mem, start + word * 8, |place| {
                cut = cut_now();
                cut.is_some_and(|cut| word * 8 + place < cut.places)
            });
            if let (Some((place, instance)), Some(cut)) = (taken, cut) {
                if word != first {
                    near.store(chunk << NEAR_SHIFT | word, Ordering::Relaxed);
                }
                let nth = word * 8 + place;
                self.note_used(&cut, nth);
                let offset = cut.offset(nth);
                return Some(Place { offset, instance });
            }
            if word == first {
                words = cut_now().map_or(0, |cut| cut.places.div_ceil(8));
            }
            word += 1;
        }
        None
    }

    /// The cut of a record chunk, if it is the engine's and of places of so many bytes.
    #[inline]
    pub(crate) fn cut_of_own(&self, chunk: u64, bytes: u64) -> Option<Places> {
        let is_own = self.ground.owned(chunk, self.head) > 0;
        let cut = is_own.then(|| self.cut(chunk)).flatten();
        cut.filter(|cut| cut.bytes == bytes)
    }

    /// Takes a free place of a locked chunk whose byte is in this word or behind.
    fn take_from(&self, cut: &Places, word: &mut u64) -> Option<Place> {
        while *word < cut.places.div_ceil(8) {
            let first = *word * 8;
            let at = cut.byte(first).0;
            let taken = take_free(self.ground.mem(), at, |place| first + place < cut.places);
            if let Some((place, instance)) = taken {
                self.note_used(cut, first + place);
                let offset = cut.offset(first + place);
                return Some(Place { offset, instance });
            }
            *word += 1;
        }
        None
    }

    /// Takes a place of a pool's chunk, which is of so many bytes.
    fn take_in(&self, pool: &mut Pool, bytes: u64) -> Option<Place> {
        let _locked = self.ground.lock(pool.chunk);
        let (mem, cut) = (self.ground.mem(), self.cut_of_own(pool.chunk, bytes)?);
        if let Some(place) = self.take_from(&cut, &mut pool.word) {
            return Some(place);
        }
        let note = self.ground.note(cut.chunk, 1);
        if !self.free_held(&cut) {
            mem.store(note, mem.load_cached(note) | FULL);
        }
        pool.word = 0;
        self.take_from(&cut, &mut pool.word)
    }

    /// The bytes of a new chunk's or a new run's places.
    pub(crate) fn table(cut: &Places, byte: impl Fn(u64) -> u64) -> Vec<u8> {
        let len = first_record(cut.places) - RECORDS_HEAD_BYTES;
        let mut bytes = vec![TAKEN as u8; len as usize];
        for (place, to) in (0..cut.places).zip(&mut bytes) {
            *to = byte(place) as u8;
        }
        bytes
    }

    /// Stores the head and the bytes of new places, past the caches.
    fn begin(&self, cut: &Places, table: &[u8]) -> Result<()> {
        let mem = self.ground.mem();
        let mut head = [0; RECORDS_HEAD_BYTES as usize];
        let words = [RECORDS_MAGIC, cut.bytes, cut.places | 1 << USED_SHIFT];
        for (to, word) in head.chunks_mut(8).zip(words) {
            to.copy_from_slice(&word.to_le_bytes());
        }
        let start = cut.chunk * CHUNK_BYTES;
        mem.write_nt(start, &head)?;
        mem.write_nt(start + RECORDS_HEAD_BYTES, table)?;
        mem.fence();
        mem.store(self.ground.note(cut.chunk, 1), KNOWN);
        mem.store(self.ground.note(cut.chunk, 0), READY);
        Ok(())
    }

    /// Makes a record chunk of a class.
    fn make(&self, class: usize) -> Result<u64> {
        let bytes = RECORD_CLASS_BYTES[class];
        self.heap.tx(|tx| {
            let start = nameable(tx.take_owned(CHUNK_BYTES, self.head)?, CHUNK_BYTES)?;
            let cut = Places {
                chunk: start / CHUNK_BYTES,
                bytes,
                places: record_places(bytes, 1 << self.cut.places_log2()),
            };
            // A record of a former life may stand there: the next one has another instance.
            let mem = self.ground.mem();
            let first = cut.offset(0);
            let last = |place| record::instance_at(mem, first + place * bytes);
            let _window = mem.window();
            self.begin(&cut, &Self::table(&cut, |place| FREE | last(place)))?;
            Ok(cut.chunk)
        })
    }

    /// Takes chunks of their own for a record.
    fn take_alone(&self, bytes: u64) -> Result<Place> {
        self.drop_held()?;
        match self.try_take_alone(bytes) {
            Err(Error::Heap(pmlib::Error::Full { .. })) => {
                // Runs that nobody names may be enough.
                self.look_for_room(RECORD_CLASSES - 1)?;
                let done = self.try_take_alone(bytes);
                done.map_err(|error| self.told_who_reads(error))
            }
            done => done,
        }
    }

    fn try_take_alone(&self, bytes: u64) -> Result<Place> {
        let size = (ALONE_OFFSET + bytes).next_multiple_of(CHUNK_BYTES);
        self.heap.tx(|tx| {
            let start = nameable(tx.take_owned(size, self.head)?, size)?;
            let cut = Places {
                chunk: start / CHUNK_BYTES,
                bytes: size - ALONE_OFFSET,
                places: 1,
            };
            let mem = self.ground.mem();
            let last = record::instance_at(mem, cut.offset(0));
            let instance = (last + 1) & 0xf;
            let _window = mem.window();
            self.begin(&cut, &Self::table(&cut, |_| TAKEN | instance))?;
            Ok(Place {
                offset: cut.offset(0),
                instance,
            })
        })
    }

    /// The chunk of a record's own run that nobody names, nor looks at.
    pub(crate) fn unused_run(&self, offset: u64) -> Result<Option<u64>> {
        let Some((cut, 0)) = self.place_at(offset).filter(|(cut, _)| cut.is_alone()) else {
            return Ok(None);
        };
        self.find_out(cut.chunk)?;
        if is_held(self.byte(&cut, 0)) {
            self.free_held_in(&cut);
        }
        let is_unused = self.byte(&cut, 0) & FREE != 0;
        Ok(is_unused.then_some(cut.chunk))
    }

    /// Frees a record's own run, which nobody has freed; nothing is locked.
    pub(crate) fn drop_alone(&self, offset: u64) -> Result<()> {
        if let Some(chunk) = self.unused_run(offset)? {
            self.free_chunks(&[chunk], false)?;
        }
        Ok(())
    }

    /// Gives chunks of records back to the heap whose places are all free; answers how many bytes.
    /// Nothing is locked. `write_back`, for shared chunks: no slot on the medium names a place of
    /// theirs any more, so that their next owner's bytes are never taken for a record.
    pub(crate) fn free_chunks(&self, chunks: &[u64], write_back: bool) -> Result<u64> {
        let mut closed = Vec::new();
        let mut bytes = 0;
        let done = self.heap.tx(|tx| {
            tx.lock(self.head)?;
            let _window = self.ground.mem().window();
            for &chunk in chunks {
                let run = self.ground.owned(chunk, self.head);
                if run > 0
                    && let Some(cut) = self.cut(chunk)
                    && self.close(&cut)
                {
                    closed.push(cut);
                    bytes += run * CHUNK_BYTES;
                }
            }
            if write_back && !closed.is_empty() {
                self.write_index_back()?;
            }
            for cut in &closed {
                tx.free(cut.chunk * CHUNK_BYTES)?;
            }
            Ok(())
        });
        if done.is_err() {
            for cut in &closed {
                self.reopen(cut, cut.places);
            }
        }
        done.map(|()| bytes)
    }

    /// Takes all places of a chunk, if all are free; whether it has.
    fn close(&self, cut: &Places) -> bool {
        let first_used = (0..cut.places).find(|&place| {
            let byte = self.byte(cut, place);
            let last = byte & 0xf;
            if planted!("bug-chunk-with-records-given-back") {
                return false;
            }
            byte & FREE == 0 || !self.change(cut, place, FREE | last, TAKEN | last)
        });
        if let Some(first_used) = first_used {
            self.reopen(cut, first_used);
        }
        first_used.is_none()
    }

    /// Undoes [`Self::close`] for the first places of a chunk.
    fn reopen(&self, cut: &Places, places: u64) {
        for place in 0..places {
            let last = self.byte(cut, place) & 0xf;
            self.change(cut, place, TAKEN | last, FREE | last);
        }
        self.note_room(cut);
    }

    /// Has all slots be durable as they are. After this, all locks under which places were freed
    /// before are open.
    fn write_index_back(&self) -> Result<()> {
        let mem = self.ground.mem();
        I::each_group(self, |group| {
            mem.flush(group.located.line(1), self.cut.lines() * 64);
            Ok(())
        })?;
        mem.fence();
        Ok(())
    }

    /// Gives all chunks back to the heap that have no record; answers how many bytes.
    pub(crate) fn free_empty_chunks(&self) -> Result<u64> {
        let (mut empty, mut bytes) = (Vec::new(), 0);
        self.ground.advance_era();
        for (chunk, _) in self.ground.runs_of(self.head) {
            let Some(cut) = self.cut(chunk) else {
                continue;
            };
            if cut.is_alone() {
                if let Some(chunk) = self.unused_run(cut.offset(0))? {
                    bytes += self.free_chunks(&[chunk], false)?;
                }
                continue;
            }
            self.find_out(chunk)?;
            self.free_held_in(&cut);
            if (0..cut.places).all(|place| self.byte(&cut, place) & FREE != 0)
                || planted!("bug-chunk-with-records-given-back")
            {
                empty.push(chunk);
            }
        }
        for part in empty.chunks(FREED_AT_ONCE) {
            bytes += self.free_chunks(part, true)?;
        }
        Ok(bytes)
    }

    /// Looks for record chunks of a class with room, in the whole heap. Runs of records that nobody
    /// names are freed.
    fn look_for_room(&self, class: usize) -> Result<VecDeque<u64>> {
        let (mem, mut room) = (self.ground.mem(), VecDeque::new());
        for (chunk, _) in self.ground.runs_of(self.head) {
            let Some(cut) = self.cut(chunk) else {
                continue;
            };
            if cut.is_alone() {
                self.drop_alone(cut.offset(0))?;
            } else if cut.bytes == RECORD_CLASS_BYTES[class]
                && mem.load_cached(self.ground.note(chunk, 1)) & FULL == 0
            {
                room.push_back(chunk);
            }
        }
        Ok(room)
    }

    /// Has all bytes of a record chunk mean something; nothing is locked.
    fn find_out(&self, chunk: u64) -> Result<()> {
        let mem = self.ground.mem();
        let Some(cut) = self.cut(chunk) else {
            return Ok(());
        };
        let note = self.ground.note(chunk, 0);
        let known = self.ground.note(chunk, 1);
        if mem.load_cached(note) == READY && mem.load_cached(known) & KNOWN != 0 {
            return Ok(());
        }
        let locked = self.ground.lock(chunk);
        if !self.make_ready(&cut)? {
            return Ok(());
        }
        let mut rest = false;
        for place in 0..cut.places {
            if self.byte(&cut, place) == 0 {
                rest |= !self.find_out_place(&cut, place)?;
            }
        }
        if !rest {
            mem.store(known, KNOWN);
            return Ok(());
        }
        // The head is locked before chunks.
        drop(locked);
        self.find_out_by_slots(&cut)
    }

    /// Whether a record chunk is the engine's, and cut so.
    pub(crate) fn is_cut_so(&self, cut: &Places) -> bool {
        self.ground.owned(cut.chunk, self.head) > 0 && self.cut(cut.chunk) == Some(*cut)
    }

    /// Finds out about one place by its record; `false`: there is none whose key can be trusted.
    pub(crate) fn find_out_place(&self, cut: &Places, place: u64) -> Result<bool> {
        let offset = cut.offset(place);
        let head = record::head_at(self.ground, offset).filter(|head| head.bytes() <= cut.bytes);
        let Some(head) = head else {
            return Ok(false);
        };
        // Its key says where it is named, be its value torn.
        let Some(key) = record::sound_key(self.ground, offset, head)? else {
            return Ok(false);
        };
        let group = self.lock(self.key(&key))?;
        let named = self.named(&group);
        let named = named.into_iter().find(|slot| slot.place() == offset);
        let byte = match named {
            Some(slot) => TAKEN | slot.instance(),
            // A session may have seen it before it was freed.
            None => self.byte_of_free(cut, head.instance),
        };
        self.change(cut, place, 0, byte);
        Ok(true)
    }

    /// All slots of locked lines that are not 0, and what they name beside.
    fn named(&self, group: &Group<'_, I>) -> Vec<Slot> {
        let located = &group.located;
        let lines = (1..=self.cut.lines()).flat_map(|line| {
            let words: [u64; 8] = self.ground.mem().read(located.line(line));
            words
        });
        let slots = lines.filter(|&word| word != 0).map(Slot);
        slots.chain(I::place_beside(self, located)).collect()
    }

    /// Finds out about the rest of a chunk's places by all slots: none of them has a whole record.
    fn find_out_by_slots(&self, cut: &Places) -> Result<()> {
        self.heap.tx(|tx| {
            // Slots stay in their chunks meanwhile, and chunks are not given back.
            tx.lock(self.head)?;
            if !self.is_cut_so(cut) {
                return Ok(());
            }
            I::each_group(self, |group| {
                for slot in self.named(group) {
                    if slot.place() / CHUNK_BYTES == cut.chunk
                        && let Some((_, place)) = self.place_at(slot.place())
                    {
                        self.change(cut, place, 0, TAKEN | slot.instance());
                    }
                }
                Ok(())
            })?;
            for place in 0..cut.places {
                let last = record::instance_at(self.ground.mem(), cut.offset(place));
                if self.byte(cut, place) == 0 {
                    let byte = self.byte_of_free(cut, last);
                    self.change(cut, place, 0, byte);
                }
            }
            let known = self.ground.note(cut.chunk, 1);
            self.ground.mem().store(known, KNOWN);
            Ok(())
        })
    }
}
