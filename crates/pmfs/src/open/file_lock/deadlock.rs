//! Detection of deadlocks: a chain of waits that leads back to the caller. A waiter checks when it
//! begins to wait and from time to time later, so that at least the last one of a circle sees it.
//! An owner counts as one, whichever of its threads waits, as with the kernel's POSIX locks.

use super::Owner;
use super::table::{self, Lock, Record};
use crate::pool::Pool;

/// The most owners of a circle that is found; in a longer one they wait on.
const OWNERS_MAX: usize = 64;

/// Returns whether the wait closes a circle. Others may change meanwhile, so only a circle that is
/// found twice counts.
pub(super) fn is_certain(pool: &Pool, wanted: &Lock) -> bool {
    closes(pool, wanted) && {
        std::thread::yield_now();
        closes(pool, wanted)
    }
}

fn closes(pool: &Pool, wanted: &Lock) -> bool {
    let records: Vec<Record> = table::records(pool).collect();
    if records.iter().filter(|record| record.is_waiting()).count() < 2 {
        return false;
    }
    let blockers = |lock: &Lock| {
        let lock = *lock;
        let held = records.iter().filter(|record| record.is_held());
        held.filter(move |record| record.lock.conflicts(&lock))
            .map(|record| record.lock.owner)
    };
    let mut seen: Vec<Owner> = blockers(wanted).collect();
    let mut at = 0;
    while at < seen.len() && seen.len() <= OWNERS_MAX {
        let owner = seen[at];
        if owner == wanted.owner {
            return true;
        }
        let waits = |record: &&Record| record.is_waiting() && record.lock.owner == owner;
        for wait in records.iter().filter(waits) {
            for next in blockers(&wait.lock) {
                if !seen.contains(&next) {
                    seen.push(next);
                }
            }
        }
        at += 1;
    }
    false
}
