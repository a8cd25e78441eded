//! The command line of `pmmon`.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

/// pmmon: which process and thread reads and writes mapped persistent memory, and how much.
///
/// Programs are not modified, and no PMU is needed. To try it without persistent memory:
///
///   pmm-writer /dev/shm/load --total 100G &
///   pmmon top --as-pm /dev/shm/load --count 3
#[derive(Debug, Parser)]
#[command(name = "pmmon", version, verbatim_doc_comment, max_term_width = 100)]
#[command(after_help = "\
Persistent memory is what a process has mapped shared from a pool of pmfs, a heap of pmlib, a DAX device
or a DAX file; --as-pm names others. Figures have intervals of 95 %.

Exit codes: 0 done, 1 the work failed, 2 wrong usage, 77 nothing here can measure this.")]
pub struct Cli {
    /// The command.
    #[command(subcommand)]
    pub command: Command,
}

/// The definition of all that can be typed.
#[must_use]
pub fn command() -> clap::Command {
    <Cli as clap::CommandFactory>::command()
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Show what processes read and write, in rounds. Figures are totals since it began
    #[command(after_help = "\
On a terminal it is a screen with a row for each process: Enter shows the threads of one, s sorts, q quits,
and ? tells all keys. --plain, --json, --count and a pipe give lines instead.

Examples:

  pmmon top
  pmmon top --pid 4242 --threads --interval 5
  pmmon top --json --count 1 | jq '.processes[] | {pid, command, threads}'")]
    Top(Top),
    /// Record samples into a file, for `pmmon report`
    #[command(after_help = "\
Examples:

  pmmon record --pid 4242 --seconds 20 -o load.pmmon
  pmmon record -o load.pmmon -- program arguments

Of a program that it starts, the exit code is the program's.")]
    Record(Record),
    /// Make the tables of a recording again, by process, thread, instruction, file or size
    Report(Report),
    /// Show totals to Prometheus, over HTTP on this machine or in a file
    #[command(after_help = "\
Examples:

  pmmon export --listen 127.0.0.1:9753
  pmmon export --output /var/lib/node_exporter/pmmon.prom --interval 15

A counter shows the most that its estimate has been, because an estimate may fall and a counter must not.
The series of a process that has ended are there for five minutes (--keep), so that Prometheus has read
their last figures.")]
    Export(Export),
    /// Let threads that write to persistent memory run on cores of their own
    #[command(after_help = "\
The file:

  [group.general]
  cpus = \"0-15\"
  expiry = \"60s\"
  [group.pm]
  cpus = \"0-2\"
  expiry = \"200ms\"
  sticky = true

A thread that is seen to write comes to pm, expires to general, and from there to its own mask. Without
sticky it leaves pm at the first look that does not see it write. A mask that the program sets itself
wins. At the end all threads have their own masks again; after kill -9 a guardian gives them back, or
else the next start does.

Examples:

  pmmon pin --config groups.toml --dry-run
  pmmon pin --config groups.toml --by cpuset
  pmmon pin --config groups.toml --cores auto --cores-max 6

With --cores auto the file has the device too, which a model knows (`pmep devices`):

  [model]
  device = \"optane-100\"     # or a device's file that ends in .toml; optane-100 if left out
  modules = 6               # interleaved
  store = \"ntstore\"         # or store+clwb, store+clflushopt, store; ntstore if left out

Writers then have the first of pm's cores, as many as the model says are best for the load: the fewest with
which it writes within 2 % of the most. A wish for another number has to last for a second.")]
    Pin(Pin),
    /// Tell which backends work here, and what the others lack
    #[command(after_help = "\
Exit codes: 0 something works, 77 nothing does.")]
    Doctor(Doctor),
}

/// Processes to look at, and how.
#[derive(Clone, Debug, Args)]
pub struct Look {
    /// A process to look at, with those it starts; may be given several times. Without it, all
    /// that have persistent memory mapped
    #[arg(long, value_name = "PID")]
    pub pid: Vec<u32>,
    /// A file or folder that counts as persistent memory, as the process sees it; may be given
    /// several times
    #[arg(long, value_name = "PATH")]
    pub as_pm: Vec<PathBuf>,
    /// A pool, a heap or another file, as seen from here: only what is mapped of it is looked at;
    /// may be given several times
    #[arg(long, value_name = "FILE", conflicts_with = "as_pm")]
    pub pool: Vec<PathBuf>,
    /// The way to measure
    #[arg(long, value_enum, default_value = "auto", overrides_with = "backend")]
    pub backend: Backend,
    /// Count calls on pools too, exactly, as the backend engine does
    #[arg(long)]
    pub calls: bool,
    /// With watch: tell by a model how many bytes the media write too. One of the four words then
    /// watches another's neighbour, so that the other figures are of three
    #[arg(long)]
    pub media: bool,
    /// Measure loads too, each of which then costs the program as stores do
    #[arg(long)]
    pub reads: bool,
}

/// The way to measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Backend {
    /// The first that works and cannot harm a program: in a virtual machine the clock
    Auto,
    /// Hardware breakpoints on words that are drawn anew: bytes and accesses
    Watch,
    /// A clock: the part of a thread's time that accesses take, not how many there are
    Clock,
    /// Calls on pools as the processes count them themselves: bytes read and written, exactly,
    /// also through a mount; no loads and stores of mappings
    Engine,
    /// A PMU's samples
    Pebs,
    /// Pages that were written, of programs that ask for it; neither bytes nor threads. For top
    Pages,
}

/// `pmmon top`
#[derive(Debug, Args)]
pub struct Top {
    /// Processes
    #[command(flatten)]
    pub look: Look,
    /// A line for each thread
    #[arg(long)]
    pub threads: bool,
    /// Seconds of a round
    #[arg(long, value_name = "SECONDS", default_value_t = 2.0, value_parser = seconds)]
    pub interval: f64,
    /// Rounds of lines; without it, until the end of the processes or a signal, and one into a pipe
    #[arg(long)]
    pub count: Option<u64>,
    /// Print lines on a terminal too
    #[arg(long)]
    pub plain: bool,
    /// Print JSON, a line a round
    #[arg(long)]
    pub json: bool,
    /// Be the guardian of a terminal
    #[arg(long, hide = true)]
    pub guard: bool,
}

/// `pmmon record`
#[derive(Debug, Args)]
pub struct Record {
    /// Processes
    #[command(flatten)]
    pub look: Look,
    /// The file of the recording; a file of this name is replaced
    #[arg(long, short, value_name = "FILE", default_value = "pmmon.data")]
    pub output: PathBuf,
    /// Seconds after which it ends
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    pub seconds: Option<f64>,
    /// A program to start and to look at
    #[arg(last = true, value_name = "PROGRAM", conflicts_with = "pid")]
    pub program: Vec<OsString>,
}

/// `pmmon report`
#[derive(Debug, Args)]
pub struct Report {
    /// A recording of `pmmon record`, a file of `perf record`, or a trace of `pmep replay`;
    /// `-` is stdin, and a recording
    pub file: PathBuf,
    /// The lines
    #[arg(long, value_enum, default_value = "process")]
    pub by: Lines,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// The lines of a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Lines {
    /// Processes
    Process,
    /// Threads
    Thread,
    /// Instructions
    Site,
    /// Files
    File,
    /// Sizes of accesses
    Size,
    /// Each sample, of a file of perf
    Sample,
}

/// `pmmon export`
#[derive(Debug, Args)]
pub struct Export {
    /// Processes
    #[command(flatten)]
    pub look: Look,
    /// A loopback address that answers GET /metrics; port 0 is any that is free
    #[arg(long, value_name = "ADDRESS", required_unless_present = "output")]
    pub listen: Option<SocketAddr>,
    /// A file that is replaced in each round
    #[arg(long, short, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Seconds of a round
    #[arg(long, value_name = "SECONDS", default_value_t = 5.0, value_parser = seconds)]
    pub interval: f64,
    /// Rounds; without it, until the end of the processes or a signal
    #[arg(long)]
    pub count: Option<u64>,
    /// Seconds for which the totals of a process that has ended are shown
    #[arg(long, value_name = "SECONDS", default_value_t = 300.0, value_parser = seconds)]
    pub keep: f64,
    /// A series for each thread
    #[arg(long)]
    pub per_thread: bool,
    /// Processes or threads with series of their own; others are pid="other" together
    #[arg(long, value_name = "NUMBER", default_value_t = 1000)]
    pub max_series: usize,
}

/// `pmmon pin`
#[derive(Debug, Args)]
pub struct Pin {
    /// Processes. Without --backend it is the clock
    #[command(flatten)]
    pub look: Look,
    // The guardian has none, so that clap does not ask for it.
    /// The groups, which have to be given
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// The way by which cores are given
    #[arg(long, value_enum, default_value = "affinity")]
    pub by: By,
    /// How many of pm's cores writers get, the first ones: all without it; auto is as many as the
    /// device model says are best for the load that is seen
    #[arg(long, value_name = "auto|NUMBER", value_parser = number_of_cores)]
    pub cores: Option<NumberOfCores>,
    /// The least number that auto gives
    #[arg(long, value_name = "NUMBER", requires = "cores")]
    pub cores_min: Option<u32>,
    /// The greatest number that auto gives: all of pm's cores without it
    #[arg(long, value_name = "NUMBER", requires = "cores")]
    pub cores_max: Option<u32>,
    /// Change nothing, and tell what would be done
    #[arg(long)]
    pub dry_run: bool,
    /// The folder of journals, by which masks are given back after a kill; by default /run/pmmon
    /// for root, else $XDG_RUNTIME_DIR/pmmon or /tmp/pmmon-UID
    #[arg(long, value_name = "DIR")]
    pub run_dir: Option<PathBuf>,
    /// Seconds after which it ends
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    pub seconds: Option<f64>,
    /// Print JSON, a line for each change
    #[arg(long)]
    pub json: bool,
    /// Be the guardian of a journal
    #[arg(long, value_name = "DIR", hide = true)]
    pub guard: Option<PathBuf>,
}

/// How many cores writers get.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NumberOfCores {
    /// The number that the device model says.
    Auto,
    /// So many.
    Fixed(u32),
}

/// The way by which cores are given.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum By {
    /// Masks of threads (sched_setaffinity)
    Affinity,
    /// A cpuset for each group (cgroup version 1, or else 2)
    Cpuset,
}

/// `pmmon doctor`
#[derive(Debug, Args)]
pub struct Doctor {
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

fn number_of_cores(text: &str) -> Result<NumberOfCores, String> {
    if text == "auto" {
        return Ok(NumberOfCores::Auto);
    }
    let number = text.parse().ok().filter(|number| *number > 0);
    let number = number.ok_or_else(|| "give auto, or a number from 1 on".to_owned())?;
    Ok(NumberOfCores::Fixed(number))
}

fn seconds(text: &str) -> Result<f64, String> {
    let seconds: f64 = text.parse().map_err(|_| "not a number".to_owned())?;
    if (0.01..=1e9).contains(&seconds) {
        Ok(seconds)
    } else {
        Err("take 0.01 to 1000000000 seconds".to_owned())
    }
}
