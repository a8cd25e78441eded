//! Where a key belongs: parts of its hash.

use pmlib_format::CHUNK_BYTES;
use pmlib_format::kv::{INDEX_GROUP_BYTES, SLOT_HASH_SHIFT};
use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::shape::Shape;

/// A key that is looked for.
#[derive(Clone, Copy, Debug)]
pub struct Key<'k> {
    pub(crate) bytes: &'k [u8],
    pub(crate) hash: KeyHash,
}

impl<'k> Key<'k> {
    #[inline]
    pub(crate) fn of(bytes: &'k [u8], seed: u64) -> Key<'k> {
        let hash = KeyHash::of(bytes, seed);
        Key { bytes, hash }
    }
}

/// A key's hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyHash(pub(crate) u64);

impl KeyHash {
    #[inline]
    pub(crate) fn of(key: &[u8], seed: u64) -> KeyHash {
        KeyHash(xxh3_64_with_seed(key, seed))
    }

    /// The bits that a slot has.
    #[inline]
    pub(crate) fn in_slot(self) -> u64 {
        self.0 >> SLOT_HASH_SHIFT
    }

    /// The upper bits.
    #[inline]
    pub(crate) fn prefix(self, bits: u32) -> u64 {
        if bits == 0 { 0 } else { self.0 >> (64 - bits) }
    }

    #[inline]
    pub(crate) fn group(self, shape: &Shape) -> u64 {
        ((self.0 >> 32 & 0xfff) * shape.groups) >> 12
    }

    /// Its own two of so many lines, from 1 on.
    #[inline]
    pub(crate) fn lines(self, lines: u64) -> [u64; 2] {
        let first = ((self.0 & 0xffff) * lines) >> 16;
        let second = ((self.0 >> 16 & 0xffff) * lines) >> 16;
        // Two that are the same would be one bucket.
        let second = match second == first {
            true if first + 1 == lines => 0,
            true => first + 1,
            false => second,
        };
        [first + 1, second + 1]
    }
}

/// Where a line of a group is.
#[inline]
pub(crate) fn line_at(chunk: u64, group: u64, line: u64) -> u64 {
    chunk * CHUNK_BYTES + group * INDEX_GROUP_BYTES + line * 64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_inside() {
        let small = Shape {
            groups: 1,
            lines: 1,
            stash: 1,
            places_log2: 3,
        };
        for shape in [Shape::default(), small] {
            for key in 0..10_000u64 {
                let hash = KeyHash::of(&key.to_le_bytes(), 7);
                assert!(hash.group(&shape) < shape.groups);
                let [first, second] = hash.lines(shape.lines);
                assert!((1..=shape.lines).contains(&first));
                assert!((1..=shape.lines).contains(&second));
                assert!(shape.lines == 1 || first != second);
                assert!(hash.prefix(17) < 1 << 17 && hash.prefix(0) == 0);
                assert_eq!(hash.prefix(20), hash.in_slot());
            }
        }
    }
}
