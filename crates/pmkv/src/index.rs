//! The index of the hash engine: the directory, by which a key's chunk is found.

use pmlib_format::CHUNK_BYTES;
use pmlib_format::kv::INDEX_MAGIC;

use crate::directory::Directory;
use crate::engine::Index;
use crate::error::Result;
use crate::group::{Group, Located, all_settled};
use crate::key::{Key, KeyHash, line_at};
use crate::kv::{Hash, Kv};
use crate::shape::Shape;
use crate::slot::{HASH_BITS, Slot};
use crate::snapshot::{ByHashes, Copied};
use crate::split::Position;

/// Keys in no order, by their hashes.
#[derive(Clone, Copy, Debug)]
pub enum ByHash {}

/// The directory's word of a chunk.
#[derive(Clone, Copy, Debug)]
pub struct Way {
    pub(crate) directory: Directory,
    /// The head's word of the directory.
    head_word: u64,
    /// How many bits the chunk's keys have in common, and these.
    pub(crate) depth: u32,
    pub(crate) prefix: u64,
    /// Where the directory's word is, and the word.
    at: u64,
    word: u64,
}

/// The content of an index chunk without slots.
pub(crate) fn empty_chunk() -> Vec<u8> {
    let mut content = vec![0; CHUNK_BYTES as usize];
    content[..8].copy_from_slice(&INDEX_MAGIC.to_le_bytes());
    content
}

impl Located<Way> {
    /// The same chunk's group of this number.
    pub(crate) fn with_group(mut self, group: u64) -> Located<Way> {
        self.group = group;
        self.start = line_at(self.chunk, group, 0);
        self
    }
}

impl<'h> Hash<'h> {
    /// The index chunk of a key.
    #[inline(always)]
    pub(crate) fn locate(&self, hash: KeyHash) -> Result<Located<Way>> {
        loop {
            let (directory, head_word) = self.directory()?;
            let at = directory.offset + hash.prefix(directory.depth) * 8;
            let found = self.ground.has(at, 8).then(|| self.chunk_at(at));
            if self.ground.mem().load_cached(self.head) != head_word {
                // Another one is in place by now.
                continue;
            }
            let Some(Some((chunk, depth, word, notes))) = found else {
                return Err(self.damaged("its directory", at));
            };
            if depth > directory.depth {
                return Err(self.damaged("its directory", at));
            }
            let group = hash.group(&self.cut);
            return Ok(Located {
                chunk,
                notes,
                group,
                start: line_at(chunk, group, 0),
                way: Way {
                    directory,
                    head_word,
                    depth,
                    prefix: hash.prefix(depth),
                    at,
                    word,
                },
            });
        }
    }
}

impl Index for ByHash {
    type State = ();
    type Cut = Shape;
    type Position = Position;
    type Way = Way;
    type Piece = Located<Way>;
    type Order = ByHashes;

    fn first_chunk(cut: &Shape) -> (Vec<u8>, u64) {
        (empty_chunk(), all_settled(cut.groups))
    }

    fn opened(kv: &Kv<'_, Self>) -> Result<()> {
        kv.directory().map(drop)
    }

    #[inline(always)]
    fn locate(kv: &Kv<'_, Self>, key: Key<'_>) -> Result<Option<Located<Way>>> {
        kv.locate(key.hash).map(Some)
    }

    #[inline]
    fn is_still(kv: &Kv<'_, Self>, located: &Located<Way>) -> bool {
        let (mem, way) = (kv.ground.mem(), &located.way);
        mem.load_cached(kv.head) == way.head_word && mem.load_cached(way.at) == way.word
    }

    #[inline]
    fn lock_from<'h>(
        kv: &Kv<'h, Self>,
        key: Key<'_>,
        mut first: Option<Located<Way>>,
    ) -> Result<Group<'h, Self>> {
        loop {
            let located = match first.take() {
                Some(located) => located,
                None => kv.locate(key.hash)?,
            };
            let locked = kv.lock_chunk(located.chunk)?;
            if !Self::is_still(kv, &located) {
                continue;
            }
            kv.settle_if_needed(&located)?;
            return Ok(Group::of(located, locked));
        }
    }

    fn settle(kv: &Kv<'_, Self>, located: &Located<Way>) -> Result<()> {
        kv.settle_lines(located)
    }

    fn may_have(_: &Kv<'_, Self>, located: &Located<Way>, slot: Slot) -> bool {
        slot.hash() >> (HASH_BITS - located.way.depth) == located.way.prefix
    }

    fn has(kv: &Kv<'_, Self>, located: &Located<Way>, key: Key<'_>) -> bool {
        key.hash.group(&kv.cut) == located.group
    }

    fn split(kv: &Kv<'_, Self>, key: Key<'_>, full: &Located<Way>) -> Result<()> {
        kv.split(key.hash, full)
    }

    fn next_group<'h>(
        kv: &Kv<'h, Self>,
        position: &mut Position,
    ) -> Result<Option<Group<'h, Self>>> {
        kv.next_group(position)
    }

    fn per_mille(kv: &Kv<'_, Self>, position: &Position) -> u32 {
        position.per_mille(kv.cut.groups)
    }

    fn pieces(kv: &Kv<'_, Self>) -> Result<Vec<Located<Way>>> {
        let (mut pieces, mut prefix) = (Vec::new(), 0);
        while prefix < 1 << HASH_BITS {
            let located = kv.locate(KeyHash(prefix << (64 - HASH_BITS)))?;
            // A chunk that was split meanwhile may begin before it.
            let end = (located.way.prefix + 1) << (HASH_BITS - located.way.depth);
            pieces.push(located);
            prefix = end;
        }
        Ok(pieces)
    }

    fn chunk_of(piece: &Located<Way>) -> u64 {
        piece.chunk
    }

    fn parts_of_chunk(cut: &Shape) -> usize {
        cut.groups as usize
    }

    fn settle_piece(kv: &Kv<'_, Self>, piece: &Located<Way>) -> Result<bool> {
        if !Self::is_still(kv, piece) {
            return Ok(false);
        }
        for group in 0..kv.cut.groups {
            kv.settle_if_needed(&piece.with_group(group))?;
        }
        Ok(true)
    }

    fn order(kv: &Kv<'_, Self>) -> ByHashes {
        ByHashes::new(kv.cut)
    }

    fn copy_piece(
        kv: &Kv<'_, Self>,
        piece: &Located<Way>,
        order: &mut ByHashes,
        copied: &mut Copied,
    ) -> Result<()> {
        order.add_chunk(piece.way.prefix, piece.way.depth);
        for group in 0..kv.cut.groups {
            kv.copy_lines(&piece.with_group(group), copied);
        }
        Ok(())
    }
}
