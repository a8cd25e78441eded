//! The fit: numbers that make measured points likely.
//!
//! Residuals are logarithms of predicted by measured (differences for ratios), under a loss that is
//! square near zero and linear beyond [`NEAR`], so that a host that disagrees by four times does
//! not draw the rest. Steps are Levenberg's and Marquardt's on the numbers' logarithms, within
//! their bounds. A simplex is not used: see docs/adr/0072-fit-by-least-squares.md.

use crate::device::{Class, KEYS, Key, Numbers};
use crate::points::{Question, answer};

/// Residuals up to which the loss is square: far first, so that a fit does not end where part of
/// the points is given up.
const NEAR: [f64; 3] = [0.5, 0.15, 0.04];
/// The most steps of a fit.
const STEPS_MAX: usize = 80;
/// A fit ends when a step gains less than this share of the loss.
const GAIN_MIN: f64 = 1e-7;
/// Parts of a cross-validation.
pub const FOLDS: u64 = 5;

/// A point to fit to.
#[derive(Clone, Copy, Debug)]
pub struct Point {
    /// The question.
    pub question: Question,
    /// The measured answer.
    pub value: f64,
    /// The weight of its loss.
    pub weight: f64,
    /// The part of a cross-validation in which it is held out.
    pub fold: u64,
}

/// The end of a fit.
#[derive(Clone, Debug)]
pub struct Fitted {
    /// The numbers.
    pub numbers: Numbers,
    /// Each fitted number with its standard error, as a share of its value.
    pub uncertainty: Vec<(Key, f64)>,
    /// The loss: mean over points, weighted.
    pub loss: f64,
    /// Steps taken.
    pub steps: usize,
}

/// The weight of a figure's points: figures with few points weigh more each, and none counts by its
/// number of points alone.
#[must_use]
pub fn weight(question: &Question, figure: &str, power: &str) -> f64 {
    match question {
        Question::WriteRatio(..) => 0.3,
        Question::Chase { .. } => 0.5,
        Question::Amplification(_) => 4.0,
        Question::LoadedBandwidth(..)
        | Question::LoadedLatency(..)
        | Question::ThreadMix(..)
        | Question::TrafficMix(..) => 2.25,
        Question::Latency(_)
        | Question::Tail(..)
        | Question::Flushes(_)
        | Question::Groups(..)
        | Question::ChainRate(..)
        | Question::ChainLatency(..) => 0.0,
        Question::Bandwidth(..) if figure.starts_with("perma-") => 0.7,
        Question::Bandwidth(..) if power == "12500" || power == "18000" => 0.5,
        Question::Bandwidth(..) => 1.0,
    }
}

/// The part of a cross-validation of a configuration, by FNV-1a of its text: points of one
/// configuration are held out together, whatever their host, budget or metric.
#[must_use]
pub fn fold(configuration: &str) -> u64 {
    let mut hash: u64 = 0xcbf2_9ce4_8422_2325;
    for byte in configuration.bytes() {
        hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    }
    (hash ^ (hash >> 32)) % FOLDS
}

fn residual(numbers: &Numbers, point: &Point) -> f64 {
    let said = answer(numbers, &point.question);
    match point.question {
        Question::WriteRatio(..) => said - point.value,
        _ => (said / point.value).max(1e-9).ln(),
    }
}

fn loss_of(residual: f64, near: f64) -> f64 {
    let share = residual / near;
    near * near * ((1.0 + share * share).sqrt() - 1.0)
}

fn loss(numbers: &Numbers, points: &[Point], near: f64) -> f64 {
    let each = |point: &Point| point.weight * loss_of(residual(numbers, point), near);
    points.iter().map(each).sum()
}

/// The normal equations at `numbers`: the matrix, and the slope.
fn normal(
    numbers: &Numbers,
    points: &[Point],
    keys: &[Key],
    near: f64,
) -> (Vec<Vec<f64>>, Vec<f64>) {
    let step: f64 = 1e-5;
    let moved: Vec<Numbers> = (keys.iter())
        .map(|key| {
            let mut other = *numbers;
            other.set(*key, numbers[*key] * step.exp());
            other
        })
        .collect();
    let mut matrix = vec![vec![0.0; keys.len()]; keys.len()];
    let mut slope = vec![0.0; keys.len()];
    let mut row = vec![0.0; keys.len()];
    for point in points {
        let at = residual(numbers, point);
        for (cell, other) in row.iter_mut().zip(&moved) {
            *cell = (residual(other, point) - at) / step;
        }
        let weight = point.weight / (1.0 + (at / near).powi(2)).sqrt();
        for a in 0..keys.len() {
            if row[a] == 0.0 {
                continue;
            }
            slope[a] += weight * row[a] * at;
            for b in 0..=a {
                matrix[a][b] += weight * row[a] * row[b];
            }
        }
    }
    let lower = matrix.clone();
    for (a, row) in lower.iter().enumerate() {
        for (b, cell) in row.iter().enumerate().take(a) {
            matrix[b][a] = *cell;
        }
    }
    (matrix, slope)
}

/// The inverse of a symmetric matrix that is positive, by Gauss and Jordan; `None` if it is not.
fn inverse(matrix: &[Vec<f64>]) -> Option<Vec<Vec<f64>>> {
    let n = matrix.len();
    let mut left: Vec<Vec<f64>> = matrix.to_vec();
    let mut right = vec![vec![0.0; n]; n];
    for (at, row) in right.iter_mut().enumerate() {
        row[at] = 1.0;
    }
    for at in 0..n {
        let pivot = left[at][at];
        if !(pivot.abs() > 1e-300 && pivot.is_finite()) {
            return None;
        }
        for column in 0..n {
            left[at][column] /= pivot;
            right[at][column] /= pivot;
        }
        for row in 0..n {
            let factor = left[row][at];
            if row == at || factor == 0.0 {
                continue;
            }
            for column in 0..n {
                left[row][column] -= factor * left[at][column];
                right[row][column] -= factor * right[at][column];
            }
        }
    }
    Some(right)
}

/// The next numbers if the normal equations hold, damped by `damping`.
fn stepped(
    numbers: &Numbers,
    keys: &[Key],
    (matrix, slope): &(Vec<Vec<f64>>, Vec<f64>),
    damping: f64,
) -> Option<Numbers> {
    let mut damped = matrix.clone();
    for (at, row) in damped.iter_mut().enumerate() {
        row[at] += damping * (row[at] + 1e-3);
    }
    let solved = inverse(&damped)?;
    let mut next = *numbers;
    for (at, key) in keys.iter().enumerate() {
        let step: f64 = (solved[at].iter().zip(slope)).map(|(a, b)| a * b).sum();
        // A step of more than a factor of e in one go is no linear step any more.
        next.set(*key, numbers[*key] * (-step).clamp(-1.0, 1.0).exp());
    }
    Some(next)
}

/// Fits all free numbers to `points`, from `start`.
#[must_use]
pub fn fit(points: &[Point], start: &Numbers) -> Fitted {
    let keys: Vec<Key> = (KEYS.iter().copied())
        .filter(|key| key.entry().class != Class::Cited)
        .collect();
    let mut numbers = *start;
    let mut steps = 0;
    for near in NEAR {
        steps += descend(&mut numbers, points, &keys, near);
    }
    let near = NEAR[NEAR.len() - 1];
    let weights: f64 = points.iter().map(|point| point.weight).sum();
    Fitted {
        numbers,
        uncertainty: uncertainty(&numbers, points, &keys),
        loss: loss(&numbers, points, near) / weights.max(1e-9),
        steps,
    }
}

/// Steps down the loss until it stays. Returns how many.
fn descend(numbers: &mut Numbers, points: &[Point], keys: &[Key], near: f64) -> usize {
    let mut least = loss(numbers, points, near);
    let mut damping = 1e-2;
    let mut steps = 0;
    while steps < STEPS_MAX {
        steps += 1;
        let equations = normal(numbers, points, keys, near);
        let mut gained = 0.0;
        for _ in 0..12 {
            let next = stepped(numbers, keys, &equations, damping);
            let Some(next) = next else {
                damping *= 4.0;
                continue;
            };
            let now = loss(&next, points, near);
            if now < least {
                gained = (least - now) / least;
                (*numbers, least) = (next, now);
                damping = (damping / 3.0).max(1e-9);
                break;
            }
            damping *= 4.0;
        }
        if gained < GAIN_MIN {
            break;
        }
    }
    steps
}

/// Standard errors of the numbers' logarithms, by the loss's curvature at its minimum.
fn uncertainty(numbers: &Numbers, points: &[Point], keys: &[Key]) -> Vec<(Key, f64)> {
    let near = NEAR[NEAR.len() - 1];
    let (mut matrix, _) = normal(numbers, points, keys, near);
    for (at, row) in matrix.iter_mut().enumerate() {
        row[at] += 1e-9;
    }
    let freedom = points.len().saturating_sub(keys.len()).max(1) as f64;
    let variance = 2.0 * loss(numbers, points, near) / freedom;
    let solved = inverse(&matrix);
    let error = |at: usize| match &solved {
        Some(solved) => (solved[at][at].max(0.0) * variance).sqrt().min(10.0),
        None => 10.0,
    };
    (keys.iter().enumerate())
        .map(|(at, key)| (*key, error(at)))
        .collect()
}

/// Starts that differ by a seed: each first guess is moved by up to a quarter.
#[must_use]
pub fn start(seed: u64) -> Numbers {
    let mut numbers = Numbers::start();
    let mut state = seed;
    for key in KEYS.iter().filter(|key| key.is_fitted()) {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^= mixed >> 31;
        let share = mixed as f64 / u64::MAX as f64;
        if seed != 0 {
            numbers.set(*key, numbers[*key] * (0.5 * share - 0.25).exp());
        }
    }
    numbers
}
