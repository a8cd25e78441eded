//! Splits: an index chunk whose group is full gives half of its keys to a new one.
//!
//! The new chunk is filled and durable before a transaction has the directory lead to it. So no
//! crash leaves half a split: the directory says which keys a chunk has, and slots of others are
//! cleared when they are met. While the chunk is being split none of its groups
//! is settled: a reader waits for the lock, and so does the next holder, who settles them anew if
//! the splitter has died.

use pmlib::ground::Locked;
use pmlib_format::CHUNK_BYTES;
use pmlib_format::kv::{DEPTH_MAX, STATE_LIVE};

use crate::directory::{Directory, chunk_word};
use crate::engine::{Cut, Index};
use crate::error::{Error, Result};
use crate::group::{Group, Located, all_settled};
use crate::index::{ByHash, Way, empty_chunk};
use crate::key::KeyHash;
use crate::kv::Hash;
use crate::slot::{HASH_BITS, Slot};

impl<'h> Hash<'h> {
    /// Splits the chunk in which a key's group is full; nothing is locked.
    #[cold]
    pub(crate) fn split(&self, hash: KeyHash, full: &Located<Way>) -> Result<()> {
        let mut locked: Option<(Locked<'h>, Vec<u64>)> = None;
        let mem = self.ground.mem();
        let done = self.heap.tx(|tx| {
            tx.lock(self.head)?;
            let located = self.locate(hash)?;
            if located.chunk != full.chunk || located.way.depth != full.way.depth {
                // Somebody else has split it.
                return Ok(());
            }
            if located.way.depth == DEPTH_MAX {
                return Err(Error::Crowded);
            }
            let _window = mem.window();
            let lock = self.lock_chunk(located.chunk)?;
            for group in 0..self.cut.groups {
                self.settle_if_needed(&located.with_group(group))?;
            }
            let (content, moved) = self.half(&located);
            let new = self.make_index(tx, &content, all_settled(self.cut.groups))?;
            self.lead_to(tx, &located, new)?;
            mem.store(self.note(located.chunk), 0);
            locked = Some((lock, moved));
            Ok(())
        });
        let Some((_lock, moved)) = locked else {
            return done;
        };
        let _window = mem.window();
        if done.is_ok() {
            self.mark_sequence(full.chunk, true);
            for at in moved {
                mem.store(at, 0);
            }
            self.mark_sequence(full.chunk, false);
        }
        mem.store(self.note(full.chunk), all_settled(self.cut.groups));
        done
    }

    /// The content of a new chunk with the keys that have the next bit of the hash, and where their
    /// slots are.
    fn half(&self, located: &Located<Way>) -> (Vec<u8>, Vec<u64>) {
        let mem = self.ground.mem();
        let mut content = empty_chunk();
        let mut moved = Vec::new();
        for group in 0..self.cut.groups {
            let group = located.with_group(group);
            for line in 1..=self.cut.lines() {
                let start = group.line(line);
                let words: [u64; 8] = mem.read(start);
                for (nth, &word) in words.iter().enumerate() {
                    let slot = Slot(word);
                    let is_upper = slot.hash() >> (HASH_BITS - 1 - located.way.depth) & 1 == 1;
                    if word == 0 || !is_upper {
                        continue;
                    }
                    let at = start + nth as u64 * 8;
                    moved.push(at);
                    if planted!("bug-split-drops-a-slot") && moved.len() == 1 {
                        continue;
                    }
                    let to = (at % CHUNK_BYTES) as usize;
                    let live = slot.with_state(STATE_LIVE).0;
                    content[to..to + 8].copy_from_slice(&live.to_le_bytes());
                }
            }
        }
        (content, moved)
    }

    /// Has the directory lead to a new chunk too, by the transaction.
    fn lead_to(&self, tx: &mut pmlib::Tx<'_>, located: &Located<Way>, new: u64) -> Result<()> {
        let Directory { offset, depth } = located.way.directory;
        let to = match located.way.depth == depth {
            false => located.way.directory,
            true => {
                let bytes = 16 << depth;
                let doubled = tx.alloc(bytes.max(16))?;
                let words: Vec<u64> = (0..1 << depth)
                    .map(|nth| self.ground.mem().load(offset + nth * 8))
                    .collect();
                let copy = tx.edit_bytes(doubled, 0, bytes)?;
                for (to, word) in copy.chunks_mut(16).zip(words) {
                    to[..8].copy_from_slice(&word.to_le_bytes());
                    to[8..].copy_from_slice(&word.to_le_bytes());
                }
                let directory = Directory {
                    offset: doubled,
                    depth: depth + 1,
                };
                let word = directory.word(self.head);
                tx.edit_bytes(self.head, 0, 8)?
                    .copy_from_slice(&word.to_le_bytes());
                tx.free(offset)?;
                if planted!("bug-directory-before-record") {
                    self.ground.mem().store(self.head, word);
                    self.ground.mem().flush(self.head, 8);
                }
                directory
            }
        };
        let chunk_bits = located.way.depth + 1;
        let words = 1u64 << (to.depth - located.way.depth);
        let start = located.way.prefix * words * 8;
        let copy = tx.edit_bytes(to.offset, start, words * 8)?;
        for (nth, word) in copy.chunks_mut(8).enumerate() {
            let is_upper = nth as u64 >= words / 2;
            let chunk = if is_upper { new } else { located.chunk };
            let value = chunk_word(chunk, chunk_bits, self.head);
            word.copy_from_slice(&value.to_le_bytes());
        }
        Ok(())
    }

    /// The next group of a walk, locked and settled; `None`: that was all. Keys that are there
    /// throughout are in one of them, whatever is split meanwhile.
    pub(crate) fn next_group(&self, position: &mut Position) -> Result<Option<Group<'h, ByHash>>> {
        if position.is_over {
            return Ok(None);
        }
        let hash = KeyHash(position.prefix << (64 - HASH_BITS));
        loop {
            let located = self.locate(hash)?.with_group(position.group);
            let locked = self.lock_chunk(located.chunk)?;
            if !ByHash::is_still(self, &located) {
                continue;
            }
            self.settle_if_needed(&located)?;
            let end = (located.way.prefix + 1) << (HASH_BITS - located.way.depth);
            position.end = position.end.max(end);
            let group = Group::of(located, locked);
            position.go_on(end, self.cut.groups);
            return Ok(Some(group));
        }
    }
}

/// How far a walk over all groups has come: by prefixes of hashes, and for those of one chunk, as
/// long as it was when it was met, by groups.
#[derive(Clone, Copy, Debug, Default)]
pub struct Position {
    /// Where the chunk's prefixes begin, and end.
    start: u64,
    end: u64,
    prefix: u64,
    group: u64,
    is_over: bool,
}

impl Position {
    /// How far it is, in thousandths.
    pub(crate) fn per_mille(&self, groups: u64) -> u32 {
        let done = (self.end.max(self.start) - self.start) * self.group / groups;
        (((self.start + done) * 1000) >> HASH_BITS) as u32
    }

    /// After a group of a chunk whose prefixes end there.
    fn go_on(&mut self, end: u64, groups: u64) {
        self.prefix = end;
        if end < self.end {
            return;
        }
        self.group += 1;
        if self.group < groups {
            self.prefix = self.start;
            return;
        }
        (self.start, self.group) = (self.end, 0);
        self.is_over = self.end >= 1 << HASH_BITS;
    }
}
