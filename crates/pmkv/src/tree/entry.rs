//! Entries of a tree's directory: a chunk and its least key, so that a tree is opened by a look at
//! the directory alone. A chunk names its least key by a fence as well. Where an entry has no room
//! for a key, or is damaged, the fence is read.

use pmlib_format::kv::{ENTRY_BYTES, ENTRY_KEY_FAR, ENTRY_KEY_MAX};
use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::Tree;

/// Where an entry's key begins, and where it can end.
const KEY_AT: usize = 8;
const KEY_END: usize = KEY_AT + ENTRY_KEY_MAX;
/// Bits of a key's length below its check.
const LEN_BITS: u32 = 8;

/// Where entry number `nth` of a directory is.
pub(super) fn entry_at(directory: u64, nth: u64) -> u64 {
    directory + nth * ENTRY_BYTES
}

impl Tree<'_> {
    /// The last word of an entry: the length of its key and a check.
    fn last_word(&self, before: &[u8], len: u64) -> u64 {
        let seed = self.ground.seed() ^ self.head ^ len.rotate_right(LEN_BITS);
        xxh3_64_with_seed(before, seed) << LEN_BITS | len
    }

    /// The entry of a chunk with this word and least key.
    pub(super) fn new_entry(&self, word: u64, low: &[u8]) -> Vec<u8> {
        let mut entry = vec![0; ENTRY_BYTES as usize];
        entry[..KEY_AT].copy_from_slice(&word.to_le_bytes());
        let len = match low.len() <= ENTRY_KEY_MAX {
            true => {
                entry[KEY_AT..KEY_AT + low.len()].copy_from_slice(low);
                low.len() as u64
            }
            false => ENTRY_KEY_FAR,
        };
        let last = self.last_word(&entry[..KEY_END], len);
        entry[KEY_END..].copy_from_slice(&last.to_le_bytes());
        entry
    }

    /// The least key in an entry; `None`: it has none, or is damaged.
    pub(super) fn key_of_entry(&self, at: u64) -> Option<Vec<u8>> {
        let words: [u64; ENTRY_BYTES as usize / 8] = self.ground.mem().read(at);
        let mut entry = [0; ENTRY_BYTES as usize];
        for (to, word) in entry.as_chunks_mut::<8>().0.iter_mut().zip(words) {
            *to = word.to_le_bytes();
        }
        let last = words[words.len() - 1];
        let len = last & ((1 << LEN_BITS) - 1);
        let is_one = len <= ENTRY_KEY_MAX as u64
            && (self.last_word(&entry[..KEY_END], len) == last
                || planted!("bug-least-key-unchecked"));
        is_one.then(|| entry[KEY_AT..KEY_AT + len as usize].to_vec())
    }
}
