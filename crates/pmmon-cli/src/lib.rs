//! The command lines of `pmm-writer` and `pmmon` as data, for the programs and for manual pages.
#![forbid(unsafe_code)]

pub mod writer;
