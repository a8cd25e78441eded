//! Every kind of call, each on a pool that has one of everything.

use super::colliding::colliding;
use super::nowhere::from_nowhere;
use super::pool::{LARGE_POOL_BYTES, NODE, POOL_BYTES, pattern};
use pmfs::{
    Error, FallocateMode, Fs, Ino, LargePages, LockClass, LockKind, LockOwner, LockRange, ROOT_INO,
    RenameFlags, Result, SetAttr, SetTime, XattrFlags,
};
use pmfs_admin::Admin;
use pmfs_admin::Merged;
use std::io::SeekFrom;

/// The inodes that [`prepare`] makes.
#[derive(Clone, Copy, Debug)]
pub struct Prepared {
    /// A directory with a few names.
    pub dir: Ino,
    /// An empty directory, named `empty`.
    pub empty: Ino,
    /// `dir/small`: 100 bytes in one block.
    pub small: Ino,
    /// `dir/large`: 5 blocks and a bit.
    pub large: Ino,
    /// `dir/sparse`: holes, an unwritten block, data.
    pub sparse: Ino,
    /// `dir/linked` and `linked`: two names.
    pub linked: Ino,
    /// A file without a name, held open.
    pub orphan: Ino,
    /// `dir/blank`: an empty file, held open.
    pub blank: Ino,
}

const POSIX: LockOwner = LockOwner {
    class: LockClass::Posix,
    id: 0,
};

fn range(start: u64, end: u64) -> LockRange {
    LockRange { start, end }
}

/// Every way in which a record of a file lock changes.
fn locks(fs: &Fs, ino: Ino) -> Result<()> {
    for (start, end) in [(10, 20), (30, 40), (15, 35)] {
        fs.lock(ino, POSIX, LockKind::Read, range(start, end), 1)?;
    }
    fs.lock(ino, POSIX, LockKind::Write, range(18, 22), 1)?;
    fs.unlock(ino, POSIX, range(25, 30))?;
    fs.unlock_all(ino, POSIX)
}

/// An open file from its beginning to its end.
fn open_file(fs: &Fs, ino: Ino) -> Result<()> {
    let file = fs.open_file(ino, 0)?;
    fs.dup_file(file)?;
    fs.lock_file(file, LockClass::Flock, LockKind::Write, LockRange::WHOLE)?;
    fs.seek_file(file, SeekFrom::Start(3))?;
    fs.read_file(file, &mut [0; 10])?;
    fs.close_file(file)?;
    fs.close_file(file)
}

/// One call, with its name.
#[derive(Clone)]
pub struct Kind {
    /// The name of the call.
    pub name: &'static str,
    /// Bytes of its pool.
    pub pool_bytes: u64,
    /// Makes what it needs beyond [`prepare`].
    pub first: fn(&Fs, &Prepared) -> Result<()>,
    /// Does it.
    pub call: fn(&Fs, &Prepared) -> Result<()>,
    /// It writes over what a file has: docs/adr/0031-atomic-writes.md and
    /// docs/adr/0034-times.md.
    pub overwrites: bool,
    /// The write may tear, in any mode.
    pub in_place: bool,
    /// A call that another process made before, and died at its first step behind a fence: in the
    /// kill model.
    pub doomed: Option<fn(&Fs, &Prepared) -> Result<()>>,
    /// The rule by which files take large pages.
    pub large: LargePages,
}

/// Fills a fresh pool.
///
/// # Errors
/// Those of any call.
pub fn prepare(fs: &Fs) -> Result<Prepared> {
    let dir = fs.mkdir(ROOT_INO, b"dir", &NODE)?.ino;
    let empty = fs.mkdir(ROOT_INO, b"empty", &NODE)?.ino;
    let small = fs.create(dir, b"small", &NODE)?.ino;
    fs.write(small, 0, &[b's'; 100])?;
    let large = fs.create(dir, b"large", &NODE)?.ino;
    fs.write(large, 0, &pattern(5 * 4096 + 77, 1))?;
    let sparse = fs.create(dir, b"sparse", &NODE)?.ino;
    fs.write(sparse, 3 * 4096, &pattern(4096, 2))?;
    fs.fallocate(sparse, FallocateMode::KEEP_SIZE, 4096, 4096)?;
    fs.write(sparse, 8 * 4096 + 5, b"end")?;
    let linked = fs.create(ROOT_INO, b"linked", &NODE)?.ino;
    fs.link(linked, dir, b"linked")?;
    fs.symlink(dir, b"sym", b"../linked", &NODE)?;
    fs.setxattr(linked, b"user.one", b"value", XattrFlags::empty())?;
    let orphan = fs.tmpfile(dir, &NODE)?.ino;
    fs.write(orphan, 0, b"nobody's")?;
    let blank = fs.create(dir, b"blank", &NODE)?.ino;
    fs.hold(blank)?;
    Ok(Prepared {
        dir,
        empty,
        small,
        large,
        sparse,
        linked,
        orphan,
        blank,
    })
}

pub(super) fn size(size: u64) -> SetAttr {
    SetAttr {
        size: Some(size),
        ..SetAttr::default()
    }
}

macro_rules! kinds {
    ($( $name:literal, $overwrites:literal, |$fs:ident, $p:pat_param| $body:expr; )+) => {
        vec![ $( Kind {
            name: $name, pool_bytes: POOL_BYTES, first: |_, _| Ok(()),
            call: |$fs, $p| { $body; Ok(()) }, overwrites: $overwrites, in_place: false, doomed: None,
            large: LargePages::Grow,
        } ),+ ]
    };
}

/// Every kind of call, on what [`prepare`] made.
#[must_use]
pub fn kinds() -> Vec<Kind> {
    let mut all = names();
    all.extend(contents());
    all.extend(acls());
    all.extend(splits());
    all.extend(large_leaves());
    all.extend(grown_leaves());
    all.extend(leaves_always());
    all.extend(spares());
    all.extend(defragmented());
    all.extend(from_nowhere());
    all.extend(super::pinned::kinds());
    all.extend(super::apart::kinds());
    all.extend(super::edges::kinds());
    all.extend(super::clones::kinds());
    all.extend(super::left::kinds());
    all.push(table_growth());
    all
}

/// Inodes in a block of their table.
const INODES_IN_BLOCK: u64 = 32;

/// A call that finds the inode table full.
fn table_growth() -> Kind {
    let mut all = kinds! {
        "create that grows the inode table", false,
            |fs, p| fs.create(p.dir, b"in a new block", &NODE)?;
    };
    let mut kind = all.remove(0);
    kind.first = |fs, p| {
        for name in 0u64.. {
            let made = fs.create(p.empty, format!("name {name}").as_bytes(), &NODE)?;
            if made.ino % INODES_IN_BLOCK == INODES_IN_BLOCK - 1 {
                break;
            }
        }
        Ok(())
    };
    kind
}

/// Names enough to fill buckets.
fn crowd(fs: &Fs, dir: Ino, names: usize) -> Result<()> {
    for name in 0..names {
        fs.create(dir, format!("name {name}").as_bytes(), &NODE)?;
    }
    Ok(())
}

/// Owner rw-, user 7 r-x, group r--, mask `mask`, others ---, as `setxattr(2)` takes it.
#[must_use]
pub fn acl(mask: u8) -> Vec<u8> {
    let mut bytes = vec![2, 0, 0, 0];
    let nobody = u32::MAX;
    for (tag, permissions, id) in [
        (1, 6, nobody),
        (2, 5, 7),
        (4, 4, nobody),
        (16, mask, nobody),
        (32, 0, nobody),
    ] {
        bytes.extend_from_slice(&[tag, 0, permissions, 0]);
        bytes.extend_from_slice(&u32::to_le_bytes(id));
    }
    bytes
}

const ACCESS: &[u8] = b"system.posix_acl_access";
const DEFAULT: &[u8] = b"system.posix_acl_default";

/// Calls on ACLs, and calls that ACLs have a part in: `linked` has an access ACL, `empty` a default
/// one.
fn acls() -> Vec<Kind> {
    const NONE: XattrFlags = XattrFlags::empty();
    let mut all = kinds! {
        "set an access ACL", false, |fs, p| fs.setxattr(p.small, ACCESS, &acl(6), NONE)?;
        "replace an access ACL", false, |fs, p| fs.setxattr(p.linked, ACCESS, &acl(1), NONE)?;
        "an access ACL that the mode can say", false, |fs, p| fs.setxattr(p.linked, ACCESS,
            b"\x02\0\0\0\x01\0\x07\0\0\0\0\0\x04\0\x05\0\0\0\0\0\x20\0\x01\0\0\0\0\0", NONE)?;
        "remove an access ACL", false, |fs, p| fs.removexattr(p.linked, ACCESS)?;
        "chmod with an ACL", false,
            |fs, p| fs.setattr(p.linked, &SetAttr { mode: Some(0o610), ..SetAttr::default() })?;
        "set a default ACL", false, |fs, p| fs.setxattr(p.dir, DEFAULT, &acl(7), NONE)?;
        "create under a default ACL", false, |fs, p| fs.create(p.empty, b"new", &NODE)?;
        "mkdir under a default ACL", false, |fs, p| fs.mkdir(p.empty, b"new", &NODE)?;
        "tmpfile under a default ACL", false, |fs, p| fs.tmpfile(p.empty, &NODE)?;
    };
    for kind in &mut all {
        kind.first = |fs, p| {
            fs.setxattr(p.linked, ACCESS, &acl(5), NONE)?;
            fs.setxattr(p.empty, DEFAULT, &acl(7), NONE)
        };
    }
    all
}

/// Calls that split a bucket on the way.
fn splits() -> Vec<Kind> {
    let mut all = kinds! {
        "create that splits the only bucket", false, |fs, p| fs.create(p.empty, b"one more", &NODE)?;
        "rename that splits the only bucket", false,
            |fs, p| fs.rename(p.empty, b"name 5", p.empty, &[b'l'; 255], RenameFlags::empty())?;
        "create that splits a bucket in a node", false,
            |fs, p| fs.create(p.empty, &[b'l'; 255], &NODE)?;
        "unlink after splits", false, |fs, p| fs.unlink(p.empty, b"name 7")?;
        "create that splits a bucket down to a second node", false,
            |fs, p| fs.create(p.empty, &deep_names().0, &NODE)?;
    };
    for (at, kind) in all.iter_mut().enumerate() {
        kind.first = match at {
            0 | 1 => |fs, p| crowd(fs, p.empty, 63),
            2 | 3 => |fs, p| crowd(fs, p.empty, 123),
            _ => |fs, p| {
                let (_, names) = deep_names();
                let mut names = names.iter();
                names.try_for_each(|name| fs.create(p.empty, name, &NODE).map(drop))
            },
        };
    }
    all
}

/// One name, and those that fill a bucket which it has to go into. They differ after the eleventh
/// bit of their hashes: the bucket is parted until the first node can't tell them apart, and then
/// twice below it.
fn deep_names() -> (Vec<u8>, Vec<Vec<u8>>) {
    let mut names = colliding(13, 11);
    let last = names.pop().expect("13 of them");
    (last, names)
}

/// Calls on a file with a 2 MiB leaf, written in part.
fn large_leaves() -> Vec<Kind> {
    let mut all = kinds! {
        "overwrite in a large leaf", true, |fs, p| fs.write(p.blank, 70_001, &pattern(9000, 3))?;
        "append in a large leaf", false, |fs, p| fs.append(p.blank, &pattern(3000, 3))?;
        "punch in a large leaf", true, |fs, p| fs.fallocate(
            p.blank, FallocateMode::KEEP_SIZE | FallocateMode::PUNCH_HOLE, 40_000, 20_000)?;
        "collapse in a large leaf", false, |fs, p| fs.collapse_range(p.blank, 8192, 4096)?;
        "insert in a large leaf", false, |fs, p| fs.insert_range(p.blank, 8192, 4096)?;
        "insert before a large leaf", false, |fs, p| fs.insert_range(p.blank, 0, 2 << 20)?;
        "truncate in a large leaf", false, |fs, p| fs.setattr(p.blank, &size(50_000))?;
        "unlink of a file with a large leaf", false, |fs, p| fs.unlink(p.dir, b"blank")?;
    };
    for kind in &mut all {
        kind.pool_bytes = LARGE_POOL_BYTES;
        kind.first = |fs, p| {
            fs.fallocate(p.blank, FallocateMode::KEEP_SIZE, 0, 2 << 20)?;
            fs.write(p.blank, 0, &pattern(100_000, 5)).map(drop)
        };
    }
    all
}

/// Large leaves that a file has grown into: the first overwrite of a part splits them.
fn grown_leaves() -> Vec<Kind> {
    let mut all = kinds! {
        "overwrite of a block in a grown leaf", true, |fs, p| fs.write(p.blank, 8192, &pattern(4096, 3))?;
        "overwrite of part of a block in a grown leaf", true, |fs, p| fs.write(p.blank, 9000, &pattern(1400, 3))?;
        "overwrite of 64 bytes in a grown leaf", true, |fs, p| fs.write(p.blank, 9000, &[b'o'; 64])?;
        "write over the end of a grown leaf", true, |fs, p| fs.write(p.blank, (2 << 20) - 100, &pattern(3000, 3))?;
        "append that takes a large leaf", false, |fs, p| fs.append(p.blank, &pattern(3000, 3))?;
        "truncate of a grown leaf", false, |fs, p| fs.setattr(p.blank, &size(50_000))?;
    };
    for kind in &mut all {
        kind.pool_bytes = LARGE_POOL_BYTES;
        kind.first = |fs, p| fs.write(p.blank, 0, &pattern(2 << 20, 5)).map(drop);
    }
    all
}

/// Files that take large leaves wherever they can: one that was made longer does, in each hole of 2
/// MiB that is written to.
fn leaves_always() -> Vec<Kind> {
    let mut all = kinds! {
        "write in a hole that takes a large leaf", true, |fs, p| fs.write(p.blank, 70_001, &pattern(9000, 3))?;
        "write over the edge of two such holes", true, |fs, p| fs.write(p.blank, (2 << 20) - 3000, &pattern(9000, 3))?;
        "append behind such holes", false, |fs, p| fs.append(p.blank, &pattern(3000, 3))?;
    };
    for kind in &mut all {
        kind.pool_bytes = LARGE_POOL_BYTES;
        kind.large = LargePages::Always;
        kind.first = |fs, p| fs.setattr(p.blank, &size(4 << 20)).map(drop);
    }
    all
}

/// Calls of a lane that has a spare block: what an overwrite before them has left.
fn spares() -> Vec<Kind> {
    let mut all = kinds! {
        "overwrite of a block, to a spare one", true, |fs, p| fs.write(p.large, 8192, &pattern(4096, 3))?;
        "overwrite of part of a block, to a spare one", true, |fs, p| fs.write(p.large, 9000, &pattern(1400, 3))?;
        "overwrite of a hole beside a spare block", true, |fs, p| fs.write(p.sparse, 100, b"in a hole")?;
        "truncate to nothing beside a spare block", false, |fs, p| fs.setattr(p.large, &size(0))?;
        "defrag that gives a spare block back", false, |fs, _| fs.defrag(false, &mut |_, _| {})?;
    };
    for kind in &mut all {
        kind.first = |fs, p| fs.write(p.large, 4096, &pattern(4096, 6)).map(drop);
    }
    all
}

/// Steps of defragmenting: nothing that is seen changes.
fn defragmented() -> Vec<Kind> {
    let mut all = kinds! {
        "merge of leaves that lie in a row", false, |fs, p| merged(fs, p)?;
        "merge of leaves that lie apart", false, |fs, p| merged(fs, p)?;
        "defragment: leaves go elsewhere", false, |fs, _| {
            let report = fs.defrag(false, &mut |_, _| {})?;
            did((report.regions, report.moved), (1, 3))?;
        };
    };
    for kind in &mut all {
        kind.pool_bytes = LARGE_POOL_BYTES;
    }
    all[0].first = small_leaves;
    all[1].first = |fs, p| {
        small_leaves(fs, p)?;
        for block in [1, 2, 300] {
            fs.write(p.blank, block * 4096, &pattern(4096, 6))?;
        }
        Ok(())
    };
    // A region of which little is used.
    all[2].first = |fs, p| {
        small_leaves(fs, p)?;
        fs.setattr(p.blank, &size(3 * 4096)).map(drop)
    };
    all
}

fn merged(fs: &Fs, p: &Prepared) -> Result<()> {
    did(fs.merge(p.blank, 0)?, Merged::Merged)
}

/// Fails a call that did something else than its name says. The survivor of a dead process makes
/// its call again, and may find nothing left to do: there a call may fail.
fn did<T: PartialEq>(got: T, wanted: T) -> Result<()> {
    match got == wanted {
        true => Ok(()),
        false => Err(Error::NotSupported(&"nothing was left to do")),
    }
}

/// 2 MiB of a region in 512 leaves: a large one is cut up by moving them, and they are moved back.
fn small_leaves(fs: &Fs, p: &Prepared) -> Result<()> {
    fs.write(p.blank, 0, &pattern(2 << 20, 5))?;
    fs.insert_range(p.blank, 0, 4096)?;
    fs.collapse_range(p.blank, 0, 4096)
}

fn names() -> Vec<Kind> {
    kinds! {
        "create", false, |fs, p| fs.create(p.dir, b"new", &NODE)?;
        "create in an empty directory", false, |fs, p| fs.create(p.empty, b"first", &NODE)?;
        "create with a long name", false, |fs, p| fs.create(p.dir, &[b'n'; 255], &NODE)?;
        "mkdir", false, |fs, p| fs.mkdir(p.dir, b"new", &NODE)?;
        "mknod", false, |fs, p| fs.mknod(p.dir, b"new", &NODE, 0o020_000, 0x103)?;
        "symlink, short", false, |fs, p| fs.symlink(p.dir, b"new", b"target", &NODE)?;
        "symlink, long", false, |fs, p| fs.symlink(p.dir, b"new", &[b't'; 300], &NODE)?;
        "tmpfile", false, |fs, p| fs.tmpfile(p.dir, &NODE)?;
        "link", false, |fs, p| fs.link(p.small, p.empty, b"hard")?;
        "link of a nameless file", false, |fs, p| fs.link(p.orphan, p.dir, b"named")?;
        "unlink", false, |fs, p| fs.unlink(p.dir, b"large")?;
        "unlink of one of two names", false, |fs, p| fs.unlink(p.dir, b"linked")?;
        "unlink while open", false, |fs, p| fs.unlink(p.dir, b"blank")?;
        "release of a nameless file", false, |fs, p| fs.release(p.orphan)?;
        "rmdir", false, |fs, _| fs.rmdir(ROOT_INO, b"empty")?;
        "rename in a directory", false,
            |fs, p| fs.rename(p.dir, b"small", p.dir, b"renamed", RenameFlags::empty())?;
        "rename across directories", false,
            |fs, p| fs.rename(p.dir, b"small", p.empty, b"small", RenameFlags::empty())?;
        "rename of a directory", false,
            |fs, p| fs.rename(ROOT_INO, b"empty", p.dir, b"empty", RenameFlags::empty())?;
        "rename over a file", false,
            |fs, p| fs.rename(p.dir, b"small", p.dir, b"large", RenameFlags::empty())?;
        "rename over one of two names", false,
            |fs, p| fs.rename(p.dir, b"small", ROOT_INO, b"linked", RenameFlags::empty())?;
        "rename over a directory", false,
            |fs, _| fs.rename(ROOT_INO, b"dir", ROOT_INO, b"empty", RenameFlags::empty())?;
        "rename, exchanging", false,
            |fs, p| fs.rename(p.dir, b"small", ROOT_INO, b"empty", RenameFlags::EXCHANGE)?;
        "rename, leaving a whiteout", false,
            |fs, p| fs.rename(p.dir, b"small", p.dir, b"renamed", RenameFlags::WHITEOUT)?;
        "rename across directories, leaving a whiteout", false,
            |fs, p| fs.rename(p.dir, b"small", p.empty, b"small", RenameFlags::WHITEOUT)?;
        "rename over a file, leaving a whiteout", false,
            |fs, p| fs.rename(p.dir, b"small", p.dir, b"large", RenameFlags::WHITEOUT)?;
        "rename of a directory, leaving a whiteout", false,
            |fs, p| fs.rename(ROOT_INO, b"empty", p.dir, b"empty", RenameFlags::WHITEOUT)?;
        "chmod", false, |fs, p| fs.setattr(p.small, &SetAttr { mode: Some(0o600), ..SetAttr::default() })?;
        "chown", false,
            |fs, p| fs.setattr(p.dir, &SetAttr { uid: Some(3), gid: Some(4), ..SetAttr::default() })?;
        "utimens", false, |fs, p| fs.setattr(p.small, &SetAttr {
            atime_ns: Some(SetTime::At(5)), mtime_ns: Some(SetTime::At(6)), ..SetAttr::default()
        })?;
        "setxattr", false, |fs, p| fs.setxattr(p.small, b"user.new", &[9; 300], XattrFlags::empty())?;
        "setxattr, replacing", false,
            |fs, p| fs.setxattr(p.linked, b"user.one", &[9; 5000], XattrFlags::empty())?;
        "removexattr", false, |fs, p| fs.removexattr(p.linked, b"user.one")?;
    }
}

fn contents() -> Vec<Kind> {
    kinds! {
        "append in a block", false, |fs, p| fs.append(p.small, &[b'a'; 50])?;
        "append of a line's length, unaligned", false, |fs, p| fs.append(p.small, &[b'a'; 64])?;
        "append to an empty file", false, |fs, p| fs.append(p.blank, &[b'a'; 64])?;
        "append across blocks", false, |fs, p| fs.append(p.large, &pattern(9000, 3))?;
        "append that grows the tree", false, |fs, p| fs.append(p.small, &pattern(6000, 3))?;
        "write far past the end", false, |fs, p| fs.write(p.small, 3 << 20, b"far")?;
        "write a gap past the end", false, |fs, p| fs.write(p.small, 5000, &pattern(5000, 3))?;
        "overwrite of 3 bytes", true, |fs, p| fs.write(p.large, 4099, b"xyz")?;
        "overwrite of 64 bytes", true, |fs, p| fs.write(p.large, 4090, &[b'o'; 64])?;
        "overwrite of a block", true, |fs, p| fs.write(p.large, 8192, &pattern(4096, 3))?;
        "overwrite of part of a block", true, |fs, p| fs.write(p.large, 9000, &pattern(1400, 3))?;
        "overwrite of several blocks", true, |fs, p| fs.write(p.large, 3000, &pattern(10_000, 3))?;
        "overwrite of a hole", true, |fs, p| fs.write(p.sparse, 100, b"in a hole")?;
        "overwrite of an unwritten block", true, |fs, p| fs.write(p.sparse, 5000, b"unwritten")?;
        "overwrite from data into a hole", true, |fs, p| fs.write(p.sparse, 16_000, &pattern(900, 3))?;
        "write over the end", true, |fs, p| fs.write(p.large, 20_000, &pattern(3000, 3))?;
        "write over the end, one block", true, |fs, p| fs.write(p.small, 90, &[b'e'; 30])?;
        "truncate to nothing", false, |fs, p| fs.setattr(p.large, &size(0))?;
        "truncate into a block", false, |fs, p| fs.setattr(p.large, &size(5000))?;
        "truncate up", false, |fs, p| fs.setattr(p.small, &size(70_000))?;
        "truncate down and up", false, |fs, p| fs.setattr(p.large, &size(20_500))?;
        "fallocate", false, |fs, p| fs.fallocate(p.small, FallocateMode::empty(), 50, 20_000)?;
        "fallocate keeping the size", false,
            |fs, p| fs.fallocate(p.sparse, FallocateMode::KEEP_SIZE, 0, 60_000)?;
        "punch a hole", true, |fs, p| fs.fallocate(
            p.large, FallocateMode::KEEP_SIZE | FallocateMode::PUNCH_HOLE, 3000, 10_000)?;
        "punch inside a block", true, |fs, p| fs.fallocate(
            p.large, FallocateMode::KEEP_SIZE | FallocateMode::PUNCH_HOLE, 5000, 100)?;
        "zero a range", true, |fs, p| fs.fallocate(
            p.large, FallocateMode::ZERO_RANGE, 3000, 10_000)?;
        "zero a range past the end", true, |fs, p| fs.fallocate(
            p.large, FallocateMode::ZERO_RANGE, 20_000, 9_000)?;
        "collapse a range", false, |fs, p| fs.collapse_range(p.large, 4096, 8192)?;
        "collapse a range with a hole", false, |fs, p| fs.collapse_range(p.sparse, 2 * 4096, 3 * 4096)?;
        "insert a range", false, |fs, p| fs.insert_range(p.large, 4096, 8192)?;
        "insert a range that grows the tree", false, |fs, p| fs.insert_range(p.large, 8192, 3 << 20)?;
        "insert a range into one block", false, |fs, p| fs.insert_range(p.small, 0, 4096)?;
        "file lock", false, |fs, p| fs.lock(p.large, POSIX, LockKind::Write, range(10, 20), 1)?;
        "file locks that merge, split and go", false, |fs, p| locks(fs, p.large)?;
        "an open file read, locked and closed", false, |fs, p| open_file(fs, p.small)?;
        "copy_file_range", false, |fs, p| fs.copy_range(p.large, 100, p.small, 100, 5000)?;
        "copy_file_range of holes, past the end", false,
            |fs, p| fs.copy_range(p.sparse, 100, p.small, 5000, 17_000)?;
        "copy_file_range inside a file", true, |fs, p| fs.copy_range(p.small, 0, p.large, 5000, 100)?;
    }
}
