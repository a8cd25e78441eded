//! Intervals of 95 %.
//!
//! Few hits are skewed: the interval is that of a weighted sum of Poisson counts, after M. Fay and
//! E. Feuer, "Confidence intervals for directly standardized rates", Statistics in Medicine 16
//! (1997). With no hit at all it is the exact Poisson bound, with many it is the usual one. Its
//! variance is the one between arms, made larger by Student's quantile where there are few arms.

use puruspe::{gammp, invbetai};

/// Half of what may be outside.
const TAIL: f64 = 0.025;
/// The normal distribution's quantile at 1 - `TAIL`.
const NORMAL: f64 = 1.959_963_985;
/// Shapes from which the quantile is that of E. Wilson and M. Hilferty (1931), which is right to a
/// hundred thousandth there.
const SHAPE_MAX: f64 = 100.0;
/// Halvings of a range that holds the quantile: a billionth of it is left.
const BISECTIONS: u32 = 30;

/// An estimate with its interval of 95 %. All are totals: bytes, or accesses.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Figure {
    /// The estimate.
    pub value: f64,
    /// The interval's low end.
    pub low: f64,
    /// The interval's high end.
    pub high: f64,
    /// Hits that the estimate stands on.
    pub hits: u64,
}

impl Figure {
    /// The figure of events that each stand for `each`, and come as Poisson's law has it.
    #[must_use]
    pub fn counted(count: u64, each: f64) -> Self {
        let value = count as f64 * each;
        let moments = Moments {
            value,
            variance: value * each,
            weight: each,
            hits: count,
            ..Moments::default()
        };
        moments.figure()
    }
}

/// An estimate before it gets its interval: those of strata and of threads can be added up.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Moments {
    pub value: f64,
    pub variance: f64,
    /// The sum of each part's variance squared, by its degrees of freedom (Satterthwaite).
    pub spread: f64,
    /// The value that one more hit would have added.
    pub weight: f64,
    /// How far the estimate may be off in one direction, because exposure is not known better.
    pub systematic: f64,
    pub hits: u64,
}

impl Moments {
    /// Adds an estimate that was drawn independently.
    pub fn add(&mut self, other: &Self) {
        self.value += other.value;
        self.variance += other.variance;
        self.spread += other.spread;
        self.weight = self.weight.max(other.weight);
        self.systematic += other.systematic;
        self.hits += other.hits;
    }

    /// The estimate with its interval.
    pub fn figure(&self) -> Figure {
        let freedom = if self.spread > 0.0 {
            (self.variance * self.variance / self.spread).max(1.0)
        } else {
            f64::INFINITY
        };
        let widening = student(freedom) / NORMAL;
        let variance = self.variance * widening * widening;
        let low = quantile(self.value, variance, TAIL);
        let high = quantile(
            self.value + self.weight,
            variance + self.weight * self.weight,
            1.0 - TAIL,
        );
        Figure {
            value: self.value,
            low: (low.min(self.value) - self.systematic).max(0.0),
            high: high.max(self.value) + self.systematic,
            hits: self.hits,
        }
    }
}

/// The quantile of a gamma distribution with this mean and variance. It is bisected, because the
/// library's inverse leaves its domain for some shapes.
fn quantile(mean: f64, variance: f64, at: f64) -> f64 {
    if mean <= 0.0 || variance <= 0.0 {
        return mean.max(0.0);
    }
    let shape = mean * mean / variance;
    if shape >= SHAPE_MAX {
        let normal = NORMAL.copysign(at - 0.5);
        return mean * (1.0 - 1.0 / (9.0 * shape) + normal / (3.0 * shape.sqrt())).powi(3);
    }
    let (mut low, mut high) = (0.0, shape + 10.0 * shape.sqrt() + 10.0);
    for _ in 0..BISECTIONS {
        let middle = (low + high) / 2.0;
        if gammp(shape, middle) < at {
            low = middle;
        } else {
            high = middle;
        }
    }
    (low + high) / 2.0 / shape * mean
}

/// Student's quantile at 1 - `TAIL`.
fn student(freedom: f64) -> f64 {
    if freedom > 1e4 {
        return NORMAL;
    }
    let beta = invbetai(2.0 * TAIL, freedom / 2.0, 0.5);
    (freedom * (1.0 - beta) / beta).sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn close(value: f64, expected: f64) {
        assert!(
            (value - expected).abs() < 2e-3 * expected,
            "{value} is not {expected}"
        );
    }

    /// Goal: quantiles are those of printed tables. Method: exact Poisson bounds of 0, 1 and 10
    /// (Garwood 1936), Student's at 1, 4 and 30 degrees of freedom.
    #[test]
    fn bounds_are_those_of_the_tables() {
        for (count, low, high) in [
            (0.0, 0.0, 3.689),
            (1.0, 0.0253, 5.572),
            (10.0, 4.795, 18.39),
        ] {
            let moments = Moments {
                value: count,
                variance: count,
                weight: 1.0,
                ..Moments::default()
            };
            let figure = moments.figure();
            assert!((figure.low - low).abs() < 1e-3, "{figure:?}");
            close(figure.high, high);
        }
        // Either side of the change of formula.
        close(quantile(99.99, 99.99, TAIL), 81.35);
        close(quantile(100.01, 100.01, TAIL), 81.37);
        close(quantile(99.99, 99.99, 1.0 - TAIL), 120.52);
        close(quantile(100.01, 100.01, 1.0 - TAIL), 120.54);
        close(student(1.0), 12.706);
        close(student(4.0), 2.776);
        close(student(30.0), 2.042);
        close(student(f64::INFINITY), 1.960);
    }

    /// Goal: large counts get an interval too, and in time. Method: 10^12 hits.
    #[test]
    fn many_hits_are_normal() {
        let moments = Moments {
            value: 1e12,
            variance: 1e12,
            weight: 1.0,
            systematic: 1e7,
            ..Moments::default()
        };
        let figure = moments.figure();
        close(figure.high - figure.value, 1.96e6 + 1e7);
        close(figure.value - figure.low, 1.96e6 + 1e7);
    }
}
