//! The check of a record: a keyed hash by which recovery tells a whole record from a torn one.
//!
//! NH, the universal hash of UMAC (Black et al., CRYPTO 1999), of blocks of 128 words, whose
//! results are chained. The rest of a record that a crash leaves hashes like all of it with a
//! probability of 2^-64. The key is the heap's, so that bytes of an object can't be made to look
//! like a record.

/// Words of a block.
const BLOCK_WORDS: usize = 128;

/// A heap's key.
pub(crate) struct Key {
    words: [u64; BLOCK_WORDS],
}

/// SplitMix64.
pub(crate) fn split_mix(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut key = *state;
    key = (key ^ key >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    key = (key ^ key >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    key ^ key >> 31
}

/// Both halves of a product, folded.
#[inline]
fn fold(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    product as u64 ^ (product >> 64) as u64
}

impl Key {
    pub fn new(seed: u64) -> Key {
        let mut state = seed;
        Key {
            words: std::array::from_fn(|_| split_mix(&mut state)),
        }
    }

    /// The hash of words that are to stand at `place`.
    #[inline]
    pub fn hash(&self, place: u64, words: &[u64]) -> u64 {
        let [first, second, ..] = self.words;
        let hash = fold(place ^ first | 1, words.len() as u64 ^ second);
        // Most records have one block.
        match words.len() {
            0 => hash,
            1..=BLOCK_WORDS => self.chain(hash, words),
            _ => self.hash_blocks(hash, words),
        }
    }

    #[inline(never)]
    fn hash_blocks(&self, hash: u64, words: &[u64]) -> u64 {
        let blocks = words.chunks(BLOCK_WORDS);
        blocks.fold(hash, |hash, block| self.chain(hash, block))
    }

    /// The hash of one more block.
    #[inline]
    fn chain(&self, hash: u64, block: &[u64]) -> u64 {
        let [first, second, ..] = self.words;
        let sum = self.sum(block);
        let (low, high) = (sum as u64, (sum >> 64) as u64);
        fold(hash ^ low ^ first, high ^ second) ^ low.rotate_left(32)
    }

    /// NH of a block.
    #[inline]
    fn sum(&self, block: &[u64]) -> u128 {
        let (pairs, rest) = block.as_chunks::<2>();
        let product = |[a, b]: [u64; 2], key: &[u64; 2]| {
            u128::from(a.wrapping_add(key[0])) * u128::from(b.wrapping_add(key[1]))
        };
        let (keys, _) = self.words.as_chunks::<2>();
        let sum = pairs.iter().zip(keys).fold(0u128, |sum, (&pair, key)| {
            sum.wrapping_add(product(pair, key))
        });
        match *rest {
            // The word that is missing adds nothing to its key.
            [last] => sum.wrapping_add(product([last, 0], &keys[pairs.len()])),
            _ => sum,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The hash is another, whichever subset of the words is still the old one.
    #[test]
    fn a_torn_record_hashes_otherwise() {
        let key = Key::new(7);
        let new: Vec<u64> = (0..13).map(|at| at * 77).collect();
        let whole = key.hash(64, &new);
        for subset in 1..1u64 << new.len() {
            let mut torn = new.clone();
            for (at, word) in torn.iter_mut().enumerate() {
                *word ^= subset >> at & 1;
            }
            assert_ne!(key.hash(64, &torn), whole, "{subset:#b}");
        }
    }

    #[test]
    fn place_length_order_and_key_count() {
        let (key, other) = (Key::new(7), Key::new(8));
        let words: Vec<u64> = (0..300).collect();
        let hash = key.hash(64, &words);
        assert_ne!(hash, key.hash(128, &words));
        assert_ne!(hash, other.hash(64, &words));
        assert_ne!(hash, key.hash(64, &words[..299]));
        for (a, b) in [(0, 1), (0, 2), (5, 133), (128, 256), (298, 299)] {
            let mut swapped = words.clone();
            swapped.swap(a, b);
            assert_ne!(hash, key.hash(64, &swapped), "{a} and {b}");
        }
        assert_ne!(key.hash(0, &[0]), key.hash(0, &[]));
        assert_ne!(key.hash(0, &[0]), key.hash(0, &[0, 0]));
    }
}
