//! The progress of a long run on standard error: a bar on a terminal, a line an experiment
//! elsewhere, and the time that is left by what was measured.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::collections::HashMap;
use std::time::Duration;

/// The kind of a measurement: experiment, point and target by number. All of a kind take as long.
pub type Which = (usize, usize, usize);

/// The measurements that are left.
pub struct Progress {
    bar: ProgressBar,
    left: HashMap<Which, usize>,
    took_s: HashMap<Which, f64>,
}

impl Progress {
    /// With all that is to be measured.
    pub fn new(left: HashMap<Which, usize>) -> Progress {
        let count: usize = left.values().sum();
        let bar = ProgressBar::with_draw_target(Some(count as u64), ProgressDrawTarget::stderr());
        let style = ProgressStyle::with_template("{wide_bar} {pos}/{len} {msg}");
        if let Ok(style) = style {
            bar.set_style(style);
        }
        let took_s = HashMap::new();
        Progress { bar, left, took_s }
    }

    /// An experiment begins.
    pub fn begins(&self, name: &str, title: &str) {
        if self.bar.is_hidden() {
            eprintln!("{name}: {title}; {}", self.estimate());
        }
    }

    /// A measurement begins.
    pub fn shows(&self, what: &str) {
        let text = format!("{}; {what}", self.estimate());
        self.bar.set_message(text);
    }

    /// Notes that a measurement is done.
    pub fn done(&mut self, which: Which, took_s: f64) {
        self.took_s.insert(which, took_s);
        self.gone(which);
    }

    /// Notes that a measurement is not going to be made.
    pub fn gone(&mut self, which: Which) {
        if let Some(left) = self.left.get_mut(&which) {
            *left = left.saturating_sub(1);
        }
        self.bar.inc(1);
    }

    /// Says something beside the bar.
    pub fn says(&self, text: &str) {
        self.bar.suspend(|| eprintln!("{text}"));
    }

    /// The bar goes.
    pub fn ends(&self) {
        self.bar.finish_and_clear();
    }

    /// Returns the time that is left, by what the same took before, or else others.
    fn left_s(&self) -> Option<f64> {
        let known = self.took_s.len();
        let mean = self.took_s.values().sum::<f64>() / known as f64;
        let of = |(which, left): (&Which, &usize)| {
            *left as f64 * self.took_s.get(which).copied().unwrap_or(mean)
        };
        (known > 0).then(|| self.left.iter().map(of).sum())
    }

    fn estimate(&self) -> String {
        let left: usize = self.left.values().sum();
        match self.left_s() {
            None => format!("{left} measurements"),
            Some(left_s) => {
                let left = indicatif::HumanDuration(Duration::from_secs_f64(left_s));
                format!("{left} left")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_goes_by_what_was_measured() {
        let (slow, quick, unknown) = ((0, 0, 0), (0, 0, 1), (0, 1, 0));
        let left = HashMap::from([(slow, 4), (quick, 3), (unknown, 1)]);
        let mut progress = Progress::new(left);
        assert_eq!(progress.left_s(), None);
        progress.done(slow, 10.0);
        progress.done(quick, 1.0);
        assert_eq!(progress.left_s(), Some(30.0 + 2.0 + 5.5));
        progress.gone(unknown);
        assert_eq!(progress.left_s(), Some(32.0));
    }
}
