//! How the chunks of a tree are cut. The cut never changes.

use pmlib_format::kv::{INDEX_GROUPS_MAX, INDEX_LINES_MAX, KIND_TREE, KV_VERSION};

use crate::engine::Cut;
use crate::key::{KeyHash, line_at};

/// How an index chunk of a tree and a record chunk are cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TreeShape {
    /// Groups of an index chunk, 1 to 16.
    pub groups: u64,
    /// Leaves of a group.
    pub leaves: u64,
    /// Lines of slots of a leaf; it has one line more.
    pub lines: u64,
    /// log2 of the most places of a record chunk.
    pub places_log2: u64,
}

impl Default for TreeShape {
    fn default() -> TreeShape {
        TreeShape {
            groups: INDEX_GROUPS_MAX,
            leaves: 7,
            lines: 8,
            places_log2: 10,
        }
    }
}

impl TreeShape {
    /// Leaves of a chunk.
    pub(crate) fn all_leaves(&self) -> u64 {
        self.groups * self.leaves
    }

    /// The group of a leaf.
    #[inline]
    pub(crate) fn group_of(&self, leaf: u64) -> u64 {
        leaf / self.leaves
    }

    /// Where a leaf begins.
    #[inline]
    pub(crate) fn leaf_at(&self, chunk: u64, leaf: u64) -> u64 {
        let (group, nth) = (leaf / self.leaves, leaf % self.leaves);
        line_at(chunk, group, 1 + nth * (1 + self.lines))
    }
}

impl Cut for TreeShape {
    fn word(&self) -> u64 {
        KV_VERSION
            | KIND_TREE << 16
            | self.groups << 24
            | self.lines << 32
            | self.leaves << 40
            | self.places_log2 << 48
    }

    fn of(word: u64) -> Option<TreeShape> {
        let byte = |at: u32| word >> at & 0xff;
        let shape = TreeShape {
            groups: byte(24),
            lines: byte(32),
            leaves: byte(40),
            places_log2: byte(48),
        };
        (shape.is_possible() && shape.word() == word).then_some(shape)
    }

    fn is_possible(&self) -> bool {
        // A chunk of one leaf could not be split.
        (1..=INDEX_GROUPS_MAX).contains(&self.groups)
            && self.lines > 0
            && self.lines < INDEX_LINES_MAX
            && self.leaves <= INDEX_LINES_MAX
            && self.all_leaves() > 1
            && self.leaves * (1 + self.lines) <= INDEX_LINES_MAX
            && self.places_log2 <= 10
    }

    fn places_log2(&self) -> u64 {
        self.places_log2
    }

    #[inline]
    fn lines(&self) -> u64 {
        self.lines
    }

    #[inline]
    fn own_lines(&self, hash: KeyHash) -> [u64; 2] {
        hash.lines(self.lines)
    }

    #[inline]
    fn other_lines(&self, hash: KeyHash) -> impl Iterator<Item = u64> + use<> {
        let own = self.own_lines(hash);
        (1..=self.lines).filter(move |line| !own.contains(line))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shape::Shape;
    use pmlib_format::CHUNK_BYTES;

    #[test]
    fn shapes_come_back_and_others_are_refused() {
        let small = TreeShape {
            groups: 2,
            leaves: 1,
            lines: 1,
            places_log2: 3,
        };
        for shape in [TreeShape::default(), small] {
            assert_eq!(TreeShape::of(shape.word()), Some(shape));
            assert_eq!(Shape::of(shape.word()), None);
            for bit in 0..64 {
                let other = TreeShape::of(shape.word() ^ 1 << bit);
                assert_ne!(other, Some(shape));
            }
            let end = shape.leaf_at(1, shape.all_leaves() - 1) + (1 + shape.lines) * 64;
            assert!(end <= 2 * CHUNK_BYTES);
        }
        assert_eq!(TreeShape::of(Shape::default().word()), None);
        assert!(
            !TreeShape {
                leaves: 1,
                groups: 1,
                ..small
            }
            .is_possible()
        );
    }
}
