//! The command line of `pmep` as data, for the program itself and for manual pages; and files of
//! measured points.
#![forbid(unsafe_code)]

pub mod study;
pub mod table;

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};
use pm_cli::Size;
use study::Planted;

/// pmep: how fast an access pattern would be on Optane modules, and why.
///
/// A model of the modules, fitted to published measurements (docs/MODEL.md). To try it:
///
///   pmep predict --dimms 6 --op ntstore --pattern rand --access 256 --threads 4
///   pmep devices
#[derive(Parser)]
#[command(name = "pmep", version, verbatim_doc_comment, max_term_width = 100)]
pub struct Cli {
    /// The command.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[derive(Subcommand)]
pub enum Command {
    /// Predict the bandwidth of a pattern, or of each row of a file
    #[command(after_help = "\
Examples:

  pmep predict --dimms 6 --op load --pattern rand --access 4K --threads 16
  pmep predict --op ntstore --access 64 --stride 16K --pattern strided --threads 4 --power 18
  pmep predict --points FILE.csv -o PREDICTED.csv

Of a file it writes the rows that the model answers. Those that it does not are counted by reason on
stderr, or written with their reason (--unanswered).")]
    Predict(Predict),
    /// Replay a trace of accesses: its time, and the bytes that the media moves, by stream
    #[command(after_help = "\
A trace is text, a line an access, in the order of time:

  time_ns stream r|w|nt|clwb|fence address bytes

Example: 0 0 nt 0x1000 256

A fence waits for the stores of its stream and for the last of its loads. So loads that depend on each
other are loads with fences between them.

Or it is the recorder's binary form, which `pmep convert` makes of a text.")]
    Replay(Replay),
    /// Write a trace in the recorder's binary form
    #[command(after_help = "\
Example: pmep convert TRACE.txt -o TRACE.bin

Times lose what is less than a nanosecond.")]
    Convert(Convert),
    /// Name the change to a trace that gains most: flush instruction, size of accesses, streams
    #[command(after_help = "\
The trace runs as fast as its streams can; its times only order it. Each change is tried by itself.")]
    Advise(Replay),
    /// Tell how well this machine's memory can stand for a device's
    #[command(after_help = "\
Exit codes: 0 it can, 1 this machine is slower than the device somewhere, 2 wrong input.")]
    Doctor(Doctor),
    /// Fit a device's numbers to measured points: the same points, the same bytes
    Fit(Fit),
    /// Check the model: against its own rules, and with --data against measurements
    #[command(after_help = "\
Exit codes: 0 all goals are met, 1 one is missed, 2 wrong input.")]
    Check(Check),
    /// Draw measured points beside the model: one page of charts
    #[command(after_help = "\
Dots are measured, lines are the model. Each chart has its errors; the twenty rows that are furthest
off are listed, and this machine's memory is told. The points stay in their file.")]
    Figures(Figures),
    /// Show the devices, and the numbers of each with unit, source and uncertainty
    Devices(Devices),
}

/// A machine, in options.
#[derive(Args)]
pub struct MachineArgs {
    /// The device: a name of `pmep devices`, or a file that ends in .toml
    #[arg(long, default_value = "optane-100")]
    pub device: String,
    /// Modules
    #[arg(long, default_value_t = 6)]
    pub dimms: u32,
    /// Bytes that each module takes in turn
    #[arg(long, value_name = "SIZE", default_value = "4K")]
    pub interleave: Size,
    /// Average power budget of a module, in watts, like 15 or 15W
    #[arg(long, value_name = "WATTS", default_value = "15")]
    pub power: String,
}

/// `pmep predict`
#[derive(Args)]
pub struct Predict {
    /// The machine
    #[command(flatten)]
    pub machine: MachineArgs,
    /// load, ntstore, store+clwb, store+clflushopt or store
    #[arg(long, default_value = "load")]
    pub op: String,
    /// seq, rand or strided
    #[arg(long, default_value = "seq")]
    pub pattern: String,
    /// Bytes of an access
    #[arg(long, value_name = "SIZE", default_value = "256")]
    pub access: Size,
    /// Bytes from one access to the next, if strided
    #[arg(long, value_name = "SIZE")]
    pub stride: Option<Size>,
    /// Accept a stride below the access, whose other bytes the processor's cache serves
    #[arg(long, requires = "stride")]
    pub cached: bool,
    /// Threads
    #[arg(long, default_value_t = 1)]
    pub threads: u32,
    /// A fence follows each write
    #[arg(long)]
    pub fenced: bool,
    /// The processor prefetches
    #[arg(long)]
    pub prefetcher: bool,
    /// Bytes within which the accesses stay: tells how often one waits for wear levelling
    #[arg(long, value_name = "SIZE")]
    pub region: Option<Size>,
    /// Predict each row of a CSV file with the key columns
    #[arg(long, value_name = "FILE", requires = "output")]
    pub points: Option<PathBuf>,
    /// The file of predictions
    #[arg(long, short, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Write the rows that are not answered too, with an empty prediction and the reason
    #[arg(long, requires = "points")]
    pub unanswered: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// `pmep replay` and `pmep advise`
#[derive(Args)]
pub struct Replay {
    /// The trace; `-` is stdin
    pub trace: PathBuf,
    /// The machine
    #[command(flatten)]
    pub machine: MachineArgs,
    /// Streams on the other socket: all, or numbers and ranges, like 0,4-7
    #[arg(long, value_name = "STREAMS")]
    pub far: Option<String>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// `pmep convert`
#[derive(Args)]
pub struct Convert {
    /// The trace, in either form; `-` is stdin
    pub trace: PathBuf,
    /// The trace in the binary form
    #[arg(long, short, value_name = "FILE")]
    pub output: PathBuf,
}

/// `pmep doctor`
#[derive(Args)]
pub struct Doctor {
    /// The machine
    #[command(flatten)]
    pub machine: MachineArgs,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// `pmep fit`
#[derive(Args)]
pub struct Fit {
    /// Measured points: a CSV file with the key columns and `value`
    #[arg(long, value_name = "FILE")]
    pub data: PathBuf,
    /// The name of the device
    #[arg(long, default_value = "optane-100")]
    pub device: String,
    /// The device's file
    #[arg(long, short, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// First guesses: 0 those of the table, else moved by up to a quarter
    #[arg(long, default_value_t = 0)]
    pub seed: u64,
}

/// `pmep check`
#[derive(Args)]
pub struct Check {
    /// Measured points: a CSV file with the key columns and `value`
    #[arg(long, value_name = "FILE")]
    pub data: Option<PathBuf>,
    /// The device: a name of `pmep devices`, or a file that ends in .toml
    #[arg(long, default_value = "optane-100")]
    pub device: String,
    /// Leave out the cross-validation, which fits five times
    #[arg(long)]
    pub quick: bool,
    /// Measure the speed of the model too, in CPU time
    #[arg(long)]
    pub speed: bool,
    /// Plant a fault, which the check has to find
    #[arg(long, value_enum, hide = true)]
    pub planted: Option<Planted>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// `pmep figures`
#[derive(Args)]
pub struct Figures {
    /// Measured points: a CSV file with the key columns and `value` [default: the file that
    /// PMEP_DATA names]
    #[arg(long, value_name = "FILE")]
    pub data: Option<PathBuf>,
    /// The device: a name of `pmep devices`, or a file that ends in .toml
    #[arg(long, default_value = "optane-100")]
    pub device: String,
    /// The page, HTML
    #[arg(long, short, value_name = "FILE")]
    pub output: PathBuf,
}

/// `pmep devices`
#[derive(Args)]
pub struct Devices {
    /// One device: a name, or a file that ends in .toml
    pub device: Option<String>,
    /// Print the device's file
    #[arg(long, requires = "device")]
    pub toml: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// The whole definition, for manual pages and completions.
#[must_use]
pub fn command() -> clap::Command {
    <Cli as clap::CommandFactory>::command()
}
