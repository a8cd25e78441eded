//! Redoing what committed, after a crash: of all lanes, the records that are whole and not closed,
//! by ascending stamp. Then they are closed, in that order too. A crash in it starts over.
//!
//! A record is whole if its check holds, and if the new objects of its transaction are there: their
//! content has the hashes that the record says. That content changes as soon as a later record
//! stores in place. So it is not looked at if another record proves the fence of this one over: a
//! later one of the same lane, or one that supersedes it.

use pmlib_format::LINE_BYTES;
use pmlib_format::chunk::{GROUP_BYTES, GROUP_CHUNKS};
use pmlib_format::lane::{CLOSED_OFFSET, STAMP_END};
use pmlib_format::record::HEAD_WORDS;

use crate::engine::Core;
use crate::error::{Error, Result};
use crate::lane::{GROUP_WORDS, group_check, superseded_of};
use crate::packed::{Ticket, done_of};
use crate::record::{Act, Step, steps};
use zerocopy::IntoBytes;

/// A record whose check holds, and that is not closed.
struct Open {
    stamp: u64,
    lane: u32,
    place: u64,
    superseded: Vec<u64>,
    entries: Vec<u64>,
    /// All that it needs beside itself was durable.
    is_whole: bool,
}

impl Open {
    /// Whether this was begun after the fence of `other`.
    fn proves(&self, other: &Open) -> bool {
        let follows = |ticket: Ticket| ticket.lane == other.lane && ticket.stamp >= other.stamp;
        let own = Ticket {
            lane: self.lane,
            stamp: self.stamp - 1,
        };
        let named = self.superseded.iter().map(|&word| Ticket::of(word));
        named.chain([own]).any(follows)
    }
}

impl Core {
    /// Redoes what the last run left; answers the greatest stamp that a lane has. The heap was left
    /// clean: there is nothing.
    pub fn recover(&self, clean: bool) -> Result<u64> {
        let mut last = 0;
        let mut found = Vec::new();
        for lane in 0..self.header.lanes {
            let closed = self.closed(lane)?;
            if closed >= STAMP_END {
                return Err(Error::Damaged {
                    what: "a lane's first line",
                    offset: self.places.lane(lane) + CLOSED_OFFSET,
                });
            }
            last = last.max(closed);
            if !clean {
                self.open_records(lane, closed, &mut found)?;
            }
        }
        self.test_objects(&mut found)?;
        if !planted!("bug-recovery-out-of-order") {
            found.sort_by_key(|record| (record.stamp, record.lane));
        }
        for record in found.iter().filter(|record| record.is_whole) {
            self.redo_checked(record)?;
        }
        if found.is_empty() {
            return Ok(last);
        }
        if !planted!("bug-recovery-unfenced") {
            self.mem.fence();
        }
        // Those that were not whole are closed too, lest they become so.
        found.sort_by_key(|record| (record.stamp, record.lane));
        for (at, record) in found.iter().enumerate() {
            last = last.max(record.stamp);
            self.close(record.lane, record.stamp)?;
            self.flush_closed(record.lane);
            // A record that is redone again would undo a later one that is closed.
            let next = found.get(at + 1).map(|record| record.lane);
            if next != Some(record.lane) && !planted!("bug-recovery-closes-at-once") {
                self.mem.fence();
            }
        }
        // Stores from here on may overwrite records, and the words that they name.
        if planted!("bug-recovery-closes-at-once") {
            self.mem.fence();
        }
        Ok(last)
    }

    /// The open records of a lane, wherever in the ring they are.
    fn open_records(&self, lane: u32, closed: u64, found: &mut Vec<Open>) -> Result<()> {
        let ring = self.places.ring(lane);
        let mut record = Vec::new();
        let (mut closed, mut whole) = (closed, Vec::new());
        for place in ring.step_by(LINE_BYTES as usize) {
            if self.mem.load(place + 8) <= closed {
                continue;
            }
            let Some(stamp) = self.read_record(lane, place, &mut record)? else {
                continue;
            };
            if self.key.hash(place, &record[1..]) != record[0] {
                continue;
            }
            let done = done_of(record[3], stamp, record[2]).unwrap_or(u64::MAX);
            if stamp >= STAMP_END || done >= stamp {
                return Err(Error::Damaged {
                    what: "a redo record",
                    offset: place,
                });
            }
            closed = closed.max(done);
            whole.push((stamp, place));
        }
        whole.retain(|&(stamp, _)| stamp > closed);
        for (stamp, place) in whole {
            self.read_record(lane, place, &mut record)?;
            let mut outside = Vec::new();
            let entries = self.entries_of(&record, &mut outside)?;
            found.push(Open {
                stamp,
                lane,
                place,
                superseded: superseded_of(&record).to_vec(),
                entries: entries.unwrap_or(&[]).to_vec(),
                is_whole: entries.is_some(),
            });
        }
        Ok(())
    }

    /// Looks whether the new objects of each record were durable.
    fn test_objects(&self, found: &mut [Open]) -> Result<()> {
        if planted!("bug-fresh-object-unchecked") {
            return Ok(());
        }
        for at in 0..found.len() {
            let record = &found[at];
            let is_proven = found.iter().any(|other| other.proves(record))
                && !planted!("bug-fresh-object-always-checked");
            if !is_proven && !self.has_objects(record)? {
                found[at].is_whole = false;
            }
        }
        Ok(())
    }

    /// Whether the new objects of a record are there.
    fn has_objects(&self, record: &Open) -> Result<bool> {
        let mut content = Vec::new();
        for step in steps(&record.entries).flatten() {
            if let Act::Fresh(words, hash) = step.act
                && step.is_within(self.mem.len())
            {
                self.words(step.offset, words as usize, &mut content)?;
                if self.key.hash(step.offset, &content) != hash {
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }

    /// Redoes one record, none of which is out of bounds.
    fn redo_checked(&self, record: &Open) -> Result<()> {
        let len = self.mem.len();
        let fits =
            |step: std::result::Result<Step<'_>, ()>| step.is_ok_and(|step| step.is_within(len));
        if !steps(&record.entries).all(fits) {
            return Err(Error::Damaged {
                what: "a redo record",
                offset: record.place,
            });
        }
        self.redo(steps(&record.entries).flatten());
        for step in steps(&record.entries).flatten().filter(Step::stores) {
            self.mem.flush(step.offset, step.bytes());
        }
        Ok(())
    }

    /// Whether each group of the chunk table fits its check.
    pub fn check_table(&self) -> Result<()> {
        for span in self.spans.iter() {
            for group in 0..span.groups() {
                let offset = span.table + group * GROUP_BYTES;
                let mut words = [0; GROUP_WORDS];
                // Others may be changing it.
                self.read_stable(offset, words.as_mut_bytes())?;
                if words[GROUP_CHUNKS as usize * 2] != group_check(&words) {
                    return Err(Error::Damaged {
                        what: "the chunk table",
                        offset,
                    });
                }
            }
        }
        Ok(())
    }
}

const _: () = assert!(
    HEAD_WORDS == 4,
    "a record's stamp is its second word, `done` its fourth"
);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::Key;
    use crate::layout::Places;
    use crate::packed::{closed_word, done_word};
    use crate::{Heap, Options};
    use pmlib_format::HeaderRaw;
    use zerocopy::{FromBytes, IntoBytes};

    /// Goal: stamps do not run into the bits beside them. Method: a heap with a lane, or a record,
    /// at the end of the stamps, as somebody may forge one who knows the format.
    #[test]
    fn stamps_at_their_end_are_refused() {
        for (stamp, is_record) in [(STAMP_END, false), (STAMP_END, true), (u64::MAX, true)] {
            let mem = Heap::private(4 << 20, &Options::default()).unwrap();
            let mem = mem.into_memory();
            let mut header = [0; size_of::<HeaderRaw>()];
            mem.copy_out(0, &mut header).unwrap();
            let header = HeaderRaw::read_from_bytes(&header).unwrap();
            let places = Places::of(&header);
            if is_record {
                let start = places.ring(0).start;
                let size = HEAD_WORDS as u64;
                let mut record = [0, stamp, size, done_word(0, stamp, size)];
                record[0] = Key::new(header.seed).hash(start, &record[1..]);
                mem.write_bytes(start, record.as_bytes());
            } else {
                mem.store(places.lane(0) + CLOSED_OFFSET, closed_word(stamp));
            }
            let opened = Heap::attach(mem).map(|_| ());
            let is_damage = matches!(opened, Err(Error::Damaged { .. }));
            assert!(is_damage, "{stamp:#x} {is_record}: {opened:?}");
        }
    }
}
