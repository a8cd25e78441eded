//! The directory: the index chunks of an engine, each a word of an object of the heap.

use pmlib_format::kv::DEPTH_MAX;

use crate::engine::Index;
use crate::error::Result;
use crate::kv::Kv;

/// Bits of an offset / 16 in the head's word of the directory.
const DIRECTORY_BITS: u32 = 42;
/// Bits of a chunk in a word of the directory.
const CHUNK_BITS: u32 = 40;
/// Where the check of either begins.
const CHECK_SHIFT: u32 = 48;

#[inline]
fn check_of(word: u64, salt: u64) -> u64 {
    let word = (word & ((1 << CHECK_SHIFT) - 1)) ^ salt.rotate_left(17);
    (word ^ 0x5851_f42d_4c95_7f2d).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> CHECK_SHIFT
}

#[inline]
pub(crate) fn checked(word: u64, salt: u64) -> u64 {
    word | check_of(word, salt) << CHECK_SHIFT
}

#[inline]
pub(crate) fn is_checked(word: u64, salt: u64) -> bool {
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

    #[inline]
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

impl<I: Index> Kv<'_, I> {
    /// The directory as the head says.
    #[inline(always)]
    pub(crate) fn directory(&self) -> Result<(Directory, u64)> {
        let word = self.ground.mem().load_cached(self.head);
        let found = Directory::of(word, self.head);
        let found = found.ok_or_else(|| self.damaged("its head", self.head))?;
        Ok((found, word))
    }

    /// The chunk, its depth, the word at a place of the directory, and where the chunk's note is.
    #[inline(always)]
    pub(crate) fn chunk_at(&self, at: u64) -> Option<(u64, u32, u64, u64)> {
        let word = self.ground.mem().load(at);
        let chunk = word & ((1 << CHUNK_BITS) - 1);
        let depth = (word >> CHUNK_BITS & 0xff) as u32;
        let is_one = is_checked(word, self.head) && depth <= DEPTH_MAX && chunk != 0;
        let notes = is_one.then(|| self.ground.note_if_there(chunk)).flatten()?;
        Some((chunk, depth, word, notes))
    }
}
