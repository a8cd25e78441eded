//! The experiments and targets that there are: files of `bench/`, compiled in, or those of another
//! directory.

use super::experiment::Experiment;
use super::target::Target;
use anyhow::{Context, bail};
use std::path::Path;

/// Name and text of files of `bench/`.
macro_rules! embedded {
    ($dir:literal: $($name:literal),* $(,)?) => {
        &[$(($name, include_str!(concat!("../../../../bench/", $dir, "/", $name, ".toml")))),*]
    };
}

/// In the order in which they run and are reported.
const EXPERIMENTS: &[(&str, &str)] = embedded!(
    "experiments":
    "pmfs-6", "pmfs-7", "pmfs-t3", "pmfs-423", "pmfs-8", "pmfs-8b", "pmfs-8c", "pmfs-8c-mix", "pmfs-8c-rate", "pmfs-9", "pmfs-9-pages", "pmfs-11", "pmfs-431", "nvmfs-1", "nvmfs-3", "nvmfs-4", "nvmfs-6", "nvmfs-7", "optane-7", "optane-8", "optane-9", "optane-10", "optane-11", "optane-23", "optane-24", "optane-25", "optane-26", "optane-27", "optane-28", "optane-29", "optane-30", "optane-31", "optane-36", "pmdk-7", "pmdk-8", "pmdk-9", "pmdk-10", "pmdk-11", "pmdk-12", "pmdk-13", "pmdk-14", "pmdk-15", "pmlib-tx", "scaling-files", "scaling-directory", "scaling-file-size", "scaling-fill", "scaling-threads", "acct-t41", "acct-41", "acct-42", "acct-43", "acct-44", "acct-51", "acct-52", "acct-53", "acct-53-real", "acct-54", "acct-55",
);

/// The files that they use beside that.
const FILES: &[(&str, &str)] = &[
    (
        "acct/beside.sh",
        include_str!("../../../../bench/acct/beside.sh"),
    ),
    (
        "acct/built.sh",
        include_str!("../../../../bench/acct/built.sh"),
    ),
    (
        "acct/overhead.sh",
        include_str!("../../../../bench/acct/overhead.sh"),
    ),
    (
        "acct/watched.sh",
        include_str!("../../../../bench/acct/watched.sh"),
    ),
    (
        "mysql/tpcc.lua",
        include_str!("../../../../bench/mysql/tpcc.lua"),
    ),
    (
        "mysql/tpcc.sh",
        include_str!("../../../../bench/mysql/tpcc.sh"),
    ),
    (
        "neo4j/Graph.java",
        include_str!("../../../../bench/neo4j/Graph.java"),
    ),
    (
        "neo4j/pom.xml",
        include_str!("../../../../bench/neo4j/pom.xml"),
    ),
];

/// PMFS first; the others after it.
const TARGETS: &[(&str, &str)] = embedded!("targets": "pmfs", "pmfs-mount", "tmpfs", "ext4-loop", "xfs-loop", "pmfs-4k", "tmpfs-4k", "ext4-dax", "xfs-dax", "memory", "library", "monitor", "pmlib", "libpmemobj", "pmkv-hash", "pmkv-tree", "lmdb", "redb", "rocksdb", "pmemkv-cmap", "pmemkv-radix", "pmemkv-tree3", "pmemkv-stree", "pmkv-vhash", "pmkv-vtree", "pmemkv-vcmap", "pmemkv-vsmap");

/// All of them.
pub struct Library {
    /// Experiments, in order.
    pub experiments: Vec<Experiment>,
    /// Targets, in order.
    pub targets: Vec<Target>,
    texts: Vec<(String, String)>,
}

impl Library {
    /// Loads the experiments of a directory, or those that are compiled in.
    pub fn load(dir: Option<&Path>) -> anyhow::Result<Library> {
        match dir {
            Some(dir) => {
                let file = |name: &str| {
                    let path = dir.join(name);
                    let text = std::fs::read_to_string(&path);
                    text.with_context(|| format!("{} can't be read", path.display()))
                };
                Library::of(&read(dir, "experiments")?, &read(dir, "targets")?, file)
            }
            None => {
                let file = |name: &str| {
                    let found = FILES.iter().find(|(one, _)| *one == name);
                    let text = found.map(|(_, text)| (*text).to_owned());
                    text.with_context(|| format!("bench/{name} is not compiled in"))
                };
                Library::of(&owned(EXPERIMENTS), &owned(TARGETS), file)
            }
        }
    }

    fn of(
        experiments: &[(String, String)],
        targets: &[(String, String)],
        file: impl Fn(&str) -> anyhow::Result<String>,
    ) -> anyhow::Result<Library> {
        let mut library = Library {
            experiments: Vec::new(),
            targets: Vec::new(),
            texts: Vec::new(),
        };
        for (name, text) in experiments {
            let mut experiment = Experiment::parse(name, text)?;
            for name in &experiment.files {
                experiment.texts.push((name.clone(), file(name)?));
            }
            library.experiments.push(experiment);
            let kept = (format!("experiments/{name}.toml"), text.clone());
            library.texts.push(kept);
        }
        for (name, text) in targets {
            library.targets.push(Target::parse(name, text)?);
            let kept = (format!("targets/{name}.toml"), text.clone());
            library.texts.push(kept);
        }
        Ok(library)
    }

    /// The experiment of this name.
    pub fn experiment(&self, name: &str) -> anyhow::Result<&Experiment> {
        let found = self.experiments.iter().find(|one| one.name == name);
        found.with_context(|| {
            let all: Vec<&str> = self.experiments.iter().map(|one| &*one.name).collect();
            format!(
                "there is no experiment {name}; there are: {}",
                all.join(" ")
            )
        })
    }

    /// The target of this name.
    pub fn target(&self, name: &str) -> anyhow::Result<&Target> {
        let found = self.targets.iter().find(|one| one.name == name);
        found.with_context(|| {
            let all: Vec<&str> = self.targets.iter().map(|one| &*one.name).collect();
            format!("there is no target {name}; there are: {}", all.join(" "))
        })
    }

    /// Writes the files of these experiments and of all targets, so that a run can be read when
    /// ours have changed.
    pub fn save(&self, dir: &Path, experiments: &[&Experiment]) -> anyhow::Result<()> {
        for kind in ["experiments", "targets"] {
            std::fs::create_dir_all(dir.join(kind))?;
        }
        let wanted = |path: &str| {
            let of = |one: &&Experiment| path == format!("experiments/{}.toml", one.name);
            path.starts_with("targets/") || experiments.iter().any(of)
        };
        let files = experiments.iter().flat_map(|one| &one.texts);
        let texts = self.texts.iter().filter(|(path, _)| wanted(path));
        for (path, text) in texts.chain(files) {
            let path = dir.join(path);
            std::fs::create_dir_all(path.parent().unwrap_or(dir))?;
            std::fs::write(path, text)?;
        }
        Ok(())
    }
}

fn owned(texts: &[(&str, &str)]) -> Vec<(String, String)> {
    let pair = |(name, text): &(&str, &str)| ((*name).to_owned(), (*text).to_owned());
    texts.iter().map(pair).collect()
}

/// The files of a directory; ours in our order, others behind them by name.
fn read(dir: &Path, kind: &str) -> anyhow::Result<Vec<(String, String)>> {
    let dir = dir.join(kind);
    let entries =
        std::fs::read_dir(&dir).with_context(|| format!("{} can't be read", dir.display()))?;
    let mut all = Vec::new();
    for entry in entries {
        let path = entry?.path();
        let Some(name) = path.file_name().and_then(|name| name.to_str()) else {
            bail!("{} has a strange name", path.display());
        };
        if let Some(name) = name.strip_suffix(".toml") {
            let text = std::fs::read_to_string(&path);
            let text = text.with_context(|| format!("{} can't be read", path.display()))?;
            all.push((name.to_owned(), text));
        }
    }
    let known = EXPERIMENTS.iter().chain(TARGETS);
    let order: Vec<&str> = known.map(|(name, _)| *name).collect();
    all.sort_by_key(|(name, _)| {
        let at = order.iter().position(|one| one == name);
        (at.unwrap_or(order.len()), name.clone())
    });
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiments::scope::Scope;

    fn bench() -> std::path::PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../bench")
    }

    /// Goal: a file that is added is compiled in. Method: the directory beside the lists.
    #[test]
    fn the_lists_are_the_directory() {
        let library = Library::load(None).unwrap();
        let there = Library::load(Some(&bench())).unwrap();
        let names = |library: &Library| {
            let experiments = library.experiments.iter().map(|one| one.name.clone());
            let targets = library.targets.iter().map(|one| one.name.clone());
            experiments.chain(targets).collect::<Vec<_>>()
        };
        assert_eq!(names(&library), names(&there));
    }

    /// Goal: no command has a hole. Method: every step of every experiment, on every target, quick
    /// and full, is filled in.
    #[test]
    fn every_step_of_every_file_can_be_filled_in() {
        let library = Library::load(None).unwrap();
        for experiment in &library.experiments {
            for name in experiment.targets.iter().chain(experiment.targets(true)) {
                library.target(name).unwrap();
            }
            for name in experiment.why.keys() {
                assert!(library.target(name).unwrap().ours, "{name}");
            }
            for claim in &experiment.claims {
                library.target(&claim.against).unwrap();
            }
            for target in &library.targets {
                if experiment.only_these && !experiment.targets.contains(&target.name) {
                    continue;
                }
                for quick in [false, true] {
                    let scope = Scope::example(experiment, target, quick);
                    let filled = scope.all_steps();
                    let place = (&experiment.name, &target.name);
                    assert!(filled.is_ok(), "{place:?}: {:#}", filled.unwrap_err());
                }
            }
        }
    }

    #[test]
    fn unknown_names_and_keys_are_refused_in_words() {
        let library = Library::load(None).unwrap();
        let why = library.experiment("pmfs-66").map(|_| ()).unwrap_err();
        assert!(why.to_string().contains("pmfs-6 "), "{why}");
        let why = Target::parse("x", "title = 'x'\ndir = '/'\nmout = []").unwrap_err();
        assert!(format!("{why:#}").contains("mout"), "{why:#}");
    }
}
