//! Annexes: blocks of the pool into which the tables of open files and file locks grow when their
//! own place in the runtime area is full (docs/adr/0061-annexes.md).
//!
//! An annex is found by two levels, as a page is: words of the runtime area name nodes, and words
//! of a node name annexes. Nodes and annexes are ordinary blocks in the bitmap. Nothing durable
//! names them, so the rebuild after a crash finds them free. An annex does not move: the last
//! process to leave the pool frees it.
//!
//! A single process at a time takes a block, under the lock of annexes. The process records the
//! block, and the word that will name it, before the bit is set. After its death there, recovery
//! frees the block.
//!
//! Beside its block each word counts the entries of the annex. The count is raised before an entry
//! is stored and lowered after it is gone. A death in between leaves the count too high, never too
//! low, so an annex whose count is 0 need not be scanned.

use crate::pool::Pool;
use crate::types::Run;
use pm_journal::medium::header::annex_word;
use pm_journal::medium::store::Held;
use pm_space::{Bitmap, Class};
use pm_store::annexes::block_of;
use pmfs_format::runtime::{
    ANNEX_COUNT_MAX, ANNEX_FILE_ROOTS, ANNEX_LINES, ANNEX_LOCK_ROOTS, ANNEX_NODE, ANNEX_NODE_WORDS,
    ANNEX_REFERENCE_ROOTS, ANNEX_ROOTS,
};
use pmfs_format::{BLOCK_SHIFT, LINE_BYTES, RuntimeHeaderRaw};
use std::ops::Range;

/// A table that has annexes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Table {
    /// The open table.
    References,
    Files,
    FileLocks,
}

impl Table {
    /// The numbers of its annexes.
    pub const fn annexes(self) -> Range<u64> {
        let files = ANNEX_REFERENCE_ROOTS;
        let locks = files + ANNEX_FILE_ROOTS;
        let roots = match self {
            Table::References => 0..files,
            Table::Files => files..locks,
            Table::FileLocks => locks..locks + ANNEX_LOCK_ROOTS,
        };
        roots.start * ANNEX_NODE_WORDS..roots.end * ANNEX_NODE_WORDS
    }

    /// Lines that there is room for in annexes.
    pub const fn lines(self) -> u64 {
        let all = self.annexes();
        (all.end - all.start) * ANNEX_LINES
    }
}

/// A line of a table: where it is, and in which annex, if it is in one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Line {
    pub off: u64,
    pub annex: Option<u64>,
}

fn first_line(annex: u64) -> u64 {
    annex + LINE_BYTES
}

/// The words of the header that tell of a block on its way.
pub(crate) fn told_words(pool: &Pool) -> [u64; 2] {
    [RuntimeHeaderRaw::annex_block, RuntimeHeaderRaw::annex_slot]
        .map(|word| word.of(pool.geometry.header))
}

impl Pool {
    /// A line of an annex, if that is there.
    #[inline]
    pub(crate) fn annex_line(&self, annex: u64, line: u64) -> Option<Line> {
        let at = self.pm.annexes().find(self.pm.mapping(), annex)?;
        Some(Line {
            off: first_line(at) + line * LINE_BYTES,
            annex: Some(annex),
        })
    }

    /// Line `number` of those of a table that stand in annexes.
    #[inline]
    pub(crate) fn line_in_annexes(&self, table: Table, number: u64) -> Option<Line> {
        if number >= table.lines() {
            return None;
        }
        let annex = table.annexes().start + number / ANNEX_LINES;
        self.annex_line(annex, number % ANNEX_LINES)
    }

    /// The lines of a table in annexes in which something may stand, with their numbers.
    pub(crate) fn lines_in_annexes(&self, table: Table) -> impl Iterator<Item = (u64, Line)> + '_ {
        let first = table.annexes().start;
        self.annexes_of(table)
            .filter(|&annex| self.annex_count(annex) > 0)
            .flat_map(move |annex| {
                let number = move |line| (annex - first) * ANNEX_LINES + line;
                (0..ANNEX_LINES)
                    .filter_map(move |line| Some((number(line), self.annex_line(annex, line)?)))
            })
    }

    /// The annexes of a table that there are.
    fn annexes_of(&self, table: Table) -> impl Iterator<Item = u64> + '_ {
        let all = table.annexes();
        let nodes = all.start / ANNEX_NODE_WORDS..all.end / ANNEX_NODE_WORDS;
        let (annexes, mem) = (self.pm.annexes(), self.pm.mapping());
        nodes
            .filter(move |&node| annexes.named(mem, annexes.root(node)).is_some())
            .flat_map(|node| node * ANNEX_NODE_WORDS..(node + 1) * ANNEX_NODE_WORDS)
            .filter(move |&annex| annexes.find(mem, annex).is_some())
    }

    /// Returns how many entries stand in an annex, at most.
    pub(crate) fn annex_count(&self, annex: u64) -> u64 {
        let slot = self.pm.annexes().slot(self.pm.mapping(), annex);
        slot.map_or(0, |slot| self.pm.load(slot) & ANNEX_COUNT_MAX)
    }

    /// Before something is put into an annex.
    #[inline(always)]
    #[cfg_attr(feature = "record", track_caller)]
    pub(crate) fn enter_annex(&self, annex: Option<u64>) {
        if let Some(annex) = annex {
            self.count_in_annex(annex, |count| count + 1);
        }
    }

    /// After something is gone from an annex.
    #[inline(always)]
    #[cfg_attr(feature = "record", track_caller)]
    pub(crate) fn leave_annex(&self, annex: Option<u64>) {
        if let Some(annex) = annex {
            self.count_in_annex(annex, |count| count.saturating_sub(1));
        }
    }

    /// Frees a line, or a word of one, by making the word at `off` 0.
    #[inline]
    #[cfg_attr(feature = "record", track_caller)]
    pub(crate) fn free_in_table(&self, off: u64, annex: Option<u64>) {
        let runtime = self.pm.runtime();
        if annex.is_none() {
            runtime.store(off, 0);
        } else if runtime.swap(off, 0) != 0 {
            // One counts of two that free the annex at once.
            self.leave_annex(annex);
        }
    }

    /// A count that has reached its end stays there: the excess is unknown.
    #[cold]
    #[inline(never)]
    #[cfg_attr(feature = "record", track_caller)]
    fn count_in_annex(&self, annex: u64, next: impl Fn(u64) -> u64) {
        let Some(slot) = self.pm.annexes().slot(self.pm.mapping(), annex) else {
            return;
        };
        let runtime = self.pm.runtime();
        let mut word = runtime.load(slot);
        while word & ANNEX_COUNT_MAX != ANNEX_COUNT_MAX {
            let counted = block_of(word) | next(word & ANNEX_COUNT_MAX);
            match runtime.cas(slot, word, counted) {
                Ok(_) => return,
                Err(found) => word = found,
            }
        }
    }

    /// Takes a free line of a table, by `take`, from the annex that has this one.
    #[cfg_attr(feature = "record", track_caller)]
    pub(crate) fn take_line_near<T>(
        &self,
        table: Table,
        number: u64,
        take: &impl Fn(u64, Line) -> Option<T>,
    ) -> Option<T> {
        let first = table.annexes().start;
        let annex = first + number.min(table.lines() - 1) / ANNEX_LINES;
        let is_there = self.pm.annexes().find(self.pm.mapping(), annex).is_some();
        if !is_there || self.annex_count(annex) >= ANNEX_LINES {
            return None;
        }
        let late = planted!("bug-annex-count-last");
        if !late {
            self.enter_annex(Some(annex));
        }
        let taken = (0..ANNEX_LINES).find_map(|line| {
            let number = (annex - first) * ANNEX_LINES + line;
            take(number, self.annex_line(annex, line)?)
        });
        match taken.is_none() {
            false if late => self.enter_annex(Some(annex)),
            true if !late => self.leave_annex(Some(annex)),
            _ => {}
        }
        taken
    }

    /// Takes a line like [`Pool::take_line_near`], from any annex; if all are full the table gets
    /// one more.
    #[cfg_attr(feature = "record", track_caller)]
    pub(crate) fn take_line_in_annexes<T>(
        &self,
        table: Table,
        class: Class,
        take: &impl Fn(u64, Line) -> Option<T>,
    ) -> Option<T> {
        let (annexes, mem) = (self.pm.annexes(), self.pm.mapping());
        for number in (0..table.lines()).step_by(ANNEX_LINES as usize) {
            // Annexes come in the order of their numbers.
            let annex = table.annexes().start + number / ANNEX_LINES;
            if annexes.find(mem, annex).is_none() && !self.add_annex(annex, class) {
                return None;
            }
            let taken = self.take_line_near(table, number, take);
            if taken.is_some() {
                return taken;
            }
        }
        None
    }

    /// Has an annex be there. `false`: there is no block for it.
    #[cold]
    #[cfg_attr(feature = "record", track_caller)]
    pub(crate) fn add_annex(&self, annex: u64, class: Class) -> bool {
        // In a bitmap that was made of damaged trees a free bit may belong to a block in use.
        if self.is_damaged() {
            return false;
        }
        let _held = Held::new(self, annex_word(self));
        let (annexes, mem) = (self.pm.annexes(), self.pm.mapping());
        let node = annex / ANNEX_NODE_WORDS;
        let root = annexes.root(node);
        if annexes.named(mem, root).is_none() && !self.lend(root, node | ANNEX_NODE, class) {
            return false;
        }
        let Some(slot) = annexes.slot(mem, annex) else {
            return false;
        };
        annexes.named(mem, slot).is_some() || self.lend(slot, annex, class)
    }

    /// Takes a block, to be named by the word at `slot`, and gives it its own name. Under the lock
    /// of annexes.
    #[cfg_attr(all(feature = "record", not(feature = "planted-bugs")), track_caller)]
    pub(super) fn lend(&self, slot: u64, name: u64, class: Class) -> bool {
        let runtime = self.pm.runtime();
        let [told_block, told_slot] = told_words(self);
        let tell = |block: u64| {
            runtime.store(told_slot, slot);
            runtime.store(told_block, block);
        };
        let Some(block) = self.alloc_alone(self.into(), class, tell) else {
            return false;
        };
        let off = block << BLOCK_SHIFT;
        runtime.begin_annex(off, name);
        runtime.store(slot, off);
        runtime.store(told_block, 0);
        true
    }

    /// Gives back what a dead process took for an annex and did not get to name, before its locks
    /// go.
    pub(crate) fn reclaim_annex(&self) {
        let [told_block, told_slot] = told_words(self);
        let block = self.pm.load(told_block);
        if block == 0 {
            return;
        }
        let runtime = self.pm.runtime();
        let off = block << BLOCK_SHIFT;
        let slot = self.pm.load(told_slot);
        let there = self.pm.load_if_there(slot & !7);
        if block_of(there) == off || !self.data.contains(&off) {
            runtime.store(told_block, 0);
            return;
        }
        let map = Bitmap::blocks(self);
        let _held = map.lock(block);
        map.mark(Run { block, count: 1 }, false);
        // Before another process can lock the group and take the block.
        runtime.store(told_block, 0);
    }

    /// The words that name annexes and, after those of each, nodes.
    fn naming_words(&self) -> Vec<u64> {
        let (annexes, mem) = (self.pm.annexes(), self.pm.mapping());
        let mut words = Vec::new();
        for node in 0..ANNEX_ROOTS {
            let all = node * ANNEX_NODE_WORDS..(node + 1) * ANNEX_NODE_WORDS;
            if annexes.named(mem, annexes.root(node)).is_some() {
                words.extend(all.filter_map(|annex| annexes.slot(mem, annex)));
                words.push(annexes.root(node));
            }
        }
        words.retain(|&slot| annexes.named(mem, slot).is_some());
        words
    }

    /// The blocks that are lent.
    pub fn lent_blocks(&self) -> Vec<u64> {
        let named = |slot: u64| block_of(self.pm.load(slot)) >> BLOCK_SHIFT;
        let counters = self
            .counters()
            .into_iter()
            .filter_map(|counter| counter.off);
        let counters = counters.map(|off| off >> BLOCK_SHIFT);
        self.naming_words()
            .into_iter()
            .map(named)
            .chain(counters)
            .collect()
    }

    /// Gives all annexes back: for a process that has the pool to itself and in whose tables
    /// nothing is.
    pub(crate) fn give_annexes_back(&self) {
        let words = self.naming_words();
        words.into_iter().for_each(|slot| self.give_back(slot));
    }

    /// Gives back the block that a word names. A death on the way leaves it told of, so that the
    /// next opener makes the runtime area anew.
    pub(super) fn give_back(&self, slot: u64) {
        let runtime = self.pm.runtime();
        let [told_block, _] = told_words(self);
        let block = block_of(self.pm.load(slot)) >> BLOCK_SHIFT;
        let map = Bitmap::blocks(self);
        let _held = map.lock(block);
        runtime.store(told_block, block);
        runtime.store(slot, 0);
        map.mark(Run { block, count: 1 }, false);
        runtime.store(told_block, 0);
    }

    /// Returns whether nothing stands in any annex, and no block is on its way to or from one.
    pub(crate) fn annexes_rest(&self) -> bool {
        let is_zero =
            |line: &Line, words: u64| (0..words).all(|word| self.pm.load(line.off + word * 8) == 0);
        let mut references = self.lines_in_annexes(Table::References);
        let mut files = self.lines_in_annexes(Table::Files);
        let mut locks = self.lines_in_annexes(Table::FileLocks);
        let none_told = self.pm.load(told_words(self)[0]) == 0;
        // Owner and inode; a lock's state.
        none_told
            && references.all(|(_, line)| is_zero(&line, 7))
            && files.all(|(_, line)| is_zero(&line, 2))
            && locks.all(|(_, line)| is_zero(&line, 1))
    }
}

/// A line's owner word held, of an open file: counted in its annex, so that the cleanup after a
/// dead holder finds it.
pub(crate) struct HeldLine<'a> {
    pool: &'a Pool,
    line: Line,
    held: Option<Held<'a>>,
}

impl<'a> HeldLine<'a> {
    #[inline]
    #[cfg_attr(feature = "record", track_caller)]
    pub fn new(pool: &'a Pool, line: Line) -> HeldLine<'a> {
        pool.enter_annex(line.annex);
        let held = Some(Held::new(pool, line.off));
        HeldLine { pool, line, held }
    }
}

impl Drop for HeldLine<'_> {
    #[inline]
    fn drop(&mut self) {
        drop(self.held.take());
        self.pool.leave_annex(self.line.annex);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ROOT_INO;
    use crate::scratch::Scratch;
    use pmfs_format::SlotRaw;
    use pmfs_format::runtime::SLOT_FREE;

    /// Goal: a death while the last process gives annexes back leaves a pool in which no block is
    /// lost and none is given out twice. Method: a death after each of some blocks, and in the
    /// middle of one; the slot is free by then.
    #[test]
    fn a_death_while_annexes_are_given_back() {
        for (whole, cut) in [(0, false), (1, false), (7, false), (7, true)] {
            let scratch = Scratch::new(16 << 20);
            let fs = scratch.open();
            let before = fs.pool().blocks_free();
            let files: Vec<_> = (0..3000)
                .map(|_| fs.open_file(ROOT_INO, 0).unwrap())
                .collect();
            let pool = fs.pool();
            assert!(pool.lent_blocks().len() > 30);
            for file in files {
                fs.close_file(file).unwrap();
            }
            assert!(pool.annexes_rest() && scratch.is_sound());
            let writable = fs.mapping().writable();
            let words = pool.naming_words();
            words
                .iter()
                .take(whole)
                .for_each(|&slot| pool.give_back(slot));
            let runtime = pool.pm.runtime();
            if cut {
                let slot = words[whole];
                runtime.store(
                    told_words(pool)[0],
                    block_of(pool.pm.load(slot)) >> BLOCK_SHIFT,
                );
                runtime.store(slot, 0);
            }
            runtime.store(
                SlotRaw::state.of(pool.geometry.slot(pool.holder().slot)),
                SLOT_FREE,
            );
            drop(writable);
            drop(fs);
            let again = scratch.open();
            assert_eq!(again.pool().blocks_free(), before);
            assert!(again.pool().lent_blocks().is_empty());
            assert!(scratch.is_sound());
        }
    }

    /// Goal: an annex in which nothing stands is not looked at. Method: its count, after files and
    /// locks have come and gone.
    #[test]
    fn what_is_gone_is_not_looked_for() {
        let scratch = Scratch::new(16 << 20);
        let fs = scratch.open();
        let files: Vec<_> = (0..1000)
            .map(|_| fs.open_file(ROOT_INO, 0).unwrap())
            .collect();
        let pool = fs.pool();
        let used = |table| pool.lines_in_annexes(table).count();
        assert!(used(Table::Files) > 0 && used(Table::References) > 0);
        for file in files {
            fs.close_file(file).unwrap();
        }
        assert_eq!((used(Table::Files), used(Table::References)), (0, 0));
        assert!(!pool.lent_blocks().is_empty());
    }
}
