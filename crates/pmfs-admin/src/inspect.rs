//! A pool seen from outside: mapped without write access, not attached, nothing recovered. The
//! parts seen of a pool that others change may be of different instants, and everything that leads
//! on is checked.

use crate::holders::{self, Holding, Locked, Process};
use crate::info::{self, PoolDetails, PoolInfo};
use pm_journal::medium::geometry::Geometry;
use pm_journal::medium::superblock::{self, Health, State};
use pmem::slots::{ByteLock, Probe, Prober};
use pmem::{MapOptions, Pmem};
use pmfs::OpenOptions;
use pmfs::parts::pool::Pool;
use pmfs::{Error, Result};
use pmfs_format::BLOCK_BYTES;
use pmfs_format::superblock::MAGIC;
use pmshare::attach::attach_lock;
use pmshare::lock_bytes::{BYTE_POOL, holder_pid};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// The state of a pool: the step that it needs before it can be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PoolState {
    /// Nothing: it was closed cleanly.
    Clean,
    /// A process holds it, and has to release it.
    InUse,
    /// The next opener recovers it.
    NeedsRecovery,
}

/// A pool that is only looked at.
pub struct Inspector {
    pub(crate) pool: Pool,
    pub(crate) health: Health,
    state: PoolState,
}

impl Inspector {
    /// Maps the pool and judges its superblock.
    ///
    /// # Errors
    /// Everything that can be wrong with a pool; see [`Error`]. A pool in use is no error.
    pub fn open(path: &Path) -> Result<Inspector> {
        let map = MapOptions {
            read_only: true,
            ..MapOptions::default()
        };
        let prober = Prober::open(path)?;
        let held = prober.probe(BYTE_POOL)? != Probe::Free;
        let mem = Pmem::open(path, &map)?;
        let (raw, health) = superblock::load(&mem)?;
        let geometry = Geometry::of(&raw, mem.len())?;
        let state = match superblock::state(&mem) {
            _ if held => PoolState::InUse,
            // The file may have been written to since.
            State::Clean(crc)
                if superblock::crc_of_range(&mem, geometry.runtime.clone())? == crc =>
            {
                PoolState::Clean
            }
            _ => PoolState::NeedsRecovery,
        };
        Ok(Inspector {
            pool: Pool::new(mem, raw, geometry, Some(prober), &OpenOptions::default()),
            health,
            state,
        })
    }

    /// Returns the pool's state when it was opened.
    #[must_use]
    pub fn state(&self) -> PoolState {
        self.state
    }

    /// Returns whether superblock and copy are both whole.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.health.primary && self.health.copy
    }

    /// History, regions, free pages; with the same grain of salt as [`Inspector::info`].
    #[must_use]
    pub fn details(&self) -> PoolDetails {
        info::details(&self.pool)
    }

    /// The attached processes.
    #[must_use]
    pub fn processes(&self) -> Vec<Process> {
        holders::processes(&self.pool)
    }

    /// The inodes that they have open.
    #[must_use]
    pub fn holdings(&self) -> Vec<Holding> {
        holders::holdings(&self.pool)
    }

    /// The file locks, held and waited for.
    #[must_use]
    pub fn locked(&self) -> Vec<Locked> {
        holders::locked(&self.pool)
    }

    /// Geometry, medium, free space. The free space is an old guess while the pool needs recovery.
    #[must_use]
    pub fn info(&self) -> PoolInfo {
        info::info(&self.pool)
    }
}

/// Returns whether the file begins, or ends, as a pool does. The file is read, not mapped.
///
/// # Errors
/// The file can't be read.
pub fn is_pool(path: &Path) -> io::Result<bool> {
    let file = File::open(path)?;
    let magic_at = |offset| {
        let mut word = [0; 8];
        match file.read_exact_at(&mut word, offset) {
            Ok(()) => Ok(u64::from_le_bytes(word) == MAGIC),
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
            Err(error) => Err(error),
        }
    };
    let blocks = file.metadata()?.len() / BLOCK_BYTES;
    Ok(blocks >= 16 && (magic_at(0)? || magic_at((blocks - 1) * BLOCK_BYTES)?))
}

/// Deletes a pool file that no process holds; with `force` also a file that is no pool.
///
/// # Errors
/// [`Error::Held`]; [`Error::NotAPool`]; [`Error::File`] if the file can't be read or deleted.
pub fn remove(path: &Path, force: bool) -> Result<()> {
    let file = |source| Error::file("deleting", source);
    if !std::fs::metadata(path).map_err(file)?.is_file() {
        return Err(Error::not_a_pool("not a regular file"));
    }
    if !force && !is_pool(path).map_err(file)? {
        return Err(Error::not_a_pool("no PMFS superblock"));
    }
    let _entry = attach_lock(path)?;
    let Some(_pool) = ByteLock::try_exclusive(path, BYTE_POOL)? else {
        return Err(Error::Held {
            pid: holder_pid(path),
        });
    };
    std::fs::remove_file(path).map_err(file)
}
