//! `on_media!`: a structure, its compile-time size check and its description from one definition.

use std::fmt;
use std::marker::PhantomData;

/// The place of a field of type `T` in the structure `S`: code needs nothing else for an address in
/// a structure.
///
/// Each structure has one a field, of the field's name: `InodeRaw::size`.
pub struct At<S, T> {
    offset: u64,
    field: PhantomData<fn(S) -> T>,
}

impl<S, T> Clone for At<S, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<S, T> Copy for At<S, T> {}

impl<S, T> fmt::Debug for At<S, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "At({})", self.offset)
    }
}

impl<S, T> At<S, T> {
    pub(crate) const fn new(offset: usize) -> Self {
        At {
            offset: offset as u64,
            field: PhantomData,
        }
    }

    /// Bytes from the structure's start.
    #[must_use]
    pub const fn offset(self) -> u64 {
        self.offset
    }

    /// The field in the structure that stands at `start`.
    #[must_use]
    #[inline(always)]
    pub const fn of(self, start: u64) -> u64 {
        start + self.offset
    }

    /// The number of the structure's word that has it.
    #[must_use]
    pub const fn word(self) -> usize {
        (self.offset / 8) as usize
    }

    /// The bit of that word where it begins.
    #[must_use]
    pub const fn shift(self) -> u32 {
        (self.offset % 8 * 8) as u32
    }

    /// Returns whether `next` begins where this ends.
    #[must_use]
    pub const fn is_before<U>(self, next: At<S, U>) -> bool {
        self.offset + size_of::<T>() as u64 == next.offset
    }
}

impl<S, T, const N: usize> At<S, [T; N]> {
    /// One of several.
    #[must_use]
    pub const fn nth(self, index: usize) -> At<S, T> {
        assert!(index < N, "a field has so many elements");
        At::new(self.offset as usize + index * size_of::<T>())
    }
}

/// One field of an on-media structure.
#[derive(Clone, Copy, Debug)]
pub struct Field {
    /// Its name in the source.
    pub name: &'static str,
    /// Bytes from the structure's start.
    pub offset: usize,
    /// Bytes it takes.
    pub size: usize,
    /// Its meaning.
    pub doc: &'static str,
}

/// One on-media structure.
#[derive(Clone, Debug)]
pub struct Structure {
    /// Its name in the source.
    pub name: &'static str,
    /// Bytes.
    pub size: usize,
    /// Its purpose.
    pub doc: &'static str,
    /// The fields in the order of their addresses.
    pub fields: Vec<Field>,
}

/// Defines a `repr(C)` structure without padding, asserts its size and the offset of each field
/// that states one (`@ offset`), and gives it a handle for each field and `structure()`, its
/// description.
macro_rules! on_media {
    (
        $(#[doc = $doc:literal])+
        pub struct $name:ident[$size:literal] {
            $( $(#[doc = $fdoc:literal])+ @ $off:literal $field:ident: $ty:ty, )+
        }
    ) => {
        $(#[doc = $doc])+
        #[derive(
            Clone, Copy, Debug,
            zerocopy::FromBytes, zerocopy::IntoBytes, zerocopy::Immutable, zerocopy::KnownLayout,
        )]
        #[repr(C)]
        pub struct $name { $( $(#[doc = $fdoc])+ pub $field: $ty, )+ }

        const _: () = {
            assert!(core::mem::size_of::<$name>() == $size);
            $( assert!(core::mem::offset_of!($name, $field) == $off); )+
        };

        #[allow(non_upper_case_globals, reason = "a handle is called as its field")]
        impl $name {
            $( $(#[doc = $fdoc])+ pub const $field: crate::At<$name, $ty> = crate::At::new($off); )+
        }

        impl $name {
            /// Bytes on the medium.
            pub const SIZE: u64 = $size;

            /// The structure's layout, for docs and dumps.
            #[must_use]
            pub fn structure() -> crate::Structure {
                crate::Structure {
                    name: stringify!($name),
                    size: $size,
                    doc: concat!($($doc, "\n"),+),
                    fields: vec![ $( crate::Field {
                        name: stringify!($field),
                        offset: $off,
                        size: core::mem::size_of::<$ty>(),
                        doc: concat!($($fdoc, " "),+),
                    } ),+ ],
                }
            }
        }
    };
}
pub(crate) use on_media;

/// Asserts that fields of a structure are neighbours, in this order: code loads or stores them in
/// one piece.
macro_rules! neighbours {
    ($of:ident: $last:ident) => {};
    ($of:ident: $one:ident, $next:ident $(, $rest:ident)*) => {
        const _: () = assert!($of::$one.is_before($of::$next));
        crate::layout::neighbours!($of: $next $(, $rest)*);
    };
}
pub(crate) use neighbours;
