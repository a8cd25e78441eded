//! Tails by wear levelling: now and then a block that is written again and again moves, and a write
//! waits for that.

use serde::Serialize;

use crate::device::{Key, Numbers};
use crate::geometry::{LINE, WEAR_BLOCK};
use crate::pattern::{Op, Pattern};

/// The tail of writes within a region.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Tail {
    /// Accesses, on average, for one that waits for a move; absent if no block moves.
    pub accesses_a_move: Option<f64>,
    /// Time of that wait, us.
    pub move_us: f64,
    /// Latency of the slowest accesses that do not wait, us.
    pub usual_us: f64,
}

impl Tail {
    /// The latency that this share of the accesses keeps, us.
    #[must_use]
    pub fn quantile(&self, share: f64) -> f64 {
        // A share that is a decimal is no exact number of accesses.
        let waits = self.accesses_a_move.unwrap_or(f64::INFINITY);
        match (1.0 - share) * waits < 1.0 - 1e-6 {
            true => self.move_us,
            false => self.usual_us,
        }
    }

    /// The latency of the slowest access of a long run, us; `None` if no block moves: other causes
    /// than moves are not modelled.
    #[must_use]
    pub fn most(&self) -> Option<f64> {
        self.accesses_a_move.map(|_| self.move_us)
    }
}

/// The tail of accesses that stay within `region` bytes. Blocks move if one block takes most of the
/// writes: in regions up to a block each of its lines counts, from two blocks on none moves, and in
/// between the fewer move the larger the region is.
#[must_use]
pub fn tail(numbers: &Numbers, pattern: &Pattern, region: f64) -> Tail {
    let blocks = region / WEAR_BLOCK as f64;
    let hot = (2.0 - blocks).clamp(0.0, 1.0);
    let lines = match pattern.op {
        Op::Load => 0.0,
        _ => pattern.access as f64 / LINE as f64 / pattern.used(),
    };
    let share = (hot * lines / numbers[Key::TailWrites]).min(1.0);
    Tail {
        accesses_a_move: (share > 0.0).then_some(1.0 / share),
        move_us: numbers[Key::TailTime],
        usual_us: numbers[Key::TailUsual],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Device, Order};

    fn of(op: Op, access: u64, region: f64) -> Tail {
        let numbers = Device::named("optane-100").unwrap().numbers;
        let pattern = Pattern::new(op, Order::Sequential, access, None, 1).unwrap();
        tail(&numbers, &pattern, region)
    }

    /// Goal: the published shape of tails. Method: regions around a block and two.
    #[test]
    fn tails_end_at_two_blocks() {
        let hot = of(Op::NtStore, 256, 256.0);
        assert_eq!(hot.accesses_a_move, Some(10_000.0));
        assert_eq!(hot.quantile(0.9999), 0.37);
        assert_eq!(hot.quantile(0.999_99), 52.0);
        assert_eq!(hot.quantile(0.999), 0.37);
        assert_eq!(hot.most(), Some(52.0));
        let block = of(Op::NtStore, 256, 65_536.0);
        assert_eq!(block.accesses_a_move, hot.accesses_a_move);
        let more = of(Op::NtStore, 256, 98_304.0).accesses_a_move.unwrap();
        assert!(more > 1.9 * hot.accesses_a_move.unwrap());
        for region in [131_072.0, 1e9] {
            let none = of(Op::NtStore, 256, region);
            assert_eq!((none.accesses_a_move, none.most()), (None, None));
            assert_eq!(none.quantile(0.999_99), 0.37);
        }
        assert_eq!(of(Op::Load, 256, 256.0).accesses_a_move, None);
        let long = of(Op::NtStore, 4096, 4096.0).accesses_a_move.unwrap();
        assert!((long * 16.0 / hot.accesses_a_move.unwrap() - 1.0).abs() < 0.01);
        // A third of an access can't wait.
        assert_eq!(of(Op::NtStore, 1 << 30, 256.0).accesses_a_move, Some(1.0));
    }
}
