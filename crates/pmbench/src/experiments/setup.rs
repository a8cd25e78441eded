//! `pmbench setup`: Debian's packages that experiments and targets need, installed, what they need
//! of other archives fetched into the cache; and what can't be had.

use super::experiment::Experiment;
use super::library::Library;
use super::needs::{cache_dir, search_path};
use super::shell;
use super::template::{Values, fill};
use anyhow::Context;
use std::collections::BTreeMap;
use std::process::{Command, Stdio};
use std::time::Duration;

/// Fetching must not hang for ever.
const FETCH: Duration = Duration::from_secs(900);

/// Installs what is missing.
pub fn run(library: &Library, json: bool) -> anyhow::Result<()> {
    let wanted = missing(library);
    let packages: Vec<&str> = wanted
        .values()
        .map(|package| &**package)
        .filter(|package| !package.is_empty())
        .collect();
    let mut why = None;
    if !packages.is_empty() {
        eprintln!("installing {}", packages.join(" "));
        why = install(&packages).err();
    }
    let still = missing(library);
    let got: Vec<&String> = wanted
        .keys()
        .filter(|program| !still.contains_key(*program))
        .collect();
    let why = why.map(|why| format!("{why:#}"));
    let cached = fetch(library);
    if json {
        let row =
            serde_json::json!({"installed": got, "missing": still, "why": why, "cached": cached});
        println!("{row}");
        return Ok(());
    }
    for program in got {
        println!("installed: {program}");
    }
    for (program, package) in &still {
        match (package.as_str(), &why) {
            ("", _) => println!(
                "missing: {program}, which no package of Debian has; what needs it is skipped"
            ),
            (package, Some(why)) => println!("missing: {program} of {package}: {why}"),
            (package, None) => println!("missing: {program}, though {package} was installed"),
        }
    }
    for (name, why) in &cached {
        match why {
            None => println!("fetched: {name}"),
            Some(why) => println!("missing: {name}: {why}"),
        }
    }
    if still.is_empty() && cached.values().all(Option::is_none) {
        println!("everything is there");
    }
    Ok(())
}

/// Programs that are not there, with their packages.
fn missing(library: &Library) -> BTreeMap<String, String> {
    let of_experiments = library.experiments.iter().map(|one| &one.needs);
    let of_targets = library.targets.iter().map(|one| &one.needs);
    let all = of_experiments.chain(of_targets);
    let programs = all.flat_map(|needs| needs.missing_programs());
    programs
        .map(|(program, package)| (program.to_owned(), package.to_owned()))
        .collect()
}

/// Fills what is missing of the cache; why what could not be.
fn fetch(library: &Library) -> BTreeMap<String, Option<String>> {
    let mut all = BTreeMap::new();
    for experiment in &library.experiments {
        for (name, command) in experiment.needs.missing_cached() {
            eprintln!("fetching {name} for {}", experiment.name);
            let why = fetch_one(experiment, name, command).err();
            all.insert(name.to_owned(), why.map(|why| format!("{why:#}")));
        }
    }
    all
}

/// A directory has its name when it is whole.
fn fetch_one(experiment: &Experiment, name: &str, command: &str) -> anyhow::Result<()> {
    let cache = cache_dir();
    std::fs::create_dir_all(&cache)
        .with_context(|| format!("{} can't be made", cache.display()))?;
    let (new, shared) = (tempfile::tempdir_in(&cache)?, tempfile::tempdir()?);
    experiment.lay(shared.path())?;
    let text = |dir: &tempfile::TempDir| dir.path().display().to_string();
    let places = [("new", text(&new)), ("shared", text(&shared))];
    let places = places.map(|(name, dir)| (name.to_owned(), dir));
    let command = fill(command, &Values::from(places))?;
    shell::run(&command, FETCH, &shell::Stop::default())?;
    std::fs::rename(new.keep(), cache.join(name))?;
    Ok(())
}

/// Installs one by one where all at once fails: a package that Debian has no more must not keep the
/// others away.
fn install(packages: &[&str]) -> anyhow::Result<()> {
    apt(&["update", "-qq"])?;
    let with = |packages: &[&str]| {
        let words = ["install", "-y", "-qq", "--no-install-recommends"];
        apt(&[&words, packages].concat())
    };
    if with(packages).is_ok() {
        return Ok(());
    }
    let mut ended = Ok(());
    for package in packages {
        if let Err(why) = with(&[package]) {
            ended = Err(why);
        }
    }
    ended
}

fn apt(words: &[&str]) -> anyhow::Result<()> {
    let mut command = Command::new("apt-get");
    command.args(words).env("PATH", search_path());
    command.env("DEBIAN_FRONTEND", "noninteractive");
    command.stdin(Stdio::null()).stdout(Stdio::null());
    let output = command.output().context("apt-get can't be run")?;
    let said = String::from_utf8_lossy(&output.stderr);
    let last = said.trim().lines().last().unwrap_or("it failed");
    anyhow::ensure!(output.status.success(), "apt-get {}: {last}", words[0]);
    Ok(())
}
