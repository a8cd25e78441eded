//! The command line of `pmkv` as data: for the program itself, and for manual pages and
//! completions, which are made of the same definitions. The commands' work is in the program alone.
#![forbid(unsafe_code)]

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};
use pm_cli::Size;

/// pmkv: persistent heaps in files on persistent memory (or tmpfs, huge pages, a plain file).
///
/// A heap is one file of objects that outlive their programs (docs/HEAP.md). To try it:
///
///   pmkv create --size 64M /dev/shm/heap
///   pmkv stat /dev/shm/heap
///   pmkv check /dev/shm/heap
#[derive(Parser)]
#[command(name = "pmkv", version, verbatim_doc_comment, max_term_width = 100)]
pub struct Cli {
    /// The command.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[derive(Subcommand)]
pub enum Command {
    /// Make a heap
    Create(Create),
    /// Show a heap's size, space, medium and durability
    #[command(after_help = "\
Example: the bytes that are free, without growth:

  pmkv stat --json /dev/shm/heap | jq .free_bytes

A heap that a crash has left is recovered first.")]
    Stat(Stat),
    /// Check a heap: every byte of it is accounted for
    #[command(after_help = "Exit codes: 0 clean, 4 damaged, 8 could not be checked.")]
    Check(Check),
}

/// `pmkv create`
#[derive(Args)]
pub struct Create {
    /// The heap's file, not there yet: on tmpfs, hugetlbfs, a DAX file system or any other; or a
    /// DAX device
    pub heap: PathBuf,
    /// Size of the heap, like 64M or 1G; it grows when it is full
    #[arg(long, short, value_name = "SIZE", default_value = "64M")]
    pub size: Size,
    /// Transactions that can go on at once [default: by the size]
    #[arg(long, value_name = "N", default_value_t = 0, hide_default_value = true)]
    pub lanes: u32,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// `pmkv stat`
#[derive(Args)]
pub struct Stat {
    /// The heap
    pub heap: PathBuf,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// `pmkv check`
#[derive(Args)]
pub struct Check {
    /// The heap
    pub heap: PathBuf,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// The whole definition, for manual pages and completions.
#[must_use]
pub fn command() -> clap::Command {
    <Cli as clap::CommandFactory>::command()
}
