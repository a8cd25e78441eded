//! A leaf as a walk has read it: its keys in order, with the values of small records.
//!
//! Where its order can't be found ([`Tree::list_leaf`]), all records of a leaf are read and
//! verified at once, into one buffer that the walk keeps, while nothing that it depends on
//! changes. A key is shown later only if its slot is still the same, and is read again if others
//! of its chunk were put over meanwhile ([`Tree::is_as_read`]).

use super::listed::{Come, Listed, Next};
use super::{ByKey, Found, Seek, Tree, Way, fences};
use crate::engine::{Cut, Index};
use crate::error::Result;
use crate::group::{LOOKS, Located};
use crate::record::{self, LONG, Shown};
use crate::slot::Slot;
use pmlib_format::kv::STATE_LIVE;

/// A slot of a leaf, and where its record is in the leaf's buffer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Named {
    /// Where the slot is.
    pub at: u64,
    pub slot: Slot,
    key: u32,
    /// [`NONE`]: its record is damaged, and its key is not known.
    key_len: u32,
    /// The value's bytes; [`NONE`]: it is long, and read when its key is come to.
    value_len: u32,
    /// Its value is damaged.
    is_damaged: bool,
    expires: Option<u64>,
}

/// No length.
const NONE: u32 = u32::MAX;

impl Named {
    pub fn has_key(&self) -> bool {
        self.key_len != NONE
    }

    /// Whether its value is in the buffer, as it was stored.
    #[inline]
    pub fn has_value(&self) -> bool {
        self.value_len != NONE && !self.is_damaged
    }
}

/// A leaf that was read, for a walk.
#[derive(Debug, Default)]
pub(super) struct Leaf {
    pub slots: Vec<(u64, Slot)>,
    entries: Vec<Named>,
    /// The entries in the order of their keys, with the first bytes behind those that all keys have
    /// in common; damaged records come first.
    order: Vec<(u64, u32)>,
    pub bytes: Vec<u8>,
    /// The part of the order that has not come yet.
    pub next: usize,
    pub behind: usize,
    pub located: Option<Located<Way>>,
    /// The chunk's sequence when it was read.
    pub sequence: u64,
    /// Its slots, if it is read record by record.
    pub listed: Listed,
    /// Its range.
    pub start: Vec<u8>,
    pub end: Option<Vec<u8>>,
}

impl Leaf {
    /// The next record from an end.
    #[inline]
    pub fn pop<const FRONT: bool>(&mut self, come: &mut Come) -> Next {
        if self.next == self.behind {
            return Next::Over;
        }
        let nth = match FRONT {
            true => {
                self.next += 1;
                self.next - 1
            }
            false => {
                self.behind -= 1;
                self.behind
            }
        };
        let nth = self.order[nth].1;
        let named = &self.entries[nth as usize];
        if !named.has_key() {
            return Next::Damaged(named.slot.place());
        }
        *come = Come {
            shown: Shown {
                key: named.key,
                key_len: named.key_len,
                value_len: match named.has_value() {
                    true => named.value_len,
                    false => LONG,
                },
                expires: named.expires,
            },
            nth,
        };
        Next::One
    }

    /// Where the slot of a record is, and its word.
    pub fn slot_of(&self, come: &Come) -> (u64, Slot) {
        match self.listed.is_on {
            true => self.listed_slot(come.nth as u8),
            false => {
                let named = &self.entries[come.nth as usize];
                (named.at, named.slot)
            }
        }
    }

    #[inline]
    pub fn key(&self, come: &Come) -> &[u8] {
        &self.bytes[come.shown.key as usize..][..come.shown.key_len as usize]
    }

    /// The value of one that is in the buffer.
    #[inline]
    pub fn value(&self, come: &Come) -> &[u8] {
        let start = come.shown.key as usize + come.shown.key_len as usize;
        &self.bytes[start..][..come.shown.value_len as usize]
    }

    pub fn key_of(&self, named: &Named) -> &[u8] {
        &self.bytes[named.key as usize..][..named.key_len as usize]
    }

    /// All entries in order.
    pub fn entries(&self) -> impl Iterator<Item = &Named> {
        let order = self.order.iter();
        order.map(|&(_, nth)| &self.entries[nth as usize])
    }

    /// The least and the greatest key.
    pub fn ends(&self) -> Option<(&[u8], &[u8])> {
        let first = self.entries().find(|named| named.has_key())?;
        let last = &self.entries[self.order.last()?.1 as usize];
        Some((self.key_of(first), self.key_of(last)))
    }

    pub fn clear(&mut self) {
        (self.next, self.behind) = (0, 0);
        self.listed.is_on = false;
        self.slots.clear();
        self.entries.clear();
        self.order.clear();
    }

    /// Notes the range of a leaf; answers how many bytes all of its keys have in common.
    pub fn note_range(&mut self, found: &Found<'_>) -> usize {
        found.start_into(&mut self.start);
        self.end = found.end();
        match &self.end {
            Some(end) => fences::common_bytes(&self.start, end),
            None => 0,
        }
    }

    /// Sorts what was read.
    pub fn sort(&mut self) {
        self.order.sort_unstable_by_key(|&(first, _)| first);
        let is_twice = |pair: &[(u64, u32)]| pair[0].0 == pair[1].0;
        if self.order.windows(2).any(is_twice) {
            let Leaf {
                entries,
                bytes,
                order,
                ..
            } = self;
            let key = |nth: u32| {
                let named = &entries[nth as usize];
                let len = named.has_key().then_some(named.key_len as usize);
                len.map(|len| &bytes[named.key as usize..][..len])
            };
            order.sort_by(|one, other| key(one.1).cmp(&key(other.1)));
        }
        (self.next, self.behind) = (0, self.order.len());
    }
}

impl Tree<'_> {
    /// Reads the leaf that is sought.
    pub(super) fn read_leaf(&self, seek: Seek<'_>, leaf: &mut Leaf) -> Result<()> {
        self.ground.enter()?;
        let mem = self.ground.mem();
        for _ in 0..LOOKS {
            leaf.clear();
            let range = |found: &Found<'_>| (self.located(found), leaf.note_range(found));
            let Some((located, common)) = self.look_up(seek, range)? else {
                break;
            };
            if !self.is_settled(&located) {
                break;
            }
            let at = self.sequence(located.chunk);
            leaf.sequence = mem.load_cached(at);
            let is_read = self.read_slots(&located, common, leaf)?;
            mem.acquire();
            if is_read
                && leaf.sequence & 1 == 0
                && mem.load_cached(at) == leaf.sequence
                && ByKey::is_still(self, &located)
            {
                leaf.located = Some(located);
                leaf.sort();
                return Ok(());
            }
            std::hint::spin_loop();
        }
        leaf.clear();
        let _window = mem.window();
        let range = |found: &Found<'_>| (self.located(found), leaf.note_range(found));
        let (group, (located, common)) = self.lock_leaf(seek, range)?;
        leaf.sequence = mem.load_cached(self.sequence(located.chunk));
        if !self.read_slots(&located, common, leaf)? {
            return Err(self.damaged("a leaf that its lock keeps", located.start));
        }
        drop(group);
        leaf.located = Some(located);
        leaf.sort();
        Ok(())
    }

    /// Reads the records of a leaf's slots. `false`: a damaged one was another one by then, as its
    /// slot tells.
    fn read_slots(&self, located: &Located<Way>, common: usize, leaf: &mut Leaf) -> Result<bool> {
        let mem = self.ground.mem();
        for line in 1..=self.cut.lines() {
            let start = located.line(line);
            let words: [u64; 8] = mem.read(start);
            for (nth, slot) in words.into_iter().map(Slot).enumerate() {
                if slot.is_seen() {
                    mem.prefetch_if_there(slot.place());
                    mem.prefetch_if_there(slot.place() + 64);
                    leaf.slots.push((start + nth as u64 * 8, slot));
                }
            }
        }
        self.read_entries::<true>(common, leaf)
    }

    /// Reads the records of the slots that were noted, as [`Tree::read_slots`] says.
    pub(super) fn read_entries<const VALUES: bool>(
        &self,
        common: usize,
        leaf: &mut Leaf,
    ) -> Result<bool> {
        let mut used = 0;
        for nth in 0..leaf.slots.len() {
            let (at, slot) = leaf.slots[nth];
            let (named, first) =
                self.read_record::<VALUES>((at, slot), common, &mut leaf.bytes, used)?;
            match named.has_key() {
                true if named.value_len == NONE => used = (named.key + named.key_len) as usize,
                true => used = (named.key + named.key_len + named.value_len) as usize,
                false => {}
            }
            if !named.has_key() || named.is_damaged {
                // A delete leaves the sequence as it is, and its place is used again at once.
                self.ground.mem().acquire();
                if !self.is_same_slot((named.at, named.slot)) {
                    return Ok(false);
                }
            }
            leaf.entries.push(named);
            leaf.order.push((first, nth as u32));
        }
        Ok(true)
    }

    /// Reads the record of a slot behind what the buffer has; answers the first bytes of its key as
    /// well, behind those that are common.
    #[inline]
    fn read_record<const VALUE: bool>(
        &self,
        (at, slot): (u64, Slot),
        common: usize,
        bytes: &mut Vec<u8>,
        used: usize,
    ) -> Result<(Named, u64)> {
        let mut named = Named {
            at,
            slot: slot.with_state(STATE_LIVE),
            key: 0,
            key_len: NONE,
            value_len: NONE,
            is_damaged: false,
            expires: None,
        };
        let found =
            record::append::<VALUE>(self.ground, slot.place(), slot.instance(), (bytes, used))?;
        let Some(record::Appended { head, is_value }) = found else {
            return Ok((named, 0));
        };
        let start = used + head.before_key() as usize;
        let key = &bytes[start..][..head.key as usize];
        // A key of another hash would not be found, and be taken for one that is gone.
        if self.key(key).hash.in_slot() != slot.hash() {
            return Ok((named, 0));
        }
        (named.key, named.key_len) = (start as u32, head.key as u32);
        named.expires = head.expires;
        if let Some(is_value) = is_value {
            named.is_damaged = !is_value;
            named.value_len = head.value as u32;
        }
        Ok((
            named,
            fences::head_of(key.get(common..).unwrap_or_default()),
        ))
    }

    /// Whether a slot is as it was read.
    #[inline]
    pub(super) fn is_same_slot(&self, (at, slot): (u64, Slot)) -> bool {
        let now = Slot(self.ground.mem().load_cached(at));
        now.is_seen() && now.with_state(STATE_LIVE) == slot
    }

    /// Whether a slot is the one that was read, and its record too: no other version of a key of
    /// its chunk was put since.
    #[inline]
    pub(super) fn is_as_read(&self, leaf: &Leaf, come: &Come) -> bool {
        let Some(located) = &leaf.located else {
            return false;
        };
        let sequence = self.ground.mem().load_cached(located.notes + 8);
        sequence == leaf.sequence
            && self.is_same_slot(leaf.slot_of(come))
            && ByKey::is_still(self, located)
    }

    /// Reads the value of a key that was read a while ago; `None`: it is gone.
    pub(super) fn value_of(
        &self,
        leaf: &Leaf,
        come: &Come,
        value: &mut Vec<u8>,
    ) -> Result<Option<()>> {
        let ((at, slot), key) = (leaf.slot_of(come), leaf.key(come));
        let seen = record::read(self.ground, slot.place(), slot.instance(), key, value)?;
        self.ground.mem().acquire();
        let is_still = leaf
            .located
            .is_some_and(|located| ByKey::is_still(self, &located));
        match seen {
            record::Seen::Same(head) if is_still && self.is_same_slot((at, slot)) => {
                Ok((!self.is_expired(&head)).then_some(()))
            }
            _ => Ok(self.get_into(key, value)?.then_some(())),
        }
    }
}
