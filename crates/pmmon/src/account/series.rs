//! Sums over arms, from which an estimate is computed at any time.

use super::interval::Moments;

/// Sums over a thread's arms that all of its series have in common.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Frame {
    /// Arms.
    pub arms: u64,
    /// The parts of arms in the time that the thread ran: an arm's weight.
    pub ran: f64,
    /// Time that the thread ran, over all arms, each with the whole of its round.
    pub turns: f64,
    pub ran_squared: f64,
    /// The same, less the time that traps took.
    pub undisturbed: f64,
    /// The most that one hit on one byte can stand for: the words among which one was drawn.
    pub words: f64,
}

/// Sums over a thread's arms of what was seen on their words.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Series {
    sum: f64,
    squared: f64,
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
        let freedom = (arms - 1.0).max(1.0);
        // One arm alone says nothing of the variance between arms.
        let between = if frame.arms < 2 {
            self.squared
        } else {
            residues.max(0.0) * arms / freedom
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
