//! Medians with spread, in rounds that take turns.

use std::time::Instant;

/// The way to run and print.
pub struct Report {
    /// Rounds.
    pub rounds: usize,
    /// JSON instead of a table.
    pub json: bool,
}

/// The figures of one candidate, ns an operation, one a round.
#[derive(Clone, Debug, Default)]
pub struct Figures(pub Vec<f64>);

impl Figures {
    fn sorted(&self) -> Vec<f64> {
        let mut sorted = self.0.clone();
        sorted.sort_by(f64::total_cmp);
        sorted
    }

    /// The median; of an even number, what lies between the two in the middle.
    pub fn median(&self) -> f64 {
        let sorted = self.sorted();
        let at = |at: usize| sorted.get(at).copied().unwrap_or(f64::NAN);
        match sorted.len() {
            0 => f64::NAN,
            count => f64::midpoint(at((count - 1) / 2), at(count / 2)),
        }
    }

    /// Median with least and greatest.
    pub fn text(&self) -> String {
        if self.0.is_empty() {
            return "-".into();
        }
        let sorted = self.sorted();
        format!(
            "{:.0} ({:.0}-{:.0})",
            self.median(),
            sorted[0],
            sorted[sorted.len() - 1]
        )
    }
}

/// Times `operations` operations; ns each.
pub fn time(operations: u64, body: impl FnOnce() -> anyhow::Result<()>) -> anyhow::Result<f64> {
    let start = Instant::now();
    body()?;
    Ok(start.elapsed().as_nanos() as f64 / operations as f64)
}

/// Medians of the ratio of `a` to `b` round by round.
pub fn ratio(a: &Figures, b: &Figures) -> f64 {
    Figures(a.0.iter().zip(&b.0).map(|(a, b)| a / b).collect()).median()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Either of two would flatter one side.
    #[test]
    fn the_median_of_an_even_number_lies_between() {
        for (figures, median) in [
            (vec![4.0], 4.0),
            (vec![4.0, 1.0], 2.5),
            (vec![9.0, 1.0, 4.0], 4.0),
        ] {
            assert_eq!(Figures(figures).median(), median);
        }
        assert!(Figures::default().median().is_nan());
    }
}
