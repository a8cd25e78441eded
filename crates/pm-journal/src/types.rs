//! Numbers and places that the journal names.

/// An inode number as users see it (`st_ino`). The root directory is 2.
pub type Ino = u64;

/// Pages of kernels that a call has met.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PagesInTheWay {
    /// The inode.
    pub ino: Ino,
    /// Whether the call changes the content, for which clean pages matter too.
    pub change: bool,
    /// Whether pages of this process's own mount matter too, because the request bypasses them.
    pub own: bool,
}

/// A run of blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// First block.
    pub block: u64,
    /// Blocks; at most 2^24 - 1.
    pub count: u64,
}

impl Run {
    /// One block.
    #[inline]
    #[must_use]
    pub fn one(block: u64) -> Run {
        Run { block, count: 1 }
    }
}
