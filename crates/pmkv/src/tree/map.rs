//! The map of a chunk: its leaves by their fences, as a process knows them.

use std::sync::Arc;

use super::order::Orders;
use super::{FIRST, Fences, Known, MENDED, NEW_VERSION, SPLITTING, Tree, corrupt, version_of};
use crate::error::Result;
use crate::record;
use crate::slot::Slot;

/// Where something is sought.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Seek<'k> {
    /// In the range to which a key belongs.
    At(&'k [u8]),
    /// In the range to which the keys belong that are next below a key.
    Below(&'k [u8]),
    /// In the last range.
    Last,
}

impl Seek<'_> {
    /// The number of the range among those that fences part.
    #[inline]
    pub fn among(self, fences: &Fences) -> usize {
        match self {
            Seek::At(key) => fences.up_to(key),
            Seek::Below(key) => fences.below(key),
            Seek::Last => fences.len(),
        }
    }
}

pub(crate) type Shared = Arc<Map>;

/// The leaves of a chunk, in order.
#[derive(Clone, Debug)]
pub(crate) struct Map {
    /// The chunk's version of which it is.
    pub version: u32,
    /// Their numbers.
    pub leaves: Vec<u64>,
    /// The least key of the first one, and of each other.
    pub low: Vec<u8>,
    pub fences: Fences,
    /// Where the chunk's range ends.
    pub high: Option<Vec<u8>>,
    /// The order of the keys of leaves that were walked over.
    pub orders: Orders,
}

impl Map {
    /// Whether what is sought is behind the chunk's range.
    #[inline]
    pub fn is_past(&self, seek: Seek<'_>) -> bool {
        let Some(high) = &self.high else {
            return false;
        };
        match seek {
            Seek::At(key) => key >= &high[..],
            Seek::Below(key) => key > &high[..],
            Seek::Last => true,
        }
    }

    /// The same with one leaf more behind number `nth`, from a key on.
    pub fn with(&self, version: u32, nth: usize, low: &[u8], leaf: u64) -> Map {
        let mut leaves = self.leaves.clone();
        leaves.insert(nth + 1, leaf);
        Map {
            version,
            leaves,
            low: self.low.clone(),
            fences: self.fences.with(nth, low),
            high: self.high.clone(),
            orders: Orders::default(),
        }
    }

    /// The maps of a chunk that keeps so many leaves, and has this version by now, and of the new
    /// one, which has the others from its first leaf on.
    pub fn halves(&self, stay: usize, version: u32) -> (Map, Map) {
        let start = self.fences.get(stay - 1).to_vec();
        let lower = Map {
            version,
            leaves: self.leaves[..stay].to_vec(),
            low: self.low.clone(),
            fences: Fences::of(self.fences.iter().take(stay - 1)),
            high: Some(start.clone()),
            orders: Orders::default(),
        };
        let upper = Map {
            version: NEW_VERSION,
            leaves: (0..).take(self.leaves.len() - stay).collect(),
            low: start,
            fences: Fences::of(self.fences.iter().skip(stay)),
            high: self.high.clone(),
            orders: Orders::default(),
        };
        (lower, upper)
    }
}

/// A leaf that was found.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Found<'m> {
    pub chunk: u64,
    pub map: &'m Map,
    /// Its number in order.
    pub nth: usize,
}

impl<'m> Found<'m> {
    #[inline]
    pub fn of(known: &Known, map: &'m Map, seek: Seek<'_>) -> Found<'m> {
        let nth = seek.among(&map.fences);
        Found {
            chunk: known.chunk,
            map,
            nth,
        }
    }

    #[inline]
    pub fn leaf(&self) -> u64 {
        self.map.leaves[self.nth]
    }

    /// Puts where its range begins into a buffer.
    pub fn start_into(&self, to: &mut Vec<u8>) {
        to.clear();
        to.extend_from_slice(match self.nth.checked_sub(1) {
            None => &self.map.low,
            Some(nth) => self.map.fences.get(nth),
        });
    }

    /// Where its range ends; `None`: nowhere.
    pub fn end(&self) -> Option<Vec<u8>> {
        match self.nth < self.map.fences.len() {
            true => Some(self.map.fences.get(self.nth).to_vec()),
            false => self.map.high.clone(),
        }
    }
}

/// A leaf as a chunk has it.
#[derive(Clone, Debug)]
pub(crate) struct Leaf {
    pub low: Vec<u8>,
    pub leaf: u64,
    pub word: Slot,
}

impl Tree<'_> {
    /// Shows the leaf that is sought, without a lock; `None`: its chunk is being changed, or was
    /// not mended yet.
    #[inline]
    pub(crate) fn look_up<T>(
        &self,
        seek: Seek<'_>,
        show: impl FnOnce(&Found<'_>) -> T,
    ) -> Result<Option<T>> {
        for _ in 0..4 {
            let top = self.state.top();
            let known = top.find(seek);
            let note = self.ground.mem().load_cached(self.note(known.chunk));
            if note & MENDED == 0 {
                return Ok(None);
            }
            let cached = known.map.load();
            let read;
            let map = match &*cached {
                Some(map) if map.version == version_of(note) => &**map,
                _ => {
                    let Some(map) = self.read_map(known)? else {
                        return Ok(None);
                    };
                    read = map;
                    &*read
                }
            };
            if !map.is_past(seek) {
                return Ok(Some(show(&Found::of(known, map, seek))));
            }
            drop(top);
            self.refresh()?;
        }
        Ok(None)
    }

    /// Reads the map of a chunk without its lock; `None`: it is being changed.
    #[cold]
    fn read_map(&self, known: &Known) -> Result<Option<Shared>> {
        let mem = self.ground.mem();
        let at = (self.note(known.chunk), self.sequence(known.chunk));
        let (note, sequence) = (mem.load_cached(at.0), mem.load_cached(at.1));
        if note & MENDED == 0 || sequence & 1 == 1 {
            return Ok(None);
        }
        mem.acquire();
        self.refresh()?;
        let leaves = self.read_leaves(known.chunk);
        mem.acquire();
        let now = mem.load_cached(at.0);
        let is_same = now & MENDED != 0 && version_of(now) == version_of(note);
        if !is_same || mem.load_cached(at.1) != sequence {
            return Ok(None);
        }
        self.keep_map(known, version_of(note), &leaves?).map(Some)
    }

    /// The map of a locked chunk, which is mended if it has to be.
    pub(crate) fn map_when_locked(&self, known: &Known) -> Result<Shared> {
        let at = self.note(known.chunk);
        let mut note = self.ground.mem().load_cached(at);
        if note & MENDED == 0 || note & SPLITTING != 0 {
            self.mend(known)?;
            note = self.ground.mem().load_cached(at);
        }
        if let Some(map) = known.map.load_full()
            && map.version == version_of(note)
        {
            return Ok(map);
        }
        self.refresh()?;
        let leaves = self.read_leaves(known.chunk)?;
        self.keep_map(known, version_of(note), &leaves)
    }

    /// The leaves of a chunk, in order.
    pub(crate) fn read_leaves(&self, chunk: u64) -> Result<Vec<Leaf>> {
        let mem = self.ground.mem();
        let words = (0..self.cut.all_leaves()).map(|leaf| {
            let word = Slot(mem.load(self.cut.leaf_at(chunk, leaf)));
            mem.prefetch_if_there(word.place());
            (leaf, word)
        });
        let words: Vec<(u64, Slot)> = words.filter(|(_, word)| word.0 != 0).collect();
        let mut leaves = Vec::with_capacity(words.len());
        for (leaf, word) in words {
            let low = self.fence(word)?;
            leaves.push(Leaf { low, leaf, word });
        }
        leaves.sort_by(|one, other| one.low.cmp(&other.low));
        Ok(leaves)
    }

    /// The key of the fence that a word names.
    pub(crate) fn fence(&self, word: Slot) -> Result<Vec<u8>> {
        if word.0 == FIRST {
            return Ok(Vec::new());
        }
        let place = word.place();
        match record::head_at(self.ground, place) {
            Some(head)
                if head.instance == word.instance()
                    && record::is_whole(self.ground, place, head)? =>
            {
                record::key_of(self.ground, place, head)
            }
            _ => corrupt(place),
        }
    }

    /// Puts a map together and keeps it.
    fn keep_map(&self, known: &Known, version: u32, leaves: &[Leaf]) -> Result<Shared> {
        let is_in_order = leaves.windows(2).all(|pair| pair[0].low < pair[1].low);
        let (Some(first), true) = (leaves.first(), is_in_order) else {
            return Err(self.damaged("a chunk of leaves", known.chunk * pmlib_format::CHUNK_BYTES));
        };
        let map = Arc::new(Map {
            version,
            leaves: leaves.iter().map(|leaf| leaf.leaf).collect(),
            low: first.low.clone(),
            fences: Fences::of(leaves[1..].iter().map(|leaf| &leaf.low[..])),
            high: self.state.top().end_of(known.chunk, &first.low),
            orders: Orders::default(),
        });
        known.map.store(Some(map.clone()));
        Ok(map)
    }
}
