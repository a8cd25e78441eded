//! Drivers of our own, for what no tool of Debian does: programs that work in a directory by plain
//! system calls, so that any target can be below it. They print one JSON object.

pub mod calls;
pub mod device;
pub mod faults;
pub mod fileset;
pub mod full;
pub mod logged;
mod mixes;
pub mod names;
mod oltp;
pub mod small_writes;

use clap::{Args, Subcommand};

/// The drivers.
#[derive(Subcommand)]
pub enum Driver {
    /// Files in a tree under a mix of calls by many threads, as Filebench's personalities have
    /// them.
    Fileset(fileset::Options),
    /// What single calls take: create, append, write, read, delete.
    Calls(calls::Options),
    /// What the memory of a pool can do: latencies of instructions, bandwidth, flushes.
    Device(device::Options),
    /// What mapping a file takes, and touching its pages for the first time.
    Faults(faults::Options),
    /// Bytes that PMFS logs for touch, mkdir and mv.
    Logged(logged::Options),
    /// What making, looking at and deleting a file takes among so many others.
    Names(names::Options),
    /// What writes take where a file system is so full.
    Full(full::Options),
    /// Small writes at the end of a file and over what it holds.
    SmallWrites(small_writes::Options),
}

/// As long as it measures.
#[derive(Args)]
pub struct Span {
    /// Seconds.
    #[arg(long, default_value_t = 2.0)]
    pub seconds: f64,
}

impl Driver {
    /// Measures and prints.
    pub fn run(self) -> anyhow::Result<()> {
        match self {
            Driver::Fileset(options) => fileset::run(&options),
            Driver::Calls(options) => calls::run(&options),
            Driver::Device(options) => device::run(&options),
            Driver::Faults(options) => faults::run(&options),
            Driver::Logged(options) => logged::run(&options),
            Driver::Names(options) => names::run(&options),
            Driver::Full(options) => full::run(&options),
            Driver::SmallWrites(options) => small_writes::run(&options),
        }
    }
}
