//! Workloads: a prepared pool and one call on it.

use crate::tree::Leniency;
use pmfs::{
    DataMode, FallocateMode, Fs, Ino, MkfsOptions, NewNode, OpenOptions, ROOT_INO, RenameFlags,
    Result, SetAttr, SetTime, XattrFlags,
};
use std::sync::Arc;
use std::sync::atomic::AtomicI64;

/// Bytes of the pool: small, so that thousands of images are cheap.
const POOL_BYTES: u64 = 1 << 20;
/// Bytes of a pool that has room for 2 MiB leaves.
const LARGE_POOL_BYTES: u64 = 8 << 20;

const NODE: NewNode = NewNode {
    umask: 0,
    mode: 0o644,
    uid: 10,
    gid: 20,
};

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

/// One call, with its name.
pub struct Workload {
    /// What the call is.
    pub name: &'static str,
    /// Bytes of its pool.
    pub pool_bytes: u64,
    /// What it needs beyond [`prepare`].
    pub first: fn(&Fs, &Prepared) -> Result<()>,
    /// Does it.
    pub call: fn(&Fs, &Prepared) -> Result<()>,
    /// What may come out either way.
    pub lenient: fn(DataMode) -> Leniency,
}

/// How the pools of all workloads are made: nothing random, a clock that counts.
#[must_use]
pub fn mkfs_options(pool_bytes: u64) -> MkfsOptions {
    MkfsOptions {
        size: Some(pool_bytes),
        uuid: Some([7; 16]),
        hash_key: Some([0x0123_4567_89ab_cdef, 0xfeed]),
        root: Some((0, 0, 0o755)),
        clock: clock(1000),
        ..MkfsOptions::default()
    }
}

/// Options for an instance that counts its clock from `start`.
#[must_use]
pub fn open_options(mode: DataMode, start: i64) -> OpenOptions {
    OpenOptions {
        data: mode,
        clock: clock(start),
        ..OpenOptions::default()
    }
}

fn clock(start: i64) -> pmfs::Clock {
    pmfs::Clock::Steps(Arc::new(AtomicI64::new(start)))
}

/// Fills a fresh pool.
///
/// # Errors
/// What any call answered.
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

/// Bytes that tell their place.
#[must_use]
pub fn pattern(len: usize, salt: u8) -> Vec<u8> {
    (0..len)
        .map(|at| (at / 8) as u8 ^ salt.wrapping_mul(37))
        .collect()
}

fn strict(_: DataMode) -> Leniency {
    Leniency::default()
}

fn overwrite(mode: DataMode) -> Leniency {
    Leniency {
        file_times: true,
        content: mode == DataMode::Ordered,
    }
}

fn size(size: u64) -> SetAttr {
    SetAttr {
        size: Some(size),
        ..SetAttr::default()
    }
}

macro_rules! workloads {
    ($( $name:literal, $lenient:ident, |$fs:ident, $p:pat_param| $body:expr; )+) => {
        vec![ $( Workload {
            name: $name, pool_bytes: POOL_BYTES, first: |_, _| Ok(()),
            call: |$fs, $p| { $body; Ok(()) }, lenient: $lenient,
        } ),+ ]
    };
}

/// Every kind of call, on what [`prepare`] made.
#[must_use]
pub fn one_call() -> Vec<Workload> {
    let mut all = names();
    all.extend(contents());
    all.extend(acls());
    all.extend(splits());
    all.extend(large_leaves());
    all
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

/// Calls on ACLs, and calls that ACLs have a part in: `linked` has an access ACL, `empty` a default one.
fn acls() -> Vec<Workload> {
    const NONE: XattrFlags = XattrFlags::empty();
    let mut all = workloads! {
        "set an access ACL", strict, |fs, p| fs.setxattr(p.small, ACCESS, &acl(6), NONE)?;
        "replace an access ACL", strict, |fs, p| fs.setxattr(p.linked, ACCESS, &acl(1), NONE)?;
        "an access ACL that the mode can say", strict, |fs, p| fs.setxattr(p.linked, ACCESS,
            b"\x02\0\0\0\x01\0\x07\0\0\0\0\0\x04\0\x05\0\0\0\0\0\x20\0\x01\0\0\0\0\0", NONE)?;
        "remove an access ACL", strict, |fs, p| fs.removexattr(p.linked, ACCESS)?;
        "chmod with an ACL", strict,
            |fs, p| fs.setattr(p.linked, &SetAttr { mode: Some(0o610), ..SetAttr::default() })?;
        "set a default ACL", strict, |fs, p| fs.setxattr(p.dir, DEFAULT, &acl(7), NONE)?;
        "create under a default ACL", strict, |fs, p| fs.create(p.empty, b"new", &NODE)?;
        "mkdir under a default ACL", strict, |fs, p| fs.mkdir(p.empty, b"new", &NODE)?;
        "tmpfile under a default ACL", strict, |fs, p| fs.tmpfile(p.empty, &NODE)?;
    };
    for workload in &mut all {
        workload.first = |fs, p| {
            fs.setxattr(p.linked, ACCESS, &acl(5), NONE)?;
            fs.setxattr(p.empty, DEFAULT, &acl(7), NONE)
        };
    }
    all
}

/// Calls that split a bucket on the way.
fn splits() -> Vec<Workload> {
    let mut all = workloads! {
        "create that splits the only bucket", strict, |fs, p| fs.create(p.empty, b"one more", &NODE)?;
        "rename that splits the only bucket", strict,
            |fs, p| fs.rename(p.empty, b"name 5", p.empty, &[b'l'; 255], RenameFlags::empty())?;
        "create that splits a bucket in a node", strict,
            |fs, p| fs.create(p.empty, &[b'l'; 255], &NODE)?;
        "unlink after splits", strict, |fs, p| fs.unlink(p.empty, b"name 7")?;
    };
    for (at, workload) in all.iter_mut().enumerate() {
        workload.first = match at {
            0 | 1 => |fs, p| crowd(fs, p.empty, 63),
            _ => |fs, p| crowd(fs, p.empty, 123),
        };
    }
    all
}

/// Calls on a file with a 2 MiB leaf, written in part.
fn large_leaves() -> Vec<Workload> {
    let mut all = workloads! {
        "overwrite in a large leaf", overwrite, |fs, p| fs.write(p.blank, 70_001, &pattern(9000, 3))?;
        "append in a large leaf", strict, |fs, p| fs.append(p.blank, &pattern(3000, 3))?;
        "punch in a large leaf", overwrite, |fs, p| fs.fallocate(
            p.blank, FallocateMode::KEEP_SIZE | FallocateMode::PUNCH_HOLE, 40_000, 20_000)?;
        "collapse in a large leaf", strict, |fs, p| fs.collapse_range(p.blank, 8192, 4096)?;
        "insert in a large leaf", strict, |fs, p| fs.insert_range(p.blank, 8192, 4096)?;
        "insert before a large leaf", strict, |fs, p| fs.insert_range(p.blank, 0, 2 << 20)?;
        "truncate in a large leaf", strict, |fs, p| fs.setattr(p.blank, &size(50_000))?;
        "unlink of a file with a large leaf", strict, |fs, p| fs.unlink(p.dir, b"blank")?;
    };
    for workload in &mut all {
        workload.pool_bytes = LARGE_POOL_BYTES;
        workload.first = |fs, p| {
            fs.fallocate(p.blank, FallocateMode::KEEP_SIZE, 0, 2 << 20)?;
            fs.write(p.blank, 0, &pattern(100_000, 5)).map(drop)
        };
    }
    all
}

fn names() -> Vec<Workload> {
    workloads! {
        "create", strict, |fs, p| fs.create(p.dir, b"new", &NODE)?;
        "create in an empty directory", strict, |fs, p| fs.create(p.empty, b"first", &NODE)?;
        "create with a long name", strict, |fs, p| fs.create(p.dir, &[b'n'; 255], &NODE)?;
        "mkdir", strict, |fs, p| fs.mkdir(p.dir, b"new", &NODE)?;
        "mknod", strict, |fs, p| fs.mknod(p.dir, b"new", &NODE, 0o020_000, 0x103)?;
        "symlink, short", strict, |fs, p| fs.symlink(p.dir, b"new", b"target", &NODE)?;
        "symlink, long", strict, |fs, p| fs.symlink(p.dir, b"new", &[b't'; 300], &NODE)?;
        "tmpfile", strict, |fs, p| fs.tmpfile(p.dir, &NODE)?;
        "link", strict, |fs, p| fs.link(p.small, p.empty, b"hard")?;
        "link of a nameless file", strict, |fs, p| fs.link(p.orphan, p.dir, b"named")?;
        "unlink", strict, |fs, p| fs.unlink(p.dir, b"large")?;
        "unlink of one of two names", strict, |fs, p| fs.unlink(p.dir, b"linked")?;
        "unlink while open", strict, |fs, p| fs.unlink(p.dir, b"blank")?;
        "release of a nameless file", strict, |fs, p| fs.release(p.orphan)?;
        "rmdir", strict, |fs, _| fs.rmdir(ROOT_INO, b"empty")?;
        "rename in a directory", strict,
            |fs, p| fs.rename(p.dir, b"small", p.dir, b"renamed", RenameFlags::empty())?;
        "rename across directories", strict,
            |fs, p| fs.rename(p.dir, b"small", p.empty, b"small", RenameFlags::empty())?;
        "rename of a directory", strict,
            |fs, p| fs.rename(ROOT_INO, b"empty", p.dir, b"empty", RenameFlags::empty())?;
        "rename over a file", strict,
            |fs, p| fs.rename(p.dir, b"small", p.dir, b"large", RenameFlags::empty())?;
        "rename over one of two names", strict,
            |fs, p| fs.rename(p.dir, b"small", ROOT_INO, b"linked", RenameFlags::empty())?;
        "rename over a directory", strict,
            |fs, _| fs.rename(ROOT_INO, b"dir", ROOT_INO, b"empty", RenameFlags::empty())?;
        "rename, exchanging", strict,
            |fs, p| fs.rename(p.dir, b"small", ROOT_INO, b"empty", RenameFlags::EXCHANGE)?;
        "rename, leaving a whiteout", strict,
            |fs, p| fs.rename(p.dir, b"small", p.dir, b"renamed", RenameFlags::WHITEOUT)?;
        "rename across directories, leaving a whiteout", strict,
            |fs, p| fs.rename(p.dir, b"small", p.empty, b"small", RenameFlags::WHITEOUT)?;
        "rename over a file, leaving a whiteout", strict,
            |fs, p| fs.rename(p.dir, b"small", p.dir, b"large", RenameFlags::WHITEOUT)?;
        "rename of a directory, leaving a whiteout", strict,
            |fs, p| fs.rename(ROOT_INO, b"empty", p.dir, b"empty", RenameFlags::WHITEOUT)?;
        "chmod", strict, |fs, p| fs.setattr(p.small, &SetAttr { mode: Some(0o600), ..SetAttr::default() })?;
        "chown", strict,
            |fs, p| fs.setattr(p.dir, &SetAttr { uid: Some(3), gid: Some(4), ..SetAttr::default() })?;
        "utimens", strict, |fs, p| fs.setattr(p.small, &SetAttr {
            atime_ns: Some(SetTime::At(5)), mtime_ns: Some(SetTime::At(6)), ..SetAttr::default()
        })?;
        "setxattr", strict, |fs, p| fs.setxattr(p.small, b"user.new", &[9; 300], XattrFlags::empty())?;
        "setxattr, replacing", strict,
            |fs, p| fs.setxattr(p.linked, b"user.one", &[9; 5000], XattrFlags::empty())?;
        "removexattr", strict, |fs, p| fs.removexattr(p.linked, b"user.one")?;
    }
}

fn contents() -> Vec<Workload> {
    workloads! {
        "append in a block", strict, |fs, p| fs.append(p.small, &[b'a'; 50])?;
        "append to an empty file", strict, |fs, p| fs.append(p.blank, &[b'a'; 64])?;
        "append across blocks", strict, |fs, p| fs.append(p.large, &pattern(9000, 3))?;
        "append that grows the tree", strict, |fs, p| fs.append(p.small, &pattern(6000, 3))?;
        "write far past the end", strict, |fs, p| fs.write(p.small, 3 << 20, b"far")?;
        "write a gap past the end", strict, |fs, p| fs.write(p.small, 5000, &pattern(5000, 3))?;
        "overwrite of 3 bytes", overwrite, |fs, p| fs.write(p.large, 4099, b"xyz")?;
        "overwrite of 64 bytes", overwrite, |fs, p| fs.write(p.large, 4090, &[b'o'; 64])?;
        "overwrite of a block", overwrite, |fs, p| fs.write(p.large, 8192, &pattern(4096, 3))?;
        "overwrite of part of a block", overwrite, |fs, p| fs.write(p.large, 9000, &pattern(1000, 3))?;
        "overwrite of several blocks", overwrite, |fs, p| fs.write(p.large, 3000, &pattern(10_000, 3))?;
        "overwrite of a hole", overwrite, |fs, p| fs.write(p.sparse, 100, b"in a hole")?;
        "overwrite of an unwritten block", overwrite, |fs, p| fs.write(p.sparse, 5000, b"unwritten")?;
        "overwrite from data into a hole", overwrite, |fs, p| fs.write(p.sparse, 16_000, &pattern(900, 3))?;
        "write over the end", overwrite, |fs, p| fs.write(p.large, 20_000, &pattern(3000, 3))?;
        "write over the end, one block", overwrite, |fs, p| fs.write(p.small, 90, &[b'e'; 30])?;
        "truncate to nothing", strict, |fs, p| fs.setattr(p.large, &size(0))?;
        "truncate into a block", strict, |fs, p| fs.setattr(p.large, &size(5000))?;
        "truncate up", strict, |fs, p| fs.setattr(p.small, &size(70_000))?;
        "truncate down and up", strict, |fs, p| fs.setattr(p.large, &size(20_500))?;
        "fallocate", strict, |fs, p| fs.fallocate(p.small, FallocateMode::empty(), 50, 20_000)?;
        "fallocate keeping the size", strict,
            |fs, p| fs.fallocate(p.sparse, FallocateMode::KEEP_SIZE, 0, 60_000)?;
        "punch a hole", overwrite, |fs, p| fs.fallocate(
            p.large, FallocateMode::KEEP_SIZE | FallocateMode::PUNCH_HOLE, 3000, 10_000)?;
        "punch inside a block", overwrite, |fs, p| fs.fallocate(
            p.large, FallocateMode::KEEP_SIZE | FallocateMode::PUNCH_HOLE, 5000, 100)?;
        "zero a range", overwrite, |fs, p| fs.fallocate(
            p.large, FallocateMode::ZERO_RANGE, 3000, 10_000)?;
        "zero a range past the end", overwrite, |fs, p| fs.fallocate(
            p.large, FallocateMode::ZERO_RANGE, 20_000, 9_000)?;
        "collapse a range", strict, |fs, p| fs.collapse_range(p.large, 4096, 8192)?;
        "collapse a range with a hole", strict, |fs, p| fs.collapse_range(p.sparse, 2 * 4096, 3 * 4096)?;
        "insert a range", strict, |fs, p| fs.insert_range(p.large, 4096, 8192)?;
        "insert a range that grows the tree", strict, |fs, p| fs.insert_range(p.large, 8192, 3 << 20)?;
        "insert a range into one block", strict, |fs, p| fs.insert_range(p.small, 0, 4096)?;
        "copy_file_range", strict, |fs, p| fs.copy_range(p.large, 100, p.small, 100, 5000)?;
    }
}
