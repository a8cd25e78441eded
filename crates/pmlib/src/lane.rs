//! Lanes: redo records with one wait (docs/adr/0062-redo-with-one-fence.md).
//!
//! A commit in a lane, in this order:
//! 1. The chunks that it changes are locked, in order. Their last records are known then.
//! 2. Records among them that are another lane's and not closed: what they stored is flushed.
//! 3. New objects and the record are stored past the caches. The record's stamp is greater than
//!    those of all that it follows. An instruction that locks the bus would wait for these stores,
//!    so no lock is taken after them.
//! 4. **The fence.** The record is durable; so are new objects, what step 2 flushed, and all that
//!    the lane's previous record stored: it was flushed right before.
//! 5. The words are stored in place. The lane's lines say from the fence on where the record is,
//!    and now that it is in place: between the two, whoever cleans up after a killed process stores
//!    its words again (`crates/pmlib/src/rescue.rs`).
//! 6. The locks are opened.
//! 7. Before the lane's next fence all of these words are flushed, and the records that this one
//!    supersedes are closed, in the words of their lanes. Not sooner: an instruction that locks the
//!    bus waits for each flush before it, and a transaction has several of them.
//!
//! - A record is closed if its stamp is at most its lane's `closed`, or the `done` of a whole
//!   record of its lane: at its making, all up to that stamp was in place for good. Recovery redoes
//!   the others, by ascending stamp. So neither may be durable before the words in place are, nor
//!   before the closings that the record brought about. `closed` is flushed by other lanes, and by
//!   the own one when it comes to rest.
//! - A record may be durable and the content of a new object not, when power fails before the
//!   fence. So the record has a hash of that content (`crates/pmlib/src/recovery.rs`).
//! - A record's room in the ring is used again after the lane's next fence, and places that it
//!   freed when its closing is durable: after one more.
//! - Fences are a thread's, and so is what each of them is for: a thread, of any process, flushes
//!   what the lane's last one has stored before its own fence.

mod closing;

use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};

use pmlib_format::CHUNK_BYTES;
use pmlib_format::chunk::{GROUP_BYTES, GROUP_CHUNKS, KIND_FREE, KIND_RUN, USE_RUN};
use pmlib_format::lane::{CLOSED_OFFSET, DONE_OFFSET, LANE_OWNER_OFFSET, SETTLED_OFFSET};
use pmlib_format::record::{FLAG_OUTSIDE, HEAD_WORDS, SUPERSEDED_MAX};
use pmlib_format::{LINE_BYTES, WORD_BYTES};
use pmshare::holder::thread_tag;
use pmshare::{owner, rescue};
use zerocopy::IntoBytes;

use crate::change::{Change, Freed};
use crate::copies::Copies;
use crate::engine::Core;
use crate::error::{Error, Result};
use crate::packed::{Ticket, done_of, done_word};
use crate::protocol::{LanePlace, LaneState};
use crate::record::{Act, Entries, Head, Step};
use crate::space::{Claim, Room};
use crate::tx::PREFETCHED_MAX;

/// Entries or words that each buffer of a lane has room for when no transaction goes on.
const KEPT: usize = 4096;
const WORDS_A_LINE: usize = (LINE_BYTES / WORD_BYTES) as usize;

/// A lane, by the thread that has it.
#[derive(Debug, Default)]
pub(crate) struct Lane {
    index: u32,
    /// The heap that it is of, by its id.
    heap: u64,
    /// Where its ring is.
    ring: std::ops::Range<u64>,
    /// Its words that others look at.
    state: LaneState,
    /// Chunks that its transaction needs to its end, and takes no places from.
    pub full: Vec<Claim>,
    chunks: Vec<u64>,
    /// The lines of those that a commit locks, in the order of the chunks.
    lines: Vec<u64>,
    superseded: Vec<Ticket>,
    /// The places that the last record of this thread has stored to, of whichever heap and lane,
    /// and the records that it closes.
    owed: Vec<Head>,
    closes: Vec<Ticket>,
    /// The heap and the lane that it is of, and its stamp.
    owed_of: (u64, u32, u64),
    /// Room for a record that does not follow its entries' head, or was read.
    buffer: Vec<u64>,
}

impl Lane {
    pub fn index(&self) -> u32 {
        self.index
    }

    /// The id of the heap that it is of, or was last.
    pub fn heap(&self) -> u64 {
        self.heap
    }

    /// The lane among those who have chunks.
    pub fn as_user(&self) -> u64 {
        u64::from(self.index) + 1
    }

    /// Gives back the memory that a long record took, but for a little.
    #[inline(always)]
    fn trim(&mut self) {
        let buffers = [&self.buffer, &self.chunks, &self.lines];
        let most = buffers.map(Vec::capacity).into_iter().max();
        if most.max(Some(self.owed.capacity())) > Some(KEPT) {
            self.trim_long();
        }
    }

    #[cold]
    fn trim_long(&mut self) {
        if self.owed.capacity() > KEPT {
            // The record itself says where it has stored, to whoever flushes that.
            (self.owed, self.owed_of) = (Vec::new(), (0, 0, 0));
        }
        for buffer in [&mut self.buffer, &mut self.chunks, &mut self.lines] {
            if buffer.capacity() > KEPT {
                *buffer = Vec::new();
            }
        }
    }

    /// Room in the ring that a record may take.
    fn record_max(&self) -> u64 {
        (self.ring.end - self.ring.start) / 2
    }
}

/// A lane that is none now, for its buffers: the next one of its thread has them, and the places
/// that the last record has stored to.
pub(crate) type Spare = Option<Box<Lane>>;

/// A lane that this thread has, until this is dropped.
pub(crate) struct Lease<'h> {
    core: &'h Core,
    /// There until the drop.
    lane: Option<Box<Lane>>,
    /// It names the thread.
    of: PhantomData<*const ()>,
}

impl Deref for Lease<'_> {
    type Target = Lane;

    fn deref(&self) -> &Lane {
        self.lane.as_deref().expect("there until the drop")
    }
}

impl DerefMut for Lease<'_> {
    fn deref_mut(&mut self) -> &mut Lane {
        self.lane.as_deref_mut().expect("there until the drop")
    }
}

impl Lease<'_> {
    /// Whether the lane is still this thread's. A forked child's copy is the parent's; after a
    /// commit that broke off the lane was cleaned up after.
    #[inline]
    pub fn is_mine(&self) -> bool {
        let core = self.core;
        // A child may not have the mapping, and asks for its life alone.
        pmem::life::number() == core.life && {
            let owner = core.mem.load_cached(core.lane_owner(self.index));
            owner & !owner::OWNER_WAITERS == core.holder().word()
        }
    }

    /// Gives the lane back, which is this thread's; answers what is left of it.
    #[inline(always)]
    pub fn end(mut self) -> Spare {
        self.free();
        let mut lane = self.lane.take();
        // Nothing is left to drop.
        std::mem::forget(self);
        if let Some(lane) = &mut lane {
            lane.trim();
        }
        lane
    }

    #[inline(always)]
    fn free(&mut self) {
        owner::release_by_store(&self.core.share, self.core.lane_owner(self.index));
    }
}

impl Drop for Lease<'_> {
    #[inline]
    fn drop(&mut self) {
        if self.lane.is_some() && self.is_mine() {
            self.free();
        }
    }
}

impl Core {
    /// Where a lane's words are that others look at.
    #[inline(always)]
    pub fn lane_place(&self, index: u32) -> LanePlace {
        LanePlace {
            closed: self.places.lane(index) + CLOSED_OFFSET,
            line: self.places.lane_line(index),
        }
    }

    /// The word of a lane's owner.
    #[inline]
    pub fn lane_owner(&self, index: u32) -> u64 {
        self.places.lane_line(index) + LANE_OWNER_OFFSET
    }

    /// A lane, if nobody has it; `spare` is used up then.
    #[inline(always)]
    pub fn try_lease(&self, index: u32, spare: &mut Spare) -> Option<Lease<'_>> {
        let owner = self.lane_owner(index);
        let is_free = self.mem.load_cached(owner) == 0;
        let is_mine = is_free && owner::try_acquire(&self.share, owner);
        is_mine.then(|| self.leased(index, spare.take()))
    }

    /// A lane, once nobody else has it. The caller has nothing that others may wait for.
    pub fn lease(&self, index: u32) -> Lease<'_> {
        owner::acquire(self, self.lane_owner(index));
        self.leased(index, None)
    }

    #[inline(always)]
    fn leased(&self, index: u32, spare: Spare) -> Lease<'_> {
        let mut lane = spare.unwrap_or_default();
        (lane.heap, lane.index) = (self.id, index);
        lane.ring = self.places.ring(index);
        lane.state = self.lane_place(index).state(&self.mem);
        lane.full.clear();
        Lease {
            core: self,
            lane: Some(lane),
            of: PhantomData,
        }
    }
}

impl Core {
    /// Does what `change` says, all or nothing, durable when it returns; in a write window, by the
    /// thread that has the lane. `fresh`: new objects of which the record has a hash.
    ///
    /// # Errors
    /// `NoObject`: something that it frees was freed already. `Full`: its record is long, and there
    /// is no room for it. After an error nothing has changed.
    pub fn commit(
        &self,
        lane: &mut Lane,
        change: &mut Change,
        fresh: Option<&Copies>,
    ) -> Result<()> {
        if change.is_empty() {
            return Ok(());
        }
        self.note_chunks(lane, change);
        let mut stamp = lane.state.last;
        lane.superseded.clear();
        let guard = BreaksOff(self);
        for &line in &lane.lines {
            let Some(pending) = self.lock_at(line) else {
                continue;
            };
            if !planted!("bug-stamp-without-pending") {
                stamp = stamp.max(pending.stamp);
            }
            if pending.lane != lane.index {
                lane.superseded.push(pending);
            }
        }
        let done = self.locked(lane, stamp + 1, change, fresh);
        std::mem::forget(guard);
        // An error is long: it is moved only where there is one.
        match done {
            Ok(()) => Ok(()),
            Err(error) => {
                self.give_up(lane);
                Err(error)
            }
        }
    }

    /// Opens the locks of a commit that has changed nothing.
    #[cold]
    fn give_up(&self, lane: &Lane) {
        for &line in &lane.lines {
            self.unlock_at(line);
        }
    }

    /// Asks for the lines of a range.
    pub fn prefetch(&self, offset: u64, bytes: u64) {
        let first = offset & !(LINE_BYTES - 1);
        for line in (first..offset + bytes).step_by(LINE_BYTES as usize) {
            self.mem.prefetch_if_there(line);
        }
    }

    /// Notes the chunks that a change locks, and asks for those lines that it stores in place and
    /// that nobody has asked for.
    fn note_chunks(&self, lane: &mut Lane, change: &Change) {
        lane.chunks.clear();
        for head in change.entries.heads() {
            if head.bytes > PREFETCHED_MAX && head.stores() {
                self.prefetch(head.offset, head.bytes);
            }
            let first = head.offset / CHUNK_BYTES;
            let last = (head.offset + head.bytes - 1) / CHUNK_BYTES;
            if first != last {
                lane.chunks.extend(first..=last);
            } else if lane.chunks.last() != Some(&last) {
                lane.chunks.push(last);
            }
        }
        for &(chunk, ..) in &change.table {
            let span = self.span_of(chunk).expect("a chunk of the heap");
            lane.chunks.push(span.entry(chunk) / CHUNK_BYTES);
        }
        for freed in &change.freed {
            // Their next owner stores there without a record: no earlier record may be redone.
            lane.chunks.extend(match freed {
                &Freed::Chunks(first, chunks) => first..first + chunks,
                Freed::Place(_) if planted!("bug-wide-free-locks-its-bit-alone") => 0..0,
                Freed::Place(place) => place.covered(),
            });
        }
        if !lane.chunks.is_sorted_by(|one, next| one < next) {
            lane.chunks.sort_unstable();
            lane.chunks.dedup();
        }
        lane.lines.clear();
        for &chunk in &lane.chunks {
            lane.lines.push(self.line(chunk));
        }
    }

    /// The commit, from when the chunks are locked.
    fn locked(
        &self,
        lane: &mut Lane,
        stamp: u64,
        change: &mut Change,
        fresh: Option<&Copies>,
    ) -> Result<()> {
        self.test(change)?;
        self.write_table(change);
        self.follow(lane)?;
        self.flush_owed(lane)?;
        if let Some(copies) = fresh {
            // After the locks: an instruction that locks the bus waits for such stores.
            copies.store_fresh(self)?;
        }
        if planted!("bug-redo-in-place-before-fence") {
            self.redo(change.entries.steps());
        }
        let (start, outside) = self.write_record(lane, stamp, change)?;
        if !planted!("bug-redo-log-unfenced") {
            self.mem.fence();
        }
        // The record is durable: from here on nothing may fail.
        let place = self.lane_place(lane.index);
        place.fenced(&self.mem, &mut lane.state, start);
        for &line in &lane.lines {
            self.mark_changing(line, true);
        }
        self.put_in_place(&change.entries);
        let ticket = Ticket {
            lane: lane.index,
            stamp,
        };
        self.in_place(lane, stamp, change);
        for &line in &lane.lines {
            self.mark_changing(line, false);
            self.set_pending(line, ticket);
        }
        if let Some((first, chunks)) = outside {
            for chunk in first..first + chunks {
                self.set_pending(self.line(chunk), ticket);
            }
            self.set_use(first, chunks, 0);
            self.space().wait_for(ticket, Room::Chunks(first, chunks));
        }
        // Freed chunks may be taken from here on, when the record is closed.
        self.set_uses(change);
        for &line in &lane.lines {
            self.unlock_at(line);
        }
        // A chunk that is listed is looked at by whoever takes it: its new room is found then.
        let is_known = |freed: &Freed| match freed {
            Freed::Place(place) => self.seen.has(place.chunk),
            Freed::Chunks(..) => false,
        };
        if !change.freed.iter().all(is_known) {
            let mut space = self.space();
            for freed in &change.freed {
                let room = match *freed {
                    Freed::Place(place) => Room::In(place.chunk, place.class),
                    Freed::Chunks(first, chunks) => Room::Chunks(first, chunks),
                };
                space.wait_for(ticket, room);
            }
            space.settle_lane(self, lane.index);
        }
        Ok(())
    }

    /// Chunks are whose the table says, of a record that is in place.
    fn set_uses(&self, change: &Change) {
        for &(chunk, before, after) in &change.table {
            match (before.kind, after.kind) {
                (_, KIND_RUN) => self.set_use(chunk, after.chunks, USE_RUN),
                (_, KIND_FREE) => self.set_use(chunk, before.extent(), 0),
                // One of objects stays the lane's, that it may take places from it.
                _ => self.set_use(chunk + 1, after.extent() - 1, USE_RUN),
            }
        }
    }

    /// Whether what is to be freed is there, and what is to be made is not.
    fn test(&self, change: &mut Change) -> Result<()> {
        if change.entries.has_bits() {
            let tested = change.entries.test_bits(|offset| self.mem.load(offset));
            tested.map_err(|offset| Error::NoObject { offset })?;
        }
        for &(chunk, before, _) in &change.table {
            if self.entry(chunk) != Some(before) {
                let offset = chunk * CHUNK_BYTES;
                return Err(Error::NoObject { offset });
            }
        }
        Ok(())
    }

    /// Adds what changes in the chunk table, with the checks of its groups.
    fn write_table(&self, change: &mut Change) {
        if change.table.is_empty() {
            return;
        }
        change.table.sort_unstable_by_key(|&(chunk, ..)| chunk);
        let mut rest = &change.table[..];
        while let [(chunk, ..), ..] = *rest {
            let span = self.span_of(chunk).expect("a chunk of the heap");
            let group = span.entry(chunk) / GROUP_BYTES * GROUP_BYTES;
            let mut words: [u64; GROUP_WORDS] = self.mem.read(group);
            // The next span's chunks have a table of their own, whose numbers go on in this one's.
            let is_here = |chunk: u64| {
                (chunk < span.first + span.chunks || planted!("bug-entries-in-the-span-before"))
                    && (group..group + GROUP_BYTES).contains(&span.entry(chunk))
            };
            let here = rest.iter().take_while(|entry| is_here(entry.0)).count();
            for &(chunk, _, after) in &rest[..here] {
                let at = ((span.entry(chunk) - group) / 8) as usize;
                words[at..at + 2].copy_from_slice(&after.words());
                change.entries.write(span.entry(chunk), &after.words());
            }
            let check = GROUP_CHUNKS * 16;
            change.entries.write(group + check, &[group_check(&words)]);
            rest = &rest[here..];
        }
    }

    /// Puts the record together and stores it; answers where it is, and chunks that it takes beside
    /// the ring.
    #[inline(always)]
    fn write_record(
        &self,
        lane: &mut Lane,
        stamp: u64,
        change: &mut Change,
    ) -> Result<(u64, Option<(u64, u64)>)> {
        let count = lane.superseded.len();
        assert!(count <= SUPERSEDED_MAX, "at most one of each lane");
        let words = HEAD_WORDS + count + change.entries.words().len();
        let is_long = (words as u64 * 8).next_multiple_of(LINE_BYTES) > lane.record_max();
        if count == 0 && !is_long {
            let start = self.store_record(lane, stamp, change.entries.as_record(), 0)?;
            return Ok((start, None));
        }
        let mut record = std::mem::take(&mut lane.buffer);
        record.clear();
        record.resize(HEAD_WORDS, 0);
        record.extend(lane.superseded.iter().map(|ticket| ticket.word()));
        let (mut outside, mut flags) = (None, 0);
        if is_long {
            let (place, chunks) = self.write_outside(lane, change.entries.words())?;
            record.extend(place);
            (outside, flags) = (Some(chunks), FLAG_OUTSIDE);
        } else {
            record.extend_from_slice(change.entries.words());
        }
        let stored = self.store_record(lane, stamp, &mut record, flags);
        lane.buffer = record;
        match (stored, outside) {
            (Ok(start), outside) => Ok((start, outside)),
            (Err(error), outside) => {
                if let Some((first, chunks)) = outside {
                    self.untake(first, chunks);
                }
                Err(error)
            }
        }
    }

    /// Stores a record that is put together but for its head; answers where.
    #[inline]
    fn store_record(
        &self,
        lane: &mut Lane,
        stamp: u64,
        record: &mut Vec<u64>,
        flags: u64,
    ) -> Result<u64> {
        // The record says which ones are in place for good now, and not when it is durable itself.
        let done = if planted!("bug-closed-before-homes") {
            lane.state.last
        } else {
            lane.state.done
        };
        let words = record.len();
        let count = lane.superseded.len() as u64;
        let size = words as u64 | count << 32 | flags << 48;
        record[1..HEAD_WORDS].copy_from_slice(&[stamp, size, done_word(done, stamp, size)]);
        let bytes = (words as u64 * 8).next_multiple_of(LINE_BYTES);
        let start = self.room(lane, bytes)?;
        record[0] = self.key.hash(start, &record[1..]);
        let lines = bytes as usize / 8;
        record.extend_from_slice(&[0; WORDS_A_LINE][..lines - words]);
        let stored = self.mem.write_nt(start, record.as_bytes());
        record.truncate(words);
        stored.inspect_err(|_| self.broke())?;
        lane.state.head = start + bytes;
        Ok(start)
    }

    /// Stores entries in free chunks; answers what a record says of them.
    fn write_outside(&self, lane: &Lane, entries: &[u64]) -> Result<([u64; 3], (u64, u64))> {
        let bytes = entries.len() as u64 * 8;
        let chunks = bytes.div_ceil(CHUNK_BYTES);
        let mut first = self.take(lane, chunks);
        while first.is_none() && self.grow(chunks)? {
            first = self.take(lane, chunks);
        }
        let first = first.ok_or(Error::Full { wanted: bytes })?;
        let start = first * CHUNK_BYTES;
        let stored = self.mem.write_nt(start, entries.as_bytes());
        if let Err(fault) = stored {
            self.broke();
            self.untake(first, chunks);
            return Err(fault.into());
        }
        let place = [start, entries.len() as u64, self.key.hash(start, entries)];
        Ok((place, (first, chunks)))
    }

    /// Room for a record in the ring, beside the last one: those before it are in place for good.
    fn room(&self, lane: &mut Lane, bytes: u64) -> Result<u64> {
        let mut start = lane.state.head;
        if start + bytes > lane.ring.end {
            start = lane.ring.start;
        }
        let last = lane.state.last_record..lane.state.head;
        let overlaps = last.start < start + bytes && start < last.end;
        if overlaps && !planted!("bug-ring-reused-early") {
            self.drain(lane)?;
        }
        Ok(start)
    }

    /// Closes the lane's last record durably: two waits.
    pub fn drain(&self, lane: &mut Lane) -> Result<()> {
        if lane.state.settled < lane.state.last {
            if !planted!("bug-drained-unflushed") {
                self.flush_owed(lane)?;
            }
            self.mem.fence();
            self.close(lane.index, lane.state.last)?;
            self.flush_closed(lane.index);
            self.mem.fence();
            (lane.state.done, lane.state.settled) = (lane.state.last, lane.state.last);
            let line = self.places.lane_line(lane.index);
            self.mem.store(line + DONE_OFFSET, lane.state.done);
            self.mem.store(line + SETTLED_OFFSET, lane.state.settled);
        }
        Ok(())
    }

    /// The lane's last record is in place. Its stores are flushed before the next fence.
    fn in_place(&self, lane: &mut Lane, stamp: u64, change: &mut Change) {
        change.entries.give_heads(&mut lane.owed);
        if !lane.superseded.is_empty() || !lane.closes.is_empty() {
            std::mem::swap(&mut lane.superseded, &mut lane.closes);
        }
        lane.owed_of = (self.id, lane.index, stamp);
        let place = self.lane_place(lane.index);
        place.in_place(&self.mem, &mut lane.state, stamp);
    }

    /// Stores in place what a tested record says; it is not flushed.
    #[inline(always)]
    fn put_in_place(&self, entries: &Entries) {
        let mut changed = entries.changed().iter();
        for step in entries.steps() {
            match step.act {
                // A load would wait: the last record's stores have been flushed, mostly of the same
                // line, and a flush may drop the line.
                Act::Set(_) | Act::Clear(_) => match changed.next() {
                    Some(&word) => self.mem.store(step.offset, word),
                    None => self.redo_step(step),
                },
                _ => self.redo_step(step),
            }
        }
    }

    /// Stores what a record says in place; it is not flushed.
    pub fn redo<'a>(&self, steps: impl Iterator<Item = Step<'a>>) {
        steps.for_each(|step| self.redo_step(step));
    }

    #[inline(always)]
    fn redo_step(&self, step: Step<'_>) {
        match step.act {
            Act::Write(words) => self.mem.write(step.offset, words),
            Act::Set(bits) => {
                let word = self.mem.load(step.offset);
                self.mem.store(step.offset, word | bits);
            }
            Act::Clear(bits) => {
                let word = self.mem.load(step.offset);
                self.mem.store(step.offset, word & !bits);
            }
            Act::Fresh(..) => {}
        }
    }

    /// Does what [`Core::drain`] does; all the lane's chunks are left, but for those in which its
    /// transaction has `reserved` places (sorted).
    pub fn quiet(&self, lane: &mut Lane, reserved: &[u64]) -> Result<()> {
        self.drain(lane)?;
        self.leave_chunks(lane, reserved);
        Ok(())
    }

    /// Reads the record at `start` of a lane's ring, if one can be there; answers its stamp. Its
    /// check is the caller's to compare, if the record may be torn.
    pub fn read_record(&self, lane: u32, start: u64, to: &mut Vec<u64>) -> Result<Option<u64>> {
        let ring = self.places.ring(lane);
        if !ring.contains(&start) || !start.is_multiple_of(LINE_BYTES) {
            return Ok(None);
        }
        let size = self.mem.load(start + 16);
        let (words, superseded) = (size as u32 as usize, (size >> 32) as u16 as usize);
        let fits = words as u64 * 8 <= ring.end - start;
        if !fits || words < HEAD_WORDS + superseded {
            return Ok(None);
        }
        let [stamp, done] = [8, 24].map(|at| self.mem.load(start + at));
        if done_of(done, stamp, size).is_none() {
            return Ok(None);
        }
        self.words(start, words, to)?;
        // Read twice: another lane may be storing here.
        Ok((to[2] == size).then_some(to[1]))
    }

    /// A whole record's entries; `None`: those outside are not whole.
    pub fn entries_of<'a>(
        &self,
        record: &'a [u64],
        outside: &'a mut Vec<u64>,
    ) -> Result<Option<&'a [u64]>> {
        let rest = &record[HEAD_WORDS + superseded_of(record).len()..];
        if !is_outside(record) {
            return Ok(Some(rest));
        }
        let &[start, words, check] = rest else {
            return Ok(None);
        };
        let fits = words
            .checked_mul(8)
            .and_then(|bytes| bytes.checked_add(start))
            .is_some_and(|end| end <= self.mem.len());
        if !fits {
            return Ok(None);
        }
        self.words(start, words as usize, outside)?;
        let whole = self.key.hash(start, outside) == check;
        Ok(whole.then_some(&outside[..]))
    }
}

/// The tickets in a record that was read.
pub(crate) fn superseded_of(record: &[u64]) -> &[u64] {
    let count = (record[2] >> 32) as u16 as usize;
    &record[HEAD_WORDS..HEAD_WORDS + count]
}

/// Whether the entries of a record that was read stand elsewhere.
fn is_outside(record: &[u64]) -> bool {
    record[2] >> 48 & FLAG_OUTSIDE != 0
}

/// Words of a group of the chunk table.
pub(crate) const GROUP_WORDS: usize = (GROUP_BYTES / 8) as usize;

/// The check of a group's entries.
pub(crate) fn group_check(words: &[u64; GROUP_WORDS]) -> u64 {
    let entries = &words[..GROUP_CHUNKS as usize * 2];
    crc32c::crc32c(entries.as_bytes()).into()
}

/// A panic in the middle of a commit: nothing that this process knows is believed any more, and its
/// thread is cleaned up after like a dead one, for others go on.
struct BreaksOff<'a>(&'a Core);

impl Drop for BreaksOff<'_> {
    fn drop(&mut self) {
        self.0.broke();
        rescue::clean_after_thread(self.0, thread_tag());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Heap, Options};

    /// Goal: a thread does not keep the memory of its longest transaction. Method: one of more
    /// ranges than are kept, in a record outside the ring, and the lane's buffers after it.
    #[test]
    fn a_long_record_leaves_little_memory() {
        let heap = Heap::private(8 << 20, &Options::default()).unwrap();
        let object = heap.tx(|tx| tx.alloc(2 << 20)).unwrap();
        let ranges = 2 * KEPT as u64;
        heap.tx(|tx| (0..ranges).try_for_each(|nth| tx.write_bytes(object, nth * 128, &[1; 8])))
            .unwrap();
        let lane = crate::tx::spare_lane().expect("the last one");
        let kept = [&lane.buffer, &lane.chunks, &lane.lines].map(Vec::capacity);
        assert!(kept.into_iter().all(|kept| kept <= KEPT), "{kept:?}");
        assert!(lane.owed.capacity() <= KEPT, "{}", lane.owed.capacity());
    }
}
