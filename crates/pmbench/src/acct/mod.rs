//! The figures of ACCT (T. Schmidt, KIT 2022) that are simulated here: events of requests for
//! ownership (figures 4.1 to 4.4), a PMU's samples (5.1, 5.2) and groups of cores (5.3, 5.4). Each
//! prints one JSON object, which says that it is simulated.

mod cores;
mod ownership;
mod samples;

use clap::{Args, Subcommand};

/// The figures.
#[derive(Args)]
pub struct Options {
    #[command(subcommand)]
    figure: Figure,
}

#[derive(Subcommand)]
enum Figure {
    /// Table 4.1: whether this machine counts requests for ownership of persistent memory.
    Events,
    /// Requests for ownership by size of stores, as a share of the bytes written.
    Ownership(ownership::Options),
    /// Samples of a PMU that simulates periods, fixed and drawn.
    Samples(samples::Options),
    /// Computing threads and writers on 16 cores, and one module's bandwidth.
    Cores(cores::Options),
}

/// Measures and prints.
pub fn run(options: &Options) -> anyhow::Result<()> {
    match &options.figure {
        Figure::Events => ownership::events(),
        Figure::Ownership(options) => ownership::run(options),
        Figure::Samples(options) => samples::run(options),
        Figure::Cores(options) => cores::run(options),
    }
}

/// Numbers drawn by a linear congruential generator, the same ones each time.
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(0x5851_f42d_4c95_7f2d)
            .wrapping_add(0x1405_7b7e_f767_814f);
        (self.0 >> 33) % end
    }
}
