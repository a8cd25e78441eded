//! Blocks that the medium can't read: their bytes are lost, the rest of the pool is not.
//!
//! Bad blocks with metadata, or with nothing, are renewed as zeros, and then the pool is repaired.
//! Bytes of files are left as they are: a read of them is an error, which is better than zeros,
//! until the file is removed or written over.
//!
//! A bad block of metadata may hide the purpose of others, and may be in the way of attaching. A
//! block that attaching, naming or checking meets is metadata, as none of them reads a file's
//! bytes. The repair therefore goes round by round, until no block is left that is known to be
//! anything but data. An end in the middle leaves a pool that lacks what was lost already, and can
//! be repaired.

use super::RepairReport;
use crate::Admin;
use crate::check::bad_blocks::bad_blocks_at_rest;
use crate::check::{BadBlock, Holds, Watch};
use crate::name_of::name_of;
use pm_journal::medium::geometry::Geometry;
use pm_journal::medium::superblock;
use pm_journal::medium::superblock::distrust_record;
use pmem::Pmem;
use pmem::slots::Prober;
use pmfs::Fs;
use pmfs::OpenOptions;
use pmfs::parts::pool::Pool;
use pmfs::types::RecoveryReport;
use pmfs::{Error, Result};
use pmfs_format::BLOCK_BYTES;
use pmshare::attach::{attach_lock_by, wait_for_copier};
use pmshare::lock_bytes::{BYTE_POOL, holder_pid};
use std::path::Path;

/// The outcome for a pool on a medium with errors.
#[derive(Clone, Debug, Default)]
pub struct Mended {
    /// Blocks that were given anew, and what was lost with them.
    pub renewed: Vec<BadBlock>,
    /// Blocks that can't be read still: bytes of files.
    pub left: Vec<BadBlock>,
    /// The repairs made thereafter.
    pub repair: RepairReport,
    /// The work that the last attaching had to do.
    pub recovery: RecoveryReport,
}

/// The end of a round.
enum Round {
    /// Blocks to be given anew before anything else can be said.
    Lost(Vec<BadBlock>),
    /// Nothing more is to be done; blocks that are left.
    Over(Vec<BadBlock>),
}

/// Gives the pool's bad blocks anew, but for those with bytes of files, and repairs it. No other
/// process has the pool; `options` as for a repair. `watch` is told how much of the pool each round
/// has read or checked.
///
/// # Errors
/// Those of [`Fs::open`] and [`Admin::repair`](crate::Admin::repair); [`Error::Medium`]: a block
/// that was given anew is bad again; [`Error::Media`]: blocks can't be given anew on this medium.
pub fn mend(path: &Path, options: &OpenOptions, watch: Watch<'_>) -> Result<Mended> {
    let mut mended = Mended::default();
    loop {
        let lost = match round(path, options, &mut mended, watch) {
            Ok(Round::Over(left)) => return Ok(Mended { left, ..mended }),
            Ok(Round::Lost(lost)) => lost,
            Err(Error::Medium { offset }) => needed(path, options, offset, watch)?,
            Err(error) => return Err(error),
        };
        if let Some(again) = lost.iter().find(|bad| is_among(bad, &mended.renewed)) {
            return Err(Error::Medium { offset: again.off });
        }
        let offsets: Vec<u64> = lost.iter().map(|bad| bad.off).collect();
        renew(path, options, &offsets)?;
        mended.renewed.extend(lost);
    }
}

fn is_among(bad: &BadBlock, all: &[BadBlock]) -> bool {
    all.iter().any(|one| one.off == bad.off)
}

fn round(
    path: &Path,
    options: &OpenOptions,
    mended: &mut Mended,
    watch: Watch<'_>,
) -> Result<Round> {
    let fs = Fs::open(path, options)?;
    mended.recovery = *fs.recovery();
    let (lost, left) = sorted(fs.bad_blocks(watch)?);
    if !lost.is_empty() {
        return Ok(Round::Lost(lost));
    }
    let done = fs.repair_watched(watch)?;
    mended.repair.repaired.extend(done.repaired);
    mended.repair.left = done.left;
    // A block that no name led to may have one now, or be free.
    let hidden = left.iter().any(|bad| bad.holds == Holds::Unknown);
    let (lost, left) = match hidden {
        true => sorted(fs.bad_blocks(watch)?),
        false => (Vec::new(), left),
    };
    fs.close()?;
    Ok(match lost.is_empty() {
        true => Round::Over(left),
        false => Round::Lost(lost),
    })
}

/// Returns the blocks to renew, and the others.
fn sorted(bad: Vec<BadBlock>) -> (Vec<BadBlock>, Vec<BadBlock>) {
    let is_lost = |bad: &BadBlock| matches!(bad.holds, Holds::Metadata | Holds::Nothing);
    bad.into_iter().partition(is_lost)
}

/// Renews blocks, as zeros, of a pool that no process has. The next process that attaches believes
/// nothing of the runtime area.
///
/// # Errors
/// [`Error::Held`]; [`Error::Media`].
pub fn renew(path: &Path, options: &OpenOptions, offsets: &[u64]) -> Result<()> {
    let prober = Prober::open(path)?;
    let _entry = attach_lock_by(&prober)?;
    wait_for_copier(&prober)?;
    let Some(_pool) = prober.try_exclusive(BYTE_POOL)? else {
        return Err(Error::Held {
            pid: holder_pid(path),
        });
    };
    let pool = unattached(path, options)?;
    let writable = pool.pm.mapping().writable();
    // The record is in a bad block where that fails, and no record at all will do as well.
    distrust_record(&pool.pm);
    drop(writable);
    drop(pool);
    Ok(pmem::renew_pages(path, offsets)?)
}

/// A block that attaching or checking has met, with others of metadata, as they can be named
/// without either.
fn needed(
    path: &Path,
    options: &OpenOptions,
    offset: u64,
    watch: Watch<'_>,
) -> Result<Vec<BadBlock>> {
    let met = offset & !(BLOCK_BYTES - 1);
    let mut lost = bad_blocks_at_rest(&unattached(path, options)?, watch)?;
    // Recovery may have met bytes of a file, in the middle of what it takes back or finishes.
    lost.retain(|bad| bad.off == met || bad.holds == Holds::Metadata);
    if !lost.iter().any(|bad| bad.off == met) {
        lost.push(BadBlock {
            off: met,
            holds: Holds::Metadata,
            what: name_of(&unattached(path, options)?, met),
        });
    }
    Ok(lost)
}

/// The pool as it lies there.
fn unattached(path: &Path, options: &OpenOptions) -> Result<Pool> {
    at_rest(Pmem::open(path, &options.map)?, options)
}

fn at_rest(mem: Pmem, options: &OpenOptions) -> Result<Pool> {
    let (raw, _) = superblock::load(&mem)?;
    let geometry = Geometry::of(&raw, mem.len())?;
    Ok(Pool::new(mem, raw, geometry, None, options))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scratch::{NODE, Scratch};
    use pmfs::parts::inode::Inode;
    use pmfs::parts::tree::visit::{Piece, Visitor};
    use pmfs::types::{Ino, ROOT_INO};

    struct Nodes(Vec<u64>);

    impl Visitor for Nodes {
        fn piece(&mut self, piece: Piece) -> bool {
            if piece.level > 0 {
                self.0.push(piece.run.block * BLOCK_BYTES);
            }
            true
        }

        fn damage(&mut self, error: Error) {
            panic!("{error}");
        }
    }

    fn nodes_of(pool: &Pool, ino: Ino) -> Vec<u64> {
        let mut nodes = Nodes(Vec::new());
        let tree = match ino {
            0 => pool.inode_table(),
            ino => Inode::load(pool, ino).unwrap().tree(),
        };
        tree.visit(pool, &mut nodes);
        nodes.0
    }

    /// The bad blocks of a pool that can't be attached to have their names still.
    #[test]
    fn at_rest_bad_blocks_have_names() {
        let scratch = Scratch::new(16 << 20);
        let (path, options) = (&scratch.path, OpenOptions::default());
        let fs = scratch.open();
        let dir = fs.mkdir(ROOT_INO, b"dir", &NODE).unwrap().ino;
        let file = fs.create(dir, b"file", &NODE).unwrap().ino;
        fs.write(file, 0, &[5; 700 * BLOCK_BYTES as usize]).unwrap();
        fs.close().unwrap();
        let mapped = || Pmem::open(path, &options.map).unwrap();
        let pool = at_rest(mapped(), &options).unwrap();
        let (table, nodes) = (nodes_of(&pool, 0), nodes_of(&pool, file));
        let inode = pool.inode_off(ROOT_INO).unwrap() & !(BLOCK_BYTES - 1);
        let metadata = Holds::Metadata;
        let names = "inodes 0 to 31, the inode of /";
        let node = "a node of the tree of /dir/file";
        let below = format!(
            "a node of the inode table: inodes 0 to {}",
            pool.geometry.inodes - 1
        );
        let expected = [
            (inode, metadata, names),
            (nodes[1], metadata, node),
            (table[1], metadata, &below),
            (pool.geometry.journal, metadata, "log of lane 0"),
        ];
        for (off, holds, what) in expected {
            let mem = mapped();
            if let Err(error) = mem.poison(off) {
                eprintln!("skipped: no UFFDIO_POISON here: {error}");
                return;
            }
            let found = bad_blocks_at_rest(&at_rest(mem, &options).unwrap(), &mut |_, _| {});
            let what = what.to_owned();
            assert_eq!(found.unwrap(), [BadBlock { off, holds, what }]);
        }
    }
}
