//! Lanes: a transaction logs there, and a call records there its coming changes of the bitmaps.

use crate::error::{Error, Result};
use crate::medium::store::Share;
use crate::medium::store::Waits;
use crate::scan::{Scan, scan};
use crate::types::{Ino, Run};
use pmfs_format::inode::TABLE_INO;
use pmfs_format::runtime::{
    INTENT_INODE, INTENT_RANGE, INTENT_RECLAIM, INTENT_SCRATCH, INTENT_SUBTREE, INTENT_TREE,
    INTENT_UNDER, INTENT_WORD, INTENT_XATTR, OWNER_THREAD_MASK,
};
use pmfs_format::{BLOCK_BYTES, BLOCK_SHIFT, InodeRaw, IntentRaw, LaneRaw};
use pmshare::holder::thread_tag;
use pmshare::owner;
use std::cell::Cell;

const KIND_SHIFT: u32 = 56;
const LEVEL_SHIFT: u32 = 48;
const RUN_SHIFT: u32 = 24;
/// Bits of a kind's word that may hold an index.
const INDEX_MASK: u64 = (1 << LEVEL_SHIFT) - 1;

/// For [`Purpose::Range`] over a whole tree: all blocks that the new tree names stay.
pub const CHANGED: u64 = INDEX_MASK;

/// The lane that this thread used last; more than any pool has if it used none.
fn hint() -> u64 {
    pmem::thread::with(|thread| thread.lane.get()).wrapping_sub(1)
}

fn set_hint(index: u64) {
    pmem::thread::with(|thread| thread.lane.set(index + 1));
}

/// Makes this thread prefer a lane, so that a recorded run can be had again.
#[cfg(feature = "record")]
pub fn prefer_lane(index: u64) {
    set_hint(index);
}

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

/// The owner that blocks are to have, or had: after a kill this decides.
#[allow(missing_docs, reason = "each field has the name of its kind")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// A node of a tree (`level` 1 and up) or a leaf (0) at `index`.
    Tree { ino: Ino, level: u32, index: u64 },
    /// An inode's attribute blocks.
    Xattr { ino: Ino },
    /// An inode number (the run's block is the number).
    Inode { ino: Ino },
    /// All blocks of an inode without links, up to a cursor.
    Reclaim { ino: Ino, cursor: u64 },
    /// The old subtree (its entry is in `run`'s place), named by `slot` before the change.
    Subtree { slot: u64, level: u32, cursor: u64 },
    /// First and last index of the subtree record before it, and the first whose leaf stays, or
    /// [`CHANGED`]; its first word is the subtree's base plus one.
    Range { from: u64, to: u64, kept: u64 },
    /// Saved data of the running transaction.
    Scratch,
    /// Nodes of a tree that was built as a whole, whose topmost node is the block `top`.
    Under { ino: Ino, top: u64 },
    /// A word that is stored in place: nothing to free, but to be flushed.
    Word { off: u64 },
}

impl Purpose {
    /// The leaf of a file's block.
    #[inline]
    pub fn leaf(ino: Ino, index: u64) -> Purpose {
        Purpose::Tree {
            ino,
            level: 0,
            index,
        }
    }
}

/// A lane that this thread has to itself until it drops it.
pub struct Lane<'a> {
    waits: Waits<'a>,
    /// Blocks that the inode at `accounted` has gained since its count was stored.
    gained: Cell<i64>,
    /// Byte offset of the inode whose blocks are being counted; 0 for none.
    accounted: Cell<u64>,
    line: u64,
    log: u64,
    intents: u64,
}

impl<'a> Lane<'a> {
    /// Claims a lane: that of the committed redo record that a lock of the thread names, else a
    /// free one.
    #[inline(always)]
    #[cfg_attr(feature = "record", track_caller)]
    pub fn claim(waits: Waits<'a>) -> Lane<'a> {
        let pending = waits.pm.pending_redo();
        let lane = match pending {
            Some(entry) => Lane::claim_of(waits, entry),
            None => Lane::claim_any(waits),
        };
        lane.take_over(pending);
        lane
    }

    /// Claims the lane that has this line of the journal, and goes on preferring its own.
    #[inline]
    #[cfg_attr(feature = "record", track_caller)]
    pub fn claim_of(waits: Waits<'a>, entry: u64) -> Lane<'a> {
        let share = waits.share;
        let index = share
            .geometry
            .lane_of_line((entry - share.geometry.journal) / 64);
        owner::acquire(waits, LaneRaw::owner.of(share.geometry.lane_line(index)));
        Lane::at(waits, index)
    }

    /// Gives it back, with no record written.
    #[inline]
    #[cfg_attr(feature = "record", track_caller)]
    pub fn give_back(self) {
        self.release();
    }

    /// Others may have it.
    #[inline(always)]
    #[cfg_attr(feature = "record", track_caller)]
    pub(super) fn release(&self) {
        owner::release(&self.waits, LaneRaw::owner.of(self.line));
    }

    /// The attachment that has it.
    #[inline]
    pub fn share(&self) -> &'a Share {
        self.waits.share
    }

    /// The place and the rescue with which its calls wait.
    #[inline]
    pub fn waits(&self) -> Waits<'a> {
        self.waits
    }

    /// The thread's last lane if it can be had.
    #[inline(always)]
    #[cfg_attr(feature = "record", track_caller)]
    fn claim_any(waits: Waits<'a>) -> Lane<'a> {
        let share = waits.share;
        let lanes = share.geometry.lanes;
        let me = share.holder().word();
        let hint = hint();
        let start = if hint == u64::MAX {
            thread_tag() & OWNER_THREAD_MASK
        } else {
            hint
        };
        for step in 0..lanes {
            let index = match start + step {
                index if index < lanes => index,
                beyond => beyond % lanes,
            };
            let line = share.geometry.lane_line(index);
            let runtime = share.pm.runtime();
            if runtime.load(line) == 0 && runtime.cas(LaneRaw::owner.of(line), 0, me).is_ok() {
                set_hint(index);
                return Lane::at(waits, index);
            }
        }
        let index = start % lanes;
        owner::acquire(waits, share.geometry.lane_line(index));
        Lane::at(waits, index)
    }

    /// Spare blocks of all lanes: marked as used, and as good as free.
    pub fn spares(waits: impl Into<Waits<'a>>) -> u64 {
        let waits = waits.into();
        let share = waits.share;
        let lanes = 0..share.geometry.lanes;
        lanes
            .filter(|&index| Lane::at(waits, index).spare().is_some())
            .count() as u64
    }

    /// Claims lane `index`, if nobody has it.
    #[inline]
    #[cfg_attr(feature = "record", track_caller)]
    pub fn try_claim(waits: Waits<'a>, index: u64) -> Option<Lane<'a>> {
        let share = waits.share;
        let (line, me) = (share.geometry.lane_line(index), share.holder().word());
        let claimed = share.pm.runtime().cas(LaneRaw::owner.of(line), 0, me);
        claimed.is_ok().then(|| Lane::at(waits, index))
    }

    /// Lane `index`, which the caller owns: claimed, or under the recovery lock.
    #[inline(always)]
    pub fn at(waits: impl Into<Waits<'a>>, index: u64) -> Lane<'a> {
        let waits = waits.into();
        let share = waits.share;
        Lane {
            waits,
            gained: Cell::new(0),
            accounted: Cell::new(0),
            line: share.geometry.lane_line(index),
            log: share.geometry.lane_log(index),
            intents: share.geometry.lane_intents(index),
        }
    }

    /// The id of its last transaction.
    #[inline]
    pub fn last_id(&self) -> u64 {
        self.waits.pm.load(LaneRaw::last_id.of(self.line))
    }

    /// The id of a new transaction.
    #[inline]
    #[cfg_attr(feature = "record", track_caller)]
    pub fn next_id(&self) -> u64 {
        let runtime = self.waits.pm.runtime();
        let id = runtime.load(LaneRaw::last_id.of(self.line)) + 1;
        runtime.store(LaneRaw::last_id.of(self.line), id);
        id
    }

    /// Takes the place of the next entry, and returns its offset.
    #[inline]
    #[cfg_attr(feature = "record", track_caller)]
    pub fn next_entry(&self) -> u64 {
        let head = self.head();
        self.set_head(head + 1);
        self.entry(head)
    }

    /// The number of the next entry.
    #[inline]
    pub fn head(&self) -> u64 {
        self.waits.pm.runtime().load(LaneRaw::head.of(self.line))
    }

    /// The entries before this number are written.
    #[inline]
    #[cfg_attr(feature = "record", track_caller)]
    pub fn set_head(&self, head: u64) {
        self.waits
            .pm
            .runtime()
            .store(LaneRaw::head.of(self.line), head);
    }

    /// The offset of the entry of this number.
    #[inline]
    pub fn entry(&self, number: u64) -> u64 {
        self.log + self.waits.geometry.entry_in_lane(number)
    }

    /// The number in the journal of the line at `entry`.
    #[inline]
    pub fn number_of(&self, entry: u64) -> u64 {
        (entry - self.waits.geometry.journal) / 64
    }

    /// Drops a pending commit of this lane itself, which the entries just written complete: they
    /// show that the transaction before theirs is done, and the barrier after them makes its words
    /// durable.
    #[inline]
    pub fn complete_by_entries(&self) {
        let log = self.log..self.log + self.waits.geometry.lane_bytes;
        self.waits.pm.drop_if_complete(|line| log.contains(&line));
    }

    /// The offset of its last entry; `None` if it has none.
    #[inline]
    pub fn last_entry(&self) -> Option<u64> {
        let last = self.head().checked_sub(1)?;
        Some(self.entry(last))
    }

    /// Sets the counters that a scan of the log has found.
    pub fn reset(&self, last_id: u64, head: u64) {
        self.reset_ids(last_id, head);
        self.clear_intents();
    }

    /// Resets like [`Lane::reset`], but the intents are still to be resolved. An id that the dead
    /// thread had drawn and not written may be above the log's.
    pub fn reset_ids(&self, last_id: u64, head: u64) {
        let runtime = self.waits.pm.runtime();
        let drawn = runtime.load(LaneRaw::last_id.of(self.line));
        runtime.store(LaneRaw::last_id.of(self.line), last_id.max(drawn));
        self.set_head(head);
    }

    #[inline]
    fn cursor_off(&self, zone: Zone) -> u64 {
        let cursor = if zone == Zone::Data {
            LaneRaw::block_cursor
        } else {
            LaneRaw::meta_cursor
        };
        cursor.of(self.line)
    }

    /// The place from which this lane searches its next block.
    #[inline]
    pub fn block_cursor(&self, zone: Zone) -> u64 {
        self.waits.pm.load(self.cursor_off(zone))
    }

    /// Sets it.
    #[inline]
    #[cfg_attr(feature = "record", track_caller)]
    pub fn set_block_cursor(&self, zone: Zone, block: u64) {
        self.waits.pm.runtime().store(self.cursor_off(zone), block);
    }

    /// The place from which this lane searches its next inode.
    #[inline]
    pub fn inode_cursor(&self) -> u64 {
        self.waits.pm.load(LaneRaw::inode_cursor.of(self.line))
    }

    /// Sets it.
    #[inline]
    #[cfg_attr(feature = "record", track_caller)]
    pub fn set_inode_cursor(&self, ino: u64) {
        self.waits
            .pm
            .runtime()
            .store(LaneRaw::inode_cursor.of(self.line), ino);
    }

    /// The inode noted last.
    #[inline]
    pub fn working(&self) -> Ino {
        self.waits.pm.load(LaneRaw::working.of(self.line))
    }

    /// This call changes the content of an inode from now on: blocks gained and lost are its own.
    /// Recovery of the lane flushes the stores that others may have seen, and counts the inode's
    /// blocks anew. `counted`: the inode's offset if it counts its blocks, else 0.
    #[inline(always)]
    #[cfg_attr(feature = "record", track_caller)]
    pub fn work_on(&self, ino: Ino, counted: u64) {
        self.accounted.set(counted);
        self.waits
            .pm
            .runtime()
            .store(LaneRaw::working.of(self.line), ino);
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
    pub fn count_blocks(&self, purpose: Purpose, blocks: i64) {
        let counted = match purpose {
            Purpose::Tree { ino, .. } => ino != TABLE_INO,
            Purpose::Xattr { .. } | Purpose::Under { .. } => true,
            _ => false,
        };
        if counted {
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
            let slot = InodeRaw::inline.of(off);
            let blocks = self.waits.pm.load(slot).saturating_add_signed(gained);
            let noted = self.waits.note_lazy(self.working());
            self.waits.pm.lazy_word(noted, slot, blocks);
        }
    }

    /// Intent records that may stand at a time: all but the spare's.
    #[inline]
    fn records(&self) -> u64 {
        self.waits.geometry.intents_per_lane - 1
    }

    /// Intent records that are still to be had.
    #[inline]
    pub fn room(&self) -> u64 {
        self.records() - self.intent_count()
    }

    /// Intent records written.
    #[inline]
    pub fn intent_count(&self) -> u64 {
        self.waits
            .pm
            .load(LaneRaw::intents.of(self.line))
            .min(self.records())
    }

    #[inline]
    fn record_off(&self, record: u64) -> u64 {
        self.intents + record * IntentRaw::SIZE
    }

    /// Writes a record of the blocks in question, before they are touched; returns its number.
    ///
    /// # Errors
    /// [`Error::NoSpace`] if the lane has no record left: the call is too scattered.
    #[inline]
    #[cfg_attr(feature = "record", track_caller)]
    pub fn intend(&self, run: u64, purpose: Purpose) -> Result<u64> {
        let record = self.intent_count();
        if record >= self.records() {
            return Err(Error::NoSpace);
        }
        let (kind, ino, index) = encode(purpose);
        let runtime = self.waits.pm.runtime();
        runtime.write(self.record_off(record), &[run, kind, ino, index]);
        runtime.store(LaneRaw::intents.of(self.line), record + 1);
        Ok(record)
    }

    /// Records like [`Lane::intend`], for a run of blocks.
    ///
    /// # Errors
    /// Those of [`Lane::intend`].
    #[inline]
    #[cfg_attr(feature = "record", track_caller)]
    pub fn intend_run(&self, run: Run, purpose: Purpose) -> Result<u64> {
        self.intend(run.block << RUN_SHIFT | run.count, purpose)
    }

    /// Record `record`: its first word and its purpose; `None` if struck out or unreadable.
    #[inline]
    pub fn intent(&self, record: u64) -> Option<(u64, Purpose)> {
        let [run, kind, ino, index] = self.waits.pm.read::<4>(self.record_off(record));
        if run == 0 {
            return None;
        }
        Some((run, decode(kind, ino, index)?))
    }

    /// Strikes out records that no call can have written: the lane may hold anything.
    pub fn strike_impossible(&self) {
        let data = &self.waits.data;
        let blocks = data.start >> BLOCK_SHIFT..data.end >> BLOCK_SHIFT;
        let is_word =
            |off: u64| off.is_multiple_of(8) && off >= data.start - BLOCK_BYTES && off < data.end;
        for record in 0..self.intent_count() {
            let Some((word, purpose)) = self.intent(record) else {
                continue;
            };
            let run = Lane::run_of(word);
            let possible = match purpose {
                Purpose::Inode { ino } | Purpose::Reclaim { ino, .. } => {
                    ino < self.waits.geometry.inodes
                }
                Purpose::Subtree { slot: off, .. } | Purpose::Word { off } => is_word(off),
                Purpose::Range { from, to, .. } => from <= to,
                _ => run.block >= blocks.start && run.block + run.count <= blocks.end,
            };
            if !possible {
                self.strike_out(record);
            }
        }
    }

    /// The inode of a record, struck out or not.
    pub fn intent_ino(&self, record: u64) -> Ino {
        let [_, kind, ino, index] = self.waits.pm.read::<4>(self.record_off(record));
        match decode(kind, ino, index) {
            Some(
                Purpose::Tree { ino, .. } | Purpose::Xattr { ino } | Purpose::Under { ino, .. },
            ) => ino,
            _ => 0,
        }
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
        let word = if run.count == 0 {
            0
        } else {
            run.block << RUN_SHIFT | run.count
        };
        self.waits.pm.runtime().store(self.record_off(record), word);
    }

    /// Marks a record as done with.
    #[inline]
    #[cfg_attr(feature = "record", track_caller)]
    pub fn strike_out(&self, record: u64) {
        self.waits.pm.runtime().store(self.record_off(record), 0);
    }

    /// Moves a record's cursor.
    #[inline]
    #[cfg_attr(feature = "record", track_caller)]
    pub fn set_cursor(&self, record: u64, cursor: u64) {
        self.waits
            .pm
            .runtime()
            .store(IntentRaw::index.of(self.record_off(record)), cursor);
    }

    /// Forgets all records.
    #[inline]
    #[cfg_attr(feature = "record", track_caller)]
    pub fn clear_intents(&self) {
        self.waits
            .pm
            .runtime()
            .store(LaneRaw::intents.of(self.line), 0);
    }

    /// The block that this lane has and nobody uses; it is marked as used.
    #[inline]
    pub fn spare(&self) -> Option<u64> {
        let block = self.waits.pm.load(self.record_off(self.records()));
        let data = &self.waits.data;
        (block != 0 && data.contains(&(block << BLOCK_SHIFT))).then_some(block)
    }

    /// Takes the spare block for a leaf. It stays the spare one until the call makes another block
    /// the spare one, or resolves its intents.
    ///
    /// # Errors
    /// Those of [`Lane::intend`].
    #[inline]
    #[cfg_attr(feature = "record", track_caller)]
    pub fn take_spare(&self, purpose: Purpose) -> Result<Option<u64>> {
        let Some(block) = self.spare() else {
            return Ok(None);
        };
        self.intend_run(Run { block, count: 1 }, purpose)?;
        self.count_blocks(purpose, 1);
        Ok(Some(block))
    }

    /// Makes a leaf's old block, which a record names, the spare one. Until the records are cleared
    /// they decide what it is.
    #[inline]
    #[cfg_attr(feature = "record", track_caller)]
    pub fn keep_spare(&self, block: u64, purpose: Purpose) {
        self.count_blocks(purpose, -1);
        self.set_spare(block);
    }

    /// Makes a block the spare one; 0: it has none.
    #[inline]
    #[cfg_attr(feature = "record", track_caller)]
    pub fn set_spare(&self, block: u64) {
        let off = self.record_off(self.records());
        self.waits.pm.runtime().store(off, block);
    }

    /// Returns whether an open record names the spare block.
    #[inline]
    fn is_spare_in_question(&self) -> bool {
        let Some(spare) = self.spare() else {
            return false;
        };
        let mut open = (0..self.intent_count()).filter_map(|record| self.intent(record));
        open.any(|(word, purpose)| {
            let run = Lane::run_of(word);
            matches!(purpose, Purpose::Tree { .. } | Purpose::Scratch)
                && spare.wrapping_sub(run.block) < run.count
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

    /// Reads its log.
    pub fn scan(&self) -> Scan {
        let (log, entries) = self.log();
        scan(&self.waits.pm, log, entries)
    }

    /// The journal's part of this lane: first byte and number of entries.
    #[inline]
    pub fn log(&self) -> (u64, u64) {
        (self.log, self.waits.geometry.lane_entries())
    }
}

#[inline]
fn encode(purpose: Purpose) -> (u64, u64, u64) {
    match purpose {
        Purpose::Tree { ino, level, index } => (
            INTENT_TREE << KIND_SHIFT | u64::from(level) << LEVEL_SHIFT,
            ino,
            index,
        ),
        Purpose::Xattr { ino } => (INTENT_XATTR << KIND_SHIFT, ino, 0),
        Purpose::Inode { ino } => (INTENT_INODE << KIND_SHIFT, ino, 0),
        Purpose::Reclaim { ino, cursor } => (INTENT_RECLAIM << KIND_SHIFT, ino, cursor),
        Purpose::Subtree {
            slot,
            level,
            cursor,
        } => (
            INTENT_SUBTREE << KIND_SHIFT | u64::from(level) << LEVEL_SHIFT,
            slot,
            cursor,
        ),
        Purpose::Range { from, to, kept } => (INTENT_RANGE << KIND_SHIFT | kept, from, to),
        Purpose::Scratch => (INTENT_SCRATCH << KIND_SHIFT, 0, 0),
        Purpose::Under { ino, top } => (INTENT_UNDER << KIND_SHIFT, ino, top),
        Purpose::Word { off } => (INTENT_WORD << KIND_SHIFT, 0, off),
    }
}

fn decode(kind: u64, ino: u64, index: u64) -> Option<Purpose> {
    let level = (kind >> LEVEL_SHIFT & 0xff) as u32;
    Some(match kind >> KIND_SHIFT {
        INTENT_TREE => Purpose::Tree { ino, level, index },
        INTENT_XATTR => Purpose::Xattr { ino },
        INTENT_INODE => Purpose::Inode { ino },
        INTENT_RECLAIM => Purpose::Reclaim { ino, cursor: index },
        INTENT_SUBTREE => Purpose::Subtree {
            slot: ino,
            level,
            cursor: index,
        },
        INTENT_RANGE => Purpose::Range {
            from: ino,
            to: index,
            kept: kind & INDEX_MASK,
        },
        INTENT_SCRATCH => Purpose::Scratch,
        INTENT_UNDER => Purpose::Under { ino, top: index },
        INTENT_WORD => Purpose::Word { off: index },
        _ => return None,
    })
}
