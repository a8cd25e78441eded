//! Recovery of a log: undoing an open transaction, or applying a committed redo record again.

use crate::error::{Error, Result};
use crate::lane::Lane;
use crate::log_entry::LogEntry;
use crate::medium::store::Store;
use crate::scan::Scan;
use pm_store::Restore;
use pmshare::cleaning::Undone;

/// More transactions than any lane ever has.
const ID_MAX: u64 = 1 << 62;

/// Undoes the lane's open transaction, if it has one, or applies its redo record, and sets the
/// lane's counters. A closed transaction is then durably closed.
///
/// # Errors
/// [`Error::Corrupt`] if an entry can't be right; nothing is restored then.
pub fn undo_lane(store: &Store, lane: &Lane<'_>, keep_intents: bool) -> Result<Undone> {
    undo(store, lane, &lane.scan(), keep_intents)
}

/// Undoes as [`undo_lane`] does, with a log that was scanned already.
pub fn undo(store: &Store, lane: &Lane<'_>, scan: &Scan, keep_intents: bool) -> Result<Undone> {
    let (log, entries) = lane.log();
    let restore = Restore::new(&store.pm);
    let mut undone = Undone::default();
    let mut head = scan.head;
    if scan.id > ID_MAX {
        return Err(Error::corrupt("journal entry", log));
    }
    if let Some(closing) = scan.closing {
        // The call that closed it may not have waited, and the locks no longer name the pending
        // commit, or it was lost with the power.
        restore.flush(closing, 64);
        restore.barrier();
    } else if scan.checksum_matches(store)? {
        make_commit(store, scan, &restore)?;
    } else if !scan.open.is_empty() {
        for &entry in scan.before.iter().chain(&scan.open) {
            LogEntry::read(store, entry)?;
        }
        if !scan.redo {
            // The words of the record before are durable only after the barrier of the last
            // transaction, which may not have happened.
            for &entry in scan.before.iter().chain(scan.open.iter().rev()) {
                LogEntry::read(store, entry)?.put(&restore)?;
            }
        } else {
            if scan.last {
                // After a kill the log may be complete without being durable.
                scan.open.iter().for_each(|&entry| restore.flush(entry, 64));
                restore.barrier();
            }
            for (off, word) in scan.redo_words(store)? {
                restore.words(off, &[word]);
            }
        }
        restore.barrier();
        restore.close(log + head % entries * 64, scan.id);
        head += 1;
        if !scan.redo {
            undone.transactions = 1;
            undone.entries = scan.open.len() as u64;
        }
    }
    if keep_intents {
        lane.reset_ids(scan.id, head);
    } else {
        lane.reset(scan.id, head);
    }
    Ok(undone)
}

/// Returns whether others may get the lane.
#[inline(always)]
pub fn may_go(lane: &Lane<'_>) -> bool {
    lane.share().pm.intact().is_ok() || is_undone(lane)
}

/// Undoes the lane after the medium has failed, because others must not find half a transaction.
/// Returns whether it could: open records need a process that can read the medium, so the lane then
/// stays this process's until its end.
#[cold]
fn is_undone(lane: &Lane<'_>) -> bool {
    undo_lane(lane.share(), lane, true).is_ok() && lane.intent_count() == 0
}

/// Closes a transaction whose commit checksum matches, durably.
fn make_commit(store: &Store, scan: &Scan, restore: &Restore<'_>) -> Result<()> {
    // After a kill the words may be visible without being durable.
    for &entry in &scan.open {
        for (off, old) in LogEntry::read(store, entry)?.ranges() {
            restore.flush(off, old.len() as u64 * 8);
        }
    }
    restore.barrier();
    restore.make_commit(scan.checksum.expect("a checksum holds"));
    Ok(())
}
