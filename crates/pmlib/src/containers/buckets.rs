//! The buckets of a map: words that are never moved, as many as there is need of.
//!
//! The first ones are in segments that double, to which the head leads. Further ones are the leaves
//! of a tree of nodes of one size. It gets a level when it is full. So one more bucket takes a few
//! nodes at most, whatever the map's size.
//!
//! **Linear hashing.** Of `n` buckets those below `n - 2^l` and those from `2^l` on are told apart
//! by `l + 1` bits of the hash, the others by `l`. One more bucket takes the second half of
//! one's chain, and no other is touched. Bits are taken from the hash's highest end, so that the
//! buckets, in the order of their bits turned round, hold the hashes in ascending order.

use pmlib_format::chunk::PLACE_BYTES;
use pmlib_format::container::{MAP_BUCKETS_MAX, MAP_FIRST, MAP_NEAR, MAP_NODE_WORDS, MapRaw};

use crate::containers::damaged;
use crate::error::{Result, inside};
use crate::pointer::RawP;
use crate::tx::Tx;
use crate::typed::read_one;
use crate::view::View;

pub(super) const HEAD: &str = "a map's head";
const BUCKETS: &str = "a map's buckets";
/// Buckets to which the head leads without the tree.
const NEAR_BUCKETS: u64 = MAP_FIRST * ((1 << MAP_NEAR) - 1);
const NODE_BYTES: u64 = MAP_NODE_WORDS * 8;

/// Where a word is: an object, and bytes in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Word {
    pub object: u64,
    pub start: u64,
}

impl Word {
    /// The word as it is seen. `what` is damaged if there is none.
    pub fn get(&self, view: &View<'_>, what: &'static str) -> Result<u64> {
        let word = read_one(|to| view.read_bytes(self.object, self.start, to));
        inside(word, what, self.object)
    }

    pub fn set(&self, tx: &mut Tx<'_>, value: u64, what: &'static str) -> Result<()> {
        let copy = inside(tx.edit_bytes(self.object, self.start, 8), what, self.object)?;
        copy.copy_from_slice(&value.to_le_bytes());
        Ok(())
    }
}

/// The hashes of a bucket: those that begin with these bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Share {
    pub index: u64,
    bits: u32,
}

impl Share {
    /// The bucket of a hash, among so many, of which there are some.
    pub fn of(hash: u64, buckets: u64) -> Share {
        let level = buckets.max(1).ilog2();
        let number = hash.reverse_bits();
        let low = number & ((1 << level) - 1);
        if low < buckets - (1 << level) {
            let index = number & ((2 << level) - 1);
            return Share {
                index,
                bits: level + 1,
            };
        }
        Share {
            index: low,
            bits: level,
        }
    }

    /// A bucket of so many.
    pub fn nth(index: u64, buckets: u64) -> Share {
        // The hash with the bucket's bits and no others is one of its own.
        Share::of(index.reverse_bits(), buckets)
    }

    /// Whether it has this hash.
    pub fn has(&self, hash: u64) -> bool {
        let mask = (1 << self.bits) - 1;
        hash.reverse_bits() & mask == self.index
    }

    /// The least hash after all of its own; `None`: it has the last ones.
    pub fn end(&self) -> Option<u64> {
        let first = self.index.reverse_bits();
        match self.bits {
            0 => None,
            bits => first.checked_add(1 << (64 - bits)),
        }
    }
}

/// The bucket whose chain is cut to make one more, or joined with the last one, and the bit of
/// hashes that tells the two apart. `buckets` are there beside the other one.
pub(super) fn halves(buckets: u64) -> (u64, u64) {
    let level = buckets.max(1).ilog2();
    (buckets - (1 << level), 1 << (63 - level))
}

/// Levels of the tree that has so many buckets beyond those near.
fn levels(buckets: u64) -> u32 {
    let (mut levels, mut room) = (0, 1);
    let far = buckets.saturating_sub(NEAR_BUCKETS);
    if far == 0 {
        return 0;
    }
    while levels == 0 || room < far {
        levels += 1;
        room *= MAP_NODE_WORDS;
    }
    levels
}

/// The word of a node at a level above the leaves that leads to a far bucket.
fn digit(far: u64, level: u32) -> u64 {
    far / MAP_NODE_WORDS.pow(level) % MAP_NODE_WORDS
}

/// The segment of a near bucket, and where in it.
fn locate(index: u64) -> (usize, u64) {
    let segment = (index / MAP_FIRST + 1).ilog2();
    (segment as usize, index - MAP_FIRST * ((1 << segment) - 1))
}

/// Tests a head's numbers; `at`: its place. Nobody goes through more buckets and entries than there
/// is room for in the heap.
pub(super) fn test(view: &View<'_>, raw: &MapRaw, at: RawP) -> Result<()> {
    let fits = |count: u64, each: u64| view.core().has_room_for(count.saturating_mul(each));
    let can_be = match raw.buckets {
        0 => raw.len == 0,
        buckets => {
            (MAP_FIRST..=MAP_BUCKETS_MAX).contains(&buckets)
                && fits(buckets, 8)
                && fits(raw.len, PLACE_BYTES)
        }
    };
    if can_be { Ok(()) } else { damaged(HEAD, at) }
}

/// Where the word of a bucket is, which is there.
pub(super) fn word_of(view: &View<'_>, raw: &MapRaw, at: RawP, index: u64) -> Result<Word> {
    if index < NEAR_BUCKETS {
        let (segment, within) = locate(index);
        let object = raw.near[segment];
        let size = inside(view.size_of(object), HEAD, at.0)?;
        if size < (MAP_FIRST << segment) * 8 {
            return damaged(HEAD, at);
        }
        let start = within * 8;
        return Ok(Word { object, start });
    }
    let far = index - NEAR_BUCKETS;
    let mut node = node(view, raw.far, at.0)?;
    for level in (1..levels(raw.buckets)).rev() {
        let start = digit(far, level) * 8;
        let object = node;
        let next = Word { object, start }.get(view, BUCKETS)?;
        node = self::node(view, next, object)?;
    }
    let start = digit(far, 0) * 8;
    Ok(Word {
        object: node,
        start,
    })
}

/// A node of the tree, named at or behind `named_at`.
fn node(view: &View<'_>, offset: u64, named_at: u64) -> Result<u64> {
    let size = inside(view.size_of(offset), BUCKETS, named_at)?;
    if size != NODE_BYTES {
        return damaged(BUCKETS, RawP(named_at));
    }
    Ok(offset)
}

/// Whether one more bucket needs an object.
pub(super) fn needs_room(raw: &MapRaw) -> bool {
    match raw.buckets.checked_sub(NEAR_BUCKETS) {
        None => locate(raw.buckets).1 == 0,
        Some(far) => far.is_multiple_of(MAP_NODE_WORDS),
    }
}

/// Makes room for one more bucket, which is empty, and counts it. The head is not written.
pub(super) fn add(tx: &mut Tx<'_>, raw: &mut MapRaw, at: RawP) -> Result<()> {
    if raw.buckets == 0 {
        raw.near[0] = tx.alloc(MAP_FIRST * 8)?;
        raw.buckets = MAP_FIRST;
        return Ok(());
    }
    let index = raw.buckets;
    if index < NEAR_BUCKETS {
        let (segment, within) = locate(index);
        if within == 0 {
            raw.near[segment] = tx.alloc((MAP_FIRST << segment) * 8)?;
        }
    } else {
        add_far(tx, raw, index)?;
    }
    raw.buckets = index + 1;
    let word = word_of(&View::within(tx), raw, at, index)?;
    // Given to nobody: it was zero when its node was made, and when a bucket was taken away.
    if word.get(&View::within(tx), BUCKETS)? != 0 {
        return damaged(BUCKETS, RawP(word.object));
    }
    Ok(())
}

/// Makes the nodes that the bucket after all others needs.
fn add_far(tx: &mut Tx<'_>, raw: &mut MapRaw, index: u64) -> Result<()> {
    let far = index - NEAR_BUCKETS;
    let (before, after) = (levels(index), levels(index + 1));
    if after > before {
        let object = tx.alloc(NODE_BYTES)?;
        if before > 0 {
            Word { object, start: 0 }.set(tx, raw.far, BUCKETS)?;
        }
        raw.far = object;
    }
    let mut node = raw.far;
    for level in (1..after).rev() {
        let start = digit(far, level) * 8;
        let word = Word {
            object: node,
            start,
        };
        // The first bucket below a node makes it.
        if far.is_multiple_of(MAP_NODE_WORDS.pow(level)) {
            node = tx.alloc(NODE_BYTES)?;
            word.set(tx, node, BUCKETS)?;
        } else {
            let next = word.get(&View::within(tx), BUCKETS)?;
            node = self::node(&View::within(tx), next, word.object)?;
        }
    }
    Ok(())
}

/// The objects of which a bucket is the first: segments and nodes.
pub(super) fn begun_by(view: &View<'_>, raw: &MapRaw, at: RawP, index: u64) -> Result<Vec<u64>> {
    let mut begun = Vec::new();
    if index < NEAR_BUCKETS {
        let (segment, within) = locate(index);
        if within == 0 {
            begun.push(raw.near[segment]);
        }
        return Ok(begun);
    }
    let far = index - NEAR_BUCKETS;
    let mut object = node(view, raw.far, at.0)?;
    if far == 0 {
        begun.push(object);
    }
    for level in (1..levels(raw.buckets)).rev() {
        let start = digit(far, level) * 8;
        let next = Word { object, start }.get(view, BUCKETS)?;
        object = node(view, next, object)?;
        if far.is_multiple_of(MAP_NODE_WORDS.pow(level)) {
            begun.push(object);
        }
    }
    Ok(begun)
}

/// Takes the last bucket away, whose word is zero, and gives back what it alone needed. The head is
/// not written.
pub(super) fn remove(tx: &mut Tx<'_>, raw: &mut MapRaw, at: RawP) -> Result<()> {
    let index = raw.buckets - 1;
    let mut freed = begun_by(&View::within(tx), raw, at, index)?;
    let (before, after) = (levels(index + 1), levels(index));
    if index < NEAR_BUCKETS {
        if !freed.is_empty() {
            raw.near[locate(index).0] = 0;
        }
    } else if after < before {
        let object = raw.far;
        raw.far = 0;
        if after > 0 {
            raw.far = Word { object, start: 0 }.get(&View::within(tx), BUCKETS)?;
            freed.push(object);
        }
    }
    for offset in freed {
        inside(tx.free(offset), BUCKETS, at.0)?;
    }
    raw.buckets = index;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: each hash has one bucket, at any number of buckets, and one more bucket takes hashes
    /// from one other alone.
    #[test]
    fn a_bucket_more_moves_half_of_one() {
        let mut hash = 0u64;
        let hashes: Vec<u64> = std::iter::repeat_with(|| {
            hash = hash.wrapping_add(0x9e37_79b9_7f4a_7c15);
            hash
        })
        .take(500)
        .chain([0, u64::MAX, 1 << 63, (1 << 63) - 1])
        .collect();
        for buckets in MAP_FIRST..300 {
            let (source, bit) = halves(buckets);
            for &hash in &hashes {
                let (old, new) = (Share::of(hash, buckets), Share::of(hash, buckets + 1));
                assert!(old.has(hash) && new.has(hash) && old.index < buckets);
                assert_eq!(Share::nth(old.index, buckets), old);
                let moves = old.index == source && hash & bit != 0;
                assert_eq!(new.index, if moves { buckets } else { old.index });
            }
        }
    }

    /// Goal: the buckets one after the other have all hashes, in ascending order.
    #[test]
    fn buckets_end_where_others_begin() {
        for buckets in MAP_FIRST..200 {
            let (mut hash, mut seen) = (Some(0), Vec::new());
            while let Some(start) = hash {
                let share = Share::of(start, buckets);
                assert!(share.has(start));
                assert!(share.end().is_none_or(|end| end > start && !share.has(end)));
                assert!(share.has(share.end().unwrap_or(0).wrapping_sub(1)));
                seen.push(share.index);
                hash = share.end();
            }
            seen.sort_unstable();
            assert_eq!(seen, (0..buckets).collect::<Vec<_>>());
        }
    }

    #[test]
    fn the_tree_is_as_high_as_it_must_be() {
        let far = |far: u64| levels(NEAR_BUCKETS + far);
        assert_eq!((levels(MAP_FIRST), far(0), far(1), far(512)), (0, 0, 1, 1));
        assert_eq!((far(513), far(512 * 512), far(512 * 512 + 1)), (2, 2, 3));
        assert_eq!(levels(MAP_BUCKETS_MAX), 5);
        assert_eq!(locate(NEAR_BUCKETS - 1), (MAP_NEAR - 1, 127));
        assert_eq!((locate(7), locate(8)), ((0, 7), (1, 0)));
    }
}
