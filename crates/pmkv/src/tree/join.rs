//! Joins: a leaf and the next one of its chunk, which have few keys, become one.
//!
//! A leaf is joined to the one before it in this order, with the chunk locked. That is a split
//! (`split`) backwards, and `mend` undoes it in the same way:
//! 1. Its word has the state "put", durably: slots of its keys in the leaf before it don't count.
//! 2. Its slots are copied into the leaf before it, durably.
//! 3. Its word is 0, durably: the join has happened.
//! 4. Its slots are cleared, for readers that still look there. Its fence's place is free.
//!
//! A chunk that was split may still name that fence, by words that it has given away, until it is
//! mended. So all chunks before this one are mended first: a chunk gives leaves to later ones only.

use std::sync::Arc;

use pmlib_format::kv::{STATE_LIVE, STATE_PUT};

use super::order::Orders;
use super::{Found, MENDED, Map, SPLITTING, Seek, Tree, Way};
use crate::engine::Cut;
use crate::error::Result;
use crate::group::Located;
use crate::record;
use crate::slot::Slot;

/// The next step of a walk over leaves.
enum Next {
    /// The same leaf, which has grown, or whose chunk was not ready.
    Again,
    /// The leaf that begins there; `None`: that was all.
    At(Option<Vec<u8>>),
}

impl Map {
    /// The same without leaf number `nth`, which is not the first.
    fn without(&self, version: u32, nth: usize) -> Map {
        let fences = self.fences.iter().enumerate();
        let kept = fences.filter(|&(fence, _)| fence + 1 != nth);
        let mut leaves = self.leaves.clone();
        leaves.remove(nth);
        Map {
            version,
            leaves,
            low: self.low.clone(),
            fences: super::Fences::of(kept.map(|(_, key)| key)),
            high: self.high.clone(),
            orders: Orders::default(),
        }
    }
}

impl Tree<'_> {
    /// Joins leaves that are half full together at most; in a write window, nothing is locked.
    pub(crate) fn join_leaves(&self) -> Result<()> {
        let mut at = Vec::new();
        loop {
            match self.join_next(&at)? {
                Next::Again => {}
                Next::At(Some(next)) => at = next,
                Next::At(None) => return Ok(()),
            }
        }
    }

    /// Joins the leaf of a key with the next one, if both are of one chunk and have few keys.
    fn join_next(&self, key: &[u8]) -> Result<Next> {
        let (locked, known, map) = self.lock_chunk_at(Seek::At(key))?;
        let found = Found::of(&known, &map, Seek::At(key));
        let (end, nth) = (found.end(), found.nth + 1);
        let Some(&next) = map.leaves.get(nth) else {
            return Ok(Next::At(end));
        };
        let left = self.leaf_of(known.chunk, found.leaf(), map.version);
        let right = self.leaf_of(known.chunk, next, map.version);
        self.settle_if_needed(&left)?;
        self.settle_if_needed(&right)?;
        let Some(moved) = self.joinable(&left, &right)? else {
            return Ok(Next::At(end));
        };
        if let Some(low) = self.unmended_before(known.chunk) {
            drop(locked);
            drop(self.lock_chunk_at(Seek::At(&low))?);
            return Ok(Next::Again);
        }
        let fence = Slot(self.ground.mem().load(right.start));
        self.join(&left, &right, &moved)?;
        let next = map.without(map.version.wrapping_add(1), nth);
        known.map.store(Some(Arc::new(next)));
        let is_alone = self.free(fence);
        drop(locked);
        if is_alone {
            self.drop_alone(fence.place())?;
        }
        Ok(Next::Again)
    }

    /// The least key of a chunk before another one that has to be mended.
    fn unmended_before(&self, chunk: u64) -> Option<Vec<u8>> {
        let is_ready = |chunk: u64| {
            let note = self.ground.mem().load_cached(self.note(chunk));
            note & (MENDED | SPLITTING) == MENDED
        };
        self.state.top().find_before(chunk, |one| !is_ready(one))
    }

    /// Where the slots of the second one of two leaves go in the first; `None`: they stay.
    fn joinable(
        &self,
        left: &Located<Way>,
        right: &Located<Way>,
    ) -> Result<Option<Vec<(u64, Slot)>>> {
        let mem = self.ground.mem();
        let (mut free, mut slots) = (Vec::new(), Vec::new());
        for line in 1..=self.cut.lines() {
            let words = |leaf: &Located<Way>| {
                let start = leaf.line(line);
                let words: [u64; 8] = mem.read(start);
                (start..).step_by(8).zip(words)
            };
            free.extend(words(left).filter_map(|(at, word)| (word == 0).then_some(at)));
            slots.extend(words(right).filter_map(|(_, word)| (word != 0).then_some(Slot(word))));
        }
        let all = self.cut.lines() as usize * 8;
        if all - free.len() + slots.len() > all / 2 {
            return Ok(None);
        }
        for &slot in &slots {
            // One whose key can't be read could not be told from the first leaf's again.
            let head = record::head_at(self.ground, slot.place());
            let key = match head {
                Some(head) => record::sound_key(self.ground, slot.place(), head)?,
                None => None,
            };
            if key.is_none() || self.key_in(slot)?.is_none() {
                return Ok(None);
            }
        }
        Ok(Some(free.into_iter().zip(slots).collect()))
    }

    /// Joins a locked leaf to the one before it.
    fn join(&self, left: &Located<Way>, right: &Located<Way>, moved: &[(u64, Slot)]) -> Result<()> {
        let (mem, lines) = (self.ground.mem(), self.cut.lines());
        let at = self.note(left.chunk);
        mem.store(at, mem.load_cached(at) | SPLITTING);
        self.mark_sequence(left.chunk, true);
        let word = Slot(mem.load(right.start));
        if !planted!("bug-join-unmarked") {
            mem.store(right.start, word.with_state(STATE_PUT).0);
            mem.flush(right.start, 8);
            mem.fence();
        }
        for &(to, slot) in moved {
            mem.store(to, slot.with_state(STATE_LIVE).0);
        }
        if !planted!("bug-joined-slots-unflushed") {
            mem.flush(left.line(1), lines * 64);
            mem.fence();
        }
        mem.store(right.start, 0);
        mem.flush(right.start, 8);
        if !planted!("bug-join-unfenced") {
            mem.fence();
        }
        self.clear_leaf(right);
        self.change_note(left.chunk, |note| note & !SPLITTING);
        self.mark_sequence(left.chunk, false);
        self.alive()
    }

    /// Clears the slots of a leaf that is none any more, for readers.
    pub(crate) fn clear_leaf(&self, leaf: &Located<Way>) {
        let mem = self.ground.mem();
        for at in (leaf.line(1)..leaf.line(1 + self.cut.lines())).step_by(8) {
            if mem.load(at) != 0 {
                mem.store(at, 0);
            }
        }
    }
}
