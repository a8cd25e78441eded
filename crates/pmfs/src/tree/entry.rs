//! Tree entries as values.

use pm_journal::error::{Error, Result};
use pmfs_format::BLOCK_BYTES;
use pmfs_format::tree::{
    BLOCK_MASK, FANOUT, FANOUT_SHIFT, GROWN, HEIGHT_MASK, HEIGHT_SHIFT, NODE, PRESENT, SHARED,
    UNWRITTEN,
};

use zerocopy::{FromBytes, Immutable, IntoBytes};

/// An entry of a node, or a root word.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, FromBytes, IntoBytes, Immutable)]
#[repr(transparent)]
pub struct Entry(pub u64);

/// Bits that mean nothing yet.
const UNUSED: u64 =
    !(BLOCK_MASK | PRESENT | NODE | UNWRITTEN | GROWN | SHARED | HEIGHT_MASK << HEIGHT_SHIFT);

impl Entry {
    pub const HOLE: Entry = Entry(0);

    /// A written leaf whose first block is at byte `off`.
    pub fn leaf(off: u64) -> Entry {
        Entry(off | PRESENT)
    }

    /// A leaf that reads as zeros.
    pub fn unwritten(off: u64) -> Entry {
        Entry(off | PRESENT | UNWRITTEN)
    }

    /// A large leaf that a file grows into.
    pub fn grown(off: u64) -> Entry {
        Entry(off | PRESENT | GROWN)
    }

    /// A node at byte `off`.
    pub fn node(off: u64) -> Entry {
        Entry(off | PRESENT | NODE)
    }

    /// The same entry as a root word of a tree of `height`.
    pub fn rooted(self, height: u32) -> Entry {
        if self.is_hole() && height == 0 {
            return Entry::HOLE;
        }
        Entry(self.0 & !(HEIGHT_MASK << HEIGHT_SHIFT) | u64::from(height) << HEIGHT_SHIFT)
    }

    /// A root word's entry, as it would stand in a node.
    pub fn unrooted(self) -> Entry {
        Entry(self.0 & !(HEIGHT_MASK << HEIGHT_SHIFT))
    }

    /// Levels of nodes below a root word.
    pub fn height(self) -> u32 {
        (self.0 >> HEIGHT_SHIFT & HEIGHT_MASK) as u32
    }

    pub fn is_hole(self) -> bool {
        self.0 & PRESENT == 0
    }

    pub fn is_node(self) -> bool {
        self.0 & (PRESENT | NODE) == PRESENT | NODE
    }

    pub fn is_leaf(self) -> bool {
        self.0 & (PRESENT | NODE) == PRESENT
    }

    pub fn is_unwritten(self) -> bool {
        self.0 & UNWRITTEN != 0
    }

    /// Returns whether it is a large leaf that came by growth.
    pub fn is_grown(self) -> bool {
        self.0 & GROWN != 0
    }

    /// Returns whether other leaves may name its blocks too.
    #[inline(always)]
    pub fn is_shared(self) -> bool {
        self.0 & SHARED != 0
    }

    /// Returns whether a root word names a node that other root words may name too
    /// (docs/adr/0087-small-files-share-their-node.md).
    #[inline(always)]
    pub fn is_shared_node(self) -> bool {
        const BITS: u64 = PRESENT | NODE | SHARED;
        self.0 & BITS == BITS
    }

    /// Returns whether a leaf may be written in place: it holds data, and no other names it.
    #[inline(always)]
    pub(crate) fn is_in_place(self) -> bool {
        self.0 & (UNWRITTEN | SHARED) == 0
    }

    /// The same leaf, whose blocks other leaves may name; or the same root word, whose node may.
    pub(crate) fn shared(self) -> Entry {
        Entry(self.0 | SHARED)
    }

    /// Byte offset of what it names.
    pub fn off(self) -> u64 {
        self.0 & BLOCK_MASK
    }

    /// Returns whether it has none of the bits that no entry has: of what is no entry at all mostly
    /// some are set.
    #[inline(always)]
    pub fn is_plausible(self) -> bool {
        self.0 & UNUSED == 0
    }

    /// Checks that what it names lies among `range` of the pool's bytes, all `bytes` of it. The
    /// inode table's root node alone stands before them, and only the superblock (a slot of 0) may
    /// name it.
    ///
    /// # Errors
    /// [`Error::Corrupt`].
    #[inline(always)]
    pub fn checked(self, range: &std::ops::Range<u64>, bytes: u64, slot: u64) -> Result<Entry> {
        let off = self.off();
        if !self.is_plausible() || off < range.start || off + bytes > range.end {
            return self.outside(range, slot);
        }
        Ok(self)
    }

    #[cold]
    #[inline(never)]
    fn outside(self, range: &std::ops::Range<u64>, slot: u64) -> Result<Entry> {
        let is_table = slot == 0 && self.off() + BLOCK_BYTES == range.start;
        match is_table && self.is_node() && self.is_plausible() {
            true => Ok(self),
            false => Err(Error::corrupt(
                "tree entry points outside the pool's blocks",
                slot,
            )),
        }
    }
}

/// Units that one entry of a node at `level` covers.
pub(crate) fn span(level: u32) -> u64 {
    1 << (FANOUT_SHIFT * (level - 1))
}

/// Units that a tree of `height` covers.
pub fn coverage(height: u32) -> u64 {
    1 << (FANOUT_SHIFT * height)
}

/// The entry of a node at `level` that covers `index`.
pub fn place(level: u32, index: u64) -> u64 {
    index >> (FANOUT_SHIFT * (level - 1)) & (FANOUT - 1)
}
