//! Drivers for measurements that no tool of Debian makes: programs that work in a directory by
//! plain system calls, so that any target can be below it. Each prints one JSON object.

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
    /// The time of single calls: create, append, write, read, delete.
    Calls(calls::Options),
    /// The memory of a pool: latencies of instructions, bandwidth, flushes.
    Device(device::Options),
    /// The time to map a file, and to touch its pages for the first time.
    Faults(faults::Options),
    /// Bytes that PMFS logs for touch, mkdir and mv.
    Logged(logged::Options),
    /// The time to make, look at and delete a file among so many others.
    Names(names::Options),
    /// The time of writes where a file system is so full.
    Full(full::Options),
    /// Small writes at the end of a file and over what it holds.
    SmallWrites(small_writes::Options),
}

/// The time for which it measures.
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
