//! Blocks for a tree that is built anew beside a file's old one, from the root down.
//!
//! The blocks needed are counted before any is allocated: they come in runs, with one record of the
//! lane for each run, at any file size.

use super::Work;
use crate::purpose::Purpose;
use crate::types::Run;
use pm_journal::error::{Error, Result};
use pm_space::{Class, Zone};
use pmfs_format::BLOCK_SHIFT;

/// Records that a lane keeps free for the old tree's end.
const RECORDS_LEFT: u64 = 3;

/// Runs of blocks, used from the back: the topmost node is stored last, and has the first block.
pub(super) struct Stock {
    nodes: Vec<Run>,
    pages: Vec<Run>,
}

/// The needs of a new tree.
#[derive(Clone, Copy)]
pub(super) struct Need {
    /// Height of the tree.
    pub height: u32,
    /// Blocks for nodes.
    pub nodes: u64,
    /// Blocks for bytes.
    pub pages: u64,
    pub class: Class,
    /// The error for free space in more runs than the lane has records.
    pub scattered: fn() -> Error,
}

impl Stock {
    /// Allocates the blocks. The topmost node has a record as every node has; the blocks under it
    /// are in use if the topmost is.
    pub fn of(work: &Work<'_>, need: Need) -> Result<Stock> {
        let (mut nodes, mut pages) = (Vec::new(), Vec::new());
        if need.nodes > 0 {
            let ino = work.ino();
            let alloc = |want, zone, purpose| {
                if work.lane.room() < RECORDS_LEFT {
                    return Err((need.scattered)());
                }
                work.pool.alloc(work.lane, want, need.class, zone, purpose)
            };
            let (level, index) = (need.height, 0);
            let top = alloc(1, Zone::Meta, Purpose::Tree { ino, level, index })?;
            let under = Purpose::Under {
                ino,
                top: top.block,
            };
            nodes.push(top);
            for (mut left, zone, runs) in [
                (need.nodes - 1, Zone::Meta, &mut nodes),
                (need.pages, Zone::Data, &mut pages),
            ] {
                while left > 0 {
                    let run = alloc(left, zone, under)?;
                    left -= run.count;
                    runs.push(run);
                }
            }
        }
        Ok(Stock { nodes, pages })
    }

    /// The byte offset of a block for a node.
    pub fn node(&mut self) -> u64 {
        take(&mut self.nodes)
    }

    /// The byte offset of a block for bytes.
    pub fn page(&mut self) -> u64 {
        take(&mut self.pages)
    }
}

/// Takes a block of the last run.
fn take(runs: &mut Vec<Run>) -> u64 {
    let run = runs.last_mut().expect("as many as were counted");
    run.count -= 1;
    let block = run.block + run.count;
    if run.count == 0 {
        runs.pop();
    }
    block << BLOCK_SHIFT
}
