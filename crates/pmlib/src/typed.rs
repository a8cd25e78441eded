//! Values of types that may be kept: read, made, edited.
//!
//! No type is stored with an object. A pointer that was made up, or that belongs to another heap,
//! meets an object or none, and the object has room for the type or not; a [`P`] of one value also
//! asks for the type's class of sizes.

use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut, Range};

use pmlib_format::CHUNK_BYTES;
use pmlib_format::chunk::{CLASS_BYTES, class_chunks, class_of};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::error::{Error, Result};
use crate::heap::Heap;
use crate::pointer::{P, RawP};
use crate::safe::PmSafe;
use crate::tx::Tx;
use crate::view::View;

/// Where a `T` lies inside an object: [`field!`](crate::field) makes one, and any [`P<T>`] is one.
pub struct Field<T: ?Sized> {
    object: RawP,
    start: u64,
    /// It is the whole object.
    is_whole: bool,
    of: PhantomData<fn() -> T>,
}

impl<T> Field<T> {
    /// The field of a struct that lies at `p`; for [`field!`](crate::field), which knows `start`.
    /// `_pick` has the compiler compare the types.
    #[doc(hidden)]
    #[must_use]
    pub fn within<S: PmSafe>(
        p: impl Into<Field<S>>,
        start: usize,
        _pick: fn(&S) -> &T,
    ) -> Field<T> {
        let outer = p.into();
        Field {
            object: outer.object,
            start: outer.start.saturating_add(start as u64),
            is_whole: false,
            of: PhantomData,
        }
    }

    /// A place `start` bytes into an object, by the word of a program in another language.
    #[doc(hidden)]
    #[must_use]
    pub fn at(object: RawP, start: u64) -> Field<T> {
        Field {
            object,
            start,
            is_whole: false,
            of: PhantomData,
        }
    }

    /// The object that it is in.
    #[must_use]
    pub fn object(&self) -> RawP {
        self.object
    }

    /// Where it begins in there, bytes.
    #[must_use]
    pub fn start(&self) -> u64 {
        self.start
    }

    /// Where it is in the heap, bytes.
    #[must_use]
    pub fn place(&self) -> RawP {
        RawP(self.object.0.saturating_add(self.start))
    }

    /// The same place, as something of the same size.
    pub(crate) fn cast<U>(self) -> Field<U> {
        const { assert!(size_of::<T>() == size_of::<U>()) };
        Field {
            object: self.object,
            start: self.start,
            is_whole: self.is_whole,
            of: PhantomData,
        }
    }

    /// Whether the object, of so many bytes, can be a `T` and nothing else.
    pub(crate) fn test_class(&self, size: impl FnOnce() -> Result<u64>) -> Result<()> {
        if !self.is_whole {
            return Ok(());
        }
        let (wanted, found) = (const { given_for(size_of::<T>() as u64) }, size()?);
        if wanted == found || is_given_for(size_of::<T>() as u64, found) {
            return Ok(());
        }
        Err(Error::Class {
            offset: self.object.0,
            wanted,
            found,
        })
    }
}

/// Bytes of the object that is given out for `size`.
pub(crate) const fn given_for(size: u64) -> u64 {
    match class_of(size) {
        Some(class) => CLASS_BYTES[class],
        None => size.div_ceil(CHUNK_BYTES) * CHUNK_BYTES,
    }
}

/// Whether an object of `found` bytes may have been given out for `size`: one that shares several
/// chunks has chunks of its own where there were no such chunks.
pub(crate) const fn is_given_for(size: u64, found: u64) -> bool {
    let whole = size.div_ceil(CHUNK_BYTES) * CHUNK_BYTES;
    match class_of(size) {
        Some(class) if class_chunks(class) > 1 => found == CLASS_BYTES[class] || found == whole,
        Some(class) => found == CLASS_BYTES[class],
        None => found == whole,
    }
}

impl<T> From<P<T>> for Field<T> {
    fn from(p: P<T>) -> Field<T> {
        Field {
            object: p.into(),
            start: 0,
            is_whole: true,
            of: PhantomData,
        }
    }
}

impl<T: ?Sized> Clone for Field<T> {
    fn clone(&self) -> Field<T> {
        *self
    }
}

impl<T: ?Sized> Copy for Field<T> {}

impl<T: ?Sized> fmt::Debug for Field<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Field({:#x} + {})", self.object.0, self.start)
    }
}

/// Where a field of a struct lies: `field!(p, Account, balance)` of a `P<Account>`.
///
/// ```
/// # use pmlib::{Error, Heap, Options, PmSafe, field};
/// # use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};
/// #[derive(PmSafe, FromBytes, IntoBytes, Immutable, KnownLayout)]
/// #[repr(C)]
/// struct Account {
///     balance: u64,
///     opened: u64,
/// }
///
/// let heap = Heap::private(1 << 20, &Options::default())?;
/// let account = heap.tx(|tx| tx.new(Account { balance: 5, opened: 2026 }))?;
/// assert_eq!(heap.read(field!(account, Account, opened))?, 2026);
/// # Ok::<_, Error>(())
/// ```
#[macro_export]
macro_rules! field {
    ($p:expr, $of:ty, $field:ident) => {
        $crate::Field::within::<$of>($p, ::core::mem::offset_of!($of, $field), |of: &$of| {
            &of.$field
        })
    };
}

/// A transaction's private copy of a value, to be changed.
///
/// Others see the changes when the transaction has committed.
#[must_use = "nothing is changed by asking for the copy"]
pub struct Edit<'a, T: ?Sized> {
    value: &'a mut T,
}

impl<T: ?Sized> Deref for Edit<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.value
    }
}

impl<T: ?Sized> DerefMut for Edit<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        self.value
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for Edit<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.value.fmt(f)
    }
}

/// A value, by what copies its bytes.
pub(crate) fn read_one<T: PmSafe>(read: impl FnOnce(&mut [u8]) -> Result<()>) -> Result<T> {
    let mut value = T::new_zeroed();
    read(value.as_mut_bytes())?;
    Ok(value)
}

/// Bytes of `range` of `T`s in the object of `size` bytes: first, how many.
fn bytes_of<T>(offset: u64, size: u64, range: &Range<u64>) -> Result<(u64, u64)> {
    const { assert!(size_of::<T>() > 0, "a slice is of what has bytes") };
    let each = size_of::<T>() as u64;
    let start = range.start.saturating_mul(each);
    let end = range.end.saturating_mul(each);
    if start <= end && end <= size {
        return Ok((start, end - start));
    }
    Err(Error::Range {
        offset,
        size,
        start,
        end,
    })
}

/// Some values of a slice, by what copies bytes. The range is tested before there is room for it.
pub(crate) fn read_all<T: PmSafe>(
    offset: u64,
    size: u64,
    range: Range<u64>,
    read: impl FnOnce(u64, &mut [u8]) -> Result<()>,
) -> Result<Vec<T>> {
    let (start, len) = bytes_of::<T>(offset, size, &range)?;
    let count = len as usize / size_of::<T>();
    let mut values = Vec::with_capacity(count);
    values.resize_with(count, T::new_zeroed);
    read(start, values.as_mut_slice().as_mut_bytes())?;
    Ok(values)
}

impl Heap {
    /// A copy of a value, as it was between two transactions.
    ///
    /// # Errors
    /// `NoObject`; `Class`: the object has another size than a `T`'s; `Range`.
    pub fn read<T: PmSafe>(&self, from: impl Into<Field<T>>) -> Result<T> {
        let from = from.into();
        from.test_class(|| self.size_of(from.object()))?;
        read_one(|to| self.read_bytes(from.object().0, from.start(), to))
    }

    /// Copies of some values of a slice.
    ///
    /// # Errors
    /// `NoObject`; `Range`.
    pub fn read_range<T: PmSafe>(&self, from: P<[T]>, range: Range<u64>) -> Result<Vec<T>> {
        let RawP(offset) = from.into();
        let size = self.size_of(offset)?;
        read_all(offset, size, range, |start, to| {
            self.read_bytes(offset, start, to)
        })
    }
}

impl Tx<'_> {
    /// Makes an object of a value.
    ///
    /// # Errors
    /// `Full`; `Size`: of a value without bytes.
    #[expect(
        clippy::new_ret_no_self,
        reason = "a transaction makes objects, not transactions"
    )]
    pub fn new<T: PmSafe>(&mut self, value: T) -> Result<P<T>> {
        let bytes = value.as_bytes();
        let offset = self.alloc(bytes.len() as u64)?;
        let copy = self.edit_bytes(offset, 0, bytes.len() as u64)?;
        copy.copy_from_slice(bytes);
        Ok(P::at(RawP(offset)))
    }

    /// Makes an object of some values. It may have room for more, which are 0.
    ///
    /// # Errors
    /// `Full`; `Size`: of no values.
    pub fn new_slice<T: PmSafe>(&mut self, values: &[T]) -> Result<P<[T]>> {
        let bytes = values.as_bytes();
        let offset = self.alloc(bytes.len() as u64)?;
        let copy = self.edit_bytes(offset, 0, bytes.len() as u64)?;
        copy.copy_from_slice(bytes);
        Ok(P::at(RawP(offset)))
    }

    /// A copy of a value, with this transaction's changes.
    ///
    /// # Errors
    /// Those of [`Heap::read`].
    pub fn read<T: PmSafe>(&self, from: impl Into<Field<T>>) -> Result<T> {
        View::within(self).read(from)
    }

    /// Copies of some values of a slice, with this transaction's changes.
    ///
    /// # Errors
    /// Those of [`Heap::read_range`].
    pub fn read_range<T: PmSafe>(&self, from: P<[T]>, range: Range<u64>) -> Result<Vec<T>> {
        View::within(self).read_range(from, range)
    }

    /// A value, to be changed: this transaction's copy of it. A `T` is aligned to at most 8 bytes;
    /// [`Tx::write`] takes any.
    ///
    /// # Errors
    /// `NoObject`; `Class`; `Range`.
    pub fn edit<T: PmSafe>(&mut self, at: impl Into<Field<T>>) -> Result<Edit<'_, T>> {
        const { assert!(align_of::<T>() <= 8, "copies are aligned to 8: use `write`") };
        let at = at.into();
        at.test_class(|| self.size_of(at.object()))?;
        let (RawP(offset), start, size) = (at.object(), at.start(), size_of::<T>() as u64);
        let bytes = self.edit_bytes(offset, start, size)?;
        // The copy is aligned as its place is, and that is no `T`'s if `start` was made up.
        match T::mut_from_bytes(bytes) {
            Ok(value) => Ok(Edit { value }),
            Err(_) => Err(Error::Range {
                offset,
                size,
                start,
                end: start.saturating_add(size),
            }),
        }
    }

    /// Some values of a slice, to be changed; no others are copied.
    ///
    /// # Errors
    /// `NoObject`; `Range`.
    pub fn edit_range<T: PmSafe>(&mut self, at: P<[T]>, range: Range<u64>) -> Result<Edit<'_, [T]>>
    where
        [T]: FromBytes + IntoBytes + KnownLayout<PointerMetadata = usize>,
    {
        const { assert!(align_of::<T>() <= 8, "copies are aligned to 8: use `write`") };
        let RawP(offset) = at.into();
        let size = self.size_of(offset)?;
        let (start, len) = bytes_of::<T>(offset, size, &range)?;
        let bytes = self.edit_bytes(offset, start, len)?;
        match <[T]>::mut_from_bytes(bytes) {
            Ok(value) => Ok(Edit { value }),
            Err(_) => Err(Error::Range {
                offset,
                size,
                start,
                end: start + len,
            }),
        }
    }

    /// Has a place hold a value.
    ///
    /// # Errors
    /// `NoObject`; `Class`; `Range`.
    pub fn write<T: PmSafe>(&mut self, at: impl Into<Field<T>>, value: &T) -> Result<()> {
        let at = at.into();
        at.test_class(|| self.size_of(at.object()))?;
        let bytes = value.as_bytes();
        let copy = self.edit_bytes(at.object().0, at.start(), bytes.len() as u64)?;
        copy.copy_from_slice(bytes);
        Ok(())
    }
}

/// The derives of a slice's type, for readers of the bounds above.
const _: fn() = || {
    fn is<T: FromBytes + IntoBytes + Immutable + KnownLayout + ?Sized>() {}
    is::<[u64]>();
};

#[cfg(test)]
mod tests {
    use super::*;
    use crate::space::class_of;

    #[test]
    fn what_is_given_for_a_size_is_its_class() {
        for size in 1..=8192 {
            let class = class_of(size).unwrap();
            assert_eq!(given_for(size), CLASS_BYTES[class], "{size}");
        }
        assert_eq!(
            [8193, 65_000, 65_537].map(given_for),
            [10_912, 65_536, 87_360]
        );
        assert!(is_given_for(30_000, 32_752) && is_given_for(30_000, 65_536));
        assert!(!is_given_for(9000, 65_536) && !is_given_for(65_000, 87_360));
    }
}
