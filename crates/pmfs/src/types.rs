//! The types of the engine's callers: attributes, requests and answers. No layout, no logic.

use bitflags::bitflags;
pub use pm_journal::types::{Ino, PagesInTheWay, Run};
pub use pm_space::FreePages;
use std::fmt;
use std::time::Duration;

/// The root directory's inode number. Number 1 is the inode table itself, 0 is never used.
pub const ROOT_INO: Ino = 2;

/// A name in the root of a mount that begins so and goes on with an inode's number in decimal means
/// that inode, for root and for the mount's own user, whether or not it has a name.
pub const INODE_NAME: &[u8] = {
    // Longer than any name that a file can have.
    const BYTES: usize = pmfs_format::directory::NAME_MAX + 1;
    const BEGINS: &[u8] = b".pmfs-inode";
    const NAME: [u8; BYTES] = {
        let mut name = [b'-'; BYTES];
        let (head, _) = name.split_at_mut(BEGINS.len());
        head.copy_from_slice(BEGINS);
        name
    };
    &NAME
};

/// An ioctl on a mount's descriptor of a file, for its owner and root: it is to stand for an open
/// file of the pool, whose offset it then shares. The argument: the open file's number, and where
/// the descriptor's own offset is. `_IOW('P', 0xf6, u64[2])`.
pub const FOLLOW_REQUEST: u32 = 1 << 30 | 16 << 16 | (b'P' as u32) << 8 | 0xf6;

/// File type bits of a mode (`S_IFMT` and friends), as in `stat(2)`.
pub mod mode {
    #![allow(missing_docs)]
    pub const S_IFMT: u32 = 0o170000;
    pub const S_IFSOCK: u32 = 0o140000;
    pub const S_IFLNK: u32 = 0o120000;
    pub const S_IFREG: u32 = 0o100000;
    pub const S_IFBLK: u32 = 0o060000;
    pub const S_IFDIR: u32 = 0o040000;
    pub const S_IFCHR: u32 = 0o020000;
    pub const S_IFIFO: u32 = 0o010000;
    pub const S_ISUID: u32 = 0o4000;
    pub const S_ISGID: u32 = 0o2000;
    pub const S_ISVTX: u32 = 0o1000;
}

/// The attributes of an inode, as of `stat(2)`. Times are nanoseconds since the epoch, UTC.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Attr {
    /// Inode number.
    pub ino: Ino,
    /// Changes each time an inode number is given out anew.
    pub generation: u32,
    /// Type and permission bits.
    pub mode: u32,
    /// Hard links; 0 for an unlinked file that is still open.
    pub links: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Device number of a device node, as `makedev(3)` packs it (the kernel's 32-bit form).
    pub rdev: u32,
    /// Bytes; for a directory, entries times 64.
    pub size: u64,
    /// Space taken, in 512-byte sectors.
    pub sectors: u64,
    /// Last read, within what relatime or noatime allow.
    pub atime_ns: i64,
    /// Last change of content.
    pub mtime_ns: i64,
    /// Last change of the inode.
    pub ctime_ns: i64,
    /// Creation.
    pub crtime_ns: i64,
}

impl Attr {
    /// Returns whether it is a file with fewer blocks than its size has.
    #[must_use]
    #[inline]
    pub fn is_sparse(&self) -> bool {
        self.sectors < self.size.div_ceil(512) && self.mode & mode::S_IFMT == mode::S_IFREG
    }
}

/// The creator of a new inode, and its mode.
#[derive(Clone, Copy, Debug)]
pub struct NewNode {
    /// Permission bits as asked for; the call supplies the type.
    pub mode: u32,
    /// Permission bits that are withheld, unless the directory has a default ACL, which then
    /// decides. Symbolic links have all bits.
    pub umask: u32,
    /// Owner.
    pub uid: u32,
    /// Group, unless the parent has set-gid, which hands down its own.
    pub gid: u32,
}

/// The changes of a `setattr`; `None` leaves a field alone. The size is one step, all others
/// together a second; each happens wholly or not at all.
#[derive(Clone, Copy, Debug, Default)]
pub struct SetAttr {
    /// Permission bits (07777).
    pub mode: Option<u32>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// New length in bytes.
    pub size: Option<u64>,
    /// Time of last read.
    pub atime_ns: Option<SetTime>,
    /// Time of last change.
    pub mtime_ns: Option<SetTime>,
    /// Change time, which only a mount that forwards the kernel's own may set.
    pub ctime_ns: Option<i64>,
}

impl SetAttr {
    /// Returns whether it changes anything but the size.
    pub(crate) fn has_words(&self) -> bool {
        self.mode.is_some()
            || self.uid.is_some()
            || self.gid.is_some()
            || self.atime_ns.is_some()
            || self.mtime_ns.is_some()
            || self.ctime_ns.is_some()
    }
}

/// A time to set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetTime {
    /// The engine's clock.
    Now,
    /// Nanoseconds since the epoch.
    At(i64),
}

/// A directory entry, as `readdir` returns it.
#[derive(Clone, Copy, Debug)]
pub struct DirEntry<'a> {
    /// Inode number.
    pub ino: Ino,
    /// Type bits of the mode (`S_IFDIR`, ...).
    pub kind: u32,
    /// Resume after this entry by passing this value to `readdir`.
    pub cookie: u64,
    /// 1 to 255 bytes, no NUL and no slash.
    pub name: &'a [u8],
}

/// An open file, among all of the pool's and all that were.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FileId(pub(crate) u64);

/// The answer of `statfs(2)`.
#[derive(Clone, Copy, Debug)]
pub struct StatFs {
    /// Bytes a block.
    pub block_size: u32,
    /// Blocks in the pool that files could have.
    pub blocks: u64,
    /// Free ones, without the reserve.
    pub blocks_free: u64,
    /// Inodes in all.
    pub inodes: u64,
    /// Free ones.
    pub inodes_free: u64,
    /// Longest name in bytes.
    pub name_max: u32,
    /// File system id, from the pool's uuid.
    pub fsid: u64,
}

bitflags! {
    /// Flags of `rename`, with the values of `renameat2(2)`.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct RenameFlags: u32 {
        /// Fail with EEXIST if the target is there.
        const NOREPLACE = 1;
        /// Swap the two atomically.
        const EXCHANGE = 2;
        /// Leave a character device 0:0 under the old name.
        const WHITEOUT = 4;
    }

    /// Modes of `fallocate`, with the values of `fallocate(2)`.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct FallocateMode: u32 {
        /// Leave the size alone.
        const KEEP_SIZE = 0x01;
        /// Make a hole; needs KEEP_SIZE.
        const PUNCH_HOLE = 0x02;
        /// Zero the range.
        const ZERO_RANGE = 0x10;
    }

    /// Flags of `setxattr`, with the values of `setxattr(2)`.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct XattrFlags: u32 {
        /// Fail with EEXIST if it is there.
        const CREATE = 1;
        /// Fail with ENODATA if it is not.
        const REPLACE = 2;
        /// Takes away set-gid when an access ACL is set, as from a caller that is not in the file's
        /// group and has no CAP_FSETID. The flag is the engine's own.
        const KILL_SGID = 1 << 16;
    }
}

/// The promise of a write across a crash.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum DataMode {
    /// A write is all or nothing.
    #[default]
    Atomic,
    /// Data is durable before the metadata that shows it; an overwrite in place may tear.
    Ordered,
}

/// The rule by which a file takes pages of 2 MiB without fallocate: the page-size hint of the PMFS
/// paper, section 3.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum LargePages {
    /// Files never take them.
    Never,
    /// A file takes them where it goes on to grow at 16 MiB and more, or is written 2 MiB at once.
    #[default]
    Grow,
    /// A file takes them where it goes on to grow at 2 MiB and more; and where it was made longer
    /// by truncate, when a hole of 2 MiB is first written to.
    Always,
}

/// The rule by which a read updates atime.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum AtimeMode {
    /// If it is not newer than mtime and ctime, or older than a day.
    #[default]
    Relatime,
    /// Always.
    Strictatime,
    /// Reads never update it.
    Noatime,
}

impl AtimeMode {
    /// The mode with this number, as `mode as u8` has it.
    #[must_use]
    pub fn from_number(number: u8) -> Option<AtimeMode> {
        match number {
            0 => Some(AtimeMode::Relatime),
            1 => Some(AtimeMode::Strictatime),
            2 => Some(AtimeMode::Noatime),
            _ => None,
        }
    }
}

/// The owner of a file lock, inside a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LockOwner {
    /// The kind of the owner.
    pub class: LockClass,
    /// Tells owners of a class apart: of POSIX locks a process has one, 0, and a mount as many as
    /// it serves.
    pub id: u64,
}

/// Kinds of file lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockClass {
    /// A range that belongs to a process: F_SETLK of `fcntl(2)`.
    Posix = 1,
    /// A range that belongs to an open file: F_OFD_SETLK of `fcntl(2)`.
    File = 2,
    /// The whole file, for an open file: `flock(2)`. Locks of ranges and this one do not conflict.
    Flock = 3,
}

impl LockClass {
    pub(crate) fn from_number(number: u64) -> LockClass {
        match number {
            1 => LockClass::Posix,
            2 => LockClass::File,
            _ => LockClass::Flock,
        }
    }

    /// Returns whether locks of the two classes exclude each other.
    pub(crate) fn same_space(self, other: LockClass) -> bool {
        (self == LockClass::Flock) == (other == LockClass::Flock)
    }
}

/// The access that a lock is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockKind {
    /// Shared with others that read.
    Read,
    /// Exclusive.
    Write,
}

/// Bytes of a file, from `start` to `end`, both included; `u64::MAX` is however far it grows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LockRange {
    /// First byte.
    pub start: u64,
    /// Last byte.
    pub end: u64,
}

impl LockRange {
    /// All of a file.
    pub const WHOLE: LockRange = LockRange {
        start: 0,
        end: u64::MAX,
    };

    pub(crate) fn overlaps(self, other: LockRange) -> bool {
        self.start <= other.end && other.start <= self.end
    }

    /// Overlaps, or lies next to it.
    pub(crate) fn touches(self, other: LockRange) -> bool {
        self.start <= other.end.saturating_add(1) && other.start <= self.end.saturating_add(1)
    }

    /// Returns the smallest range that covers both.
    pub(crate) fn with(self, other: LockRange) -> LockRange {
        LockRange {
            start: self.start.min(other.start),
            end: self.end.max(other.end),
        }
    }
}

/// A lock that is in the way of another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LockInfo {
    /// The access that it is for.
    pub kind: LockKind,
    /// The range that it covers.
    pub range: LockRange,
    /// The process that took it, as it called itself; 0 where it is unknown.
    pub pid: u32,
    /// The kind of its owner.
    pub class: LockClass,
}

/// The work that attaching had to do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RecoveryKind {
    /// The pool had been closed cleanly.
    #[default]
    None,
    /// Processes had died, the memory was intact: their slots were cleaned up.
    Slots,
    /// The runtime area could not be trusted: lanes undone, bitmaps rebuilt from the trees.
    Walk,
}

/// The report of attaching.
#[derive(Clone, Copy, Debug, Default)]
pub struct RecoveryReport {
    /// The kind of recovery.
    pub kind: RecoveryKind,
    /// Open transactions rolled back.
    pub transactions_undone: u64,
    /// Undo entries restored.
    pub entries_undone: u64,
    /// Calls that dead processes were in the middle of: lanes that they held.
    pub calls_interrupted: u64,
    /// Claims of those calls on blocks and inodes, finished or taken back.
    pub intents_resolved: u64,
    /// Unlinked open files reclaimed.
    pub orphans: u64,
    /// Live inodes found by a walk.
    pub inodes: u64,
    /// Blocks in use found by a walk.
    pub blocks: u64,
    /// Structures that can't be right, found by a walk; the pool is then read-only.
    pub damage: u64,
    /// From the attach lock to the end.
    pub elapsed: Duration,
}

impl fmt::Display for RecoveryReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.damage > 0 {
            write!(
                f,
                "{} damaged structures found, the pool is read-only, run pmfs fsck; ",
                self.damage
            )?;
        }
        let ms = self.elapsed.as_secs_f64() * 1e3;
        match self.kind {
            RecoveryKind::None => write!(f, "the pool was clean"),
            RecoveryKind::Slots => write!(
                f,
                "recovered after a killed process in {ms:.1} ms: {} calls interrupted, \
                 {} transactions undone ({} entries), {} intents resolved, {} orphans reclaimed",
                self.calls_interrupted,
                self.transactions_undone,
                self.entries_undone,
                self.intents_resolved,
                self.orphans
            ),
            RecoveryKind::Walk => write!(
                f,
                "recovered after a crash in {ms:.1} ms: {} transactions undone ({} entries), \
                 {} inodes and {} blocks walked",
                self.transactions_undone, self.entries_undone, self.inodes, self.blocks
            ),
        }
    }
}
