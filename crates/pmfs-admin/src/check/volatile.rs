//! The runtime area of a pool at rest: bitmaps that say what the trees say, nothing locked.

use super::checker::Checker;
use super::fix::Fix;
use super::report::number;
use pm_journal::medium::header;
use pm_space::Bitmap;
use pmfs::parts::open::file_lock::table::{self, Bucket, Lock, Record};
use pmfs::parts::purpose::Lane;
use pmfs::parts::tables::open_table::Thing;
use pmfs::types::FileId;
use pmfs::types::Run;
use pmfs_format::inode::FIRST_INO;
use pmfs_format::runtime::GROUP_UNITS;
use pmfs_format::{LaneRaw, LockRaw};

/// Findings of one kind that are told one by one.
const TOLD: usize = 20;

impl Checker<'_> {
    /// Compares both bitmaps with what was seen.
    pub(super) fn bitmaps(&mut self) {
        self.spares();
        self.annexes();
        self.shares();
        let blocks = Bitmap::blocks(self.pool);
        let seen = std::mem::take(&mut self.seen);
        let named = |block: u64| seen[(block / 64) as usize] >> (block % 64) & 1 == 1;
        let numbers = (number::BLOCK_LEAKED, number::BLOCK_NOT_MARKED);
        self.compare(blocks, self.pool.geometry.blocks, &named, "block", numbers);
        let inodes = Bitmap::inodes(self.pool);
        let known = std::mem::take(&mut self.inodes);
        let live =
            |ino: u64| ino < FIRST_INO || known.get(ino as usize).is_some_and(|known| known.live);
        let numbers = (number::INODE_LEAKED, number::INODE_NOT_MARKED);
        self.compare(inodes, self.pool.geometry.inodes, &live, "inode", numbers);
    }

    /// Claims the lanes' spare blocks: they are in use, though no tree names them.
    fn spares(&mut self) {
        for index in 0..self.pool.geometry.lanes {
            if let Some(block) = Lane::at(self.pool, index).spare() {
                let run = Run { block, count: 1 };
                let by = format!("lane {index}, as its spare");
                self.claim(run, &by, &|| Fix::Runtime);
                self.report.blocks -= 1;
            }
        }
    }

    /// Nor does any tree name the blocks that tables have got.
    fn annexes(&mut self) {
        for block in self.pool.lent_blocks() {
            let run = Run { block, count: 1 };
            self.claim(run, "a table, as its annex", &|| Fix::Runtime);
            self.report.blocks -= 1;
        }
    }

    /// Compares the counts of shares with the leaves that were seen.
    fn shares(&mut self) {
        let map = Bitmap::blocks(self.pool);
        let uncounted = self.shared.all();
        let uncounted = uncounted.map(|(block, has)| (block, map.shares(block), has));
        let counted = self.pool.all_shares();
        let counted = counted.filter(|&(block, _)| self.shared.leaves(block) < 2);
        let counted = counted.map(|(block, says)| (block, says, 0));
        let wrong = uncounted
            .chain(counted)
            .filter(|(_, says, has)| says != has);
        let wrong: Vec<_> = wrong.collect();
        for (block, says, has) in wrong.iter().take(TOLD) {
            let text = format!("block {block} says {says} shares beside one and has {has}");
            self.find_to_fix(number::SHARES, text, Fix::Runtime);
        }
        if wrong.len() > TOLD {
            let text = format!("and {} more blocks", wrong.len() - TOLD);
            self.find(number::SHARES, text);
        }
    }

    fn compare(
        &mut self,
        map: Bitmap<'_>,
        units: u64,
        used: &dyn Fn(u64) -> bool,
        what: &str,
        (leaked, not_marked): (u32, u32),
    ) {
        let mut told = 0;
        for group in 0..map.group_count() {
            let mut free = 0;
            for unit in group * GROUP_UNITS..((group + 1) * GROUP_UNITS).min(units) {
                let set = map.is_set(unit);
                free += u64::from(!set);
                if set == used(unit) {
                    continue;
                }
                told += 1;
                if told <= TOLD {
                    let (number, fault) = match set {
                        true => (leaked, "marked as used, and nothing refers to it"),
                        false => (not_marked, "in use and marked as free"),
                    };
                    self.find_to_fix(number, format!("{what} {unit} is {fault}"), Fix::Runtime);
                }
            }
            let regions = (map.group_regions(group), map.count_regions(group));
            for (of, (says, has)) in [
                ("free", (map.group_free(group), free)),
                ("whole regions", regions),
            ] {
                if says != has {
                    let text = format!("{what} group {group} says {says} {of} and has {has}");
                    self.find_to_fix(number::GROUP_COUNT, text, Fix::Runtime);
                }
            }
        }
        if told > TOLD {
            self.find(leaked, format!("and {} more {what}s", told - TOLD));
        }
    }

    /// Nothing may be locked, odd or in a lane while the pool is at rest.
    pub(super) fn locks(&mut self) {
        let pool = self.pool;
        let geometry = &pool.geometry;
        let load = |off| pool.pm.load(off);
        let is_held = |off: &u64| load(*off) != 0;
        let mut found = Vec::new();
        for lock in 0..geometry.lock_count {
            let line = geometry.locks + lock * LockRaw::SIZE;
            if is_held(&line) {
                found.push((number::LOCK_HELD, format!("lock {lock} is held")));
            }
            if load(LockRaw::sequence.of(line)) & 1 == 1 {
                found.push((number::SEQUENCE_ODD, format!("lock {lock} is mid-change")));
            }
        }
        let words = header::words(pool).into_iter().filter(is_held);
        let words = words.map(|off| format!("the lock at {off:#x} is held"));
        let maps = [Bitmap::blocks(pool), Bitmap::inodes(pool)];
        let groups = maps.iter().flat_map(Bitmap::owner_words).filter(is_held);
        let groups = groups.map(|off| format!("the group at {off:#x} is locked"));
        let buckets = pool.file_lock_buckets().filter(is_held);
        let buckets = buckets.map(|off| format!("the file locks at {off:#x} are locked"));
        let files = pool.file_lines().filter(|(_, line)| is_held(&line.off));
        let files = files.map(|(index, _)| format!("open file {index} is locked"));
        let held = words.chain(groups).chain(buckets).chain(files);
        found.extend(held.map(|text| (number::LOCK_HELD, text)));
        for lane in 0..geometry.lanes {
            let line = geometry.lane_line(lane);
            if is_held(&line) || is_held(&LaneRaw::intents.of(line)) {
                found.push((number::LANE_BUSY, format!("lane {lane} is in use")));
                continue;
            }
            let scan = Lane::at(pool, lane).scan();
            if !scan.open.is_empty() && !scan.is_committed_redo() {
                // The first opener of a clean pool relies on it that all logs are closed, but for
                // committed redo records, which its locks name.
                let text = format!("lane {lane} has no owner, and its log is open");
                found.push((number::LANE_BUSY, text));
            }
        }
        let gone = self.holders().into_iter();
        found.extend(gone.map(|text| (number::HOLDER_GONE, text)));
        for (number, text) in found {
            self.find_to_fix(number, text, Fix::Runtime);
        }
    }

    /// Returns whether a lock that no process's death ends belongs to an open file, which ends it.
    fn has_owner(&self, record: &Record) -> bool {
        let Lock { ino, owner, .. } = record.lock;
        let file = FileId::from_number(owner.id);
        owner.token == 0
            && self.pool.file_ino(file.index()) == ino
            && self.pool.file_at(file.index()).0 == file
    }

    /// Returns the opens and locks without a holder: the process is not attached, or the open file
    /// does not exist.
    fn holders(&self) -> Vec<String> {
        let pool = self.pool;
        let is_free = |slot: u64| !pool.is_marked(slot.min(pool.geometry.slot_count - 1));
        let is_file = |index| pool.file_ino(index) != 0;
        let mut found = Vec::new();
        for held in pool.references() {
            let (thing, slot) = (held.thing, held.slot);
            if is_free(slot) || matches!(thing, Thing::File(index) if !is_file(index)) {
                found.push(format!("{thing:?} is held by slot {slot}, in vain"));
            }
        }
        for (index, _) in pool.file_lines() {
            if is_file(index) && !pool.is_had(Thing::File(index)) {
                found.push(format!("open file {index} has no holder"));
            }
        }
        for copy in pool.kernel_copies() {
            let (ino, slot) = (copy.ino, copy.slot);
            if is_free(slot) {
                found.push(format!(
                    "pages of inode {ino} are held by slot {slot}, which no process has"
                ));
            }
        }
        for record in table::records(pool) {
            let gone = record.slot.is_some_and(|slot| !pool.is_marked(slot));
            let unfinished = !record.is_held() && !record.is_waiting();
            let gone = gone || record.slot.is_none() && !self.has_owner(&record);
            if gone || unfinished || !Bucket::has(pool, &record) {
                let (index, ino) = (record.index, record.lock.ino);
                found.push(format!("file lock {index}, of inode {ino}, has no holder"));
            }
        }
        found
    }
}
