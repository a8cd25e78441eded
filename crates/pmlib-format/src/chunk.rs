//! The chunk table, the lines of the chunks in the volatile area, and the inside of a chunk of
//! objects.

use crate::{CHUNK_BYTES, LINE_BYTES};

/// Bytes of a chunk's entry in the table: two words.
///
/// The first word, from its low end: kind (4 bits), class (8), chunks (28), generation (24). Chunks
/// are those of a run, and those that objects of a class share. The second is the offset of the
/// object whose run it is, 0 for none.
pub const ENTRY_BYTES: u64 = 16;
/// Chunks of a group of the table. Their CRC-32C is the low half of the group's last 16 bytes.
pub const GROUP_CHUNKS: u64 = 15;
/// Bytes of a group.
pub const GROUP_BYTES: u64 = 256;

/// Kind: nothing is in it, or it belongs to a run, or to chunks of objects, that an earlier one
/// heads.
pub const KIND_FREE: u64 = 0;
/// Kind: objects of one class, in this chunk and in those after it that the class takes.
pub const KIND_OBJECTS: u64 = 1;
/// Kind: the head of a run of chunks that is one object.
pub const KIND_RUN: u64 = 2;
/// Kind: the head of what the format itself takes of a span.
pub const KIND_META: u64 = 3;

/// Objects lie at multiples of this.
pub const PLACE_BYTES: u64 = 16;
/// Classes whose objects share chunks.
pub const CLASSES: usize = SMALL + LARGE.len();
/// Sizes of the classes, bytes: by 16 up to 128, then four to a doubling up to 8 KiB, then those of
/// which some fill one chunk, two, four or eight.
pub const CLASS_BYTES: [u64; CLASSES] = class_bytes();
/// The largest object that shares chunks with others, bytes.
pub const SHARED_MAX: u64 = CLASS_BYTES[CLASSES - 1];
/// The most chunks that objects of one class share.
pub const CLASS_CHUNKS_MAX: u64 = 8;

/// Classes up to 8 KiB.
const SMALL: usize = 32;
/// The larger ones: chunks, and how many objects share them. No object is more than a quarter
/// larger than what was asked for, if one that fits better into whole chunks has these.
const LARGE: [(u64, u64); 11] = [
    (1, 6),
    (1, 5),
    (1, 4),
    (1, 3),
    (2, 5),
    (2, 4),
    (2, 3),
    (4, 5),
    (4, 3),
    (8, 5),
    (8, 3),
];

/// Chunks that objects of a class share.
#[inline]
#[must_use]
pub const fn class_chunks(class: usize) -> u64 {
    match class {
        0..SMALL => 1,
        _ => LARGE[class - SMALL].0,
    }
}

/// The class of objects of `size` bytes; `None`: such an object has chunks of its own.
#[inline]
#[must_use]
pub const fn class_of(size: u64) -> Option<usize> {
    let mut class = 0;
    while class < CLASSES {
        if CLASS_BYTES[class] >= size {
            // Whole chunks may fit better.
            let fits =
                class < SMALL || CLASS_BYTES[class] < size.div_ceil(CHUNK_BYTES) * CHUNK_BYTES;
            return if fits { Some(class) } else { None };
        }
        class += 1;
    }
    None
}

const fn class_bytes() -> [u64; CLASSES] {
    let mut bytes = [0; CLASSES];
    let mut class = 0;
    while class < 8 {
        bytes[class] = 16 * (class as u64 + 1);
        class += 1;
    }
    while class < SMALL {
        let (doubling, quarter) = ((class - 8) / 4, (class - 8) % 4);
        bytes[class] = (128 << doubling) / 4 * (5 + quarter as u64);
        class += 1;
    }
    while class < CLASSES {
        let (chunks, objects) = LARGE[class - SMALL];
        // A line has the bitmaps.
        let room = chunks * CHUNK_BYTES - LINE_BYTES;
        bytes[class] = room / objects / PLACE_BYTES * PLACE_BYTES;
        class += 1;
    }
    bytes
}

/// Words of one bitmap at the start of a chunk of objects. The first bitmap says what is
/// allocated; the second, which means nothing after a crash, what is not to be given out.
#[inline]
#[must_use]
pub const fn bitmap_words(class: usize) -> u64 {
    INSIDE[class].bitmap_words
}

/// Where the first object is, from its chunk's start.
#[inline]
#[must_use]
pub const fn first_place(class: usize) -> u64 {
    INSIDE[class].first
}

/// How many objects the chunks of a class have room for.
#[inline]
#[must_use]
pub const fn places(class: usize) -> u64 {
    INSIDE[class].places
}

/// The number of the place that begins `within` bytes after the start of a chunk of objects, if one
/// does; it may begin in one of the chunks that belong to it.
#[inline]
#[must_use]
pub fn place_at(class: usize, within: u64) -> Option<u64> {
    let inside = &INSIDE[class];
    let after = within.checked_sub(inside.first)?;
    // Past the last place the product is of no use, and may not fit.
    let index = after.wrapping_mul(inside.reciprocal) >> 32;
    let is_place = index.wrapping_mul(CLASS_BYTES[class]) == after && index < inside.places;
    (is_place && within < class_chunks(class) * CHUNK_BYTES).then_some(index)
}

/// The inside of a chunk of a class: divisions that no transaction is to wait for.
#[derive(Clone, Copy)]
struct Inside {
    bitmap_words: u64,
    first: u64,
    places: u64,
    /// 2^32 by the bytes of an object, rounded up: the quotient of less than 2^19 is exact.
    reciprocal: u64,
}

const INSIDE: [Inside; CLASSES] = insides();

const fn insides() -> [Inside; CLASSES] {
    let none = Inside {
        bitmap_words: 0,
        first: 0,
        places: 0,
        reciprocal: 0,
    };
    let mut all = [none; CLASSES];
    let mut class = 0;
    while class < CLASSES {
        let bytes = CLASS_BYTES[class];
        let all_bytes = class_chunks(class) * CHUNK_BYTES;
        let bitmap_words = (all_bytes / bytes).div_ceil(64);
        let first = (bitmap_words * 16).next_multiple_of(LINE_BYTES);
        all[class] = Inside {
            bitmap_words,
            first,
            places: (all_bytes - first) / bytes,
            reciprocal: (1u64 << 32).div_ceil(bytes),
        };
        class += 1;
    }
    all
}

/// Bytes of a chunk's line in the volatile area.
pub const CHUNK_LINE_BYTES: u64 = 64;
/// In it: the owner of the chunk's lock.
pub const OWNER_OFFSET: u64 = 0;
/// In it: the last record that changed the chunk, lane (12 bits) above stamp (52 bits).
pub const PENDING_OFFSET: u64 = 8;
/// In it: whose the chunk is. 0: nobody's, and it may be taken if it is free or one of objects.
/// [`USE_RUN`]: it is part of an allocated run. Otherwise a lane, plus one, whose transaction has
/// reserved the chunk or takes places from it.
pub const USE_OFFSET: u64 = 16;
/// In it: odd while the chunk is being changed in place.
pub const SEQUENCE_OFFSET: u64 = 24;
/// In it: 1 once the chunk's second bitmap means something.
pub const BITMAP_OFFSET: u64 = 32;
/// In it: two words of the engine that owns the run of which this is the first chunk; 0 before it
/// has looked at the run.
pub const ENGINE_OFFSET: u64 = 40;

/// In it: 1 if the file may have a hole where the chunk is. The chunk gets space when it is taken,
/// before the first store.
pub const HOLE_OFFSET: u64 = 56;
/// [`USE_OFFSET`]: a run has it.
pub const USE_RUN: u64 = u64::MAX;

const _: () = assert!(CLASS_BYTES[7] == 128 && CLASS_BYTES[8] == 160 && CLASS_BYTES[31] == 8192);
const _: () = assert!(SHARED_MAX == 174_736 && class_chunks(CLASSES - 1) == CLASS_CHUNKS_MAX);
const _: () = assert!(GROUP_CHUNKS * ENTRY_BYTES + 16 == GROUP_BYTES);
const _: () = assert!(places(0) == 4032 && places(31) == 7);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_fit_into_a_chunk() {
        for (class, bytes) in CLASS_BYTES.into_iter().enumerate() {
            assert!(bytes.is_multiple_of(PLACE_BYTES));
            let all = class_chunks(class) * CHUNK_BYTES;
            assert!(first_place(class) + places(class) * bytes <= all);
            assert!(places(class) <= bitmap_words(class) * 64);
            assert!(class < 1 || bytes > CLASS_BYTES[class - 1]);
            if class >= SMALL {
                assert_eq!(places(class), LARGE[class - SMALL].1);
                assert_eq!((first_place(class), bitmap_words(class)), (LINE_BYTES, 1));
            }
        }
    }

    /// Goal: a place is found by a multiplication as by a division. Method: every byte of the
    /// chunks of each class, and some behind them.
    #[test]
    fn places_are_found() {
        for (class, bytes) in CLASS_BYTES.into_iter().enumerate() {
            let end = (class_chunks(class) + 1) * CHUNK_BYTES;
            for within in (0..end).chain([u64::MAX - 1, u64::MAX, 1 << 32, 1 << 48]) {
                let expected = within
                    .checked_sub(first_place(class))
                    .filter(|after| after % bytes == 0 && after / bytes < places(class))
                    .map(|after| after / bytes);
                assert_eq!(place_at(class, within), expected, "{class}: {within}");
            }
        }
    }

    /// The internal waste of any size is bounded.
    #[test]
    fn an_object_is_at_most_a_fifth_too_large_or_a_quarter() {
        for size in 64..=64 * CHUNK_BYTES {
            let whole = size.div_ceil(CHUNK_BYTES) * CHUNK_BYTES;
            let given = class_of(size).map_or(whole, |class| CLASS_BYTES[class]);
            let part = if size <= 8192 { 5 } else { 4 };
            assert!((given - size) * part <= given, "{size} in {given}");
        }
    }
}
