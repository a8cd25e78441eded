//! A leaf whose order is known, as a walk reads it: record by record, each when it is come to.
//!
//! The walk keeps the leaf's slots as they were when it came there. Before each record it asks the
//! chunk's sequence whether keys have moved since, and looks at the slots again if so. A slot that
//! is another one by then is of a key that was taken away; that of a new key need not come.

use pmlib_format::kv::STATE_LIVE;

use super::leaf::{Leaf, Named};
use super::order::{Order, SLOTS_MAX, with_word};
use super::{ByKey, Found, Seek, Tree};
use crate::engine::{Cut, Index};
use crate::error::Result;
use crate::record::{self, Shown};
use crate::slot::Slot;

/// Records whose lines are asked for before they are come to.
const AHEAD: usize = 6;

/// The slots of a leaf that is read record by record.
#[derive(Debug, Default)]
pub(super) struct Listed {
    pub is_on: bool,
    /// Where its slots begin, and where its chunk's sequence is.
    first_line: u64,
    sequence_at: u64,
    /// All of its slots, and a digest of them.
    words: Vec<u64>,
    digest: u64,
    /// Their numbers, in the order of their keys.
    numbers: Vec<u8>,
    /// How many bytes all keys have in common.
    common: usize,
    /// The buffer for the next record; that of the last one is the leaf's.
    spare: Vec<u8>,
}

/// A record that a walk has come to.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Come {
    pub shown: Shown,
    /// Its number among the leaf's slots, or its records.
    pub nth: u32,
}

/// The next record of a leaf.
pub(super) enum Next {
    /// There is none.
    Over,
    One,
    /// Its key is gone.
    Gone,
    /// It is not as it was stored.
    Damaged(u64),
    /// Keys of the leaf have moved.
    Moved,
}

impl Listed {
    /// Has room for a leaf.
    fn reserve(&mut self, lines: u64) {
        if self.words.is_empty() {
            self.words.resize(lines as usize * 8, 0);
            self.numbers.reserve(SLOTS_MAX);
            self.spare.resize(record::NEAR as usize, 0);
        }
    }
}

impl Leaf {
    /// Where slot number `number` of a leaf that is read record by record is, and its word.
    #[inline(always)]
    pub fn listed_slot(&self, number: u8) -> (u64, Slot) {
        let word = self.listed.words[usize::from(number)];
        let at = self.listed.first_line + u64::from(number) * 8;
        (at, Slot(word).with_state(STATE_LIVE))
    }
}

impl Tree<'_> {
    /// Has a walk read a leaf record by record; `false`: it has to read all of it.
    pub(super) fn list_leaf(&self, seek: Seek<'_>, leaf: &mut Leaf) -> Result<bool> {
        if self.cut.lines() as usize * 8 > SLOTS_MAX {
            return Ok(false);
        }
        self.ground.enter()?;
        leaf.clear();
        leaf.listed.reserve(self.cut.lines());
        let range = |found: &Found<'_>| {
            let common = leaf.note_range(found);
            let kept = found
                .map
                .orders
                .copy_to(found.nth, &mut leaf.listed.numbers);
            (self.located(found), common, kept)
        };
        let Some((located, common, kept)) = self.look_up(seek, range)? else {
            return Ok(false);
        };
        leaf.listed.first_line = located.line(1);
        leaf.listed.sequence_at = located.notes + 8;
        leaf.sequence = self.ground.mem().load_cached(leaf.listed.sequence_at);
        if leaf.sequence & 1 == 1 || !self.is_settled(&located) {
            return Ok(false);
        }
        (leaf.located, leaf.listed.common) = (Some(located), common);
        self.read_words(leaf);
        if kept != Some(leaf.listed.digest)
            && !(kept.is_some() && planted!("bug-order-of-other-slots"))
            && !self.find_order(leaf)?
        {
            return Ok(false);
        }
        if !self.is_unmoved(leaf) {
            return Ok(false);
        }
        if kept != Some(leaf.listed.digest) {
            self.keep_order(seek, leaf)?;
        }
        if leaf.bytes.len() < record::NEAR as usize {
            leaf.bytes.resize(record::NEAR as usize, 0);
        }
        (leaf.next, leaf.behind) = (0, leaf.listed.numbers.len());
        leaf.listed.is_on = true;
        Ok(true)
    }

    /// Reads all slots of a leaf.
    #[inline]
    fn read_words(&self, leaf: &mut Leaf) {
        let (mem, listed) = (self.ground.mem(), &mut leaf.listed);
        let mut at = listed.first_line;
        let mut digest = 0;
        for line in listed.words.as_chunks_mut::<8>().0 {
            *line = mem.read(at);
            digest = line.iter().copied().fold(digest, with_word);
            at += 64;
        }
        listed.digest = digest;
        mem.acquire();
    }

    /// Whether no key of a leaf has moved since its sequence was noted.
    #[inline]
    fn is_unmoved(&self, leaf: &Leaf) -> bool {
        leaf.located.is_some_and(|located| {
            self.ground.mem().load_cached(located.notes + 8) == leaf.sequence
                && ByKey::is_still(self, &located)
        })
    }

    /// Finds the order of the slots that were read; `false`: a key can't be read.
    #[cold]
    fn find_order(&self, leaf: &mut Leaf) -> Result<bool> {
        let Some(located) = leaf.located else {
            return Ok(false);
        };
        for (number, &word) in leaf.listed.words.iter().enumerate() {
            let slot = Slot(word);
            if slot.is_seen() {
                let at = located.line(1) + number as u64 * 8;
                leaf.slots.push((at, slot));
                self.ground.mem().prefetch_if_there(slot.place());
            }
        }
        let common = leaf.listed.common;
        if !self.read_entries::<false>(common, leaf)? {
            return Ok(false);
        }
        leaf.sort();
        if leaf.entries().any(|named| !named.has_key()) {
            return Ok(false);
        }
        let mut numbers = std::mem::take(&mut leaf.listed.numbers);
        numbers.clear();
        let number = |named: &Named| ((named.at - located.line(1)) / 8) as u8;
        numbers.extend(leaf.entries().map(number));
        leaf.listed.numbers = numbers;
        Ok(true)
    }

    /// Keeps the order that was found.
    #[cold]
    fn keep_order(&self, seek: Seek<'_>, leaf: &Leaf) -> Result<()> {
        let (listed, Some(located)) = (&leaf.listed, leaf.located) else {
            return Ok(());
        };
        let order = Order::of(listed.digest, listed.numbers.iter().copied());
        let keep = |found: &Found<'_>| {
            let way = located.way;
            if found.chunk == located.chunk
                && found.leaf() == way.leaf
                && found.map.version == way.version
            {
                let map = found.map;
                map.orders.keep(found.nth, map.leaves.len(), order);
            }
        };
        self.look_up(seek, keep)?;
        Ok(())
    }

    /// Whether the order still holds, after keys of the leaf's chunk have moved.
    #[cold]
    fn holds_still(&self, leaf: &mut Leaf) -> bool {
        let Some(located) = leaf.located else {
            return false;
        };
        let digest = leaf.listed.digest;
        leaf.listed.first_line = located.line(1);
        leaf.listed.sequence_at = located.notes + 8;
        leaf.sequence = self.ground.mem().load_cached(leaf.listed.sequence_at);
        if leaf.sequence & 1 == 1 {
            return false;
        }
        self.read_words(leaf);
        leaf.listed.digest == digest && self.is_unmoved(leaf) && self.is_settled(&located)
    }

    /// Leaves out what comes before the first key from the front that is wanted, or from the back
    /// what comes behind the last; `is_low` says of a key whether it is below the place to part.
    /// `false`: it could not be found.
    pub(super) fn part_listed(
        &self,
        leaf: &mut Leaf,
        is_front: bool,
        is_low: impl Fn(&[u8]) -> bool,
    ) -> Result<bool> {
        let mut come = Come::default();
        let (mut low, mut high) = (0, leaf.listed.numbers.len());
        while low < high {
            let middle = low + (high - low) / 2;
            let Next::One = self.read_listed(leaf, middle, &mut come)? else {
                return Ok(false);
            };
            match is_low(leaf.key(&come)) {
                true => low = middle + 1,
                false => high = middle,
            }
        }
        match is_front {
            true => leaf.next = low,
            false => leaf.behind = low,
        }
        Ok(true)
    }

    /// The next record of a leaf from an end.
    #[inline(never)]
    pub(super) fn pop_listed<const FRONT: bool>(
        &self,
        leaf: &mut Leaf,
        come: &mut Come,
    ) -> Result<Next> {
        let (next, behind) = (leaf.next, leaf.behind);
        if next == behind {
            return Ok(Next::Over);
        }
        let sequence = self.ground.mem().load_cached(leaf.listed.sequence_at);
        let has_changed = sequence != leaf.sequence && !planted!("bug-moved-keys-missed");
        if has_changed && !self.holds_still(leaf) {
            return Ok(Next::Moved);
        }
        let nth = match FRONT {
            true => {
                leaf.next = next + 1;
                self.prefetch_listed(leaf, next + AHEAD);
                next
            }
            false => {
                leaf.behind = behind - 1;
                self.prefetch_listed(leaf, (behind - 1).wrapping_sub(AHEAD));
                behind - 1
            }
        };
        self.read_listed(leaf, nth, come)
    }

    /// Asks for the lines of a record, if there is one.
    #[inline(always)]
    fn prefetch_listed(&self, leaf: &Leaf, nth: usize) {
        let listed = &leaf.listed;
        if let Some(&number) = listed.numbers.get(nth) {
            let place = Slot(listed.words[usize::from(number)]).place();
            self.ground.mem().prefetch_if_there(place);
            self.ground.mem().prefetch_if_there(place + 64);
        }
    }

    /// Reads record number `nth` of a leaf. The last one that was read stays in the leaf's buffer
    /// if there is none.
    #[inline(always)]
    fn read_listed(&self, leaf: &mut Leaf, nth: usize, come: &mut Come) -> Result<Next> {
        let number = leaf.listed.numbers[nth];
        let (at, slot) = leaf.listed_slot(number);
        let (place, spare) = ((slot.place(), slot.instance()), &mut leaf.listed.spare);
        // The slot is the one that was verified to be of the key's hash when the order was found.
        let mut shown = Shown::default();
        let is_sound = record::show(self.ground, place, spare, &mut shown)?;
        let mem = self.ground.mem();
        mem.acquire();
        if !self.is_same_slot((at, slot)) {
            let is_same = mem.load_cached(leaf.listed.sequence_at) == leaf.sequence
                || planted!("bug-moved-keys-missed");
            return Ok(if is_same { Next::Gone } else { Next::Moved });
        }
        if !is_sound {
            return Ok(Next::Damaged(slot.place()));
        }
        std::mem::swap(&mut leaf.bytes, &mut leaf.listed.spare);
        *come = Come {
            shown,
            nth: u32::from(number),
        };
        Ok(Next::One)
    }
}
