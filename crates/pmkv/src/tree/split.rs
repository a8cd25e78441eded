//! Splits. A leaf that is full gives the upper half of its keys to a free leaf of its chunk; a
//! chunk without a free leaf, the upper half of its leaves to a new chunk.
//!
//! A leaf is split in this order, with the chunk locked:
//! 1. The new leaf's slots and the record of its fence are durable. Each clear in the old leaf is
//!    already: it is full, so a put that was durable has used the slot again. A leaf that a batch
//!    has split before it is full is written back for it.
//! 2. The new leaf's word is durable, with the state "put": the split has happened.
//! 3. The slots that it took over are cleared in the old leaf, durably.
//! 4. Its word gets the state "live", unfenced.
//!
//! A word in the state "put" tells the one who mends (`mend`) that the third step may not have come
//! to its end. No place that the old leaf names is used again before, because the lock is held.
//!
//! A chunk is split by a transaction, as the hash engine's are. Which of its leaves it still has
//! follows from the directory: those whose fences are below the next chunk's least key.

use std::sync::Arc;

use pmlib::ground::Locked;
use pmlib_format::kv::{DEPTH_MAX, ENTRY_BYTES, STATE_LIVE, STATE_PUT};

use super::entry::entry_at;
use super::parted::Keys;
use super::top::Shared;
use super::{
    Found, MENDED, Map, NEW_VERSION, SPLITTING, Seek, Tree, Way, empty_chunk, fences, leaf_word,
    mended, room, version_of,
};
use crate::directory::{Directory, chunk_word};
use crate::engine::Cut;
use crate::error::{Error, Result};
use crate::group::{Located, all_settled};
use crate::key::Key;
use crate::places::Place;
use crate::record::{self, Head};
use crate::slot::Slot;
use crate::version::Version;

/// The bytes of the least place of a record.
const LINE: u64 = 64;

/// The outcome of an attempt to split a leaf.
enum Tried {
    /// The place was used for the fence.
    Done,
    /// There is room by now; how many of the keys are the leaf's.
    Room(usize),
    /// A place of so many bytes is wanted for the fence.
    Fence(u64),
    /// The chunk has no free leaf.
    Full(u64),
}

/// How a leaf is parted.
struct Plan {
    /// The least key of the new leaf.
    fence: Vec<u8>,
    /// The slots that it takes over, and where they are.
    moved: Vec<(u64, Slot)>,
    /// Slots whose keys can't be read: they are in both, so that their keys are errors.
    damaged: Vec<(u64, Slot)>,
    /// Slots are free, and clears of some may not be durable.
    is_part_full: bool,
}

/// A key of a leaf, and its slot; `None`: it is to have one.
pub(crate) type Slotted = (Vec<u8>, Option<(u64, Slot)>);

/// Whether a place that was taken for `room` bytes is one for a record of so many.
fn is_room_of(bytes: u64, room: u64) -> bool {
    bytes == room || bytes < room && room == LINE
}

/// How many of so many are to stay below: most, where keys come in order.
fn staying(count: usize, is_ascending: bool) -> usize {
    let above = if is_ascending { count / 8 } else { count / 2 };
    count.saturating_sub(above.max(1))
}

impl<'h> Tree<'h> {
    /// Splits the leaf of a key, if it is full; nothing is locked.
    #[cold]
    pub(crate) fn split_leaf(&self, key: Key<'_>, full: &Located<Way>) -> Result<()> {
        // The put has looked at two of its lines.
        for line in 1..=self.cut.lines() {
            self.ground.mem().prefetch_if_there(full.line(line));
        }
        self.split_for(key, &[]).map(drop)
    }

    /// Splits the leaf of a key once, if it has no slot left for it and for those of `keys`, which
    /// begin with it and are in order; nothing is locked. `Some`: it has, and so many are its.
    pub(crate) fn split_for(&self, key: Key<'_>, keys: &[&[u8]]) -> Result<Option<usize>> {
        // Most fences have a line, so that a full leaf need not be read again with a place for its
        // own. A batch's leaves mostly have room.
        let mut taken = match keys {
            [] => self.take(LINE).ok().map(|place| (place, LINE)),
            _ => None,
        };
        loop {
            let tried = self.try_split(key, keys, taken);
            if matches!(tried, Ok(Tried::Done)) {
                return Ok(None);
            }
            if let Some((place, _)) = taken.take() {
                // After a medium's failure a leaf may name it.
                self.alive()?;
                self.undo(Some(place))?;
            }
            match tried? {
                Tried::Done => return Ok(None),
                Tried::Room(keys) => return Ok(Some(keys)),
                Tried::Full(chunk) => return self.split_chunk(key, chunk).map(|()| None),
                Tried::Fence(bytes) => taken = Some((self.take(bytes)?, bytes)),
            }
        }
    }

    fn try_split(
        &self,
        key: Key<'_>,
        keys: &[&[u8]],
        taken: Option<(Place, u64)>,
    ) -> Result<Tried> {
        let (_locked, known, map) = self.lock_chunk_at(Seek::At(key.bytes))?;
        let found = Found::of(&known, &map, Seek::At(key.bytes));
        let leaf = self.leaf_of(known.chunk, found.leaf(), map.version);
        self.settle_if_needed(&leaf)?;
        let end = found.end();
        let is_its = |key: &&[u8]| end.as_deref().is_none_or(|end| *key < end);
        let keys = &keys[..keys.partition_point(is_its)];
        let common = end.as_deref().map_or(0, |end| {
            let mut start = Vec::new();
            found.start_into(&mut start);
            fences::common_bytes(&start, end)
        });
        let Some(plan) = self.plan((&leaf, common), key, keys)? else {
            return Ok(Tried::Room(keys.len()));
        };
        let Some(free) = self.free_leaf(&map) else {
            return Ok(Tried::Full(known.chunk));
        };
        let bytes = record::taken(&plan.fence, &[])?;
        match taken {
            Some((place, room)) if is_room_of(bytes, room) => {
                let new = self.leaf_of(known.chunk, free, map.version);
                self.part(&leaf, &new, place, &plan)?;
                let version = map.version.wrapping_add(1);
                let next = map.with(version, found.nth, &plan.fence, free);
                known.map.store(Some(Arc::new(next)));
                Ok(Tried::Done)
            }
            _ => Ok(Tried::Fence(bytes)),
        }
    }

    /// A leaf that a chunk does not use.
    fn free_leaf(&self, map: &Map) -> Option<u64> {
        let mut is_used = vec![false; self.cut.all_leaves() as usize];
        for &leaf in &map.leaves {
            is_used[leaf as usize] = true;
        }
        let free = is_used.iter().position(|is_used| !is_used);
        free.map(|leaf| leaf as u64)
    }

    /// How a locked leaf is parted; `None`: it has a free slot, and one for each of a batch's keys.
    fn plan(
        &self,
        (leaf, common): (&Located<Way>, usize),
        key: Key<'_>,
        new: &[&[u8]],
    ) -> Result<Option<Plan>> {
        let slots = self.cut.lines() as usize * 8;
        let mut used = Vec::with_capacity(slots);
        for line in 1..=self.cut.lines() {
            let start = leaf.line(line);
            let words: [u64; 8] = self.ground.mem().read(start);
            let lines = (start..).step_by(8).zip(words.map(Slot));
            used.extend(lines.filter(|(_, slot)| slot.0 != 0));
        }
        let free = slots - used.len();
        if free > 0 && free >= new.len() {
            return Ok(None);
        }
        if free == 0 && new.is_empty() {
            return self.plan_full((leaf, common), key).map(Some);
        }
        // All records are asked for before the first is waited for.
        for (_, slot) in &used {
            self.ground.mem().prefetch_if_there(slot.place());
        }
        let (mut keys, mut damaged) = (Vec::<Slotted>::with_capacity(slots), Vec::new());
        for (at, slot) in used {
            match self.key_in(slot)? {
                Some(key) => keys.push((key, Some((at, slot)))),
                None => damaged.push((at, slot)),
            }
        }
        keys.sort_by(|one, other| one.0.cmp(&other.0));
        let is_ascending = keys.last().is_none_or(|(last, _)| key.bytes > &last[..]);
        let stay = match new {
            [] => staying(keys.len(), is_ascending),
            _ => room::add(&mut keys, new, (self.cut.lines() * 8) as usize),
        };
        let (Some(below), true) = (stay.checked_sub(1), stay < keys.len()) else {
            // Damaged records alone can leave so few.
            let offset = damaged.first().map_or(0, |(_, slot)| slot.place());
            return Err(Error::Corrupt { offset });
        };
        let fence = match planted!("bug-fence-of-the-lower-key") {
            true => &keys[below].0[..],
            false => fences::separator(&keys[below].0, &keys[stay].0),
        };
        let fence = fence.to_vec();
        let moved = keys.drain(stay..).filter_map(|(_, slot)| slot);
        Ok(Some(Plan {
            fence,
            moved: moved.collect(),
            damaged,
            is_part_full: free > 0,
        }))
    }

    /// How a locked leaf without a free slot is parted, all of whose bytes of keys before `common`
    /// are the same.
    fn plan_full(&self, (leaf, common): (&Located<Way>, usize), key: Key<'_>) -> Result<Plan> {
        let mut kept = self.state.keys.try_lock();
        let mut own = Keys::default();
        let keys = kept.as_deref_mut().unwrap_or(&mut own);
        self.read_keys(leaf, common, keys)?;
        let stay = staying(keys.len(), keys.are_below(key.bytes, common));
        let damaged = keys.damaged.clone();
        let Some(parts) = keys.part(stay) else {
            // Damaged records alone can leave so few.
            let offset = damaged.first().map_or(0, |(_, slot)| slot.place());
            return Err(Error::Corrupt { offset });
        };
        let fence = match planted!("bug-fence-of-the-lower-key") {
            true => parts.below,
            false => fences::separator(parts.below, parts.next),
        };
        let moved = parts.moved.iter().map(|keyed| (keyed.at, keyed.slot));
        Ok(Plan {
            fence: fence.to_vec(),
            moved: moved.collect(),
            damaged,
            is_part_full: false,
        })
    }

    /// The key of a slot; `None`: its record is damaged.
    pub(crate) fn key_in(&self, slot: Slot) -> Result<Option<Vec<u8>>> {
        let place = slot.place();
        let Some(head) = record::head_at(self.ground, place) else {
            return Ok(None);
        };
        if head.instance != slot.instance() {
            return Ok(None);
        }
        let key = record::key_of(self.ground, place, head)?;
        // A key of another hash would not be found, and be taken for one that is gone.
        let is_of_slot = self.key(&key).hash.in_slot() == slot.hash();
        Ok(is_of_slot.then_some(key))
    }

    /// Parts a locked leaf.
    fn part(
        &self,
        old: &Located<Way>,
        new: &Located<Way>,
        place: Place,
        plan: &Plan,
    ) -> Result<()> {
        let (mem, lines) = (self.ground.mem(), self.cut.lines());
        let at = self.note(old.chunk);
        let note = mem.load_cached(at);
        mem.store(at, note | SPLITTING);
        let head = Head::new(Version::default(), place.instance, &plan.fence, &[]);
        let staged = record::stage(self.ground.seed(), place.offset, head, &plan.fence, &[]);
        record::store(mem, place.offset, &staged)?;
        let mut content = vec![0; (lines * 64) as usize];
        for (from, slot) in plan.moved.iter().chain(&plan.damaged) {
            let to = (from - old.line(1)) as usize;
            content[to..to + 8].copy_from_slice(&slot.with_state(STATE_LIVE).0.to_le_bytes());
        }
        mem.write_nt(new.line(1), &content)?;
        if plan.is_part_full {
            mem.flush(old.line(1), lines * 64);
        }
        if !planted!("bug-leaf-before-its-content") {
            mem.fence();
        }
        self.mark_sequence(old.chunk, true);
        let word = leaf_word(place.offset, place.instance);
        mem.store(new.start, word.with_state(STATE_PUT).0);
        if !planted!("bug-leaf-unflushed") {
            mem.flush(new.start, 8);
        }
        mem.fence();
        for &(at, _) in &plan.moved {
            mem.store(at, 0);
        }
        if !planted!("bug-moved-slots-unflushed") {
            mem.flush(old.line(1), lines * 64);
            mem.fence();
        }
        mem.store(new.start, word.0);
        mem.flush(new.start, 8);
        self.change_note(old.chunk, |note| note & !SPLITTING);
        self.mark_sequence(old.chunk, false);
        self.alive()
    }

    /// Changes the note of a locked chunk, with the next version.
    pub(super) fn change_note(&self, chunk: u64, change: impl Fn(u64) -> u64) {
        let (mem, at) = (self.ground.mem(), self.note(chunk));
        let note = mem.load_cached(at);
        let version = mended(version_of(note).wrapping_add(1));
        mem.store(at, change(note & u64::from(u32::MAX) | version));
    }

    /// Splits the chunk of a key, if it has no free leaf; nothing is locked.
    fn split_chunk(&self, key: Key<'_>, full: u64) -> Result<()> {
        let mem = self.ground.mem();
        let mut locked: Option<(Locked<'h>, Shared, Arc<Map>, usize, u64)> = None;
        let done = self.heap.tx(|tx| {
            tx.lock(self.head)?;
            let _window = mem.window();
            let (lock, known, map) = self.lock_chunk_at(Seek::At(key.bytes))?;
            let count = map.leaves.len();
            if known.chunk != full || (count as u64) < self.cut.all_leaves() {
                // Somebody else has split it.
                return Ok(());
            }
            for group in 0..self.cut.groups {
                let leaf = self.leaf_of(full, group * self.cut.leaves, map.version);
                self.settle_if_needed(&leaf)?;
            }
            let found = Found::of(&known, &map, Seek::At(key.bytes));
            let stay = staying(count, found.nth + 1 == count);
            let content = self.upper(full, &map.leaves[stay..]);
            let note = mended(NEW_VERSION) | all_settled(self.cut.groups);
            let new = self.make_index(tx, &content, note)?;
            self.append(tx, new, map.fences.get(stay - 1))?;
            // Readers wait for the lock from now on, and mend it if this process dies.
            let at = self.note(full);
            mem.store(at, mended(map.version) & !MENDED);
            locked = Some((lock, known, map, stay, new));
            Ok(())
        });
        let Some((_lock, known, map, stay, new)) = locked else {
            return done;
        };
        let _window = mem.window();
        let settled = all_settled(self.cut.groups);
        if done.is_err() {
            mem.store(self.note(full), mended(map.version) | settled);
            return done;
        }
        self.mark_sequence(full, true);
        for &leaf in &map.leaves[stay..] {
            // Durably: its fence's place may be free one day.
            let at = self.cut.leaf_at(full, leaf);
            mem.store(at, 0);
            mem.flush(at, 8);
        }
        mem.fence();
        self.mark_sequence(full, false);
        self.change_note(full, |note| note | settled);
        // The maps of both are known, so that nobody has to read their fences.
        let (lower, upper) = map.halves(stay, version_of(mem.load_cached(self.note(full))));
        known.map.store(Some(Arc::new(lower)));
        self.refresh()?;
        let made = self.state.known(Seek::At(&upper.low));
        if made.chunk == new {
            made.map.store(Some(Arc::new(upper)));
        }
        Ok(())
    }

    /// The content of a new chunk with leaves of a locked one.
    fn upper(&self, chunk: u64, leaves: &[u64]) -> Vec<u8> {
        let mem = self.ground.mem();
        let least = Slot(mem.load(self.cut.leaf_at(chunk, leaves[0])));
        let mut content = empty_chunk(least.with_state(STATE_LIVE).0);
        for (nth, &leaf) in leaves.iter().enumerate() {
            let from = self.cut.leaf_at(chunk, leaf);
            let to = self.cut.leaf_at(0, nth as u64);
            for word in 0..(1 + self.cut.lines()) * 8 {
                // Words of a leaf's first line beyond its own are 0.
                let slot = Slot(mem.load(from + word * 8));
                let live = if slot.0 == 0 {
                    0
                } else {
                    slot.with_state(STATE_LIVE).0
                };
                let to = (to + word * 8) as usize;
                content[to..to + 8].copy_from_slice(&live.to_le_bytes());
            }
        }
        content
    }

    /// Appends a chunk with this least key to the directory, by the transaction.
    fn append(&self, tx: &mut pmlib::Tx<'_>, new: u64, low: &[u8]) -> Result<()> {
        let mem = self.ground.mem();
        let (Directory { offset, depth }, _) = self.directory()?;
        let entry = self.new_entry(chunk_word(new, 0, self.head), low);
        let entries = 1u64 << depth;
        let mut nth = self.known_words();
        while nth < entries && mem.load(entry_at(offset, nth)) != 0 {
            nth += 1;
        }
        if nth < entries {
            tx.edit_bytes(offset, nth * ENTRY_BYTES, ENTRY_BYTES)?
                .copy_from_slice(&entry);
            return Ok(());
        }
        if depth == DEPTH_MAX {
            return Err(Error::Crowded);
        }
        let bytes = entries * ENTRY_BYTES;
        let doubled = tx.alloc(bytes * 2)?;
        let copy = tx.edit_bytes(doubled, 0, bytes * 2)?;
        let (before, behind) = copy.split_at_mut(bytes as usize);
        mem.copy_out(offset, before)?;
        behind.fill(0);
        behind[..entry.len()].copy_from_slice(&entry);
        let directory = Directory {
            offset: doubled,
            depth: depth + 1,
        };
        let word = directory.word(self.head);
        tx.edit_bytes(self.head, 0, 8)?
            .copy_from_slice(&word.to_le_bytes());
        Ok(tx.free(offset)?)
    }
}
