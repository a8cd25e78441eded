//! The control loop: the same work of processor and memory before and after each measurement. The
//! machine was busy with something else where it takes longer or shorter than it does in this run,
//! and the measurement is made again.

use std::hint::black_box;
use std::time::Instant;

/// A control loop further from the median than this, as a fraction, is an outlier.
const STRAY: f64 = 0.10;
/// A measurement is made again at most so often.
pub const AGAIN_MAX: u32 = 3;
/// Loops before the first measurement, so that there is a median.
const FIRST: usize = 9;
/// Steps of a chain of multiplications; with what follows some 20 ms on a processor of 3 GHz.
const STEPS: u64 = 8_000_000;
/// Words of memory that are gone through, and how often.
const WORDS: usize = 2 << 20;
const PASSES: usize = 2;

/// The loop and what it took so far.
pub struct Control<'a> {
    probe: Box<dyn FnMut() -> f64 + 'a>,
    took_ns: Vec<f64>,
}

/// A measurement that was made until the machine kept quiet.
#[derive(Clone, Debug, PartialEq)]
pub struct Steady {
    /// The value that was measured.
    pub value: f64,
    /// The number of times that it was made.
    pub attempts: u32,
    /// The control loops of the last attempt were outliers, too.
    pub strayed: bool,
    /// The loop before and after the attempt that counts.
    pub control_ns: [f64; 2],
}

impl<'a> Control<'a> {
    /// Makes a control by the loop itself.
    pub fn new() -> Control<'a> {
        let mut words = vec![1u64; WORDS];
        Control::with(move || work_ns(&mut words))
    }

    /// With something else that tells ns.
    pub fn with(probe: impl FnMut() -> f64 + 'a) -> Control<'a> {
        let mut control = Control {
            probe: Box::new(probe),
            took_ns: Vec::new(),
        };
        for _ in 0..FIRST {
            control.run();
        }
        control
    }

    fn run(&mut self) -> f64 {
        let ns = (self.probe)();
        self.took_ns.push(ns);
        ns
    }

    fn median_ns(&self) -> f64 {
        let mut sorted = self.took_ns.clone();
        sorted.sort_by(f64::total_cmp);
        sorted[sorted.len() / 2]
    }

    fn strays(&self, ns: f64) -> bool {
        (ns / self.median_ns() - 1.0).abs() > STRAY
    }

    /// Measures between two loops; again where one of them was an outlier, but for an error, which
    /// does not come from noise.
    pub fn steady(
        &mut self,
        mut measure: impl FnMut() -> anyhow::Result<f64>,
    ) -> anyhow::Result<Steady> {
        let mut attempts = 0;
        loop {
            let before = self.run();
            let value = measure()?;
            let after = self.run();
            attempts += 1;
            let strayed = self.strays(before) || self.strays(after);
            if !strayed || attempts > AGAIN_MAX {
                return Ok(Steady {
                    value,
                    attempts,
                    strayed,
                    control_ns: [before, after],
                });
            }
        }
    }
}

/// Returns the time that the work took.
fn work_ns(words: &mut [u64]) -> f64 {
    let start = Instant::now();
    let mut chain = 1u64;
    for step in 0..STEPS {
        chain = black_box(chain.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ step);
    }
    for pass in 0..PASSES {
        for word in words.iter_mut() {
            *word = word.wrapping_add(chain ^ pass as u64);
        }
        black_box(&mut *words);
    }
    start.elapsed().as_nanos() as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Loops that take 100 each, but for these numbers of them.
    fn control(strays: &'static [usize]) -> Control<'static> {
        let mut number = 0;
        Control::with(move || {
            number += 1;
            if number > FIRST && strays.contains(&(number - FIRST)) {
                111.0
            } else {
                100.0
            }
        })
    }

    fn values() -> impl FnMut() -> anyhow::Result<f64> {
        let mut value = 0.0;
        move || {
            value += 1.0;
            Ok(value)
        }
    }

    #[test]
    fn a_quiet_machine_measures_once() {
        let steady = control(&[]).steady(values()).unwrap();
        assert_eq!(
            (steady.value, steady.attempts, steady.strayed),
            (1.0, 1, false)
        );
        assert_eq!(steady.control_ns, [100.0, 100.0]);
    }

    #[test]
    fn a_loop_that_strays_before_or_after_makes_it_again() {
        for (strays, attempts) in [(&[1][..], 2), (&[2], 2), (&[2, 3], 3)] {
            let steady = control(strays).steady(values()).unwrap();
            assert_eq!(steady.attempts, attempts);
            assert_eq!(steady.value, f64::from(attempts), "the last one counts");
            assert!(!steady.strayed);
        }
    }

    #[test]
    fn after_three_times_it_is_taken_and_marked() {
        let steady = control(&[1, 3, 5, 7, 9]).steady(values()).unwrap();
        assert_eq!((steady.attempts, steady.strayed), (1 + AGAIN_MAX, true));
    }

    #[test]
    fn an_error_is_not_tried_again() {
        let mut times = 0;
        let measure = || {
            times += 1;
            anyhow::bail!("no")
        };
        assert!(control(&[1]).steady(measure).is_err());
        assert_eq!(times, 1);
    }
}
