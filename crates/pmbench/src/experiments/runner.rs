//! Runs experiments: round by round, point by point, the targets in turn, with another one first in
//! each round. A slow minute of the machine thus meets all of them alike.

use super::control::Control;
use super::experiment::{Experiment, Point};
use super::machine::memory_mib;
use super::mounted::Mounted;
use super::progress::{Progress, Which};
use super::results::{Key, Outcome, Results, Row};
use super::scope::{Places, Scope};
use super::shell::{Cannot, Stop, run};
use super::target::Target;
use crate::ground::Ground;
use anyhow::{Context, bail};
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// The share of the free memory that the targets of an experiment may take, in hundredths.
const MEMORY_SHARE: u64 = 85;

/// The experiments to run, and the way.
pub struct Plan<'a> {
    /// Experiments, each on its targets.
    pub experiments: Vec<(&'a Experiment, Vec<&'a Target>)>,
    /// The smaller sizes are used.
    pub quick: bool,
    /// In place of each experiment's own.
    pub rounds: Option<usize>,
    /// The program `pmfs`.
    pub pmfs: PathBuf,
    /// A device that may be formatted.
    pub device: Option<PathBuf>,
}

/// A run under way.
pub struct Runner<'a> {
    /// The plan of the run.
    pub plan: Plan<'a>,
    /// The results so far.
    pub results: Results,
    /// The check that the machine is quiet.
    pub control: Control<'a>,
    /// The sign to stop.
    pub stop: Stop,
    /// Is told each new row.
    pub tell: Box<dyn FnMut(&Row) + 'a>,
}

/// The place of a measurement in an experiment.
#[derive(Clone, Copy)]
struct At {
    experiment: usize,
    round: usize,
    point: usize,
    target: usize,
}

/// The targets in the order of a round.
fn turns(targets: usize, round: usize) -> impl Iterator<Item = usize> {
    (0..targets).map(move |turn| (turn + round) % targets)
}

impl<'a> Runner<'a> {
    /// Runs what is left.
    pub fn run(&mut self) -> anyhow::Result<()> {
        let mut progress = Progress::new(self.left()?);
        let mut ended = Ok(());
        for number in 0..self.plan.experiments.len() {
            ended = self.experiment(number, &mut progress);
            if ended.is_err() {
                break;
            }
        }
        progress.ends();
        ended
    }

    fn rounds(&self, experiment: &Experiment) -> usize {
        let own = experiment.rounds(self.plan.quick);
        self.plan.rounds.unwrap_or(own)
    }

    fn key(&self, at: At, points: &[Point]) -> Key {
        let (experiment, targets) = &self.plan.experiments[at.experiment];
        Key {
            experiment: experiment.name.clone(),
            point: points[at.point].labels.clone(),
            target: targets[at.target].name.clone(),
            round: at.round,
        }
    }

    /// Returns how many measurements of each kind are to be made.
    fn left(&self) -> anyhow::Result<HashMap<Which, usize>> {
        let mut left = HashMap::new();
        for number in 0..self.plan.experiments.len() {
            for at in self.order(number)? {
                *left.entry((number, at.point, at.target)).or_default() += 1;
            }
        }
        Ok(left)
    }

    /// Returns what is left of an experiment, in the order in which it is made.
    fn order(&self, number: usize) -> anyhow::Result<Vec<At>> {
        let (experiment, targets) = &self.plan.experiments[number];
        let points = experiment.points(self.plan.quick)?;
        let mut order = Vec::new();
        for round in 0..self.rounds(experiment) {
            for point in 0..points.len() {
                for target in turns(targets.len(), round) {
                    let experiment = number;
                    let at = At {
                        experiment,
                        round,
                        point,
                        target,
                    };
                    if !self.results.has(&self.key(at, &points)) {
                        order.push(at);
                    }
                }
            }
        }
        Ok(order)
    }

    fn experiment(&mut self, number: usize, progress: &mut Progress) -> anyhow::Result<()> {
        let (experiment, targets) = self.plan.experiments[number].clone();
        let points = experiment.points(self.plan.quick)?;
        let order = self.order(number)?;
        if order.is_empty() {
            return Ok(());
        }
        progress.begins(&experiment.name, &experiment.title);
        let mut reasons: Vec<Option<Outcome>> = targets
            .iter()
            .map(|target| self.missing(experiment, target))
            .collect();
        let possible = reasons.iter().filter(|reason| reason.is_none()).count();
        if let Some(reason) = self.too_large(experiment, possible as u64) {
            reasons.fill(Some(Outcome::Skipped { reason }));
        }
        // Dropped after what is mounted on it.
        let ground;
        let mut mounted: Vec<Option<Mounted>> = targets.iter().map(|_| None).collect();
        if reasons.iter().any(Option::is_none) {
            ground = match rustix::process::geteuid().is_root() {
                true => Ground::new(memory_mib("MemTotal").div_ceil(1024))?,
                false => Ground::unmounted()?,
            };
            let shared = self.shared(experiment, ground.path())?;
            for (at, target) in targets.iter().enumerate() {
                if reasons[at].is_some() {
                    continue;
                }
                progress.shows(&format!(
                    "{}: making {} ready",
                    experiment.name, target.name
                ));
                let place = ground.path().join(target.name.replace('/', "-"));
                let scope = self.scope(experiment, target, place, shared.clone());
                let places = scope.places.clone();
                match Mounted::new(scope, &self.stop) {
                    Ok(ready) => mounted[at] = Some(ready),
                    Err(outcome) => {
                        self.go_on()?;
                        if let Outcome::Error { reason } | Outcome::Skipped { reason } = &outcome {
                            progress.says(&format!("{}: {reason}", experiment.name));
                        }
                        reasons[at] = Some(outcome.told(&places));
                    }
                }
            }
        }
        for at in order {
            self.go_on()?;
            let which = (number, at.point, at.target);
            match &mounted[at.target] {
                Some(ready) => self.measure(at, &points, ready, progress)?,
                None => {
                    let why = reasons[at.target].clone();
                    self.without(at, &points, why)?;
                    progress.gone(which);
                }
            }
        }
        Ok(())
    }

    fn go_on(&self) -> anyhow::Result<()> {
        if self.stop.load(Ordering::Relaxed) {
            bail!("interrupted");
        }
        Ok(())
    }

    fn missing(&self, experiment: &Experiment, target: &Target) -> Option<Outcome> {
        let device = self.plan.device.as_deref();
        let needs = [&experiment.needs, &target.needs];
        let reason = needs.into_iter().find_map(|needs| needs.missing(device));
        let reason = reason.or_else(|| {
            let no = experiment.only_these && !experiment.targets.contains(&target.name);
            no.then(|| format!("{} has no {}", experiment.name, target.name))
        })?;
        Some(Outcome::Skipped { reason })
    }

    fn too_large(&self, experiment: &Experiment, targets: u64) -> Option<String> {
        let wanted = experiment.size_mib(self.plan.quick) * targets;
        let free = memory_mib("MemAvailable") * MEMORY_SHARE / 100;
        (wanted > free).then(|| {
            format!(
                "{targets} targets take {wanted} MiB, and {free} MiB of memory may be taken: ask for fewer --targets, or --quick"
            )
        })
    }

    fn scope<'b>(
        &self,
        experiment: &'b Experiment,
        target: &'b Target,
        place: PathBuf,
        shared: PathBuf,
    ) -> Scope<'b> {
        let places = Places {
            place,
            shared,
            pmfs: self.plan.pmfs.clone(),
            pmbench: std::env::current_exe().unwrap_or_else(|_| "pmbench".into()),
            device: self.plan.device.clone(),
        };
        let quick = self.plan.quick;
        Scope {
            experiment,
            target,
            quick,
            places,
        }
    }

    /// Makes what all targets are given.
    fn shared(&self, experiment: &Experiment, ground: &std::path::Path) -> anyhow::Result<PathBuf> {
        let shared = ground.join("shared");
        std::fs::create_dir(&shared)?;
        experiment.lay(&shared)?;
        let nowhere = Target::of_directory(ground);
        let scope = self.scope(experiment, &nowhere, ground.to_owned(), shared.clone());
        for step in &experiment.steps.shared {
            let command = scope.command(step, None)?;
            let ran = run(
                &command,
                Duration::from_secs(experiment.timeout_s),
                &self.stop,
            );
            ran.with_context(|| format!("{}: what all targets are given", experiment.name))?;
        }
        Ok(shared)
    }

    fn measure(
        &mut self,
        at: At,
        points: &[Point],
        ready: &Mounted<'_>,
        progress: &mut Progress,
    ) -> anyhow::Result<()> {
        let key = self.key(at, points);
        let labels = Point::text(&key.point);
        progress.shows(&format!("{}: {labels}, {}", key.experiment, key.target));
        let start = Instant::now();
        let point = &points[at.point];
        let command = ready
            .scope
            .command(&ready.scope.experiment.steps.run, Some(point))?;
        let stop = &self.stop;
        let steady = self
            .control
            .steady(|| once(&ready.scope, point, &command, stop));
        let outcome = match steady {
            Ok(steady) => Outcome::Measured {
                value: steady.value,
                attempts: steady.attempts,
                strayed: steady.strayed,
                control_ns: steady.control_ns,
            },
            Err(why) => {
                self.go_on()?;
                progress.says(&format!(
                    "{}: {labels}, {}: {why:#}",
                    key.experiment, key.target
                ));
                failed(&why).told(&ready.scope.places)
            }
        };
        let command = ready.scope.places.told(&command);
        let which = (at.experiment, at.point, at.target);
        let seconds = start.elapsed().as_secs_f64();
        progress.done(which, seconds);
        self.add(Row {
            key,
            outcome,
            seconds: (seconds * 1e3).round() / 1e3,
            command,
        })
    }

    /// A target that isn't there: one row a point is enough.
    fn without(&mut self, at: At, points: &[Point], why: Option<Outcome>) -> anyhow::Result<()> {
        let (0, Some(outcome)) = (at.round, why) else {
            return Ok(());
        };
        let key = self.key(at, points);
        self.add(Row {
            key,
            outcome,
            seconds: 0.0,
            command: String::new(),
        })
    }

    fn add(&mut self, row: Row) -> anyhow::Result<()> {
        (self.tell)(&row);
        self.results.add(row)
    }
}

impl Outcome {
    fn told(mut self, places: &Places) -> Outcome {
        if let Outcome::Error { reason } | Outcome::Skipped { reason } = &mut self {
            *reason = places.told(reason);
        }
        self
    }
}

/// Skipped, if a step says that it can't be done here.
fn failed(why: &anyhow::Error) -> Outcome {
    match why.downcast_ref::<Cannot>() {
        Some(Cannot(reason)) => Outcome::Skipped {
            reason: reason.clone(),
        },
        None => Outcome::Error {
            reason: format!("{why:#}"),
        },
    }
}

/// Makes a measurement, with the steps before and after it.
fn once(scope: &Scope<'_>, point: &Point, command: &str, stop: &Stop) -> anyhow::Result<f64> {
    let experiment = scope.experiment;
    let timeout = Duration::from_secs(experiment.timeout_s);
    for step in &experiment.steps.before {
        run(&scope.command(step, Some(point))?, timeout, stop).context("before")?;
    }
    let ran = run(command, timeout, stop);
    for step in &experiment.steps.after {
        run(&scope.command(step, Some(point))?, timeout, stop).context("after")?;
    }
    let ran = ran?;
    experiment.value.read(&ran.output, ran.seconds)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_first_changes_with_the_round() {
        let order = |round| turns(3, round).collect::<Vec<_>>();
        assert_eq!(order(0), [0, 1, 2]);
        assert_eq!(order(1), [1, 2, 0]);
        assert_eq!(order(5), [2, 0, 1]);
    }
}
