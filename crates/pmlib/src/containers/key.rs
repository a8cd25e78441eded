//! Keys of maps and trees.
//!
//! A key is of a fixed size and kept in an entry, or it is a [`PStr`], whose text is kept too. A
//! call names a key by a value, or by a `str`.

use std::cmp::Ordering;

use crate::containers::PStr;
use crate::error::Result;
use crate::pointer::RawP;
use crate::safe::PmSafe;
use crate::tx::Tx;
use crate::view::View;

/// A type of keys: integers, arrays of them, structs that are `PmSafe` and `Ord`, and [`PStr`].
///
/// A map compares the bytes of keys, and a tree takes the order of their type. An order that is
/// none, or that changes, makes a tree lose keys, and nothing else.
///
/// ```compile_fail,E0277
/// # let heap = pmlib::Heap::private(1 << 20, &pmlib::Options::default())?;
/// let by_weight = heap.root::<pmlib::containers::PMap<f64, u64>>("by weight")?;
/// heap.at(by_weight).insert(&1.5, 3)?;
/// # Ok::<_, pmlib::Error>(())
/// ```
///
/// Numbers with an order do:
///
/// ```
/// # let heap = pmlib::Heap::private(1 << 20, &pmlib::Options::default())?;
/// let by_weight = heap.root::<pmlib::containers::PMap<i32, u64>>("by weight")?;
/// heap.at(by_weight).insert(&15, 3)?;
/// # Ok::<_, pmlib::Error>(())
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` can't be a key",
    label = "its values have no order, or it can't be kept in a heap",
    note = "take integers of a fixed width, arrays of them, `PStr`, or structs of these with \
            `#[derive(PmSafe, PartialEq, Eq, PartialOrd, Ord)]`"
)]
pub trait Key: PmSafe + Sized {
    /// The name by which a call knows a key: the type itself, or `str`.
    type Name: ?Sized;
    /// A key as an iterator gives it: the type itself, or `String`.
    type Read;

    /// The name of a key that was read.
    #[doc(hidden)]
    fn name(read: &Self::Read) -> &Self::Name;

    /// A copy of a name.
    #[doc(hidden)]
    fn copy(name: &Self::Name) -> Self::Read;

    /// The bytes that a name stands for.
    #[doc(hidden)]
    fn bytes(name: &Self::Name) -> &[u8];

    /// The order in trees.
    #[doc(hidden)]
    fn order(a: &Self::Name, b: &Self::Name) -> Ordering;

    /// Makes a key, to be kept.
    #[doc(hidden)]
    fn make(tx: &mut Tx<'_>, name: &Self::Name) -> Result<Self>;

    /// Makes a key that is above `left` and at most `right`, to be kept.
    #[doc(hidden)]
    fn between(tx: &mut Tx<'_>, left: &Self::Name, right: &Self::Name) -> Result<Self>;

    /// The object that a key which stands at `at` has for itself, if it has one.
    #[doc(hidden)]
    fn owned(&self, at: RawP) -> Result<Option<RawP>>;

    /// A key that stands at `at`.
    #[doc(hidden)]
    fn read(&self, view: &View<'_>, at: RawP) -> Result<Self::Read>;

    /// The order of a key that stands at `at`, and a name, in trees.
    #[doc(hidden)]
    fn compare(&self, view: &View<'_>, at: RawP, name: &Self::Name) -> Result<Ordering>;

    /// The order of their bytes.
    #[doc(hidden)]
    fn compare_bytes(&self, view: &View<'_>, at: RawP, name: &Self::Name) -> Result<Ordering>;
}

impl<T: PmSafe + Ord> Key for T {
    type Name = T;
    type Read = T;

    fn name(read: &T) -> &T {
        read
    }

    fn copy(name: &T) -> T {
        // A value has as many bytes as its type.
        T::read_from_bytes(name.as_bytes()).unwrap_or_else(|_| T::new_zeroed())
    }

    fn bytes(name: &T) -> &[u8] {
        name.as_bytes()
    }

    fn order(a: &T, b: &T) -> Ordering {
        a.cmp(b)
    }

    fn make(_tx: &mut Tx<'_>, name: &T) -> Result<T> {
        Ok(T::copy(name))
    }

    fn between(_tx: &mut Tx<'_>, _left: &T, right: &T) -> Result<T> {
        Ok(T::copy(right))
    }

    fn owned(&self, _at: RawP) -> Result<Option<RawP>> {
        Ok(None)
    }

    fn read(&self, _view: &View<'_>, _at: RawP) -> Result<T> {
        Ok(T::copy(self))
    }

    fn compare(&self, _view: &View<'_>, _at: RawP, name: &T) -> Result<Ordering> {
        Ok(self.cmp(name))
    }

    fn compare_bytes(&self, _view: &View<'_>, _at: RawP, name: &T) -> Result<Ordering> {
        Ok(self.as_bytes().cmp(name.as_bytes()))
    }
}

impl Key for PStr {
    type Name = str;
    type Read = String;

    fn name(read: &String) -> &str {
        read
    }

    fn copy(name: &str) -> String {
        name.to_owned()
    }

    fn bytes(name: &str) -> &[u8] {
        name.as_bytes()
    }

    fn order(a: &str, b: &str) -> Ordering {
        a.cmp(b)
    }

    fn make(tx: &mut Tx<'_>, name: &str) -> Result<PStr> {
        tx.new_str(name)
    }

    /// The shortest beginning of `right` that does.
    fn between(tx: &mut Tx<'_>, left: &str, right: &str) -> Result<PStr> {
        let ends = right.char_indices().map(|(at, c)| at + c.len_utf8());
        let mut beginnings = ends.map(|end| &right[..end]);
        let shortest = beginnings.find(|&beginning| beginning > left);
        tx.new_str(shortest.unwrap_or(right))
    }

    fn owned(&self, at: RawP) -> Result<Option<RawP>> {
        self.object(at)
    }

    fn read(&self, view: &View<'_>, at: RawP) -> Result<String> {
        self.read_at(view, at)
    }

    fn compare(&self, view: &View<'_>, at: RawP, name: &str) -> Result<Ordering> {
        self.order_at(view, at, name)
    }

    fn compare_bytes(&self, view: &View<'_>, at: RawP, name: &str) -> Result<Ordering> {
        self.order_at(view, at, name)
    }
}
