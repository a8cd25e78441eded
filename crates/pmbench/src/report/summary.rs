//! A run in figures: medians with their spread, ratios taken round by round, where PMFS loses, and
//! how noisy the machine was.

use super::table::times as times_text;
use crate::experiments::experiment::{Better, Claim, Experiment, Point};
use crate::experiments::library::Library;
use crate::experiments::machine::Machine;
use crate::experiments::results::{Asked, Outcome, Results, Row, read_json};
use crate::experiments::target::Target;
use crate::experiments::template::Values;
use crate::measure::Figures;
use std::path::Path;

/// Colours and marks that there are; a second set has these colours, broken lines and hollow marks.
pub const STYLES: usize = 8;

/// A run.
pub struct Summary {
    /// The machine on which it was made.
    pub machine: Machine,
    /// The request.
    pub asked: Asked,
    /// A figure for each experiment that was measured or tried.
    pub figures: Vec<Figure>,
    /// Experiments that there are.
    pub experiments: usize,
    /// The noise of the machine.
    pub noise: Noise,
}

/// An experiment's figures.
pub struct Figure {
    /// The experiment that was measured.
    pub experiment: Experiment,
    /// PMFS first.
    pub series: Vec<Series>,
    /// The points in their order.
    pub points: Vec<Measured>,
}

/// A target.
pub struct Series {
    /// The name by which experiments know it.
    pub name: String,
    /// The target in a few words.
    pub title: String,
    /// PMFS.
    pub ours: bool,
    /// A limit: no peer.
    pub limit: bool,
    /// The account of where its time goes when it loses; may be empty.
    pub why: String,
    /// The index of colour and mark: the same in all figures.
    pub style: usize,
}

/// A point.
pub struct Measured {
    /// The point's labels.
    pub labels: Values,
    /// A cell for each series.
    pub cells: Vec<Cell>,
}

/// The values of a target at a point.
#[derive(Clone, Debug, PartialEq)]
pub enum Cell {
    /// Round and value.
    Values(Vec<(usize, f64)>),
    /// Nothing, and why.
    Nothing(String),
}

/// A ratio: so many times as good.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Times {
    /// The median of the rounds' ratios.
    pub median: f64,
    /// The worst round's.
    pub least: f64,
    /// The best round's.
    pub most: f64,
}

/// A point at which another is better than PMFS.
pub struct Loss<'a> {
    /// PMFS's series.
    pub ours: &'a Series,
    /// The other's.
    pub peer: &'a Series,
    /// The point.
    pub labels: &'a Values,
    /// Less than 1.
    pub times: Times,
}

/// The behaviour of the machine.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Noise {
    /// Measurements.
    pub measurements: usize,
    /// The part of these that was made again because a control loop was an outlier.
    pub repeated: usize,
    /// The part of these that was not quiet to the end.
    pub strayed: usize,
    /// The loop's median.
    pub control_ns: f64,
    /// Half of the loops were within this of it, parts of one.
    pub control_spread: f64,
}

impl Summary {
    /// Makes the summary of a run's directory.
    pub fn read(dir: &Path) -> anyhow::Result<Summary> {
        let rows = Results::read(dir)?;
        let asked: Asked = read_json(&dir.join("run.json"))?;
        let mut library = Library::load(Some(&dir.join("data")))?;
        // The reason why it lost is found out after a run.
        let known = Library::load(None)?.experiments;
        for experiment in library
            .experiments
            .iter_mut()
            .filter(|one| one.why.is_empty())
        {
            let now = known.iter().find(|one| one.name == experiment.name);
            experiment.why = now.map(|now| now.why.clone()).unwrap_or_default();
        }
        let figures = library.experiments.iter().map(|experiment| {
            let of: Vec<&Row> = rows
                .iter()
                .filter(|row| row.key.experiment == experiment.name)
                .collect();
            Figure::of(experiment, &library.targets, &of, asked.quick)
        });
        let figures = figures.collect::<anyhow::Result<Vec<_>>>()?;
        Ok(Summary {
            machine: read_json(&dir.join("machine.json"))?,
            asked,
            experiments: library.experiments.len(),
            figures: figures
                .into_iter()
                .filter(|figure| !figure.series.is_empty())
                .collect(),
            noise: Noise::of(&rows),
        })
    }
}

impl Figure {
    fn of(
        experiment: &Experiment,
        targets: &[Target],
        rows: &[&Row],
        quick: bool,
    ) -> anyhow::Result<Figure> {
        let mut names: Vec<&str> = Vec::new();
        for row in rows {
            if !names.contains(&row.key.target.as_str()) {
                names.push(&row.key.target);
            }
        }
        let order = |name: &str| targets.iter().position(|target| target.name == name);
        names.sort_by_key(|name| order(name).unwrap_or(targets.len()));
        let series: Vec<Series> = names
            .iter()
            .map(|name| {
                let target = targets.iter().find(|target| target.name == *name);
                let values = target.map(|target| experiment.values_at(quick, target, None));
                let titled = target
                    .zip(values)
                    .map(|(target, values)| target.titled(&values));
                let why = experiment.why.get(*name);
                Series {
                    name: (*name).to_owned(),
                    why: why
                        .or(target.map(|target| &target.why))
                        .cloned()
                        .unwrap_or_default(),
                    title: titled.unwrap_or_else(|| (*name).to_owned()),
                    ours: target.is_some_and(|target| target.ours),
                    limit: target.is_some_and(|target| target.limit),
                    style: target
                        .and_then(|target| target.style)
                        .map(|style| style % (2 * STYLES))
                        .unwrap_or(order(name).unwrap_or(STYLES).min(STYLES - 1)),
                }
            })
            .collect();
        let points = experiment.points(quick)?.into_iter().map(|point| {
            let cells = names.iter().map(|name| {
                let here = rows
                    .iter()
                    .filter(|row| row.key.point == point.labels && row.key.target == *name);
                Cell::of(here)
            });
            Measured {
                cells: cells.collect(),
                labels: point.labels.clone(),
            }
        });
        Ok(Figure {
            experiment: experiment.clone(),
            points: points.collect(),
            series,
        })
    }

    /// Returns how many times as good the one is as the other.
    pub fn times(&self, point: &Measured, ours: usize, peer: usize) -> Option<Times> {
        times(
            self.experiment.better,
            &point.cells[ours],
            &point.cells[peer],
        )
    }

    /// Returns the indexes of our series.
    pub fn ours(&self) -> Vec<usize> {
        (0..self.series.len())
            .filter(|at| self.series[*at].ours)
            .collect()
    }

    /// Returns the indexes of the others' series, but for limits.
    pub fn peers(&self) -> Vec<usize> {
        (0..self.series.len())
            .filter(|at| !self.series[*at].ours && !self.series[*at].limit)
            .collect()
    }

    /// At how many points a series has no value.
    pub fn unmeasured(&self, series: usize) -> usize {
        let nothing = |point: &&Measured| matches!(point.cells[series], Cell::Nothing(_));
        self.points.iter().filter(nothing).count()
    }

    /// All ratios of one series of ours to one peer.
    pub fn all_times(&self, ours: usize, peer: usize) -> Vec<(&Values, Times)> {
        let of = |point: &'_ Measured| self.times(point, ours, peer);
        self.points
            .iter()
            .filter_map(|point| Some((&point.labels, of(point)?)))
            .collect()
    }

    /// Returns where a peer is better than this series of ours, the worst first.
    pub fn losses(&self, ours: usize) -> Vec<Loss<'_>> {
        let mut losses = Vec::new();
        for peer in self.peers() {
            let all = self.all_times(ours, peer).into_iter();
            let lost = all.filter(|(_, times)| times.median < 1.0);
            losses.extend(lost.map(|(labels, times)| Loss {
                ours: &self.series[ours],
                peer: &self.series[peer],
                labels,
                times,
            }));
        }
        losses.sort_by(|a, b| a.times.median.total_cmp(&b.times.median));
        losses
    }

    /// The source's ratios beside ours, of the first series of ours if they name none.
    pub fn claims(&self) -> Vec<(&Claim, Option<Times>)> {
        let named = |name: &str| self.series.iter().position(|one| one.name == name);
        let of = |claim: &Claim| {
            let ours = match &claim.of {
                Some(name) => named(name)?,
                None => self.ours().first().copied()?,
            };
            let point = self.points.iter().find(|point| point.labels == claim.at)?;
            self.times(point, ours, named(&claim.against)?)
        };
        self.experiment
            .claims
            .iter()
            .map(|claim| (claim, of(claim)))
            .collect()
    }

    /// Returns whether a series of ours falls short: of a peer somewhere, or, the first one, of
    /// what the source claims.
    pub fn falls_short(&self, ours: usize) -> bool {
        let is_first = self.ours().first() == Some(&ours);
        let misses = |(claim, here): &(&Claim, Option<Times>)| {
            let is_its = match &claim.of {
                Some(name) => *name == self.series[ours].name,
                None => is_first,
            };
            is_its && here.as_ref().is_some_and(|here| here.median < claim.times)
        };
        !self.losses(ours).is_empty() || self.claims().iter().any(misses)
    }
}

impl Loss<'_> {
    /// The loss in words.
    pub fn text(&self) -> String {
        let doubt = if self.times.most < 1.0 {
            ""
        } else {
            "; not in each round"
        };
        format!(
            "{} is better than {} at {}: {} ({} to {}{doubt})",
            self.peer.name,
            self.ours.name,
            Point::text(self.labels),
            times_text(self.times.median),
            times_text(self.times.least),
            times_text(self.times.most),
        )
    }
}

impl Cell {
    fn of<'a>(rows: impl Iterator<Item = &'a &'a Row>) -> Cell {
        let (mut values, mut why) = (Vec::new(), "not measured".to_owned());
        for row in rows {
            match &row.outcome {
                Outcome::Measured { value, .. } => values.push((row.key.round, *value)),
                Outcome::Error { reason } => why = format!("failed: {reason}"),
                Outcome::Skipped { reason } => why = format!("skipped: {reason}"),
            }
        }
        match values.is_empty() {
            true => Cell::Nothing(why),
            false => Cell::Values(values),
        }
    }

    /// Median, least and most; nothing if nothing was measured.
    pub fn spread(&self) -> Option<Times> {
        let Cell::Values(values) = self else {
            return None;
        };
        spread(values.iter().map(|(_, value)| *value).collect())
    }
}

fn spread(values: Vec<f64>) -> Option<Times> {
    let least = values.iter().copied().min_by(f64::total_cmp)?;
    let most = values.iter().copied().max_by(f64::total_cmp)?;
    let median = Figures(values).median();
    Some(Times {
        median,
        least,
        most,
    })
}

/// Returns the ratio over the rounds that both have.
fn times(better: Better, ours: &Cell, peer: &Cell) -> Option<Times> {
    let (Cell::Values(ours), Cell::Values(peer)) = (ours, peer) else {
        return None;
    };
    let ratio = |(round, value): &(usize, f64)| {
        let (_, other) = peer.iter().find(|(other, _)| other == round)?;
        Some(match better {
            Better::Higher => value / other,
            Better::Lower => other / value,
        })
    };
    spread(ours.iter().filter_map(ratio).collect())
}

impl Noise {
    fn of(rows: &[Row]) -> Noise {
        let (mut noise, mut loops) = (Noise::default(), Vec::new());
        for row in rows {
            if let Outcome::Measured {
                attempts,
                strayed,
                control_ns,
                ..
            } = &row.outcome
            {
                noise.measurements += 1;
                noise.repeated += usize::from(*attempts > 1);
                noise.strayed += usize::from(*strayed);
                loops.extend(control_ns);
            }
        }
        noise.control_ns = Figures(loops.clone()).median();
        let away = loops.iter().map(|ns| (ns / noise.control_ns - 1.0).abs());
        noise.control_spread = Figures(away.collect()).median();
        noise
    }

    /// The noise in words.
    pub fn text(&self) -> String {
        format!(
            "{} measurements; {} of them were made again as the control loop strayed by more than 10 %, {} strayed to the end; \
             half of the loops were within {:.1} % of {:.1} ms",
            self.measurements,
            self.repeated,
            self.strayed,
            self.control_spread * 100.0,
            self.control_ns / 1e6,
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_are_of_rounds_that_both_have() {
        let ours = Cell::Values(vec![(0, 10.0), (1, 30.0), (2, 8.0)]);
        let peer = Cell::Values(vec![(2, 4.0), (1, 10.0), (3, 1.0)]);
        let of = |better| times(better, &ours, &peer).unwrap();
        let higher = of(Better::Higher);
        assert_eq!((higher.least, higher.most), (2.0, 3.0));
        let lower = of(Better::Lower);
        assert_eq!((lower.least, lower.most), (1.0 / 3.0, 0.5));
        assert_eq!(
            times(Better::Lower, &ours, &Cell::Nothing("no".into())),
            None
        );
    }
}
