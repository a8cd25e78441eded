//! The meaning of the engine's intents.

use crate::types::{Ino, Run};
use pm_journal::medium::store::Store;
use pm_space::Meaning;
use pmfs_format::inode::TABLE_INO;
use pmfs_format::runtime::{
    INTENT_INODE, INTENT_RANGE, INTENT_RECLAIM, INTENT_SCRATCH, INTENT_SHARED, INTENT_SUBTREE,
    INTENT_TREE, INTENT_UNDER, INTENT_WORD, INTENT_XATTR,
};
use pmfs_format::{BLOCK_BYTES, BLOCK_SHIFT};

const KIND_SHIFT: u32 = 56;
const LEVEL_SHIFT: u32 = 48;
/// Bits of a kind's word that may hold an index.
const INDEX_MASK: u64 = (1 << LEVEL_SHIFT) - 1;

/// For [`Purpose::Range`] over a whole tree: all blocks that the new tree names stay.
pub const CHANGED: u64 = INDEX_MASK;

/// A call's lane.
pub type Lane<'a> = pm_space::Lane<'a, Purpose>;
/// A lane with its end.
pub type Claim<'a> = pm_space::Claim<'a, Purpose>;

/// The owner that blocks are to have, or had.
#[allow(missing_docs, reason = "each field has the name of its kind")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// A node of a tree (`level` 1 and up) or a leaf (0) at `index`.
    Tree { ino: Ino, level: u32, index: u64 },
    /// An inode's attribute blocks.
    Xattr { ino: Ino },
    /// An inode number (the run's block is the number).
    Inode { ino: Ino },
    /// All blocks of an inode without links, up to a cursor.
    Reclaim { ino: Ino, cursor: u64 },
    /// The old subtree (its entry is in `run`'s place), named by `slot` before the change.
    Subtree { slot: u64, level: u32, cursor: u64 },
    /// First and last index of the subtree record before it, and the first whose leaf stays, or
    /// [`CHANGED`]; its first word is the subtree's base plus one.
    Range { from: u64, to: u64, kept: u64 },
    /// Saved data of the running transaction.
    Scratch,
    /// Nodes of a tree that was built as a whole, whose topmost node is the block `top`.
    Under { ino: Ino, top: u64 },
    /// Leaves (`level` 0) from `index` on, each a share of a block, or a share of a node.
    Shared { ino: Ino, level: u32, index: u64 },
    /// A word that is stored in place: nothing to free, but to be flushed.
    Word { off: u64 },
}

impl Purpose {
    /// The leaf of a file's block.
    #[inline]
    pub fn leaf(ino: Ino, index: u64) -> Purpose {
        Purpose::Tree {
            ino,
            level: 0,
            index,
        }
    }

    /// The leaf's inode and index, of a purpose of leaves.
    pub(crate) fn of_leaves(self) -> Option<(Ino, u64)> {
        match self {
            Purpose::Tree {
                ino,
                level: 0,
                index,
            }
            | Purpose::Shared {
                ino,
                level: 0,
                index,
            } => Some((ino, index)),
            _ => None,
        }
    }

    /// The same purpose of the leaf so many further.
    pub(crate) fn further(self, by: u64) -> Purpose {
        match self {
            Purpose::Tree { ino, level, index } => Purpose::Tree {
                ino,
                level,
                index: index + by,
            },
            Purpose::Shared { ino, level, index } => Purpose::Shared {
                ino,
                level,
                index: index + by,
            },
            other => other,
        }
    }

    /// The inode that is to have the blocks, or had them.
    pub(crate) fn owner(self) -> Option<Ino> {
        match self {
            Purpose::Tree { ino, .. }
            | Purpose::Shared { ino, .. }
            | Purpose::Xattr { ino }
            | Purpose::Under { ino, .. } => Some(ino),
            _ => None,
        }
    }
}

impl Meaning for Purpose {
    const SCRATCH: Purpose = Purpose::Scratch;

    #[inline]
    fn number(ino: Ino) -> Purpose {
        Purpose::Inode { ino }
    }

    #[inline]
    fn words(self) -> [u64; 3] {
        let of = |kind, level| kind << KIND_SHIFT | u64::from(level) << LEVEL_SHIFT;
        match self {
            Purpose::Tree { ino, level, index } => [of(INTENT_TREE, level), ino, index],
            Purpose::Xattr { ino } => [of(INTENT_XATTR, 0), ino, 0],
            Purpose::Inode { ino } => [of(INTENT_INODE, 0), ino, 0],
            Purpose::Reclaim { ino, cursor } => [of(INTENT_RECLAIM, 0), ino, cursor],
            Purpose::Subtree {
                slot,
                level,
                cursor,
            } => [of(INTENT_SUBTREE, level), slot, cursor],
            Purpose::Range { from, to, kept } => [of(INTENT_RANGE, 0) | kept, from, to],
            Purpose::Scratch => [of(INTENT_SCRATCH, 0), 0, 0],
            Purpose::Under { ino, top } => [of(INTENT_UNDER, 0), ino, top],
            Purpose::Shared { ino, level, index } => [of(INTENT_SHARED, level), ino, index],
            Purpose::Word { off } => [of(INTENT_WORD, 0), 0, off],
        }
    }

    #[inline]
    fn from_words([kind, ino, index]: [u64; 3]) -> Option<Purpose> {
        let level = (kind >> LEVEL_SHIFT & 0xff) as u32;
        Some(match kind >> KIND_SHIFT {
            INTENT_TREE => Purpose::Tree { ino, level, index },
            INTENT_XATTR => Purpose::Xattr { ino },
            INTENT_INODE => Purpose::Inode { ino },
            INTENT_RECLAIM => Purpose::Reclaim { ino, cursor: index },
            INTENT_SUBTREE => Purpose::Subtree {
                slot: ino,
                level,
                cursor: index,
            },
            INTENT_RANGE => Purpose::Range {
                from: ino,
                to: index,
                kept: kind & INDEX_MASK,
            },
            INTENT_SCRATCH => Purpose::Scratch,
            INTENT_UNDER => Purpose::Under { ino, top: index },
            INTENT_SHARED => Purpose::Shared { ino, level, index },
            INTENT_WORD => Purpose::Word { off: index },
            _ => return None,
        })
    }

    fn is_possible(self, run: Run, store: &Store) -> bool {
        let data = &store.data;
        let blocks = data.start >> BLOCK_SHIFT..data.end >> BLOCK_SHIFT;
        let is_word =
            |off: u64| off.is_multiple_of(8) && off >= data.start - BLOCK_BYTES && off < data.end;
        match self {
            Purpose::Inode { ino } | Purpose::Reclaim { ino, .. } => ino < store.geometry.inodes,
            Purpose::Subtree { slot: off, .. } | Purpose::Word { off } => is_word(off),
            Purpose::Range { from, to, .. } => from <= to,
            _ => run.block >= blocks.start && run.block + run.count <= blocks.end,
        }
    }

    /// Blocks of the inode table belong to no inode.
    #[inline]
    fn is_counted(self) -> bool {
        match self {
            Purpose::Tree { ino, .. } => ino != TABLE_INO,
            Purpose::Xattr { .. } | Purpose::Under { .. } | Purpose::Shared { .. } => true,
            _ => false,
        }
    }

    #[inline]
    fn may_be_spare(self) -> bool {
        matches!(self, Purpose::Tree { .. } | Purpose::Scratch)
    }

    #[inline]
    fn may_be_shared(self) -> bool {
        matches!(self, Purpose::Shared { .. })
    }
}
