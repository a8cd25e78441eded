//! The norm by which two times meet, from a table: a power costs more than a read of 64 bytes may.

/// Steps of the table.
const STEPS: usize = 64;

/// `(a^p + b^p)^(1/p)`, within 0.1 %.
pub(super) struct Norm([f64; STEPS + 2]);

impl Norm {
    /// The norm of a power from 1 on.
    pub(super) fn new(power: f64) -> Norm {
        let entry = |step: usize| {
            let ratio = step as f64 / STEPS as f64;
            libm::pow(1.0 + libm::pow(ratio, power), 1.0 / power)
        };
        Norm(std::array::from_fn(entry))
    }

    /// The norm of two times, neither negative.
    pub(super) fn meet(&self, a: f64, b: f64) -> f64 {
        let (least, most) = if a < b { (a, b) } else { (b, a) };
        if most <= 0.0 {
            return 0.0;
        }
        let place = least / most * STEPS as f64;
        let step = (place as usize).min(STEPS);
        let part = place - step as f64;
        most * (self.0[step] + (self.0[step + 1] - self.0[step]) * part)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_table_is_the_norm(a in 0.0..1e6_f64, b in 0.0..1e6_f64, power in 1.5..20.0_f64) {
            let most = a.max(b);
            let exact = match most > 0.0 {
                true => most * ((a / most).powf(power) + (b / most).powf(power)).powf(1.0 / power),
                false => 0.0,
            };
            let got = Norm::new(power).meet(a, b);
            prop_assert!((got - exact).abs() <= exact * 1e-3, "{got} {exact}");
        }
    }
}
