//! An attached pool: what a process has of it, storey by storey.

use crate::options::OpenOptions;
use crate::purpose::Purpose;
use crate::types::{AtimeMode, DataMode, LargePages};
use pm_journal::error::Result;
use pm_journal::medium::geometry::Geometry;
use pm_journal::medium::store::{Share, Store};
use pm_space::Space;
use pmem::slots::Prober;
use pmfs_format::SuperblockRaw;
use pmshare::patrol;
use std::ops::Deref;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};

/// One process's attachment: the storeys below, each inside the next, and the state that calls on
/// files need beside them.
pub struct Pool {
    space: Space<Purpose>,
    pub data_mode: DataMode,
    pub large: LargePages,
    /// An [`AtimeMode`], by number.
    pub atime: AtomicU8,
    pub nodiratime: AtomicBool,
    /// Attached to be repaired: damage is no reason to stop.
    pub mending: bool,
    /// Lanes whose log could not be undone and was thrown away.
    pub discarded: Mutex<Vec<u64>>,
    /// The place where the search for an open file's line begins.
    pub next_file: AtomicU64,
    /// The place where the search for a file lock's record in annexes begins: its number, plus one;
    /// 0: in none.
    pub next_lock: AtomicU64,
}

impl Deref for Pool {
    type Target = Space<Purpose>;

    #[inline(always)]
    fn deref(&self) -> &Space<Purpose> {
        &self.space
    }
}

impl Pool {
    /// Wraps a mapping. Attaching is a step of its own: see [`pmshare::attach`].
    pub fn new(
        mem: pmem::Pmem,
        superblock: SuperblockRaw,
        geometry: Geometry,
        prober: Option<Prober>,
        options: &OpenOptions,
    ) -> Pool {
        let store = Store::new(mem, superblock, geometry);
        let place = pmshare::Options {
            read_only: options.read_only,
            stalled: options.stalled,
            clock: options.clock.clone(),
        };
        let share = Share::new(store, prober, place);
        Pool {
            space: Space::new(share),
            data_mode: options.data,
            large: options.large,
            atime: AtomicU8::new(options.atime as u8),
            nodiratime: AtomicBool::new(options.nodiratime),
            mending: options.repair,
            discarded: Mutex::new(Vec::new()),
            next_file: AtomicU64::new(0),
            next_lock: AtomicU64::new(0),
        }
    }

    /// The mapping back.
    pub fn into_mapping(self) -> pmem::Pmem {
        self.space.into_share().into_store().pm.into_mapping()
    }

    /// Before a call that changes something, whose thread holds nothing.
    ///
    /// # Errors
    /// Those of [`patrol::writable`]; [`Error::Medium`].
    #[inline(always)]
    pub fn writable(&self) -> Result<()> {
        patrol::writable(self)?;
        Ok(self.pm.intact()?)
    }

    /// Returns when reads update atime.
    pub fn atime_mode(&self) -> AtimeMode {
        AtimeMode::from_number(self.atime.load(Ordering::Relaxed)).unwrap_or_default()
    }
}
