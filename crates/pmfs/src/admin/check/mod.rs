//! check: what fsck finds. It reads only, and expects the pool to be at rest.
//!
//! Findings have permanent numbers, listed in `docs/FSCK.md`. Checked are: the superblocks, every
//! tree (each entry inside the pool, no block named twice), every inode, every directory (records,
//! hashes, link counts, parents, reachability), attributes, and that the bitmaps say what the trees
//! say.

pub(crate) mod bad_blocks;
mod directories;
mod fix;
mod inodes;
mod volatile;

use crate::error::{Error, Result};
use crate::fs::Fs;
use crate::medium::superblock;
use crate::pool::Pool;
use crate::types::Run;
pub use bad_blocks::{BadBlock, Holds};
pub(crate) use fix::Fix;
use std::collections::HashSet;
use std::fmt;

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Its permanent number.
    pub number: u32,
    /// The damage and its place.
    pub text: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "F{:04} {}", self.number, self.text)
    }
}

/// The findings of check, and how much it looked at.
#[derive(Clone, Debug, Default)]
pub struct CheckReport {
    /// Everything wrong; empty for a sound pool.
    pub findings: Vec<Finding>,
    /// Live inodes.
    pub inodes: u64,
    /// Directories among them.
    pub directories: u64,
    /// Blocks in use.
    pub blocks: u64,
}

impl CheckReport {
    /// Returns whether nothing was found.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.findings.is_empty()
    }
}

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

/// Findings, by number.
pub(crate) mod number {
    pub const SUPERBLOCK: u32 = 1;
    pub const SUPERBLOCK_COPY: u32 = 2;
    pub const TREE: u32 = 10;
    pub const BLOCK_TWICE: u32 = 11;
    pub const BLOCK_LEAKED: u32 = 12;
    pub const BLOCK_NOT_MARKED: u32 = 13;
    pub const GROUP_COUNT: u32 = 14;
    pub const INODE: u32 = 20;
    pub const LINKS: u32 = 21;
    pub const UNREACHABLE: u32 = 22;
    pub const INODE_LEAKED: u32 = 23;
    pub const INODE_NOT_MARKED: u32 = 24;
    pub const BLOCKS: u32 = 25;
    pub const RECORD: u32 = 30;
    pub const RECORD_PLACE: u32 = 31;
    pub const DEAD_NAME: u32 = 32;
    pub const NAME_TWICE: u32 = 33;
    pub const ENTRY_COUNT: u32 = 34;
    pub const PARENT: u32 = 35;
    pub const KIND: u32 = 36;
    pub const XATTR: u32 = 40;
    pub const SYMLINK: u32 = 41;
    pub const ROOT: u32 = 42;
    pub const LOG: u32 = 60;
    pub const MEDIA_ERROR: u32 = 3;
    pub const LOCK_HELD: u32 = 50;
    pub const LANE_BUSY: u32 = 51;
    pub const SEQUENCE_ODD: u32 = 52;
    pub const HOLDER_GONE: u32 = 53;
}

/// The check in progress.
pub(crate) struct Checker<'a> {
    pool: &'a Pool,
    report: CheckReport,
    /// The fixes that would mend the findings.
    fixes: Vec<Fix>,
    /// Blocks that something names.
    seen: Vec<u64>,
    /// The blocks among those that directories that are to be filled anew have for themselves.
    torn_blocks: HashSet<u64>,
    /// Live inodes, by number.
    inodes: Vec<inodes::Known>,
    watch: Watch<'a>,
    /// Inodes and names that were looked at.
    done: u64,
}

/// Is told how many inodes and names were looked at, of about how many.
pub type Watch<'a> = &'a mut dyn FnMut(u64, u64);

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
/// As [`check`].
pub(crate) fn examine(pool: &Pool, watch: Watch<'_>) -> Result<(CheckReport, Vec<Fix>)> {
    pool.alive()?;
    let mut checker = Checker {
        pool,
        report: CheckReport::default(),
        fixes: Vec::new(),
        seen: vec![0; pool.geometry.blocks.div_ceil(64) as usize],
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
    checker.directories();
    checker.links();
    checker.bitmaps();
    checker.locks();
    pool.pm.intact()?;
    Ok((checker.report, checker.fixes))
}

/// Returns whether one of these blocks has its bit.
fn is_marked(seen: &[u64], run: Run) -> bool {
    (run.block..run.block + run.count).any(|block| {
        let word = seen.get((block / 64) as usize).copied().unwrap_or(0);
        word >> (block % 64) & 1 == 1
    })
}

impl Checker<'_> {
    /// So many inodes, or names, more.
    fn step(&mut self, more: u64) {
        self.done += more;
        // Each inode is looked at by itself, and again under its name.
        let all = 2 * self.inodes.len() as u64;
        (self.watch)(self.done.min(all), all);
    }

    /// Something is wrong that nothing is known to mend.
    fn find(&mut self, number: u32, text: String) {
        self.report.findings.push(Finding { number, text });
    }

    fn find_to_fix(&mut self, number: u32, text: String, fix: Fix) {
        self.find(number, text);
        let once = matches!(fix, Fix::Superblocks | Fix::Runtime | Fix::Root);
        if !once || !self.fixes.contains(&fix) {
            self.fixes.push(fix);
        }
    }

    /// Notes that something names these blocks. If something else did before, the later name is to
    /// go. Answers whether nothing did.
    fn claim(&mut self, run: Run, by: &str, fix: &dyn Fn() -> Fix) -> bool {
        let mut twice = None;
        for block in run.block..run.block + run.count {
            let Some(word) = self.seen.get_mut((block / 64) as usize) else {
                break;
            };
            let bit = 1 << (block % 64);
            if *word & bit != 0 {
                twice.get_or_insert(block);
            }
            *word |= bit;
        }
        self.report.blocks += run.count;
        if let Some(block) = twice {
            let text = format!("block {block} is named twice, the second time by {by}");
            self.find_to_fix(number::BLOCK_TWICE, text, fix());
        }
        twice.is_none()
    }

    /// Returns whether something names one of these blocks already.
    fn is_claimed(&self, run: Run) -> bool {
        is_marked(&self.seen, run)
    }

    /// The blocks that are never given out.
    fn reserve(&mut self) {
        let geometry = &self.pool.geometry;
        let fixed = Run {
            block: 0,
            count: geometry.data_start,
        };
        let tail = geometry.tail();
        self.claim(fixed, "the pool's layout", &|| Fix::Runtime);
        let what = "the superblock's copy, or the tables before it";
        self.claim(tail, what, &|| Fix::Runtime);
    }
}

#[allow(clippy::missing_errors_doc)]
impl Fs {
    /// Checks the whole pool, which must be at rest.
    pub fn check(&self) -> Result<CheckReport> {
        check(self.pool(), &mut |_, _| {})
    }

    /// Checks like [`Fs::check`], telling how far it is.
    pub fn check_watched(&self, watch: Watch<'_>) -> Result<CheckReport> {
        check(self.pool(), watch)
    }

    /// Reads the whole pool, and tells which blocks the medium can't give; `watch` is told how many
    /// blocks were read.
    pub fn bad_blocks(&self, watch: Watch<'_>) -> Result<Vec<BadBlock>> {
        bad_blocks::bad_blocks(self.pool(), watch)
    }
}
