//! The command line.

mod bugs;
mod fuzz;
mod kill;
mod lines;
mod mutants;
mod pairs;
mod power;
mod replay;
mod selection;
mod show;

use clap::{Parser, Subcommand, ValueEnum};
use pmfs::DataMode;
use std::process::ExitCode;

/// Checks every state in which a crash may leave a pool: recovers it with the real code, checks it,
/// compares what is seen with what it was before and after the interrupted call, and uses it. Exit
/// code 0: nothing is wrong; 1: something is; 2: the command line makes no sense.
#[derive(Debug, Parser)]
#[command(name = "yat", version)]
pub struct Arguments {
    #[command(subcommand)]
    command: Command,
    /// Print one JSON object instead of text.
    #[arg(long, global = true)]
    json: bool,
    /// With this planted bug in the engine
    #[cfg(feature = "planted-bugs")]
    #[arg(long, global = true, value_name = "NAME")]
    bug: Option<String>,
}

#[cfg(feature = "planted-bugs")]
fn plant(arguments: &Arguments) -> Result<(), String> {
    let Some(name) = &arguments.bug else {
        return Ok(());
    };
    if !pmfs::planted::BUGS.iter().any(|bug| bug.name == name) {
        return Err(format!(
            "no planted bug is called {name:?}; `yat bugs` names all"
        ));
    }
    yat::planted::plant(name);
    Ok(())
}

#[cfg(not(feature = "planted-bugs"))]
fn plant(_arguments: &Arguments) -> Result<(), String> {
    Ok(())
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Power loss: every fence and return of every workload of a set
    Power(power::Power),
    /// Kills: before every store, flush and fence, recovered by another instance on the live memory
    Kill(kill::Kill),
    /// Two calls at once, in two lanes, interleaved before their fences in every order, and power
    /// lost at each of them
    Pairs(pairs::Pairs),
    /// Every place that stores, flushes or fences got wrong by rule: what catches it
    Mutants(mutants::Mutants),
    /// Power loss in workloads at random: sizes, descriptors, names and full pools that the sets
    /// leave out
    Fuzz(fuzz::Fuzz),
    /// Every bug that the engine can be given on purpose: what finds it
    Bugs(bugs::Bugs),
    /// Lines that two processes both write, named
    Lines(lines::Lines),
    /// One crash again, as a report names it
    Replay(replay::Replay),
}

/// A data mode, or both.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Mode {
    Atomic,
    Ordered,
    Both,
}

impl Mode {
    fn modes(self) -> &'static [DataMode] {
        match self {
            Mode::Atomic => &[DataMode::Atomic],
            Mode::Ordered => &[DataMode::Ordered],
            Mode::Both => &[DataMode::Atomic, DataMode::Ordered],
        }
    }
}

/// Runs a command.
pub fn main(arguments: &Arguments) -> ExitCode {
    let done = plant(arguments).and_then(|()| match &arguments.command {
        Command::Power(power) => power::run(power, arguments.json),
        Command::Kill(kill) => kill::run(kill, arguments.json),
        Command::Pairs(pairs) => pairs::run(pairs, arguments.json),
        Command::Mutants(mutants) => mutants::run(mutants, arguments.json),
        Command::Fuzz(fuzz) => fuzz::run(fuzz, arguments.json),
        Command::Bugs(bugs) => bugs::run(bugs, arguments.json),
        Command::Lines(lines) => lines::run(lines, arguments.json),
        Command::Replay(replay) => replay::run(replay, arguments.json),
    });
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(text) => {
            eprintln!("yat: {text}");
            ExitCode::from(2)
        }
    }
}
