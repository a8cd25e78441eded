//! Entries of a tree in their order, from both ends.

use std::cmp::Ordering;
use std::ops::Bound;

use crate::containers::key::Key;
use crate::containers::node::{NODE, Node};
use crate::containers::tree::{PTree, down, head};
use crate::containers::{At, Within, damaged};
use crate::error::Result;
use crate::pointer::RawP;
use crate::safe::PmSafe;
use crate::typed::Field;
use crate::view::View;

/// The end at which entries are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Front,
    Back,
}

/// Keys, from one bound to another.
struct Bounds<'a, K: Key> {
    low: Bound<&'a K::Name>,
    high: Bound<&'a K::Name>,
}

impl<K: Key> Bounds<'_, K> {
    fn is_above_low(&self, key: &K::Name) -> bool {
        match self.low {
            Bound::Unbounded => true,
            Bound::Included(low) => K::order(key, low) != Ordering::Less,
            Bound::Excluded(low) => K::order(key, low) == Ordering::Greater,
        }
    }

    fn is_below_high(&self, key: &K::Name) -> bool {
        match self.high {
            Bound::Unbounded => true,
            Bound::Included(high) => K::order(key, high) != Ordering::Greater,
            Bound::Excluded(high) => K::order(key, high) == Ordering::Less,
        }
    }
}

/// Entries that were read, in their order.
type Batch<K, V> = Vec<(<K as Key>::Read, V)>;

/// A leaf, and the keys that all of its own are between: at least the one, less than the other.
struct Leaf<K: Key> {
    node: Node,
    least: Option<K::Read>,
    end: Option<K::Read>,
}

/// How many keys of a node are before a bound that stands at this end.
fn before<K: Key>(view: &View<'_>, node: &Node, bound: Bound<&K::Name>, end: End) -> Result<usize> {
    let (name, counts_itself) = match (bound, end) {
        (Bound::Unbounded, End::Front) => return Ok(0),
        (Bound::Unbounded, End::Back) => return Ok(node.count()),
        (Bound::Included(name), _) => (name, end == End::Back),
        (Bound::Excluded(name), _) => (name, end == End::Front),
    };
    let (less, is_there) = node.search::<K>(view, name)?;
    Ok(less + usize::from(is_there && counts_itself))
}

/// The leaf in which the first or last key in some bounds is, or would be.
fn leaf<K: Key, V: PmSafe>(
    view: &View<'_>,
    place: Field<PTree<K, V>>,
    bound: Bound<&K::Name>,
    end: End,
) -> Result<Option<Leaf<K>>> {
    let raw = head(view, place)?;
    if raw.levels == 0 {
        return Ok(None);
    }
    let mut fences = (None, None);
    let pick = |node: &Node| {
        let nth = match (bound, end) {
            // A key that tells children apart is the right one's.
            (Bound::Included(name), _) | (Bound::Excluded(name), End::Front) => {
                let (less, is_there) = node.search::<K>(view, name)?;
                less + usize::from(is_there)
            }
            _ => before::<K>(view, node, bound, end)?,
        };
        if let Some(left) = nth.checked_sub(1) {
            fences.0 = Some(node.read_key::<K>(view, left)?);
        }
        if nth < node.count() {
            fences.1 = Some(node.read_key::<K>(view, nth)?);
        }
        Ok(nth)
    };
    let node = down::<K, V>(view, &raw, place.place(), pick, |_, _| {})?;
    let (least, end) = fences;
    Ok(Some(Leaf { node, least, end }))
}

/// The entries of one leaf that are next at an end.
fn batch<K: Key, V: PmSafe>(
    view: &View<'_>,
    place: Field<PTree<K, V>>,
    bounds: &Bounds<'_, K>,
    end: End,
) -> Result<Batch<K, V>> {
    let bound = match end {
        End::Front => bounds.low,
        End::Back => bounds.high,
    };
    let Some(here) = leaf(view, place, bound, end)? else {
        return Ok(Vec::new());
    };
    let nth = before::<K>(view, &here.node, bound, end)?;
    let is_used_up = match end {
        End::Front => nth == here.node.count(),
        End::Back => nth == 0,
    };
    if !is_used_up {
        return entries(view, &here, nth, bounds, end);
    }
    // The next one's keys are on the other side of what tells the two apart.
    let fence = match end {
        End::Front => here.end.as_ref().map(|key| Bound::Included(K::name(key))),
        End::Back => here.least.as_ref().map(|key| Bound::Excluded(K::name(key))),
    };
    let Some(fence) = fence else {
        return Ok(Vec::new());
    };
    let Some(next) = leaf(view, place, fence, end)? else {
        return damaged(NODE, RawP(here.node.offset));
    };
    let nth = before::<K>(view, &next.node, fence, end)?;
    let is_used_up = match end {
        End::Front => nth != 0 || next.node.count() == 0,
        End::Back => nth != next.node.count() || nth == 0,
    };
    if is_used_up || next.node.offset == here.node.offset {
        return damaged(NODE, RawP(next.node.offset));
    }
    entries(view, &next, nth, bounds, end)
}

/// The entries of a leaf from a place on, or before it, that are in some bounds.
fn entries<K: Key, V: PmSafe>(
    view: &View<'_>,
    leaf: &Leaf<K>,
    nth: usize,
    bounds: &Bounds<'_, K>,
    end: End,
) -> Result<Batch<K, V>> {
    let node = &leaf.node;
    let places = match end {
        End::Front => nth..node.count(),
        End::Back => 0..nth,
    };
    let mut read: Batch<K, V> = Vec::with_capacity(places.len());
    for nth in places {
        let key = node.read_key::<K>(view, nth)?;
        let name = K::name(&key);
        let is_after = |other: &K::Read| K::order(K::name(other), name) == Ordering::Less;
        let is_at_least = |other: &K::Read| K::order(K::name(other), name) != Ordering::Greater;
        let can_be = leaf.least.as_ref().is_none_or(is_at_least)
            && !leaf.end.as_ref().is_some_and(is_at_least)
            && read.last().is_none_or(|(other, _)| is_after(other));
        let (above, below) = (bounds.is_above_low(name), bounds.is_below_high(name));
        // The bound at this end is where the search began.
        let is_found = match end {
            End::Front => above,
            End::Back => below,
        };
        if !can_be || !is_found {
            return damaged(NODE, RawP(node.offset));
        }
        if above && below {
            read.push((key, node.value::<K, V>(view, nth)?));
        }
    }
    Ok(read)
}

/// The least key of a tree and its value.
pub(super) fn first_in<K: Key, V: PmSafe>(
    view: &View<'_>,
    place: Field<PTree<K, V>>,
) -> Result<Option<(K::Read, V)>> {
    Ok(all(view, place, End::Front)?.into_iter().next())
}

/// The greatest one.
pub(super) fn last_in<K: Key, V: PmSafe>(
    view: &View<'_>,
    place: Field<PTree<K, V>>,
) -> Result<Option<(K::Read, V)>> {
    Ok(all(view, place, End::Back)?.pop())
}

fn all<K: Key, V: PmSafe>(
    view: &View<'_>,
    place: Field<PTree<K, V>>,
    end: End,
) -> Result<Batch<K, V>> {
    let bounds = Bounds {
        low: Bound::Unbounded,
        high: Bound::Unbounded,
    };
    batch(view, place, &bounds, end)
}

/// Entries of a tree, in the order of their keys ([`At::iter`], [`At::range`]).
pub struct Range<W, K: Key, V> {
    at: At<W, PTree<K, V>>,
    /// The last keys that were given, or the bounds.
    low: Bound<K::Read>,
    high: Bound<K::Read>,
    front: std::collections::VecDeque<(K::Read, V)>,
    back: Vec<(K::Read, V)>,
    is_over: bool,
}

impl<W: Within, K: Key, V: PmSafe> Range<W, K, V> {
    pub(super) fn new(
        at: At<W, PTree<K, V>>,
        low: Bound<K::Read>,
        high: Bound<K::Read>,
    ) -> Range<W, K, V> {
        Range {
            at,
            low,
            high,
            front: std::collections::VecDeque::new(),
            back: Vec::new(),
            is_over: false,
        }
    }

    fn bounds(&self) -> Bounds<'_, K> {
        Bounds {
            low: self.low.as_ref().map(K::name),
            high: self.high.as_ref().map(K::name),
        }
    }

    fn refill(&mut self, end: End) -> Result<Batch<K, V>> {
        let place = self.at.place;
        let bounds = Bounds {
            low: self.low.as_ref().map(K::name),
            high: self.high.as_ref().map(K::name),
        };
        self.at
            .within
            .look(place.place(), |view| batch(view, place, &bounds, end))
    }

    /// The next entry at an end. One that the other end has given is the end.
    fn take(&mut self, end: End) -> Result<Option<(K::Read, V)>> {
        if self.is_over {
            return Ok(None);
        }
        let is_used_up = match end {
            End::Front => self.front.is_empty(),
            End::Back => self.back.is_empty(),
        };
        if is_used_up {
            let read = self.refill(end)?;
            match end {
                End::Front => self.front = read.into(),
                End::Back => self.back = read,
            }
        }
        let entry = match end {
            End::Front => self.front.pop_front(),
            End::Back => self.back.pop(),
        };
        let bounds = self.bounds();
        let entry = entry.filter(|(key, _)| {
            bounds.is_above_low(K::name(key)) && bounds.is_below_high(K::name(key))
        });
        let Some((key, value)) = entry else {
            self.is_over = true;
            return Ok(None);
        };
        let given = Bound::Excluded(K::copy(K::name(&key)));
        match end {
            End::Front => self.low = given,
            End::Back => self.high = given,
        }
        Ok(Some((key, value)))
    }

    fn answer(&mut self, end: End) -> Option<Result<(K::Read, V)>> {
        let taken = self.take(end);
        self.is_over |= taken.is_err();
        taken.transpose()
    }
}

impl<W: Within, K: Key, V: PmSafe> Iterator for Range<W, K, V> {
    type Item = Result<(K::Read, V)>;

    fn next(&mut self) -> Option<Result<(K::Read, V)>> {
        self.answer(End::Front)
    }
}

impl<W: Within, K: Key, V: PmSafe> DoubleEndedIterator for Range<W, K, V> {
    fn next_back(&mut self) -> Option<Result<(K::Read, V)>> {
        self.answer(End::Back)
    }
}
