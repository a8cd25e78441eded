//! The fixed parts of what the kernel gets, `struct fuse_*_out` of `linux/fuse.h`, and
//! the buffer they are put together in.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::request::{FileLock, wire};
use crate::lease::Grant;

wire! {
    /// The header of every answer.
    OutHeader: 16 { len: u32, error: i32, unique: u64 }
    Attributes: 88 {
        ino: u64, size: u64, blocks: u64, atime: u64, mtime: u64, ctime: u64,
        atimensec: u32, mtimensec: u32, ctimensec: u32, mode: u32, nlink: u32, uid: u32, gid: u32,
        rdev: u32, blksize: u32, flags: u32,
    }
    EntryOut: 128 {
        nodeid: u64, generation: u64, entry_valid: u64, attr_valid: u64,
        entry_valid_nsec: u32, attr_valid_nsec: u32, attr: Attributes,
    }
    AttrOut: 104 { attr_valid: u64, attr_valid_nsec: u32, dummy: u32, attr: Attributes }
    SxTime: 16 { seconds: i64, nanoseconds: u32, reserved: i32 }
    /// `struct fuse_statx`, of 7.39.
    Statx: 256 {
        mask: u32, blksize: u32, attributes: u64, nlink: u32, uid: u32, gid: u32, mode: u16,
        spare0: u16, ino: u64, size: u64, blocks: u64, attributes_mask: u64,
        atime: SxTime, btime: SxTime, ctime: SxTime, mtime: SxTime,
        rdev_major: u32, rdev_minor: u32, dev_major: u32, dev_minor: u32, spare2: [u64; 14],
    }
    StatxOut: 288 { attr_valid: u64, attr_valid_nsec: u32, flags: u32, spare: [u64; 2], stat: Statx }
    OpenOut: 16 { fh: u64, open_flags: u32, padding: u32 }
    WriteOut: 8 { size: u32, padding: u32 }
    StatfsOut: 80 {
        blocks: u64, bfree: u64, bavail: u64, files: u64, ffree: u64,
        bsize: u32, namelen: u32, frsize: u32, padding: u32, spare: [u32; 6],
    }
    GetxattrOut: 8 { size: u32, padding: u32 }
    LkOut: 24 { lk: FileLock }
    IoctlOut: 16 { result: i32, flags: u32, in_iovs: u32, out_iovs: u32 }
    LseekOut: 8 { offset: u64 }
    /// `struct fuse_notify_inval_inode_out`.
    InvalInodeOut: 24 { ino: u64, off: i64, len: i64 }
    /// `struct fuse_notify_inval_entry_out`; the name follows, with its NUL.
    InvalEntryOut: 16 { parent: u64, namelen: u32, flags: u32 }
    /// `struct fuse_notify_prune_out`, of 7.45; the inodes follow.
    PruneOut: 16 { count: u32, padding: u32, spare: u64 }
    CopyFileRangeOut: 8 { bytes_copied: u64 }
    /// A directory entry; its name follows, and padding to eight bytes.
    Dirent: 24 { ino: u64, off: u64, namelen: u32, kind: u32 }
    /// An entry with its attributes; node 0: the name was not looked up.
    DirentPlus: 152 { entry: EntryOut, dirent: Dirent }
}

/// `FOPEN_DIRECT_IO`: past the page cache.
pub(crate) const OPEN_DIRECT_IO: u32 = 1 << 0;
/// `FOPEN_PARALLEL_DIRECT_WRITES`: the kernel need not serialise them.
const OPEN_PARALLEL_DIRECT_WRITES: u32 = 1 << 6;
/// For files that are read and written past the kernel's pages.
pub(crate) const PAST_PAGES: u32 = OPEN_DIRECT_IO | OPEN_PARALLEL_DIRECT_WRITES;

/// `FUSE_NOTIFY_INVAL_INODE`: in place of an error, where the answer is to nothing.
pub(crate) const NOTIFY_INVAL_INODE: i32 = 2;
/// `FUSE_NOTIFY_INVAL_ENTRY`.
pub(crate) const NOTIFY_INVAL_ENTRY: i32 = 3;
/// `FUSE_NOTIFY_PRUNE`, of 7.45 (Linux 6.18).
pub(crate) const NOTIFY_PRUNE: i32 = 9;

/// The body of an answer: kept from one request to the next, so that it is made and zeroed once.
#[derive(Default)]
pub(crate) struct Reply {
    bytes: Vec<u8>,
    len: usize,
    /// The grant to remember it; gone once it is sent.
    pub(crate) grant: Option<Grant>,
}

impl Reply {
    /// Nothing in it.
    pub(crate) fn clear(&mut self) {
        self.len = 0;
        self.grant = None;
    }

    /// Adds a structure.
    pub(crate) fn put<T: IntoBytes + Immutable>(&mut self, part: &T) {
        self.append(part.as_bytes());
    }

    /// More bytes.
    pub(crate) fn append(&mut self, part: &[u8]) {
        let end = self.len + part.len();
        self.reserve(end);
        self.bytes[self.len..end].copy_from_slice(part);
        self.len = end;
    }

    /// Lets `fill` write up to `len` bytes in place; it answers how many it wrote.
    pub(crate) fn fill<E>(
        &mut self,
        len: usize,
        fill: impl FnOnce(&mut [u8]) -> Result<usize, E>,
    ) -> Result<(), E> {
        let end = self.len + len;
        self.reserve(end);
        let written = fill(&mut self.bytes[self.len..end])?;
        self.len += written.min(len);
        Ok(())
    }

    /// Returns whether a directory entry, [`Dirent`] or [`DirentPlus`], fits into `limit` bytes in
    /// all.
    pub(crate) fn has_room<T>(&self, limit: usize, name: &[u8]) -> bool {
        self.len + (size_of::<T>() + name.len()).next_multiple_of(8) <= limit
    }

    /// A directory entry and its name.
    pub(crate) fn named<T: IntoBytes + Immutable>(&mut self, entry: &T, name: &[u8]) {
        let end = self.len + (size_of::<T>() + name.len()).next_multiple_of(8);
        self.put(entry);
        self.append(name);
        let padding = end - self.len;
        self.append(&[0; 8][..padding]);
    }

    /// All of it.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    fn reserve(&mut self, len: usize) {
        if self.bytes.len() < len {
            self.bytes.resize(len, 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_aligned_and_bounded() {
        let mut reply = Reply::default();
        let entry = Dirent {
            ino: 7,
            off: 1,
            namelen: 3,
            kind: 8,
        };
        reply.named(&entry, b"abc");
        assert_eq!(reply.bytes().len(), 32);
        assert_eq!(&reply.bytes()[24..], b"abc\0\0\0\0\0");
        assert!(reply.has_room::<Dirent>(64, b"abcdefgh"));
        assert!(!reply.has_room::<Dirent>(64, b"abcdefghi"));
        reply.named(&entry, b"abcdefgh");
        assert_eq!(reply.bytes().len(), 64);
    }

    /// Goal: bytes that an earlier, longer answer has left in the buffer are not seen in the next.
    #[test]
    fn nothing_stays_of_the_last_answer() {
        let mut reply = Reply::default();
        reply.append(b"something long");
        reply.clear();
        let filled = reply.fill(8, |room| {
            room[..2].copy_from_slice(b"ab");
            Ok::<usize, ()>(2)
        });
        assert!(filled.is_ok());
        assert_eq!(reply.bytes(), b"ab");
    }
}
