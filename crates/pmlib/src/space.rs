//! Which chunks are free, which have room for objects of a class, and places in them.
//!
//! - A *reserved* place has its bit in the chunk's second bitmap, which means nothing after a
//!   crash. It becomes an object by its bit in the first bitmap, which a record sets.
//! - A freed place keeps its bit in the second bitmap, and a freed run its chunks, until the record
//!   that freed it is closed durably: until then recovery may redo records that stored there.
//! - A chunk is *claimed* by the transaction whose record makes it a chunk of objects.

use std::collections::BTreeMap;

use pmlib_format::CHUNK_BYTES;
use pmlib_format::chunk::{
    BITMAP_TAG_OFFSET, CLASS_BYTES, KIND_FREE, KIND_OBJECTS, KIND_RUN, bitmap_words, first_place,
    places,
};

use crate::engine::Core;
use crate::error::{Error, Result};
use crate::packed::Entry;

/// Classes of objects that share chunks.
pub(crate) const CLASSES: usize = CLASS_BYTES.len();

/// A chunk of objects, as this process knows it.
#[derive(Clone, Copy, Debug)]
struct Block {
    class: usize,
    /// Lanes that take places from it.
    users: u32,
    /// It is in the class's list.
    is_listed: bool,
    /// A durable record made it one.
    is_published: bool,
}

/// What is free, as this process knows it.
#[derive(Debug, Default)]
pub(crate) struct Space {
    /// Runs of free chunks: first chunk, chunks.
    free: BTreeMap<u64, u64>,
    blocks: BTreeMap<u64, Block>,
    /// For each class, chunks that may have room and that no lane uses.
    partial: [Vec<u64>; CLASSES],
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

    pub fn give(&mut self, first: u64, chunks: u64) {
        let (mut start, mut end) = (first, first + chunks);
        if let Some((&before, &len)) = self.free.range(..first).next_back()
            && before + len == first
        {
            self.free.remove(&before);
            start = before;
        }
        if let Some(len) = self.free.remove(&end) {
            end += len;
        }
        self.free.insert(start, end - start);
    }

    /// A chunk of objects that the table has.
    pub fn add(&mut self, chunk: u64, class: usize) {
        self.blocks.insert(
            chunk,
            Block {
                class,
                users: 0,
                is_listed: true,
                is_published: true,
            },
        );
        self.partial[class].push(chunk);
    }

    /// A claimed chunk is one for good.
    pub fn publish(&mut self, chunk: u64) {
        if let Some(block) = self.blocks.get_mut(&chunk) {
            block.is_published = true;
        }
        self.has_room(chunk);
    }

    /// A place was given back.
    fn has_room(&mut self, chunk: u64) {
        if let Some(block) = self.blocks.get_mut(&chunk)
            && block.users == 0
            && block.is_published
            && !block.is_listed
        {
            block.is_listed = true;
            self.partial[block.class].push(chunk);
        }
    }

    /// Runs of free chunks: first, chunks.
    pub fn free_runs(&self) -> impl Iterator<Item = (u64, u64)> {
        self.free.iter().map(|(&first, &chunks)| (first, chunks))
    }

    /// Chunks of each class.
    pub fn chunks_of_classes(&self) -> [u64; CLASSES] {
        let mut counts = [0; CLASSES];
        for block in self.blocks.values() {
            counts[block.class] += 1;
        }
        counts
    }
}

/// Where a lane takes places of a class from.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Current {
    /// The chunk; 0, which is never one of objects: none.
    chunk: u64,
    /// The word of its bitmap that had a free place last.
    word: u64,
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

/// The class of objects of `size` bytes, if they share chunks.
pub(crate) fn class_of(size: u64) -> Option<usize> {
    CLASS_BYTES.iter().position(|&bytes| bytes >= size)
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
    pub fn entry(&self, chunk: u64) -> Option<Entry> {
        let span = self.spans.of(chunk)?;
        Some(Entry::of(self.mem.load(span.entry(chunk))))
    }

    /// What may be an object at `offset`, by its chunk's entry: whether it is one, its bit says.
    pub fn place_of(&self, offset: u64) -> Option<Object> {
        let chunk = offset / CHUNK_BYTES;
        let entry = self.entry(chunk)?;
        let within = offset % CHUNK_BYTES;
        match entry.kind {
            KIND_OBJECTS if entry.class < CLASSES => {
                let within = within.checked_sub(first_place(entry.class))?;
                let index = within / CLASS_BYTES[entry.class];
                let is_place =
                    within.is_multiple_of(CLASS_BYTES[entry.class]) && index < places(entry.class);
                is_place.then_some(Object::Shared(Place {
                    chunk,
                    class: entry.class,
                    index,
                }))
            }
            KIND_RUN if within == 0 && chunk + entry.chunks <= self.spans.chunks() => {
                Some(Object::Run(chunk, entry.chunks))
            }
            _ => None,
        }
    }

    /// The object at `offset`.
    pub fn object(&self, offset: u64) -> Result<Object> {
        let object = self.place_of(offset).ok_or(Error::NoObject { offset })?;
        if let Object::Shared(place) = object {
            let (word, bit) = place.bit();
            if self.mem.load(word) & bit == 0 {
                return Err(Error::NoObject { offset });
            }
        }
        Ok(object)
    }

    /// Makes a chunk's second bitmap this run's: before the first place is reserved in it or freed.
    pub fn open_bitmap(&self, chunk: u64, class: usize) {
        // One thread at a time.
        let _space = self.space();
        self.open_locked(chunk, class);
    }

    /// As [`Core::open_bitmap`], by who has the space.
    fn open_locked(&self, chunk: u64, class: usize) {
        let span = self.spans.of(chunk).expect("a chunk of the heap");
        let tag = span.line(chunk) + BITMAP_TAG_OFFSET;
        if self.mem.load_cached(tag) == self.tag {
            return;
        }
        let (start, words) = (chunk * CHUNK_BYTES, bitmap_words(class));
        for at in 0..words {
            let allocated = self.mem.load(start + at * 8);
            self.mem.store(start + (words + at) * 8, allocated);
        }
        self.mem.store(tag, self.tag);
    }

    /// Reserves a place of a class for a lane, in a write window. `claimed` gets a chunk that the
    /// lane's next record has to make one of objects. `None`: there is no room.
    pub fn reserve(
        &self,
        current: &mut [Current; CLASSES],
        class: usize,
        claimed: &mut Vec<Claim>,
    ) -> Option<Place> {
        loop {
            let here = &mut current[class];
            if here.chunk != 0 {
                if let Some(place) = self.reserve_in(here, class) {
                    return Some(place);
                }
                self.leave(here, class);
            }
            match self.next_chunk(class, claimed) {
                Some(chunk) => *here = Current { chunk, word: 0 },
                None => return self.reserve_beside(class),
            }
        }
    }

    /// A lane takes places of a class from its chunk no longer.
    pub fn leave(&self, current: &mut Current, class: usize) {
        let chunk = std::mem::take(current).chunk;
        let mut space = self.space();
        if let Some(block) = space.blocks.get_mut(&chunk) {
            block.users = block.users.saturating_sub(1);
        }
        // Whoever gives a place back later lists the chunk; whoever did before has not.
        if chunk != 0 && self.free_bits(chunk, class).any(|free| free != 0) {
            space.has_room(chunk);
        }
    }

    /// For each word of a chunk's second bitmap, the bits of places that nobody has.
    fn free_bits(&self, chunk: u64, class: usize) -> impl Iterator<Item = u64> {
        let words = bitmap_words(class);
        let second = chunk * CHUNK_BYTES + words * 8;
        (0..words).map(move |word| {
            let valid = valid_bits(class, word);
            !self.mem.load_cached(second + word * 8) & valid
        })
    }

    /// A chunk with room, or a free one, claimed.
    fn next_chunk(&self, class: usize, claimed: &mut Vec<Claim>) -> Option<u64> {
        let mut space = self.space();
        if let Some(chunk) = space.partial[class].pop() {
            self.open_locked(chunk, class);
            let block = space.blocks.get_mut(&chunk).expect("listed ones are known");
            block.is_listed = false;
            block.users += 1;
            return Some(chunk);
        }
        let chunk = space.take(1)?;
        space.blocks.insert(
            chunk,
            Block {
                class,
                users: 1,
                is_listed: false,
                is_published: false,
            },
        );
        drop(space);
        let (start, words) = (chunk * CHUNK_BYTES, bitmap_words(class));
        // The first bitmap is the record's, which claims the chunk, to make durable.
        for at in 0..2 * words {
            self.mem.store(start + at * 8, 0);
        }
        let span = self.spans.of(chunk).expect("a chunk of the heap");
        self.mem
            .store(span.line(chunk) + BITMAP_TAG_OFFSET, self.tag);
        claimed.push(Claim { chunk, class });
        Some(chunk)
    }

    /// A place in a chunk that another lane takes places from.
    fn reserve_beside(&self, class: usize) -> Option<Place> {
        let space = self.space();
        let used = |block: &Block| block.class == class && block.is_published && block.users > 0;
        let chunks: Vec<u64> = space
            .blocks
            .iter()
            .filter_map(|(&chunk, block)| used(block).then_some(chunk))
            .collect();
        drop(space);
        let mut chunks = chunks.into_iter();
        chunks.find_map(|chunk| self.reserve_in(&mut Current { chunk, word: 0 }, class))
    }

    fn reserve_in(&self, current: &mut Current, class: usize) -> Option<Place> {
        let words = bitmap_words(class);
        let second = current.chunk * CHUNK_BYTES + words * 8;
        for step in 0..words {
            let word = (current.word + step) % words;
            let valid = valid_bits(class, word);
            let mut taken = self.mem.load_cached(second + word * 8);
            while !taken & valid != 0 {
                let bit = (!taken & valid).trailing_zeros();
                match self.mem.cas(second + word * 8, taken, taken | 1 << bit) {
                    Ok(_) => {
                        current.word = word;
                        return Some(Place {
                            chunk: current.chunk,
                            class,
                            index: word * 64 + u64::from(bit),
                        });
                    }
                    Err(now) => taken = now,
                }
            }
        }
        None
    }

    /// Gives a place back that no record needs, in a write window.
    pub fn release(&self, place: Place) {
        let (at, (_, bit)) = (place.taken_word(), place.bit());
        let mut taken = self.mem.load_cached(at);
        while let Err(now) = self.mem.cas(at, taken, taken & !bit) {
            taken = now;
        }
        self.space().has_room(place.chunk);
    }

    /// Gives back a chunk that was claimed for nothing, with the places reserved in it.
    pub fn unclaim(&self, current: &mut [Current; CLASSES], claim: Claim) {
        if current[claim.class].chunk == claim.chunk {
            current[claim.class] = Current::default();
        }
        let mut space = self.space();
        space.blocks.remove(&claim.chunk);
        space.give(claim.chunk, 1);
    }

    /// Chunks of objects in which nothing is, nor reserved, nor freed too late: each is known as
    /// one no more. Its entry has to be changed by a record.
    pub fn take_empty(&self) -> Vec<u64> {
        let mut space = self.space();
        let idle = |block: &Block| block.users == 0 && block.is_published;
        let idle: Vec<(u64, usize)> = space
            .blocks
            .iter()
            .filter(|(_, block)| idle(block))
            .map(|(&chunk, block)| (chunk, block.class))
            .collect();
        let mut empty = Vec::new();
        for (chunk, class) in idle {
            self.open_locked(chunk, class);
            let (start, words) = (chunk * CHUNK_BYTES, bitmap_words(class));
            let mut taken = (words..2 * words).map(|at| self.mem.load_cached(start + at * 8));
            if taken.all(|word| word == 0) {
                space.blocks.remove(&chunk);
                space.partial[class].retain(|&listed| listed != chunk);
                empty.push(chunk);
            }
        }
        empty
    }

    /// What the table says, made into what this process knows.
    pub fn read_table(&self) -> Result<()> {
        let mut space = Space::default();
        for span in self.spans.iter() {
            let mut chunk = span.first + span.meta_chunks;
            while chunk < span.first + span.chunks {
                let offset = span.entry(chunk);
                let entry = Entry::of(self.mem.load(offset));
                let bad = Error::Damaged {
                    what: "the chunk table",
                    offset,
                };
                match entry.kind {
                    KIND_FREE => space.give(chunk, 1),
                    KIND_OBJECTS if entry.class < CLASSES => space.add(chunk, entry.class),
                    KIND_RUN if entry.chunks > 0 => {}
                    _ => return Err(bad),
                }
                chunk += match entry.kind {
                    KIND_RUN => entry.chunks,
                    _ => 1,
                };
                if chunk > self.spans.chunks() {
                    return Err(bad);
                }
            }
        }
        *self.space() = space;
        Ok(())
    }
}

/// A chunk that a record is to make one of objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Claim {
    pub chunk: u64,
    pub class: usize,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_cut_and_joined() {
        let mut space = Space::default();
        space.give(10, 6);
        space.give(30, 2);
        assert_eq!(space.take(1), Some(30), "from the shortest");
        assert_eq!(space.take(4), Some(10));
        assert_eq!(space.take(3), None);
        space.give(30, 1);
        space.give(10, 4);
        let runs: Vec<(u64, u64)> = space.free_runs().collect();
        assert_eq!(runs, [(10, 6), (30, 2)]);
    }

    #[test]
    fn as_many_bits_are_valid_as_there_are_places() {
        for class in 0..CLASSES {
            let bits = (0..bitmap_words(class)).map(|word| valid_bits(class, word));
            let count: u64 = bits.map(|bits| u64::from(bits.count_ones())).sum();
            assert_eq!(count, places(class));
        }
        assert_eq!(
            valid_bits(0, bitmap_words(0) - 1),
            0,
            "there is such a word"
        );
    }

    #[test]
    fn the_class_is_the_smallest_that_fits() {
        assert_eq!(class_of(1), Some(0));
        assert_eq!(class_of(16), Some(0));
        assert_eq!(class_of(129).map(|class| CLASS_BYTES[class]), Some(160));
        assert_eq!(class_of(8192), Some(31));
        assert_eq!(class_of(8193), None);
    }
}
