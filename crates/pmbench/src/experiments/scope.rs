//! The meaning of the names in steps: the place, the target's directory and prefix, the programs,
//! and the values of experiment and point.

use super::experiment::{Experiment, Point};
use super::needs::cache_dir;
use super::target::Target;
use super::template::{Values, fill};
use std::path::{Path, PathBuf};

/// The places of things in this run.
#[derive(Clone, Debug)]
pub struct Places {
    /// The directory of this target alone.
    pub place: PathBuf,
    /// For all targets of an experiment.
    pub shared: PathBuf,
    /// The program `pmfs`.
    pub pmfs: PathBuf,
    /// The file of this program.
    pub pmbench: PathBuf,
    /// A device that may be formatted.
    pub device: Option<PathBuf>,
}

impl Places {
    /// The program `pmkv-peers`, beside this one.
    fn peers(&self) -> PathBuf {
        self.pmbench.with_file_name("pmkv-peers")
    }

    /// A text as it is told to others: paths of this machine are named as in the data.
    pub fn told(&self, text: &str) -> String {
        let cache = cache_dir();
        let peers = self.peers();
        let names = [
            (Some(&self.shared), "{shared}"),
            (Some(&self.place), "{place}"),
            (Some(&cache), "{cache}"),
            (Some(&peers), "pmkv-peers"),
            (Some(&self.pmbench), "pmbench"),
            (Some(&self.pmfs), "pmfs"),
            (self.device.as_ref(), "{device}"),
        ];
        let there = names
            .into_iter()
            .filter_map(|(path, name)| path.map(|path| (path, name)));
        there.fold(text.to_owned(), |text, (path, name)| {
            text.replace(&path.display().to_string(), name)
        })
    }
}

/// An experiment on a target.
pub struct Scope<'a> {
    /// The experiment that is measured.
    pub experiment: &'a Experiment,
    /// The target that it is measured on.
    pub target: &'a Target,
    /// The smaller sizes are used.
    pub quick: bool,
    /// The rest.
    pub places: Places,
}

impl Scope<'_> {
    fn values(&self, point: Option<&Point>) -> Values {
        let (experiment, target) = (self.experiment, self.target);
        let mut values = experiment.values_at(self.quick, target, point);
        let size_bytes = experiment.size_mib(self.quick) << 20;
        let text = |path: &Path| path.display().to_string();
        let device = self.places.device.as_deref().map(text).unwrap_or_default();
        values.extend(
            [
                ("place", text(&self.places.place)),
                ("shared", text(&self.places.shared)),
                ("cache", text(&cache_dir())),
                ("pmfs", text(&self.places.pmfs)),
                ("pmbench", text(&self.places.pmbench)),
                ("peers", text(&self.places.peers())),
                ("device", device),
                ("size", size_bytes.to_string()),
                ("dir", target.dir.clone()),
                ("run", target.prefix.clone()),
            ]
            .map(|(name, value)| (name.to_owned(), value)),
        );
        values
    }

    /// A command at a point; without one for what the target itself does.
    pub fn command(&self, step: &str, point: Option<&Point>) -> anyhow::Result<String> {
        Ok(fill(step, &self.values(point))?.trim().to_owned())
    }

    /// Every step at every point.
    #[cfg(test)]
    pub fn all_steps(&self) -> anyhow::Result<Vec<String>> {
        let (target, steps) = (self.target, &self.experiment.steps);
        let own = [&target.make, &target.mount, &target.unmount];
        let own = own.into_iter().flatten().chain([&target.title]);
        let mut all = Vec::new();
        let before = own.chain(&steps.shared);
        for step in before.chain(&steps.trial).chain(&steps.prepare) {
            all.push(self.command(step, None)?);
        }
        for point in self.experiment.points(self.quick)? {
            let around = steps.before.iter().chain(&steps.after);
            for step in around.chain([&steps.run]) {
                all.push(self.command(step, Some(&point))?);
            }
        }
        fill(&self.experiment.ours, &self.experiment.values(self.quick))?;
        Ok(all)
    }

    /// A scope whose places are nowhere.
    #[cfg(test)]
    pub fn example<'a>(experiment: &'a Experiment, target: &'a Target, quick: bool) -> Scope<'a> {
        Scope {
            experiment,
            target,
            quick,
            places: Places {
                place: "/place".into(),
                shared: "/shared".into(),
                pmfs: "/pmfs".into(),
                pmbench: "/pmbench".into(),
                device: None,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_of_the_machine_are_not_told() {
        let places = Places {
            place: "/tmp/.tmp1/pmfs".into(),
            shared: "/tmp/.tmp1/shared".into(),
            pmfs: "/home/somebody/bin/pmfs".into(),
            pmbench: "/home/somebody/bin/pmbench".into(),
            device: None,
        };
        let cache = cache_dir().join("tool");
        let command = format!(
            "/home/somebody/bin/pmfs run --pool /tmp/.tmp1/pmfs/pool -- {} /tmp/.tmp1/shared/x; /home/somebody/bin/pmbench",
            cache.display()
        );
        assert_eq!(
            places.told(&command),
            "pmfs run --pool {place}/pool -- {cache}/tool {shared}/x; pmbench"
        );
    }
}
