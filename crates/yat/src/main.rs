//! The program `yat`: checks the file system's crash states.
#![forbid(unsafe_code)]

mod cli;

use clap::Parser;
use std::process::ExitCode;

fn main() -> ExitCode {
    cli::main(&cli::Arguments::parse())
}
