//! Lanes with intents: a call records its coming changes of the bitmaps there.

use pm_journal::error::{Error, Result};
use pm_journal::lane;
use pm_journal::medium::store::{Store, Waits};
use pm_journal::types::{Ino, Run};
use pmfs_format::{BLOCK_SHIFT, IntentRaw, LaneRaw};
use std::cell::Cell;
use std::marker::PhantomData;
use std::ops::Deref;

const RUN_SHIFT: u32 = 24;

/// The use of a block. Data spreads over the pool by lanes; the rest stays together near its start.
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

/// The purpose of blocks: their present or future owner, by which recovery decides after a kill.
/// The layer above defines the purposes.
pub trait Meaning: Copy {
    /// Blocks that will belong to no inode.
    const SCRATCH: Self;

    /// An inode number, which is the block of the run.
    fn number(ino: Ino) -> Self;

    /// The words of the purpose in a record.
    fn words(self) -> [u64; 3];

    /// The purpose in these words; `None` if no call writes such words.
    fn from_words(words: [u64; 3]) -> Option<Self>;

    /// Returns whether a call in this pool can have written this purpose with this run.
    fn is_possible(self, run: Run, store: &Store) -> bool;

    /// Returns whether the blocks count in an inode's `st_blocks`.
    fn is_counted(self) -> bool;

    /// Returns whether the lane may keep such a block as its spare block.
    fn may_be_spare(self) -> bool;

    /// Returns whether other leaves may name the blocks too: then the last one frees them.
    fn may_be_shared(self) -> bool;
}

/// A lane of the journal with its intent records.
pub struct Lane<'a, P> {
    lane: lane::Lane<'a>,
    /// Blocks that the inode at `accounted` has gained since its count was stored.
    gained: Cell<i64>,
    /// Byte offset of the working inode's count of blocks; 0 for none.
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

    /// The count of spare blocks of all lanes, which are marked as used and count as free.
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

    /// The place where this lane's search for a block begins.
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

    /// The place where this lane's search for an inode begins.
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

    /// The inode that was last noted as the working one.
    #[inline]
    pub fn working(&self) -> Ino {
        self.share().pm.load(LaneRaw::working.of(self.line()))
    }

    /// Makes an inode the working one, whose content this call changes: blocks gained and lost
    /// count as its own. Recovery of the lane flushes stores that others may have seen, and counts
    /// the inode's blocks again. `counted` is the place of the inode's count of blocks, or 0.
    #[inline(always)]
    #[cfg_attr(feature = "record", track_caller)]
    pub fn work_on(&self, ino: Ino, counted: u64) {
        self.accounted.set(counted);
        self.set(LaneRaw::working.of(self.line()), ino);
    }

    /// Ends the counting for the working inode.
    #[inline]
    #[cfg_attr(feature = "record", track_caller)]
    pub fn work_done(&self) {
        self.store_block_count();
        self.accounted.set(0);
    }

    /// Counts blocks gained or lost for a purpose; those of the inode table count for no inode.
    #[inline]
    pub fn count_blocks(&self, purpose: P, blocks: i64) {
        if purpose.is_counted() {
            self.gained.set(self.gained.get() + blocks);
        }
    }

    /// Counts blocks of a freed subtree as lost.
    #[inline]
    pub fn lose_blocks(&self, blocks: u64) {
        self.gained.set(self.gained.get() - blocks as i64);
    }

    /// Stores the inode's count of blocks without a flush: it may be lost, and recovery counts
    /// again.
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

    /// The count of free intent records.
    #[inline]
    pub fn room(&self) -> u64 {
        self.records() - self.intent_count()
    }

    #[inline]
    fn record_off(&self, record: u64) -> u64 {
        self.intents() + record * IntentRaw::SIZE
    }

    /// Writes a record of blocks before they are touched, and returns its number.
    ///
    /// # Errors
    /// [`Error::NoSpace`] if the lane has no free record: the call is too scattered.
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
        self.intend(Self::word_of(run), purpose)
    }

    /// The first word of a record with this run.
    #[inline]
    pub(crate) fn word_of(run: Run) -> u64 {
        run.block << RUN_SHIFT | run.count
    }

    /// Record `record`: its first word and its purpose; `None` if it is struck out or invalid.
    #[inline]
    pub fn intent(&self, record: u64) -> Option<(u64, P)> {
        let [run, kind, ino, index] = self.share().pm.read::<4>(self.record_off(record));
        if run == 0 {
            return None;
        }
        Some((run, P::from_words([kind, ino, index])?))
    }

    /// Strikes out records that no call can have written, because the lane may have any content.
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

    /// Replaces a record's run by its rest; a rest of 0 blocks strikes the record out.
    #[inline]
    #[cfg_attr(feature = "record", track_caller)]
    pub fn shrink(&self, record: u64, run: Run) {
        let word = run.block << RUN_SHIFT | run.count;
        self.set(
            self.record_off(record),
            if run.count == 0 { 0 } else { word },
        );
    }

    /// Strikes a record out.
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

    /// The lane's spare block, which is marked as used and belongs to no inode.
    #[inline]
    pub fn spare(&self) -> Option<u64> {
        let block = self.share().pm.load(self.record_off(self.records()));
        let data = &self.share().data;
        (block != 0 && data.contains(&(block << BLOCK_SHIFT))).then_some(block)
    }

    /// Takes the spare block for a leaf. It stays the spare block until the call replaces it or
    /// resolves its intents.
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

    /// Makes a leaf's old block, which a record names, the spare block. Until the records are
    /// cleared, they decide its state.
    #[inline]
    #[cfg_attr(feature = "record", track_caller)]
    pub fn keep_spare(&self, block: u64, purpose: P) {
        self.count_blocks(purpose, -1);
        self.set_spare(block);
    }

    /// Sets the spare block; 0 for none.
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

    /// Clears the spare block if an open record names it, which then decides. Resolution calls
    /// this.
    #[inline]
    #[cfg_attr(feature = "record", track_caller)]
    pub fn doubt_spare(&self) {
        if self.is_spare_in_question() {
            self.set_spare(0);
        }
    }
}
