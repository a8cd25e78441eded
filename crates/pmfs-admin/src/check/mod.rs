//! The check of fsck, which reads only, and expects the pool to be at rest.
//!
//! Findings have permanent numbers, listed in `docs/FSCK.md`. The check covers the superblocks,
//! every tree (each entry inside the pool, no block named twice), every inode, every directory
//! (records, hashes, link counts, parents, reachability), attributes, and that the bitmaps say what
//! the trees say.

pub(crate) mod bad_blocks;
mod checker;
mod directories;
mod fix;
mod inodes;
mod marks;
mod pieces;
mod report;
mod volatile;

pub use bad_blocks::{BadBlock, Holds};
use checker::Checker;
pub(crate) use fix::Fix;

use pm_journal::medium::superblock;
use pmfs::parts::pool::Pool;
use pmfs::parts::tables::shares::Counted;
use pmfs::{Error, Result};
use report::number;
pub use report::{CheckReport, Finding, Watch};
use std::collections::HashSet;

/// A block can't be read.
#[must_use]
pub fn media_error(bad: &BadBlock) -> Finding {
    Finding {
        number: number::MEDIA_ERROR,
        text: format!(
            "the medium can't give the block at {:#x}: {}",
            bad.off, bad.what
        ),
    }
}

/// A lane's log could not be undone.
pub(crate) fn discarded_log(lane: u64) -> Finding {
    Finding {
        number: number::LOG,
        text: format!("lane {lane}: its log can't be right; what it had begun is not undone"),
    }
}

/// Returns what a pool that can't be attached to has, as a finding; none if it is no damage.
#[must_use]
pub fn finding_of(error: &Error) -> Option<Finding> {
    let what = match error {
        Error::Corrupt(damage) => damage.what,
        Error::Medium { offset } => {
            return Some(media_error(&BadBlock {
                off: *offset,
                holds: Holds::Metadata,
                what: "what attaching needs".to_owned(),
            }));
        }
        _ => return None,
    };
    let number = match what {
        "journal entry" => number::LOG,
        "no root directory" => number::ROOT,
        // Without a superblock nothing can be checked.
        what if what.starts_with("superblock") || what.starts_with("the pool file") => return None,
        _ => number::TREE,
    };
    Some(Finding {
        number,
        text: error.to_string(),
    })
}

/// Checks the pool.
///
/// # Errors
/// The pool can't be read at all.
pub(crate) fn check(pool: &Pool, watch: Watch<'_>) -> Result<CheckReport> {
    examine(pool, watch).map(|(report, _)| report)
}

/// Checks the pool, and tells what would mend what was found.
///
/// # Errors
/// Those of [`check`].
pub(crate) fn examine(pool: &Pool, watch: Watch<'_>) -> Result<(CheckReport, Vec<Fix>)> {
    pool.alive()?;
    let mut checker = Checker {
        pool,
        report: CheckReport::default(),
        fixes: Vec::new(),
        seen: vec![0; pool.geometry.blocks.div_ceil(64) as usize],
        shared: Counted::new(pool.geometry.blocks),
        doubtful: Vec::new(),
        torn_blocks: HashSet::new(),
        inodes: Vec::new(),
        watch,
        done: 0,
    };
    let (_, health) = superblock::load(pool.pm.mapping())?;
    if !health.primary {
        checker.find_to_fix(
            number::SUPERBLOCK,
            "the superblock is damaged; its copy serves".into(),
            Fix::Superblocks,
        );
    }
    if !health.copy {
        checker.find_to_fix(
            number::SUPERBLOCK_COPY,
            "the superblock's copy is damaged".into(),
            Fix::Superblocks,
        );
    }
    checker.reserve();
    checker.root();
    checker.table();
    checker.settle();
    checker.directories();
    checker.links();
    checker.bitmaps();
    checker.locks();
    pool.pm.intact()?;
    Ok((checker.report, checker.fixes))
}
