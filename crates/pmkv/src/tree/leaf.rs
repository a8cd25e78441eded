//! A leaf as a walk has read it: its keys in order, with the values of small records.
//!
//! All records of a leaf are read and verified at once, into one buffer that the walk keeps, while
//! nothing that it depends on changes. A key is shown later only if its slot is still the same, and
//! is read again if others of its chunk were put over meanwhile ([`Tree::is_as_read`]).

use super::{ByKey, Found, Seek, Tree, Way, fences};
use crate::engine::{Cut, Index};
use crate::error::{Error, Result};
use crate::group::{LOOKS, Located};
use crate::record;
use crate::slot::Slot;
use pmlib_format::kv::STATE_LIVE;

/// A slot of a leaf, and where its record is in the leaf's buffer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Named {
    /// Where the slot is.
    pub at: u64,
    pub slot: Slot,
    /// The key's first bytes behind those that all keys of the leaf have in common.
    first: u64,
    key: u32,
    key_len: u32,
    /// The value's bytes; [`FAR`]: it is not in the buffer.
    value_len: u32,
    pub expires: Option<u64>,
    /// Its record is damaged, all of it or the value alone.
    is_damaged: bool,
}

/// The length of a value that is read when its key is come to.
const FAR: u32 = u32::MAX;

/// What a walk knows of a slot.
pub(super) enum Known {
    /// The value is in the buffer.
    Value,
    /// The value is to be read.
    Key,
    /// The key is right, and the value is damaged; or neither is, and there is no key.
    Damaged { has_key: bool },
}

/// A leaf that was read.
#[derive(Debug, Default)]
pub(super) struct Leaf {
    /// Slots in the order of their keys; damaged records come first.
    entries: Vec<Named>,
    bytes: Vec<u8>,
    /// The part of the entries that has not come yet.
    next: usize,
    behind: usize,
    located: Option<Located<Way>>,
    /// The chunk's sequence when it was read.
    sequence: u64,
    /// Its range.
    pub start: Vec<u8>,
    pub end: Option<Vec<u8>>,
}

impl Leaf {
    pub fn pop_front(&mut self) -> Option<Named> {
        let named = *self.entries[..self.behind].get(self.next)?;
        self.next += 1;
        Some(named)
    }

    pub fn pop_back(&mut self) -> Option<Named> {
        let named = *self.entries[self.next..self.behind].last()?;
        self.behind -= 1;
        Some(named)
    }

    #[inline]
    pub fn key(&self, named: &Named) -> &[u8] {
        &self.bytes[named.key as usize..][..named.key_len as usize]
    }

    /// The value of one that is in the buffer.
    #[inline]
    pub fn value(&self, named: &Named) -> &[u8] {
        let start = (named.key + named.key_len) as usize;
        &self.bytes[start..][..named.value_len as usize]
    }

    pub fn known(&self, named: &Named) -> Known {
        match (named.is_damaged, named.value_len) {
            (true, _) => Known::Damaged {
                has_key: named.key_len < FAR,
            },
            (false, FAR) => Known::Key,
            (false, _) => Known::Value,
        }
    }

    fn clear(&mut self) {
        (self.next, self.behind) = (0, 0);
        self.entries.clear();
    }

    /// Notes the range of a leaf; answers how many bytes all of its keys have in common.
    fn note_range(&mut self, found: &Found<'_>) -> usize {
        found.start_into(&mut self.start);
        self.end = found.end();
        match &self.end {
            Some(end) => fences::common_bytes(&self.start, end),
            None => 0,
        }
    }

    /// Sorts what was read.
    fn sort(&mut self) {
        let Leaf { entries, bytes, .. } = self;
        let key = |named: &Named| match named.key_len {
            FAR => None,
            len => Some(&bytes[named.key as usize..][..len as usize]),
        };
        entries.sort_unstable_by(|one, other| {
            let by_first = one.first.cmp(&other.first);
            by_first.then_with(|| key(one).cmp(&key(other)))
        });
        (self.next, self.behind) = (0, self.entries.len());
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
                    let (at, slot) = (start + nth as u64 * 8, slot.with_state(STATE_LIVE));
                    leaf.entries.push(Named {
                        at,
                        slot,
                        first: 0,
                        key: 0,
                        key_len: FAR,
                        value_len: FAR,
                        expires: None,
                        is_damaged: true,
                    });
                }
            }
        }
        let mut used = 0;
        for nth in 0..leaf.entries.len() {
            let mut named = leaf.entries[nth];
            used = self.read_record(&mut named, common, &mut leaf.bytes, used)?;
            if named.is_damaged {
                // A delete leaves the sequence as it is, and its place is used again at once.
                mem.acquire();
                if !self.is_same_slot(&named) {
                    return Ok(false);
                }
            }
            leaf.entries[nth] = named;
        }
        Ok(true)
    }

    /// Reads the record of a slot behind what the buffer has; answers how much that is by then.
    #[inline]
    fn read_record(
        &self,
        named: &mut Named,
        common: usize,
        bytes: &mut Vec<u8>,
        used: usize,
    ) -> Result<usize> {
        let place = named.slot.place();
        let found = record::append(self.ground, place, named.slot.instance(), (bytes, used))?;
        let Some(record::Appended { head, is_value }) = found else {
            return Ok(used);
        };
        let start = used + head.before_key() as usize;
        let key = &bytes[start..][..head.key as usize];
        // A key of another hash would not be found, and be taken for one that is gone.
        if self.key(key).hash.in_slot() != named.slot.hash() {
            return Ok(used);
        }
        let mut first = [0; 8];
        let rest = key.get(common..).unwrap_or_default();
        let len = rest.len().min(8);
        first[..len].copy_from_slice(&rest[..len]);
        named.first = u64::from_be_bytes(first);
        (named.key, named.key_len) = (start as u32, head.key as u32);
        named.expires = head.expires;
        named.is_damaged = is_value == Some(false);
        let end = start + head.key as usize;
        if is_value.is_some() {
            named.value_len = head.value as u32;
            return Ok(end + head.value as usize);
        }
        Ok(end)
    }

    /// Whether a slot is the one that was read.
    #[inline]
    pub(super) fn is_same_slot(&self, named: &Named) -> bool {
        let now = Slot(self.ground.mem().load_cached(named.at));
        now.is_seen() && now.with_state(STATE_LIVE) == named.slot
    }

    /// Whether a slot is the one that was read, and its record too: no other version of a key of
    /// its chunk was put since.
    #[inline]
    pub(super) fn is_as_read(&self, leaf: &Leaf, named: &Named) -> bool {
        let Some(located) = &leaf.located else {
            return false;
        };
        let sequence = self.ground.mem().load_cached(located.notes + 8);
        sequence == leaf.sequence && self.is_same_slot(named) && ByKey::is_still(self, located)
    }

    /// Reads the value of a key that was read a while ago; `None`: it is gone.
    pub(super) fn value_of(
        &self,
        leaf: &Leaf,
        named: &Named,
        value: &mut Vec<u8>,
    ) -> Result<Option<()>> {
        self.ground.enter()?;
        let (slot, key) = (named.slot, leaf.key(named));
        let seen = record::read(self.ground, slot.place(), slot.instance(), key, value)?;
        self.ground.mem().acquire();
        let is_still = leaf
            .located
            .is_some_and(|located| ByKey::is_still(self, &located));
        match seen {
            record::Seen::Same(head) if is_still && self.is_same_slot(named) => {
                Ok((!self.is_expired(&head)).then_some(()))
            }
            _ => Ok(self.get_into(key, value)?.then_some(())),
        }
    }

    /// A record that was damaged when its leaf was read, by its key if it had one.
    pub(super) fn damage_of(
        &self,
        leaf: &Leaf,
        named: &Named,
        has_key: bool,
        value: &mut Vec<u8>,
    ) -> Result<Option<()>> {
        match has_key {
            true => self.value_of(leaf, named, value),
            false => Err(Error::Corrupt {
                offset: named.slot.place(),
            }),
        }
    }
}
