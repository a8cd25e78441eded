//! Bitmaps in the runtime area, with a lock line for each group and no log.
//!
//! A bit changes only under its group's lock, after the lane has recorded the bit's purpose
//! ([`Lane::intend`]) or while it strikes that out. So the finder of a dead thread's lock or record
//! can tell the state of the bit. A group is 8,192 blocks; each line of its bitmap is a 2 MiB
//! region.
//!
//! Counts of shares (docs/adr/0079-shared-blocks.md) change as bits do. The new word of counts, and
//! what the lane's record is to say then, are noted in the lane as a *step* before the word is
//! stored. The next holder of a dead thread's group lock does the step again, which changes nothing
//! if it was done.
//!
//! [`Lane::intend`]: crate::lane::Lane::intend

use crate::lane::{Lane, Meaning};
use pm_journal::lane;
use pm_journal::medium::geometry::BitmapPlace;
use pm_journal::medium::store::{Held, Waits};
use pm_journal::types::Run;
use pmfs_format::runtime::{
    GROUP_UNITS, SHARES_MAX, SHARES_UNITS, STEP_CURSOR, STEP_RECORD_SHIFT, STEP_WORDS_SHIFT,
};
use pmfs_format::{BLOCK_BYTES, GroupRaw, IntentRaw, tree::FANOUT};
use pmshare::rescue;

/// Units in one line of bitmap: a 2 MiB region.
pub const REGION: u64 = 512;

/// Free space by the sizes of a file's leaves, each aligned to its size. The larger ones are
/// counted in the smaller ones too.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FreePages {
    /// Pages of 4 KiB.
    pub small: u64,
    /// Pages of 2 MiB.
    pub large: u64,
    /// Pages of 1 GiB.
    pub huge: u64,
}

/// One of the two bitmaps.
#[derive(Clone, Copy)]
pub struct Bitmap<'a> {
    pub(super) waits: Waits<'a>,
    pub(super) place: BitmapPlace,
}

impl<'a> Bitmap<'a> {
    /// The bitmap of blocks.
    #[inline]
    pub fn blocks(waits: impl Into<Waits<'a>>) -> Bitmap<'a> {
        let waits = waits.into();
        let place = waits.share.geometry.block_map;
        Bitmap { waits, place }
    }

    /// The bitmap of inode numbers.
    #[inline]
    pub fn inodes(waits: impl Into<Waits<'a>>) -> Bitmap<'a> {
        let waits = waits.into();
        let place = waits.share.geometry.inode_map;
        Bitmap { waits, place }
    }

    #[inline]
    fn group_line(&self, group: u64) -> u64 {
        self.place.groups + group * GroupRaw::SIZE
    }

    #[inline]
    pub(super) fn word_off(&self, unit: u64) -> u64 {
        self.place.bits + unit / 64 * 8
    }

    /// Locks the group of `unit`.
    #[inline]
    #[cfg_attr(all(feature = "record", not(feature = "planted-bugs")), track_caller)]
    pub fn lock(&self, unit: u64) -> Held<'a> {
        let held = Held::new(self.waits, self.group_line(unit / GROUP_UNITS));
        if rescue::cleaning(&self.waits) {
            // Its last holder may have died between a bit and the count.
            self.recount(unit / GROUP_UNITS);
            if self.place.bits == self.waits.geometry.block_map.bits {
                self.finish_steps(unit / GROUP_UNITS);
            }
        }
        held
    }

    /// Free units of a group, read without its lock.
    #[inline]
    pub fn group_free(&self, group: u64) -> u64 {
        let line = self.group_line(group);
        self.waits.pm.load(GroupRaw::free.of(line))
    }

    /// Whole free regions of a group, read without its lock.
    #[inline]
    pub fn group_regions(&self, group: u64) -> u64 {
        let line = self.group_line(group);
        self.waits.pm.load(GroupRaw::regions.of(line))
    }

    /// Returns whether any region is wholly free, read without locks.
    pub fn has_region(&self) -> bool {
        (0..self.group_count()).any(|group| self.group_regions(group) > 0)
    }

    /// Free units in all, read without locks. An unattached pool may have any words there.
    pub fn free(&self) -> u64 {
        (0..self.place.group_count())
            .map(|group| self.group_free(group).min(GROUP_UNITS))
            .sum()
    }

    /// Returns whether a unit is in use; `false` for one outside of the pool.
    #[inline]
    pub fn is_set(&self, unit: u64) -> bool {
        unit < self.place.units && self.waits.pm.load(self.word_off(unit)) >> (unit % 64) & 1 == 1
    }

    /// Sets or clears a run inside one group, whose lock is held, and adjusts the counts of free
    /// units and whole regions by the bits that changed.
    #[inline]
    #[cfg_attr(feature = "record", track_caller)]
    pub fn mark(&self, run: Run, set: bool) {
        if !set {
            self.waits.pm.drain_from_locks();
        }
        let runtime = self.waits.pm.runtime();
        let (mut changed, mut whole) = (0, 0);
        let end = run.block + run.count;
        let mut unit = run.block;
        while unit < end {
            let to = (unit / REGION * REGION + REGION).min(end);
            let was_whole = set && self.is_whole(unit);
            let here = self.mark_in_region(unit, to, set);
            whole += u64::from(was_whole || !set && here > 0 && self.is_whole(unit));
            changed += here;
            unit = to;
        }
        let line = self.group_line(run.block / GROUP_UNITS);
        let adjusted = |count: u64, by: u64| match set {
            true => count.wrapping_sub(by),
            false => count + by,
        };
        runtime.store(
            GroupRaw::free.of(line),
            adjusted(runtime.load(GroupRaw::free.of(line)), changed),
        );
        if whole > 0 {
            let regions = runtime.load(GroupRaw::regions.of(line));
            runtime.store(GroupRaw::regions.of(line), adjusted(regions, whole));
        }
    }

    /// Sets or clears units inside one region. Returns how many of them changed.
    #[inline]
    #[cfg_attr(feature = "record", track_caller)]
    fn mark_in_region(&self, from: u64, to: u64, set: bool) -> u64 {
        let runtime = self.waits.pm.runtime();
        let (mut unit, mut changed) = (from, 0);
        while unit < to {
            let bits = (64 - unit % 64).min(to - unit);
            let mask = (u64::MAX >> (64 - bits)) << (unit % 64);
            let off = self.word_off(unit);
            let old = runtime.load(off);
            let new = if set { old | mask } else { old & !mask };
            changed += (old ^ new).count_ones() as u64;
            if old != new {
                runtime.store(off, new);
            }
            unit += bits;
        }
        changed
    }

    /// Returns whether the whole region of `unit` is free; `false` for a part of a region at the
    /// end.
    #[inline]
    pub(super) fn is_whole(&self, unit: u64) -> bool {
        let region = unit / REGION * REGION;
        region + REGION <= self.place.units
            && self.waits.pm.load(self.word_off(unit)) == 0
            && self.region_used(region) == 0
    }

    /// Counts a group's free units and regions again, after a dead thread has held its lock, or
    /// while the pool is rebuilt.
    #[cfg_attr(feature = "record", track_caller)]
    pub fn recount(&self, group: u64) {
        let free = self
            .regions(group)
            .map(|(region, to)| to - region - self.region_used_before(region, to))
            .sum();
        let runtime = self.waits.pm.runtime();
        let line = self.group_line(group);
        runtime.store(GroupRaw::free.of(line), free);
        runtime.store(GroupRaw::regions.of(line), self.count_regions(group));
    }

    /// Whole free regions of a group, counted.
    pub fn count_regions(&self, group: u64) -> u64 {
        let regions = self.regions(group);
        regions.filter(|&(region, _)| self.is_whole(region)).count() as u64
    }

    /// Groups in all.
    #[inline]
    pub fn group_count(&self) -> u64 {
        self.place.group_count()
    }

    /// Byte offsets of the group lines' owner words.
    pub fn owner_words(&self) -> impl Iterator<Item = u64> + use<> {
        let groups = self.place.groups;
        (0..self.place.group_count()).map(move |group| groups + group * GroupRaw::SIZE)
    }

    /// Free blocks, regions and gigabytes, read without locks.
    pub fn free_pages(&self) -> FreePages {
        let mut free = FreePages::default();
        let mut whole = 0;
        for region in (0..self.place.units).step_by(REGION as usize) {
            let end = (region + REGION).min(self.place.units);
            if region % (FANOUT * FANOUT) == 0 {
                whole = 0;
            }
            let used = self.region_used_before(region, end);
            free.small += end - region - used;
            if used == 0 && end - region == REGION {
                free.large += 1;
                whole += 1;
                free.huge += u64::from(whole == FANOUT);
            }
        }
        free
    }

    /// Units of a whole region that are in use, read without its lock.
    pub fn used_in(&self, region: u64) -> u64 {
        self.region_used_before(region, region + REGION)
    }

    pub(super) fn region_used_before(&self, region: u64, end: u64) -> u64 {
        (region..end)
            .step_by(64)
            .map(|unit| {
                let mask = u64::MAX >> (64 - (end - unit).min(64));
                u64::from((self.waits.pm.load(self.word_off(unit)) & mask).count_ones())
            })
            .sum()
    }

    #[inline]
    pub(super) fn region_used(&self, region: u64) -> u64 {
        (0..REGION / 64)
            .map(|word| self.waits.pm.load(self.word_off(region + word * 64)))
            .map(|word| u64::from(word.count_ones()))
            .sum()
    }

    /// The regions of a group, each as first unit and end.
    pub fn regions(&self, group: u64) -> impl Iterator<Item = (u64, u64)> + use<> {
        let start = group * GROUP_UNITS;
        let end = (start + GROUP_UNITS).min(self.place.units);
        let starts = (start..end).step_by(REGION as usize);
        starts.map(move |region| (region, (region + REGION).min(end)))
    }
}

/// Counts in a word.
const COUNTS: u64 = 4;
/// Bits of a count.
const BITS: u64 = 64 / COUNTS;
/// Bits of the count of a step's words.
const STEP_WORDS_MASK: u64 = (1 << (STEP_RECORD_SHIFT - STEP_WORDS_SHIFT)) - 1;

/// The word of a lane's record that tells how far a change of counts has come.
pub struct Told<'t> {
    /// The record.
    pub record: u64,
    /// The word is the record's cursor, else its run.
    pub is_cursor: bool,
    /// The word once so many blocks are done.
    pub after: &'t dyn Fn(u64) -> u64,
}

impl Told<'_> {
    /// The offset of the word.
    fn off(&self, lane: &lane::Lane<'_>) -> u64 {
        let off = lane.intents() + self.record * IntentRaw::SIZE;
        match self.is_cursor {
            true => IntentRaw::index.of(off),
            false => off,
        }
    }

    /// Tells that so many blocks are done.
    #[cfg_attr(feature = "record", track_caller)]
    fn tell(&self, lane: &lane::Lane<'_>, done: u64) {
        let runtime = lane.share().pm.runtime();
        runtime.store(self.off(lane), (self.after)(done));
    }
}

/// The words of a lane's step: the new word of counts; its first block that changes, and the
/// record; what that is to say.
fn step_words(lane: &lane::Lane<'_>) -> [u64; 3] {
    let off = lane.intents() + lane.records() * IntentRaw::SIZE;
    [
        IntentRaw::kind.of(off),
        IntentRaw::ino.of(off),
        IntentRaw::index.of(off),
    ]
}

/// Stores `words` equal words of counts from `off` on, whose first block that changes is `block`,
/// and tells that `done` blocks are done.
#[cfg_attr(all(feature = "record", not(feature = "planted-bugs")), track_caller)]
fn step(
    lane: &lane::Lane<'_>,
    (off, words): (u64, u64),
    (block, word): (u64, u64),
    told: &Told<'_>,
    done: u64,
) {
    let runtime = lane.share().pm.runtime();
    let cursor = if told.is_cursor { STEP_CURSOR } else { 0 };
    let [new, place, then] = step_words(lane);
    runtime.store(new, word);
    runtime.store(then, (told.after)(done));
    let count = (words - 1) << STEP_WORDS_SHIFT;
    runtime.store(
        place,
        block | count | told.record << STEP_RECORD_SHIFT | cursor,
    );
    store_words(lane, off, words, word);
    told.tell(lane, done);
    runtime.store(place, 0);
}

/// Stores a word so many times in a row, inside of a block.
#[cfg_attr(feature = "record", track_caller)]
fn store_words(lane: &lane::Lane<'_>, off: u64, words: u64, word: u64) {
    let chunk = [word; 64];
    let mut done = 0;
    while done < words {
        let count = (words - done).min(chunk.len() as u64);
        let runtime = lane.share().pm.runtime();
        runtime.write(off + done * 8, &chunk[..count as usize]);
        done += count;
    }
}

/// A block of the step that a lane has noted, if it has one. The lane's owner holds the lock of the
/// block's group.
pub fn step_block(lane: &lane::Lane<'_>) -> Option<u64> {
    let place = lane.share().pm.load(step_words(lane)[1]);
    let block = place & ((1 << STEP_WORDS_SHIFT) - 1);
    (place != 0 && block < lane.share().geometry.blocks).then_some(block)
}

/// Does the noted step, or does it again. `off` is the place of the word of counts.
fn finish_step(lane: &lane::Lane<'_>, off: Option<u64>) {
    let runtime = lane.share().pm.runtime();
    let words = step_words(lane);
    let [word, place, then] = words.map(|off| runtime.load(off));
    let told = Told {
        record: (place & !STEP_CURSOR) >> STEP_RECORD_SHIFT,
        is_cursor: place & STEP_CURSOR != 0,
        after: &|_| then,
    };
    if let Some(off) = off
        && told.record < lane.records()
    {
        // The lane may have any content.
        let count = 1 + (place >> STEP_WORDS_SHIFT & STEP_WORDS_MASK);
        store_words(lane, off, count.min(words_left(off)), word);
        told.tell(lane, 0);
    }
    runtime.store(words[1], 0);
}

/// Words from the one at `off` to the end of its block.
fn words_left(off: u64) -> u64 {
    (BLOCK_BYTES - off % BLOCK_BYTES) / 8
}

fn count_in(word: u64, block: u64) -> u64 {
    word >> (block % COUNTS * BITS) & SHARES_MAX
}

/// One in the count of each of so many blocks from `block` on.
fn ones(block: u64, count: u64) -> u64 {
    (block..block + count)
        .map(|block| 1 << (block % COUNTS * BITS))
        .sum()
}

impl Bitmap<'_> {
    /// The offset of the word with the count of a block; `None`: that is 0.
    fn shares_word(&self, block: u64) -> Option<u64> {
        let pm = &self.waits.pm;
        pm.annexes().shares_word(pm.mapping(), block)
    }

    /// The count of leaves beside one that name a block, read without its lock.
    pub fn shares(&self, block: u64) -> u64 {
        let word = self.shares_word(block).map(|off| self.waits.pm.load(off));
        word.map_or(0, |word| count_in(word, block))
    }

    /// Words of counts from `off` on that are as the first, `word`, and are all of blocks that lie
    /// among the `left` from `block` on. None: the first word is not wholly of these.
    fn words_alike(&self, (off, word): (u64, u64), block: u64, left: u64) -> u64 {
        if !block.is_multiple_of(COUNTS) {
            return 0;
        }
        let most = (left / COUNTS).min(words_left(off));
        let is_alike = |at: &u64| self.waits.pm.load(off + at * 8) == word;
        (0..most).take_while(is_alike).count() as u64
    }

    /// Takes one share from each block of a run inside one group, whose lock is held, and frees
    /// those that had only one.
    #[cfg_attr(feature = "record", track_caller)]
    pub fn let_go<P: Meaning>(&self, lane: &Lane<'_, P>, run: Run, told: &Told<'_>) {
        // A leaf that named the block may come back with the power, as long as its end is pending:
        // the block must not be free then.
        self.waits.pm.drain_from_locks();
        let mut done = 0;
        while done < run.count {
            let block = run.block + done;
            let most = (COUNTS - block % COUNTS).min(run.count - done);
            let off = self.shares_word(block);
            let word = off.map_or(0, |off| self.waits.pm.load(off));
            let is_last = |block| count_in(word, block) == 0;
            let alike = (1..most).take_while(|by| is_last(block + by) == is_last(block));
            let mut count = 1 + alike.count() as u64;
            let left = run.count - done;
            let mut words = 1;
            match off {
                // None of a block without counts has a share.
                None => count = left.min(SHARES_UNITS - block % SHARES_UNITS),
                Some(off) if count == COUNTS => {
                    words = self.words_alike((off, word), block, left);
                    count = words * COUNTS;
                }
                Some(_) => {}
            }
            done += count;
            let less = || word - ones(block, count.min(COUNTS));
            match off.filter(|_| !is_last(block)) {
                Some(off) => step(lane, (off, words), (block, less()), told, done),
                None => {
                    self.mark(Run { block, count }, false);
                    told.tell(lane, done);
                }
            }
        }
    }

    /// Adds one share to each block of a run inside one group, whose lock is held, up to the first
    /// whose count is at its end or has no place. Answers how many.
    #[cfg_attr(feature = "record", track_caller)]
    pub fn share<P: Meaning>(&self, lane: &Lane<'_, P>, run: Run, told: &Told<'_>) -> u64 {
        let mut done = 0;
        while done < run.count {
            let block = run.block + done;
            let most = (COUNTS - block % COUNTS).min(run.count - done);
            let Some(off) = self.shares_word(block) else {
                break;
            };
            let word = self.waits.pm.load(off);
            let has_room = |by: &u64| count_in(word, block + by) < SHARES_MAX;
            let mut count = (0..most).take_while(has_room).count() as u64;
            let mut words = 1;
            if count == 0 {
                break;
            }
            let more = word + ones(block, count);
            if count == COUNTS {
                words = self.words_alike((off, word), block, run.count - done);
                count = words * COUNTS;
            }
            done += count;
            step(lane, (off, words), (block, more), told, done);
        }
        done
    }

    /// Finishes the steps that dead threads noted of a group, whose lock is held.
    #[cold]
    pub(crate) fn finish_steps(&self, group: u64) {
        for index in 0..self.waits.geometry.lanes {
            let lane = lane::Lane::at(self.waits, index);
            if let Some(block) = step_block(&lane)
                && block / GROUP_UNITS == group
            {
                finish_step(&lane, self.shares_word(block));
            }
        }
    }
}
