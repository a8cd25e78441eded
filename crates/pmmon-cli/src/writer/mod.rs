//! The command line of `pmm-writer`.

#[cfg(feature = "programs")]
mod plan;

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use clap::{Parser, ValueEnum};
#[cfg(feature = "programs")]
pub use plan::{FILE_BYTES_MAX, Plan};
use pm_cli::Size;

/// Threads at most.
pub const THREADS_MAX: u32 = 1024;

/// pmm-writer: a load on a mapped file whose bytes and accesses are known exactly.
///
/// A monitor's estimate is judged by these counts. To try it:
///
///   pmm-writer /dev/shm/load --size 64M --total 1G --access 64 --order random
#[derive(Clone, Debug, Parser)]
#[command(
    name = "pmm-writer",
    version,
    verbatim_doc_comment,
    max_term_width = 100
)]
#[command(after_help = "\
The last line says what each thread has read and written. The counts are exact, also after SIGTERM and
SIGINT. After SIGKILL the file of --counts lacks at most the last 4,096 accesses of each thread.

Exit codes: 0 done or stopped by a signal, 1 failed, 2 wrong usage.")]
pub struct Cli {
    /// The file, which is made if need be. Its content is overwritten
    pub file: PathBuf,
    /// Bytes of the file that are used; threads have equal parts of them
    #[arg(long, value_name = "SIZE", default_value = "256M")]
    pub size: Size,
    /// Bytes that all threads together read and write
    #[arg(long, value_name = "SIZE", default_value = "512M")]
    pub total: Size,
    /// Bytes of an access: 1, 2, 4, ... 256 [default: 64, or the most that the CPU has an
    /// instruction for]. Accesses of 128 and 256 bytes are made of pieces of 64
    #[arg(long, value_name = "SIZE")]
    pub access: Option<Size>,
    /// The kind of stores
    #[arg(long, value_enum, default_value = "temporal")]
    pub store: Store,
    /// The order of places: seq, random, or zipf:EXPONENT, like zipf:0.99
    #[arg(long, default_value = "seq")]
    pub order: Order,
    /// The work
    #[arg(long, value_enum, default_value = "write")]
    pub op: Work,
    /// Threads
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=i64::from(THREADS_MAX)))]
    pub threads: u32,
    /// Bytes a second of all threads together
    #[arg(long, value_name = "SIZE")]
    pub rate: Option<Size>,
    /// Instruction behind each store that writes its line back
    #[arg(long, value_enum, default_value = "none")]
    pub flush: Flush,
    /// Run code that is made at run time; its places are in /tmp/perf-PID.map
    #[arg(long)]
    pub jit: bool,
    /// Write by system calls instead of by the mapping
    #[arg(long, value_enum)]
    pub calls: Option<Calls>,
    /// Let monitors ask which pages of the file are written (`pmmon top --backend pages`)
    #[arg(long, conflicts_with = "calls")]
    pub pages: bool,
    /// A file that has each thread's counts while it runs: tid, bytes and accesses written and read
    #[arg(long, value_name = "FILE")]
    pub counts: Option<PathBuf>,
    /// Tell the threads, and begin when a line or the end of stdin arrives
    #[arg(long)]
    pub wait: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// The definition of all that can be typed.
#[must_use]
pub fn command() -> clap::Command {
    <Cli as clap::CommandFactory>::command()
}

/// The kind of stores.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Store {
    /// Through the caches
    Temporal,
    /// Past the caches
    Nt,
}

/// The work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Work {
    /// Stores
    Write,
    /// Loads
    Read,
    /// Half of each, in turns of 2,048
    Mix,
}

/// The way by which lines are written back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Flush {
    /// The caches decide
    None,
    /// CLWB
    Clwb,
}

/// The call that writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Calls {
    /// pwrite(2)
    Pwrite,
}

/// The order of places.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Order {
    /// One behind the other, and from the start again.
    Sequential,
    /// Each with the same probability.
    Random,
    /// The n-th with a probability in proportion to 1 / n^exponent; ranks are scattered.
    Zipf(f64),
}

impl FromStr for Order {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let usage = || format!("'{text}' is none of seq, random, zipf:EXPONENT (0 to 10)");
        match text.split_once(':') {
            None if text == "seq" => Ok(Self::Sequential),
            None if text == "random" => Ok(Self::Random),
            Some(("zipf", exponent)) => {
                let exponent: f64 = exponent.parse().map_err(|_| usage())?;
                if !(0.0..=10.0).contains(&exponent) {
                    return Err(usage());
                }
                Ok(Self::Zipf(exponent))
            }
            _ => Err(usage()),
        }
    }
}

impl fmt::Display for Order {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sequential => to.write_str("seq"),
            Self::Random => to.write_str("random"),
            Self::Zipf(exponent) => write!(to, "zipf:{exponent}"),
        }
    }
}
