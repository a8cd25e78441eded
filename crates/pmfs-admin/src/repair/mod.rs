//! repair: does what check found would help, round by round, until nothing is found any more.
//!
//! First the words that can be put right where they stand; then the root; then directories that
//! can't be trusted are filled anew; last, what no name reaches gets one in lost+found. After each
//! step the runtime area is rebuilt and everything is checked again, so that no step relies on what
//! another one mended. A repair that is itself interrupted leaves a pool that can be repaired:
//! names that were about to be filled in are then found in lost+found.

mod adopt;
pub(crate) mod medium;
mod root;

use crate::check::{self, CheckReport, Finding, Fix};
use pm_store::Restore;

use pm_journal::medium::superblock;
use pmfs::Result;
use pmfs::parts::pool::Pool;
use pmfs::parts::recovery::attach;

/// Rounds before giving up: each one mends a kind of damage that hid another.
const ROUNDS: usize = 16;

/// The result of repair.
#[derive(Clone, Debug, Default)]
pub struct RepairReport {
    /// The findings that are mended.
    pub repaired: Vec<Finding>,
    /// The pool's state now.
    pub left: CheckReport,
}

/// Repairs the pool, which no other process holds.
///
/// # Errors
/// The pool can't be read or written at all; no space for what has to be made.
pub(crate) fn repair(pool: &Pool, watch: check::Watch<'_>) -> Result<RepairReport> {
    let mut found: Vec<Finding> = Vec::new();
    for lane in pool.discarded.lock().expect("not poisoned").drain(..) {
        found.push(check::discarded_log(lane));
    }
    let mut left = CheckReport::default();
    for _ in 0..ROUNDS {
        let (report, fixes) = check::examine(pool, watch)?;
        found.extend(report.findings.iter().cloned());
        left = report;
        if fixes.is_empty() {
            break;
        }
        apply(pool, &fixes)?;
        attach::rebuild_held(pool)?;
    }
    let mut report = RepairReport {
        repaired: Vec::new(),
        left,
    };
    for finding in found {
        if !report.left.findings.contains(&finding) && !report.repaired.contains(&finding) {
            report.repaired.push(finding);
        }
    }
    Ok(report)
}

/// Does the first kind of fix that there is.
fn apply(pool: &Pool, fixes: &[Fix]) -> Result<()> {
    pool.set_read_only(false);
    pool.table_blocks.forget();
    if words(pool, fixes)? {
        return Ok(());
    }
    if fixes.contains(&Fix::Root) {
        return root::renew(pool);
    }
    let mut filled = false;
    for fix in fixes {
        if let Fix::Refill { dir, names } = fix {
            adopt::refill(pool, *dir, names)?;
            filled = true;
        }
    }
    if filled {
        return Ok(());
    }
    let lost: Vec<u64> = fixes
        .iter()
        .filter_map(|fix| match fix {
            Fix::Adopt(ino) => Some(*ino),
            _ => None,
        })
        .collect();
    adopt::lost_and_found(pool, &lost)
}

/// Stores what is mended by storing. Answers whether there was any.
fn words(pool: &Pool, fixes: &[Fix]) -> Result<bool> {
    let restore = Restore::new(&pool.pm);
    let mut any = false;
    for fix in fixes {
        match fix {
            Fix::Words { off, words } => {
                restore.words(*off, words);
                any = true;
            }
            Fix::Superblocks => {
                superblock::store(&restore, &pool.superblock)?;
                any = true;
            }
            _ => {}
        }
    }
    restore.barrier();
    Ok(any)
}
