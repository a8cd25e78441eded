//! Counts of shares: how many leaves beside one name a block (docs/adr/0079-shared-blocks.md).
//!
//! A count changes as a bit does: under its group's lock, with a record in the lane before it. The
//! new word of counts, and what the record is to say then, are noted in the lane as a *step* before
//! the word is stored. The next holder of a dead thread's group lock does the step again, which
//! changes nothing if it was done.

use crate::bitmap::Bitmap;
use crate::lane::{Lane, Meaning};
use pm_journal::lane;
use pm_journal::types::Run;
use pmfs_format::IntentRaw;
use pmfs_format::runtime::{GROUP_UNITS, SHARES_MAX, STEP_CURSOR, STEP_RECORD_SHIFT};

/// Counts in a word.
const COUNTS: u64 = 4;
/// Bits of a count.
const BITS: u64 = 64 / COUNTS;

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

/// Stores a word of counts at `off`, whose first block that changes is `block`, and tells that
/// `done` blocks are done.
#[cfg_attr(feature = "record", track_caller)]
fn step(lane: &lane::Lane<'_>, off: u64, (block, word): (u64, u64), told: &Told<'_>, done: u64) {
    let runtime = lane.share().pm.runtime();
    let cursor = if told.is_cursor { STEP_CURSOR } else { 0 };
    let [new, place, then] = step_words(lane);
    runtime.store(new, word);
    runtime.store(then, (told.after)(done));
    runtime.store(place, block | told.record << STEP_RECORD_SHIFT | cursor);
    runtime.store(off, word);
    told.tell(lane, done);
    runtime.store(place, 0);
}

/// A block of the step that a lane has noted, if it has one. The lane's owner holds the lock of the
/// block's group.
pub fn step_block(lane: &lane::Lane<'_>) -> Option<u64> {
    let place = lane.share().pm.load(step_words(lane)[1]);
    let block = place & ((1 << STEP_RECORD_SHIFT) - 1);
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
        runtime.store(off, word);
        told.tell(lane, 0);
    }
    runtime.store(words[1], 0);
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
            let count = 1 + alike.count() as u64;
            done += count;
            match off.filter(|_| !is_last(block)) {
                Some(off) => step(lane, off, (block, word - ones(block, count)), told, done),
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
            let count = (0..most).take_while(has_room).count() as u64;
            if count == 0 {
                break;
            }
            done += count;
            step(lane, off, (block, word + ones(block, count)), told, done);
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
