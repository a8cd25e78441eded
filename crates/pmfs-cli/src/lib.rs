//! The command line of `pmfs` as data: for the program itself, and for manual pages and
//! completions, which are made of the same definitions. The commands' work is in the program alone.

#![forbid(unsafe_code)]

pub mod cli;
