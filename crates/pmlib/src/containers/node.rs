//! The nodes of a tree.
//!
//! A node has room for a number of entries. They stand in any order; bytes in its first line say in
//! which order their keys are. So one entry more or less changes these bytes and the entry, and
//! moves no other.

use std::cmp::Ordering;

use pmlib_format::container::{
    TREE_LEVELS_MAX, TREE_SLOTS_MAX, TREE_SLOTS_MIN, TreeNodeRaw, TreeRaw,
};
use zerocopy::{FromBytes, FromZeros, IntoBytes};

use crate::containers::damaged;
use crate::containers::key::Key;
use crate::error::{Error, Result, inside};
use crate::pointer::RawP;
use crate::safe::PmSafe;
use crate::tx::Tx;
use crate::typed::{is_given_for, read_one};
use crate::view::View;

pub(super) const HEAD: &str = "a tree's head";
pub(super) const NODE: &str = "a tree's node";
const NODE_HEAD_BYTES: u64 = size_of::<TreeNodeRaw>() as u64;
/// Sizes of nodes, of which the first with room for enough entries is taken.
const NODE_BYTES: [u64; 5] = [512, 1024, 2048, 4096, 8192];
/// Entries that are enough.
const ENOUGH: u64 = 12;

/// Bytes of a key in an entry.
pub(super) const fn key_bytes<K>() -> u64 {
    const { assert!(size_of::<K>() > 0, "a key has bytes") };
    (size_of::<K>() as u64).next_multiple_of(8)
}

/// The room in nodes of one level.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shape {
    /// Entries.
    pub slots: usize,
    /// Bytes of one.
    pub each: u64,
}

impl Shape {
    /// The shape of leaves (`level` 0) or of other nodes.
    pub fn of<K, V>(raw: &TreeRaw, level: u32) -> Shape {
        let rest = match level {
            0 => (size_of::<V>() as u64).next_multiple_of(8),
            _ => 8,
        };
        let each = key_bytes::<K>() + rest;
        let slots = match raw.slots {
            0 => slots(each),
            slots => slots as usize,
        };
        Shape { slots, each }
    }

    pub fn node_bytes(&self) -> u64 {
        NODE_HEAD_BYTES + self.slots as u64 * self.each
    }

    /// Fewer entries than these are joined with a neighbour's.
    pub fn least(&self) -> usize {
        (self.slots / 4).max(1)
    }
}

/// Entries of so many bytes that a node has room for.
fn slots(each: u64) -> usize {
    let room = |bytes: u64| (bytes - NODE_HEAD_BYTES) / each;
    let enough = NODE_BYTES
        .into_iter()
        .map(room)
        .find(|&room| room >= ENOUGH);
    let count = enough.unwrap_or(room(NODE_BYTES[NODE_BYTES.len() - 1]));
    (count as usize).clamp(TREE_SLOTS_MIN, TREE_SLOTS_MAX)
}

/// Tests a head's numbers; `at`: its place.
pub(super) fn test_head(view: &View<'_>, raw: &TreeRaw, at: RawP) -> Result<()> {
    let is_empty = [raw.root == 0, raw.len == 0, raw.levels == 0];
    let slots = TREE_SLOTS_MIN as u32..=TREE_SLOTS_MAX as u32;
    let can_be = (is_empty == [true; 3] || is_empty == [false; 3])
        && raw.levels <= TREE_LEVELS_MAX
        && (raw.slots == 0 || slots.contains(&raw.slots))
        && view.core().has_room_for(raw.len.saturating_mul(8));
    if can_be { Ok(()) } else { damaged(HEAD, at) }
}

/// A node's head, which can be one.
#[derive(Clone, Debug)]
pub(super) struct Node {
    pub offset: u64,
    pub shape: Shape,
    raw: TreeNodeRaw,
}

impl Node {
    /// The node at an offset that stands at or behind `named_at`.
    pub fn read(
        view: &View<'_>,
        offset: u64,
        shape: Shape,
        level: u32,
        named_at: u64,
    ) -> Result<Node> {
        let size = inside(view.size_of(offset), NODE, named_at)?;
        if !is_given_for(shape.node_bytes(), size) {
            return damaged(NODE, RawP(named_at));
        }
        let bytes: [u8; NODE_HEAD_BYTES as usize] = read_one(|to| view.read_bytes(offset, 0, to))?;
        let raw = TreeNodeRaw::read_from_bytes(&bytes).map_err(|_| Error::Broken)?;
        let count = usize::from(raw.count);
        let mut taken = 0u32;
        let mut can_be = count <= shape.slots && u32::from(raw.level) == level;
        for &slot in raw.order.iter().take(count) {
            can_be &= usize::from(slot) < shape.slots && taken >> slot & 1 == 0;
            taken |= 1 << (slot % 32);
        }
        if !can_be || (level > 0) != (raw.first != 0) {
            return damaged(NODE, RawP(offset));
        }
        Ok(Node { offset, shape, raw })
    }

    /// Makes one without entries.
    pub fn make(tx: &mut Tx<'_>, shape: Shape, level: u32, first: u64) -> Result<Node> {
        let offset = tx.alloc(shape.node_bytes())?;
        let raw = TreeNodeRaw {
            level: level as u8,
            first,
            ..TreeNodeRaw::new_zeroed()
        };
        Ok(Node { offset, shape, raw })
    }

    /// Has the heap know of its entries' order, and of its first child.
    pub fn write(&self, tx: &mut Tx<'_>) -> Result<()> {
        let copy = inside(
            tx.edit_bytes(self.offset, 0, NODE_HEAD_BYTES),
            NODE,
            self.offset,
        )?;
        copy.copy_from_slice(self.raw.as_bytes());
        Ok(())
    }

    pub fn count(&self) -> usize {
        usize::from(self.raw.count)
    }

    pub fn level(&self) -> u32 {
        self.raw.level.into()
    }

    pub fn is_full(&self) -> bool {
        self.count() >= self.shape.slots
    }

    /// Where the entry at a place of the order is in the node.
    fn start(&self, nth: usize) -> u64 {
        NODE_HEAD_BYTES + u64::from(self.raw.order[nth]) * self.shape.each
    }

    /// Where its key is.
    pub fn key_at(&self, nth: usize) -> RawP {
        RawP(self.offset + self.start(nth))
    }

    /// A key as it stands.
    pub fn key<K: Key>(&self, view: &View<'_>, nth: usize) -> Result<K> {
        let key = read_one(|to| view.read_bytes(self.offset, self.start(nth), to));
        inside(key, NODE, self.offset)
    }

    /// A key as calls know it.
    pub fn read_key<K: Key>(&self, view: &View<'_>, nth: usize) -> Result<K::Read> {
        self.key::<K>(view, nth)?.read(view, self.key_at(nth))
    }

    /// The order of a key, and a name.
    fn order<K: Key>(&self, view: &View<'_>, nth: usize, name: &K::Name) -> Result<Ordering> {
        self.key::<K>(view, nth)?
            .compare(view, self.key_at(nth), name)
    }

    /// How many keys are less than a name, and whether the next one is that key.
    pub fn search<K: Key>(&self, view: &View<'_>, name: &K::Name) -> Result<(usize, bool)> {
        let (mut first, mut end) = (0, self.count());
        while first < end {
            let middle = (first + end) / 2;
            match self.order::<K>(view, middle, name)? {
                Ordering::Less => first = middle + 1,
                Ordering::Equal => return Ok((middle, true)),
                Ordering::Greater => end = middle,
            }
        }
        Ok((first, false))
    }

    /// The offset of a child: `nth` of the keys are at most its own.
    pub fn child<K: Key>(&self, view: &View<'_>, nth: usize) -> Result<u64> {
        let Some(entry) = nth.checked_sub(1) else {
            return Ok(self.raw.first);
        };
        let start = self.start(entry) + key_bytes::<K>();
        let word = read_one(|to| view.read_bytes(self.offset, start, to));
        inside(word, NODE, self.offset)
    }

    pub fn value<K: Key, V: PmSafe>(&self, view: &View<'_>, nth: usize) -> Result<V> {
        let start = self.start(nth) + key_bytes::<K>();
        let value = read_one(|to| view.read_bytes(self.offset, start, to));
        inside(value, NODE, self.offset)
    }

    pub fn set_value<K: Key, V: PmSafe>(
        &self,
        tx: &mut Tx<'_>,
        nth: usize,
        value: &V,
    ) -> Result<()> {
        let (start, bytes) = (self.start(nth) + key_bytes::<K>(), value.as_bytes());
        if bytes.is_empty() {
            return Ok(());
        }
        let copy = tx.edit_bytes(self.offset, start, bytes.len() as u64);
        inside(copy, NODE, self.offset)?.copy_from_slice(bytes);
        Ok(())
    }

    /// The bytes of an entry.
    pub fn entry(&self, view: &View<'_>, nth: usize) -> Result<Vec<u8>> {
        let mut bytes = vec![0; self.shape.each as usize];
        let read = view.read_bytes(self.offset, self.start(nth), &mut bytes);
        inside(read, NODE, self.offset)?;
        Ok(bytes)
    }

    /// Has the key of an entry be another one.
    pub fn set_key<K: Key>(&self, tx: &mut Tx<'_>, nth: usize, key: &K) -> Result<()> {
        let bytes = key.as_bytes();
        let copy = tx.edit_bytes(self.offset, self.start(nth), bytes.len() as u64);
        inside(copy, NODE, self.offset)?.copy_from_slice(bytes);
        Ok(())
    }

    /// Puts an entry in, of a node that is not full. The order is not written.
    pub fn put(&mut self, tx: &mut Tx<'_>, nth: usize, entry: &[u8]) -> Result<()> {
        let count = self.count();
        let taken = &self.raw.order[..count];
        let free = (0..self.shape.slots as u8).find(|slot| !taken.contains(slot));
        let (Some(slot), true) = (free, nth <= count && !self.is_full()) else {
            return damaged(NODE, RawP(self.offset));
        };
        self.raw.order.copy_within(nth..count, nth + 1);
        self.raw.order[nth] = slot;
        self.raw.count += 1;
        let copy = tx.edit_bytes(self.offset, self.start(nth), self.shape.each);
        inside(copy, NODE, self.offset)?.copy_from_slice(entry);
        Ok(())
    }

    /// Takes an entry, which is there, out of the order. The order is not written.
    pub fn take(&mut self, nth: usize) {
        let count = self.count();
        self.raw.order.copy_within(nth + 1..count, nth);
        self.raw.order[count - 1] = 0;
        self.raw.count -= 1;
    }

    /// Forgets the entries from `count` on. The order is not written.
    pub fn truncate(&mut self, count: usize) {
        self.raw.order[count..].fill(0);
        self.raw.count = count as u8;
    }

    pub fn set_first(&mut self, first: u64) {
        self.raw.first = first;
    }
}

/// An entry of a key and what follows it.
pub(super) fn entry_of<K: Key>(key: &K, rest: &[u8], each: u64) -> Vec<u8> {
    let mut bytes = vec![0; each as usize];
    let (first, after) = bytes.split_at_mut(key_bytes::<K>() as usize);
    first[..size_of::<K>()].copy_from_slice(key.as_bytes());
    after[..rest.len()].copy_from_slice(rest);
    bytes
}

/// The key of an entry.
pub(super) fn key_of<K: Key>(entry: &[u8]) -> Result<K> {
    K::read_from_bytes(&entry[..size_of::<K>()]).map_err(|_| Error::Broken)
}

/// The child of an entry of a node above the leaves.
pub(super) fn child_of<K: Key>(entry: &[u8]) -> Result<u64> {
    let start = key_bytes::<K>() as usize;
    u64::read_from_bytes(&entry[start..start + 8]).map_err(|_| Error::Broken)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_have_room_for_enough() {
        for (each, expected) in [(8, 30), (16, 29), (24, 19), (32, 14), (40, 24), (640, 12)] {
            assert_eq!(slots(each), expected, "{each}");
        }
        assert_eq!((slots(1000), slots(2000), slots(1 << 20)), (8, 4, 4));
    }
}
