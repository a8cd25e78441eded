//! The broken regions that a process knows of.

use crate::bitmap::REGION;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// The most broken regions that are kept, the fullest first. There are many such where random
/// overwrites have left gaps of a few units everywhere; a search takes 40 us, to be spread over as
/// many allocations.
const KEPT: usize = 512;
pub(super) const KEPT_UNITS: u64 = 8192;

/// A broken region as it was found.
#[derive(Clone, Copy, Debug)]
pub(super) struct Hint {
    /// Its first unit.
    pub region: u64,
    /// Units used.
    pub used: u64,
    /// Its longest free run, units.
    pub longest: u64,
}

impl Hint {
    fn packed(self) -> u64 {
        (self.region / REGION) << 20 | self.used << 10 | self.longest
    }

    #[inline]
    fn unpacked(word: u64) -> Hint {
        Hint {
            region: (word >> 20) * REGION,
            used: word >> 10 & 1023,
            longest: word & 1023,
        }
    }
}

/// The broken regions that this process knows of, the fullest first.
#[derive(Debug)]
pub(crate) struct Hints {
    /// Packed hints; 0 for none. They are boxed, because a pool is moved a few times while it is
    /// attached, over stack that was never touched.
    kept: Box<[AtomicU64]>,
    /// The first that was not taken yet.
    next: AtomicUsize,
    /// The group where the next search begins.
    pub(super) hand: AtomicU64,
}

impl Default for Hints {
    fn default() -> Hints {
        Hints {
            kept: (0..KEPT).map(|_| AtomicU64::new(0)).collect(),
            next: AtomicUsize::new(KEPT),
            hand: AtomicU64::new(0),
        }
    }
}

impl Hints {
    /// Takes the fullest region with a run of at least `least` units, except the region of `avoid`.
    /// The hints before it are dropped.
    #[inline]
    pub(super) fn take(&self, least: u64, avoid: u64) -> Option<u64> {
        let suits = |hint: &Hint| hint.longest >= least && hint.region != avoid / REGION * REGION;
        let rest = self.next.load(Ordering::Relaxed)..KEPT;
        rest.map(|_| self.next.fetch_add(1, Ordering::Relaxed))
            .map_while(|at| self.kept.get(at))
            .map(|slot| slot.swap(0, Ordering::Relaxed))
            .take_while(|&word| word != 0)
            .map(Hint::unpacked)
            .find(suits)
            .map(|hint| hint.region)
    }

    /// Replaces the hints.
    pub(super) fn keep(&self, found: &[Hint]) {
        let words = found.iter().map(|hint| hint.packed());
        for (slot, word) in self.kept.iter().zip(words.chain(std::iter::repeat(0))) {
            slot.store(word, Ordering::Relaxed);
        }
        self.next.store(0, Ordering::Relaxed);
    }
}
