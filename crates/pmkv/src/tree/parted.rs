//! The keys of a full leaf, read to part it: most of what a split does.
//!
//! A leaf's keys are not sorted for it. The one with which the new leaf begins is selected, and the
//! greatest of those below it.

use std::cmp::Ordering;

use super::{Tree, Way, fences};
use crate::engine::Cut;
use crate::error::Result;
use crate::group::Located;
use crate::record;
use crate::slot::Slot;

/// Where the second line of a record's head and key is looked for, behind its place.
const NEXT: u64 = 48;

/// A slot of a leaf, and its record's key.
#[derive(Clone, Copy, Debug)]
pub(super) struct Keyed {
    /// Where the slot is.
    pub at: u64,
    pub slot: Slot,
    /// The first bytes of its key behind those that all keys have in common.
    head: u64,
    start: u32,
    len: u32,
}

/// The keys of a leaf, in no order. A process keeps one, so that a split asks for no memory.
#[derive(Debug, Default)]
pub(crate) struct Keys {
    slots: Vec<(u64, Slot)>,
    keyed: Vec<Keyed>,
    /// Slots whose keys can't be read.
    pub(super) damaged: Vec<(u64, Slot)>,
    bytes: Vec<u8>,
}

/// A leaf's keys in two parts.
pub(super) struct Parts<'k> {
    /// The greatest key that stays, and the least that does not.
    pub below: &'k [u8],
    pub next: &'k [u8],
    /// The slots that do not stay.
    pub moved: &'k [Keyed],
}

impl Keys {
    pub fn len(&self) -> usize {
        self.keyed.len()
    }

    fn clear(&mut self) {
        self.slots.clear();
        self.keyed.clear();
        self.damaged.clear();
        self.bytes.clear();
    }

    /// Whether a key of the leaf's range is above all.
    pub fn are_below(&self, key: &[u8], common: usize) -> bool {
        let head = fences::head_of(key.get(common..).unwrap_or_default());
        let is_below = |keyed: &Keyed| match keyed.head.cmp(&head) {
            Ordering::Equal => *bytes_of(&self.bytes, keyed) < *key,
            other => other.is_lt(),
        };
        self.keyed.iter().all(is_below)
    }

    /// Parts the keys so that so many stay below; `None`: all of them would, or none.
    pub fn part(&mut self, stay: usize) -> Option<Parts<'_>> {
        if stay == 0 || stay >= self.keyed.len() {
            return None;
        }
        let bytes = &self.bytes;
        let order = |one: &Keyed, other: &Keyed| match one.head.cmp(&other.head) {
            Ordering::Equal => bytes_of(bytes, one).cmp(bytes_of(bytes, other)),
            other => other,
        };
        self.keyed.select_nth_unstable_by(stay, order);
        let (below, moved) = self.keyed.split_at(stay);
        let greatest = below.iter().max_by(|one, other| order(one, other))?;
        Some(Parts {
            below: bytes_of(bytes, greatest),
            next: bytes_of(bytes, &moved[0]),
            moved,
        })
    }
}

fn bytes_of<'k>(bytes: &'k [u8], keyed: &Keyed) -> &'k [u8] {
    &bytes[keyed.start as usize..][..keyed.len as usize]
}

impl Tree<'_> {
    /// Reads the keys of a locked leaf that is settled, all of which have `common` bytes in common.
    pub(super) fn read_keys(
        &self,
        located: &Located<Way>,
        common: usize,
        keys: &mut Keys,
    ) -> Result<()> {
        let mem = self.ground.mem();
        keys.clear();
        for line in 1..=self.cut.lines() {
            let start = located.line(line);
            let words: [u64; 8] = mem.read(start);
            for (at, slot) in (start..).step_by(8).zip(words.map(Slot)) {
                if slot.is_seen() {
                    // All records are asked for before the first is waited for.
                    mem.prefetch_if_there(slot.place());
                    mem.prefetch_if_there(slot.place() + NEXT);
                    keys.slots.push((at, slot));
                }
            }
        }
        for &(at, slot) in &keys.slots {
            let start = keys.bytes.len();
            let at_place = (slot.place(), slot.instance());
            let is_there = record::append_key(self.ground, at_place, &mut keys.bytes)?;
            let key = &keys.bytes[start..];
            // A key of another hash would not be found, and be taken for one that is gone.
            if !is_there || self.key(key).hash.in_slot() != slot.hash() {
                keys.damaged.push((at, slot));
                continue;
            }
            keys.keyed.push(Keyed {
                at,
                slot,
                head: fences::head_of(key.get(common..).unwrap_or_default()),
                start: start as u32,
                len: key.len() as u32,
            });
        }
        Ok(())
    }
}
