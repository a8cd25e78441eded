//! A tree: a value for each key, in the order of the keys.
//!
//! - A B+ tree. Keys and values stand in leaves; a node above them has keys that tell its children
//!   apart: those on the right of one are not less than it.
//! - A put without a split changes an entry, the bytes that tell the order, and the head. A full
//!   node is split, and one with few entries joined with a neighbour or filled up from it, in the
//!   same transaction.
//! - Leaves do not lead to each other. An iterator goes down from the root again for each leaf, to
//!   where the last key it gave would be.

use std::ops::{Bound, RangeBounds};

use pmlib_format::container::{TREE_LEVELS_MAX, TREE_SLOTS_MAX, TREE_SLOTS_MIN, TreeRaw};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

use crate::containers::key::Key;
use crate::containers::node::{HEAD, NODE, Node, Shape, child_of, entry_of, key_of, test_head};
use crate::containers::range::{Range, first_in, last_in};
use crate::containers::{At, Of, PStr, Within, damaged};
use crate::error::{Result, inside};
use crate::pointer::RawP;
use crate::safe::{PmSafe, mix, of_text};
use crate::tx::Tx;
use crate::typed::Field;
use crate::view::View;

/// The head of a tree of `K`s and `V`s; its calls are those of [`At`]. Keys are named by reference:
/// `&K`, or `&str` where `K` is `PStr`.
///
/// ```
/// # use pmlib::{Error, Heap, Options};
/// # use pmlib::containers::{PStr, PTree};
/// let heap = Heap::private(1 << 20, &Options::default())?;
/// let ages = heap.root::<PTree<PStr, u64>>("ages")?;
/// for (name, age) in [("Bob", 7), ("Ann", 41), ("Bea", 30)] {
///     heap.at(ages).insert(name, age)?;
/// }
/// assert_eq!(heap.at(ages).first()?, Some(("Ann".to_owned(), 41)));
/// let of_b: Result<Vec<_>, Error> = heap.at(ages).prefix("B").collect();
/// assert_eq!(of_b?, [("Bea".to_owned(), 30), ("Bob".to_owned(), 7)]);
/// # Ok::<_, Error>(())
/// ```
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(transparent)]
pub struct PTree<K, V> {
    raw: TreeRaw,
    of: Of<(K, V)>,
}

impl<K, V> PTree<K, V> {
    /// An empty one.
    #[must_use]
    pub fn new() -> PTree<K, V> {
        PTree::new_zeroed()
    }

    /// An empty one whose nodes have room for so many entries, 4 to 30.
    #[must_use]
    pub fn with_slots(slots: usize) -> PTree<K, V> {
        let slots = slots.clamp(TREE_SLOTS_MIN, TREE_SLOTS_MAX) as u32;
        PTree {
            raw: TreeRaw {
                slots,
                ..TreeRaw::new_zeroed()
            },
            of: Of::default(),
        }
    }
}

impl<K, V> Default for PTree<K, V> {
    fn default() -> PTree<K, V> {
        PTree::new()
    }
}

impl<K: Key, V: PmSafe> PmSafe for PTree<K, V> {
    const FINGERPRINT: u64 = mix(mix(of_text("PTree"), K::FINGERPRINT), V::FINGERPRINT);

    /// Shows its root's node; what entries point to is not seen from here.
    fn trace(&self, visit: &mut dyn FnMut(RawP)) {
        if self.raw.root != 0 {
            visit(RawP(self.raw.root));
        }
    }
}

/// A head, whose numbers can be.
pub(super) fn head<K: Key, V: PmSafe>(
    view: &View<'_>,
    place: Field<PTree<K, V>>,
) -> Result<TreeRaw> {
    let raw = view.read(place)?.raw;
    test_head(view, &raw, place.place())?;
    Ok(raw)
}

fn write_head<K: Key, V: PmSafe>(
    tx: &mut Tx<'_>,
    place: Field<PTree<K, V>>,
    raw: TreeRaw,
) -> Result<()> {
    if planted!("bug-tree-root-before-record") {
        let _window = tx.core().mem.window();
        tx.core().mem.store(place.place().0, raw.root);
        tx.core().mem.flush(place.place().0, 8);
    }
    let of = Of::<(K, V)>::default();
    tx.write(place, &PTree { raw, of })
}

/// Goes down from the root; `pick` chooses children. Answers the leaf.
pub(super) fn down<K: Key, V: PmSafe>(
    view: &View<'_>,
    raw: &TreeRaw,
    at: RawP,
    mut pick: impl FnMut(&Node) -> Result<usize>,
    mut passed: impl FnMut(Node, usize),
) -> Result<Node> {
    let (mut offset, mut named_at) = (raw.root, at.0);
    for level in (1..raw.levels).rev() {
        let node = Node::read(view, offset, Shape::of::<K, V>(raw, level), level, named_at)?;
        let nth = pick(&node)?;
        (offset, named_at) = (node.child::<K>(view, nth)?, node.offset);
        passed(node, nth);
    }
    Node::read(view, offset, Shape::of::<K, V>(raw, 0), 0, named_at)
}

/// The child that has a key, if any has.
fn child_with<K: Key>(view: &View<'_>, node: &Node, name: &K::Name) -> Result<usize> {
    let (less, is_there) = node.search::<K>(view, name)?;
    Ok(less + usize::from(is_there))
}

/// Nodes above a leaf, each with the child that was taken.
type Path = Vec<(Node, usize)>;

/// A key's leaf and the way to it; the key's place in it, or where it would be, and whether it is
/// there.
fn find<K: Key, V: PmSafe>(
    view: &View<'_>,
    raw: &TreeRaw,
    at: RawP,
    name: &K::Name,
    passed: impl FnMut(Node, usize),
) -> Result<(Node, usize, bool)> {
    let pick = |node: &Node| child_with::<K>(view, node, name);
    let leaf = down::<K, V>(view, raw, at, pick, passed)?;
    let (nth, is_there) = leaf.search::<K>(view, name)?;
    Ok((leaf, nth, is_there))
}

/// The leaf with a key and the key's place in it; `None`: it is not there.
fn entry_with<K: Key, V: PmSafe>(
    view: &View<'_>,
    place: Field<PTree<K, V>>,
    name: &K::Name,
) -> Result<Option<(Node, usize)>> {
    let raw = head(view, place)?;
    if raw.levels == 0 {
        return Ok(None);
    }
    let (leaf, nth, is_there) = find::<K, V>(view, &raw, place.place(), name, |_, _| {})?;
    Ok(is_there.then_some((leaf, nth)))
}

/// A key's value; `None`: the key is not there.
pub(super) fn value_of<K: Key, V: PmSafe>(
    view: &View<'_>,
    place: Field<PTree<K, V>>,
    name: &K::Name,
) -> Result<Option<V>> {
    let found = entry_with(view, place, name)?;
    let value = found.map(|(leaf, nth)| leaf.value::<K, V>(view, nth));
    value.transpose()
}

/// Puts a value in; answers the one that the key had.
pub(super) fn insert<K: Key, V: PmSafe>(
    tx: &mut Tx<'_>,
    place: Field<PTree<K, V>>,
    name: &K::Name,
    value: &V,
) -> Result<Option<V>> {
    let at = place.place();
    let mut raw = head(&View::within(tx), place)?;
    let mut path = Path::new();
    let (leaf, nth) = if raw.levels == 0 {
        let leaf = Node::make(tx, Shape::of::<K, V>(&raw, 0), 0, 0)?;
        (raw.root, raw.levels) = (leaf.offset, 1);
        (leaf, 0)
    } else {
        let view = View::within(tx);
        let passed = |node, nth| path.push((node, nth));
        let (leaf, nth, is_there) = find::<K, V>(&view, &raw, at, name, passed)?;
        if is_there {
            let old = leaf.value::<K, V>(&view, nth)?;
            leaf.set_value::<K, V>(tx, nth, value)?;
            return Ok(Some(old));
        }
        (leaf, nth)
    };
    let key = K::make(tx, name)?;
    let entry = entry_of(&key, value.as_bytes(), leaf.shape.each);
    put::<K, V>(tx, &mut raw, at, path, (leaf, nth), entry)?;
    let Some(len) = raw.len.checked_add(1) else {
        return damaged(HEAD, at);
    };
    raw.len = len;
    write_head(tx, place, raw)?;
    Ok(None)
}

/// Puts an entry into a leaf, and splits what is full on the way up.
fn put<K: Key, V: PmSafe>(
    tx: &mut Tx<'_>,
    raw: &mut TreeRaw,
    at: RawP,
    mut path: Path,
    (mut node, mut nth): (Node, usize),
    mut entry: Vec<u8>,
) -> Result<()> {
    while node.is_full() {
        let is_last = path.iter().all(|(above, nth)| *nth == above.count());
        let is_end = is_last && nth == node.count();
        let (key, right) = split::<K>(tx, &mut node, nth, &entry, is_end)?;
        let shape = Shape::of::<K, V>(raw, node.level() + 1);
        entry = entry_of(&key, &right.to_le_bytes(), shape.each);
        if planted!("bug-tree-separator-forgotten") {
            return Ok(());
        }
        (node, nth) = match path.pop() {
            Some(above) => above,
            None if raw.levels == TREE_LEVELS_MAX => return damaged(HEAD, at),
            None => {
                let root = Node::make(tx, shape, raw.levels, raw.root)?;
                (raw.root, raw.levels) = (root.offset, raw.levels + 1);
                (root, 0)
            }
        };
    }
    node.put(tx, nth, &entry)?;
    node.write(tx)
}

/// Splits a full node and puts an entry in; answers the key that tells the halves apart, and the
/// right one. `is_end`: nothing in the tree is greater, and keys that ascend fill nodes.
fn split<K: Key>(
    tx: &mut Tx<'_>,
    left: &mut Node,
    nth: usize,
    entry: &[u8],
    is_end: bool,
) -> Result<(K, u64)> {
    let (count, level) = (left.count(), left.level());
    let is_leaf = level == 0;
    let kept = match (is_end, is_leaf) {
        (false, _) => count / 2,
        (true, true) => count,
        (true, false) => count - 1,
    };
    // The middle key of a node above the leaves goes up, and its child is the right one's first.
    let mut middle = None;
    let mut right = if is_leaf {
        Node::make(tx, left.shape, 0, 0)?
    } else {
        let bytes = left.entry(&View::within(tx), kept)?;
        middle = Some(key_of::<K>(&bytes)?);
        Node::make(tx, left.shape, level, child_of::<K>(&bytes)?)?
    };
    let from = kept + usize::from(!is_leaf);
    for moved in from..count {
        let bytes = left.entry(&View::within(tx), moved)?;
        right.put(tx, moved - from, &bytes)?;
    }
    left.truncate(kept);
    if planted!("bug-tree-split-drops-an-entry") && right.count() > 1 {
        right.take(0);
    }
    if nth > kept || (is_leaf && is_end) {
        right.put(tx, nth - from, entry)?;
    } else {
        left.put(tx, nth, entry)?;
    }
    left.write(tx)?;
    right.write(tx)?;
    let key = match middle {
        Some(key) => key,
        None => between(tx, left, &right)?,
    };
    Ok((key, right.offset))
}

/// A key that tells two leaves apart.
fn between<K: Key>(tx: &mut Tx<'_>, left: &Node, right: &Node) -> Result<K> {
    let view = View::within(tx);
    let (Some(last), true) = (left.count().checked_sub(1), right.count() > 0) else {
        return damaged(NODE, RawP(left.offset));
    };
    let last = left.read_key::<K>(&view, last)?;
    let first = right.read_key::<K>(&view, 0)?;
    K::between(tx, K::name(&last), K::name(&first))
}

/// Frees what a key that stands at `at` has for itself.
fn free_key<K: Key>(tx: &mut Tx<'_>, key: &K, at: RawP) -> Result<()> {
    match key.owned(at)? {
        Some(object) => inside(tx.free(object), NODE, at.0),
        None => Ok(()),
    }
}

/// Takes a key away; answers its value.
pub(super) fn remove<K: Key, V: PmSafe>(
    tx: &mut Tx<'_>,
    place: Field<PTree<K, V>>,
    name: &K::Name,
) -> Result<Option<V>> {
    let at = place.place();
    let mut raw = head(&View::within(tx), place)?;
    if raw.levels == 0 {
        return Ok(None);
    }
    let mut path = Path::new();
    let (mut node, nth, value, key) = {
        let view = View::within(tx);
        let passed = |node, nth| path.push((node, nth));
        let (leaf, nth, is_there) = find::<K, V>(&view, &raw, at, name, passed)?;
        if !is_there {
            return Ok(None);
        }
        let (value, key) = (leaf.value::<K, V>(&view, nth)?, leaf.key::<K>(&view, nth)?);
        (leaf, nth, value, key)
    };
    free_key(tx, &key, node.key_at(nth))?;
    node.take(nth);
    node.write(tx)?;
    while let Some((above, nth)) = path.pop() {
        if node.count() >= node.shape.least() {
            break;
        }
        node = fill::<K, V>(tx, &raw, above, nth)?;
    }
    if node.offset == raw.root && node.count() == 0 {
        let first = node.child::<K>(&View::within(tx), 0)?;
        inside(tx.free(raw.root), HEAD, at.0)?;
        (raw.root, raw.levels) = (first, raw.levels - 1);
    }
    let Some(len) = raw.len.checked_sub(1) else {
        return damaged(HEAD, at);
    };
    raw.len = len;
    write_head(tx, place, raw)?;
    Ok(Some(value))
}

/// Joins a child that has few entries with a neighbour, or fills it up from there; answers the node
/// above them.
fn fill<K: Key, V: PmSafe>(
    tx: &mut Tx<'_>,
    raw: &TreeRaw,
    mut above: Node,
    nth: usize,
) -> Result<Node> {
    if above.count() == 0 {
        return damaged(NODE, RawP(above.offset));
    }
    let nth = nth.saturating_sub(1);
    let level = above.level() - 1;
    let (mut left, mut right) = {
        let (view, from) = (View::within(tx), above.offset);
        let child = |nth| {
            let offset = above.child::<K>(&view, nth)?;
            Node::read(&view, offset, Shape::of::<K, V>(raw, level), level, from)
        };
        (child(nth)?, child(nth + 1)?)
    };
    if left.offset == right.offset {
        return damaged(NODE, RawP(above.offset));
    }
    let total = left.count() + right.count() + usize::from(level > 0);
    if total <= left.shape.slots {
        join::<K>(tx, &mut above, nth, &mut left, &right)?;
        return Ok(above);
    }
    let key = above.key::<K>(&View::within(tx), nth)?;
    let key = if level == 0 {
        even_leaves(tx, &mut left, &mut right)?;
        free_key(tx, &key, above.key_at(nth))?;
        between(tx, &left, &right)?
    } else {
        even_inner(tx, &mut left, &mut right, key)?
    };
    left.write(tx)?;
    right.write(tx)?;
    above.set_key(tx, nth, &key)?;
    Ok(above)
}

/// Puts all of the right node into the left one.
fn join<K: Key>(
    tx: &mut Tx<'_>,
    above: &mut Node,
    nth: usize,
    left: &mut Node,
    right: &Node,
) -> Result<()> {
    let key = above.key::<K>(&View::within(tx), nth)?;
    if left.level() == 0 {
        free_key(tx, &key, above.key_at(nth))?;
    } else {
        let first = right.child::<K>(&View::within(tx), 0)?;
        let entry = entry_of(&key, &first.to_le_bytes(), left.shape.each);
        left.put(tx, left.count(), &entry)?;
    }
    let skipped = usize::from(planted!("bug-tree-join-drops-an-entry"));
    for moved in skipped..right.count() {
        let entry = right.entry(&View::within(tx), moved)?;
        left.put(tx, left.count(), &entry)?;
    }
    left.write(tx)?;
    inside(tx.free(right.offset), NODE, above.offset)?;
    above.take(nth);
    above.write(tx)
}

/// Moves entries between leaves, until both have about as many.
fn even_leaves(tx: &mut Tx<'_>, left: &mut Node, right: &mut Node) -> Result<()> {
    while left.count() + 1 < right.count() {
        let entry = right.entry(&View::within(tx), 0)?;
        left.put(tx, left.count(), &entry)?;
        right.take(0);
    }
    while right.count() + 1 < left.count() {
        let last = left.count() - 1;
        let entry = left.entry(&View::within(tx), last)?;
        right.put(tx, 0, &entry)?;
        left.truncate(last);
    }
    Ok(())
}

/// The same of nodes above leaves, through the key between them; answers the key that is there
/// then.
fn even_inner<K: Key>(tx: &mut Tx<'_>, left: &mut Node, right: &mut Node, mut key: K) -> Result<K> {
    while left.count() + 1 < right.count() {
        let first = right.child::<K>(&View::within(tx), 0)?;
        let entry = entry_of(&key, &first.to_le_bytes(), left.shape.each);
        left.put(tx, left.count(), &entry)?;
        let moved = right.entry(&View::within(tx), 0)?;
        right.set_first(child_of::<K>(&moved)?);
        right.take(0);
        key = key_of(&moved)?;
    }
    while right.count() + 1 < left.count() {
        let first = right.child::<K>(&View::within(tx), 0)?;
        let entry = entry_of(&key, &first.to_le_bytes(), right.shape.each);
        right.put(tx, 0, &entry)?;
        let last = left.count() - 1;
        let moved = left.entry(&View::within(tx), last)?;
        right.set_first(child_of::<K>(&moved)?);
        left.truncate(last);
        key = key_of(&moved)?;
    }
    Ok(key)
}

/// Takes all entries away, and gives all room back.
pub(super) fn clear<K: Key, V: PmSafe>(tx: &mut Tx<'_>, place: Field<PTree<K, V>>) -> Result<()> {
    let at = place.place();
    let raw = head(&View::within(tx), place)?;
    let mut objects = Vec::new();
    {
        let view = View::within(tx);
        let mut nodes = Vec::new();
        if raw.levels > 0 {
            nodes.push((raw.root, raw.levels - 1, at.0));
        }
        let mut bytes = 0;
        while let Some((offset, level, named_at)) = nodes.pop() {
            let shape = Shape::of::<K, V>(&raw, level);
            let node = Node::read(&view, offset, shape, level, named_at)?;
            // Nodes that lead to one twice would else be gone through without an end.
            bytes += shape.node_bytes();
            if !view.core().has_room_for(bytes) {
                return damaged(NODE, RawP(named_at));
            }
            objects.push(offset);
            for nth in 0..node.count() {
                let owned = node.key::<K>(&view, nth)?.owned(node.key_at(nth))?;
                objects.extend(owned.map(|RawP(offset)| offset));
            }
            for nth in 0..=node.count() {
                if level > 0 {
                    nodes.push((node.child::<K>(&view, nth)?, level - 1, offset));
                }
            }
        }
    }
    // In ascending order a transaction notes them fastest.
    objects.sort_unstable();
    for offset in objects {
        inside(tx.free(offset), NODE, at.0)?;
    }
    let empty = TreeRaw {
        slots: raw.slots,
        ..TreeRaw::new_zeroed()
    };
    write_head(tx, place, empty)
}

impl<W: Within, K: Key, V: PmSafe> At<W, PTree<K, V>> {
    /// Entries.
    ///
    /// # Errors
    /// `NoObject`, `Class`: no such tree; `Damaged`.
    pub fn len(&mut self) -> Result<u64> {
        let place = self.place;
        let raw = self.within.look(place.place(), |view| head(view, place))?;
        Ok(raw.len)
    }

    /// Whether there are none.
    ///
    /// # Errors
    /// Those of [`At::len`].
    pub fn is_empty(&mut self) -> Result<bool> {
        Ok(self.len()? == 0)
    }

    /// A copy of a key's value; `None`: the key is not there.
    ///
    /// # Errors
    /// Those of [`At::len`].
    pub fn get(&mut self, key: &K::Name) -> Result<Option<V>> {
        let place = self.place;
        self.within
            .look(place.place(), |view| value_of(view, place, key))
    }

    /// Whether a key is there.
    ///
    /// # Errors
    /// Those of [`At::len`].
    pub fn contains(&mut self, key: &K::Name) -> Result<bool> {
        let place = self.place;
        self.within.look(place.place(), |view| {
            entry_with(view, place, key).map(|found| found.is_some())
        })
    }

    /// The least key and its value; `None`: there is none.
    ///
    /// # Errors
    /// Those of [`At::len`].
    pub fn first(&mut self) -> Result<Option<(K::Read, V)>> {
        let place = self.place;
        self.within
            .look(place.place(), |view| first_in(view, place))
    }

    /// The greatest key and its value; `None`: there is none.
    ///
    /// # Errors
    /// Those of [`At::len`].
    pub fn last(&mut self) -> Result<Option<(K::Read, V)>> {
        let place = self.place;
        self.within.look(place.place(), |view| last_in(view, place))
    }

    /// Has a key's value be this one; answers the value that it was, `None`: the key is new.
    ///
    /// # Errors
    /// Those of [`At::len`]; `Full`; `Deadlock`.
    pub fn insert(&mut self, key: &K::Name, value: V) -> Result<Option<V>> {
        let place = self.place;
        self.within
            .change(place.place(), |tx| insert(tx, place, key, &value))
    }

    /// Takes a key away; answers its value, `None`: the key was not there.
    ///
    /// # Errors
    /// Those of [`At::insert`].
    pub fn remove(&mut self, key: &K::Name) -> Result<Option<V>> {
        let place = self.place;
        self.within
            .change(place.place(), |tx| remove(tx, place, key))
    }

    /// Changes a key's value by a closure; answers the closure's answer, `None`: the key is not
    /// there.
    ///
    /// # Errors
    /// Those of [`At::insert`].
    pub fn update<R>(
        &mut self,
        key: &K::Name,
        change: impl FnOnce(&mut V) -> R,
    ) -> Result<Option<R>> {
        let place = self.place;
        self.within.change(place.place(), |tx| {
            let Some((leaf, nth)) = entry_with(&View::within(tx), place, key)? else {
                return Ok(None);
            };
            let mut value = leaf.value::<K, V>(&View::within(tx), nth)?;
            let answer = change(&mut value);
            leaf.set_value::<K, V>(tx, nth, &value)?;
            Ok(Some(answer))
        })
    }

    /// Takes all entries away and gives back all room.
    ///
    /// # Errors
    /// Those of [`At::insert`]. A record of so many objects needs room itself: in a full heap it
    /// may find none, and [`At::remove`] does.
    pub fn clear(&mut self) -> Result<()> {
        let place = self.place;
        self.within.change(place.place(), |tx| clear(tx, place))
    }

    /// The entries in the order of their keys, from both ends.
    ///
    /// They are read some at a time, each time as they are at one moment. A key that is there
    /// throughout comes once, and no key twice.
    pub fn iter(self) -> Range<W, K, V> {
        Range::new(self, Bound::Unbounded, Bound::Unbounded)
    }

    /// The entries with keys in a range, like [`At::iter`]: `range(5..9)`, or for texts
    /// `range((Bound::Included("a"), Bound::Excluded("c")))`. One that ends before it begins has
    /// none.
    pub fn range(self, range: impl RangeBounds<K::Name>) -> Range<W, K, V> {
        let copied = |bound: Bound<&K::Name>| bound.map(K::copy);
        let (low, high) = (copied(range.start_bound()), copied(range.end_bound()));
        Range::new(self, low, high)
    }
}

impl<W: Within, V: PmSafe> At<W, PTree<PStr, V>> {
    /// The entries with keys that begin so, like [`At::iter`].
    pub fn prefix(self, beginning: &str) -> Range<W, PStr, V> {
        let end = after_prefix(beginning).map_or(Bound::Unbounded, Bound::Excluded);
        Range::new(self, Bound::Included(beginning.to_owned()), end)
    }
}

/// The first text after all that begin so; `None`: there is none.
fn after_prefix(beginning: &str) -> Option<String> {
    let mut text = beginning.to_owned();
    while let Some(last) = text.pop() {
        // Texts are in the order of their characters' numbers, too.
        if let Some(next) = (last..=char::MAX).nth(1) {
            text.push(next);
            return Some(text);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_ends_before_the_next_text() {
        let after = |text: &str| after_prefix(text);
        assert_eq!(after("ab").as_deref(), Some("ac"));
        assert_eq!(after("a\u{d7ff}").as_deref(), Some("a\u{e000}"));
        assert_eq!(after("a\u{10ffff}\u{10ffff}").as_deref(), Some("b"));
        assert_eq!((after("\u{10ffff}"), after("")), (None, None));
    }
}
