//! The search for free places, in steps, so that no put reads much.
//!
//! - A process that opens an engine goes on in its last record chunk that has places which were
//!   never in use, if that is among the last chunks of the heap, and makes a new one otherwise.
//! - Places of other chunks are found out ([`Kv::find_out_place`]) a few at a time, by puts, as far
//!   as there is *credit*: for places that were freed where nobody takes them, and for chunks that
//!   were made though there are many. So one who only adds records finds nothing out for long.
//! - Where the heap is full, all of it is searched at once ([`Kv::take`]).

use std::collections::VecDeque;
use std::sync::atomic::Ordering;

use pmlib_format::CHUNK_BYTES;
use pmlib_format::kv::{RECORD_CLASS_BYTES, RECORDS_HEAD_BYTES};

use crate::engine::Index;
use crate::error::Result;
use crate::kv::Kv;
use crate::places::{FULL, KNOWN, Places, Pool, READY, USED_SHIFT, class_of};
use crate::protocol::FREE;
use crate::record;

/// Chunks from the heap's end at which a process looks for places that were never in use.
const LAST: usize = 16;
/// Chunks at which a step of a search looks, and places that it finds out.
const HEADS: usize = 256;
const PLACES: usize = 4;
/// The most places by which a chunk's number of used ones goes on at once.
const USED_STEP: u64 = 63;

impl<I: Index> Kv<'_, I> {
    /// The numbers of all chunks that may have records, as the heap's table has them.
    fn all_chunks(&self) -> VecDeque<u64> {
        let runs = self.ground.runs_of(self.head);
        runs.into_iter().map(|(chunk, _)| chunk).collect()
    }

    /// A chunk of a class that has places which were never in use, among the last ones; 0: none.
    pub(crate) fn look_at_last(&self, pool: &mut Pool, class: usize) -> Result<u64> {
        pool.unseen = self.all_chunks();
        (pool.seen, pool.made) = (Some(pool.unseen.len() as u64), 0);
        let mut others = Vec::new();
        for _ in 0..LAST {
            let Some(last) = pool.unseen.pop_back() else {
                break;
            };
            let Some(cut) = self.cut_of_own(last, RECORD_CLASS_BYTES[class]) else {
                continue;
            };
            let used = self.ground.mem().load(cut.used_at()) >> USED_SHIFT;
            if used != 0 && used < cut.places {
                let _locked = self.ground.lock(last);
                if self.make_ready(&cut)? {
                    others.push(last);
                    pool.unseen.extend(others);
                    return Ok(last);
                }
            }
            others.push(last);
        }
        pool.unseen.extend(others);
        Ok(0)
    }

    /// Looks for chunks of a class with free places that are known; whether there are some. A
    /// search begins when many places were freed or many chunks made since the last one began.
    pub(crate) fn search_known(&self, pool: &mut Pool, class: usize) -> bool {
        let freed = self.pools.freed.load(Ordering::Relaxed);
        if pool.unseen.is_empty() {
            let seen = pool.seen.unwrap_or(0);
            let enough = seen * (CHUNK_BYTES / RECORD_CLASS_BYTES[class]) / 8;
            if pool.made <= seen / 8 && freed.wrapping_sub(pool.freed) <= enough {
                return false;
            }
            pool.unseen = self.all_chunks();
            pool.unknown.clear();
            (pool.seen, pool.made) = (Some(pool.unseen.len() as u64), 0);
            pool.freed = freed;
        }
        let mem = self.ground.mem();
        for _ in 0..HEADS {
            let Some(chunk) = pool.unseen.pop_front() else {
                break;
            };
            let Some(note) = self.ground.note_if_there(chunk) else {
                continue;
            };
            let note = mem.load_cached(note + 8);
            if note & (KNOWN | FULL) == KNOWN | FULL
                || self.cut_of_own(chunk, RECORD_CLASS_BYTES[class]).is_none()
            {
                continue;
            }
            match note & KNOWN {
                0 => pool.unknown.push_back(chunk),
                _ => pool.rest.push_back(chunk),
            }
        }
        !pool.rest.is_empty()
    }

    /// Notes that a chunk of a class was made.
    pub(crate) fn note_made(&self, pool: &mut Pool, class: usize) {
        pool.made += 1;
        if !pool.unknown.is_empty() && pool.made > pool.seen.unwrap_or(0) / 8 {
            let places = CHUNK_BYTES / RECORD_CLASS_BYTES[class];
            self.pools.credit[class].fetch_add(2 * places, Ordering::Relaxed);
        }
    }

    /// Finds a few places out for records of so many bytes, if there is credit; nothing is locked.
    #[inline]
    pub(crate) fn search_if_due(&self, bytes: u64) {
        let class = class_of(bytes);
        if let Some(credit) = self.pools.credit.get(class)
            && credit.load(Ordering::Relaxed) > 0
        {
            // The put is done: what is wrong with others' records is not its error.
            let _ = self.search_step(class);
        }
    }

    #[inline(never)]
    fn search_step(&self, class: usize) -> Result<()> {
        let credit = &self.pools.credit[class];
        let less = |credit: u64| Some(credit.saturating_sub(PLACES as u64));
        let _ = credit.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
        let mut share = self.pools.share(self.ground.thread());
        let pool = &mut share[class];
        if pool.finding.is_none() {
            pool.finding = self.next_unknown(pool, class)?.map(|chunk| (chunk, 0));
        }
        let Some((chunk, first)) = pool.finding else {
            return Ok(());
        };
        pool.finding = self.find_some_out(chunk, first, RECORD_CLASS_BYTES[class])?;
        if pool.finding.is_none() && self.may_have_room(chunk) {
            pool.rest.push_back(chunk);
        }
        Ok(())
    }

    fn may_have_room(&self, chunk: u64) -> bool {
        let Some(cut) = self.cut(chunk) else {
            return false;
        };
        let mem = self.ground.mem();
        let has_free = |at: u64| mem.load_cached(at) & (FREE * 0x0101_0101_0101_0101) != 0;
        cut.words().any(has_free)
    }

    /// The next chunk of a class some of whose places are not known.
    fn next_unknown(&self, pool: &mut Pool, class: usize) -> Result<Option<u64>> {
        if pool.unknown.is_empty() && !self.search_known(pool, class) && pool.unknown.is_empty() {
            if pool.unseen.is_empty() {
                // Nothing is left to be found out.
                self.pools.credit[class].store(0, Ordering::Relaxed);
            }
            return Ok(None);
        }
        let Some(chunk) = pool.unknown.pop_front() else {
            return Ok(None);
        };
        let Some(cut) = self.cut_of_own(chunk, RECORD_CLASS_BYTES[class]) else {
            return Ok(None);
        };
        let _locked = self.ground.lock(chunk);
        Ok(self.make_ready(&cut)?.then_some(chunk))
    }

    /// Finds some places of a chunk out, from number `first` on; answers where to go on.
    fn find_some_out(&self, chunk: u64, first: u64, bytes: u64) -> Result<Option<(u64, u64)>> {
        let _locked = self.ground.lock(chunk);
        let Some(cut) = self.cut_of_own(chunk, bytes) else {
            return Ok(None);
        };
        let is_unknown = |place: &u64| self.byte(&cut, *place) == 0;
        let some: Vec<u64> = (first..cut.places)
            .filter(is_unknown)
            .take(PLACES)
            .collect();
        for &place in &some {
            self.find_out_place(&cut, place)?;
        }
        if some.len() == PLACES {
            return Ok(some.last().map(|place| (chunk, place + 1)));
        }
        if !(0..cut.places).any(|place| is_unknown(&place)) {
            let (mem, note) = (self.ground.mem(), self.ground.note(chunk, 1));
            mem.store(note, mem.load_cached(note) | KNOWN);
        }
        Ok(None)
    }

    /// Has the bytes of a locked chunk mean something: places that may have been in use are not
    /// known yet. `false`: the chunk is no more.
    pub(crate) fn make_ready(&self, cut: &Places) -> Result<bool> {
        if !self.is_cut_so(cut) {
            return Ok(false);
        }
        let (mem, note) = (self.ground.mem(), self.ground.note(cut.chunk(), 0));
        if mem.load_cached(note) == READY {
            return Ok(true);
        }
        let mut table = Self::table(cut, |_| 0);
        let used = match mem.load(cut.used_at()) >> USED_SHIFT {
            0 => cut.places,
            used => used,
        };
        for place in used..cut.places {
            table[place as usize] = self.byte_of_unused(cut, place)? as u8;
        }
        mem.write_nt(cut.chunk() * CHUNK_BYTES + RECORDS_HEAD_BYTES, &table)?;
        mem.fence();
        mem.store(note, READY);
        Ok(true)
    }

    /// The byte of a place that no put which has returned has used. A put that power loss has cut
    /// short may name it: with the instance behind the last one, or, where its record is there,
    /// that record's.
    fn byte_of_unused(&self, cut: &Places, place: u64) -> Result<u64> {
        let offset = cut.offset(place);
        let last = record::instance_at(self.ground.mem(), offset);
        let head = record::head_at(self.ground, offset).filter(|head| head.bytes() <= cut.bytes);
        let is_record = match head {
            Some(head) => record::sound_key(self.ground, offset, head)?.is_some(),
            None => false,
        };
        Ok(
            match is_record && !planted!("bug-record-behind-used-places") {
                true => 0,
                false => FREE | (last + 1) & 0xf,
            },
        )
    }

    /// Notes that a place of a chunk is in use, durably before any slot that names it is.
    #[inline]
    pub(crate) fn note_used(&self, cut: &Places, place: u64) {
        let used = self.ground.mem().load_cached(cut.used_at()) >> USED_SHIFT;
        if used != 0 && place >= used {
            self.raise_used(cut, place);
        }
    }

    #[inline(never)]
    fn raise_used(&self, cut: &Places, place: u64) {
        // One who puts a few records leaves few places behind that were never used.
        let step = self.pools.raises.fetch_add(1, Ordering::Relaxed);
        let wanted = (place + 1 + step.min(USED_STEP)).min(cut.places);
        let (mem, at) = (self.ground.mem(), cut.used_at());
        let mut word = mem.load_cached(at);
        while word >> USED_SHIFT < wanted {
            match mem.cas(at, word, cut.places | wanted << USED_SHIFT) {
                Ok(_) => break,
                Err(found) => word = found,
            }
        }
        mem.flush(at, 8);
    }
}
