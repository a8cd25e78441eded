//! Making a pool larger. Nothing that files consist of moves: the volatile runtime area, whose size
//! goes with the pool's, is laid out anew at the new end, before the superblock's copy, and rebuilt
//! by the next opener, which is this code itself. The room of the first runtime area, at the pool's
//! start, is given up; that of a later one becomes data, as the old copy's block does.
//!
//! At every instant one superblock is whole and describes the pool as it was or as it will be, and
//! under both the trees are the same:
//!
//! 1. The pool is recovered and clean, so that its journal is empty. The file is made longer.
//! 2. The run record stops vouching for the runtime area, and the pool is no longer clean; a
//!    barrier.
//! 3. The new superblock is stored at the new end; a barrier. The old one, in block 0, still rules.
//! 4. The new superblock is stored in block 0; a barrier. Torn, it fails its checksum, and the copy
//!    at the file's end rules.

use crate::Admin;
use crate::info::PoolInfo;
use pm_journal::medium::geometry::Geometry;
use pm_journal::medium::superblock::{self, State};
use pm_store::{Pm, Restore};
use pmem::slots::ByteLock;
use pmem::{MapOptions, MediumKind, Pmem};
use pmfs::Fs;
use pmfs::OpenOptions;
use pmfs::{Error, Result};
use pmfs_format::{BLOCK_BYTES, SuperblockRaw};
use pmshare::attach::attach_lock;
use pmshare::lock_bytes::{BYTE_POOL, holder_pid};
use std::fs::File;
use std::io;
use std::path::Path;

/// The result of growing.
#[derive(Clone, Debug)]
pub struct GrowReport {
    /// Bytes before.
    pub old_size: u64,
    /// The pool now.
    pub info: PoolInfo,
}

/// Makes a pool that no process holds `size` bytes large. `sparse`: don't allocate the file's space
/// now. Growing to the size that it has repairs what an interrupted growing left.
///
/// # Errors
/// [`Error::Held`]; [`Error::Geometry`] for a size that can't be had; [`Error::File`] without
/// space. The pool is then as it was.
pub fn grow(
    path: &Path,
    size: u64,
    sparse: bool,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<GrowReport> {
    recover(path)?;
    let entry = attach_lock(path)?;
    let Some(lock) = ByteLock::try_exclusive(path, BYTE_POOL)? else {
        return Err(Error::Held {
            pid: holder_pid(path),
        });
    };
    let old_size = switch(path, size / BLOCK_BYTES, sparse, progress)?;
    drop((lock, entry));
    let info = recover(path)?;
    Ok(GrowReport { old_size, info })
}

/// Opens and closes the pool, so that it is clean.
fn recover(path: &Path) -> Result<PoolInfo> {
    let options = OpenOptions {
        exclusive: true,
        ..OpenOptions::default()
    };
    let fs = Fs::open(path, &options)?;
    let info = fs.info();
    let damaged = fs.is_damaged();
    fs.close()?;
    if damaged {
        let what = "damaged structures, which growing would leave behind,";
        return Err(Error::corrupt(what, 0));
    }
    Ok(info)
}

/// With the pool to itself: from the old superblock to the new one. Answers the old size.
fn switch(
    path: &Path,
    blocks: u64,
    sparse: bool,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<u64> {
    let map = MapOptions::default();
    let mem = Pmem::open(path, &map)?;
    let (raw, health) = superblock::load(&mem)?;
    let old = Geometry::of(&raw, mem.len())?;
    let old_size = old.blocks * BLOCK_BYTES;
    if superblock::state(&mem) == State::Active {
        // Another process was faster, and died.
        return Err(Error::geometry("the pool needs recovery again; try again"));
    }
    let pm = Pm::new(mem, 0..0);
    if !health.primary || !health.copy {
        // Beyond the longer file's end the old copy would not be found.
        superblock::store(&Restore::new(&pm), &raw)?;
    }
    if blocks == old.blocks {
        return Ok(old_size);
    }
    let new = old.grown(blocks)?;
    let from = pm.len();
    drop(pm);
    extend(path, blocks * BLOCK_BYTES, sparse)?;
    let mem = Pmem::open(path, &map)?;
    if mem.len() < blocks * BLOCK_BYTES {
        return Err(Error::geometry(format!(
            "the device has {} bytes",
            mem.len()
        )));
    }
    if !sparse && mem.medium().kind == MediumKind::Tmpfs {
        // tmpfs zeroes a page when it is first touched: now, not in a program's write.
        mem.populate(from, progress);
    }
    let pm = Pm::new(mem, 0..0);
    describe(&pm, raw, &new)?;
    Ok(old_size)
}

/// Has the new superblock rule, of a pool that has the room already; durable on return.
fn describe(pm: &Pm, raw: SuperblockRaw, new: &Geometry) -> Result<()> {
    let restore = Restore::new(pm);
    if let Some(mut record) = superblock::run_record(pm.mapping()) {
        record.layout = 0;
        superblock::set_run_record(&restore, record);
    }
    superblock::set_state(&restore, State::Active);
    let mut next = raw;
    new.describe(&mut next);
    superblock::seal(&mut next);
    superblock::store(&restore, &next)
}

/// Grows like [`grow`] a mapping without a file that is long enough already, and whose pool was
/// closed: for tests.
///
/// # Errors
/// Those of [`grow`].
pub fn grow_private(mem: Pmem, blocks: u64) -> Result<Pmem> {
    let (raw, _) = superblock::load(&mem)?;
    let new = Geometry::of(&raw, mem.len())?.grown(blocks)?;
    let pm = Pm::new(mem, 0..0);
    describe(&pm, raw, &new)?;
    Ok(pm.into_mapping())
}

/// Makes the file longer, if it is a file and shorter; without space it keeps its length.
fn extend(path: &Path, to: u64, sparse: bool) -> Result<()> {
    let failed = |source: io::Error| Error::file("making the file longer", source);
    let file = File::options()
        .read(true)
        .write(true)
        .open(path)
        .map_err(failed)?;
    if file.metadata().map_err(failed)?.is_file() {
        let longer = pmem::lengthen_file(path, &file, to, sparse);
        return longer.map_err(|error| match error {
            pmem::Error::NoSpace { source, .. } | pmem::Error::Resize { source, .. } => {
                failed(source)
            }
            other => other.into(),
        });
    }
    Ok(())
}
