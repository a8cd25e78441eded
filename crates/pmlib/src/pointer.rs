//! Pointers inside a heap: offsets, which mean the same wherever it is mapped.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::marker::PhantomData;

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::safe::{PmSafe, of_text};

/// Where an object lies in its heap, whatever is in it: bytes from the heap's start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RawP(pub u64);

impl From<u64> for RawP {
    fn from(offset: u64) -> RawP {
        RawP(offset)
    }
}

impl<T: ?Sized> From<P<T>> for RawP {
    /// Nowhere becomes 0, where no object is.
    fn from(p: P<T>) -> RawP {
        RawP(p.offset)
    }
}

/// Where a `T` lies in its heap, or nowhere. It does not know which heap that is.
///
/// A `P<[T]>` is where an object of `T`s lies, as many as have room in it.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(transparent)]
pub struct P<T: ?Sized> {
    /// Bytes from the heap's start; 0: nowhere.
    offset: u64,
    /// Names a `T` and holds none.
    of: PhantomData<fn() -> T>,
}

impl<T: ?Sized> P<T> {
    /// Nowhere.
    pub const NONE: P<T> = P::at(RawP(0));

    /// To the object at this offset.
    #[must_use]
    pub const fn at(place: RawP) -> P<T> {
        P {
            offset: place.0,
            of: PhantomData,
        }
    }

    /// Where it points to, if it does.
    #[must_use]
    pub const fn get(self) -> Option<RawP> {
        match self.offset {
            0 => None,
            offset => Some(RawP(offset)),
        }
    }

    /// Whether it points nowhere.
    #[must_use]
    pub const fn is_none(self) -> bool {
        self.offset == 0
    }

    /// Whether it points somewhere.
    #[must_use]
    pub const fn is_some(self) -> bool {
        self.offset != 0
    }

    /// Itself, or `other` if it points nowhere.
    #[must_use]
    pub const fn or(self, other: P<T>) -> P<T> {
        if self.is_some() { self } else { other }
    }

    /// Points nowhere from now on; what it was.
    pub const fn take(&mut self) -> P<T> {
        std::mem::replace(self, P::NONE)
    }

    /// Points there from now on; what it was.
    pub const fn replace(&mut self, other: P<T>) -> P<T> {
        std::mem::replace(self, other)
    }
}

impl<T, const N: usize> P<[T; N]> {
    /// The same place, as a slice.
    #[must_use]
    pub const fn slice(self) -> P<[T]> {
        P::at(RawP(self.offset))
    }
}

/// A `T` is not asked to be one that can be kept, so that types may point to their like; who reads
/// one asks for it. For the same reason a fingerprint does not go on behind a pointer.
impl<T: ?Sized + 'static> PmSafe for P<T> {
    const FINGERPRINT: u64 = of_text("P");

    #[inline]
    fn trace(&self, visit: &mut dyn FnMut(RawP)) {
        if let Some(place) = self.get() {
            visit(place);
        }
    }
}

// Not derived: that would ask the same of `T`.

impl<T: ?Sized> Clone for P<T> {
    fn clone(&self) -> P<T> {
        *self
    }
}

impl<T: ?Sized> Copy for P<T> {}

impl<T: ?Sized> Default for P<T> {
    fn default() -> P<T> {
        P::NONE
    }
}

impl<T: ?Sized> PartialEq for P<T> {
    fn eq(&self, other: &P<T>) -> bool {
        self.offset == other.offset
    }
}

impl<T: ?Sized> Eq for P<T> {}

impl<T: ?Sized> Hash for P<T> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.offset.hash(state);
    }
}

impl<T: ?Sized> fmt::Debug for P<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.get() {
            None => f.write_str("P(none)"),
            Some(RawP(offset)) => write!(f, "P({offset:#x})"),
        }
    }
}
