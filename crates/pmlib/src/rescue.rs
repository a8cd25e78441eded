//! Cleaning up after processes and threads that died, while others go on.
//!
//! For each lane that a dead thread had, in this order:
//! 1. A record whose fence was over and whose words may not all be in place: they are stored. All
//!    chunks that it changes are locked by the dead thread. A record that no fence has made durable
//!    for certain is not done: its stamp is closed, as recovery closes a torn record's.
//! 2. The words that the lane's last record stored are flushed, and the record closed durably.
//! 3. Chunks that the lane had, reserved or to take places from, are nobody's again; those of a run
//!    that was freed or made are whose the table says. Places that were reserved in a chunk come
//!    back with the chunk's next user (`crates/pmlib/src/space.rs`).
//! 4. The dead threads' locks are opened, and then their lanes.
//!
//! Each step may be repeated: a process that finds a cleaner dead begins anew. No lock is waited
//! for.

use pmlib_format::LINE_BYTES;
use pmlib_format::chunk::{
    KIND_FREE, KIND_OBJECTS, KIND_RUN, OWNER_OFFSET, SEQUENCE_OFFSET, USE_OFFSET, USE_RUN,
};
use pmlib_format::lane::{
    CLOSED_OFFSET, CURRENT_OFFSET, DONE_OFFSET, HEAD_OFFSET, LANE_OWNER_OFFSET, LAST_OFFSET,
    LAST_RECORD_OFFSET, LOCK_LANE_OFFSET, SETTLED_OFFSET, STAMP_END, WAITS_OFFSET,
};
use pmlib_format::shared::GROW_OFFSET;
use pmlib_format::{CHUNK_BYTES, chunk};
use pmshare::{Dead, Member, Rescue, Share, Shared, Undone, owner};

use crate::engine::Core;
use crate::error::{Error, Result};
use crate::packed::{Entry, closed_word};
use crate::record::{Step, steps};
use crate::shared::Memory;
use crate::space::CLASSES;

impl Member<Memory> for Core {
    #[inline(always)]
    fn share(&self) -> &Share<Memory> {
        &self.share
    }
}

impl Rescue<Error> for Core {
    fn clean(&self, dead: &[Dead]) -> Result<Undone> {
        let is_dead = |owner: u64| owner != 0 && dead.iter().any(|dead| dead.owns(owner));
        // It may have made the heap longer.
        self.find_spans()?;
        let _window = self.mem.window();
        let lines = |lane: u32| self.places.lane_line(lane);
        let owner = |lane: u32| self.mem.load_cached(lines(lane) + LANE_OWNER_OFFSET);
        let lanes: Vec<u32> = (0..self.header.lanes)
            .filter(|&lane| is_dead(owner(lane)))
            .collect();
        if planted!("bug-rescue-unlocks-first") {
            self.open_locks_of(&is_dead);
        }
        let mut undone = Undone::default();
        for &lane in &lanes {
            undone.transactions += u64::from(self.finish(lane)?);
            undone.calls += 1;
        }
        if !planted!("bug-reserved-of-the-dead-kept") {
            self.give_chunks_back(&lanes, &is_dead);
        }
        self.open_locks_of(&is_dead);
        for lane in lanes {
            owner::release(&self.share, lines(lane) + LANE_OWNER_OFFSET);
        }
        Ok(undone)
    }

    /// Processes hold nothing open.
    fn close(&self, _slot: u64) -> u64 {
        0
    }
}

impl Core {
    /// Has a dead thread's lane be one that has nothing left to do; answers whether its last record
    /// was to be put in place.
    fn finish(&self, lane: u32) -> Result<bool> {
        let line = self.places.lane_line(lane);
        let last = self.mem.load_cached(line + LAST_OFFSET);
        let place = self.mem.load_cached(line + LAST_RECORD_OFFSET);
        let mut record = Vec::new();
        let (mut closes, mut is_completed) = (last, false);
        let read = match place {
            0 => None,
            _ => self.read_record(lane, place, &mut record)?,
        };
        if let Some(stamp) = read
            && self.key.hash(place, &record[1..]) == record[0]
        {
            if stamp > last && !planted!("bug-record-of-the-dead-left") {
                self.complete(&record)?;
                self.mem.store(line + LAST_OFFSET, stamp);
                is_completed = true;
            }
            closes = closes.max(stamp);
            if !planted!("bug-rescue-unflushed") {
                self.flush_record(&record)?;
            }
        }
        if !planted!("bug-record-of-the-dead-open") {
            closes = self.greatest_stamp(lane, closes)?;
        }
        self.mem.fence();
        if self.closed(lane).is_err() {
            // All of the lane is in place by now.
            let offset = self.places.lane(lane) + CLOSED_OFFSET;
            self.mem.store(offset, closed_word(closes));
        }
        self.close(lane, closes)?;
        self.flush_closed(lane);
        self.mem.fence();
        self.mem.store(line + DONE_OFFSET, closes);
        self.mem.store(line + SETTLED_OFFSET, closes);
        self.mem.store(line + LAST_OFFSET, closes);
        self.mem.store(line + LAST_RECORD_OFFSET, 0);
        self.mem
            .store(line + HEAD_OFFSET, self.places.ring(lane).start);
        self.mem.store(line + WAITS_OFFSET, 0);
        self.mem.write(line + CURRENT_OFFSET, &[0; CLASSES]);
        Ok(is_completed)
    }

    /// Stores what a record says in place, of chunks that its dead thread has locked.
    fn complete(&self, record: &[u64]) -> Result<()> {
        let mut outside = Vec::new();
        let entries = self.entries_of(record, &mut outside)?.unwrap_or(&[]);
        let stored = || {
            let all = steps(entries).map_while(|step| step.ok());
            all.filter(|step| step.stores() && step.is_within(self.mem.len()))
        };
        let chunks = |step: &Step<'_>| {
            step.offset / CHUNK_BYTES..=(step.offset + step.bytes() - 1) / CHUNK_BYTES
        };
        for chunk in stored().flat_map(|step| chunks(&step)) {
            self.mark_changing(self.line(chunk), true);
        }
        self.redo(stored());
        for chunk in stored().flat_map(|step| chunks(&step)) {
            self.mark_changing(self.line(chunk), false);
        }
        Ok(())
    }

    /// The greatest stamp of a lane's records whose check holds, or `least`.
    fn greatest_stamp(&self, lane: u32, least: u64) -> Result<u64> {
        let mut greatest = least;
        let mut record = Vec::new();
        for place in self.places.ring(lane).step_by(LINE_BYTES as usize) {
            let stamp = self.mem.load(place + 8);
            if stamp <= greatest || stamp >= STAMP_END {
                continue;
            }
            let is_whole = self.read_record(lane, place, &mut record)? == Some(stamp)
                && self.key.hash(place, &record[1..]) == record[0];
            if is_whole {
                greatest = stamp;
            }
        }
        Ok(greatest)
    }

    /// Chunks that these lanes had are nobody's, and those of runs whose the table says.
    fn give_chunks_back(&self, lanes: &[u32], is_dead: &impl Fn(u64) -> bool) {
        for span in self.spans.iter() {
            let mut run_end = 0;
            for chunk in span.first + span.meta_chunks..span.first + span.chunks {
                // One that belongs to an earlier chunk is as one of a run.
                let mut entry = Entry {
                    kind: KIND_RUN,
                    ..Entry::default()
                };
                if chunk >= run_end {
                    entry = Entry::of(self.mem.load(span.entry(chunk)));
                    run_end = chunk + entry.extent();
                }
                let line = span.line(chunk);
                let used = self.mem.load_cached(line + USE_OFFSET);
                let is_theirs = match used {
                    0 => false,
                    USE_RUN => is_dead(self.mem.load_cached(line + OWNER_OFFSET)),
                    lane => lanes.iter().any(|&dead| u64::from(dead) + 1 == lane),
                };
                if !is_theirs {
                    continue;
                }
                if chunk < run_end && !matches!(entry.kind, KIND_FREE | KIND_OBJECTS) {
                    self.set_use(chunk, 1, USE_RUN);
                    continue;
                }
                self.set_use(chunk, 1, 0);
                match entry.kind {
                    KIND_FREE => self.space().give(chunk, 1),
                    KIND_OBJECTS if entry.class < CLASSES => {
                        self.space().list(chunk, entry.class);
                    }
                    _ => {}
                }
            }
        }
    }

    /// Opens the locks of the dead.
    fn open_locks_of(&self, is_dead: &impl Fn(u64) -> bool) {
        let owned = |word: u64| is_dead(self.mem.load_cached(word));
        for span in self.spans.iter() {
            for line in span.lines().step_by(chunk::CHUNK_LINE_BYTES as usize) {
                if !owned(line + OWNER_OFFSET) {
                    continue;
                }
                let sequence = self.mem.load_cached(line + SEQUENCE_OFFSET);
                if sequence & 1 == 1 {
                    self.mem.store(line + SEQUENCE_OFFSET, sequence + 1);
                }
                owner::release(&self.share, line + OWNER_OFFSET);
            }
        }
        for line in self.lock_lines().filter(|&line| owned(line)) {
            self.mem.store(line + LOCK_LANE_OFFSET, 0);
            owner::release(&self.share, line);
        }
        for word in [self.places.shared + GROW_OFFSET, self.layout().closing] {
            if owned(word) {
                owner::release(&self.share, word);
            }
        }
    }
}
