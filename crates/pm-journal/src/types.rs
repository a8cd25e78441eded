//! Numbers and places that the journal names.

/// An inode number as users see it (`st_ino`). The root directory is 2.
pub type Ino = u64;

/// Pages of kernels that are in the way of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PagesInTheWay {
    /// The inode.
    pub ino: Ino,
    /// True if the call changes the content, so that clean pages are in the way too.
    pub change: bool,
    /// True if pages of this process's own mount are in the way, too, as the request goes past
    /// them.
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
