//! The fix that would mend a finding. Check only writes it down; [`crate::repair`] does it.

use pmfs::types::Ino;

/// A change that mends a finding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Fix {
    /// Store these words from byte `off` on.
    Words { off: u64, words: Vec<u64> },
    /// Write the damaged superblock anew from the other one.
    Superblocks,
    /// Rebuild the runtime area: bitmaps, counts, locks.
    Runtime,
    /// Make the root a directory again.
    Root,
    /// Build a directory's tree anew from the names that can still be read in it.
    Refill {
        dir: Ino,
        names: Vec<(Vec<u8>, Ino)>,
    },
    /// Give an inode that no name reaches a name in lost+found.
    Adopt(Ino),
}

impl Fix {
    /// Stores one word.
    pub fn word(off: u64, word: u64) -> Fix {
        Fix::Words {
            off,
            words: vec![word],
        }
    }
}
