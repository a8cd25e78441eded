//! A slot of the index: one word.

use pmlib_format::kv::{
    PLACE_BYTES, SLOT_HASH_SHIFT, SLOT_INSTANCE_SHIFT, SLOT_PLACE_BITS, SLOT_STATE_SHIFT,
    STATE_DELETE, STATE_LIVE,
};

const STATE_MASK: u64 = 3 << SLOT_STATE_SHIFT;
/// Bits of a hash in a slot.
pub(crate) const HASH_BITS: u32 = 64 - SLOT_HASH_SHIFT;

/// Where the bytes of a heap end that a slot can name: 4 TiB.
pub(crate) const PLACES_END: u64 = PLACE_BYTES << SLOT_PLACE_BITS;

/// A slot's word, not 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slot(pub(crate) u64);

/// The slots of a line whose hash is this, as bits. 0 is one of hash 0.
#[inline(always)]
pub(crate) fn with_hash(line: &[u64; 8], hash: u64) -> u64 {
    let wanted = hash << SLOT_HASH_SHIFT;
    let here = |word: &u64| u64::from(word ^ wanted < 1 << SLOT_HASH_SHIFT);
    line.iter()
        .rev()
        .fold(0, |bits, word| bits + bits + here(word))
}

/// The free slots of a line, as bits.
#[inline(always)]
pub(crate) fn free_ones(line: &[u64; 8]) -> u64 {
    line.iter()
        .rev()
        .fold(0, |bits, &word| bits + bits + u64::from(word == 0))
}

impl Slot {
    /// A live one. The place is less than [`PLACES_END`].
    pub(crate) fn new(place: u64, instance: u64, hash: u64) -> Slot {
        let place = place / PLACE_BYTES;
        debug_assert!(place < 1 << SLOT_PLACE_BITS && instance < 16);
        Slot(place | instance << SLOT_INSTANCE_SHIFT | hash << SLOT_HASH_SHIFT)
    }

    #[inline]
    pub(crate) fn place(self) -> u64 {
        (self.0 & ((1 << SLOT_PLACE_BITS) - 1)) * PLACE_BYTES
    }

    #[inline]
    pub(crate) fn state(self) -> u64 {
        self.0 >> SLOT_STATE_SHIFT & 3
    }

    #[inline]
    pub(crate) fn instance(self) -> u64 {
        self.0 >> SLOT_INSTANCE_SHIFT & 0xf
    }

    #[inline]
    pub(crate) fn hash(self) -> u64 {
        self.0 >> SLOT_HASH_SHIFT
    }

    #[inline]
    pub(crate) fn with_state(self, state: u64) -> Slot {
        Slot(self.0 & !STATE_MASK | state << SLOT_STATE_SHIFT)
    }

    /// Whether readers see it: a delete that is under way has not happened yet.
    #[inline]
    pub(crate) fn is_seen(self) -> bool {
        self.0 != 0 && matches!(self.state(), STATE_LIVE | STATE_DELETE)
    }
}
