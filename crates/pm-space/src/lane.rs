//! Lanes with intents: a call records there its coming changes of the bitmaps.

use pm_journal::error::{Error, Result};
use pm_journal::lane;
use pm_journal::medium::store::{Store, Waits};
use pm_journal::types::{Ino, Run};
use pmfs_format::{BLOCK_SHIFT, IntentRaw, LaneRaw};
use std::cell::Cell;
use std::marker::PhantomData;
use std::ops::Deref;

const RUN_SHIFT: u32 = 24;

/// The use of a block: data spreads over the pool lane by lane, the rest stays together near its
/// start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Zone {
    /// File data.
    Data,
    /// Nodes, buckets, attributes, the inode table.
    Meta,
}

impl Zone {
    /// The one that is not this.
    #[inline]
    pub fn other(self) -> Zone {
        match self {
            Zone::Data => Zone::Meta,
            Zone::Meta => Zone::Data,
        }
    }
}

/// The owner that blocks are to have, or had: after a kill this decides. The layer above says which
/// there are.
pub trait Meaning: Copy {
    /// Blocks that nobody is to have.
    const SCRATCH: Self;

    /// An inode number (the run's block is the number).
    fn number(ino: Ino) -> Self;

    /// The words of its record.
    fn words(self) -> [u64; 3];

    /// The one that these words say; `None` if no call writes such.
    fn from_words(words: [u64; 3]) -> Option<Self>;

    /// Returns whether a call of this pool can have written it, with this run.
    fn is_possible(self, run: Run, store: &Store) -> bool;

    /// Returns whether an inode counts the blocks.
    fn is_counted(self) -> bool;

    /// Returns whether the lane may keep such a block as its spare one.
    fn may_be_spare(self) -> bool;
}

/// A lane of the journal, and the records in it of what its call is about to do.
pub struct Lane<'a, P> {
    lane: lane::Lane<'a>,
    /// Blocks that the inode at `accounted` has gained since its count was stored.
    gained: Cell<i64>,
    /// Byte offset of the count of blocks of the inode that is worked on; 0 for none.
    accounted: Cell<u64>,
    meaning: PhantomData<P>,
}

impl<'a, P> Deref for Lane<'a, P> {
    type Target = lane::Lane<'a>;

    #[inline(always)]
    fn deref(&self) -> &lane::Lane<'a> {
        &self.lane
    }
}

impl<'a, P: Meaning> Lane<'a, P> {
    /// The records of lane `index`, which the caller owns: claimed, or under the recovery lock.
    #[inline(always)]
    pub fn at(waits: impl Into<Waits<'a>>, index: u64) -> Lane<'a, P> {
        Lane::of(lane::Lane::at(waits, index))
    }

    #[inline(always)]
    pub(crate) fn of(lane: lane::Lane<'a>) -> Lane<'a, P> {
        Lane {
            lane,
            gained: Cell::new(0),
            accounted: Cell::new(0),
            meaning: PhantomData,
        }
    }

    /// Spare blocks of all lanes: marked as used, and as good as free.
    pub fn spares(waits: impl Into<Waits<'a>>) -> u64 {
        let waits = waits.into();
        let spares = (0..waits.geometry.lanes).filter_map(|index| Self::at(waits, index).spare());
        spares.count() as u64
    }

    #[inline(always)]
    #[cfg_attr(feature = "record", track_caller)]
    fn set(&self, off: u64, value: u64) {
        self.share().pm.runtime().store(off, value);
    }

    #[inline]
    fn cursor_off(&self, zone: Zone) -> u64 {
        match zone {
            Zone::Data => LaneRaw::block_cursor.of(self.line()),
            Zone::Meta => LaneRaw::meta_cursor.of(self.line()),
        }
    }

    /// The place from which this lane searches its next block.
    #[inline]
    pub fn block_cursor(&self, zone: Zone) -> u64 {
        self.share().pm.load(self.cursor_off(zone))
    }

    /// Sets it.
    #[inline]
    #[cfg_attr(feature = "record", track_caller)]
    pub fn set_block_cursor(&self, zone: Zone, block: u64) {
        self.set(self.cursor_off(zone), block);
    }

    /// The place from which this lane searches its next inode.
    #[inline]
    pub fn inode_cursor(&self) -> u64 {
        self.share().pm.load(LaneRaw::inode_cursor.of(self.line()))
    }

    /// Sets it.
    #[inline]
    #[cfg_attr(feature = "record", track_caller)]
    pub fn set_inode_cursor(&self, ino: u64) {
        self.set(LaneRaw::inode_cursor.of(self.line()), ino);
    }

    /// The inode noted last.
    #[inline]
    pub fn working(&self) -> Ino {
        self.share().pm.load(LaneRaw::working.of(self.line()))
    }

    /// This call changes the content of an inode from now on: blocks gained and lost are its own.
    /// Recovery of the lane flushes the stores that others may have seen, and counts the inode's
    /// blocks anew. `counted`: the place of the inode's count of blocks, or 0.
    #[inline(always)]
    #[cfg_attr(feature = "record", track_caller)]
    pub fn work_on(&self, ino: Ino, counted: u64) {
        self.accounted.set(counted);
        self.set(LaneRaw::working.of(self.line()), ino);
    }

    /// Blocks gained and lost are nobody's again.
    #[inline]
    #[cfg_attr(feature = "record", track_caller)]
    pub fn work_done(&self) {
        self.store_block_count();
        self.accounted.set(0);
    }

    /// Counts blocks gained or lost for a purpose; those of the inode table are nobody's.
    #[inline]
    pub fn count_blocks(&self, purpose: P, blocks: i64) {
        if purpose.is_counted() {
            self.gained.set(self.gained.get() + blocks);
        }
    }

    /// Blocks of an old subtree are gone.
    #[inline]
    pub fn lose_blocks(&self, blocks: u64) {
        self.gained.set(self.gained.get() - blocks as i64);
    }

    /// Stores the inode's count of blocks, unflushed: the contract lets it go, and recovery counts
    /// anew.
    #[inline]
    #[cfg_attr(feature = "record", track_caller)]
    pub fn store_block_count(&self) {
        let gained = self.gained.replace(0);
        let off = self.accounted.get();
        if gained != 0 && off != 0 {
            let blocks = self.share().pm.load(off).saturating_add_signed(gained);
            let noted = self.share().note_lazy(self.working());
            self.share().pm.lazy_word(noted, off, blocks);
        }
    }

    /// Intent records that are still to be had.
    #[inline]
    pub fn room(&self) -> u64 {
        self.records() - self.intent_count()
    }

    #[inline]
    fn record_off(&self, record: u64) -> u64 {
        self.intents() + record * IntentRaw::SIZE
    }

    /// Writes a record of the blocks in question, before they are touched; returns its number.
    ///
    /// # Errors
    /// [`Error::NoSpace`] if the lane has no record left: the call is too scattered.
    #[inline]
    #[cfg_attr(feature = "record", track_caller)]
    pub fn intend(&self, run: u64, purpose: P) -> Result<u64> {
        let record = self.intent_count();
        if record >= self.records() {
            return Err(Error::NoSpace);
        }
        let [kind, ino, index] = purpose.words();
        let runtime = self.share().pm.runtime();
        runtime.write(self.record_off(record), &[run, kind, ino, index]);
        runtime.store(LaneRaw::intents.of(self.line()), record + 1);
        Ok(record)
    }

    /// Records like [`Lane::intend`], for a run of blocks.
    ///
    /// # Errors
    /// Those of [`Lane::intend`].
    #[inline]
    #[cfg_attr(feature = "record", track_caller)]
    pub fn intend_run(&self, run: Run, purpose: P) -> Result<u64> {
        self.intend(run.block << RUN_SHIFT | run.count, purpose)
    }

    /// Record `record`: its first word and its purpose; `None` if struck out or unreadable.
    #[inline]
    pub fn intent(&self, record: u64) -> Option<(u64, P)> {
        let [run, kind, ino, index] = self.share().pm.read::<4>(self.record_off(record));
        if run == 0 {
            return None;
        }
        Some((run, P::from_words([kind, ino, index])?))
    }

    /// Strikes out records that no call can have written: the lane may hold anything.
    pub fn strike_impossible(&self) {
        for record in 0..self.intent_count() {
            let Some((word, purpose)) = self.intent(record) else {
                continue;
            };
            if !purpose.is_possible(Self::run_of(word), self.share()) {
                self.strike_out(record);
            }
        }
    }

    /// The purpose of a record, struck out or not.
    pub fn purpose(&self, record: u64) -> Option<P> {
        let [_, kind, ino, index] = self.share().pm.read::<4>(self.record_off(record));
        P::from_words([kind, ino, index])
    }

    /// The run in a record's first word.
    #[inline]
    pub fn run_of(word: u64) -> Run {
        Run {
            block: word >> RUN_SHIFT,
            count: word & ((1 << RUN_SHIFT) - 1),
        }
    }

    /// Replaces a record's run by the rest of it; strikes the record out at 0 blocks.
    #[inline]
    #[cfg_attr(feature = "record", track_caller)]
    pub fn shrink(&self, record: u64, run: Run) {
        let word = run.block << RUN_SHIFT | run.count;
        self.set(
            self.record_off(record),
            if run.count == 0 { 0 } else { word },
        );
    }

    /// Marks a record as done with.
    #[inline]
    #[cfg_attr(feature = "record", track_caller)]
    pub fn strike_out(&self, record: u64) {
        self.set(self.record_off(record), 0);
    }

    /// Moves a record's cursor.
    #[inline]
    #[cfg_attr(feature = "record", track_caller)]
    pub fn set_cursor(&self, record: u64, cursor: u64) {
        self.set(IntentRaw::index.of(self.record_off(record)), cursor);
    }

    /// The block that this lane has and nobody uses; it is marked as used.
    #[inline]
    pub fn spare(&self) -> Option<u64> {
        let block = self.share().pm.load(self.record_off(self.records()));
        let data = &self.share().data;
        (block != 0 && data.contains(&(block << BLOCK_SHIFT))).then_some(block)
    }

    /// Takes the spare block for a leaf. It stays the spare one until the call makes another block
    /// the spare one, or resolves its intents.
    ///
    /// # Errors
    /// Those of [`Lane::intend`].
    #[inline]
    #[cfg_attr(feature = "record", track_caller)]
    pub fn take_spare(&self, purpose: P) -> Result<Option<u64>> {
        let Some(block) = self.spare() else {
            return Ok(None);
        };
        self.intend_run(Run::one(block), purpose)?;
        self.count_blocks(purpose, 1);
        Ok(Some(block))
    }

    /// Makes a leaf's old block, which a record names, the spare one. Until the records are cleared
    /// they decide what it is.
    #[inline]
    #[cfg_attr(feature = "record", track_caller)]
    pub fn keep_spare(&self, block: u64, purpose: P) {
        self.count_blocks(purpose, -1);
        self.set_spare(block);
    }

    /// Makes a block the spare one; 0: it has none.
    #[inline]
    #[cfg_attr(feature = "record", track_caller)]
    pub fn set_spare(&self, block: u64) {
        self.set(self.record_off(self.records()), block);
    }

    /// Returns whether an open record names the spare block.
    #[inline]
    fn is_spare_in_question(&self) -> bool {
        let Some(spare) = self.spare() else {
            return false;
        };
        let mut open = (0..self.intent_count()).filter_map(|record| self.intent(record));
        open.any(|(word, purpose)| {
            let run = Self::run_of(word);
            purpose.may_be_spare() && spare.wrapping_sub(run.block) < run.count
        })
    }

    /// Clears the spare block if an open record names it: the record decides then. For resolving.
    #[inline]
    #[cfg_attr(feature = "record", track_caller)]
    pub fn doubt_spare(&self) {
        if self.is_spare_in_question() {
            self.set_spare(0);
        }
    }
}
