//! Named roots: a list of objects, the newest first, each with a name behind it. None ever changes.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// The longest name, bytes.
pub const NAME_BYTES_MAX: u64 = 255;

/// A named root, from its object's start; the name's bytes follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct NamedRaw {
    /// Offset of the one that was made before; 0: none.
    pub next: u64,
    /// How many there are from here on, this one among them: so that no circle is followed.
    pub left: u64,
    /// Offset of the object that has the name.
    pub object: u64,
    /// Fingerprint of the object's type.
    pub fingerprint: u64,
    /// Bytes of the name.
    pub name_bytes: u32,
    /// CRC-32C of this object's offset, of all before this word, and of the name.
    pub crc: u32,
}

const _: () = assert!(size_of::<NamedRaw>() == 40);
