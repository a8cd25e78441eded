//! What planted bugs need beyond the calls of [`one_call`](crate::workload::one_call): calls of rare shape, and
//! two calls that meet.

use crate::tree::Leniency;
use crate::workload::{Prepared, Workload, pattern};
use pmfs::{DataMode, FallocateMode, Fs, NewNode, ROOT_INO, RenameFlags, Result, SetAttr};

const POOL_BYTES: u64 = 1 << 20;
const NODE: NewNode = NewNode {
    umask: 0,
    mode: 0o644,
    uid: 10,
    gid: 20,
};
/// Inodes in a block of their table.
const INODES_IN_BLOCK: u64 = 32;
/// A file of nearly all that a pool of 8 MiB has.
const FULL: u64 = 7_700_000;

fn strict(_: DataMode) -> Leniency {
    Leniency::default()
}

fn size(size: u64) -> SetAttr {
    SetAttr {
        size: Some(size),
        ..SetAttr::default()
    }
}

fn no_more(_: &Fs, _: &Prepared) -> Result<()> {
    Ok(())
}

/// Calls of a shape that `one_call` has not.
#[must_use]
pub fn more_calls() -> Vec<Workload> {
    vec![
        Workload {
            name: "append of a line's length, unaligned",
            pool_bytes: POOL_BYTES,
            first: no_more,
            call: |fs, p| fs.append(p.small, &[b'a'; 64]).map(drop),
            lenient: strict,
        },
        Workload {
            name: "create that grows the inode table",
            pool_bytes: POOL_BYTES,
            first: |fs, p| {
                for name in 0u64.. {
                    let made =
                        fs.create(p.empty, &name.to_le_bytes().map(|byte| byte | 64), &NODE)?;
                    if made.ino % INODES_IN_BLOCK == INODES_IN_BLOCK - 1 {
                        break;
                    }
                }
                Ok(())
            },
            call: |fs, p| fs.create(p.dir, b"in a new block", &NODE).map(drop),
            lenient: strict,
        },
    ]
}

/// Does one of two calls.
pub type Call = fn(&Fs, &Prepared) -> Result<()>;

/// Two calls that meet.
pub struct Pair {
    /// What they are.
    pub name: &'static str,
    /// What they need beyond [`prepare`](crate::workload::prepare).
    pub first: Call,
    /// The one that is stopped on its way.
    pub one: Call,
    /// The one that comes meanwhile.
    pub other: Call,
}

/// Calls of two threads, or processes, at once.
#[must_use]
pub fn pairs() -> Vec<Pair> {
    let mut all = vec![two_directories()];
    all.extend(at_one_place());
    all.extend(elsewhere());
    all
}

/// Both change one inode.
fn at_one_place() -> Vec<Pair> {
    vec![
        Pair {
            name: "append and append",
            first: no_more,
            one: |fs, p| fs.append(p.small, &[b'1'; 40]).map(drop),
            other: |fs, p| fs.append(p.small, &[b'2'; 30]).map(drop),
        },
        Pair {
            name: "fallocate and append",
            first: no_more,
            one: |fs, p| fs.fallocate(p.small, FallocateMode::empty(), 0, 9000),
            other: |fs, p| fs.append(p.small, &pattern(10_000, 2)).map(drop),
        },
        Pair {
            name: "create and create",
            first: no_more,
            one: |fs, p| fs.create(p.dir, b"one", &NODE).map(drop),
            other: |fs, p| fs.create(p.dir, b"other", &NODE).map(drop),
        },
    ]
}

/// The other one may get the blocks that the first one gives back.
fn elsewhere() -> Vec<Pair> {
    vec![
        Pair {
            name: "overwrite and append elsewhere",
            first: no_more,
            one: |fs, p| fs.write(p.large, 8192, &pattern(4096, 3)).map(drop),
            other: |fs, p| fs.append(p.sparse, &pattern(9 * 4096, 4)).map(drop),
        },
        Pair {
            name: "overwrite and many elsewhere, on a full pool",
            first: |fs, p| {
                while let Ok((_, 1..)) = fs.append(p.sparse, &pattern(1 << 16, 5)) {}
                // Where it was full is not to the block the same each time.
                fs.setattr(p.sparse, &size(FULL)).map(drop)
            },
            one: |fs, p| fs.write(p.large, 8192, &pattern(4096, 3)).map(drop),
            // Each takes a free block and gives one back: all of them are had once.
            other: |fs, p| {
                (16..216).try_for_each(|block| {
                    fs.write(p.sparse, block * 4096, &pattern(4096, 6))
                        .map(drop)
                })
            },
        },
        Pair {
            name: "truncate and append elsewhere",
            first: no_more,
            one: |fs, p| fs.setattr(p.large, &size(0)).map(drop),
            other: |fs, p| fs.append(p.sparse, &pattern(9 * 4096, 4)).map(drop),
        },
        Pair {
            name: "unlink and append elsewhere",
            first: no_more,
            one: |fs, p| fs.unlink(p.dir, b"large"),
            other: |fs, p| fs.append(p.sparse, &pattern(9 * 4096, 4)).map(drop),
        },
    ]
}

/// Each moves a directory to below the one that the other moves.
fn two_directories() -> Pair {
    Pair {
        name: "two directories, each to below the other",
        first: |fs, _| {
            for (above, dir, below) in [(b"p1", b"a", b"d"), (b"p2", b"b", b"c")] {
                let above = fs.mkdir(ROOT_INO, above, &NODE)?.ino;
                let dir = fs.mkdir(above, dir, &NODE)?.ino;
                fs.mkdir(dir, below, &NODE)?;
            }
            Ok(())
        },
        one: |fs, _| {
            let from = find(fs, &[b"p1"])?;
            let to = find(fs, &[b"p2", b"b", b"c"])?;
            fs.rename(from, b"a", to, b"a", RenameFlags::empty())
        },
        other: |fs, _| {
            let from = find(fs, &[b"p2"])?;
            let to = find(fs, &[b"p1", b"a", b"d"])?;
            fs.rename(from, b"b", to, b"b", RenameFlags::empty())
        },
    }
}

fn find(fs: &Fs, path: &[&[u8]]) -> Result<pmfs::Ino> {
    path.iter()
        .try_fold(ROOT_INO, |dir, name| Ok(fs.lookup(dir, name)?.ino))
}
