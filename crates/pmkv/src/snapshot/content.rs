//! The slots of an engine at one instant, and which of them may be a key's.

use crate::key::Key;
use crate::shape::Shape;
use crate::slot::{HASH_BITS, Slot, with_hash};
use crate::tree::MapShared;

/// The way to the part of a copy in which a key is: a group of a hash engine, a leaf of a tree.
pub trait Order: Send + Sync {
    /// The number of the part.
    fn part_of(&self, key: Key<'_>) -> usize;
    /// The number of the part to which the least keys from one on belong; parts before it have
    /// none of them.
    fn first_part(&self, key: Key<'_>) -> usize;
    /// Whether parts are in the order of their keys.
    fn is_sorted(&self) -> bool;
}

/// Slots, part by part, as a copy grows.
#[derive(Debug)]
pub struct Copied {
    slots: Vec<u64>,
    /// Where each part ends.
    ends: Vec<usize>,
}

impl Copied {
    /// A copy without slots, in memory that is there already.
    pub(crate) fn within(mut room: Vec<u64>) -> Copied {
        room.clear();
        Copied {
            slots: room,
            ends: Vec::new(),
        }
    }

    /// The slots of a line that readers see.
    #[inline]
    pub(crate) fn add_line(&mut self, words: [u64; 8]) {
        let seen = words.into_iter().filter(|&word| Slot(word).is_seen());
        self.slots.extend(seen);
    }

    /// The next slots are another part's.
    pub(crate) fn end_part(&mut self) {
        self.ends.push(self.slots.len());
    }

    pub(crate) fn parts(&self) -> usize {
        self.ends.len()
    }
}

/// The slots of an engine at one instant.
pub(crate) struct Content {
    copied: Copied,
    order: Box<dyn Order>,
    /// There may be records that expire.
    pub may_expire: bool,
}

impl Content {
    pub fn new(mut copied: Copied, order: Box<dyn Order>, may_expire: bool) -> Content {
        copied.slots.shrink_to_fit();
        Content {
            copied,
            order,
            may_expire,
        }
    }

    pub fn slots(&self) -> &[u64] {
        &self.copied.slots
    }

    pub fn parts(&self) -> usize {
        self.copied.parts()
    }

    pub fn is_sorted(&self) -> bool {
        self.order.is_sorted()
    }

    /// The slots of a part.
    pub fn part(&self, nth: usize) -> &[u64] {
        let before = nth
            .checked_sub(1)
            .map_or(0, |before| self.copied.ends[before]);
        &self.copied.slots[before..self.copied.ends[nth]]
    }

    /// The slots that may be a key's.
    pub fn slots_of(&self, key: Key<'_>) -> impl Iterator<Item = Slot> {
        let wanted = key.hash.in_slot();
        let (lines, rest) = self.part(self.order.part_of(key)).as_chunks::<8>();
        let mut last = [0; 8];
        last[..rest.len()].copy_from_slice(rest);
        lines.iter().copied().chain([last]).flat_map(move |line| {
            let bits = with_hash(&line, wanted);
            let is_one = move |&nth: &usize| bits >> nth & 1 == 1 && line[nth] != 0;
            (0..8).filter(is_one).map(move |nth| Slot(line[nth]))
        })
    }

    /// The parts in which keys from one on are, up to another one.
    pub fn parts_between(&self, from: Option<Key<'_>>, to: Option<Key<'_>>) -> (usize, usize) {
        let first = from.map_or(0, |key| self.order.first_part(key));
        let behind = match to {
            Some(key) if self.is_sorted() => self.order.part_of(key) + 1,
            _ => self.parts(),
        };
        (first, behind.max(first))
    }
}

/// The groups of a hash engine, by the first hash of each chunk.
#[derive(Debug)]
pub struct ByHashes {
    cut: Shape,
    /// The least bits of a slot's hash that a chunk has.
    firsts: Vec<u64>,
}

impl ByHashes {
    pub(crate) fn new(cut: Shape) -> ByHashes {
        let firsts = Vec::new();
        ByHashes { cut, firsts }
    }

    /// Another chunk, whose keys have these bits in common.
    pub(crate) fn add_chunk(&mut self, prefix: u64, depth: u32) {
        self.firsts.push(prefix << (HASH_BITS - depth));
    }
}

impl Order for ByHashes {
    fn part_of(&self, key: Key<'_>) -> usize {
        let hash = key.hash.in_slot();
        let behind = self.firsts.partition_point(|&first| first <= hash);
        let group = key.hash.group(&self.cut);
        behind.saturating_sub(1) * self.cut.groups as usize + group as usize
    }

    fn first_part(&self, _: Key<'_>) -> usize {
        0
    }

    fn is_sorted(&self) -> bool {
        false
    }
}

/// The leaves of a tree, by the maps of its chunks.
#[derive(Debug, Default)]
pub struct ByFences {
    maps: Vec<MapShared>,
    /// The number of each chunk's first leaf.
    firsts: Vec<usize>,
}

impl ByFences {
    /// Another chunk, whose first leaf has this number.
    pub(crate) fn add_chunk(&mut self, map: MapShared, first: usize) {
        self.maps.push(map);
        self.firsts.push(first);
    }
}

impl Order for ByFences {
    fn part_of(&self, key: Key<'_>) -> usize {
        let behind = self.maps.partition_point(|map| &map.low[..] <= key.bytes);
        let chunk = behind.saturating_sub(1);
        self.firsts[chunk] + self.maps[chunk].fences.up_to(key.bytes)
    }

    fn first_part(&self, key: Key<'_>) -> usize {
        self.part_of(key)
    }

    fn is_sorted(&self) -> bool {
        true
    }
}
