//! check: what fsck finds. It reads only, and expects the pool to be at rest.
//!
//! Findings have permanent numbers, listed in `docs/FSCK.md`. Checked are: the superblocks, every tree (each
//! entry inside the pool, no block named twice), every inode, every directory (records, hashes, link counts,
//! parents, reachability), attributes, and that the bitmaps say what the trees say.

mod directories;
mod inodes;
mod volatile;

use crate::error::Result;
use crate::lane::Run;
use crate::pool::Pool;
use crate::superblock;
use std::fmt;

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Its permanent number.
    pub number: u32,
    /// What and where.
    pub text: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "F{:04} {}", self.number, self.text)
    }
}

/// What check found and how much it looked at.
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
    /// Whether nothing was found.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.findings.is_empty()
    }
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
    pub const LOCK_HELD: u32 = 50;
    pub const LANE_BUSY: u32 = 51;
    pub const SEQUENCE_ODD: u32 = 52;
}

/// The check in progress.
pub(crate) struct Checker<'a> {
    pool: &'a Pool,
    report: CheckReport,
    /// Blocks that something names.
    seen: Vec<u64>,
    /// Live inodes, by number.
    inodes: Vec<inodes::Known>,
}

/// Checks the pool.
///
/// # Errors
/// The pool can't be read at all.
pub(crate) fn check(pool: &Pool) -> Result<CheckReport> {
    pool.alive()?;
    let mut checker = Checker {
        pool,
        report: CheckReport::default(),
        seen: vec![0; pool.geometry.blocks.div_ceil(64) as usize],
        inodes: Vec::new(),
    };
    let (_, health) = superblock::load(pool.pm.mapping())?;
    if !health.primary {
        checker.find(
            number::SUPERBLOCK,
            "the superblock is damaged; its copy serves".into(),
        );
    }
    if !health.copy {
        checker.find(
            number::SUPERBLOCK_COPY,
            "the superblock's copy is damaged".into(),
        );
    }
    checker.reserve();
    checker.table();
    checker.directories();
    checker.links();
    checker.bitmaps();
    checker.locks();
    pool.pm.intact()?;
    Ok(checker.report)
}

impl Checker<'_> {
    fn find(&mut self, number: u32, text: String) {
        self.report.findings.push(Finding { number, text });
    }

    /// Notes that something names these blocks; a finding if something else did before.
    fn claim(&mut self, run: Run, by: &str) {
        for block in run.block..run.block + run.count {
            let Some(word) = self.seen.get_mut((block / 64) as usize) else {
                return;
            };
            let bit = 1 << (block % 64);
            if *word & bit != 0 {
                let text = format!("block {block} is named twice, the second time by {by}");
                self.report.findings.push(Finding {
                    number: number::BLOCK_TWICE,
                    text,
                });
            }
            *word |= bit;
        }
        self.report.blocks += run.count;
    }

    /// The blocks that are never given out.
    fn reserve(&mut self) {
        let geometry = &self.pool.geometry;
        let fixed = Run {
            block: 0,
            count: geometry.data_start,
        };
        self.claim(fixed, "the pool's layout");
        self.claim(
            geometry.tail(),
            "the superblock's copy, or the tables before it",
        );
    }
}
