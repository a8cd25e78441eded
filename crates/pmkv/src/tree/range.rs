//! Walks over keys in order, from either end.

use std::iter::FusedIterator;
use std::ops::{Bound, RangeBounds};

use super::leaf::Leaf;
use super::listed::{Come, Next};
use super::{Seek, Tree, corrupt};
use crate::error::Result;
use crate::iter::Walking;
use crate::record::LONG;

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
    front: Leaf,
    back: Leaf,
    /// Keys that have come last, as long as the bounds don't leave them out.
    front_last: Last,
    back_last: Last,
    /// All keys of the leaf are within the bounds.
    is_front_inside: bool,
    is_back_inside: bool,
    /// A value that is not in a leaf's buffer.
    value: Vec<u8>,
    is_over: bool,
    /// How often keys have moved in a leaf since one was shown.
    moved: u32,
}

/// The record that a walk has come to from an end.
#[derive(Debug, Default)]
struct Last {
    come: Come,
    /// It was shown, and no bound leaves it out yet.
    is_noted: bool,
}

/// Moves of keys after which all of a leaf is read at once.
const MOVES: u32 = 3;

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

fn is_before(start: &Bound<Vec<u8>>, key: &[u8]) -> bool {
    match start {
        Bound::Included(start) => key < &start[..],
        Bound::Excluded(start) => key <= &start[..],
        Bound::Unbounded => false,
    }
}

fn is_behind(end: &Bound<Vec<u8>>, key: &[u8]) -> bool {
    match end {
        Bound::Included(end) => key > &end[..],
        Bound::Excluded(end) => key >= &end[..],
        Bound::Unbounded => false,
    }
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
    /// All keys with their values, in order. A value comes as it is when its key is come to. A key
    /// that is there throughout comes once, and none comes twice. A damaged record comes as
    /// `Corrupt`, and the others behind it.
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
        self.ground.count_walk();
        Range {
            tree: self,
            start,
            end,
            front_at: Some(front_at),
            back_at,
            front: Leaf::default(),
            back: Leaf::default(),
            front_last: Last::default(),
            back_last: Last::default(),
            is_front_inside: false,
            is_back_inside: false,
            value: Vec::new(),
            is_over: false,
            moved: 0,
        }
    }
}

impl Range<'_, '_> {
    /// Reads the next leaf from the front; `false`: there is none.
    fn read_front(&mut self) -> Result<bool> {
        let Some(at) = self.front_at.take() else {
            return Ok(false);
        };
        // A leaf that begins with an excluded start may have keys of the range all the same.
        let starts_here = matches!(&self.start, Bound::Excluded(start) if *start == at);
        if is_behind(&self.end, &at) && !starts_here {
            return Ok(false);
        }
        self.read(Seek::At(&at), true)?;
        self.front_at = self.front.end.take();
        Ok(true)
    }

    /// Reads the next leaf from the back; `false`: there is none.
    fn read_back(&mut self) -> Result<bool> {
        match std::mem::replace(&mut self.back_at, Before::Nothing) {
            Before::At(key) => self.read(Seek::At(&key), false)?,
            // No key of the range is below its start.
            Before::Below(key) if key.is_empty() || is_before(&self.start, &key) => {
                return Ok(false);
            }
            Before::Below(key) => self.read(Seek::Below(&key), false)?,
            Before::Last => self.read(Seek::Last, false)?,
            Before::Nothing => return Ok(false),
        }
        self.back_at = Before::Below(self.back.start.clone());
        Ok(true)
    }

    /// Reads the leaf that is sought from an end, record by record if that can be.
    fn read(&mut self, seek: Seek<'_>, is_front: bool) -> Result<()> {
        let (tree, start, end) = (self.tree, &self.start, &self.end);
        let (leaf, is_inside) = match is_front {
            true => (&mut self.front, &mut self.is_front_inside),
            false => (&mut self.back, &mut self.is_back_inside),
        };
        if self.moved < MOVES && tree.list_leaf(seek, leaf)? {
            let is_from_start = !is_before(start, &leaf.start);
            let is_to_end = match &leaf.end {
                Some(behind) => !is_behind(end, behind),
                None => matches!(end, Bound::Unbounded),
            };
            let is_parted = match is_front {
                true => {
                    *is_inside = is_to_end;
                    is_from_start || tree.part_listed(leaf, true, |key| is_before(start, key))?
                }
                false => {
                    *is_inside = is_from_start;
                    is_to_end || tree.part_listed(leaf, false, |key| !is_behind(end, key))?
                }
            };
            if is_parted {
                return Ok(());
            }
        }
        tree.read_leaf(seek, leaf)?;
        *is_inside = leaf
            .ends()
            .is_some_and(|(least, greatest)| !is_before(start, least) && !is_behind(end, greatest));
        Ok(())
    }

    /// Has the leaf of the last key from an end be read anew.
    #[cold]
    fn seek_again(&mut self, is_front: bool) {
        self.note_last(is_front);
        self.moved += 1;
        match is_front {
            true => {
                self.front.clear();
                self.front_at = Some(match &self.start {
                    Bound::Included(key) | Bound::Excluded(key) => key.clone(),
                    Bound::Unbounded => Vec::new(),
                });
            }
            false => {
                self.back.clear();
                self.back_at = match &self.end {
                    Bound::Included(key) => Before::At(key.clone()),
                    Bound::Excluded(key) => Before::Below(key.clone()),
                    Bound::Unbounded => Before::Last,
                };
            }
        }
    }

    /// Leaves out, at one end, what has come from there; the other end is to look again what is
    /// within.
    #[inline]
    fn note_last(&mut self, is_front: bool) {
        let is_noted = match is_front {
            true => self.front_last.is_noted,
            false => self.back_last.is_noted,
        };
        if is_noted {
            self.leave_last_out(is_front);
        }
    }

    fn leave_last_out(&mut self, is_front: bool) {
        match is_front {
            true => {
                leave_out(&mut self.start, self.front.key(&self.front_last.come));
                (self.front_last.is_noted, self.is_back_inside) = (false, false);
            }
            false => {
                leave_out(&mut self.end, self.back.key(&self.back_last.come));
                (self.back_last.is_noted, self.is_front_inside) = (false, false);
            }
        }
    }

    /// Reads the next leaf from an end; `false`: there is none.
    fn read_next(&mut self, is_front: bool) -> Result<bool> {
        self.note_last(is_front);
        match is_front {
            true => self.read_front(),
            false => self.read_back(),
        }
    }

    /// The next record of the leaf at an end.
    #[inline(always)]
    fn pop<const FRONT: bool>(&mut self) -> Result<Next> {
        let (leaf, last) = match FRONT {
            true => (&mut self.front, &mut self.front_last),
            false => (&mut self.back, &mut self.back_last),
        };
        match leaf.listed.is_on {
            true => self.tree.pop_listed::<FRONT>(leaf, &mut last.come),
            false => Ok(leaf.pop::<FRONT>(&mut last.come)),
        }
    }

    /// Comes to the next one from an end; whether its value is in the leaf's buffer. `None`: that
    /// was all.
    #[inline]
    fn step<const FRONT: bool>(&mut self) -> Option<Result<bool>> {
        self.note_last(!FRONT);
        loop {
            if let Err(error) = self.tree.ground.enter() {
                return Some(Err(error.into()));
            }
            match self.pop::<FRONT>() {
                Ok(Next::One) => {}
                Ok(Next::Gone) => continue,
                Ok(Next::Damaged(offset)) => return Some(corrupt(offset)),
                Ok(Next::Moved) => {
                    self.seek_again(FRONT);
                    continue;
                }
                Ok(Next::Over) => match self.read_next(FRONT) {
                    Ok(true) => continue,
                    Ok(false) => return None,
                    Err(error) => {
                        self.is_over = true;
                        return Some(Err(error));
                    }
                },
                Err(error) => return Some(Err(error)),
            }
            let (leaf, last, is_inside) = match FRONT {
                true => (&self.front, &mut self.front_last, self.is_front_inside),
                false => (&self.back, &mut self.back_last, self.is_back_inside),
            };
            if !is_inside {
                let key = leaf.key(&last.come);
                let (before, behind) = (is_before(&self.start, key), is_behind(&self.end, key));
                if FRONT && behind || !FRONT && before {
                    return None;
                }
                if before || behind {
                    continue;
                }
            }
            last.is_noted = true;
            self.moved = 0;
            let come = &last.come;
            let has_value = come.shown.value_len != LONG;
            if has_value && (leaf.listed.is_on || self.tree.is_as_read(leaf, come)) {
                if come.shown.expires.is_some_and(|at| self.tree.is_past(at)) {
                    continue;
                }
                return Some(Ok(true));
            }
            match self.tree.value_of(leaf, come, &mut self.value) {
                Ok(Some(())) => return Some(Ok(false)),
                // A key that is gone by now does not come.
                Ok(None) => {}
                Err(error) => return Some(Err(error)),
            }
        }
    }

    /// The next entry from an end, where it was read.
    #[inline]
    fn shown<const FRONT: bool>(&mut self) -> Option<Result<(&[u8], &[u8])>> {
        if self.is_over {
            return None;
        }
        let step = self.step::<FRONT>();
        self.is_over |= step.is_none();
        let (leaf, come) = match FRONT {
            true => (&self.front, &self.front_last.come),
            false => (&self.back, &self.back_last.come),
        };
        Some(step?.map(|is_near| {
            let value = match is_near {
                true => leaf.value(come),
                false => &self.value,
            };
            self.tree.ground.count_shown(value.len() as u64);
            (leaf.key(come), value)
        }))
    }

    /// Like [`Iterator::next`], without a copy of its own: key and value are lent until the next
    /// call.
    #[inline]
    pub fn next_ref(&mut self) -> Option<Result<(&[u8], &[u8])>> {
        self.shown::<true>()
    }
}

impl Walking for Range<'_, '_> {
    fn next_ref(&mut self) -> Option<Result<(&[u8], &[u8])>> {
        self.shown::<true>()
    }
}

fn copied(shown: Result<(&[u8], &[u8])>) -> Result<(Vec<u8>, Vec<u8>)> {
    shown.map(|(key, value)| (key.to_vec(), value.to_vec()))
}

impl Iterator for Range<'_, '_> {
    type Item = Result<(Vec<u8>, Vec<u8>)>;

    fn next(&mut self) -> Option<Self::Item> {
        self.shown::<true>().map(copied)
    }
}

impl DoubleEndedIterator for Range<'_, '_> {
    fn next_back(&mut self) -> Option<Self::Item> {
        self.shown::<false>().map(copied)
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
