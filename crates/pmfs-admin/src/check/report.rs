//! The findings of check, with their numbers.

use std::fmt;

/// A thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The finding's permanent number.
    pub number: u32,
    /// The damage and its place.
    pub text: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "F{:04} {}", self.number, self.text)
    }
}

/// The findings of check, and how much it looked at.
#[derive(Clone, Debug, Default)]
pub struct CheckReport {
    /// Everything wrong; empty for a sound pool.
    pub findings: Vec<Finding>,
    /// Live inodes.
    pub inodes: u64,
    /// Directories among them.
    pub directories: u64,
    /// Blocks in use.
    pub blocks: u64,
}

impl CheckReport {
    /// Returns whether nothing was found.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.findings.is_empty()
    }
}

/// Is told how many inodes and names were looked at, of about how many.
pub type Watch<'a> = &'a mut dyn FnMut(u64, u64);

/// Findings, by number.
pub(crate) mod number {
    pub const SUPERBLOCK: u32 = 1;
    pub const SUPERBLOCK_COPY: u32 = 2;
    pub const TREE: u32 = 10;
    pub const BLOCK_TWICE: u32 = 11;
    pub const BLOCK_LEAKED: u32 = 12;
    pub const BLOCK_NOT_MARKED: u32 = 13;
    pub const GROUP_COUNT: u32 = 14;
    pub const SHARES: u32 = 15;
    pub const INODE: u32 = 20;
    pub const LINKS: u32 = 21;
    pub const UNREACHABLE: u32 = 22;
    pub const INODE_LEAKED: u32 = 23;
    pub const INODE_NOT_MARKED: u32 = 24;
    pub const BLOCKS: u32 = 25;
    pub const RECORD: u32 = 30;
    pub const RECORD_PLACE: u32 = 31;
    pub const DEAD_NAME: u32 = 32;
    pub const NAME_TWICE: u32 = 33;
    pub const ENTRY_COUNT: u32 = 34;
    pub const PARENT: u32 = 35;
    pub const KIND: u32 = 36;
    pub const SNAPSHOT: u32 = 37;
    pub const XATTR: u32 = 40;
    pub const SYMLINK: u32 = 41;
    pub const ROOT: u32 = 42;
    pub const LOG: u32 = 60;
    pub const MEDIA_ERROR: u32 = 3;
    pub const LOCK_HELD: u32 = 50;
    pub const LANE_BUSY: u32 = 51;
    pub const SEQUENCE_ODD: u32 = 52;
    pub const HOLDER_GONE: u32 = 53;
}
