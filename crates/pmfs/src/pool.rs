//! An attached pool: the mapping, its geometry, and who we are in it.

use crate::clock::Clock;
use crate::error::{Error, Result};
use crate::medium::geometry::Geometry;
use crate::open::annex::Annexes;
use crate::options::{OpenOptions, Stalled};
use crate::persist::Pm;
use crate::share::counters::Counting;
use crate::share::owner::{AtomicHolder, Holder, slot_of};
use crate::share::traces::Traces;
use crate::space::alloc::Hints;
use crate::types::{AtimeMode, DataMode, LargePages};
use pmem::slots::{ByteLock, Prober};
use pmfs_format::BLOCK_BYTES;
use pmfs_format::SuperblockRaw;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU8, AtomicU64, Ordering};

/// One process's attachment.
pub(crate) struct Pool {
    pub pm: Pm,
    pub geometry: Geometry,
    pub superblock: SuperblockRaw,
    /// The bytes that tree entries may point into.
    pub data: std::ops::Range<u64>,
    pub held_as: AtomicHolder,
    pub clock: Clock,
    pub stalled: Stalled,
    pub data_mode: DataMode,
    pub large: LargePages,
    /// An [`AtimeMode`], by number.
    pub atime: AtomicU8,
    pub nodiratime: AtomicBool,
    pub read_only: AtomicBool,
    pub shut: AtomicBool,
    /// The address space that holds the slot ([`pmem::life`]).
    pub life: AtomicU64,
    /// The walk met damage: the pool is read-only, and is not marked clean.
    pub damaged: AtomicBool,
    /// Dead processes were cleaned up after by a waiter, who could not close what they held open.
    pub unclosed: AtomicBool,
    /// Attached to be repaired: damage is no reason to stop.
    pub mending: bool,
    /// Lanes whose log could not be undone and was thrown away.
    pub discarded: Mutex<Vec<u64>>,
    /// Blocks that ordinary calls may take before the free ones are counted again.
    pub budget: AtomicI64,
    pub hints: Hints,
    pub backed: crate::medium::sparse::Backed,
    pub prober: Option<Prober>,
    pub counting: Counting,
    pub cleaning: crate::recovery::Cleaning,
    pub company: crate::share::lease::Company,
    pub traces: Traces,
    pub table_blocks: crate::medium::table_blocks::TableBlocks,
    /// Where an open file is looked for first.
    pub next_file: AtomicU64,
    /// And a file lock, in annexes: its number there, plus one; 0: in none.
    pub next_lock: AtomicU64,
    /// The locks whose life is ours: slot and pool.
    pub locks: Mutex<Vec<ByteLock>>,
}

/// How it was when something was taken: a thread that was unwinding already does so from a mistake of the program's, whose destructors may
/// call the engine on the way.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Began {
    unwinding: bool,
}

impl Began {
    #[inline]
    pub fn now() -> Began {
        Began {
            unwinding: std::thread::panicking(),
        }
    }
}

impl Pool {
    /// Wraps a mapping. Nobody is attached by this alone: see [`crate::share::attach`].
    pub fn new(
        mem: pmem::Pmem,
        superblock: SuperblockRaw,
        geometry: Geometry,
        prober: Option<Prober>,
        options: &OpenOptions,
    ) -> Pool {
        let data = geometry.data_start * BLOCK_BYTES..geometry.data_end();
        let runtime = geometry.runtime.clone();
        let annexes = Annexes {
            roots: geometry.annex_roots,
            data: data.clone(),
        };
        let backed = crate::medium::sparse::Backed::of(&mem, geometry.blocks);
        Pool {
            pm: Pm::new(mem, runtime).with_annexes(annexes),
            geometry,
            superblock,
            data,
            held_as: AtomicHolder::default(),
            clock: options.clock.clone(),
            stalled: options.stalled,
            data_mode: options.data,
            large: options.large,
            atime: AtomicU8::new(options.atime as u8),
            nodiratime: AtomicBool::new(options.nodiratime),
            read_only: AtomicBool::new(options.read_only),
            shut: AtomicBool::new(false),
            life: AtomicU64::new(pmem::life::number()),
            damaged: AtomicBool::new(false),
            unclosed: AtomicBool::new(false),
            mending: options.repair,
            discarded: Mutex::new(Vec::new()),
            budget: AtomicI64::new(0),
            hints: Hints::default(),
            backed,
            prober,
            counting: Counting::default(),
            cleaning: Default::default(),
            company: Default::default(),
            traces: Traces::default(),
            table_blocks: Default::default(),
            next_file: AtomicU64::new(0),
            next_lock: AtomicU64::new(0),
            locks: Mutex::new(Vec::new()),
        }
    }

    /// Who we are in it.
    #[inline]
    pub fn holder(&self) -> Holder {
        self.held_as.load()
    }

    /// # Errors
    /// [`Error::ShutDown`] after detach, [`Error::Forked`] in a child that has no slot of its own.
    #[inline]
    pub fn alive(&self) -> Result<()> {
        if self.shut.load(Ordering::Relaxed) {
            return Err(Error::ShutDown);
        }
        if self.life.load(Ordering::Relaxed) != pmem::life::number() {
            return Err(Error::Forked);
        }
        Ok(())
    }

    /// Whether this thread unwinds from a broken invariant, in the call that began at `began`. What it holds then stays held: half a change
    /// must not be seen, and recovery will undo it. Nothing more is done through this attachment.
    #[inline]
    pub fn gives_up(&self, began: Began) -> bool {
        let gives_up = std::thread::panicking() && !began.unwinding;
        if gives_up {
            self.shut.store(true, Ordering::Relaxed);
        }
        gives_up
    }

    /// When reads update atime.
    pub fn atime_mode(&self) -> AtimeMode {
        AtimeMode::from_number(self.atime.load(Ordering::Relaxed)).unwrap_or_default()
    }

    /// # Errors
    /// [`Error::ReadOnly`], [`Error::ShutDown`], or [`Error::Medium`].
    #[inline]
    pub fn writable(&self) -> Result<()> {
        self.alive()?;
        if self.unclosed.load(Ordering::Relaxed) {
            self.close_for_the_dead();
        }
        self.patrol();
        if self.read_only.load(Ordering::Relaxed) {
            return Err(Error::ReadOnly);
        }
        self.pm.intact()
    }

    /// Damage was met: nothing is changed any more, nor is the pool marked clean.
    #[cold]
    pub fn stop_at_damage(&self) {
        self.damaged.store(true, Ordering::Relaxed);
        self.read_only.store(true, Ordering::Relaxed);
    }

    /// Closes what dead processes held open. Whoever cleaned up after them did it while it waited for a lock, with
    /// others held.
    #[cold]
    fn close_for_the_dead(&self) {
        self.unclosed.store(false, Ordering::Relaxed);
        // Damage in a dead one's log is not this call's: who needs the locks that stay held meets it.
        let _ = crate::recovery::recover_dead(self);
    }

    /// Whether the holder of an owner word is gone.
    pub fn owner_dead(&self, owner: u64) -> bool {
        slot_of(owner).is_some_and(|slot| self.slot_dead(slot))
    }
}
