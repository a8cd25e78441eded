//! The words that processes, or the dead, hold inside calls: lanes, locks and the like, counted. An
//! outside checker uses them to see that nothing stays held; [`crate::holders`] has what a process
//! holds between calls. The words may change while they are read.

use crate::inspect::Inspector;
use pm_journal::medium::header;
use pm_space::Bitmap;
use pmfs::parts::open::file_lock::table;
use pmfs::parts::purpose::Lane;
use pmfs_format::LockRaw;
use pmshare::holder::slot_of;

/// The words that a slot, or all together, hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OwnerWords {
    /// Lanes: calls in progress that change something.
    pub lanes: u64,
    /// Transactions begun and not closed, among them.
    pub open_logs: u64,
    /// Intents written in these lanes.
    pub intents: u64,
    /// Lines of the lock table.
    pub locks: u64,
    /// Lines among these that are changing: their readers wait.
    pub changing: u64,
    /// Groups of blocks or inodes.
    pub groups: u64,
    /// The lock of renames, the one under which the inode table grows.
    pub tables: u64,
    /// Open files whose offset moves, chains of file locks that change.
    pub files: u64,
    /// The recovery lock, the one under which the files of the dead are closed.
    pub recovery: u64,
    /// References: inodes and files held open.
    pub open: u64,
    /// File locks, had or waited for.
    pub file_locks: u64,
}

impl OwnerWords {
    /// All of them, open files and file locks apart.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.lanes + self.locks + self.groups + self.tables + self.files + self.recovery
    }
}

impl Inspector {
    /// Returns the words that a slot holds; `None`: that any slot holds.
    #[must_use]
    pub fn owner_words(&self, slot: Option<u64>) -> OwnerWords {
        let pool = &self.pool;
        let geometry = &pool.geometry;
        let counts = |off: u64| {
            let owner = pool.pm.load(off);
            owner != 0 && (slot.is_none() || slot_of(owner) == slot)
        };
        let mut held = OwnerWords::default();
        for index in (0..geometry.lanes).filter(|&lane| counts(geometry.lane_line(lane))) {
            let lane = Lane::at(pool, index);
            let scan = lane.scan();
            held.lanes += 1;
            held.open_logs += u64::from(!scan.open.is_empty() && !scan.is_committed_redo());
            held.intents += lane.intent_count();
        }
        for line in (0..geometry.lock_count).map(|at| geometry.locks + at * LockRaw::SIZE) {
            if counts(line) {
                held.locks += 1;
                held.changing += pool.pm.load(LockRaw::sequence.of(line)) & 1;
            }
        }
        for map in [Bitmap::blocks(pool), Bitmap::inodes(pool)] {
            held.groups += map.owner_words().filter(|&line| counts(line)).count() as u64;
        }
        let words = |words: [u64; 2]| words.into_iter().filter(|&word| counts(word)).count() as u64;
        held.tables = words([header::rename_word(pool), header::grow_word(pool)])
            + u64::from(counts(header::annex_word(pool)));
        held.recovery = words([header::recovery_word(pool), header::closing_word(pool)]);
        let files = pool.file_lines().map(|(_, line)| line.off);
        let files = files.chain(pool.file_lock_buckets());
        held.files = files.filter(|&line| counts(line)).count() as u64;
        let is_its = |one: Option<u64>| slot.is_none() || one == slot;
        held.open = pool
            .references()
            .filter(|found| is_its(Some(found.slot)))
            .count() as u64;
        held.file_locks = table::records(pool)
            .filter(|record| is_its(record.slot))
            .count() as u64;
        held
    }
}
