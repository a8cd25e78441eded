//! What processes hold of a pool: who is attached, and how many lanes, locks and open files each has. For tools that look
//! at a pool from outside: all of it may change while it is read.

use crate::alloc::Bitmap;
use crate::lane::Lane;
use crate::look::Look;
use crate::owner::slot_of;
use crate::pool::{Pool, SLOT_INCARNATION, SLOT_PID, SLOT_STATE};
use crate::recovery::{self, scan};
use pmem::slots::Probe;
use pmfs_format::LockRaw;
use pmfs_format::runtime::SLOT_FREE;

/// A process whose slot is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Holder {
    /// Number of the slot.
    pub slot: u64,
    /// Process id, as the process itself sees it.
    pub pid: u64,
    /// How many have had the slot before, and this one.
    pub incarnation: u64,
    /// Its memory still stands: the slot's byte is locked.
    pub alive: bool,
}

/// What a slot, or all together, hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Holdings {
    /// Lanes: calls in progress that change something.
    pub lanes: u64,
    /// Transactions begun and not closed, among them.
    pub open_logs: u64,
    /// Intents written in these lanes.
    pub intents: u64,
    /// Lines of the lock table.
    pub locks: u64,
    /// Those among them whose readers wait.
    pub changing: u64,
    /// Groups of blocks or inodes.
    pub groups: u64,
    /// The lock of renames, the one under which the inode table grows.
    pub tables: u64,
    /// The recovery lock, the one under which the files of the dead are closed.
    pub recovery: u64,
    /// Files held open.
    pub open_files: u64,
}

impl Holdings {
    /// Owner words: everything but open files.
    #[must_use]
    pub fn owner_words(&self) -> u64 {
        self.lanes + self.locks + self.groups + self.tables + self.recovery
    }
}

impl Look {
    /// The slots that are not free.
    #[must_use]
    pub fn holders(&self) -> Vec<Holder> {
        let pool = &self.pool;
        let load = |slot, field| pool.pm.load(pool.geometry.slot(slot) + field);
        (0..pool.geometry.slot_count)
            .filter(|&slot| load(slot, SLOT_STATE) != SLOT_FREE)
            .map(|slot| Holder {
                slot,
                pid: load(slot, SLOT_PID),
                incarnation: load(slot, SLOT_INCARNATION),
                alive: !matches!(self.prober.probe(Pool::slot_byte(slot)), Ok(Probe::Free)),
            })
            .collect()
    }

    /// What a slot holds; `None`: what anybody holds.
    #[must_use]
    pub fn held_by(&self, slot: Option<u64>) -> Holdings {
        let pool = &self.pool;
        let geometry = &pool.geometry;
        let counts = |off: u64| {
            let owner = pool.pm.load(off);
            owner != 0 && (slot.is_none() || slot_of(owner) == slot)
        };
        let mut held = Holdings::default();
        for index in (0..geometry.lanes).filter(|&lane| counts(geometry.lane_line(lane))) {
            let lane = Lane::at(pool, index);
            let (log, entries) = lane.log();
            held.lanes += 1;
            held.open_logs += u64::from(!scan(&pool.pm, log, entries).open.is_empty());
            held.intents += lane.intent_count();
        }
        for line in (0..geometry.lock_count).map(|at| geometry.locks + at * LockRaw::SIZE) {
            if counts(line) {
                held.locks += 1;
                held.changing += pool.pm.load(line + 8) & 1;
            }
        }
        for map in [Bitmap::blocks(pool), Bitmap::inodes(pool)] {
            held.groups += map.owner_words().filter(|&line| counts(line)).count() as u64;
        }
        let words = |words: [u64; 2]| words.into_iter().filter(|&word| counts(word)).count() as u64;
        held.tables = words([recovery::rename_word(pool), recovery::grow_word(pool)]);
        held.recovery = words(recovery::recovery_words(pool));
        held.open_files = pool.open_count(slot);
        held
    }
}
