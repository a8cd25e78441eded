//! The commit checksum: a hash of the words that a transaction logged, with their new values. It
//! shows recovery that the transaction is complete.
//!
//! The hash is NH, the universal hash of UMAC (Black et al., CRYPTO 1999, and RFC 4418), of 64-bit
//! words: pairs of words, each plus its key, are multiplied and the products added. Two contents of
//! the same words collide with a probability of 2^-64, and no adversary chooses the state after a
//! crash.

use pmfs_format::journal::{ENTRIES_MAX, ENTRY_DATA_BYTES};

/// The most words that a transaction logs.
const WORDS_MAX: usize = ENTRIES_MAX * (ENTRY_DATA_BYTES / 8) as usize;

static KEYS: [u64; WORDS_MAX] = keys();

/// The keys: SplitMix64 of 1, 2, 3 and so on.
const fn keys() -> [u64; WORDS_MAX] {
    let mut keys = [0; WORDS_MAX];
    let mut at = 0;
    while at < WORDS_MAX {
        let mut key = (at as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        key = (key ^ key >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        key = (key ^ key >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        keys[at] = key ^ key >> 31;
        at += 1;
    }
    keys
}

/// A hash under construction.
#[derive(Default)]
pub(crate) struct CommitChecksum {
    sum: u128,
    /// The first word of a pair, plus its key.
    first: u64,
    count: usize,
}

impl CommitChecksum {
    /// Adds the next word.
    #[inline]
    pub fn add(&mut self, word: u64) {
        let keyed = word.wrapping_add(KEYS[self.count]);
        self.count += 1;
        if self.count % 2 == 1 {
            self.first = keyed;
        } else {
            self.sum = self
                .sum
                .wrapping_add(u128::from(self.first) * u128::from(keyed));
        }
    }

    /// The hash of all words so far, low half first.
    #[inline]
    pub fn words(mut self) -> [u64; 2] {
        if self.count % 2 == 1 {
            self.add(0);
        }
        [self.sum as u64, (self.sum >> 64) as u64]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(words: &[u64]) -> [u64; 2] {
        let mut checksum = CommitChecksum::default();
        words.iter().for_each(|&word| checksum.add(word));
        checksum.words()
    }

    /// Goal: the hash differs for every subset of words that still have their old values.
    #[test]
    fn a_half_stored_transaction_hashes_otherwise() {
        let new: Vec<u64> = (0..13).map(|at| at * 77).collect();
        for subset in 1..1u64 << new.len() {
            let mut torn = new.clone();
            for (at, word) in torn.iter_mut().enumerate() {
                *word ^= subset >> at & 1;
            }
            assert_ne!(of(&torn), of(&new), "{subset:#b}");
        }
    }

    #[test]
    fn words_that_change_places_hash_otherwise() {
        assert_ne!(of(&[1, 2, 3]), of(&[2, 1, 3]));
        assert_ne!(of(&[1, 2, 3, 4]), of(&[3, 4, 1, 2]));
        assert_ne!(of(&[0]), of(&[]));
    }

    /// Goal: there is a key for each word of the longest transaction.
    #[test]
    fn the_longest_transaction_has_keys() {
        of(&[7; WORDS_MAX]);
    }
}
