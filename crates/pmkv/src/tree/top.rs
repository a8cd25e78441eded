//! The chunks of a tree by their least keys, as a process knows them.
//!
//! A chunk's least key never changes, and none ceases to be one. Others make new ones: each takes
//! over the upper end of a range, and is a word of the directory from then on. A process that does
//! not know it yet finds that a key is behind the range of the chunk where it has looked.

use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::{ArcSwap, ArcSwapOption, Guard};
use pmlib_format::CHUNK_BYTES;
use pmlib_format::kv::{ENTRY_BYTES, INDEX_MAGIC};

use super::entry::entry_at;
use super::parted::Keys;
use super::{Fences, Map, Seek, Tree};
use crate::error::Result;
use crate::slot::Slot;

/// Chunks with their least keys.
type Chunks = Vec<(Vec<u8>, u64)>;

/// A chunk, and its map when it was read last.
#[derive(Debug)]
pub struct Known {
    pub(crate) chunk: u64,
    pub(crate) map: ArcSwapOption<Map>,
}

pub(crate) type Shared = Arc<Known>;

/// The chunks, in order.
#[derive(Debug, Default)]
pub(crate) struct Top {
    /// Words of the directory that are among them.
    words: u64,
    chunks: Vec<Shared>,
    /// The least key of each but the first.
    fences: Fences,
}

/// The knowledge that a process has of a tree.
#[derive(Debug, Default)]
pub struct State {
    top: ArcSwap<Top>,
    /// For the next leaf that is split.
    pub(super) keys: Mutex<Keys>,
    /// One thread at a time looks for new chunks.
    refreshing: Mutex<()>,
}

impl State {
    #[inline]
    pub(crate) fn top(&self) -> Guard<Arc<Top>> {
        self.top.load()
    }

    /// The chunk in whose range something is.
    pub(crate) fn known(&self, seek: Seek<'_>) -> Shared {
        self.top().find(seek).clone()
    }
}

impl Top {
    #[inline]
    pub fn find(&self, seek: Seek<'_>) -> &Shared {
        &self.chunks[seek.among(&self.fences)]
    }

    /// The chunks, in order.
    pub fn chunks(&self) -> &[Shared] {
        &self.chunks
    }

    /// The least key of the first chunk before another one of which something is so.
    pub fn find_before(&self, chunk: u64, is_so: impl Fn(u64) -> bool) -> Option<Vec<u8>> {
        let before = self.chunks.iter().take_while(|known| known.chunk != chunk);
        let nth = before.map(|known| known.chunk).position(is_so)?;
        Some(match nth.checked_sub(1) {
            None => Vec::new(),
            Some(fence) => self.fences.get(fence).to_vec(),
        })
    }

    /// How many of thousand chunks are before the one of a key; `None`: all.
    pub fn per_mille(&self, key: Option<&[u8]>) -> u32 {
        let before = key.map_or(self.chunks.len(), |key| self.fences.up_to(key));
        (before * 1000 / self.chunks.len().max(1)) as u32
    }

    /// Where the range of a chunk ends whose least key this is; `None`: nowhere.
    pub fn end_of(&self, chunk: u64, low: &[u8]) -> Option<Vec<u8>> {
        let nth = self.fences.up_to(low);
        debug_assert_eq!(self.chunks[nth].chunk, chunk);
        (nth < self.fences.len()).then(|| self.fences.get(nth).to_vec())
    }

    /// The same with new chunks; `None`: two have the same least key, or none has the least of all.
    fn with(&self, new: Chunks, words: u64) -> Option<Top> {
        let lows = [&[][..]].into_iter().chain(self.fences.iter());
        let mut all: Vec<(&[u8], Shared)> = lows.zip(self.chunks.iter().cloned()).collect();
        for (low, chunk) in &new {
            let map = ArcSwapOption::empty();
            let chunk = *chunk;
            all.push((low, Arc::new(Known { chunk, map })));
        }
        all.sort_by(|one, other| one.0.cmp(other.0));
        let is_in_order = all.windows(2).all(|pair| pair[0].0 < pair[1].0);
        let has_least = all.first().is_some_and(|(low, _)| low.is_empty());
        if !has_least || !is_in_order {
            return None;
        }
        Some(Top {
            words,
            fences: Fences::of(all[1..].iter().map(|(low, _)| *low)),
            chunks: all.into_iter().map(|(_, chunk)| chunk).collect(),
        })
    }
}

impl Tree<'_> {
    /// Words of the directory that are known; there may be more.
    pub(crate) fn known_words(&self) -> u64 {
        self.state.top().words
    }

    /// Reads the words of the directory that are new.
    pub(crate) fn refresh(&self) -> Result<()> {
        let one = self.state.refreshing.lock();
        // After a panic nothing is half done.
        let _one = one.unwrap_or_else(PoisonError::into_inner);
        let top = self.state.top.load_full();
        let (new, words) = self.new_chunks(top.words)?;
        if new.is_empty() {
            return Ok(());
        }
        let all = top.with(new, words);
        let all = all.ok_or_else(|| self.damaged("its directory", self.head))?;
        self.state.top.store(Arc::new(all));
        Ok(())
    }

    /// The chunks of the directory from a word on, with their least keys; and its words by now.
    fn new_chunks(&self, from: u64) -> Result<(Chunks, u64)> {
        let mem = self.ground.mem();
        'again: loop {
            let (directory, head) = self.directory()?;
            let (mut new, mut nth) = (Vec::new(), from);
            while nth < 1 << directory.depth {
                let at = entry_at(directory.offset, nth);
                let is_there = self.ground.has(at, ENTRY_BYTES);
                let word = if is_there { mem.load(at) } else { 1 };
                let chunk = is_there.then(|| self.chunk_at(at)).flatten();
                let low = chunk.and_then(|_| self.key_of_entry(at));
                mem.acquire();
                if mem.load_cached(self.head) != head {
                    // Another one is in place by now.
                    continue 'again;
                }
                if word == 0 {
                    break;
                }
                let Some((chunk, ..)) = chunk else {
                    return Err(self.damaged("its directory", at));
                };
                new.push((chunk, low));
                nth += 1;
            }
            if nth == 0 {
                return Err(self.damaged("its directory", directory.offset));
            }
            let with_low = |(chunk, low): (u64, Option<Vec<u8>>)| match low {
                Some(low) => Ok((low, chunk)),
                None => Ok((self.least_of(chunk)?, chunk)),
            };
            let new: Result<Chunks> = new.into_iter().map(with_low).collect();
            return Ok((new?, nth));
        }
    }

    /// The least key of a chunk's range.
    fn least_of(&self, chunk: u64) -> Result<Vec<u8>> {
        let [magic, word]: [u64; 2] = self.ground.mem().read(chunk * CHUNK_BYTES);
        if magic != INDEX_MAGIC {
            return Err(self.damaged("a chunk of leaves", chunk * CHUNK_BYTES));
        }
        self.fence(Slot(word))
    }
}
