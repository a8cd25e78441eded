//! The shape of an engine: how its index and its record chunks are cut. It never changes.

use pmlib_format::kv::{INDEX_GROUPS_MAX, INDEX_LINES_MAX, KIND_HASH, KV_VERSION};

use crate::engine::Cut;
use crate::key::KeyHash;

/// How an index chunk and a record chunk are cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Groups of an index chunk, 1 to 16.
    pub groups: u64,
    /// Bucket lines of a group.
    pub lines: u64,
    /// Lines of a group for keys whose buckets are full; 63 with the bucket lines at most.
    pub stash: u64,
    /// log2 of the most places of a record chunk.
    pub places_log2: u64,
}

impl Default for Shape {
    fn default() -> Shape {
        Shape {
            groups: INDEX_GROUPS_MAX,
            lines: 61,
            stash: 2,
            places_log2: 10,
        }
    }
}

impl Cut for Shape {
    fn word(&self) -> u64 {
        KV_VERSION
            | KIND_HASH << 16
            | self.groups << 24
            | self.lines << 32
            | self.stash << 40
            | self.places_log2 << 48
    }

    fn of(word: u64) -> Option<Shape> {
        let byte = |at: u32| word >> at & 0xff;
        let shape = Shape {
            groups: byte(24),
            lines: byte(32),
            stash: byte(40),
            places_log2: byte(48),
        };
        (shape.is_possible() && shape.word() == word).then_some(shape)
    }

    fn is_possible(&self) -> bool {
        (1..=INDEX_GROUPS_MAX).contains(&self.groups)
            && self.lines > 0
            && self.lines <= INDEX_LINES_MAX
            && self.lines + self.stash <= INDEX_LINES_MAX
            && self.places_log2 <= 10
    }

    fn places_log2(&self) -> u64 {
        self.places_log2
    }

    #[inline]
    fn lines(&self) -> u64 {
        self.lines + self.stash
    }

    #[inline]
    fn own_lines(&self, hash: KeyHash) -> [u64; 2] {
        hash.lines(self.lines)
    }

    #[inline]
    fn other_lines(&self, _: KeyHash) -> impl Iterator<Item = u64> + use<> {
        self.lines + 1..=self.lines()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes_come_back_and_others_are_refused() {
        let small = Shape {
            groups: 1,
            lines: 2,
            stash: 1,
            places_log2: 3,
        };
        for shape in [Shape::default(), small] {
            assert_eq!(Shape::of(shape.word()), Some(shape));
            for bit in 0..64 {
                let other = Shape::of(shape.word() ^ 1 << bit);
                assert_ne!(other, Some(shape));
            }
        }
        assert_eq!(Shape::of(0), None);
        assert_eq!(Shape::of(u64::MAX), None);
    }
}
