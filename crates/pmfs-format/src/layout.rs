//! `on_media!`: a structure, its compile-time size check and its description from one definition.

/// One field of an on-media structure.
#[derive(Clone, Copy, Debug)]
pub struct Field {
    /// Its name in the source.
    pub name: &'static str,
    /// Bytes from the structure's start.
    pub offset: usize,
    /// Bytes it takes.
    pub size: usize,
    /// What it means.
    pub doc: &'static str,
}

/// One on-media structure.
#[derive(Clone, Debug)]
pub struct Structure {
    /// Its name in the source.
    pub name: &'static str,
    /// Bytes.
    pub size: usize,
    /// What it is for.
    pub doc: &'static str,
    /// In address order.
    pub fields: Vec<Field>,
}

/// Defines a `repr(C)` structure without padding, asserts its size and the offset of each field that
/// states one (`@ offset`), and gives it `structure()`, its description.
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

        impl $name {
            /// Bytes on the medium.
            pub const SIZE: u64 = $size;

            /// What the structure looks like, for docs and dumps.
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
