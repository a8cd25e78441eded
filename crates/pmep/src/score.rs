//! Errors of predictions by the goals that the model has: medians, 90th percentiles, ranks.

use serde::Serialize;

/// A measured row beside its prediction.
#[derive(Clone, Debug)]
pub struct Scored {
    /// `tier`
    pub tier: String,
    /// `figure`
    pub figure: String,
    /// `op`
    pub op: String,
    /// `media`
    pub media: String,
    /// `metric`
    pub metric: String,
    /// `power_mW`
    pub power: String,
    /// `pattern`
    pub pattern: String,
    /// `note`
    pub note: String,
    /// The measured value.
    pub value: f64,
    /// The prediction, in the same unit.
    pub predicted: Option<f64>,
}

/// A statistic that a goal bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Statistic {
    /// Median error, percent.
    Median,
    /// 90th percentile of errors, percent.
    P90,
    /// Median of absolute differences.
    AbsMedian,
    /// Spearman's rank correlation; at least the limit.
    Rank,
}

/// A goal: rows, a statistic and its limit.
#[derive(Clone, Copy, Debug)]
pub struct Goal {
    /// The name.
    pub name: &'static str,
    /// The rows.
    pub selects: fn(&Scored) -> bool,
    /// The statistic.
    pub statistic: Statistic,
    /// The limit.
    pub limit: f64,
}

fn is_core(row: &Scored) -> bool {
    row.figure.starts_with("fast20-4-optane") || row.figure.starts_with("fast20-5-optane")
}

fn is_sweep(row: &Scored) -> bool {
    row.tier == "C" && row.figure == "sweep"
}

fn is_chase(row: &Scored) -> bool {
    ["vans-chase1", "vans-chase6", "nvleak-2"].contains(&row.figure.as_str())
        && row.op == "ptr-chase load"
}

fn is_amplification(row: &Scored) -> bool {
    row.figure == "fast20-10"
}

fn is_ratio(row: &Scored) -> bool {
    row.tier == "D"
        && row.figure == "sweep"
        && row.metric == "EWR"
        && row.power == "15000"
        && row.pattern == "rand"
}

fn is_budget(row: &Scored) -> bool {
    row.tier == "D"
        && row.figure == "sweep"
        && row.metric == "bandwidth"
        && row.media == "optane"
        && (row.power == "12500" || row.power == "18000")
        && row.note.is_empty()
}

fn is_perma(row: &Scored) -> bool {
    let figures = [
        "perma-seqread",
        "perma-randread",
        "perma-seqwrite",
        "perma-randwrite",
    ];
    row.tier == "A" && figures.contains(&row.figure.as_str())
}

fn is_mix(row: &Scored) -> bool {
    let figures = ["fast20-6-loaded", "fast20-6-mix", "fast20-18"];
    row.media == "optane" && figures.contains(&row.figure.as_str())
}

fn is_chain(row: &Scored) -> bool {
    row.tier == "A"
        && row.pattern == "custom"
        && row.media == "optane"
        && row.metric == "throughput"
}

fn is_figure_4(row: &Scored, op: &str) -> bool {
    row.figure == "fast20-4-optane6" && row.op == op
}

const fn goal(
    name: &'static str,
    selects: fn(&Scored) -> bool,
    statistic: Statistic,
    limit: f64,
) -> Goal {
    Goal {
        name,
        selects,
        statistic,
        limit,
    }
}

/// The goals, in the order of the specification. The last two see whether columns are swapped.
pub const GOALS: [Goal; 21] = [
    goal("E1 core figures", is_core, Statistic::Median, 5.0),
    goal("E1 core figures", is_core, Statistic::P90, 15.0),
    goal("E2 sweep", is_sweep, Statistic::Median, 5.0),
    goal("E2 sweep", is_sweep, Statistic::P90, 20.0),
    goal("E3 pointer chase", is_chase, Statistic::Median, 5.0),
    goal("E3 pointer chase", is_chase, Statistic::P90, 15.0),
    goal("E4 amplification", is_amplification, Statistic::Median, 5.0),
    goal("E4 amplification", is_amplification, Statistic::P90, 10.0),
    goal(
        "E4 effective write ratio",
        is_ratio,
        Statistic::AbsMedian,
        0.05,
    ),
    goal("E5 budgets", is_budget, Statistic::Median, 8.0),
    goal("E5 budgets", is_budget, Statistic::P90, 30.0),
    goal("E6 PerMA", is_perma, Statistic::Median, 10.0),
    goal("E6 PerMA", is_perma, Statistic::P90, 30.0),
    goal("E6 PerMA", is_perma, Statistic::Rank, 0.97),
    goal("E7 chains", is_chain, Statistic::Median, 15.0),
    goal("E7 chains", is_chain, Statistic::P90, 35.0),
    goal("E7 chains", is_chain, Statistic::Rank, 0.95),
    goal("E8 load, mixes, NUMA", is_mix, Statistic::Median, 15.0),
    goal("E8 load, mixes, NUMA", is_mix, Statistic::P90, 35.0),
    goal(
        "figure 4, ntstore",
        |row| is_figure_4(row, "ntstore"),
        Statistic::Median,
        10.0,
    ),
    goal(
        "figure 4, clwb",
        |row| is_figure_4(row, "store+clwb"),
        Statistic::Median,
        10.0,
    ),
];

/// A goal with its figure.
#[derive(Clone, Debug, Serialize)]
pub struct Verdict {
    /// The goal.
    pub name: String,
    /// The statistic.
    pub statistic: Statistic,
    /// Rows that count.
    pub rows: usize,
    /// The figure; absent without rows.
    pub got: Option<f64>,
    /// The limit.
    pub limit: f64,
    /// Returns whether the figure keeps the limit.
    pub met: bool,
}

/// Linear between the two nearest; `values` is sorted.
#[must_use]
pub fn quantile(values: &[f64], share: f64) -> Option<f64> {
    let last = values.len().checked_sub(1)?;
    let at = share * last as f64;
    let low = (at as usize).min(last);
    let high = (low + 1).min(last);
    Some(values[low] + (values[high] - values[low]) * (at - low as f64))
}

fn ranks(values: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_by(|a, b| values[*a].total_cmp(&values[*b]));
    let mut out = vec![0.0; values.len()];
    let mut at = 0;
    while at < order.len() {
        let mut end = at;
        while end + 1 < order.len() && values[order[end + 1]] == values[order[at]] {
            end += 1;
        }
        for place in &order[at..=end] {
            out[*place] = (at + end) as f64 / 2.0;
        }
        at = end + 1;
    }
    out
}

/// Spearman's rank correlation; ties share their rank.
#[must_use]
pub fn spearman(a: &[f64], b: &[f64]) -> Option<f64> {
    if a.len() < 3 || a.len() != b.len() {
        return None;
    }
    let (a, b) = (ranks(a), ranks(b));
    let mean = (a.len() as f64 - 1.0) / 2.0;
    let (mut top, mut left, mut right) = (0.0, 0.0, 0.0);
    for (x, y) in a.iter().zip(&b) {
        top += (x - mean) * (y - mean);
        left += (x - mean) * (x - mean);
        right += (y - mean) * (y - mean);
    }
    let bottom = (left * right).sqrt();
    (bottom > 0.0).then(|| top / bottom)
}

/// A goal's figure. A row without a prediction counts as 100 % off.
fn figure(rows: &[&Scored], statistic: Statistic) -> Option<f64> {
    let there = rows
        .iter()
        .filter_map(|row| Some((row.value, row.predicted?)));
    if statistic == Statistic::Rank {
        let (measured, predicted): (Vec<f64>, Vec<f64>) = there.unzip();
        return spearman(&predicted, &measured);
    }
    let mut errors: Vec<f64> = match statistic {
        Statistic::AbsMedian => there.map(|(value, said)| (said - value).abs()).collect(),
        _ => (rows.iter())
            .filter(|row| row.value != 0.0)
            .map(|row| match row.predicted {
                Some(said) => (said - row.value).abs() / row.value.abs() * 100.0,
                None => 100.0,
            })
            .collect(),
    };
    errors.sort_by(f64::total_cmp);
    let share = match statistic {
        Statistic::P90 => 0.9,
        _ => 0.5,
    };
    quantile(&errors, share)
}

/// Judges rows by all goals.
#[must_use]
pub fn judge(rows: &[Scored]) -> Vec<Verdict> {
    let verdict = |goal: &Goal| {
        let chosen: Vec<&Scored> = rows.iter().filter(|row| (goal.selects)(row)).collect();
        let got = figure(&chosen, goal.statistic);
        let met = got.is_some_and(|got| match goal.statistic {
            Statistic::Rank => got >= goal.limit,
            _ => got <= goal.limit,
        });
        Verdict {
            name: goal.name.to_owned(),
            statistic: goal.statistic,
            rows: chosen.len(),
            got,
            limit: goal.limit,
            met,
        }
    };
    GOALS.iter().map(verdict).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_lie_between_neighbours() {
        assert_eq!(quantile(&[1.0, 2.0, 4.0], 0.5), Some(2.0));
        assert_eq!(quantile(&[1.0, 2.0, 4.0], 0.75), Some(3.0));
        assert_eq!(quantile(&[], 0.5), None);
    }

    #[test]
    fn ranks_of_the_same_order_are_one() {
        assert_eq!(spearman(&[1.0, 5.0, 2.0], &[10.0, 500.0, 20.0]), Some(1.0));
        assert_eq!(spearman(&[1.0, 2.0, 3.0], &[3.0, 2.0, 1.0]), Some(-1.0));
        assert_eq!(spearman(&[1.0, 1.0, 1.0], &[3.0, 2.0, 1.0]), None);
    }
}
