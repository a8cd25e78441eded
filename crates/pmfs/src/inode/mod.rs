//! Inodes: finding them in the table, reading them, and the few stores that touch one alone.

pub(crate) mod acl;
pub(crate) mod atime;
pub(crate) mod attr;
mod lazy;
pub mod usage;
pub mod xattr;

use crate::pool::Pool;
use crate::purpose::Lane;
use crate::tree::entry::Entry;
use crate::tree::{Shape, Tree, corrupt};
use crate::types::Run;
use crate::types::{Ino, mode};
use pm_journal::error::{Error, Result};
use pm_journal::{Change, Transaction};
use pmfs_format::inode::{
    CTIME_IS_MTIME, FIRST_INO, FLAG_SNAPSHOT, INLINE_BYTES, ROOT_INO, SIZE_MASK, SIZE_MAX,
    TABLE_INO,
};
use pmfs_format::{BLOCK_BYTES, BLOCK_SHIFT, InodeRaw};

/// Inodes in one block of the table.
pub const PER_BLOCK: u64 = BLOCK_BYTES / InodeRaw::SIZE;

/// The first line of an inode, as it was read.
#[derive(Clone, Copy, Debug)]
pub struct Inode {
    /// The inode's number.
    pub ino: Ino,
    /// Byte offset in the pool.
    pub off: u64,
    /// Size and flag.
    pub size_word: u64,
    pub mtime_ns: i64,
    pub root: u64,
    pub ctime_word: i64,
    pub links: u32,
    pub flags: u32,
    pub xattr: u64,
    pub mode: u32,
    pub generation: u32,
    pub parent: u64,
}

/// The first six words of an inode as they are to be: what calls on names and attributes change.
#[derive(Clone, Copy, Debug)]
pub struct Hot(pub [u64; 6]);

impl Inode {
    /// Reads the inode, live or not.
    ///
    /// # Errors
    /// [`Error::Stale`] if the number has no place in the table.
    #[inline(always)]
    pub fn load(pool: &Pool, ino: Ino) -> Result<Inode> {
        let off = pool.inode_off(ino)?;
        let words = pool.pm.read::<8>(off);
        // Size and mtime change as one store and must be read as one.
        let pair = pool.pm.load_pair(off);
        Ok(Inode {
            ino,
            off,
            size_word: pair[0],
            mtime_ns: pair[1] as i64,
            root: words[InodeRaw::root.word()],
            ctime_word: words[InodeRaw::ctime_ns.word()] as i64,
            links: words[InodeRaw::links.word()] as u32,
            flags: (words[InodeRaw::flags.word()] >> InodeRaw::flags.shift()) as u32,
            xattr: words[InodeRaw::xattr.word()],
            mode: words[InodeRaw::mode.word()] as u32,
            generation: (words[InodeRaw::generation.word()] >> InodeRaw::generation.shift()) as u32,
            parent: words[InodeRaw::parent.word()],
        })
    }

    /// Reads the inode of a live file: one with links, or held open.
    ///
    /// # Errors
    /// [`Error::Stale`] if it is neither.
    #[inline(always)]
    pub fn live(pool: &Pool, ino: Ino) -> Result<Inode> {
        Inode::had(pool, ino)?.possible()
    }

    /// Loads a regular file like [`Inode::live`].
    ///
    /// # Errors
    /// Those of [`Inode::live`] and of [`Inode::require_file`].
    #[inline(always)]
    pub fn live_file(pool: &Pool, ino: Ino) -> Result<Inode> {
        let inode = Inode::had(pool, ino)?;
        inode.possible_as(mode::S_IFREG, unlike_file)
    }

    /// Loads a directory like [`Inode::live`].
    ///
    /// # Errors
    /// Those of [`Inode::live`] and of [`Inode::require_dir`].
    #[inline(always)]
    pub fn live_dir(pool: &Pool, ino: Ino) -> Result<Inode> {
        let inode = Inode::had(pool, ino)?;
        inode.possible_as(mode::S_IFDIR, |_| Error::NotDirectory)
    }

    /// Loads an inode of any type that has links, or is held open.
    #[inline(always)]
    fn had(pool: &Pool, ino: Ino) -> Result<Inode> {
        let inode = Inode::load(pool, ino)?;
        if inode.links == 0 && !pool.is_open(ino) {
            return Err(Error::Stale);
        }
        Ok(inode)
    }

    /// The gate for inodes: one that passes has a type, and a size that a file can have, though the
    /// pool's bytes may be anything.
    #[inline(always)]
    fn is_possible(&self) -> bool {
        is_kind(self.mode & !0o7777) & is_size(self.size_word)
    }

    /// Through that gate, as what has one type. `unlike`: what is said of the others.
    #[inline(always)]
    fn possible_as(self, kind: u32, unlike: fn(u32) -> Error) -> Result<Inode> {
        if self.mode & !0o7777 == kind && is_size(self.size_word) {
            return Ok(self);
        }
        // Not the inode itself: what is told of by its address stays in memory.
        Err(refused(self.off, self.mode, self.size_word, unlike))
    }

    /// Passes an inode, as it was read under a lock, through that gate.
    ///
    /// # Errors
    /// [`Error::Corrupt`].
    #[inline(always)]
    pub fn possible(self) -> Result<Inode> {
        match self.is_possible() {
            true => Ok(self),
            false => Err(impossible(self.off)),
        }
    }

    /// Bytes, or entries of a directory.
    #[inline]
    pub fn size(&self) -> u64 {
        self.size_word & SIZE_MASK
    }

    pub fn ctime_ns(&self) -> i64 {
        if self.size_word & CTIME_IS_MTIME != 0 {
            self.mtime_ns
        } else {
            self.ctime_word
        }
    }

    /// The type bits.
    #[inline]
    pub fn kind(&self) -> u32 {
        self.mode & mode::S_IFMT
    }

    /// The word that holds the mode, with other permission bits.
    pub fn mode_word(&self, bits: u32) -> u64 {
        u64::from(self.kind() | bits & 0o7777) | u64::from(self.generation) << 32
    }

    pub fn is_dir(&self) -> bool {
        self.kind() == mode::S_IFDIR
    }

    /// From now on the lane's call changes its content.
    #[inline(always)]
    #[cfg_attr(feature = "record", track_caller)]
    pub fn account_in(&self, lane: &Lane<'_>) {
        let counted = if self.counts_blocks() {
            InodeRaw::inline.of(self.off)
        } else {
            0
        };
        lane.work_on(self.ino, counted);
    }

    /// Returns whether its block count is stored beside it; others have something else there.
    pub fn counts_blocks(&self) -> bool {
        matches!(self.kind(), mode::S_IFREG | mode::S_IFDIR)
    }

    /// # Errors
    /// [`Error::NotDirectory`].
    pub fn require_dir(&self) -> Result<()> {
        if self.is_dir() {
            Ok(())
        } else {
            Err(Error::NotDirectory)
        }
    }

    /// # Errors
    /// [`Error::IsDirectory`] or [`Error::Invalid`] for what is not a regular file.
    #[inline]
    pub fn require_file(&self) -> Result<()> {
        match self.kind() {
            mode::S_IFREG => Ok(()),
            other => Err(unlike_file(other)),
        }
    }

    pub fn shape(&self) -> Shape {
        if self.is_dir() {
            Shape::Directory
        } else {
            Shape::File
        }
    }

    /// Returns whether `root` is a tree: of a device or a short symlink it is 0.
    pub fn has_tree(&self) -> bool {
        matches!(self.kind(), mode::S_IFREG | mode::S_IFDIR | mode::S_IFLNK)
    }

    pub fn root_slot(&self) -> u64 {
        InodeRaw::root.of(self.off)
    }

    #[inline]
    pub fn tree(&self) -> Tree {
        Tree {
            root: Entry(self.root),
            slot: self.root_slot(),
            shape: self.shape(),
        }
    }

    /// The word of its links and flags as it is with another count.
    pub fn with_links(&self, links: u32) -> u64 {
        links_word(links, self.flags & FLAG_SNAPSHOT)
    }

    /// Returns whether it is of a snapshot.
    #[inline(always)]
    pub fn is_of_snapshot(&self) -> bool {
        self.flags & FLAG_SNAPSHOT != 0
    }

    /// Checks that a call may change it, as it was read under its lock.
    ///
    /// # Errors
    /// [`Error::OfSnapshot`].
    #[inline(always)]
    pub fn changeable(&self) -> Result<()> {
        match self.is_of_snapshot() && !planted!("bug-snapshot-changeable") {
            true => Err(of_snapshot()),
            false => Ok(()),
        }
    }

    /// The blocks of its attributes; a count of 0 if it has none.
    pub fn xattr_run(&self) -> Run {
        Run {
            block: self.xattr >> BLOCK_SHIFT,
            count: self.xattr & (BLOCK_BYTES - 1),
        }
    }

    /// The first six words as they stand.
    pub fn hot(&self) -> Hot {
        Hot([
            self.size_word,
            self.mtime_ns as u64,
            self.root,
            self.ctime_word as u64,
            u64::from(self.links) | u64::from(self.flags) << 32,
            self.xattr,
        ])
    }

    /// Logs those of the first six words that are to change.
    #[cfg_attr(feature = "record", track_caller)]
    pub fn log(&self, tx: &mut Transaction<'_>, hot: &Hot) -> Change<6> {
        tx.change(self.off, &self.hot().0, &hot.0)
    }
}

impl Hot {
    pub fn set_size(&mut self, size: u64) {
        self.0[0] = self.0[0] & !SIZE_MASK | size;
    }

    /// mtime and ctime both become `now`.
    pub fn touch(&mut self, now_ns: i64) {
        self.0[0] |= CTIME_IS_MTIME;
        self.0[1] = now_ns as u64;
    }

    /// ctime becomes `now`, mtime stays.
    pub fn change(&mut self, now_ns: i64) {
        self.0[0] &= !CTIME_IS_MTIME;
        self.0[3] = now_ns as u64;
    }

    /// Sets the count of links, and clears the flag beside it that allows an O_TMPFILE its first
    /// link.
    pub fn set_links(&mut self, links: u32) {
        let kept = (self.0[4] >> InodeRaw::flags.shift()) as u32 & FLAG_SNAPSHOT;
        self.0[4] = links_word(links, kept);
    }

    /// The word of links and flags.
    pub fn links_word(&self) -> u64 {
        self.0[4]
    }

    /// Sets whether the inode is of a snapshot.
    pub fn set_of_snapshot(&mut self, is_of_one: bool) {
        let flag = u64::from(FLAG_SNAPSHOT) << InodeRaw::flags.shift();
        self.0[4] = self.0[4] & !flag | if is_of_one { flag } else { 0 };
    }

    pub fn set_xattr(&mut self, word: u64) {
        self.0[5] = word;
    }
}

impl Pool {
    /// The inode table's tree.
    pub fn inode_table(&self) -> Tree {
        Tree::file(self.geometry.table_root(), 0)
    }

    /// Byte offset of an inode.
    ///
    /// # Errors
    /// [`Error::Stale`] if the table has no such inode (yet).
    #[inline(always)]
    pub fn inode_off(&self, ino: Ino) -> Result<u64> {
        if ino < ROOT_INO || ino >= self.geometry.inodes {
            return Err(Error::Stale);
        }
        let block = match self.table_blocks.get(ino / PER_BLOCK) {
            Some(block) => block,
            None => self.find_table_block(ino)?,
        };
        Ok(block + ino % PER_BLOCK * InodeRaw::SIZE)
    }

    /// Byte offset of an inode, if this process knows where its block of the table is. For hints: a
    /// number that no inode has is not told from others.
    #[inline(always)]
    pub(crate) fn known_inode_off(&self, ino: Ino) -> Option<u64> {
        let block = self.table_blocks.get(ino / PER_BLOCK)?;
        Some(block + ino % PER_BLOCK * InodeRaw::SIZE)
    }

    /// The table's block that has an inode, by a walk.
    fn find_table_block(&self, ino: Ino) -> Result<u64> {
        let index = ino / PER_BLOCK;
        let found = self.inode_table().find(self, index)?;
        if !found.entry.is_leaf() {
            return Err(Error::Stale);
        }
        if found.units != 1 {
            return Err(corrupt("inode table", found.slot));
        }
        self.table_blocks.keep(index, found.entry.off());
        Ok(found.entry.off())
    }

    /// See [`crate::Fs::may_have_privileges`].
    #[inline]
    pub(crate) fn may_have_privileges(&self, ino: Ino) -> bool {
        let Ok(off) = self.inode_off(ino) else {
            return false;
        };
        let [xattr, mode] = self.pm.read::<2>(InodeRaw::xattr.of(off));
        xattr != 0 || mode as u32 & (mode::S_ISUID | mode::S_ISGID) != 0
    }
}

/// The contents of a new inode.
#[derive(Clone, Copy, Debug)]
pub struct NewInode<'a> {
    pub mode: u32,
    pub uid: u32,
    pub gid: u32,
    /// Parent of a directory, number of a device.
    pub parent: u64,
    pub size: u64,
    pub root: Entry,
    /// The place of its attributes, as the inode has it.
    pub xattr: u64,
    /// A short symlink's target.
    pub inline: &'a [u8],
}

impl NewInode<'_> {
    /// The inode's 16 words, without links: nothing refers to it yet.
    pub fn words(&self, generation: u32, now_ns: i64) -> [u64; 16] {
        let mut words = [0u64; 16];
        words[InodeRaw::size.word()] = self.size | CTIME_IS_MTIME;
        words[InodeRaw::mtime_ns.word()] = now_ns as u64;
        words[InodeRaw::root.word()] = self.root.0;
        words[InodeRaw::ctime_ns.word()] = now_ns as u64;
        words[InodeRaw::xattr.word()] = self.xattr;
        words[InodeRaw::mode.word()] =
            u64::from(self.mode) | u64::from(generation) << InodeRaw::generation.shift();
        words[InodeRaw::parent.word()] = self.parent;
        words[InodeRaw::atime_ns.word()] = now_ns as u64;
        words[InodeRaw::uid.word()] =
            u64::from(self.uid) | u64::from(self.gid) << InodeRaw::gid.shift();
        words[InodeRaw::crtime_ns.word()] = now_ns as u64;
        let mut inline = [0u8; INLINE_BYTES];
        inline[..self.inline.len()].copy_from_slice(self.inline);
        for (word, bytes) in words[InodeRaw::inline.word()..]
            .iter_mut()
            .zip(inline.chunks_exact(8))
        {
            *word = u64::from_le_bytes(bytes.try_into().expect("eight bytes"));
        }
        if matches!(self.mode & mode::S_IFMT, mode::S_IFREG | mode::S_IFDIR) {
            words[InodeRaw::inline.word()] = self.xattr & (BLOCK_BYTES - 1);
        }
        words
    }
}

/// The word that the count of links and the flags share.
fn links_word(links: u32, flags: u32) -> u64 {
    u64::from(links) | u64::from(flags) << InodeRaw::flags.shift()
}

/// Returns whether a word of size and flag has a size that a file can have.
#[inline(always)]
fn is_size(word: u64) -> bool {
    // The flag goes out at the top.
    const { assert!(CTIME_IS_MTIME == 1 << 63) };
    word << 1 <= SIZE_MAX << 1
}

/// Returns the error for another type where a regular file is needed.
fn unlike_file(kind: u32) -> Error {
    match kind {
        mode::S_IFDIR => Error::IsDirectory,
        _ => Error::Invalid(&"not a regular file"),
    }
}

#[cold]
#[inline(never)]
fn refused(off: u64, mode: u32, size_word: u64, unlike: fn(u32) -> Error) -> Error {
    match is_kind(mode & !0o7777) && is_size(size_word) {
        true => unlike(mode & mode::S_IFMT),
        false => impossible(off),
    }
}

#[cold]
#[inline(never)]
fn of_snapshot() -> Error {
    Error::OfSnapshot
}

#[cold]
#[inline(never)]
fn impossible(off: u64) -> Error {
    corrupt("inode type or size", off)
}

/// The numbers that are a type, one bit each.
const KINDS: u32 = 1 << (mode::S_IFREG >> 12)
    | 1 << (mode::S_IFDIR >> 12)
    | 1 << (mode::S_IFLNK >> 12)
    | 1 << (mode::S_IFIFO >> 12)
    | 1 << (mode::S_IFSOCK >> 12)
    | 1 << (mode::S_IFBLK >> 12)
    | 1 << (mode::S_IFCHR >> 12);

/// Returns whether these type bits are a type.
pub fn is_kind(kind: u32) -> bool {
    let number = kind >> 12;
    number < u32::BITS / 2 && KINDS >> number & 1 == 1
}

/// Checks what a damaged inode could make the engine do; live inodes only.
pub fn plausible(inode: &Inode) -> Result<()> {
    let bad = |what| Err(corrupt(what, inode.off));
    if !is_kind(inode.kind()) {
        return bad("inode type");
    }
    if inode.size() > SIZE_MAX {
        return bad("inode size");
    }
    if inode.ino < FIRST_INO && (inode.ino == TABLE_INO || !inode.is_dir()) {
        return bad("root directory");
    }
    Ok(())
}
