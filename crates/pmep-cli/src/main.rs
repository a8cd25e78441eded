//! `pmep`: predict, replay, fit and check a model of Optane modules.
//!
//! Results go to stdout (as JSON with `--json`), everything else to stderr. An error is one line,
//! `pmep: <place>: <cause>; <way out>`. Exit codes: 0 done, 1 a goal is missed, 2 wrong input.
#![forbid(unsafe_code)]

/// Prints a line of the result. A reader that has read enough ends the program without an error.
macro_rules! out {
    ($($part:tt)*) => {{
        use std::io::Write as _;
        if let Err(error) = writeln!(std::io::stdout(), $($part)*) {
            std::process::exit(i32::from(error.kind() != std::io::ErrorKind::BrokenPipe));
        }
    }};
}

mod advise;
mod check;
mod convert;
mod devices;
mod doctor;
mod figures;
mod fitting;
mod predict;
mod replay;
mod speed;

use std::process::ExitCode;

use clap::Parser;
use pmep::BadInput;
use pmep_cli::{Cli, Command};

/// The result of a command.
type Outcome = Result<ExitCode, BadInput>;

fn main() -> ExitCode {
    let outcome = match Cli::parse().command {
        Command::Predict(arguments) => predict::run(&arguments),
        Command::Replay(arguments) => replay::run(&arguments),
        Command::Convert(arguments) => convert::run(&arguments),
        Command::Advise(arguments) => advise::run(&arguments),
        Command::Doctor(arguments) => doctor::run(&arguments),
        Command::Fit(arguments) => fitting::run(&arguments),
        Command::Check(arguments) => check::run(&arguments),
        Command::Figures(arguments) => figures::run(&arguments),
        Command::Devices(arguments) => devices::run(&arguments),
    };
    outcome.unwrap_or_else(|error| {
        eprintln!("pmep: {error}");
        ExitCode::from(2)
    })
}
