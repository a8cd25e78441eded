//! Pieces of work during which the thread had the processor.

use std::time::Instant;

use anyhow::bail;
use rustix::time::{ClockId, clock_gettime};

use crate::measure::Figures;

/// Pieces of which a round's figure is the median.
pub const PIECES: usize = 9;
/// Pieces that are made again at most, for one figure.
pub const AGAIN_MAX: usize = 5000;
/// A thread has to have the processor for so much of the time, parts of one.
pub const STEADY_MIN: f64 = 0.97;

/// Pieces that were made again.
pub struct Strayed(pub usize);

impl Strayed {
    /// Returns the median over undisturbed pieces of work; a piece returns its figure and its time.
    pub fn steady(&mut self, mut work: impl FnMut() -> anyhow::Result<f64>) -> anyhow::Result<f64> {
        let mut good = Figures::default();
        let most = self.0 + AGAIN_MAX;
        while good.0.len() < PIECES {
            let (figure, is_steady) = watched(&mut work)?;
            if is_steady {
                good.0.push(figure);
                continue;
            }
            self.0 += 1;
            if self.0 > most {
                bail!(
                    "the machine is too busy: a piece of work strayed {AGAIN_MAX} times; try again when it is not"
                );
            }
        }
        Ok(good.median())
    }
}

/// Returns the result of some work, and whether the thread had the processor all the time.
pub fn watched<T>(work: &mut impl FnMut() -> anyhow::Result<T>) -> anyhow::Result<(T, bool)> {
    let processor = || {
        let time = clock_gettime(ClockId::ThreadCPUTime);
        time.tv_sec as f64 * 1e9 + time.tv_nsec as f64
    };
    let (had, since) = (processor(), Instant::now());
    let figure = work()?;
    let took = since.elapsed().as_nanos() as f64;
    Ok((figure, processor() - had >= took * STEADY_MIN))
}
