//! The memory of a pool, measured by crate `pmem`'s own loads, stores and flushes: as the tool
//! LATTester of Izraelevitz et al. 2019 has it, and the baselines of the thesis on PMDK. A file is
//! mapped, without a file system of ours in it.
//!
//! Their tools turn the prefetchers off and run in the kernel with interrupts off; this is a
//! program, and they are on.

mod bandwidth;
mod flushes;
mod latency;

use crate::experiments::shell::Cannot;
use crate::pool::unprotected;
use anyhow::{Context, ensure};
use clap::{Args, Subcommand, ValueEnum};
use pmem::{FlushInstr, Pmem};
use std::path::{Path, PathBuf};

const LINE: u64 = 64;

/// The measure, and the file.
#[derive(Args)]
pub struct Options {
    /// The memory: a file that `make` has made, or a pool's device, whose contents are lost.
    #[arg(long)]
    file: PathBuf,
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// Makes the file.
    Make {
        /// Size of the memory.
        #[arg(long)]
        mib: u64,
    },
    /// The time of an instruction with what it needs to be durable.
    Latency(latency::Options),
    /// Bytes a second.
    Bandwidth(bandwidth::Options),
    /// The time to write back a line, of so many at once.
    Flush(flushes::Options),
}

/// The order of places.
#[derive(Clone, Copy, Debug, PartialEq, ValueEnum)]
enum Order {
    /// Places one after the other.
    Sequential,
    /// Drawn.
    Random,
}

/// The instruction that writes a line back.
#[derive(Clone, Copy, Debug, PartialEq, ValueEnum)]
enum Flush {
    Clwb,
    Clflushopt,
    Clflush,
}

impl Flush {
    fn instr(self) -> FlushInstr {
        match self {
            Flush::Clwb => FlushInstr::Clwb,
            Flush::Clflushopt => FlushInstr::Clflushopt,
            Flush::Clflush => FlushInstr::Clflush,
        }
    }
}

/// Measures and prints.
pub fn run(options: &Options) -> anyhow::Result<()> {
    let file = &options.file;
    let (unit, figure) = match &options.what {
        What::Make { mib } => {
            let len = mib.checked_mul(1 << 20);
            let len = len.with_context(|| format!("{mib} MiB are more than there can be"))?;
            drop(Pmem::create(file, len, false, true, &unprotected())?);
            return Ok(());
        }
        What::Latency(options) => ("ns", options.measure(file)?),
        What::Bandwidth(options) => ("bytes_per_s", options.measure(file)?),
        What::Flush(options) => ("ns_per_line", options.measure(file)?),
    };
    println!("{}", serde_json::json!({unit: figure}));
    Ok(())
}

/// The memory, with its page tables filled, flushed by this instruction.
fn map(file: &Path, flush: Flush) -> anyhow::Result<Pmem> {
    let mem = Pmem::open(file, &unprotected())?;
    let mem = mem.flushing_by(flush.instr());
    let mem = mem.map_err(|why| Cannot(why.to_string()))?;
    for at in (0..mem.len()).step_by(4096) {
        std::hint::black_box(mem.load(at));
    }
    Ok(mem)
}

/// Accesses have to be of whole lines, and fit.
fn check_bytes(bytes: u64, least: u64, len: u64) -> anyhow::Result<()> {
    ensure!(
        bytes > 0 && bytes.is_multiple_of(least) && bytes <= len,
        "--bytes has to be a multiple of {least}, and at most {len}; it is {bytes}"
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_that_cannot_be_are_refused() {
        assert!(check_bytes(256, LINE, 4096).is_ok());
        for bytes in [0, 32, 100, 8192] {
            let why = check_bytes(bytes, LINE, 4096).unwrap_err().to_string();
            assert!(why.contains("multiple of 64, and at most 4096"), "{why}");
        }
    }
}
