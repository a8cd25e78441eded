//! The order of a leaf's keys, as a process has found it.
//!
//! A leaf's slots stand in no order, so that a walk would have to read all of its keys before it
//! shows the first. The order is kept beside the map of the leaf's chunk, with a digest of all of
//! the leaf's slots: as long as that is the same, so is the order, for a record never changes, and
//! a slot tells its place's instance. It is knowledge of this process alone, and no more than a
//! hint: each record is verified when it is come to.

use std::sync::{Arc, OnceLock};

use arc_swap::ArcSwapOption;

/// The most slots of a leaf whose order is kept.
pub(super) const SLOTS_MAX: usize = 64;
/// Mixes the words of a digest.
const ODD: u64 = 0x9e37_79b9_7f4a_7c15;

/// The numbers of a leaf's slots in the order of their keys.
#[derive(Debug)]
pub(crate) struct Order {
    digest: u64,
    len: u8,
    slots: [u8; SLOTS_MAX],
}

/// The orders of a chunk's leaves, by their number in order.
#[derive(Debug, Default)]
pub(crate) struct Orders(OnceLock<Box<[ArcSwapOption<Order>]>>);

/// Another map's leaves have other numbers.
impl Clone for Orders {
    fn clone(&self) -> Orders {
        Orders::default()
    }
}

/// A digest with one more word. Leaves that differ in one slot alone have different ones.
#[inline(always)]
pub(super) fn with_word(digest: u64, word: u64) -> u64 {
    (digest.rotate_left(5) ^ word).wrapping_mul(ODD)
}

impl Order {
    /// The order of at most [`SLOTS_MAX`] slots.
    pub fn of(digest: u64, numbers: impl Iterator<Item = u8>) -> Order {
        let (mut len, mut slots) = (0, [0; SLOTS_MAX]);
        for (to, number) in slots.iter_mut().zip(numbers) {
            *to = number;
            len += 1;
        }
        Order { digest, len, slots }
    }

    /// The slots' numbers.
    #[inline]
    pub fn slots(&self) -> &[u8] {
        &self.slots[..usize::from(self.len)]
    }
}

impl Orders {
    /// Puts the order of leaf number `nth` into a buffer, and answers the digest of which it is;
    /// `None`: it is not known.
    #[inline]
    pub fn copy_to(&self, nth: usize, to: &mut Vec<u8>) -> Option<u64> {
        let order = self.0.get()?.get(nth)?.load();
        let order = order.as_ref()?;
        to.clear();
        to.extend_from_slice(order.slots());
        Some(order.digest)
    }

    /// Keeps the order of leaf number `nth` of so many.
    pub fn keep(&self, nth: usize, leaves: usize, order: Order) {
        let all = self.0.get_or_init(|| {
            let none = |_| ArcSwapOption::empty();
            (0..leaves).map(none).collect()
        });
        if let Some(kept) = all.get(nth) {
            kept.store(Some(Arc::new(order)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_come_back_as_they_were_kept() {
        let (orders, mut to) = (Orders::default(), vec![9]);
        assert_eq!(orders.copy_to(0, &mut to), None);
        orders.keep(1, 3, Order::of(7, [2, 0, 1].into_iter()));
        assert_eq!(orders.copy_to(0, &mut to), None);
        assert_eq!(orders.copy_to(1, &mut to), Some(7));
        assert_eq!(to, [2, 0, 1]);
        assert_eq!(orders.clone().copy_to(1, &mut to), None);
    }

    #[test]
    fn digests_tell_slots_apart() {
        let digest = |words: [u64; 3]| words.into_iter().fold(0, with_word);
        let one = digest([1, 2, 3]);
        for other in [[2, 1, 3], [1, 2, 0], [1, 3, 2], [0, 2, 3]] {
            assert_ne!(digest(other), one);
        }
    }
}
