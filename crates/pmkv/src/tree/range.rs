//! Walks over keys in order, from either end.

use std::collections::VecDeque;
use std::iter::FusedIterator;
use std::ops::{Bound, RangeBounds};

use super::{ByKey, Found, Seek, Tree, Way, corrupt};
use crate::engine::{Cut, Index};
use crate::error::Result;
use crate::group::{LOOKS, Located};
use crate::record::{self, Seen};
use crate::slot::Slot;
use pmlib_format::kv::STATE_LIVE;

/// A key of a leaf, and its slot.
struct Entry {
    key: Vec<u8>,
    leaf: Located<Way>,
    at: u64,
    slot: Slot,
}

/// A leaf's keys in order, its damaged records before them, and its range.
struct Read {
    entries: Vec<Result<Entry>>,
    start: Vec<u8>,
    end: Option<Vec<u8>>,
}

/// Where the next leaf is, seen from behind.
enum Before {
    At(Vec<u8>),
    Below(Vec<u8>),
    Last,
    Nothing,
}

/// Keys of a tree and their values, in order ([`Tree::range`]); from its end by
/// [`Iterator::rev`].
pub struct Range<'a, 'h> {
    tree: &'a Tree<'h>,
    start: Bound<Vec<u8>>,
    end: Bound<Vec<u8>>,
    /// Where the next leaf begins; `None`: there is none.
    front_at: Option<Vec<u8>>,
    back_at: Before,
    front: VecDeque<Result<Entry>>,
    back: VecDeque<Result<Entry>>,
    is_over: bool,
}

/// The key behind all that begin so; `None`: there is none.
fn behind(prefix: &[u8]) -> Option<Vec<u8>> {
    let last = prefix.iter().rposition(|&byte| byte < u8::MAX)?;
    let mut key = prefix[..=last].to_vec();
    key[last] += 1;
    Some(key)
}

fn owned<K: AsRef<[u8]>>(bound: Bound<&K>) -> Bound<Vec<u8>> {
    bound.map(|key| key.as_ref().to_vec())
}

/// Keys up to this one have come, and are left out from now on.
fn leave_out(bound: &mut Bound<Vec<u8>>, key: &[u8]) {
    match bound {
        Bound::Excluded(bytes) => {
            bytes.clear();
            bytes.extend_from_slice(key);
        }
        _ => *bound = Bound::Excluded(key.to_vec()),
    }
}

impl<'h> Tree<'h> {
    /// All keys with their values, in order. Each value is read when its key is come to. A key that
    /// is there throughout comes once, and none comes twice. A damaged record comes as `Corrupt`,
    /// and the others behind it.
    pub fn iter(&self) -> Range<'_, 'h> {
        self.range::<&[u8], _>(..)
    }

    /// The keys between two bounds, as [`Tree::iter`] has them; none, if the first is behind the
    /// second. A damaged record whose key can't be read comes if its leaf is among those of the
    /// range.
    pub fn range<K: AsRef<[u8]>, R: RangeBounds<K>>(&self, bounds: R) -> Range<'_, 'h> {
        let (start, end) = (owned(bounds.start_bound()), owned(bounds.end_bound()));
        self.between(start, end)
    }

    /// The keys that begin with these bytes, as [`Tree::iter`] has them.
    pub fn prefix(&self, prefix: &[u8]) -> Range<'_, 'h> {
        let end = behind(prefix).map_or(Bound::Unbounded, Bound::Excluded);
        self.between(Bound::Included(prefix.to_vec()), end)
    }

    fn between(&self, start: Bound<Vec<u8>>, end: Bound<Vec<u8>>) -> Range<'_, 'h> {
        let front_at = match &start {
            Bound::Included(key) | Bound::Excluded(key) => key.clone(),
            Bound::Unbounded => Vec::new(),
        };
        let back_at = match &end {
            Bound::Included(key) => Before::At(key.clone()),
            Bound::Excluded(key) => Before::Below(key.clone()),
            Bound::Unbounded => Before::Last,
        };
        Range {
            tree: self,
            start,
            end,
            front_at: Some(front_at),
            back_at,
            front: VecDeque::new(),
            back: VecDeque::new(),
            is_over: false,
        }
    }

    /// The keys of the leaf that is sought.
    fn read_leaf(&self, seek: Seek<'_>) -> Result<Read> {
        self.ground.enter()?;
        let mem = self.ground.mem();
        let range = |found: &Found<'_>| {
            let leaf = self.leaf_of(found.chunk, found.leaf(), found.map.version);
            (leaf, found.start(), found.end())
        };
        for _ in 0..LOOKS {
            let Some((leaf, start, end)) = self.look_up(seek, range)? else {
                break;
            };
            if !self.is_settled(&leaf) {
                break;
            }
            let at = self.sequence(leaf.chunk);
            let before = mem.load_cached(at);
            let entries = self.entries(&leaf)?;
            mem.acquire();
            if let Some(entries) = entries
                && before & 1 == 0
                && mem.load_cached(at) == before
                && ByKey::is_still(self, &leaf)
            {
                return Ok(Read {
                    entries,
                    start,
                    end,
                });
            }
            std::hint::spin_loop();
        }
        let _window = mem.window();
        let (group, (leaf, start, end)) = self.lock_leaf(seek, range)?;
        let entries = self.entries(&leaf)?;
        let entries =
            entries.ok_or_else(|| self.damaged("a leaf that its lock keeps", leaf.start))?;
        drop(group);
        Ok(Read {
            entries,
            start,
            end,
        })
    }

    /// The keys of a leaf in order, and its damaged records before them. `None`: a record whose key
    /// can't be read was another one by then, as its slot tells.
    fn entries(&self, leaf: &Located<Way>) -> Result<Option<Vec<Result<Entry>>>> {
        let mem = self.ground.mem();
        let mut slots = Vec::with_capacity(64);
        for line in 1..=self.cut.lines() {
            let start = leaf.line(line);
            let words: [u64; 8] = mem.read(start);
            for (nth, &word) in words.iter().enumerate() {
                if Slot(word).is_seen() {
                    mem.prefetch_if_there(Slot(word).place());
                    slots.push((start + nth as u64 * 8, Slot(word)));
                }
            }
        }
        let mut entries = Vec::with_capacity(slots.len());
        for (at, slot) in slots {
            entries.push(match self.key_in(slot)? {
                Some(key) => Ok(Entry {
                    key,
                    leaf: *leaf,
                    at,
                    slot: slot.with_state(STATE_LIVE),
                }),
                None => {
                    // A delete leaves the sequence as it is, and its place is used again at once.
                    mem.acquire();
                    let now = Slot(mem.load_cached(at)).with_state(STATE_LIVE);
                    if now != slot.with_state(STATE_LIVE) {
                        return Ok(None);
                    }
                    corrupt(slot.place())
                }
            });
        }
        let key = |entry: &Result<Entry>| entry.as_ref().ok().map(|entry| entry.key.clone());
        entries.sort_by(|one, other| match (one, other) {
            (Ok(one), Ok(other)) => one.key.cmp(&other.key),
            _ => key(one).cmp(&key(other)),
        });
        Ok(Some(entries))
    }

    /// The value of a key that was read a while ago; `None`: it is gone.
    fn value_of(&self, entry: &Entry) -> Result<Option<Vec<u8>>> {
        self.ground.enter()?;
        let (mem, slot) = (self.ground.mem(), entry.slot);
        let mut value = Vec::new();
        let place = slot.place();
        let seen = record::read(self.ground, place, slot.instance(), &entry.key, &mut value)?;
        mem.acquire();
        let is_same = mem.load_cached(entry.at) == slot.0 && ByKey::is_still(self, &entry.leaf);
        match seen {
            Seen::Same(head) if is_same => Ok((!self.is_expired(&head)).then_some(value)),
            _ => self.get(&entry.key),
        }
    }
}

impl Range<'_, '_> {
    fn is_before(&self, key: &[u8]) -> bool {
        match &self.start {
            Bound::Included(start) => key < &start[..],
            Bound::Excluded(start) => key <= &start[..],
            Bound::Unbounded => false,
        }
    }

    fn is_behind(&self, key: &[u8]) -> bool {
        match &self.end {
            Bound::Included(end) => key > &end[..],
            Bound::Excluded(end) => key >= &end[..],
            Bound::Unbounded => false,
        }
    }

    /// Reads the next leaf from the front; `false`: there is none.
    fn read_front(&mut self) -> Result<bool> {
        let Some(at) = self.front_at.take() else {
            return Ok(false);
        };
        // A leaf that begins with an excluded start may have keys of the range all the same.
        let starts_here = matches!(&self.start, Bound::Excluded(start) if *start == at);
        if self.is_behind(&at) && !starts_here {
            return Ok(false);
        }
        let read = self.tree.read_leaf(Seek::At(&at))?;
        self.front = read.entries.into();
        self.front_at = read.end;
        Ok(true)
    }

    /// Reads the next leaf from the back; `false`: there is none.
    fn read_back(&mut self) -> Result<bool> {
        let read = match std::mem::replace(&mut self.back_at, Before::Nothing) {
            Before::At(key) => self.tree.read_leaf(Seek::At(&key))?,
            // No key of the range is below its start.
            Before::Below(key) if key.is_empty() || self.is_before(&key) => return Ok(false),
            Before::Below(key) => self.tree.read_leaf(Seek::Below(&key))?,
            Before::Last => self.tree.read_leaf(Seek::Last)?,
            Before::Nothing => return Ok(false),
        };
        self.back = read.entries.into();
        self.back_at = Before::Below(read.start);
        Ok(true)
    }

    /// The next one from an end; `None`: that was all.
    fn step(&mut self, is_front: bool) -> Option<Result<(Vec<u8>, Vec<u8>)>> {
        loop {
            let next = match is_front {
                true => self.front.pop_front(),
                false => self.back.pop_back(),
            };
            let Some(next) = next else {
                let read = match is_front {
                    true => self.read_front(),
                    false => self.read_back(),
                };
                match read {
                    Ok(true) => continue,
                    Ok(false) => return None,
                    Err(error) => {
                        self.is_over = true;
                        return Some(Err(error));
                    }
                }
            };
            let entry = match next {
                Ok(entry) => entry,
                Err(error) => return Some(Err(error)),
            };
            let (is_before, is_behind) = (self.is_before(&entry.key), self.is_behind(&entry.key));
            if is_front && is_behind || !is_front && is_before {
                return None;
            }
            if is_before || is_behind {
                continue;
            }
            let bound = if is_front {
                &mut self.start
            } else {
                &mut self.end
            };
            leave_out(bound, &entry.key);
            match self.tree.value_of(&entry) {
                Ok(Some(value)) => return Some(Ok((entry.key, value))),
                // A key that is gone by now does not come.
                Ok(None) => {}
                Err(error) => return Some(Err(error)),
            }
        }
    }
}

impl Iterator for Range<'_, '_> {
    type Item = Result<(Vec<u8>, Vec<u8>)>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.is_over {
            return None;
        }
        let step = self.step(true);
        self.is_over |= step.is_none();
        step
    }
}

impl DoubleEndedIterator for Range<'_, '_> {
    fn next_back(&mut self) -> Option<Self::Item> {
        if self.is_over {
            return None;
        }
        let step = self.step(false);
        self.is_over |= step.is_none();
        step
    }
}

impl FusedIterator for Range<'_, '_> {}

#[cfg(test)]
mod tests {
    use super::behind;

    #[test]
    fn the_key_behind_a_prefix() {
        assert_eq!(behind(b"ab").unwrap(), b"ac");
        assert_eq!(behind(b"a\xff\xff").unwrap(), b"b");
        assert_eq!(behind(b"\xff"), None);
        assert_eq!(behind(b""), None);
    }
}
