//! Measured points as a fit and a judgement take them.

use pmep::analytic::predict;
use pmep::device::Numbers;
use pmep::fit::{FOLDS, Point, fit, fold, weight};
use pmep::pattern::{Machine, Pattern};
use pmep::points::{Question, answer};
use pmep::score::{Scored, Statistic, Verdict, judge, quantile};
use pmep::sim::Sim;

use crate::table::Row;

/// Deliberate faults, to see that `check` finds them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Planted {
    /// The two write columns of figure 4 are swapped.
    SwappedColumns,
    /// Answers are GB/s where GiB/s are asked.
    Gigabytes,
    /// The buffer has 32 lines.
    Buffer32,
    /// Modules are interleaved by 8 KiB.
    Interleave8k,
}

/// Returns whether a row takes part: those of the goals do, others need not be like them.
fn takes_part(row: &Row) -> bool {
    let record = &row.record;
    match &row.question {
        Ok(Question::WriteRatio(..)) => record.power == "15000" && record.pattern == "rand",
        Ok(Question::Bandwidth(..)) if row.tier == "D" => {
            (record.power == "12500" || record.power == "18000") && row.note.is_empty()
        }
        Ok(Question::Bandwidth(..)) if record.figure == "fast20-14" => false,
        Ok(Question::TrafficMix(..)) => record.media == "optane",
        Ok(
            Question::Latency(_)
            | Question::Tail(..)
            | Question::Groups(..)
            | Question::ChainRate(..)
            | Question::ChainLatency(..),
        ) => false,
        Ok(_) => true,
        Err(_) => false,
    }
}

/// A configuration's text: what stays the same in its repeats, hosts, budgets and metrics.
fn configuration(row: &Row, question: &Question) -> String {
    let pattern_of = |pattern: &Pattern, machine: &Machine| {
        format!(
            "{} {} {:?} {} {} {}",
            pattern.op.name(),
            machine.geometry.dimms(),
            pattern.is_sequential().then_some("seq"),
            pattern.access,
            pattern.stride,
            pattern.threads
        )
    };
    match question {
        Question::Bandwidth(pattern, machine) | Question::WriteRatio(pattern, machine) => {
            pattern_of(pattern, machine)
        }
        _ => {
            let record = &row.record;
            format!(
                "{} {} {} {} {}",
                record.figure, record.op, record.pattern, record.access, record.threads
            )
        }
    }
}

/// The points that a fit takes.
#[must_use]
pub fn points(rows: &[Row]) -> Vec<Point> {
    let point = |row: &Row| {
        let question = row.question.as_ref().ok()?;
        let value = row.value.filter(|value| *value > 0.0)?;
        takes_part(row).then(|| Point {
            question: *question,
            value,
            weight: weight(question, &row.record.figure, &row.record.power),
            fold: fold(&configuration(row, question)),
        })
    };
    rows.iter().filter_map(point).collect()
}

/// A row beside its prediction.
fn scored(row: &Row, numbers: &Numbers, scale: f64) -> Scored {
    let said = row.question.as_ref().ok();
    Scored {
        tier: row.tier.clone(),
        figure: row.record.figure.clone(),
        op: row.record.op.clone(),
        media: row.record.media.clone(),
        metric: row.record.metric.clone(),
        power: row.record.power.clone(),
        pattern: row.record.pattern.clone(),
        note: row.note.clone(),
        value: row.value.unwrap_or(0.0),
        predicted: said.map(|question| answer(numbers, question) * scale),
    }
}

/// The goals on `rows`.
#[must_use]
pub fn goals(rows: &[Row], numbers: &Numbers, scale: f64) -> Vec<Verdict> {
    let all: Vec<Scored> = rows.iter().map(|row| scored(row, numbers, scale)).collect();
    judge(&all)
}

/// Bytes that the event model moves for each pattern.
const EVENT_BYTES: u64 = 16 << 20;

/// The event model beside the closed forms, over the patterns of the sweep: the median of their
/// relative difference, in percent.
///
/// # Errors
/// None is known.
pub fn events(rows: &[Row], numbers: &Numbers) -> pmep::Result<Verdict> {
    let mut seen = std::collections::BTreeSet::new();
    let mut errors = Vec::new();
    for row in rows.iter().filter(|row| row.tier == "C") {
        let Ok(Question::Bandwidth(pattern, machine)) = &row.question else {
            continue;
        };
        let name = format!("{pattern:?} {machine:?}");
        if !seen.insert(name) {
            continue;
        }
        let threads = u64::from(pattern.threads);
        let accesses = (EVENT_BYTES / pattern.access).clamp(16 * threads, 20_000);
        let events = Sim::new(numbers, machine).measure(pattern, accesses)?;
        let forms = predict(numbers, pattern, machine).bandwidth_gib_s;
        errors.push((events / forms - 1.0).abs() * 100.0);
    }
    errors.sort_by(f64::total_cmp);
    let got = quantile(&errors, 0.5);
    Ok(Verdict {
        name: "events by closed forms".to_owned(),
        statistic: Statistic::Median,
        rows: errors.len(),
        got,
        limit: 5.0,
        met: got.is_some_and(|got| got <= 5.0),
    })
}

/// The goals on rows of which each is predicted by a fit that has not seen its configuration.
#[must_use]
pub fn cross_validated(rows: &[Row], start: &Numbers) -> Vec<Verdict> {
    let all = points(rows);
    let mut out = Vec::new();
    for part in 0..FOLDS {
        let seen: Vec<Point> = all
            .iter()
            .copied()
            .filter(|point| point.fold != part)
            .collect();
        let numbers = fit(&seen, start).numbers;
        for row in rows {
            let is_here = match &row.question {
                Ok(question) => fold(&configuration(row, question)) == part,
                Err(_) => part == 0,
            };
            if is_here {
                out.push(scored(row, &numbers, 1.0));
            }
        }
    }
    judge(&out)
}
