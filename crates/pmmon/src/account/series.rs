//! Sums over arms, from which an estimate is computed at any time.

use std::collections::VecDeque;

use super::interval::Moments;

/// An arm is compared with the one so many arms before. Samplers draw words by a sequence that
/// fills the regions evenly: the n-th is at the fractional part of n times the golden ratio, and
/// two draws that are a Fibonacci number apart are near each other, here by 2 % of the regions.
/// A difference over larger distances is no error, since all places have their share of draws.
/// Draws without any order have the same expectation.
const LAG: u64 = 21;
/// The degrees of freedom of a difference: neighbours have an arm in common.
const FREEDOM: f64 = 2.0 / 3.0;

/// Sums over a thread's arms that all of its series have in common.
#[derive(Clone, Debug, Default)]
pub(super) struct Frame {
    /// Arms.
    pub arms: u64,
    /// The parts of arms in the time that the thread ran: an arm's weight.
    pub ran: f64,
    /// Time that the thread ran, over all arms, each with the whole of its round.
    pub turns: f64,
    ran_squared: f64,
    /// The same, less the time that traps took.
    pub undisturbed: f64,
    /// The most that one hit on one byte can stand for: the words among which one was drawn.
    pub words: f64,
    /// Weights of the last arms, and squared differences of all pairs.
    weights: VecDeque<f64>,
    differences: f64,
}

impl Frame {
    /// Adds an arm's weight.
    pub fn weigh(&mut self, ran: f64) {
        self.ran += ran;
        self.ran_squared += ran * ran;
        self.weights.push_back(ran);
        if self.weights.len() as u64 > LAG + 1 {
            self.weights.pop_front();
        }
        self.differences += self.difference().unwrap_or(0.0).powi(2);
    }

    /// The weight of the last arm, less that of the one [`LAG`] before it, if there is one.
    fn difference(&self) -> Option<f64> {
        let is_full = self.weights.len() as u64 > LAG;
        let (first, last) = (self.weights.front()?, self.weights.back()?);
        is_full.then_some(last - first)
    }
}

/// Sums over a thread's arms of what was seen on their words.
#[derive(Clone, Debug, Default)]
pub(super) struct Series {
    sum: f64,
    squared: f64,
    /// Over pairs of arms: squared differences of weighted rates, and their products with those of
    /// weights.
    differences: f64,
    products: f64,
    /// Weighted rates of arms that have none behind them yet, with the arms' numbers.
    recent: VecDeque<(u64, f64)>,
    by_ran: f64,
    systematic: f64,
    /// The most that a hit had.
    largest: f64,
    hits: u64,
}

impl Series {
    /// Adds an arm's: `rate` by undisturbed time, `uncertain` the part of it that may be wrong.
    pub fn add(&mut self, rate: f64, ran: f64, uncertain: f64, largest: f64, hits: u64) {
        let term = rate * ran;
        self.sum += term;
        self.squared += term * term;
        self.by_ran += term * ran;
        self.systematic += term * uncertain;
        self.largest = self.largest.max(largest);
        self.hits += hits;
    }

    /// Compares the last arm, with or without hits, with the one [`LAG`] before it.
    pub fn compare(&mut self, frame: &Frame, term: f64) {
        let due = self.recent.front().copied();
        let before = match due.filter(|(number, _)| number + LAG == frame.arms) {
            Some((_, before)) => {
                self.recent.pop_front();
                before
            }
            None => 0.0,
        };
        if let Some(of_weights) = frame.difference() {
            self.differences += (term - before).powi(2);
            self.products += (term - before) * of_weights;
        }
        if term != 0.0 {
            self.recent.push_back((frame.arms, term));
        }
    }

    /// The total over `ran_ns` of the thread's time, of a series whose hits have at most `most`.
    pub fn moments(&self, frame: &Frame, ran_ns: f64, most: f64) -> Moments {
        if frame.ran <= 0.0 {
            return Moments::default();
        }
        let undisturbed = ran_ns * (frame.undisturbed / frame.ran).clamp(0.0, 1.0);
        let scale = undisturbed / frame.ran;
        let rate = self.sum / frame.ran;
        let residues = self.squared - 2.0 * rate * self.by_ran + rate * rate * frame.ran_squared;
        let arms = frame.arms as f64;
        let mut freedom = (arms - 1.0).max(1.0);
        // One arm alone says nothing of the variance between arms.
        let between = if frame.arms < 2 {
            self.squared
        } else if frame.arms <= 2 * LAG {
            residues.max(0.0) * arms / freedom
        } else {
            let pairs = (frame.arms - LAG) as f64;
            freedom = pairs * FREEDOM;
            // Differences of weight x (rate - mean rate).
            let squares =
                self.differences - 2.0 * rate * self.products + rate * rate * frame.differences;
            squares.max(0.0) / 2.0 * arms / pairs
        };
        let variance = between * scale * scale;
        let largest = if self.hits == 0 { most } else { self.largest };
        Moments {
            value: self.sum * scale,
            variance,
            spread: variance * variance / freedom,
            // A hit of an arm adds its words for the share of the time that was the arm's.
            weight: largest * frame.words * ran_ns / frame.turns,
            systematic: self.systematic * scale,
            hits: self.hits,
        }
    }
}
