//! File trees: page tables of 4 KiB nodes, 512 eight-byte entries each.
//!
//! A node at level `l` has entries that each cover `512^(l-1)` units; a unit is a 4 KiB block of a
//! file or one value of a directory's 63-bit hash. An entry is a node of the level below, a leaf,
//! or 0, a hole. In a file a leaf in a node of level 1, 2, 3 maps 4 KiB, 2 MiB, 1 GiB of contiguous
//! blocks. In a directory a leaf is one bucket wherever it stands, and neighbours may name the same
//! one.
//!
//! Bits of an entry: 0 there is something, 1 a node, 2 a leaf that reads as zeros, 3 a leaf of 2
//! MiB that the file grew into; 4 to 7, in a root word, the height; 8 a leaf whose blocks other
//! leaves may name too; 12 to 47 the byte offset of the block.

/// Entries a node.
pub const FANOUT: u64 = 512;
/// log2 of [`FANOUT`].
pub const FANOUT_SHIFT: u32 = 9;
/// Levels of nodes that a file may have (48-bit offsets).
pub const FILE_HEIGHT_MAX: u32 = 4;
/// Height of a directory's tree once it has nodes: 7 x 9 = 63 bits of hash.
pub const DIRECTORY_HEIGHT: u32 = 7;
/// Height of the inode table: 2^27 blocks of 32 inodes.
pub const TABLE_HEIGHT: u32 = 3;

/// Entry: there is something.
pub const PRESENT: u64 = 1;
/// Entry: a node, not a leaf.
pub const NODE: u64 = 1 << 1;
/// Leaf: allocated, reads as zeros.
pub const UNWRITTEN: u64 = 1 << 2;
/// Leaf of 2 MiB: the file grew into it, no call asked for a large page. An overwrite may split it.
pub const GROWN: u64 = 1 << 3;
/// Leaf of a file: other leaves with this bit may name its blocks too, so that none is written in
/// place. Only a pool with the feature [`crate::superblock::FEATURE_SHARED`] has such leaves. Root
/// word of height 1 that names a node: other root words with this bit may name it too. The node
/// does not change, but for the bits of its leaves, and each of these is as one with the bit. Only
/// a pool with [`crate::superblock::FEATURE_SHARED_NODES`] has such root words.
pub const SHARED: u64 = 1 << 8;
/// The bit of the root word where its height starts (four bits).
pub const HEIGHT_SHIFT: u32 = 4;
/// Bits of the height, shifted down.
pub const HEIGHT_MASK: u64 = 0xf;
/// Bits that are the byte offset of the block.
pub const BLOCK_MASK: u64 = ((1 << 48) - 1) & !0xfff;
