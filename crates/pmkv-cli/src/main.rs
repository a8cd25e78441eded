//! `pmkv`: make, look into and check persistent heaps.
//!
//! Results go to stdout (as JSON with `--json`), everything else to stderr. An error is one line,
//! `pmkv: <cause>`, with the way out in it. Exit codes: 0 done, 1 not done, 2 wrong usage; `check`
//! has its own.
#![forbid(unsafe_code)]

mod check;
mod failure;
mod stat;

use std::process::ExitCode;

use clap::Parser;
use pmkv_cli::{Cli, Command};

use failure::Failure;

/// The result of a command.
type Outcome = Result<ExitCode, Failure>;

fn main() -> ExitCode {
    let outcome = match Cli::parse().command {
        Command::Create(arguments) => stat::create(&arguments),
        Command::Stat(arguments) => stat::run(&arguments),
        Command::Check(arguments) => check::run(&arguments),
    };
    outcome.unwrap_or_else(|failure| {
        eprintln!("pmkv: {failure}");
        failure.exit_code()
    })
}
