//! The command lines of `pmmon` and `pmm-writer` as data, for the programs and for manual pages.
#![forbid(unsafe_code)]

pub mod commands;
pub mod writer;
