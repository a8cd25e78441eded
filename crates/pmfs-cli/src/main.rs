//! `pmfs`, the one command: make, mount, unmount, check and inspect pools.
//!
//! Results go to stdout (as JSON with `--json`), everything else to stderr. An error is one
//! line, `pmfs: <cause>; <way out>`. Exit codes: 0 done, 1 not done, 2 wrong usage; `fsck` has
//! its own, and so has each name by which mount(8), fsck(8) and mkfs(8) call it ([`called`]).

#![forbid(unsafe_code)]

mod called;
mod clone;
mod copied;
mod crash;
mod daemon;
mod defrag;
mod difference;
mod doctor;
mod dump;
mod failure;
mod fsck;
mod get;
mod grow;
mod holders;
mod images;
mod info;
mod keeper;
mod list;
mod load;
mod logger;
mod ls;
mod mapped;
mod mkfs;
mod mount;
mod names;
mod place;
mod pool;
mod preload;
mod program;
mod progress;
mod put;
mod remount;
mod report;
mod rm;
mod run;
mod save;
mod signals;
mod snapshot;
mod temp;
mod time;
mod top;
mod totals;
mod trust;
mod umount;
mod xattrs;

use std::env;
use std::process::{self, ExitCode};

use clap::Parser;
// A module of the library, where the tool for manual pages finds it too.
use pmfs_cli::cli;

use called::Call;
use cli::{Cli, Command};
use failure::Failure;

fn main() -> ExitCode {
    let Call { name, words } = match called::call(env::args_os().collect()) {
        Ok(call) => call,
        Err((name, wrong)) => {
            eprintln!("pmfs: {wrong}");
            return ExitCode::from(name.usage_code());
        }
    };
    let typed = Cli::try_parse_from(words).unwrap_or_else(|said| {
        let code = if said.use_stderr() {
            name.usage_code()
        } else {
            0
        };
        // A failure of stdout or stderr can't be reported anywhere.
        let _ = said.print();
        process::exit(code.into())
    });
    let outcome = match typed.command {
        Command::Mkfs(arguments) => mkfs::run(&arguments),
        Command::Mount(arguments) => mount::run(&arguments),
        Command::Umount(arguments) => umount::run(&arguments),
        Command::Run(arguments) => run::run(&arguments),
        Command::Fsck(arguments) => fsck::run(&arguments),
        Command::Info(arguments) => info::run(&arguments),
        Command::Top(arguments) => top::run(&arguments),
        Command::Ls(arguments) => ls::run(&arguments),
        Command::Get(arguments) => get::run(&arguments),
        Command::Put(arguments) => put::run(&arguments),
        Command::Clone(arguments) => clone::run(&arguments),
        Command::Snapshot(arguments) => snapshot::run(&arguments.command),
        Command::List(arguments) => list::run(&arguments),
        Command::Rm(arguments) => rm::run(&arguments),
        Command::Save(arguments) => save::run(&arguments),
        Command::Load(arguments) => load::run(&arguments),
        Command::Dump(arguments) => dump::run(&arguments),
        Command::Grow(arguments) => grow::run(&arguments),
        Command::Defrag(arguments) => defrag::run(&arguments),
        Command::DropPages => drop_pages(),
        Command::Doctor(arguments) => doctor::run(&arguments),
    };
    match outcome {
        Ok(code) => code,
        Err(failure) => {
            eprintln!("pmfs: {failure}");
            name.failure(failure).exit_code()
        }
    }
}

/// A mount's other process, which has nothing of the pool.
fn drop_pages() -> Outcome {
    pmfs_fuse::drop_pages()?;
    Ok(ExitCode::SUCCESS)
}

/// The result of a command.
type Outcome = Result<ExitCode, Failure>;
