//! Records that others have left in place: what they stored is flushed, and they are closed, both
//! durably with this thread's next fence.

use pmlib_format::lane::CLOSED_OFFSET;

use super::{Lane, is_outside, superseded_of};
use crate::engine::Core;
use crate::error::{Error, Result};
use crate::packed::Ticket;
use crate::record::steps;

impl Core {
    /// Flushes what other lanes' last records in these chunks have stored, before this record's
    /// fence. The records to be closed after it stay in `superseded`, the greatest alone of each
    /// lane.
    pub(super) fn follow(&self, lane: &mut Lane) -> Result<()> {
        if lane.superseded.is_empty() {
            return Ok(());
        }
        let mut superseded = std::mem::take(&mut lane.superseded);
        superseded.sort_unstable_by_key(|ticket| (ticket.lane, std::cmp::Reverse(ticket.stamp)));
        superseded.dedup_by_key(|ticket| ticket.lane);
        let mut buffer = Vec::new();
        let mut failed = Ok(());
        superseded.retain(|&ticket| match self.is_closing(ticket) {
            Ok(true) => false,
            Ok(false) => {
                let flushed = self.flush_last(ticket, &mut buffer);
                failed = std::mem::replace(&mut failed, Ok(())).and(flushed);
                true
            }
            Err(error) => {
                failed = Err(error);
                true
            }
        });
        lane.superseded = superseded;
        failed
    }

    /// Whether a record of another lane is closed, durably with this thread's next fence.
    fn is_closing(&self, ticket: Ticket) -> Result<bool> {
        let place = self.lane_place(ticket.lane);
        if place.is_settled(&self.mem, ticket.stamp) {
            return Ok(true);
        }
        let is_closed = self.closed(ticket.lane)? >= ticket.stamp;
        if is_closed {
            self.flush_closed(ticket.lane);
        }
        Ok(is_closed)
    }

    /// A lane's `closed`.
    pub fn closed(&self, lane: u32) -> Result<u64> {
        let closed = self.lane_place(lane).closed(&self.mem);
        closed.ok_or_else(|| self.damaged_lane(lane))
    }

    #[cold]
    fn damaged_lane(&self, lane: u32) -> Error {
        Error::Damaged {
            what: "a lane's first line",
            offset: self.lane_place(lane).closed,
        }
    }

    pub fn flush_closed(&self, lane: u32) {
        self.mem.flush(self.places.lane(lane) + CLOSED_OFFSET, 8);
    }

    /// Has a lane's `closed` be at least `stamp`; it is not flushed.
    pub fn close(&self, lane: u32, stamp: u64) -> Result<()> {
        let closed = self.lane_place(lane).close(&self.mem, stamp);
        closed.ok_or_else(|| self.damaged_lane(lane))
    }

    /// Flushes what a record of another lane has stored, unless that lane has had a fence since:
    /// then this thread's next fence makes it durable.
    fn flush_last(&self, ticket: Ticket, buffer: &mut Vec<u64>) -> Result<()> {
        let place = self.lane_place(ticket.lane);
        let is_last = place.is_last(&self.mem, ticket.stamp, |record| {
            self.read_record(ticket.lane, record, buffer)
        })?;
        if is_last {
            self.flush_record(buffer)?;
        }
        Ok(())
    }

    /// Closes records of other lanes, durably with this thread's next fence.
    fn close_superseded(&self, tickets: impl Iterator<Item = Ticket>) -> Result<()> {
        for ticket in tickets {
            if ticket.lane < self.header.lanes && !planted!("bug-closed-forgotten") {
                self.close(ticket.lane, ticket.stamp)?;
                self.flush_closed(ticket.lane);
            }
        }
        Ok(())
    }

    /// Flushes what a record has stored, and closes those that it supersedes: durable with this
    /// thread's next fence.
    pub fn flush_record(&self, record: &[u64]) -> Result<()> {
        let superseded = superseded_of(record).iter();
        self.close_superseded(superseded.map(|&word| Ticket::of(word)))?;
        if planted!("bug-homes-unflushed") {
            return Ok(());
        }
        let mut outside = Vec::new();
        if is_outside(record) {
            // Its process may have seen the heap become longer.
            self.find_spans()?;
        }
        let entries = self.entries_of(record, &mut outside)?;
        for step in steps(entries.unwrap_or(&[])).map_while(|step| step.ok()) {
            if step.stores() {
                if !step.is_within(self.mem.len()) {
                    self.find_spans()?;
                }
                if step.is_within(self.mem.len()) {
                    self.mem.flush(step.offset, step.bytes());
                }
            }
        }
        Ok(())
    }

    /// Flushes what the lane's last record has stored, whoever did: durable with this thread's next
    /// fence.
    pub(super) fn flush_owed(&self, lane: &mut Lane) -> Result<()> {
        if lane.state.settled == lane.state.last {
            return Ok(());
        }
        let (id, index, stamp) = lane.owed_of;
        let is_last = stamp == lane.state.last || planted!("bug-flushed-by-older-places");
        if (id, index) == (self.id, lane.index) && is_last {
            // Stamps of a lane only rise, and no two heaps of a process have one id.
            self.close_superseded(lane.closes.iter().copied())?;
            if !planted!("bug-homes-unflushed") {
                for head in lane.owed.iter().filter(|head| head.stores()) {
                    self.mem.flush(head.offset, head.bytes);
                }
            }
            return Ok(());
        }
        let read = self.read_record(lane.index, lane.state.last_record, &mut lane.buffer)?;
        if read != Some(lane.state.last) {
            return Err(Error::Broken);
        }
        self.flush_record(&lane.buffer)
    }
}
