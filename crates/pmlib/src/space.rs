//! Which chunks are free, which have room for objects of a class, and places in them.
//!
//! The truth stands in the heap, for all processes. Each has beside it what it believes
//! ([`Space`]), so that it finds room without a look at everything. A chunk's line says whose it
//! is:
//!
//! - Nobody's and free, or nobody's and one of objects: a transaction takes it by a CAS.
//! - A lane's: its transaction has reserved the chunk, or takes places from it. It stays so until
//!   that transaction ends, so that all places that are reserved in a chunk are one transaction's.
//! - A run's, or one of objects that an earlier chunk heads, whose line says whose they are.
//!
//! A *reserved* place has its bit in the chunk's second bitmap, which only the lane that has the
//! chunk changes. It becomes an object by its bit in the first bitmap, which a record sets.
//!
//! A freed place keeps its bit in the second bitmap, and a freed run's chunks are not taken, until
//! the last record that changed the chunk is closed durably, and so all records before it: until
//! then recovery may redo records that stored there. Then the second bitmap becomes what the first
//! one is. Places that a dead process had reserved come back in the same way.
//!
//! A chunk is *claimed* by the transaction whose record makes it a chunk of objects.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use pmlib_format::CHUNK_BYTES;
use pmlib_format::chunk::{
    BITMAP_OFFSET, CLASS_BYTES, CLASS_CHUNKS_MAX, KIND_FREE, KIND_OBJECTS, KIND_RUN, USE_OFFSET,
    USE_RUN, bitmap_words, class_chunks, first_place, place_at, places,
};
use pmlib_format::lane::CURRENT_OFFSET;

use crate::engine::Core;
use crate::error::{Error, Result};
use crate::lane::Lane;
use crate::layout::Span;
use crate::packed::{Entry, Ticket};
use crate::seen::Seen;

pub(crate) use pmlib_format::chunk::{CLASSES, class_of};

/// Room that comes to be had when a record is closed durably.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Room {
    /// In a chunk of this class.
    In(u64, usize),
    /// Free chunks: first, how many.
    Chunks(u64, u64),
}

/// For each class, chunks.
#[derive(Debug)]
struct Partial([VecDeque<u64>; CLASSES]);

impl Default for Partial {
    fn default() -> Partial {
        Partial(std::array::from_fn(|_| VecDeque::new()))
    }
}

/// Room, as this process believes.
#[derive(Debug, Default)]
pub(crate) struct Space {
    /// Runs of free chunks: first chunk, chunks.
    free: BTreeMap<u64, u64>,
    /// For each class, chunks that may have room and that nobody has.
    partial: Partial,
    /// A bit for each chunk, that says whether it is among those.
    listed: Vec<u64>,
    /// Where that is shown.
    seen: Arc<Seen>,
    /// For each lane, what comes with its records, by their stamps.
    waiting: Vec<VecDeque<(u64, Room)>>,
}

impl Space {
    /// Takes a run of free chunks: of those that are long enough, the shortest.
    pub fn take(&mut self, chunks: u64) -> Option<u64> {
        let fits = self.free.iter().filter(|&(_, &len)| len >= chunks);
        let (&first, &len) = fits.min_by_key(|&(_, &len)| len)?;
        self.free.remove(&first);
        if len > chunks {
            self.free.insert(first + chunks, len - chunks);
        }
        Some(first)
    }

    /// Takes free chunks that are a multiple of `chunks` away from the heap's start, at `from` or
    /// behind it.
    pub fn take_aligned(&mut self, from: u64, chunks: u64) -> Option<u64> {
        let starts = self.free.iter().map(|(&first, &len)| {
            let start = first.max(from).next_multiple_of(chunks);
            (start, first, len)
        });
        let mut fitting = starts.filter(|&(start, first, len)| start + chunks <= first + len);
        let (start, first, len) = fitting.next()?;
        self.free.remove(&first);
        self.give(first, start - first);
        self.give(start + chunks, first + len - start - chunks);
        Some(start)
    }

    pub fn give(&mut self, first: u64, chunks: u64) {
        if chunks == 0 {
            return;
        }
        let (mut start, mut end) = (first, first + chunks);
        // Others have told of some of them, perhaps.
        while let Some((&before, &len)) = self.free.range(..=end).next_back()
            && before + len >= start
        {
            self.free.remove(&before);
            (start, end) = (start.min(before), end.max(before + len));
        }
        self.free.insert(start, end - start);
    }

    /// Nobody has this chunk, and there may be room in it.
    pub fn list(&mut self, chunk: u64, class: usize) {
        let (word, bit) = ((chunk / 64) as usize, 1 << (chunk % 64));
        if self.listed.len() <= word {
            self.listed.resize(word + 1, 0);
        }
        if self.listed[word] & bit == 0 {
            self.listed[word] |= bit;
            self.partial.0[class].push_back(chunk);
            self.seen.show(chunk);
        }
    }

    fn next_listed(&mut self, class: usize) -> Option<u64> {
        let chunk = self.partial.0[class].pop_front()?;
        self.listed[(chunk / 64) as usize] &= !(1 << (chunk % 64));
        self.seen.hide(chunk);
        Some(chunk)
    }

    /// Shows there what is listed, and nothing else, from now on.
    fn show_in(&mut self, seen: &Arc<Seen>) {
        seen.clear();
        for &chunk in self.partial.0.iter().flatten() {
            seen.show(chunk);
        }
        self.seen = Arc::clone(seen);
    }

    /// There is room once this record is closed durably.
    pub fn wait_for(&mut self, ticket: Ticket, room: Room) {
        let lane = ticket.lane as usize;
        if self.waiting.len() <= lane {
            self.waiting.resize(lane + 1, VecDeque::new());
        }
        let queue = &mut self.waiting[lane];
        if queue
            .back()
            .is_none_or(|last| *last != (ticket.stamp, room))
        {
            queue.push_back((ticket.stamp, room));
        }
    }

    /// Lists room that has come meanwhile.
    fn settle(&mut self, core: &Core) {
        for lane in 0..self.waiting.len() {
            self.settle_lane(core, lane as u32);
        }
    }

    /// Lists room that has come with a lane's records.
    pub fn settle_lane(&mut self, core: &Core, lane: u32) {
        while let Some(&(stamp, room)) = self.waiting[lane as usize].front()
            && core.is_settled(Ticket { lane, stamp })
        {
            self.waiting[lane as usize].pop_front();
            match room {
                Room::In(chunk, class) => self.list(chunk, class),
                Room::Chunks(first, chunks) => self.give(first, chunks),
            }
        }
    }

    /// Each run of free chunks: first, how many.
    pub fn free_spans(&self) -> impl Iterator<Item = (u64, u64)> {
        self.free.iter().map(|(&first, &chunks)| (first, chunks))
    }

    /// Chunks of each run of free ones.
    pub fn free_runs(&self) -> impl Iterator<Item = u64> {
        self.free.values().copied()
    }

    /// Whether there seems to be a run of so many free chunks.
    pub fn has_run(&self, chunks: u64) -> bool {
        self.free.values().any(|&len| len >= chunks)
    }
}

/// A place of an object in a chunk of its class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub chunk: u64,
    pub class: usize,
    pub index: u64,
}

impl Place {
    pub fn offset(&self) -> u64 {
        self.chunk * CHUNK_BYTES + first_place(self.class) + self.index * CLASS_BYTES[self.class]
    }

    /// Its word of the first bitmap, and its bit there.
    pub fn bit(&self) -> (u64, u64) {
        let word = self.chunk * CHUNK_BYTES + self.index / 64 * 8;
        (word, 1 << (self.index % 64))
    }

    /// The chunks in which it is, if those may be others than the one with its bit.
    pub fn covered(&self) -> std::ops::Range<u64> {
        if class_chunks(self.class) == 1 {
            return 0..0;
        }
        let end = self.offset() + CLASS_BYTES[self.class];
        self.offset() / CHUNK_BYTES..end.div_ceil(CHUNK_BYTES)
    }

    /// Its word of the second bitmap.
    fn taken_word(&self) -> u64 {
        self.bit().0 + bitmap_words(self.class) * 8
    }
}

/// An object, by its offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Object {
    Shared(Place),
    /// Chunks of its own: first, how many.
    Run(u64, u64),
}

impl Object {
    pub fn size(&self) -> u64 {
        match self {
            Object::Shared(place) => CLASS_BYTES[place.class],
            Object::Run(_, chunks) => chunks * CHUNK_BYTES,
        }
    }
}

/// Whether an entry can be one of objects, by its class and its chunks.
pub(crate) fn is_shared(entry: Entry) -> bool {
    entry.class < CLASSES && entry.chunks == class_chunks(entry.class)
}

/// The bits of a word of a class's bitmaps that are places.
pub(crate) fn valid_bits(class: usize, word: u64) -> u64 {
    match places(class).saturating_sub(word * 64) {
        0 => 0,
        there => u64::MAX >> (64 - there.min(64)),
    }
}

impl Core {
    /// A chunk's entry as it stands in the table; `None`: no such chunk.
    #[inline]
    pub fn entry(&self, chunk: u64) -> Option<Entry> {
        let span = self.span_of(chunk)?;
        Some(Entry::of(self.mem.load(span.entry(chunk))))
    }

    /// The object that may be at `offset`, by its chunk's entry; its bit says whether it is one.
    #[inline(always)]
    pub fn place_of(&self, offset: u64) -> Option<Object> {
        let chunk = offset / CHUNK_BYTES;
        let entry = self.entry(chunk)?;
        let within = offset % CHUNK_BYTES;
        match entry.kind {
            KIND_OBJECTS if entry.class < CLASSES => {
                let index = place_at(entry.class, within)?;
                Some(Object::Shared(Place {
                    chunk,
                    class: entry.class,
                    index,
                }))
            }
            KIND_RUN if within == 0 && chunk + entry.chunks <= self.spans.chunks() => {
                Some(Object::Run(chunk, entry.chunks))
            }
            KIND_FREE => self.place_behind(chunk, within),
            _ => None,
        }
    }

    /// The object that may be at a place of a chunk without an entry, which belongs perhaps to
    /// objects that an earlier one heads.
    #[cold]
    fn place_behind(&self, chunk: u64, within: u64) -> Option<Object> {
        for distance in 1..CLASS_CHUNKS_MAX.min(chunk + 1) {
            let head = chunk - distance;
            let entry = self.entry(head)?;
            let class = entry.class;
            match entry.kind {
                KIND_FREE => {}
                KIND_OBJECTS if class < CLASSES && distance < class_chunks(class) => {
                    let index = place_at(class, distance * CHUNK_BYTES + within)?;
                    return Some(Object::Shared(Place {
                        chunk: head,
                        class,
                        index,
                    }));
                }
                _ => return None,
            }
        }
        None
    }

    /// The object at `offset`.
    #[inline(always)]
    pub fn object(&self, offset: u64) -> Result<Object> {
        let Some(object) = self.place_of(offset) else {
            return Err(self.no_object(offset));
        };
        if let Object::Shared(place) = object {
            let (word, bit) = place.bit();
            if self.mem.load(word) & bit == 0 {
                return Err(self.no_object(offset));
            }
        }
        Ok(object)
    }

    /// The error of an offset at which nothing is, or could be read.
    #[cold]
    fn no_object(&self, offset: u64) -> Error {
        match self.mem.failed() {
            Some(offset) => Error::Lost { offset },
            None => Error::NoObject { offset },
        }
    }

    /// The word that says whose a chunk is.
    fn use_of(&self, chunk: u64) -> u64 {
        self.line(chunk) + USE_OFFSET
    }

    /// A chunk is nobody's, or a run's, from now on; in a write window.
    pub fn set_use(&self, first: u64, chunks: u64, value: u64) {
        for chunk in first..first + chunks {
            self.mem.store(self.use_of(chunk), value);
        }
    }

    /// Whether all records that changed a chunk are closed durably.
    fn is_quiet(&self, chunk: u64) -> bool {
        self.pending(chunk)
            .is_none_or(|ticket| self.is_settled(ticket))
    }

    /// Takes a chunk that is nobody's.
    fn try_use(&self, chunk: u64, lane: &Lane) -> bool {
        let at = self.use_of(chunk);
        self.mem.load_cached(at) == 0 && self.mem.cas(at, 0, lane.as_user()).is_ok()
    }

    /// Takes a run of free chunks for a lane, in a write window.
    pub fn take(&self, lane: &Lane, chunks: u64) -> Option<u64> {
        loop {
            let mut space = self.space();
            space.settle(self);
            let first = space.take(chunks)?;
            drop(space);
            if !self.take_all(lane, first, chunks) {
                continue;
            }
            if self.has_space(first, chunks) {
                return Some(first);
            }
            // Nobody is offered them again before the next look for room.
            self.set_use(first, chunks, 0);
            return None;
        }
    }

    /// Takes these chunks, which are in no list any more, or else gives the free ones back there.
    pub fn take_all(&self, lane: &Lane, first: u64, chunks: u64) -> bool {
        let Some(bad) = (first..first + chunks).find(|&chunk| !self.take_one(lane, chunk)) else {
            return true;
        };
        self.set_use(first, bad - first, 0);
        let mut space = self.space();
        space.give(first, bad - first);
        space.give(bad + 1, first + chunks - bad - 1);
        // Somebody was faster, or it is too early.
        if let Some(ticket) = self.pending(bad)
            && !self.is_settled(ticket)
        {
            space.wait_for(ticket, Room::Chunks(bad, 1));
        }
        false
    }

    /// Gives chunks space of the file's, which may have holes there. `false`: its medium has none.
    fn has_space(&self, first: u64, chunks: u64) -> bool {
        let (start, bytes) = (first * CHUNK_BYTES, chunks * CHUNK_BYTES);
        if self.has_hole(first, chunks) {
            return self.fill_hole(first, chunks);
        }
        !self.mem.is_sparse() || self.mem.back(start, bytes)
    }

    /// Takes one free chunk.
    fn take_one(&self, lane: &Lane, chunk: u64) -> bool {
        if !self.try_use(chunk, lane) {
            return false;
        }
        let is_free = self
            .entry(chunk)
            .is_some_and(|entry| entry.kind == KIND_FREE);
        if !is_free || !self.is_quiet(chunk) {
            self.set_use(chunk, 1, 0);
            return false;
        }
        true
    }

    /// Gives back chunks that a lane has taken and no record names.
    pub fn untake(&self, first: u64, chunks: u64) {
        self.set_use(first, chunks, 0);
        self.space().give(first, chunks);
    }

    /// Makes a chunk's second bitmap mean something: before the first place in it is freed.
    #[inline]
    pub fn open_bitmap(&self, chunk: u64, class: usize) {
        if !self.has_bitmap(chunk) {
            self.open_first(chunk, class);
        }
    }

    #[cold]
    fn open_first(&self, chunk: u64, class: usize) {
        let _window = self.mem.window();
        self.lock_chunk(chunk);
        if !self.has_bitmap(chunk) {
            self.renew_bitmap(chunk, class);
        }
        self.unlock_chunk(chunk);
    }

    #[inline]
    fn has_bitmap(&self, chunk: u64) -> bool {
        self.mem.load_cached(self.line(chunk) + BITMAP_OFFSET) != 0
    }

    /// The second bitmap becomes what the first one is, of a locked chunk.
    fn renew_bitmap(&self, chunk: u64, class: usize) {
        let (start, words) = (chunk * CHUNK_BYTES, bitmap_words(class));
        for at in 0..words {
            let allocated = self.mem.load(start + at * 8);
            self.mem.store(start + (words + at) * 8, allocated);
        }
        self.mem.store(self.line(chunk) + BITMAP_OFFSET, 1);
    }

    /// Reserves a place of a class for a lane, in a write window. `claimed` gets a chunk that the
    /// lane's next record has to make one of objects. `None`: there is no room.
    pub fn reserve(
        &self,
        lane: &mut Lane,
        class: usize,
        claimed: &mut Vec<Claim>,
    ) -> Option<Place> {
        loop {
            let (chunk, word) = self.current(lane, class);
            // Another process has noted it, which may have made the heap longer meanwhile.
            if chunk != 0 && self.span_of(chunk).is_some() {
                if let Some(place) = self.reserve_in(lane, chunk, class, word) {
                    return Some(place);
                }
                // Places that are reserved in it stay this transaction's to its end.
                lane.full.push(Claim { chunk, class });
                self.set_current(lane, class, 0, 0);
            }
            let chunk = self.next_chunk(lane, class, claimed)?;
            self.set_current(lane, class, chunk, 0);
        }
    }

    fn current_word(&self, lane: &Lane, class: usize) -> u64 {
        self.places.lane_line(lane.index()) + CURRENT_OFFSET + 8 * class as u64
    }

    /// The chunk from which a lane takes places of a class, 0 for none, and the word of its bitmap
    /// that had one last.
    fn current(&self, lane: &Lane, class: usize) -> (u64, u64) {
        let word = self.mem.load_cached(self.current_word(lane, class));
        (word & 0xffff_ffff, word >> 32)
    }

    fn set_current(&self, lane: &Lane, class: usize, chunk: u64, word: u64) {
        self.mem
            .store(self.current_word(lane, class), chunk | word << 32);
    }

    /// A lane takes places from its chunks no longer. Those of `reserved` (sorted), in which its
    /// transaction has places, are its own until that ends.
    pub fn leave_chunks(&self, lane: &mut Lane, reserved: &[u64]) {
        for class in 0..CLASSES {
            let (chunk, _) = self.current(lane, class);
            if chunk == 0 {
                continue;
            }
            self.set_current(lane, class, 0, 0);
            if reserved.binary_search(&chunk).is_ok() {
                lane.full.push(Claim { chunk, class });
            } else {
                self.let_go(chunk, class);
            }
        }
    }

    /// A transaction has ended: chunks that it was the last to need are nobody's.
    pub fn leave_full(&self, lane: &mut Lane) {
        while let Some(Claim { chunk, class }) = lane.full.pop() {
            self.let_go(chunk, class);
        }
    }

    fn let_go(&self, chunk: u64, class: usize) {
        self.set_use(chunk, 1, 0);
        if self.has_room(chunk, class) {
            self.space().list(chunk, class);
        }
    }

    /// Whether not all places of a chunk are allocated.
    fn has_room(&self, chunk: u64, class: usize) -> bool {
        (0..bitmap_words(class)).any(|word| {
            let allocated = self.mem.load_cached(chunk * CHUNK_BYTES + word * 8);
            !allocated & valid_bits(class, word) != 0
        })
    }

    /// A chunk with room, or a free one, claimed.
    fn next_chunk(&self, lane: &Lane, class: usize, claimed: &mut Vec<Claim>) -> Option<u64> {
        loop {
            let mut space = self.space();
            space.settle(self);
            let Some(chunk) = space.next_listed(class) else {
                break;
            };
            drop(space);
            if self.use_listed(lane, chunk, class) {
                return Some(chunk);
            }
        }
        let chunk = self.take(lane, class_chunks(class))?;
        let (start, words) = (chunk * CHUNK_BYTES, bitmap_words(class));
        // The first bitmap is the record's, which claims the chunk, to make durable.
        for at in 0..2 * words {
            self.mem.store(start + at * 8, 0);
        }
        self.mem.store(self.line(chunk) + BITMAP_OFFSET, 1);
        claimed.push(Claim { chunk, class });
        Some(chunk)
    }

    /// Takes a chunk of objects, if nobody has it and there is room in it.
    fn use_listed(&self, lane: &Lane, chunk: u64, class: usize) -> bool {
        if !self.try_use(chunk, lane) {
            // Its user lists it later.
            return false;
        }
        let entry = self.entry(chunk);
        if !entry.is_some_and(|entry| entry.kind == KIND_OBJECTS && entry.class == class) {
            self.set_use(chunk, 1, 0);
            return false;
        }
        let pending = self.lock_chunk(chunk);
        let early = pending.filter(|&ticket| !self.is_settled(ticket));
        if early.is_none() || !self.has_bitmap(chunk) {
            self.renew_bitmap(chunk, class);
        }
        self.unlock_chunk(chunk);
        let second = chunk * CHUNK_BYTES + bitmap_words(class) * 8;
        let has_free = (0..bitmap_words(class)).any(|word| {
            let taken = self.mem.load_cached(second + word * 8);
            !taken & valid_bits(class, word) != 0
        });
        if !has_free {
            self.set_use(chunk, 1, 0);
            if let Some(ticket) = early
                && self.has_room(chunk, class)
            {
                self.space().wait_for(ticket, Room::In(chunk, class));
            }
        }
        has_free
    }

    /// A place in a chunk that the lane has: nobody else changes its second bitmap.
    fn reserve_in(&self, lane: &Lane, chunk: u64, class: usize, hint: u64) -> Option<Place> {
        let words = bitmap_words(class);
        let second = chunk * CHUNK_BYTES + words * 8;
        // The hint is another process's, perhaps, and not believed.
        let first = if hint < words { hint } else { 0 };
        for word in (first..words).chain(0..first) {
            let valid = valid_bits(class, word);
            let taken = self.mem.load_cached(second + word * 8);
            if !taken & valid == 0 {
                continue;
            }
            let bit = (!taken & valid).trailing_zeros();
            self.mem.store(second + word * 8, taken | 1 << bit);
            if word != hint {
                self.set_current(lane, class, chunk, word);
            }
            return Some(Place {
                chunk,
                class,
                index: word * 64 + u64::from(bit),
            });
        }
        None
    }

    /// Gives a place back that no record needs, in a chunk that the caller's lane has, in a write
    /// window.
    pub fn release(&self, place: Place) {
        let (at, (_, bit)) = (place.taken_word(), place.bit());
        let taken = self.mem.load_cached(at);
        self.mem.store(at, taken & !bit);
    }

    /// Gives back a chunk that was claimed for nothing, with the places reserved in it.
    pub fn unclaim(&self, lane: &mut Lane, claim: Claim) {
        if self.current(lane, claim.class).0 == claim.chunk {
            self.set_current(lane, claim.class, 0, 0);
        }
        lane.full.retain(|full| full.chunk != claim.chunk);
        self.untake(claim.chunk, class_chunks(claim.class));
    }

    /// Takes chunks of objects in which nothing is, nor reserved, nor freed too late. Their entries
    /// have to be changed by a record.
    pub fn take_empty(&self, lane: &Lane) -> Vec<(u64, Entry)> {
        let mut objects = Vec::new();
        self.walk(|chunk, entry| {
            if entry.kind == KIND_OBJECTS && entry.class < CLASSES {
                objects.push(chunk);
            }
        });
        let mut empty = Vec::new();
        for chunk in objects {
            if !self.try_use(chunk, lane) {
                continue;
            }
            let entry = self.entry(chunk).filter(|entry| entry.kind == KIND_OBJECTS);
            let is_empty = entry.is_some_and(|entry| {
                let mut words = 0..bitmap_words(entry.class);
                words.all(|word| self.mem.load_cached(chunk * CHUNK_BYTES + word * 8) == 0)
            });
            match entry {
                Some(entry) if is_empty && self.is_quiet(chunk) => empty.push((chunk, entry)),
                _ => self.set_use(chunk, 1, 0),
            }
        }
        empty
    }

    /// Shows each chunk that is no part of the heap's own and belongs to no earlier one.
    pub fn walk(&self, mut show: impl FnMut(u64, Entry)) {
        self.walk_spans(|_, chunk, entry, _| show(chunk, entry));
    }

    /// The same with the second words of the entries.
    #[inline]
    pub fn walk_owners(&self, mut show: impl FnMut(u64, Entry, u64)) {
        self.walk_spans(|_, chunk, entry, owner| show(chunk, entry, owner));
    }

    /// The same with the span of each: to look for it again would be half of the work.
    #[inline]
    fn walk_spans(&self, mut show: impl FnMut(&Span, u64, Entry, u64)) {
        for span in self.spans.iter() {
            let (mut chunk, end) = (span.first + span.meta_chunks, span.first + span.chunks);
            while chunk < end {
                let [word, owner] = self.mem.read(span.entry(chunk));
                let entry = Entry::of(word);
                show(span, chunk, entry, owner);
                chunk += entry.extent();
            }
        }
    }

    /// Looks for room in the whole heap: other processes may have made some, or died.
    pub fn look_for_room(&self) {
        let mut space = Space::default();
        self.walk_spans(|span, chunk, entry, _| {
            if self.mem.load_cached(span.line(chunk) + USE_OFFSET) != 0 {
                return;
            }
            let early = self
                .pending(chunk)
                .filter(|&ticket| !self.is_settled(ticket));
            let room = match entry.kind {
                KIND_FREE => Room::Chunks(chunk, 1),
                KIND_OBJECTS if entry.class < CLASSES => {
                    if self.has_bitmap(chunk) && !self.has_room(chunk, entry.class) {
                        return;
                    }
                    Room::In(chunk, entry.class)
                }
                _ => return,
            };
            match (early, room) {
                (Some(ticket), room) => space.wait_for(ticket, room),
                (None, Room::Chunks(first, chunks)) => space.give(first, chunks),
                (None, Room::In(chunk, class)) => space.list(chunk, class),
            }
        });
        // By their stamps.
        for queue in &mut space.waiting {
            queue.make_contiguous().sort_by_key(|&(stamp, _)| stamp);
        }
        let mut old = self.space();
        space.show_in(&self.seen);
        *old = space;
    }

    /// Notes whose each chunk is, as the table says: for the first opener.
    pub fn begin_space(&self) -> Result<()> {
        let mut bad = None;
        let _window = self.mem.window();
        let chunks = self.spans.chunks();
        self.walk_spans(|span, chunk, entry, _| match entry.kind {
            KIND_FREE => {}
            KIND_OBJECTS if is_shared(entry) && chunk + entry.chunks <= chunks => {
                self.set_use(chunk + 1, entry.chunks - 1, USE_RUN);
            }
            KIND_RUN if entry.chunks == 1 => {
                self.mem.store(span.line(chunk) + USE_OFFSET, USE_RUN);
            }
            KIND_RUN if entry.chunks > 0 && chunk + entry.chunks <= chunks => {
                self.set_use(chunk, entry.chunks, USE_RUN);
            }
            _ => bad = bad.or(Some(chunk)),
        });
        if let Some(chunk) = bad {
            let span = self.spans.of(chunk);
            return Err(Error::Damaged {
                what: "the chunk table",
                offset: span.map_or(0, |span| span.entry(chunk)),
            });
        }
        Ok(())
    }
}

/// A chunk that a record is to make one of objects; any that a lane has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Claim {
    pub chunk: u64,
    pub class: usize,
}

#[cfg(test)]
mod tests;
