//! `pmfs`, the one command: make, mount, unmount, check and inspect pools.
//!
//! Results go to stdout (as JSON with `--json`), everything else to stderr. An error is one line,
//! `pmfs: <cause>; <way out>`. Exit codes: 0 done, 1 not done, 2 wrong usage; `fsck` has its own.

#![forbid(unsafe_code)]

mod cli;
mod copied;
mod crash;
mod daemon;
mod dump;
mod failure;
mod fsck;
mod get;
mod grow;
mod info;
mod list;
mod load;
mod logger;
mod ls;
mod mkfs;
mod mount;
mod names;
mod pool;
mod progress;
mod put;
mod remount;
mod report;
mod rm;
mod save;
mod signals;
mod size;
mod time;
mod umount;

use std::env;
use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;

use clap::Parser;

use cli::{Cli, Command};
use failure::Failure;

fn main() -> ExitCode {
    let outcome = match Cli::parse_from(typed()).command {
        Command::Mkfs(arguments) => mkfs::run(&arguments),
        Command::Mount(arguments) => mount::run(&arguments),
        Command::Umount(arguments) => umount::run(&arguments),
        Command::Fsck(arguments) => fsck::run(&arguments),
        Command::Info(arguments) => info::run(&arguments),
        Command::Ls(arguments) => ls::run(&arguments),
        Command::Get(arguments) => get::run(&arguments),
        Command::Put(arguments) => put::run(&arguments),
        Command::List(arguments) => list::run(&arguments),
        Command::Rm(arguments) => rm::run(&arguments),
        Command::Save(arguments) => save::run(&arguments),
        Command::Load(arguments) => load::run(&arguments),
        Command::Dump(arguments) => dump::run(&arguments),
        Command::Grow(arguments) => grow::run(&arguments),
    };
    match outcome {
        Ok(code) => code,
        Err(failure) => {
            eprintln!("pmfs: {failure}");
            failure.exit_code()
        }
    }
}

/// The command line. mount(8) runs `mount.fuse.pmfs POOL DIR -o ...`, or through fuse3's own helper
/// `pmfs POOL DIR -o ...`, both of which mean `pmfs mount`.
fn typed() -> Vec<OsString> {
    let mut typed: Vec<OsString> = env::args_os().collect();
    let program = typed
        .first()
        .map(Path::new)
        .and_then(Path::file_name)
        .unwrap_or_default();
    let helper = program.as_encoded_bytes().starts_with(b"mount.");
    let path = typed
        .get(1)
        .is_some_and(|first| first.as_encoded_bytes().contains(&b'/'));
    if helper || path {
        typed.insert(1, "mount".into());
    }
    typed
}

/// What a command answers.
type Outcome = Result<ExitCode, Failure>;
