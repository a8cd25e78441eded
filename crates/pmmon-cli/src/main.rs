//! `pmmon`: which process and thread reads and writes mapped persistent memory, and how much.
//!
//! Results go to stdout, everything else to stderr. An error is one line with the way out.
#![forbid(unsafe_code)]

mod doctor;
mod export;
mod pages;
mod perf;
mod pin;
mod record;
mod replay;
mod report;
mod rows;
mod screen;
mod session;
mod top;

use std::process::ExitCode;

use clap::Parser;
use pm_cli::Failure;
use pmmon_cli::commands::{Cli, Command};

/// The exit code of "nothing here can measure this".
const NOTHING: u8 = 77;

fn main() -> ExitCode {
    let outcome: Result<ExitCode, Failure> = match Cli::parse().command {
        Command::Top(arguments) => top::run(&arguments),
        Command::Record(arguments) => record::run(&arguments),
        Command::Report(arguments) => report::run(&arguments),
        Command::Export(arguments) => export::run(&arguments),
        Command::Pin(arguments) => pin::run(&arguments),
        Command::Doctor(arguments) => doctor::run(&arguments),
    };
    outcome.unwrap_or_else(|failure| {
        eprintln!("pmmon: {failure}");
        failure.exit_code()
    })
}
