//! A check in progress: the notes that its parts take.

use super::fix::Fix;
use super::marks::Doubtful;
use super::report::{CheckReport, Finding, Watch, number};
use pmfs::parts::pool::Pool;
use pmfs::parts::tables::shares::Counted;
use pmfs::parts::tree::visit::Piece;
use pmfs::types::Run;
use std::collections::HashSet;

pub(crate) struct Checker<'a> {
    pub(super) pool: &'a Pool,
    pub(super) report: CheckReport,
    /// The fixes that would mend the findings.
    pub(super) fixes: Vec<Fix>,
    /// Blocks that something names.
    pub(super) seen: Vec<u64>,
    /// How many leaves that are marked as shared name each of them.
    pub(super) shared: Counted,
    /// Marked pieces whose blocks something without a mark has named.
    pub(super) doubtful: Vec<Doubtful>,
    /// The blocks among those that directories that are to be filled anew have for themselves.
    pub(super) torn_blocks: HashSet<u64>,
    /// Live inodes, by number.
    pub(super) inodes: Vec<Known>,
    pub(super) watch: Watch<'a>,
    /// Inodes and names that were looked at.
    pub(super) done: u64,
}

/// The knowledge that check has of an inode.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Known {
    /// The inode has links, or a process holds it open.
    pub live: bool,
    pub links: u32,
    /// Names found, and for a directory "." and its children's "..".
    pub named: u32,
    pub kind: u32,
    /// The kind is none: a name may tell what it was.
    pub kindless: bool,
    /// The inode has blocks, which its kind can't have.
    pub misfit: bool,
    pub parent: u64,
    /// It is of a snapshot.
    pub of_snapshot: bool,
    /// It is the directory of all snapshots.
    pub has_snapshots: bool,
    /// A name leads to it.
    pub reachable: bool,
    /// A directory's tree is damaged.
    pub torn: bool,
    /// The table has a place for it.
    pub there: bool,
}

/// Returns whether one of these blocks has its bit.
fn is_marked(seen: &[u64], run: Run) -> bool {
    (run.block..run.block + run.count).any(|block| {
        let word = seen.get((block / 64) as usize).copied().unwrap_or(0);
        word >> (block % 64) & 1 == 1
    })
}

impl Checker<'_> {
    /// Counts inodes, or names, that have been checked.
    pub(super) fn step(&mut self, more: u64) {
        self.done += more;
        // Each inode is looked at by itself, and again under its name.
        let all = 2 * self.inodes.len() as u64;
        (self.watch)(self.done.min(all), all);
    }

    /// Something is wrong that nothing is known to mend.
    pub(super) fn find(&mut self, number: u32, text: String) {
        self.report.findings.push(Finding { number, text });
    }

    pub(super) fn find_to_fix(&mut self, number: u32, text: String, fix: Fix) {
        self.find(number, text);
        let once = matches!(fix, Fix::Superblocks | Fix::Runtime | Fix::Root);
        if !once || !self.fixes.contains(&fix) {
            self.fixes.push(fix);
        }
    }

    /// Notes that something names these blocks. If something else did before, the later name is to
    /// go. Answers whether nothing did.
    pub(super) fn claim(&mut self, run: Run, by: &str, fix: &dyn Fn() -> Fix) -> bool {
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

    /// Notes a file's piece as [`Checker::claim`] does. Pieces that are marked as shared may name
    /// the same blocks, and no other may. Answers whether nothing did before.
    pub(super) fn claim_piece(&mut self, piece: &Piece, by: &str, fix: &dyn Fn() -> Fix) -> bool {
        if !piece.shared {
            return self.claim(piece.run, by, fix);
        }
        let mut is_first = true;
        for block in piece.run.block..piece.run.block + piece.run.count {
            match self.shared.add(block) {
                0 => is_first &= self.claim(Run::one(block), by, fix),
                _ => is_first = false,
            }
        }
        is_first
    }

    /// Returns whether something names one of a piece's blocks already that it can't share.
    pub(super) fn is_claimed(&self, piece: &Piece) -> bool {
        let Run { block, count } = piece.run;
        let is_taken = |block| {
            let shares = piece.shared && self.shared.leaves(block) > 0;
            is_marked(&self.seen, Run::one(block)) && !shares
        };
        match piece.shared {
            true => (block..block + count).any(is_taken),
            false => is_marked(&self.seen, piece.run),
        }
    }

    /// The blocks that are never given out.
    pub(super) fn reserve(&mut self) {
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
