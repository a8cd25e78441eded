//! Bytes of any length, as a value, as a key, and as what a map or a tree leads to.
//!
//! [`PBytes`] is to `&[u8]` what [`crate::containers::PStr`] is to `&str`. A map or a tree of
//! [`PBytes`] has calls that keep the bytes themselves: they live as long as their entry, and are
//! read as of the same moment.

use std::cmp::Ordering;

use pmlib_format::container::TextRaw;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::containers::key::Key;
use crate::containers::range::Range;
use crate::containers::text::{self, Kept};
use crate::containers::{At, PMap, PTree, Within, map, tree};
use crate::error::Result;
use crate::heap::Heap;
use crate::pointer::RawP;
use crate::safe::{PmSafe, of_text};
use crate::tx::Tx;
use crate::view::View;
use std::ops::Bound;

/// Bytes as a value: made by [`Tx::new_bytes`], read by [`Heap::bytes_of`]. Up to 15 stand in the
/// value itself, more in an object, so that two of the same bytes may differ.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(transparent)]
pub struct PBytes {
    raw: TextRaw,
}

impl PBytes {
    /// At most 15 bytes, which need no object; `None`: they are more.
    #[must_use]
    pub fn short(bytes: &[u8]) -> Option<PBytes> {
        text::short(bytes).map(|raw| PBytes { raw })
    }

    /// How many there are; 0 of a value that is none.
    #[must_use]
    pub fn len(&self) -> u64 {
        text::len(&self.raw)
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn read(&self, view: &View<'_>, at: RawP) -> Result<Vec<u8>> {
        text::read_bytes(view, &self.raw, at)
    }

    /// Their order and that of others; the head stands at `at`.
    fn order_at(&self, view: &View<'_>, at: RawP, other: &[u8]) -> Result<Ordering> {
        match text::kept_at(&self.raw, at)? {
            Kept::Near(bytes, len) => Ok(bytes[..len].cmp(other)),
            Kept::Far(..) => Ok(self.read(view, at)?.as_slice().cmp(other)),
        }
    }
}

impl PmSafe for PBytes {
    const FINGERPRINT: u64 = of_text("PBytes");

    fn trace(&self, visit: &mut dyn FnMut(RawP)) {
        text::trace(&self.raw, visit);
    }
}

impl Heap {
    /// The bytes of a value.
    ///
    /// # Errors
    /// `Damaged`: it is none, or it was freed.
    pub fn bytes_of(&self, value: PBytes) -> Result<Vec<u8>> {
        self.view(|view| view.bytes_of(value))
    }
}

impl View<'_> {
    /// The bytes of a value.
    ///
    /// # Errors
    /// Those of [`Heap::bytes_of`].
    pub fn bytes_of(&self, value: PBytes) -> Result<Vec<u8>> {
        value.read(self, text::place_of(&value.raw))
    }
}

impl Tx<'_> {
    /// Makes a value of bytes, to be kept in what else is kept.
    ///
    /// # Errors
    /// `Full`; `Size`.
    pub fn new_bytes(&mut self, bytes: &[u8]) -> Result<PBytes> {
        let raw = text::make(self, bytes, 0)?;
        Ok(PBytes { raw })
    }

    /// The bytes of a value, with this transaction's changes.
    ///
    /// # Errors
    /// Those of [`Heap::bytes_of`].
    pub fn bytes_of(&self, value: PBytes) -> Result<Vec<u8>> {
        View::within(self).bytes_of(value)
    }

    /// Frees a value's bytes. At most 15 have nothing to be freed.
    ///
    /// # Errors
    /// `Damaged`: it is none, or it was freed.
    pub fn free_bytes(&mut self, value: PBytes) -> Result<()> {
        text::free(self, &value.raw, text::place_of(&value.raw))
    }
}

impl Key for PBytes {
    type Name = [u8];
    type Read = Vec<u8>;

    fn name(read: &Vec<u8>) -> &[u8] {
        read
    }

    fn copy(name: &[u8]) -> Vec<u8> {
        name.to_vec()
    }

    fn bytes(name: &[u8]) -> &[u8] {
        name
    }

    fn order(a: &[u8], b: &[u8]) -> Ordering {
        a.cmp(b)
    }

    fn make(tx: &mut Tx<'_>, name: &[u8]) -> Result<PBytes> {
        tx.new_bytes(name)
    }

    /// The shortest beginning of `right` that does.
    fn between(tx: &mut Tx<'_>, left: &[u8], right: &[u8]) -> Result<PBytes> {
        let same = left
            .iter()
            .zip(right)
            .take_while(|(one, other)| one == other);
        let len = (same.count() + 1).min(right.len());
        tx.new_bytes(&right[..len])
    }

    fn owned(&self, at: RawP) -> Result<Option<RawP>> {
        text::object_of(&self.raw, at)
    }

    fn read(&self, view: &View<'_>, at: RawP) -> Result<Vec<u8>> {
        PBytes::read(self, view, at)
    }

    fn compare(&self, view: &View<'_>, at: RawP, name: &[u8]) -> Result<Ordering> {
        self.order_at(view, at, name)
    }

    fn compare_bytes(&self, view: &View<'_>, at: RawP, name: &[u8]) -> Result<Ordering> {
        self.order_at(view, at, name)
    }
}

/// The first bytes after all that begin so; `None`: there are none.
fn after_prefix(beginning: &[u8]) -> Option<Vec<u8>> {
    let mut bytes = beginning.to_vec();
    while let Some(last) = bytes.pop() {
        if last < u8::MAX {
            bytes.push(last + 1);
            return Some(bytes);
        }
    }
    None
}

impl<W: Within, V: PmSafe> At<W, PTree<PBytes, V>> {
    /// The entries with keys that begin so, like [`At::iter`].
    pub fn prefix(self, beginning: &[u8]) -> Range<W, PBytes, V> {
        let end = after_prefix(beginning).map_or(Bound::Unbounded, Bound::Excluded);
        Range::new(self, Bound::Included(beginning.to_vec()), end)
    }
}

/// Stores new bytes where the old ones are.
pub(super) fn spoil(tx: &Tx<'_>, old: Option<PBytes>, bytes: &[u8]) {
    if let Some(Ok(Some(RawP(offset)))) = old.map(|old| old.owned(RawP(0))) {
        let mem = &tx.core().mem;
        let _window = mem.window();
        mem.write_bytes(offset, bytes);
        mem.flush(offset, bytes.len() as u64);
    }
}

/// The calls of a map and of a tree, which are the same.
macro_rules! with_bytes {
    ($container:ident, $module:ident) => {
        impl<W: Within, K: Key> At<W, $container<K, PBytes>> {
            /// The bytes of a key; `None`: the key is not there.
            ///
            /// # Errors
            /// Those of [`At::get`].
            pub fn get_bytes(&mut self, key: &K::Name) -> Result<Option<Vec<u8>>> {
                let place = self.place;
                self.within.look(place.place(), |view| {
                    let value = $module::value_of(view, place, key)?;
                    value.map(|value| view.bytes_of(value)).transpose()
                })
            }

            /// Has a key's bytes be these; answers whether the key was there. The bytes that it had
            /// are freed.
            ///
            /// # Errors
            /// Those of [`At::insert`]; `Size`.
            pub fn set_bytes(&mut self, key: &K::Name, bytes: &[u8]) -> Result<bool> {
                let place = self.place;
                self.within.change(place.place(), |tx| {
                    if planted!("bug-map-bytes-in-place") {
                        let old = $module::value_of(&View::within(tx), place, key)?;
                        spoil(tx, old.filter(|old| old.len() >= bytes.len() as u64), bytes);
                    }
                    let value = tx.new_bytes(bytes)?;
                    let old = $module::insert(tx, place, key, &value)?;
                    old.map(|old| tx.free_bytes(old)).transpose()?;
                    Ok(old.is_some())
                })
            }

            /// Takes a key away, with its bytes; answers whether it was there.
            ///
            /// # Errors
            /// Those of [`At::insert`].
            pub fn remove_bytes(&mut self, key: &K::Name) -> Result<bool> {
                let place = self.place;
                self.within.change(place.place(), |tx| {
                    let old = $module::remove(tx, place, key)?;
                    old.map(|old| tx.free_bytes(old)).transpose()?;
                    Ok(old.is_some())
                })
            }

            /// Takes all entries away, with their bytes, and gives all room back.
            ///
            /// # Errors
            /// Those of [`At::clear`].
            pub fn clear_bytes(&mut self) -> Result<()> {
                let place = self.place;
                self.within.change(place.place(), |tx| {
                    let values: Result<Vec<PBytes>> = tx
                        .at(place)
                        .iter()
                        .map(|entry| entry.map(|(_, value)| value))
                        .collect();
                    $module::clear(tx, place)?;
                    values?
                        .into_iter()
                        .try_for_each(|value| tx.free_bytes(value))
                })
            }
        }
    };
}

with_bytes!(PMap, map);
with_bytes!(PTree, tree);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_ends_before_the_next_bytes() {
        assert_eq!(after_prefix(b"ab").as_deref(), Some(&b"ac"[..]));
        assert_eq!(after_prefix(&[1, 255, 255]).as_deref(), Some(&[2][..]));
        assert_eq!((after_prefix(&[255, 255]), after_prefix(b"")), (None, None));
    }
}
