//! Inodes: 128 bytes, two cache lines.

use crate::journal::ENTRY_DATA_BYTES;
use crate::layout::{neighbours, on_media};

/// Inode number of the inode table itself; its root lives in the superblock.
pub const TABLE_INO: u64 = 1;
/// Inode number of the root directory.
pub const ROOT_INO: u64 = 2;
/// The first number given to others.
pub const FIRST_INO: u64 = 3;
/// Bit of `size`: ctime equals mtime, whatever `ctime_ns` holds.
pub const CTIME_IS_MTIME: u64 = 1 << 63;
/// Bits of `size` that are the size.
pub const SIZE_MASK: u64 = (1 << 49) - 1;
/// The largest file: 48-bit offsets.
pub const SIZE_MAX: u64 = 1 << 48;
/// Flag of an inode without links that O_TMPFILE made: it may be given its first one.
pub const FLAG_LINKABLE: u32 = 1;
/// Flag of an inode of a snapshot: it does not change.
pub const FLAG_SNAPSHOT: u32 = 2;
/// Links an inode may have.
pub const LINKS_MAX: u32 = 4_000_000_000;
/// Symlink targets up to this many bytes live in the inode.
pub const INLINE_BYTES: usize = 40;

on_media! {
    /// An inode. It is live exactly while `links` is not 0 (or a process holds it open), so a slot
    /// whose `links` is 0 may be overwritten at will: nothing durable refers to it. The first six
    /// words are all that freeing, appending, truncating, linking and setting attributes change
    /// together, and fit one undo entry; size and mtime are a 16-byte pair that one store replaces.
    pub struct InodeRaw[128] {
        /// Bytes (of a directory: entries), and [`CTIME_IS_MTIME`].
        @ 0 size: u64,
        /// Last change of content, ns since the epoch.
        @ 8 mtime_ns: i64,
        /// The file's tree: a tree entry ([`crate::tree`]) whose HEIGHT bits say how many levels of
        /// nodes.
        @ 16 root: u64,
        /// Last change of the inode, unless [`CTIME_IS_MTIME`].
        @ 24 ctime_ns: i64,
        /// Hard links.
        @ 32 links: u32,
        /// [`FLAG_LINKABLE`], [`FLAG_SNAPSHOT`].
        @ 36 flags: u32,
        /// Attribute blocks: first block << 12 | number of blocks; 0 for none.
        @ 40 xattr: u64,
        /// Type and permission bits.
        @ 48 mode: u32,
        /// Bumped each time the number is given out.
        @ 52 generation: u32,
        /// The parent's number for a directory, the device's number for a device.
        @ 56 parent: u64,
        /// Last read. Stored without log, may be older after a crash.
        @ 64 atime_ns: i64,
        /// Owner.
        @ 72 uid: u32,
        /// Group.
        @ 76 gid: u32,
        /// Creation.
        @ 80 crtime_ns: i64,
        /// A short symlink's target, NUL-padded. The first word of a file or directory counts its
        /// blocks. It is stored without log or flush and counted anew by recovery.
        @ 88 inline: [u8; 40],
    }
}

// One store replaces both.
neighbours!(InodeRaw: size, mtime_ns);
const _: () = assert!(InodeRaw::size.offset().is_multiple_of(16));
// One undo entry holds them.
neighbours!(InodeRaw: size, mtime_ns, root, ctime_ns, links, flags, xattr);
const _: () = assert!(InodeRaw::xattr.offset() + 8 - InodeRaw::size.offset() <= ENTRY_DATA_BYTES);
// Reading an inode loads these at once: its first line, and then its second.
neighbours!(InodeRaw: xattr, mode, generation, parent);
neighbours!(InodeRaw: atime_ns, uid, gid, crtime_ns, inline);
const _: () = assert!(InodeRaw::parent.offset() + 8 == crate::LINE_BYTES);
