//! The index of the hash engine: the directory, by which a key's chunk is found.

use pmlib_format::CHUNK_BYTES;
use pmlib_format::kv::DEPTH_MAX;

use crate::engine::Index;
use crate::error::Result;
use crate::group::{Group, Located};
use crate::key::{Key, KeyHash, line_at};
use crate::kv::{Hash, Kv};
use crate::shape::Shape;
use crate::slot::{HASH_BITS, Slot};

/// Keys in no order, by their hashes.
#[derive(Clone, Copy, Debug)]
pub enum ByHash {}

/// Bits of an offset / 16 in the head's word of the directory.
const DIRECTORY_BITS: u32 = 42;
/// Bits of a chunk in a word of the directory.
const CHUNK_BITS: u32 = 40;
/// Where the check of either begins.
const CHECK_SHIFT: u32 = 48;
fn check_of(word: u64, salt: u64) -> u64 {
    let word = (word & ((1 << CHECK_SHIFT) - 1)) ^ salt.rotate_left(17);
    (word ^ 0x5851_f42d_4c95_7f2d).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> CHECK_SHIFT
}

fn checked(word: u64, salt: u64) -> u64 {
    word | check_of(word, salt) << CHECK_SHIFT
}

fn is_checked(word: u64, salt: u64) -> bool {
    word == checked(word & ((1 << CHECK_SHIFT) - 1), salt)
}

/// The directory: where it is and its depth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Directory {
    pub offset: u64,
    pub depth: u32,
}

impl Directory {
    pub fn word(self, head: u64) -> u64 {
        checked(
            (self.offset / 16) | u64::from(self.depth) << DIRECTORY_BITS,
            head,
        )
    }

    fn of(word: u64, head: u64) -> Option<Directory> {
        let offset = (word & ((1 << DIRECTORY_BITS) - 1)) * 16;
        let depth = (word >> DIRECTORY_BITS & 0x3f) as u32;
        let is_one = is_checked(word, head) && offset != 0 && depth <= DEPTH_MAX;
        is_one.then_some(Directory { offset, depth })
    }
}

/// A word of a directory: a chunk, and how many bits its keys have in common.
pub(crate) fn chunk_word(chunk: u64, depth: u32, head: u64) -> u64 {
    checked(chunk | u64::from(depth) << CHUNK_BITS, head)
}

/// The directory's word of a chunk.
#[derive(Clone, Copy, Debug)]
pub struct Way {
    pub(crate) directory: Directory,
    /// How many bits the chunk's keys have in common, and these.
    pub(crate) depth: u32,
    pub(crate) prefix: u64,
    /// Where the directory's word is, and the word.
    at: u64,
    word: u64,
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
    /// The directory as the head says.
    pub(crate) fn directory(&self) -> Result<(Directory, u64)> {
        let word = self.ground.mem().load_cached(self.head);
        let found = Directory::of(word, self.head);
        let found = found.ok_or_else(|| self.damaged("its head", self.head))?;
        Ok((found, word))
    }

    /// The index chunk of a key.
    #[inline]
    pub(crate) fn locate(&self, hash: KeyHash) -> Result<Located<Way>> {
        loop {
            let (directory, word) = self.directory()?;
            let at = directory.offset + hash.prefix(directory.depth) * 8;
            let found = self.ground.has(at, 8).then(|| self.chunk_at(at));
            if self.ground.mem().load_cached(self.head) != word {
                // Another one is in place by now.
                continue;
            }
            let Some(Some((chunk, depth, word))) = found else {
                return Err(self.damaged("its directory", at));
            };
            if depth > directory.depth {
                return Err(self.damaged("its directory", at));
            }
            let group = hash.group(&self.cut);
            return Ok(Located {
                chunk,
                group,
                start: line_at(chunk, group, 0),
                way: Way {
                    directory,
                    depth,
                    prefix: hash.prefix(depth),
                    at,
                    word,
                },
            });
        }
    }

    /// The chunk, its depth and the word at a place of the directory.
    #[inline]
    fn chunk_at(&self, at: u64) -> Option<(u64, u32, u64)> {
        let word = self.ground.mem().load(at);
        let chunk = word & ((1 << CHUNK_BITS) - 1);
        let depth = (word >> CHUNK_BITS & 0xff) as u32;
        let is_one = is_checked(word, self.head)
            && depth <= DEPTH_MAX
            && chunk != 0
            && self.ground.has(chunk * CHUNK_BYTES, CHUNK_BYTES);
        is_one.then_some((chunk, depth, word))
    }
}

impl Index for ByHash {
    type Cut = Shape;
    type Way = Way;

    #[inline]
    fn locate(kv: &Kv<'_, Self>, key: Key<'_>) -> Result<Option<Located<Way>>> {
        kv.locate(key.hash).map(Some)
    }

    fn is_still(kv: &Kv<'_, Self>, located: &Located<Way>) -> bool {
        let (mem, way) = (kv.ground.mem(), &located.way);
        mem.load_cached(kv.head) == way.directory.word(kv.head)
            && mem.load_cached(way.at) == way.word
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
            let locked = kv.ground.lock(located.chunk);
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

    fn each_group<'h>(
        kv: &Kv<'h, Self>,
        show: impl FnMut(&Group<'h, Self>) -> Result<()>,
    ) -> Result<()> {
        kv.walk_groups(show)
    }
}
