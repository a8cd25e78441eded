//! Bytes that are durable apart from the transactions' records
//! (`docs/adr/0065-records-of-a-log-apart.md`).
//!
//! A log appends to its last segment with one fence and without a record of the lane. For that:
//! - Its segments are made *apart*: their content is durable before the record that makes them, and
//!   the record has no hash of it. So their content may change while recovery can still redo that
//!   record.
//! - Bytes are stored where no open record stores anything: behind what the segment holds. The
//!   segment itself was given out by the allocator, after all records on its place were closed.
//! - A *mark* tells the others of the run how far the segment is filled with what is durable. It is
//!   a plain word in the segment, stored after the fence, or after the transaction's record is in
//!   place. It has the run's number, and the era of that beside it: no later run believes it.
//! - A mark is *busy* while a record is being added. It stays so if that breaks off, and then says
//!   less than is there; who finds it with the log's lock in hand looks at the bytes.
//! - A reader without the lock that finds a busy mark looks whether a whole record stands behind
//!   what it says. If so it waits for the lock: what else that record's transaction has changed may
//!   have been seen.

use pmlib_format::WORD_BYTES;
use pmlib_format::header::{ERA_OFFSET, RUN_OFFSET};

use crate::engine::Core;
use crate::error::{Error, Result};
use crate::pointer::RawP;
use crate::protocol;
use crate::reader::Look;
use crate::tx::Tx;
use crate::view::View;

/// How far a segment is filled, bytes, as this run knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mark {
    /// Nobody has looked in this run, or an addition broke off.
    Unknown,
    Filled(u64),
    /// So far at least. The container is locked: more is being added, by its holder or, before
    /// that one, by one that died when it was in place and not yet told of.
    Busy(u64),
}

impl Core {
    /// The era of this run, which marks have beside them.
    fn era(&self) -> u64 {
        self.mem.load_cached(ERA_OFFSET)
    }

    /// A mark's word: the run above the words that are filled, and whether more are being added.
    fn mark_word(&self, filled: u64, is_busy: bool) -> u64 {
        let words = filled / WORD_BYTES;
        debug_assert!(words < 1 << 31, "no record is so long");
        self.mem.load_cached(RUN_OFFSET) << 32 | words << 1 | u64::from(is_busy)
    }

    /// Stores a mark, in a write window.
    pub fn store_mark(&self, place: u64, word: u64) {
        protocol::store_mark(&self.mem, place, self.era(), word);
    }

    /// The meaning of a word in this run: how much is filled, and whether it is busy.
    fn mark_of(&self, word: u64) -> Option<(u64, bool)> {
        let run = self.mem.load_cached(RUN_OFFSET) as u32;
        let filled = u64::from(word as u32 >> 1) * WORD_BYTES;
        ((word >> 32) as u32 == run && word != 0).then_some((filled, word & 1 != 0))
    }
}

impl View<'_> {
    /// The mark at `place`, of a container whose lock is `key`.
    pub(crate) fn mark(&self, place: u64, key: RawP) -> Mark {
        if let Some(tx) = self.tx() {
            return tx.mark(place);
        }
        let core = self.core();
        if let Some((_, Look::Rest(_))) = self.reader() {
            // It was not durable: power may have failed since the heap was left.
            return Mark::Unknown;
        }
        let seen = protocol::look_at_mark(
            &core.mem,
            place,
            core.era(),
            |word| core.mark_of(word),
            || core.is_locked(key.0),
        );
        match seen {
            None => Mark::Unknown,
            Some((filled, false)) => Mark::Filled(filled),
            Some((filled, true)) => Mark::Busy(filled),
        }
    }

    /// Has bytes that were read be durable, which another process has stored.
    pub(crate) fn persist(&self, (from, len): (u64, u64)) {
        let mem = &self.core().mem;
        if len > 0 && mem.needs_flush() {
            mem.flush(from, len);
            mem.fence();
        }
    }

    /// The check of words that stand at `place`.
    pub(crate) fn check(&self, place: u64, words: &[u64]) -> u64 {
        // Never 0, which is where nothing was stored.
        self.core().key.hash(place, words).max(1)
    }
}

impl Tx<'_> {
    /// Like [`Tx::alloc`]. The content is durable before the transaction's record, and is not part
    /// of it: it may be changed without a record.
    pub(crate) fn alloc_apart(&mut self, size: u64) -> Result<u64> {
        let offset = self.alloc(size)?;
        self.work.plan.is_apart |= !planted!("bug-segment-hashed");
        Ok(offset)
    }

    /// The era that a new segment has beside its mark.
    pub(crate) fn era(&self) -> u64 {
        self.core().era()
    }

    /// A mark, as the holder of the container's lock sees it.
    pub(crate) fn mark(&self, place: u64) -> Mark {
        let marks = &self.work.plan.marks;
        let of_plan = marks.iter().find(|&&(other, _)| other == place);
        let core = self.core();
        let word = match of_plan {
            Some(&(_, word)) => word,
            None => protocol::mark_of_holder(&core.mem, place, core.era()),
        };
        match core.mark_of(word) {
            Some((filled, false)) => Mark::Filled(filled),
            _ => Mark::Unknown,
        }
    }

    /// Has a mark say so once the transaction has committed; `old`: what it says until then.
    pub(crate) fn set_mark(&mut self, place: u64, old: u64, filled: u64) {
        let word = self.core().mark_word(filled, false);
        let known = self
            .work
            .plan
            .marks
            .iter_mut()
            .find(|(other, _)| *other == place);
        if let Some((_, known)) = known {
            *known = word;
            return;
        }
        self.set_mark_busy(place, old);
        self.work.plan.marks.push((place, word));
    }

    /// Has the mark of an object that this transaction makes say so once it has committed.
    pub(crate) fn set_first_mark(&mut self, place: u64, filled: u64) {
        let word = self.core().mark_word(filled, false);
        self.work.plan.marks.push((place, word));
    }

    /// Leaves a mark as it is; for one in what the transaction frees.
    pub(crate) fn forget_mark(&mut self, place: u64) {
        self.work.plan.marks.retain(|&(other, _)| other != place);
    }

    fn set_mark_busy(&self, place: u64, filled: u64) {
        let core = self.core();
        let _window = core.mem.window();
        core.store_mark(place, core.mark_word(filled, true));
    }

    /// Stores bytes at once, behind what the mark at `mark` says, and durably, whatever becomes of
    /// the transaction; the mark says so after it.
    pub(crate) fn store_apart(
        &mut self,
        mark: u64,
        filled: u64,
        at: u64,
        bytes: &[u8],
    ) -> Result<()> {
        let core = self.core();
        core.enter()?;
        self.set_mark(mark, filled, filled + bytes.len() as u64);
        let _window = core.mem.window();
        core.mem.write_nt(at, bytes)?;
        if !planted!("bug-log-unfenced") {
            core.mem.fence();
        }
        match core.mem.failed() {
            Some(offset) => Err(Error::Lost { offset }),
            None => Ok(()),
        }
    }

    /// Has a mark say how much was found, after it is durable: bytes from `last` on up to `end` may
    /// not be, and behind `end` there are none after that.
    pub(crate) fn settle(&mut self, mark: u64, filled: u64, found: Found) -> Result<()> {
        let core = self.core();
        let _window = core.mem.window();
        if let Some((from, len)) = found.rest {
            // Words that equal these would not be in a record.
            core.mem.zero_nt(from, len);
        }
        let (from, len) = found.last;
        if len > 0 && !planted!("bug-end-settled-unflushed") {
            core.mem.flush(from, len);
        }
        core.mem.fence();
        core.store_mark(mark, core.mark_word(filled, false));
        match core.mem.failed() {
            Some(offset) => Err(Error::Lost { offset }),
            None => Ok(()),
        }
    }
}

/// Parts of a segment that may not be durable: offsets and bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Found {
    /// The last record.
    pub last: (u64, u64),
    /// Bytes behind it that are not 0.
    pub rest: Option<(u64, u64)>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::containers::PLog;
    use crate::packed::checked_word;
    use crate::{Heap, Options};
    use pmlib_format::container::{LogRaw, SegmentRaw};
    use std::mem::offset_of;

    /// Goal: a record of a transaction that is in place is not passed over while the mark is still
    /// busy. Method: the mark as a process leaves it that is killed right after its commit, and
    /// another one that has the log's lock by now: a reader asks for the lock, which its own
    /// thread has here.
    #[test]
    fn a_busy_mark_with_a_record_behind_it_is_not_believed() {
        let heap = Heap::private(1 << 20, &Options::default()).unwrap();
        let log = heap.root::<PLog>("log").unwrap();
        heap.at(log).append(b"first").unwrap();
        let RawP(head) = log.into();
        let core = heap.core();
        let segment = core.mem.load(head + offset_of!(LogRaw, last) as u64);
        let mark = segment + offset_of!(SegmentRaw, mark) as u64;
        let before = heap.at(log).end().unwrap();
        let mut holder = heap.begin_on(1);
        holder.lock(log).unwrap();
        holder.set_mark_busy(mark, before);
        assert_eq!(heap.at_on(0, log).end().unwrap(), before);
        drop(holder);
        heap.at(log).append(b"second").unwrap();
        let mut holder = heap.begin_on(1);
        holder.lock(log).unwrap();
        holder.set_mark_busy(mark, before);
        let end = heap.at_on(0, log).end();
        assert!(matches!(end, Err(Error::Deadlock)), "{end:?}");
        drop(holder);
        assert_eq!(heap.at(log).end().unwrap(), 2 * before);
    }

    /// Goal: what a mark said 2^32 runs ago is not believed. Method: power fails before a later
    /// mark is durable; then the number comes to its end, or is damaged, and to the same one again.
    #[test]
    fn a_mark_of_an_earlier_era_is_not_believed() {
        let ends = [checked_word(u32::MAX, RUN_OFFSET), 7];
        for end in ends {
            let heap = Heap::private(1 << 20, &Options::default()).unwrap();
            let log = heap.root::<PLog>("log").unwrap();
            heap.at(log).append(b"first").unwrap();
            let RawP(head) = log.into();
            let segment = heap.core().mem.load(head + offset_of!(LogRaw, last) as u64);
            let mark = segment + offset_of!(SegmentRaw, mark) as u64;
            let (old, run) = (heap.core().mem.load(mark), heap.core().mem.load(RUN_OFFSET));
            heap.at(log).append(b"second").unwrap();
            let mut mem = heap.close().unwrap();
            let window = mem.window();
            mem.store(mark, old);
            mem.store(RUN_OFFSET, end);
            drop(window);
            let mut opened = 0;
            let heap = loop {
                let heap = Heap::attach(mem).unwrap();
                opened += 1;
                if heap.core().mem.load(RUN_OFFSET) == run {
                    break heap;
                }
                mem = heap.close().unwrap();
            };
            assert!(opened < 5, "it has come to {run:#x} again");
            let read = |heap: &Heap| {
                let records = heap.at(log).iter().map(|record| record.unwrap().1);
                records.collect::<Vec<_>>()
            };
            assert_eq!(read(&heap), [&b"first"[..], b"second"]);
            heap.at(log).append(b"third").unwrap();
            assert_eq!(read(&heap).len(), 3);
            assert_eq!(heap.core().mem.load(mark + 8), heap.core().era());
            // In the next run the mark is of an earlier one again.
            let heap = Heap::attach(heap.close().unwrap()).unwrap();
            assert_eq!(read(&heap).len(), 3);
        }
    }
}
