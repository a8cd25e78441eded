//! Manual pages and completions, made of the definitions of the command line. Here, and not in
//! `pmfs`, so that the program doesn't carry the code that writes them.
//!
//! The rules that the tree itself must keep are in `tests/tidy.rs`.

#![forbid(unsafe_code)]

pub mod completions;
pub mod man;

/// The programs, as their command lines are defined.
#[must_use]
pub fn programs() -> [clap::Command; 5] {
    [
        pmfs_cli::cli::command(),
        pmkv_cli::command(),
        pmep_cli::command(),
        pmmon_cli::commands::command(),
        pmmon_cli::writer::command(),
    ]
}
