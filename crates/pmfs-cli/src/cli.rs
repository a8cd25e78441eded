//! What can be typed. Each argument is defined once, here; help and parsing read the same lines.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

use crate::size::Size;

/// PMFS: a crash-consistent file system on persistent memory (or tmpfs, huge pages, a plain file),
/// in user space.
///
/// A pool is one file that holds a whole file system. To try it:
///
///   pmfs mkfs --size 1G /dev/shm/pool
///   mkdir /tmp/mnt
///   pmfs mount /dev/shm/pool /tmp/mnt
///   (use /tmp/mnt)
///   pmfs umount /tmp/mnt
#[derive(Parser)]
#[command(name = "pmfs", version, verbatim_doc_comment, max_term_width = 100)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[derive(Subcommand)]
pub enum Command {
    /// Make a pool
    Mkfs(Mkfs),
    /// Mount a pool on a directory
    Mount(Mount),
    /// Unmount, and wait until the pool is closed
    Umount(Umount),
    /// Check a pool that is not mounted, and repair it
    #[command(
        after_help = "Exit codes: 0 clean, 1 repaired, 4 something is wrong and left, 8 could not be checked.\n\
                      Findings have numbers, which docs/FSCK.md explains. A repair throws away what can't be right:\n\
                      copy the pool file first (cp --sparse=always POOL COPY) if it is dear to you."
    )]
    Fsck(Fsck),
    /// Show what a pool is: size, space, medium, what it survives
    Info(Info),
    /// See what this machine has of what PMFS needs, and how to get the rest
    #[command(
        after_help = "Exit codes: 0 all that is needed is there, 1 something is missing. Nothing is changed.\n\
                      What is optional is not needed to make and mount pools; \"missing\" is. Below each stands the\n\
                      command that mends it."
    )]
    Doctor(Doctor),
}

/// `pmfs mkfs`
#[derive(Args)]
pub struct Mkfs {
    /// The pool file: on tmpfs, hugetlbfs, a DAX file system or any other; or a DAX device
    pub pool: PathBuf,
    /// Size of the pool, like 512M, 1G, 1.5T; may be left out if the file has one
    #[arg(long, short, value_name = "SIZE")]
    pub size: Option<Size>,
    /// Overwrite a pool, or any other file that is not empty
    #[arg(long, short)]
    pub force: bool,
    /// Don't allocate all of the file now; space is taken as it is used, and may run out
    #[arg(long)]
    pub sparse: bool,
    /// How many files there can be [default: by size]
    #[arg(long, value_name = "N")]
    pub inodes: Option<u64>,
    /// Print the result as JSON
    #[arg(long)]
    pub json: bool,
}

/// `pmfs mount`
#[derive(Args)]
#[command(after_help = option_help())]
pub struct Mount {
    /// The pool file
    pub pool: PathBuf,
    /// The directory to mount it on
    pub dir: PathBuf,
    /// Mount options, comma-separated; may be given several times (see below)
    #[arg(short = 'o', value_name = "OPT,OPT=...")]
    pub options: Vec<String>,
    /// Stay in the foreground, with the log on stderr; Ctrl-C unmounts
    #[arg(short, long)]
    pub foreground: bool,
    /// Write the log of the background process to this file
    #[arg(long, value_name = "FILE")]
    pub log: Option<PathBuf>,
    /// Print nothing but errors
    #[arg(long, short)]
    pub quiet: bool,
    /// Print the result as JSON
    #[arg(long)]
    pub json: bool,
    /// Check all that can be checked beforehand, and mount nothing (mount -f)
    #[arg(long, hide = true)]
    pub fake: bool,
    /// This process is the background process; its stdout is a pipe to the one that started it.
    #[arg(long, hide = true)]
    pub daemon: bool,
}

/// `pmfs umount`
#[derive(Args)]
pub struct Umount {
    /// The directory that a pool is mounted on
    pub dir: PathBuf,
    /// Take it away though it is in use; it ends when the last open file is closed
    #[arg(long, short)]
    pub lazy: bool,
    /// Print nothing but errors
    #[arg(long, short)]
    pub quiet: bool,
    /// Print the result as JSON
    #[arg(long)]
    pub json: bool,
}

/// `pmfs fsck`
#[derive(Args)]
pub struct Fsck {
    /// The pool file
    pub pool: PathBuf,
    /// Repair what is found; also -y, -a and -p, as fsck(8) asks for it
    #[arg(long, short = 'y', short_aliases = ['a', 'p'])]
    pub repair: bool,
    /// Only check (the default)
    #[arg(long, short = 'n', conflicts_with = "repair")]
    pub no_repair: bool,
    /// Print the result as JSON
    #[arg(long)]
    pub json: bool,
}

/// `pmfs info`
#[derive(Args)]
pub struct Info {
    /// The pool file
    pub pool: PathBuf,
    /// Print the result as JSON
    #[arg(long)]
    pub json: bool,
}

/// `pmfs doctor`
#[derive(Args)]
pub struct Doctor {
    /// Print the result as JSON
    #[arg(long)]
    pub json: bool,
}

fn option_help() -> String {
    let mut help = String::from("Mount options (-o):\n");
    for known in pmfs_fuse::options::KNOWN {
        let name = match known.values {
            Some(values) => format!("{}={}", known.name, values.replace(" or ", "|")),
            None => known.name.to_owned(),
        };
        help.push_str(&format!("  {name:<22} {}\n", known.about));
    }
    help
}

/// All of it, for who makes manual pages and completions.
pub fn command() -> clap::Command {
    <Cli as clap::CommandFactory>::command()
}
