//! An experiment: what a source measured, and the steps that measure it here.

use super::needs::Needs;
use super::reading::Reading;
use super::target::Target;
use super::template::{Values, fill};
use anyhow::{Context, ensure};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::Path;

/// An experiment, as its file has it.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Experiment {
    /// The file's name.
    #[serde(skip)]
    pub name: String,
    /// The title: what is measured.
    pub title: String,
    /// The document.
    pub source: String,
    /// The figure or table in it.
    pub figure: String,
    /// The finding of the source, in words and numbers.
    pub claim: String,
    /// The sizes of the source's experiment.
    pub theirs: String,
    /// The sizes of this experiment. Values stand in braces.
    pub ours: String,
    /// The rest that a reader has to know of the method.
    #[serde(default)]
    pub method: String,
    /// The unit of the value.
    pub unit: String,
    /// The better direction of it.
    pub better: Better,
    /// The things that have to be there.
    #[serde(default)]
    pub needs: Needs,
    /// Files of `bench/` that its steps use: they lie in `{shared}`, under their last names.
    #[serde(default)]
    pub files: Vec<String>,
    /// The contents of these files.
    #[serde(skip)]
    pub texts: Vec<(String, String)>,
    /// Targets, unless others are asked for.
    pub targets: Vec<String>,
    /// No other target makes sense.
    #[serde(default)]
    pub only_these: bool,
    /// The space that a target needs, MiB.
    pub size_mib: u64,
    /// Rounds, unless asked for otherwise.
    #[serde(default = "rounds")]
    pub rounds: usize,
    /// A step that takes longer has failed.
    #[serde(default = "timeout_s")]
    pub timeout_s: u64,
    /// The report's drawing of it.
    pub chart: Chart,
    /// The values of the names in steps.
    #[serde(default)]
    pub values: Values,
    /// The values that are less with --quick.
    #[serde(default)]
    pub quick: Quick,
    /// Values that hold for one target.
    #[serde(default)]
    pub target_values: BTreeMap<String, Values>,
    /// Every combination of these is a point,
    #[serde(default)]
    pub axes: Vec<Axis>,
    /// combined with each of these, if there are any.
    #[serde(default)]
    pub points: Vec<Values>,
    /// Shell commands.
    pub steps: Steps,
    /// The way to read the value.
    pub value: Reading,
    /// Ratios that the source claims.
    #[serde(default)]
    pub claims: Vec<Claim>,
    /// The account of where the time goes on a target of ours that loses, as a profile showed it.
    #[serde(default)]
    pub why: Values,
}

fn rounds() -> usize {
    5
}

fn timeout_s() -> u64 {
    300
}

/// The direction that is better.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq)]
#[serde(rename_all = "lowercase")]
pub enum Better {
    /// Less is better.
    Lower,
    /// More is better.
    Higher,
}

/// The drawing of an experiment.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Chart {
    /// Bars for things, lines for sizes.
    pub kind: Kind,
    /// The parameter along which points lie.
    pub x: String,
    /// The title of that parameter.
    #[serde(default)]
    pub x_title: String,
    /// The parameter of which each value has a chart of its own.
    pub panel: Option<String>,
}

/// The shape of a chart.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// A bar for each target, in groups.
    Bars,
    /// A line for each target.
    Lines,
}

/// Smaller sizes.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Quick {
    /// The size in place of the experiment's.
    pub size_mib: Option<u64>,
    /// The rounds in place of the experiment's.
    pub rounds: Option<usize>,
    /// The targets in place of the experiment's.
    pub targets: Option<Vec<String>>,
    /// Over the experiment's.
    pub values: Values,
    /// The names of the points of an axis that alone are measured.
    pub axes: BTreeMap<String, Vec<String>>,
}

/// A parameter and what it goes through.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Axis {
    /// The name of the parameter.
    pub name: String,
    /// The values in their order.
    pub values: Vec<AxisValue>,
}

/// A value of an axis.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
pub enum AxisValue {
    /// Just itself.
    Plain(String),
    /// With other values that go with it; the one that has the axis's name is its own.
    With(Values),
}

impl AxisValue {
    fn values(&self, axis: &str) -> Values {
        match self {
            AxisValue::Plain(value) => Values::from([(axis.to_owned(), value.clone())]),
            AxisValue::With(values) => values.clone(),
        }
    }
}

/// Lists of shell commands; each ends the list if it fails.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Steps {
    /// Once for all targets: makes what they are given, in `{shared}`.
    #[serde(default)]
    pub shared: Vec<String>,
    /// Once for each target, when it is mounted: where one fails, the target can't do what is
    /// measured, and is skipped.
    #[serde(default)]
    pub trial: Vec<String>,
    /// Once for each target, after that.
    #[serde(default)]
    pub prepare: Vec<String>,
    /// Done before each measurement; must leave the same state in any case.
    #[serde(default)]
    pub before: Vec<String>,
    /// Measured.
    pub run: String,
    /// Steps after each measurement.
    #[serde(default)]
    pub after: Vec<String>,
}

/// A ratio that a source claims: PMFS so many times as good as another.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Claim {
    /// The target that is claimed to be so good [default: the first of ours].
    pub of: Option<String>,
    /// The target that stands for the source's other.
    pub against: String,
    /// The point.
    pub at: Values,
    /// The ratio that is claimed.
    pub times: f64,
}

/// A point: the values of its parameters, and those that go with them.
#[derive(Clone, Debug, PartialEq)]
pub struct Point {
    /// The labels that tell it from others, in the order of panel and x.
    pub labels: Values,
    /// All.
    pub values: Values,
}

impl Experiment {
    /// From the text of its file.
    pub fn parse(name: &str, text: &str) -> anyhow::Result<Experiment> {
        let parsed: Result<Experiment, _> = toml::from_str(text);
        let mut experiment = parsed.with_context(|| format!("the experiment {name}"))?;
        experiment.name = name.to_owned();
        let checked = experiment.check();
        checked.with_context(|| format!("the experiment {name}"))?;
        Ok(experiment)
    }

    fn check(&self) -> anyhow::Result<()> {
        self.value.check()?;
        for quick in [false, true] {
            let points = self.points(quick)?;
            for (at, point) in points.iter().enumerate() {
                let twice = points[..at].iter().any(|one| one.labels == point.labels);
                ensure!(!twice, "two points are called {:?}", point.labels);
            }
            for claim in &self.claims {
                let full = self.points(false)?;
                let known = full.iter().any(|point| point.labels == claim.at);
                ensure!(known, "a claim is about {:?}, which is no point", claim.at);
            }
        }
        Ok(())
    }

    /// Puts its files into a directory.
    pub fn lay(&self, dir: &Path) -> anyhow::Result<()> {
        for (name, text) in &self.texts {
            let name = Path::new(name).file_name().unwrap_or_default();
            let path = dir.join(name);
            let written = std::fs::write(&path, text);
            written.with_context(|| format!("{} can't be written", path.display()))?;
        }
        Ok(())
    }

    /// Returns the values that the steps name, but for the target's and the point's.
    pub fn values(&self, quick: bool) -> Values {
        let mut values = self.values.clone();
        if quick {
            values.extend(self.quick.values.clone());
        }
        values
    }

    /// Returns the values that the steps name on this target at this point; the first of all by the
    /// target itself.
    pub fn values_at(&self, quick: bool, target: &Target, point: Option<&Point>) -> Values {
        let mut values = target.values.clone();
        values.extend(self.values(quick));
        values.extend(
            self.target_values
                .get(&target.name)
                .cloned()
                .unwrap_or_default(),
        );
        values.extend(point.map(|point| point.values.clone()).unwrap_or_default());
        values
    }

    /// The points in their order.
    pub fn points(&self, quick: bool) -> anyhow::Result<Vec<Point>> {
        let mut all = match self.points.is_empty() {
            true => vec![Values::new()],
            false => self.points.clone(),
        };
        for axis in self.axes.iter().rev() {
            let mut more = Vec::new();
            for one in self.along(axis, quick)? {
                more.extend(all.iter().map(|values| {
                    let mut values = values.clone();
                    values.extend(one.clone());
                    values
                }));
            }
            all = more;
        }
        all.into_iter().map(|values| self.point(values)).collect()
    }

    fn along(&self, axis: &Axis, quick: bool) -> anyhow::Result<Vec<Values>> {
        let mut all = Vec::new();
        for value in &axis.values {
            let values = value.values(&axis.name);
            let name = values.get(&axis.name);
            let name = name.with_context(|| format!("a value of {} has no name", axis.name))?;
            let wanted = self.quick.axes.get(&axis.name).filter(|_| quick);
            if wanted.is_none_or(|wanted| wanted.contains(name)) {
                all.push(values);
            }
        }
        ensure!(!all.is_empty(), "nothing is left of {}", axis.name);
        Ok(all)
    }

    fn point(&self, values: Values) -> anyhow::Result<Point> {
        let mut labels = Values::new();
        for key in self.chart.panel.iter().chain([&self.chart.x]) {
            let value = values.get(key);
            let value = value.with_context(|| format!("a point has no {key}"))?;
            labels.insert(key.clone(), value.clone());
        }
        Ok(Point { labels, values })
    }

    /// Targets, unless others are asked for.
    pub fn targets(&self, quick: bool) -> &[String] {
        let quick = self.quick.targets.as_ref().filter(|_| quick);
        quick.unwrap_or(&self.targets)
    }

    /// Rounds, unless asked for otherwise.
    pub fn rounds(&self, quick: bool) -> usize {
        match quick {
            true => self.quick.rounds.unwrap_or(3),
            false => self.rounds,
        }
    }

    /// Returns the space that a target needs, MiB.
    pub fn size_mib(&self, quick: bool) -> u64 {
        match quick {
            true => self.quick.size_mib.unwrap_or(self.size_mib),
            false => self.size_mib,
        }
    }

    /// Our sizes, in words.
    pub fn ours(&self, quick: bool) -> String {
        fill(&self.ours, &self.values(quick)).unwrap_or_else(|_| self.ours.clone())
    }
}

impl Point {
    /// Returns a point's labels as text.
    pub fn text(labels: &Values) -> String {
        let values: Vec<&str> = labels.values().map(String::as_str).collect();
        values.join(", ")
    }
}
