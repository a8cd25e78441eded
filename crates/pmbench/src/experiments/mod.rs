//! The sources' experiments, redone: which there are, how they run, and what came of them.
//!
//! Experiments and targets are data, in `bench/`. Here is what reads them (`library`, `experiment`,
//! `target`, `template`, `reading`, `needs`), what runs them (`runner`, `mounted`, `shell`,
//! `control`, `progress`) and what is kept (`results`, `machine`).

pub mod control;
pub mod experiment;
pub mod library;
pub mod machine;
mod mounted;
mod needs;
mod progress;
mod reading;
pub mod results;
mod runner;
mod scope;
mod setup;
pub mod shell;
pub mod target;
pub mod template;

use crate::report::summary::Summary;
use crate::report::{compare, condensed, figures, page, table};
use anyhow::{Context, bail};
use clap::{Args, Subcommand};
use library::Library;
use machine::Machine;
use results::{Asked, Results, write_json};
use runner::{Plan, Runner};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use target::Target;

/// The commands for experiments.
#[derive(Subcommand)]
pub enum Command {
    /// List experiments and targets, and what this machine lacks for them.
    List(Data),
    /// Run experiments on targets in turn; a run that was interrupted goes on with the same --out.
    Run(RunOptions),
    /// Write a run's report: one HTML file, and SVG files if asked to.
    Report {
        /// The run's directory.
        dir: PathBuf,
        /// The file [default: report.html in the run's directory].
        #[arg(long)]
        html: Option<PathBuf>,
        /// Each figure as an SVG file too, into this directory.
        #[arg(long, value_name = "DIR")]
        figures: Option<PathBuf>,
        /// The run in three small files (rows.csv, machine.json, report.md) too, into this
        /// directory.
        #[arg(long, value_name = "DIR")]
        condensed: Option<PathBuf>,
    },
    /// Show what changed from one run to another.
    Compare {
        /// The directory of the run before.
        a: PathBuf,
        /// The directory of the run after.
        b: PathBuf,
    },
    /// Install the packages that experiments need (Debian), and say what can't be had.
    Setup(Data),
}

/// The place of experiments and targets.
#[derive(Args)]
pub struct Data {
    /// A directory with `experiments` and `targets`, in place of those compiled in.
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
}

/// The experiments to run, the targets, and the way.
#[derive(Args)]
pub struct RunOptions {
    /// Names of experiments (pmbench list), or all.
    #[arg(required = true)]
    experiments: Vec<String>,
    /// Names of targets, with commas between [default: each experiment's own].
    #[arg(long, value_delimiter = ',')]
    targets: Option<Vec<String>>,
    /// Measure this directory as a target too; may be given several times.
    #[arg(long, value_name = "PATH")]
    dir: Vec<PathBuf>,
    /// Smaller sizes and fewer points and rounds.
    #[arg(long)]
    quick: bool,
    /// The run's directory [default: pmbench-run-DATE].
    #[arg(long)]
    out: Option<PathBuf>,
    /// The program pmfs [default: beside pmbench, or the one in PATH].
    #[arg(long)]
    pmfs: Option<PathBuf>,
    /// A persistent memory device for the targets that need one, which is formatted.
    #[arg(long, value_name = "DEVICE")]
    device: Option<PathBuf>,
    #[command(flatten)]
    data: Data,
}

impl Command {
    /// Does it.
    pub fn run(self, rounds: Option<usize>, json: bool) -> anyhow::Result<()> {
        match self {
            Command::List(data) => list(&data, json),
            Command::Run(options) => options.run(rounds, json),
            Command::Report {
                dir,
                html,
                figures,
                condensed: small,
            } => {
                let html = html.unwrap_or_else(|| dir.join("report.html"));
                let summary = Summary::read(&dir)?;
                page::write(&summary, &html)?;
                println!("{}", html.display());
                if let Some(figures) = figures {
                    figures::write(&summary, &figures)?;
                    println!("{}", figures.display());
                }
                if let Some(small) = small {
                    condensed::write(&summary, &small)?;
                    println!("{}", small.display());
                }
                Ok(())
            }
            Command::Compare { a, b } => {
                compare::run(&Summary::read(&a)?, &Summary::read(&b)?, json)
            }
            Command::Setup(data) => setup::run(&Library::load(data.data.as_deref())?, json),
        }
    }
}

fn list(data: &Data, json: bool) -> anyhow::Result<()> {
    let library = Library::load(data.data.as_deref())?;
    for one in &library.experiments {
        let missing = one.needs.missing(None);
        if json {
            let row = serde_json::json!({
                "experiment": one.name, "title": one.title, "source": one.source, "figure": one.figure,
                "targets": one.targets, "missing": missing,
            });
            println!("{row}");
            continue;
        }
        let source = format!("{}, {}", one.source, one.figure);
        println!(
            "{:<18} {:<44} {source}{}",
            one.name,
            one.title,
            but(missing)
        );
    }
    if !json {
        println!();
    }
    for one in &library.targets {
        let (missing, title) = (one.needs.missing(None), one.titled(&one.values));
        if json {
            let row = serde_json::json!({"target": one.name, "title": title, "missing": missing});
            println!("{row}");
        } else {
            println!("{:<18} {title}{}", one.name, but(missing));
        }
    }
    Ok(())
}

fn but(missing: Option<String>) -> String {
    missing.map_or(String::new(), |why| format!("\n{:18} not here: {why}", ""))
}

impl RunOptions {
    fn run(self, rounds: Option<usize>, json: bool) -> anyhow::Result<()> {
        let library = Library::load(self.data.data.as_deref())?;
        let dirs = self.directories()?;
        let plan = self.plan(&library, &dirs, rounds)?;
        let out = match &self.out {
            Some(out) => out.clone(),
            None => default_out()?,
        };
        let asked = Asked {
            quick: self.quick,
            commit: machine::commit(),
        };
        let results = Results::open(&out, &asked)?;
        let experiments: Vec<_> = plan.experiments.iter().map(|(one, _)| *one).collect();
        library.save(&out.join("data"), &experiments)?;
        let machine = out.join("machine.json");
        if !machine.exists() {
            write_json(&machine, &Machine::describe(&plan.pmfs, &experiments))?;
        }
        let stop = shell::Stop::default();
        for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
            signal_hook::flag::register(signal, Arc::clone(&stop))?;
        }
        crate::ground::sweep();
        let mut runner = Runner {
            plan,
            results,
            control: control::Control::new(),
            stop: Arc::clone(&stop),
            tell: Box::new(move |row| {
                if json && let Ok(line) = serde_json::to_string(row) {
                    println!("{line}");
                }
            }),
        };
        let ended = runner.run();
        if stop.load(Ordering::Relaxed) {
            bail!(
                "interrupted; the same command with --out {} goes on",
                out.display()
            );
        }
        ended?;
        if !json {
            table::print(&Summary::read(&out)?);
            println!("\npmbench report {}", out.display());
        }
        Ok(())
    }

    fn directories(&self) -> anyhow::Result<Vec<Target>> {
        let target = |dir: &PathBuf| {
            let dir = dir.canonicalize();
            let dir = dir.with_context(|| format!("--dir {:?} can't be used", self.dir))?;
            Ok(Target::of_directory(&dir))
        };
        self.dir.iter().map(target).collect()
    }

    fn plan<'a>(
        &self,
        library: &'a Library,
        dirs: &'a [Target],
        rounds: Option<usize>,
    ) -> anyhow::Result<Plan<'a>> {
        let mut experiments = Vec::new();
        for name in &self.experiments {
            match name.as_str() {
                "all" => experiments.extend(&library.experiments),
                name => experiments.push(library.experiment(name)?),
            }
        }
        let mut planned = Vec::new();
        for one in experiments {
            let names = match &self.targets {
                Some(names) => names,
                None => one.targets(self.quick),
            };
            let named = names.iter().map(|name| library.target(name));
            let mut targets = named.collect::<anyhow::Result<Vec<_>>>()?;
            targets.extend(dirs);
            planned.push((one, targets));
        }
        Ok(Plan {
            experiments: planned,
            quick: self.quick,
            rounds,
            pmfs: self.pmfs.clone().map_or_else(beside, Ok)?,
            device: self.device.clone(),
        })
    }
}

/// The program pmfs beside this one, or the one in PATH.
fn beside() -> anyhow::Result<PathBuf> {
    let own = std::env::current_exe()?;
    let beside = own.parent().map(|dir| dir.join("pmfs"));
    let beside = beside.filter(|path| path.is_file());
    Ok(beside
        .or_else(|| needs::find_program("pmfs"))
        .unwrap_or_else(|| "pmfs".into()))
}

fn default_out() -> anyhow::Result<PathBuf> {
    let output = std::process::Command::new("date")
        .arg("+%Y%m%d-%H%M%S")
        .output()?;
    let date = String::from_utf8(output.stdout)?;
    let out = Path::new(&format!("pmbench-run-{}", date.trim())).to_owned();
    eprintln!("the run's directory is {}", out.display());
    Ok(out)
}
