//! The processes in a pool and their files: read from the runtime area without a lock, so that the
//! picture may change while it is read.

use pmfs::parts::open::file_lock::table;
use pmfs::parts::pool::Pool;
use pmfs::parts::tables::open_table::Thing;
use pmfs::types::{FileId, Ino, LockClass, LockKind, LockRange};
use pmfs_format::SlotRaw;
use pmshare::counters::Totals;
use pmshare::holder::slot_of;

/// A process that is attached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Process {
    /// The process's slot.
    pub slot: u64,
    /// Process id, as it calls itself.
    pub pid: u64,
    /// Name of its program, at most 15 bytes.
    pub command: String,
    /// The time when it attached, ns since the epoch.
    pub since_ns: i64,
    /// True if it lives; else the next process that meets it cleans up after it.
    pub is_alive: bool,
    /// Calls that it is in the middle of.
    pub calls: u64,
    /// The counts of its work.
    pub totals: Totals,
    /// The medium that it emulates.
    pub emulates: pmem::Emulation,
}

/// An inode that a process has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Holding {
    /// The process's slot.
    pub slot: u64,
    /// The inode.
    pub ino: Ino,
    /// The number of times.
    pub count: u64,
    /// The process is a mount whose kernel may hold pages of it.
    pub is_mapped: bool,
    /// The open file through which, with its offset in bytes; `None`: held by number, as a mount
    /// does.
    pub file: Option<(FileId, u64)>,
}

/// A file lock, held or waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Locked {
    /// The process's slot; `None`: an open file's, of all processes that have it.
    pub slot: Option<u64>,
    /// The process, as it was told with the lock; 0 if it was not.
    pub pid: u32,
    /// The inode.
    pub ino: Ino,
    /// The kind of its owner.
    pub class: LockClass,
    /// The access that it is for.
    pub kind: LockKind,
    /// The range that it covers.
    pub range: LockRange,
    /// True if it is still waited for.
    pub is_waiting: bool,
}

/// The attached processes, in the order of slots.
pub(crate) fn processes(pool: &Pool) -> Vec<Process> {
    pool.tell_reads();
    let lanes: Vec<u64> = (0..pool.geometry.lanes)
        .filter_map(|lane| slot_of(pool.pm.load(pool.geometry.lane_line(lane))))
        .collect();
    let marked = pool.slots().filter(|&slot| pool.is_marked(slot));
    let process = |slot| Process {
        slot,
        pid: pool.slot_pid(slot),
        command: pool.slot_command(slot),
        since_ns: pool.pm.load(SlotRaw::since_ns.of(pool.geometry.slot(slot))) as i64,
        is_alive: slot == pool.holder().slot || pool.slot_locked(slot),
        calls: lanes.iter().filter(|&&owner| owner == slot).count() as u64,
        totals: pool.totals_of(slot),
        emulates: pool.slot_emulates(slot),
    };
    marked.map(process).collect()
}

/// The inodes that processes have open.
pub(crate) fn holdings(pool: &Pool) -> Vec<Holding> {
    let all: Vec<_> = pool.references().collect();
    let copies: Vec<_> = pool.kernel_copies().collect();
    let through_files = |slot: u64, ino: Ino| {
        let files = all.iter().filter(|other| other.slot == slot);
        files
            .filter(|other| match other.thing {
                Thing::File(index) => pool.file_ino(index) == ino,
                Thing::Inode(_) => false,
            })
            .count() as u64
    };
    let holding = |found: &pmfs::parts::tables::open_table::Reference| {
        let (ino, count, file) = match found.thing {
            Thing::File(index) => {
                let (id, offset) = pool.file_at(index);
                (pool.file_ino(index), found.count, Some((id, offset)))
            }
            // Each open file holds its inode once for each process that has it.
            Thing::Inode(ino) => {
                let own = found.count.saturating_sub(through_files(found.slot, ino));
                (ino, own, None)
            }
        };
        Holding {
            slot: found.slot,
            ino,
            count,
            is_mapped: copies
                .iter()
                .any(|copy| (copy.slot, copy.ino) == (found.slot, ino)),
            file,
        }
    };
    let mut found: Vec<Holding> = all.iter().map(holding).collect();
    found.retain(|holding| holding.count > 0 && holding.ino != 0);
    found.sort_by_key(|holding| (holding.slot, holding.ino));
    found
}

pub(crate) fn locked(pool: &Pool) -> Vec<Locked> {
    let records = table::records(pool);
    let shown = records.filter(|record| record.is_held() || record.is_waiting());
    let mut found: Vec<Locked> = shown
        .map(|record| Locked {
            slot: record.slot,
            pid: record.lock.pid,
            ino: record.lock.ino,
            class: record.lock.owner.class,
            kind: record.lock.kind,
            range: record.lock.range,
            is_waiting: record.is_waiting(),
        })
        .collect();
    found.sort_by_key(|lock| (lock.ino, lock.range.start));
    found
}
