//! The source of an append's bytes: memory of the caller, or another file of the pool, whose bytes
//! then go straight from its blocks to the new ones.

use super::overwrite::UNGUARDED_MAX;
use crate::pool::Pool;
use crate::tree::Tree;
use pm_journal::error::Result;
use pm_store::FreshSet;
use pmfs_format::BLOCK_BYTES;
use std::ops::Range;

/// Up to this many bytes go through the caches: the next append writes the same line.
const SMALL: usize = 256;
const _: () = assert!(SMALL <= UNGUARDED_MAX);

/// Bytes to be written.
#[derive(Clone, Copy)]
pub enum Source<'a> {
    /// Memory, which may be a program's own that is not there.
    Memory(&'a [u8]),
    /// `len` bytes of a file from `at` on, inside its size. The caller holds the file's lock.
    File { tree: &'a Tree, at: u64, len: u64 },
}

impl Source<'_> {
    /// Bytes.
    pub fn len(self) -> u64 {
        match self {
            Source::Memory(data) => data.len() as u64,
            Source::File { len, .. } => len,
        }
    }

    /// Stores those of `range` at the pool's offset `to`; durable with the set's barrier.
    ///
    /// # Errors
    /// Memory that is not there; a medium that fails.
    pub fn put(
        self,
        pool: &Pool,
        fresh: &mut FreshSet<'_>,
        to: u64,
        range: Range<u64>,
    ) -> Result<()> {
        match self {
            Source::Memory(data) => {
                let piece = &data[range.start as usize..range.end as usize];
                let stored = fresh.range(to, piece.len() as u64);
                // Small stores have no landing for memory of a program that is not there: a face
                // sees to short data itself, and a small end of long data goes with the rest.
                if data.len() <= SMALL {
                    stored.small(0, piece);
                    return Ok(());
                }
                Ok(stored.bytes(0, piece)?)
            }
            Source::File { tree, at, .. } => {
                copy(pool, fresh, to, tree, at + range.start..at + range.end)
            }
        }
    }
}

/// Extent by extent; holes are zeros. Apart, as short appends of memory would pay for its frame.
#[inline(never)]
fn copy(
    pool: &Pool,
    fresh: &mut FreshSet<'_>,
    to: u64,
    tree: &Tree,
    from: Range<u64>,
) -> Result<()> {
    let mut here = from.start;
    while here < from.end {
        let within = here % BLOCK_BYTES;
        let left = from.end - here;
        let blocks = (within + left).div_ceil(BLOCK_BYTES);
        let extent = tree.extent(pool, here / BLOCK_BYTES, blocks)?;
        let len = (extent.count * BLOCK_BYTES - within).min(left);
        let stored = fresh.range(to + (here - from.start), len);
        if extent.written {
            stored.copy(0, extent.off + within, len)?;
        } else {
            stored.zero(0, len);
        }
        here += len;
    }
    Ok(())
}
