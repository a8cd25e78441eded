//! `pmkv`: make, look into, check and mend persistent heaps, and keep values by keys in them.
//!
//! Results go to stdout (as JSON with `--json`), everything else to stderr. An error is one line,
//! `pmkv: <cause>`, with the way out in it. Exit codes: 0 done, 1 not done, 2 wrong usage; `check`,
//! `repair` and the commands on keys have their own.
#![forbid(unsafe_code)]

mod bench;
mod check;
mod compact;
mod dump;
mod failure;
mod keys;
mod migrate;
mod scan;
mod scrub;
mod shown;
mod stat;
mod stream;
mod top;

use std::process::ExitCode;

use clap::Parser;
use pm_cli::Failure;
use pmkv_cli::{Cli, Command};

/// The result of a command.
type Outcome = Result<ExitCode, Failure>;

fn main() -> ExitCode {
    let outcome = match Cli::parse().command {
        Command::Create(arguments) => stat::create(&arguments),
        Command::Put(arguments) => keys::put(&arguments),
        Command::Get(arguments) => keys::get(&arguments),
        Command::Del(arguments) => keys::del(&arguments),
        Command::Scan(arguments) => scan::run(&arguments),
        Command::Scrub(arguments) => scrub::run(&arguments),
        Command::Save(arguments) => stream::save(&arguments),
        Command::Load(arguments) => stream::load(&arguments),
        Command::Migrate(arguments) => migrate::run(&arguments),
        Command::Bench(arguments) => bench::run(&arguments),
        Command::Stat(arguments) => stat::run(&arguments),
        Command::Top(arguments) => top::run(&arguments),
        Command::Check(arguments) => check::run(&arguments),
        Command::Repair(arguments) => check::repair(&arguments),
        Command::Compact(arguments) => compact::run(&arguments),
        Command::Grow(arguments) => compact::grow(&arguments),
        Command::Dump(arguments) => dump::run(&arguments),
    };
    outcome.unwrap_or_else(|failure| {
        eprintln!("pmkv: {failure}");
        failure.exit_code()
    })
}
