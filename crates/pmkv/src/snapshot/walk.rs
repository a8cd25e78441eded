//! Walks over the keys of a snapshot, from either end.

use std::collections::VecDeque;
use std::iter::FusedIterator;
use std::ops::{Bound, Range, RangeBounds};

use super::Snapshot;
use crate::error::{Error, Result};
use crate::expiry::Expiry;
use crate::record;
use crate::slot::Slot;
use crate::store::Entry;

/// A key and its slot, whose value is read when it is come to.
type Named = Result<(Vec<u8>, Slot)>;

/// Keys of a snapshot and their values ([`Snapshot::iter`]).
pub struct SnapshotEntries<'s> {
    snapshot: &'s Snapshot<'s>,
    bounds: (Bound<Vec<u8>>, Bound<Vec<u8>>),
    /// Parts that were not read.
    parts: Range<usize>,
    front: VecDeque<Named>,
    back: VecDeque<Named>,
    is_over: bool,
}

fn key_of(bound: &Bound<Vec<u8>>) -> Option<&[u8]> {
    match bound {
        Bound::Included(key) | Bound::Excluded(key) => Some(key),
        Bound::Unbounded => None,
    }
}

impl<'s> SnapshotEntries<'s> {
    pub(super) fn of(
        snapshot: &'s Snapshot<'s>,
        start: Bound<Vec<u8>>,
        end: Bound<Vec<u8>>,
    ) -> SnapshotEntries<'s> {
        let key = |bound| key_of(bound).map(|bytes| snapshot.key(bytes));
        let (first, behind) = snapshot.content.parts_between(key(&start), key(&end));
        snapshot.hold.ground.count_walk();
        SnapshotEntries {
            snapshot,
            bounds: (start, end),
            parts: first..behind,
            front: VecDeque::new(),
            back: VecDeque::new(),
            is_over: false,
        }
    }

    /// The key of a slot.
    fn key_in(&self, slot: Slot) -> Named {
        let (ground, place) = (self.snapshot.hold.ground, slot.place());
        let corrupt = Error::Corrupt { offset: place };
        let Some(head) = record::head_at(ground, place) else {
            return Err(corrupt);
        };
        let key = record::key_of(ground, place, head)?;
        // A key of another hash would not be found, and be taken for one that is gone.
        match self.snapshot.key(&key).hash.in_slot() == slot.hash() {
            true => Ok((key, slot)),
            false => Err(corrupt),
        }
    }

    /// The keys of a part, in order if the engine has one; damaged records come first.
    fn read(&self, part: usize) -> Result<VecDeque<Named>> {
        self.snapshot.hold.ground.enter()?;
        let slots = self.snapshot.content.part(part).iter();
        let mut keys: Vec<Named> = slots.map(|&word| self.key_in(Slot(word))).collect();
        // Places may have been used again, if it was ended.
        self.snapshot.check()?;
        if self.snapshot.is_sorted() {
            let key = |named: &Named| named.as_ref().ok().map(|(key, _)| key.clone());
            keys.sort_by_cached_key(key);
        }
        Ok(keys.into())
    }

    /// The next key from an end; `None`: that was all.
    fn next_key(&mut self, is_front: bool) -> Option<Named> {
        loop {
            let (own, other) = match is_front {
                true => (self.front.pop_front(), &mut self.back),
                false => (self.back.pop_back(), &mut self.front),
            };
            if own.is_some() {
                return own;
            }
            let part = match is_front {
                true => self.parts.next(),
                false => self.parts.next_back(),
            };
            let Some(part) = part else {
                // Keys that the other end has read are left.
                return if is_front {
                    other.pop_front()
                } else {
                    other.pop_back()
                };
            };
            match (self.read(part), is_front) {
                (Ok(keys), true) => self.front = keys,
                (Ok(keys), false) => self.back = keys,
                (Err(error), _) => {
                    self.is_over = true;
                    return Some(Err(error));
                }
            }
        }
    }

    fn step(&mut self, is_front: bool, value: &mut Vec<u8>) -> Option<Result<(Vec<u8>, Expiry)>> {
        if self.is_over {
            return None;
        }
        loop {
            let Some(next) = self.next_key(is_front) else {
                self.is_over = true;
                return None;
            };
            let (key, slot) = match next {
                Ok(named) => named,
                Err(error) => return Some(Err(error)),
            };
            if !RangeBounds::<Vec<u8>>::contains(&self.bounds, &key) {
                continue;
            }
            match self.snapshot.read_slot(slot, &key, value) {
                Ok(Some(expiry)) => {
                    let ground = self.snapshot.hold.ground;
                    ground.count_shown(value.len() as u64);
                    return Some(Ok((key, expiry)));
                }
                // It had expired.
                Ok(None) => {}
                Err(error) => {
                    self.is_over = !matches!(error, Error::Corrupt { .. });
                    return Some(Err(error));
                }
            }
        }
    }

    /// The next key, whose value is put into a buffer, and when it expires.
    pub fn next_into(&mut self, value: &mut Vec<u8>) -> Option<Result<(Vec<u8>, Expiry)>> {
        self.step(true, value)
    }
}

fn with(value: Vec<u8>) -> impl FnOnce(Result<(Vec<u8>, Expiry)>) -> Result<Entry> {
    |found| found.map(|(key, _)| (key, value))
}

impl Iterator for SnapshotEntries<'_> {
    type Item = Result<Entry>;

    fn next(&mut self) -> Option<Self::Item> {
        let mut value = Vec::new();
        let found = self.step(true, &mut value);
        found.map(with(value))
    }
}

impl DoubleEndedIterator for SnapshotEntries<'_> {
    fn next_back(&mut self) -> Option<Self::Item> {
        let mut value = Vec::new();
        let found = self.step(false, &mut value);
        found.map(with(value))
    }
}

impl FusedIterator for SnapshotEntries<'_> {}
