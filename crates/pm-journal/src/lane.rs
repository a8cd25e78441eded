//! Lanes: a call's transactions log there, and the layer above records its intents there.

use crate::medium::store::{Share, Waits};
use crate::scan::{Scan, scan};
use pmfs_format::LaneRaw;
use pmfs_format::runtime::OWNER_THREAD_MASK;
use pmshare::holder::thread_tag;
use pmshare::owner;

/// The lane that this thread used last; above all lanes of any pool if it used none.
fn hint() -> u64 {
    pmem::thread::with(|thread| thread.lane.get()).wrapping_sub(1)
}

fn set_hint(index: u64) {
    pmem::thread::with(|thread| thread.lane.set(index + 1));
}

/// Makes this thread prefer a lane, so that a recorded run can be repeated.
#[cfg(feature = "record")]
pub fn prefer_lane(index: u64) {
    set_hint(index);
}

/// A lane that this thread owns until it drops it.
pub struct Lane<'a> {
    waits: Waits<'a>,
    line: u64,
    log: u64,
    intents: u64,
}

impl<'a> Lane<'a> {
    /// Claims a lane: that of the committed redo record that a lock of the thread names, otherwise
    /// a free one.
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

    /// Claims the lane that contains this line of the journal, without changing the thread's
    /// preferred lane.
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

    /// Releases the lane.
    #[inline(always)]
    #[cfg_attr(feature = "record", track_caller)]
    pub fn release(&self) {
        owner::release(&self.waits, LaneRaw::owner.of(self.line));
    }

    /// The attachment that owns the lane.
    #[inline]
    pub fn share(&self) -> &'a Share {
        self.waits.share
    }

    /// The context with which the lane's calls wait.
    #[inline]
    pub fn waits(&self) -> Waits<'a> {
        self.waits
    }

    /// Claims the thread's last lane, or another one.
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

    /// Claims lane `index` if it is free.
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

    /// Reserves the next entry and returns its offset.
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

    /// Sets the number of the next entry: those before it are written.
    #[inline]
    #[cfg_attr(feature = "record", track_caller)]
    pub fn set_head(&self, head: u64) {
        let runtime = self.waits.pm.runtime();
        runtime.store(LaneRaw::head.of(self.line), head);
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

    /// Drops a pending commit of this lane. The entries just written complete it: they show that
    /// the transaction before theirs is done, and the barrier after them makes its words durable.
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

    /// Sets the counters as [`Lane::reset`] does, and keeps the intents, which are not resolved
    /// yet. An id that the dead thread drew and did not write may be above those of the log.
    pub fn reset_ids(&self, last_id: u64, head: u64) {
        let runtime = self.waits.pm.runtime();
        let drawn = runtime.load(LaneRaw::last_id.of(self.line));
        runtime.store(LaneRaw::last_id.of(self.line), last_id.max(drawn));
        self.set_head(head);
    }

    /// Byte offset of its line.
    #[inline]
    pub fn line(&self) -> u64 {
        self.line
    }

    /// Byte offset of its intent records.
    #[inline]
    pub fn intents(&self) -> u64 {
        self.intents
    }

    /// The count of intent records, without the spare block's.
    #[inline]
    pub fn records(&self) -> u64 {
        self.waits.geometry.intents_per_lane - 1
    }

    /// Intent records written.
    #[inline]
    pub fn intent_count(&self) -> u64 {
        let written = self.waits.pm.load(LaneRaw::intents.of(self.line));
        written.min(self.records())
    }

    /// Forgets all records.
    #[inline]
    #[cfg_attr(feature = "record", track_caller)]
    pub fn clear_intents(&self) {
        let runtime = self.waits.pm.runtime();
        runtime.store(LaneRaw::intents.of(self.line), 0);
    }

    /// Reads its log.
    pub fn scan(&self) -> Scan {
        let (log, entries) = self.log();
        scan(&self.waits.pm, log, entries)
    }

    /// The lane's part of the journal: first byte and count of entries.
    #[inline]
    pub fn log(&self) -> (u64, u64) {
        (self.log, self.waits.geometry.lane_entries())
    }
}
