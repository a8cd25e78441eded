//! Media errors: which blocks of the pool can't be read, and what stands in them.
//!
//! Everything is read once, past the tables. What is found is named by walking the names, around the blocks that are bad: a single
//! load from one would cost this attachment its mapping.

use super::Watch;
use crate::alloc::Bitmap;
use crate::dir::list;
use crate::error::{Error, Result};
use crate::inode::Inode;
use crate::pool::Pool;
use crate::tree::visit::{Piece, Visitor};
use crate::types::{Ino, ROOT_INO, mode};
use pmfs_format::{BLOCK_BYTES, BLOCK_SHIFT};
use std::collections::BTreeMap;

/// Read at once, blocks.
const CHUNK: u64 = 512;

/// A block that can't be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadBlock {
    /// Where in the pool, bytes.
    pub off: u64,
    /// What stands there, in words.
    pub what: String,
}

/// Bad blocks, with what is known of them so far.
type Bad = BTreeMap<u64, Option<String>>;

/// Reads the whole pool.
///
/// # Errors
/// The mapping was lost on the way.
pub(crate) fn bad_blocks(pool: &Pool, watch: Watch<'_>) -> Result<Vec<BadBlock>> {
    let mut bad = unreadable(pool, watch);
    if bad.is_empty() {
        return Ok(Vec::new());
    }
    Names {
        pool,
        bad: &mut bad,
    }
    .all()?;
    let words = |(block, what): (u64, Option<String>)| BadBlock {
        off: block << BLOCK_SHIFT,
        what: what.unwrap_or_else(|| nameless(pool, block)),
    };
    let found = bad.into_iter().map(words).collect();
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
            Err(Error::Medium { offset }) => {
                bad.insert(offset >> BLOCK_SHIFT, None);
                (offset >> BLOCK_SHIFT) + 1
            }
            _ => block + count,
        };
        watch(block, blocks);
    }
    bad
}

/// What no name leads to.
fn nameless(pool: &Pool, block: u64) -> String {
    if !pool.data.contains(&(block << BLOCK_SHIFT)) {
        return pool.name_of(block << BLOCK_SHIFT);
    }
    match Bitmap::blocks(pool).is_set(block) {
        true => "inodes, or a file or directory that no name leads to any more".into(),
        false => "free space".into(),
    }
}

/// The walk over all names.
struct Names<'a> {
    pool: &'a Pool,
    bad: &'a mut Bad,
}

impl Names<'_> {
    fn all(&mut self) -> Result<()> {
        let mut left: Vec<(Ino, Vec<u8>)> = vec![(ROOT_INO, Vec::new())];
        while let Some((ino, path)) = left.pop() {
            let Some(is_dir) = self.look(ino, &path)? else {
                continue;
            };
            if !is_dir {
                continue;
            }
            list::readdir(self.pool, ino, 2, &mut |entry| {
                let mut below = path.clone();
                below.push(b'/');
                below.extend_from_slice(entry.name);
                if entry.kind == mode::S_IFREG || entry.kind == mode::S_IFDIR {
                    left.push((entry.ino, below));
                }
                true
            })?;
        }
        Ok(())
    }

    /// Names what is bad of an inode. `None`: it can't be gone into.
    fn look(&mut self, ino: Ino, path: &[u8]) -> Result<Option<bool>> {
        let path = match path {
            [] => "/".into(),
            path => String::from_utf8_lossy(path).into_owned(),
        };
        let home = self.pool.inode_off(ino)? >> BLOCK_SHIFT;
        if let Some(what) = self.bad.get_mut(&home) {
            let more = what.take().map_or(String::new(), |what| what + ", ");
            *what = Some(format!("{more}the inode of {path}"));
            return Ok(None);
        }
        let inode = Inode::load(self.pool, ino)?;
        let before = self.known();
        let xattr = inode.xattr_run();
        for block in xattr.block..xattr.block + xattr.count {
            self.note(block, || format!("extended attributes of {path}"));
        }
        inode.tree().visit(
            self.pool,
            &mut Of {
                names: self,
                path: &path,
                is_dir: inode.is_dir(),
            },
        );
        let whole = before == self.known();
        Ok((whole || !inode.is_dir()).then_some(inode.is_dir()))
    }

    fn known(&self) -> usize {
        self.bad.values().flatten().count()
    }

    fn note(&mut self, block: u64, what: impl FnOnce() -> String) -> bool {
        match self.bad.get_mut(&block) {
            Some(known) => {
                known.get_or_insert_with(what);
                true
            }
            None => false,
        }
    }
}

/// The visit of one tree.
struct Of<'a, 'b> {
    names: &'a mut Names<'b>,
    path: &'a str,
    is_dir: bool,
}

impl Visitor for Of<'_, '_> {
    fn piece(&mut self, piece: Piece) -> bool {
        let (first, end) = (piece.run.block, piece.run.block + piece.run.count);
        let met: Vec<u64> = self
            .names
            .bad
            .range(first..end)
            .map(|(&block, _)| block)
            .collect();
        for &block in &met {
            let (path, index) = (self.path, piece.base + (block - first));
            self.names.note(block, || match (piece.level, self.is_dir) {
                (0, false) => format!(
                    "bytes {} to {} of {path}",
                    index * BLOCK_BYTES,
                    (index + 1) * BLOCK_BYTES - 1
                ),
                (0, true) => format!("names in {path}"),
                _ => format!("a node of the tree of {path}"),
            });
        }
        met.is_empty()
    }

    fn damage(&mut self, _error: Error) {}
}
