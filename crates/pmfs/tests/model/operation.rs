//! The calls, as values that can be printed.

use crate::acl::Given;
use pmfs::{FallocateMode, Ino, NewNode, RenameFlags, SetAttr, XattrFlags};
use std::fmt;

/// A name, printed as text and cut short.
#[derive(Clone, PartialEq, Eq)]
pub struct Name(pub Vec<u8>);

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = self.0[..self.0.len().min(40)].escape_ascii();
        write!(f, "'{text}'")?;
        if self.0.len() > 40 {
            write!(f, "... ({} bytes)", self.0.len())?;
        }
        Ok(())
    }
}

/// One call. `seed` stands for bytes: see [`crate::random::bytes`].
#[derive(Clone, Debug)]
pub enum Operation {
    Lookup {
        dir: Ino,
        name: Name,
    },
    GetAttr {
        ino: Ino,
    },
    SetAttr {
        ino: Ino,
        set: SetAttr,
    },
    Create {
        dir: Ino,
        name: Name,
        node: NewNode,
    },
    MkDir {
        dir: Ino,
        name: Name,
        node: NewNode,
    },
    MkNod {
        dir: Ino,
        name: Name,
        node: NewNode,
        kind: u32,
        rdev: u32,
    },
    Symlink {
        dir: Ino,
        name: Name,
        target_len: usize,
        seed: u64,
        node: NewNode,
    },
    TmpFile {
        dir: Ino,
        node: NewNode,
    },
    Link {
        ino: Ino,
        dir: Ino,
        name: Name,
    },
    Unlink {
        dir: Ino,
        name: Name,
    },
    RmDir {
        dir: Ino,
        name: Name,
    },
    Rename {
        dir: Ino,
        name: Name,
        new_dir: Ino,
        new_name: Name,
        flags: RenameFlags,
    },
    ReadLink {
        ino: Ino,
    },
    /// The whole directory in batches of at most `batch`, each resumed by the last one's cookie.
    ReadDir {
        dir: Ino,
        batch: u64,
    },
    /// One batch of the reader that stands in the directory, or the first of a new one.
    ReadOn {
        dir: Ino,
        batch: u64,
    },
    Hold {
        ino: Ino,
    },
    Release {
        ino: Ino,
    },
    /// Replaces blocks of a file that nobody has pinned: this many, each so many behind the one
    /// before.
    HandOver {
        ino: Ino,
        first: u64,
        step: u64,
        count: u64,
        seed: u64,
    },
    /// Pins a file, or ends that.
    Pin {
        ino: Ino,
    },
    /// Merges the small leaves around a byte.
    Merge {
        ino: Ino,
        at: u64,
    },
    /// Defragments the whole pool.
    Defrag,
    Read {
        ino: Ino,
        at: u64,
        len: usize,
    },
    Write {
        ino: Ino,
        at: u64,
        len: usize,
        seed: u64,
    },
    Append {
        ino: Ino,
        len: usize,
        seed: u64,
    },
    Fallocate {
        ino: Ino,
        mode: FallocateMode,
        at: u64,
        len: u64,
    },
    /// COLLAPSE_RANGE, or INSERT_RANGE.
    Shift {
        ino: Ino,
        insert: bool,
        at: u64,
        len: u64,
    },
    SeekData {
        ino: Ino,
        at: u64,
    },
    SeekHole {
        ino: Ino,
        at: u64,
    },
    CopyRange {
        from: Ino,
        from_at: u64,
        to: Ino,
        to_at: u64,
        len: u64,
    },
    CloneRange {
        from: Ino,
        from_at: u64,
        to: Ino,
        to_at: u64,
        len: u64,
    },
    Fsync {
        ino: Ino,
    },
    GetXattr {
        ino: Ino,
        name: Name,
    },
    SetXattr {
        ino: Ino,
        name: Name,
        len: usize,
        seed: u64,
        flags: XattrFlags,
    },
    SetAcl {
        ino: Ino,
        name: Name,
        given: Given,
        kill: bool,
    },
    ListXattr {
        ino: Ino,
    },
    RemoveXattr {
        ino: Ino,
        name: Name,
    },
    StatFs,
}

impl Operation {
    /// The inodes it names.
    pub fn inos(&self) -> [Option<Ino>; 2] {
        use Operation::*;
        match *self {
            StatFs | Defrag => [None, None],
            Lookup { dir, .. } | Create { dir, .. } | MkDir { dir, .. } | MkNod { dir, .. } => {
                [Some(dir), None]
            }
            Symlink { dir, .. } | TmpFile { dir, .. } | Unlink { dir, .. } | RmDir { dir, .. } => {
                [Some(dir), None]
            }
            ReadDir { dir, .. } | ReadOn { dir, .. } => [Some(dir), None],
            Link { ino, dir, .. } => [Some(ino), Some(dir)],
            Rename { dir, new_dir, .. } => [Some(dir), Some(new_dir)],
            CopyRange { from, to, .. } | CloneRange { from, to, .. } => [Some(from), Some(to)],
            GetAttr { ino } | SetAttr { ino, .. } | ReadLink { ino } | Hold { ino } => {
                [Some(ino), None]
            }
            Release { ino } | Read { ino, .. } | Write { ino, .. } | Append { ino, .. } => {
                [Some(ino), None]
            }
            Fallocate { ino, .. } | SeekData { ino, .. } | SeekHole { ino, .. } => {
                [Some(ino), None]
            }
            SetAcl { ino, .. } | Shift { ino, .. } | Pin { ino } => [Some(ino), None],
            HandOver { ino, .. } | Merge { ino, .. } => [Some(ino), None],
            Fsync { ino } | GetXattr { ino, .. } | SetXattr { ino, .. } => [Some(ino), None],
            ListXattr { ino } | RemoveXattr { ino, .. } => [Some(ino), None],
        }
    }
}
