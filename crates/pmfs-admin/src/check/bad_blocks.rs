//! Media errors: which blocks of the pool can't be read, and what stands in them.
//!
//! Everything is read once, past the tables. Blocks that are found are named by walking the names,
//! around the blocks that are bad: a single load from one would cost this attachment its mapping.

use super::report::Watch;
use crate::name_of::name_of;
use pm_space::Bitmap;
use pmfs::parts::dir::bucket::Bucket;
use pmfs::parts::inode::{Inode, PER_BLOCK};
use pmfs::parts::pool::Pool;
use pmfs::parts::tree::visit::{Piece, Visitor};
use pmfs::types::{Ino, ROOT_INO};
use pmfs::{Error, Result};
use pmfs_format::{BLOCK_BYTES, BLOCK_SHIFT};
use std::collections::{BTreeMap, HashSet};
use std::ops::Range;

/// Read at once, blocks.
const CHUNK: u64 = 512;

/// A block that can't be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadBlock {
    /// The place in the pool, bytes.
    pub off: u64,
    /// The kind of content that stands there.
    pub holds: Holds,
    /// The same in words, with its names.
    pub what: String,
}

/// The purpose of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holds {
    /// Bytes of a file.
    Data,
    /// The means to find names, inodes and blocks.
    Metadata,
    /// Nothing.
    Nothing,
    /// No name leads there, maybe because of another bad block.
    Unknown,
}

/// Bad blocks, with what is known of them so far.
type Bad = BTreeMap<u64, Option<(Holds, String)>>;

/// Reads the whole pool, to which this process is attached.
///
/// # Errors
/// The mapping was lost on the way.
pub(crate) fn bad_blocks(pool: &Pool, watch: Watch<'_>) -> Result<Vec<BadBlock>> {
    visited(pool, watch, |block| {
        let is_used = Bitmap::blocks(pool).is_set(block);
        let unknown = "inodes, or a file or directory that no name leads to any more";
        Some(match is_used {
            true => (Holds::Unknown, unknown.into()),
            false => (Holds::Nothing, "free space".into()),
        })
    })
}

/// Reads like [`bad_blocks`] a pool that can't be attached to for them: it returns those of them
/// that are known by a name or by their place.
pub(crate) fn bad_blocks_at_rest(pool: &Pool, watch: Watch<'_>) -> Result<Vec<BadBlock>> {
    visited(pool, watch, |_| None)
}

/// The bad blocks; `nameless` tells of one among the data what no name leads to, or to leave it
/// out.
fn visited(
    pool: &Pool,
    watch: Watch<'_>,
    nameless: impl Fn(u64) -> Option<(Holds, String)>,
) -> Result<Vec<BadBlock>> {
    let mut bad = unreadable(pool, watch);
    if bad.is_empty() {
        return Ok(Vec::new());
    }
    Names::new(pool, &mut bad).all();
    let told = |(block, known): (u64, Option<(Holds, String)>)| {
        let off = block << BLOCK_SHIFT;
        let by_place = || match pool.data.contains(&off) {
            true => nameless(block),
            false => Some((Holds::Metadata, name_of(pool, off))),
        };
        let (holds, what) = known.or_else(by_place)?;
        Some(BadBlock { off, holds, what })
    };
    let found = bad.into_iter().filter_map(told).collect();
    pool.pm.intact()?;
    Ok(found)
}

fn unreadable(pool: &Pool, watch: Watch<'_>) -> Bad {
    let blocks = pool.pm.len() / BLOCK_BYTES;
    let mut room = vec![0; (CHUNK * BLOCK_BYTES) as usize];
    let (mut bad, mut block) = (Bad::new(), 0);
    while block < blocks {
        let count = CHUNK.min(blocks - block);
        let piece = &mut room[..(count * BLOCK_BYTES) as usize];
        block = match pool.pm.copy_out(block << BLOCK_SHIFT, piece) {
            Err(pm_store::Error::Medium { offset }) => {
                bad.insert(offset >> BLOCK_SHIFT, None);
                (offset >> BLOCK_SHIFT) + 1
            }
            _ => block + count,
        };
        watch(block, blocks);
    }
    bad
}

/// The walk over all names, by their trees alone: nothing of the runtime area is asked.
struct Names<'a> {
    pool: &'a Pool,
    bad: &'a mut Bad,
    /// Blocks of the inode table that can be read, by their index.
    table: HashSet<u64>,
    /// Directories gone into: in a damaged pool one may be in itself.
    entered: HashSet<Ino>,
    left: Vec<(Ino, String)>,
}

impl<'a> Names<'a> {
    fn new(pool: &'a Pool, bad: &'a mut Bad) -> Names<'a> {
        Names {
            pool,
            bad,
            table: HashSet::new(),
            entered: HashSet::new(),
            left: vec![(ROOT_INO, String::new())],
        }
    }

    fn all(&mut self) {
        let pool = self.pool;
        pool.inode_table().visit(pool, &mut Table(self));
        while let Some((ino, path)) = self.left.pop() {
            let shown = if path.is_empty() { "/" } else { &path };
            if self.table.contains(&(ino / PER_BLOCK)) {
                self.inspect(ino, &path, shown);
            } else {
                self.lost_inode(ino, shown);
            }
        }
    }

    /// Adds a name to what is said of the block that held the inode, if that is what is bad.
    fn lost_inode(&mut self, ino: Ino, path: &str) {
        let start = ino / PER_BLOCK * PER_BLOCK;
        let begin = inodes(start, PER_BLOCK);
        for (_, what) in self.bad.values_mut().flatten() {
            if what.split(',').next() == Some(&begin) {
                *what = format!("{what}, the inode of {path}");
            }
        }
    }

    /// Names what is bad of an inode that can be read, and has the names in it looked at later.
    fn inspect(&mut self, ino: Ino, path: &str, shown: &str) {
        let Ok(inode) = Inode::load(self.pool, ino) else {
            // Damage is a check's affair: what lies behind it has no name here.
            return;
        };
        let xattr = inode.xattr_run();
        let end = xattr.block.saturating_add(xattr.count);
        self.note(xattr.block..end, |_| {
            (Holds::Metadata, format!("extended attributes of {shown}"))
        });
        let is_dir = inode.is_dir();
        if !inode.has_tree() || is_dir && !self.entered.insert(ino) {
            return;
        }
        let pool = self.pool;
        let mut of = Of {
            names: self,
            path,
            shown,
            is_dir,
        };
        inode.tree().visit(pool, &mut of);
    }

    /// The names in a bucket.
    fn bucket(&mut self, bucket: Bucket, path: &str) {
        for line in bucket.header(self.pool).starts() {
            let Ok(record) = bucket.record(self.pool, line) else {
                continue;
            };
            if let Ok(name) = record.name(self.pool) {
                let below = format!("{path}/{}", String::from_utf8_lossy(&name));
                self.left.push((Ino::from(record.ino), below));
            }
        }
    }

    /// Says what the bad ones among these blocks are, if it is not known yet. Answers whether there
    /// are none.
    fn note(&mut self, blocks: Range<u64>, what: impl Fn(u64) -> (Holds, String)) -> bool {
        let mut sound = true;
        if blocks.is_empty() {
            return sound;
        }
        for (&block, known) in self.bad.range_mut(blocks) {
            known.get_or_insert_with(|| what(block));
            sound = false;
        }
        sound
    }
}

fn blocks_of(piece: &Piece) -> Range<u64> {
    piece.run.block..piece.run.block + piece.run.count
}

fn inodes(first: Ino, count: u64) -> String {
    format!("inodes {first} to {}", first + count - 1)
}

/// The visit of the inode table.
struct Table<'a, 'b>(&'a mut Names<'b>);

impl Visitor for Table<'_, '_> {
    fn piece(&mut self, piece: Piece) -> bool {
        let all = self.0.pool.geometry.inodes.next_multiple_of(PER_BLOCK);
        let sound = self.0.note(blocks_of(&piece), |_| {
            let count = piece
                .units
                .min((all / PER_BLOCK).saturating_sub(piece.base))
                .max(1)
                * PER_BLOCK;
            let held = inodes(piece.base * PER_BLOCK, count);
            let what = match piece.level {
                0 => held,
                _ => format!("a node of the inode table: {held}"),
            };
            (Holds::Metadata, what)
        });
        if sound && piece.level == 0 {
            self.0.table.insert(piece.base);
        }
        sound
    }

    fn damage(&mut self, _error: Error) {}
}

/// The visit of a file's or a directory's tree.
struct Of<'a, 'b> {
    names: &'a mut Names<'b>,
    path: &'a str,
    shown: &'a str,
    is_dir: bool,
}

impl Visitor for Of<'_, '_> {
    fn piece(&mut self, piece: Piece) -> bool {
        let (path, is_dir) = (self.shown, self.is_dir);
        let sound = self
            .names
            .note(blocks_of(&piece), |block| match (piece.level, is_dir) {
                (0, false) => {
                    let from = (piece.base + (block - piece.run.block)) * BLOCK_BYTES;
                    let to = from + BLOCK_BYTES - 1;
                    (Holds::Data, format!("bytes {from} to {to} of {path}"))
                }
                (0, true) => (Holds::Metadata, format!("names in {path}")),
                _ => (Holds::Metadata, format!("a node of the tree of {path}")),
            });
        if sound && is_dir && piece.level == 0 {
            let bucket = Bucket::at(piece.run.block << BLOCK_SHIFT);
            self.names.bucket(bucket, self.path);
        }
        sound
    }

    fn damage(&mut self, _error: Error) {}
}
