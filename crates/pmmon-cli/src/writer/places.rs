//! Where accesses go.

use pmmon_cli::writer::Order;
use rand::RngExt;
use rand::SeedableRng;
use rand_distr::{Distribution, Zipf};
use rand_xorshift::XorShiftRng;

/// Ranks are scattered by a multiplier that has no factor in common with their number.
const SCATTER: u64 = 2_654_435_761;

/// Places of accesses in a thread's part of the file, without end.
#[derive(Debug)]
pub(crate) struct Places {
    start: u64,
    access: u64,
    places: u64,
    next: u64,
    order: Order,
    zipf: Option<Zipf<f64>>,
    multiplier: u64,
    random: XorShiftRng,
}

impl Places {
    /// Places of accesses of `access` bytes in the `number`-th part of `part` bytes.
    pub fn new(order: Order, number: u32, part: u64, access: u32) -> Self {
        let places = part / u64::from(access);
        let zipf = match order {
            Order::Zipf(exponent) => Zipf::new(places as f64, exponent).ok(),
            Order::Sequential | Order::Random => None,
        };
        let mut multiplier = SCATTER;
        while common_factor(multiplier, places) != 1 {
            multiplier += 1;
        }
        Self {
            start: u64::from(number) * part,
            access: u64::from(access),
            places,
            next: 0,
            order,
            zipf,
            multiplier,
            random: XorShiftRng::seed_from_u64(u64::from(number) + 1),
        }
    }

    fn place(&mut self) -> u64 {
        match (self.order, &self.zipf) {
            (Order::Zipf(_), Some(zipf)) => {
                let rank = zipf.sample(&mut self.random) as u64 - 1;
                let scattered = u128::from(rank) * u128::from(self.multiplier);
                (scattered % u128::from(self.places)) as u64
            }
            (Order::Sequential, _) => {
                let place = self.next;
                self.next = (place + 1) % self.places;
                place
            }
            _ => self.random.random_range(0..self.places),
        }
    }

    /// Fills a batch: bytes from the file's start.
    pub fn fill(&mut self, batch: &mut [u32]) {
        for offset in batch {
            let at = self.start + self.place() * self.access;
            *offset = u32::try_from(at).expect("a file of at most 4 GiB");
        }
    }
}

fn common_factor(one: u64, other: u64) -> u64 {
    let (mut larger, mut smaller) = (one, other);
    while smaller != 0 {
        (larger, smaller) = (smaller, larger % smaller);
    }
    larger
}

#[cfg(test)]
mod tests {
    use super::*;

    fn batch(order: Order, number: u32) -> Vec<u32> {
        let mut batch = vec![0; 100_000];
        Places::new(order, number, 64_000, 64).fill(&mut batch);
        batch
    }

    /// Goal: each order stays in its part, on whole accesses, and goes everywhere. Method: 100
    /// times as many draws as there are places.
    #[test]
    fn places_are_within_the_part() {
        for order in [Order::Sequential, Order::Random, Order::Zipf(0.5)] {
            let drawn = batch(order, 1);
            assert!(drawn.iter().all(|at| (64_000..128_000).contains(at)));
            assert!(drawn.iter().all(|at| at % 64 == 0));
            let places: std::collections::BTreeSet<_> = drawn.iter().collect();
            assert_eq!(places.len(), 1000, "{order:?}");
        }
        assert_eq!(batch(Order::Sequential, 0)[..3], [0, 64, 128]);
        assert_eq!(batch(Order::Sequential, 0)[1000], 0);
    }

    /// Goal: Zipf's law. Method: with exponent 1 and 1,000 places the first has 1 / 7.485 of all
    /// draws, the second half of that.
    #[test]
    fn ranks_follow_the_law() {
        let drawn = batch(Order::Zipf(1.0), 0);
        let share = |place: u32| {
            drawn.iter().filter(|at| **at == place * 64).count() as f64 / drawn.len() as f64
        };
        let second = SCATTER % 1000;
        assert!((share(0) - 0.1336).abs() < 0.005, "{}", share(0));
        assert!((share(second as u32) - 0.0668).abs() < 0.005);
    }
}
